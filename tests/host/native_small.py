# expect: host_native | C
# limit: 300M
import ctypes
import os

libc = ctypes.CDLL(None)
libc.strdup.restype = ctypes.c_void_p
libc.strdup.argtypes = [ctypes.c_char_p]
line = b"x" * 900
kept = 0
while True:
    libc.strdup(line)
    kept += 1
