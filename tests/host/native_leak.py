# expect: host_native | C
# limit: 300M
import ctypes

libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]


def decode(frame):
    buffer = libc.malloc(200_000)
    libc.memset(buffer, frame & 255, 200_000)
    return buffer is not None


done = 0
for frame in range(10 ** 6):
    done += decode(frame)
