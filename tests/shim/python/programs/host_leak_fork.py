"""A child of fork fills memory as soon as it is there."""
import os


def keep():
    pages = []
    for number in range(10_000):
        pages.append(b"x" * 200_000 + b"%d" % number)


if os.fork() == 0:
    keep()
os.wait()
