"""Numba's memory on a heap: NUMBA_CUDA_MEMORY_MANAGER=stowage.numba, or `stowage.use_numba()`.

Numba asks the module of that name for `_numba_memory_manager`.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from ._heap import PerDevice
from ._library import Missing, Unsupported, parse_size
from ._run_names import ENV_SPILL, ENV_VRAM_LIMIT


def _pointer(address: int) -> Any:
    """Returns an address in this Numba's type: cuda-python's, or ctypes' in older versions."""
    from numba.cuda.cudadrv import driver  # type: ignore[import-not-found]

    kind = getattr(getattr(driver, "binding", None), "CUdeviceptr", None)
    if kind is not None and getattr(driver, "USE_NV_BINDING", True):
        return kind(address)
    return ctypes.c_uint64(address)


def manager_on(per: PerDevice) -> Any:
    """Returns the manager class that Numba instantiates per context, on the heaps of `per`."""
    try:
        from numba.cuda import GetIpcHandleMixin, HostOnlyCUDAMemoryManager, MemoryInfo, MemoryPointer  # type: ignore
    except ImportError:
        raise Unsupported("this Numba has no memory manager interface; install Numba 0.51 or later") from None

    class StowageMemoryManager(GetIpcHandleMixin, HostOnlyCUDAMemoryManager):  # type: ignore[misc, valid-type]
        """Device memory from Stowage; pinned and mapped host memory from Numba."""

        def initialize(self) -> None:
            super().initialize()
            per.heap(self._device())

        def _device(self) -> int:
            device = getattr(self.context, "device", None)
            return int(getattr(device, "id", 0))

        def memalloc(self, size: int) -> Any:
            device = self._device()
            address = per.alloc(size, device, 0)

            def finalizer() -> None:
                per.free(address, device)

            return MemoryPointer(self.context, _pointer(address), size, finalizer=finalizer)

        def get_memory_info(self) -> Any:
            stats = per.heap(self._device()).stats()
            return MemoryInfo(free=stats["limit_bytes"] - stats["held_bytes"] + stats["cached_bytes"], total=stats["limit_bytes"])

        @property
        def interface_version(self) -> int:
            return 1

    return StowageMemoryManager


def use_numba(*, vram: "str | int | None" = None, spill: "str | int | None" = None) -> None:
    """Lets Numba allocate device memory from a heap for each device. Call it before Numba starts CUDA.

    Without a change to the program: NUMBA_CUDA_MEMORY_MANAGER=stowage.numba.
    """
    vram_bytes, spill_bytes = parse_size(vram or 0, "vram"), parse_size(spill or 0, "spill")
    try:
        from numba import cuda  # type: ignore[import-not-found]
    except ImportError:
        raise Missing("Numba is not installed here; install numba-cuda") from None
    if not hasattr(cuda, "set_memory_manager"):
        raise Unsupported("this Numba has no memory manager interface; install Numba 0.51 or later")
    per = PerDevice(vram_bytes, spill_bytes)
    cuda.set_memory_manager(manager_on(per))


def __getattr__(name: str) -> Any:
    if name != "_numba_memory_manager":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    vram = parse_size(os.environ.get(ENV_VRAM_LIMIT, "0"), ENV_VRAM_LIMIT)
    spill = parse_size(os.environ.get(ENV_SPILL, "0"), ENV_SPILL)
    return manager_on(PerDevice(vram, spill))
