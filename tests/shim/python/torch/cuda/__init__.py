"""Tensors are addresses here: each is an allocation of the driver or, if STANDIN_TORCH names the library, a block that it cuts from its
segments."""
import ctypes
import os

import cuda as driver

from .. import _C
from . import memory

live, refused = {}, []


def is_initialized():
    return True


class OutOfMemoryError(RuntimeError):
    pass


if "STANDIN_TORCH" in os.environ:
    library = ctypes.CDLL(os.environ["STANDIN_TORCH"])
    library.block_take.restype = library.segment_at.restype = ctypes.c_ulonglong
else:
    library = None


def free(address):
    size = live.pop(address)
    if library:
        library.block_give(ctypes.c_ulonglong(address), ctypes.c_size_t(size))
    else:
        driver.free(address)


def empty(size):
    if library:
        address = library.block_take(ctypes.c_size_t(size)) or None
    else:
        address = driver.alloc(size, driver.released)
    if address is None:
        refused.append(size)
        for observer in _C.observers:
            observer(0, size, 1 << 30, 0)
        raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size / (1 << 20):.2f} MiB.")
    live[address] = size
    return address


def memory_allocated(device):
    return sum(live.values())


memory_reserved = memory_allocated

caches = []  # of pages, which empty_cache lets go of


def current_device():
    return 0


def memory_stats(device):
    return {"allocated_bytes": {"all": {"current": sum(len(cache.used) for cache in caches)}}}


_C._cuda_memoryStats = memory_stats


def empty_cache():
    for cache in caches:
        cache.let_go()
