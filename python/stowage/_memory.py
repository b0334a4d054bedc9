"""Memory in use now: on the host, on the GPUs, and by the loaded frameworks.

Creates no CUDA context and imports no framework: a framework that is not loaded holds nothing.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from ctypes import POINTER, c_char, c_int, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any, List, Optional

from ._command import run_json
from ._library import Growing, StowageError, call, declare, lib


class HostStruct(Growing):
    _fields_ = [
        ("reserved", c_uint32),
        ("total_bytes", c_uint64),
        ("usable_bytes", c_uint64),
        ("held_bytes", c_uint64),
        ("resident_bytes", c_uint64),
        ("peak_resident_bytes", c_uint64),
        ("data_bytes", c_uint64),
        ("group_kills", c_uint64),
    ]


class CardStruct(Growing):
    _fields_ = [
        ("own_known", c_uint32),
        ("uuid", c_char * 48),
        ("name", c_char * 64),
        ("total_bytes", c_uint64),
        ("used_bytes", c_uint64),
        ("own_bytes", c_uint64),
    ]


declare(
    {
        "stow_watch_open": (c_int, [POINTER(c_void_p)]),
        "stow_watch_close": (c_int, [c_void_p]),
        "stow_watch_read_host": (c_int, [c_void_p, POINTER(HostStruct)]),
        "stow_watch_device_count": (c_int, [c_void_p]),
        "stow_watch_read_device": (c_int, [c_void_p, c_int, POINTER(CardStruct)]),
    }
)


@dataclass
class Host:
    """The host's memory, as this process sees it."""

    total_bytes: int  #: the most this process can ever hold
    usable_bytes: int  #: what it can still allocate
    held_bytes: int  #: what it holds
    resident_bytes: int  #: the same with file pages
    peak_resident_bytes: int
    data_bytes: int  #: what counts against RLIMIT_DATA
    group_kills: int  #: processes of its control group killed for lack of memory


@dataclass
class Device:
    """A GPU's memory: in use by all processes and, if known, by this one."""

    uuid: str
    name: str
    total_bytes: int
    used_bytes: int
    own_bytes: Optional[int]


@dataclass
class Pool:
    """What a framework holds on a device: live bytes and cached bytes."""

    framework: str
    device: int
    live_bytes: int
    held_bytes: int
    peak_bytes: int


class Watcher:
    """Reads the host and the GPUs through one watch of the library. Not thread-safe."""

    def __init__(self) -> None:
        self._handle = c_void_p()
        self._close = lib().stow_watch_close
        call("stow_watch_open", ctypes.byref(self._handle))

    def host(self) -> Host:
        raw = HostStruct()
        call("stow_watch_read_host", self._handle, ctypes.byref(raw))
        return Host(*(getattr(raw, field[0]) for field in HostStruct._fields_[1:]))

    def devices(self) -> "List[Device]":
        found = []
        for index in range(lib().stow_watch_device_count(self._handle)):
            raw = CardStruct()
            try:
                call("stow_watch_read_device", self._handle, index, ctypes.byref(raw))
            except StowageError:
                continue  # a GPU that does not report its memory
            found.append(
                Device(
                    raw.uuid.decode("utf-8", "replace"),
                    raw.name.decode("utf-8", "replace"),
                    raw.total_bytes,
                    raw.used_bytes,
                    raw.own_bytes if raw.own_known else None,
                )
            )
        return found

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._close(self._handle)


_shared: Optional[Watcher] = None
_lock = threading.Lock()


def _after_fork() -> None:
    """In a forked child: replaces the lock and the watcher, which another thread may have been using."""
    global _shared, _lock
    _shared, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def host() -> Host:
    """Returns the host's memory now.

    >>> now = host()
    >>> 0 < now.held_bytes < now.total_bytes
    True
    """
    global _shared
    with _lock:
        if _shared is None:
            _shared = Watcher()
        return _shared.host()


_driver_seen = False


def driver_here() -> bool:
    """Returns true if the CUDA driver, NVML or the shim is loaded in this process."""
    global _driver_seen
    if not _driver_seen:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            text = file.read()
        _driver_seen = any(name in text for name in ("/libcuda.so", "/libnvidia-ml.so", "/libstowage-shim.so"))
    return _driver_seen


def devices_from_outside() -> "List[Device]":
    """Returns the GPUs' memory from the command: NVML would load the driver here, and `enable()` would be too late."""
    found = []
    for device in run_json(["info"])["devices"]:
        for tier in device["tiers"]:
            if tier["tier"] == "vram":
                found.append(Device(device.get("uuid") or "", device["name"], tier["total_bytes"], tier["used_bytes"], None))
    return found


def devices() -> "List[Device]":
    """Returns the GPUs' memory now; empty if there are no GPUs."""
    global _shared
    if not driver_here():
        return devices_from_outside()
    with _lock:
        if _shared is None:
            _shared = Watcher()
        return _shared.devices()


# ---- frameworks that are loaded ----


def loaded(name: str) -> Any:
    """Returns a module if it is completely imported; never imports it."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return None if module is None or getattr(spec, "_initializing", False) else module


def torch_cuda() -> Any:
    """Returns torch if it is loaded and its CUDA has started."""
    torch = loaded("torch")
    try:
        return torch if torch is not None and torch.cuda.is_initialized() else None
    except Exception:
        return None


def pools() -> "List[Pool]":
    """Returns what PyTorch and CuPy hold on each device, by their own figures."""
    found = []
    torch = torch_cuda()
    if torch is not None:
        for device in range(torch.cuda.device_count()):
            try:
                live, held = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
                peak = torch.cuda.max_memory_allocated(device)
            except Exception:  # a pluggable allocator without statistics
                continue
            if held or device == torch.cuda.current_device():
                found.append(Pool("torch", device, live, held, peak))
    cupy = loaded("cupy")
    if cupy is not None:
        try:
            pool = cupy.get_default_memory_pool()
            if pool.total_bytes():
                device = cupy.cuda.runtime.getDevice()
                found.append(Pool("cupy", device, pool.used_bytes(), pool.total_bytes(), 0))
        except Exception:
            pass
    return found
