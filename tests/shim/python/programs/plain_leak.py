"""Keeps what it allocates, with nothing between it and the driver."""
import signal
import sys

import cuda

cuda.start()
kept = []


def take(size):
    address = cuda.alloc(size)
    if address is None:
        if len(sys.argv) > 1:
            print("waits", flush=True)
            signal.pause()
        raise RuntimeError("cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY: out of memory")
    return address


while True:
    kept.append(take(8 << 20))
