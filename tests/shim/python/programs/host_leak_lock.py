"""Fills memory in one call of C, and stays in it with the interpreter's lock in its hand: it cannot answer meanwhile."""
import ctypes
import itertools
import time

usleep = ctypes.PyDLL(None).usleep  # unlike CDLL's, it keeps the lock
pages = []
pages.extend(itertools.chain(map(b"x".__mul__, [200_000] * 1500), map(usleep, [2_500_000])))
time.sleep(60)
