"""The library's heap in Python, and CuPy's memory on it.

`heap()` opens the allocator of one device, real or simulated. `use_cupy()` lets CuPy allocate from heaps, one per device. Heaps send
their events to the traces that listen.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from ctypes import POINTER, c_bool, c_char, c_char_p, c_int, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, List, Optional

from ._library import (
    Growing,
    Missing,
    OutOfMemory,
    StowageError,
    Unsupported,
    call,
    declare,
    device_name,
    format_size,
    lib,
    parse_size,
    shown,
)
from ._trace import ALLOC, FAIL, FREE, Trace, listening

_VRAM, _HOST = 0, 1


class _Gate(ctypes.Structure):
    _fields_ = [("close", c_void_p), ("open", c_void_p), ("user", c_void_p)]


class DeviceProps(Growing):
    """stow_device_props."""

    _fields_ = [
        ("has_vmm", c_uint32),
        ("kind", c_char * 8),
        ("name", c_char * 64),
        ("uuid", c_char * 48),
        ("index", c_int),
        ("driver_version", c_int),
        ("compute_major", c_int),
        ("compute_minor", c_int),
        ("host_backing", c_int),
        ("host_numa_node", c_int),
        ("vram_bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("page_bytes", c_uint64),
    ]


class _Options(Growing):
    _fields_ = [
        ("background", c_uint32),
        ("device", c_void_p),
        ("device_name", c_char_p),
        ("vram_limit_bytes", c_uint64),
        ("host_limit_bytes", c_uint64),
        ("page_bytes_max", c_uint64),
        ("reserve_bytes", c_uint64),
        ("host_reserve_bytes", c_uint64),
        ("disk_folder", c_char_p),
        ("gate", _Gate),
    ]


class _Failure(Growing):
    _fields_ = [("reserved", c_uint32)] + [
        (name, c_uint64)
        for name in (
            "asked_bytes",
            "needed_page_bytes",
            "limit_bytes",
            "held_bytes",
            "live_bytes",
            "pinned_bytes",
            "cached_bytes",
            "device_free_bytes",
            "host_limit_bytes",
            "host_held_bytes",
            "largest_free_bytes",
            "live_count",
        )
    ]


class _TierStats(ctypes.Structure):
    _fields_ = [
        (name, c_uint64)
        for name in (
            "limit_bytes",
            "held_bytes",
            "live_bytes",
            "pinned_bytes",
            "cached_bytes",
            "peak_held_bytes",
            "peak_live_bytes",
        )
    ] + [("reserved", c_uint64 * 3)]


class _Stats(Growing):
    # The beginning of stow_heap_stats: the library writes as much as struct_bytes says.
    _fields_ = [("streams", c_uint32), ("tier", _TierStats * 3), ("live_count", c_uint64)]


class _Entry(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_uint32),
        ("tag", c_uint32),
        ("ptr", c_uint64),
        ("bytes", c_uint64),
        ("stream", c_void_p),
        ("tier", c_int),
        ("heat", c_int),
    ]


_VISIT = ctypes.CFUNCTYPE(c_bool, c_void_p, POINTER(_Entry))
declare(
    {
        "stow_device_get_props": (c_int, [c_void_p, POINTER(DeviceProps)]),
        "stow_heap_device": (c_void_p, [c_void_p]),
        "stow_heap_open": (c_int, [POINTER(c_void_p), POINTER(_Options)]),
        "stow_heap_close": (c_int, [c_void_p]),
        "stow_heap_alloc": (c_int, [POINTER(c_uint64), c_void_p, c_uint64, c_void_p]),
        "stow_heap_free": (c_int, [c_void_p, c_uint64, c_void_p]),
        "stow_heap_trim": (c_int, [c_void_p, c_uint64, POINTER(c_uint64)]),
        "stow_heap_set_limit": (c_int, [c_void_p, c_int, c_uint64]),
        "stow_heap_get_stats": (c_int, [c_void_p, POINTER(_Stats)]),
        "stow_heap_last_failure": (c_int, [c_void_p, POINTER(_Failure)]),
        "stow_heap_each": (c_int, [c_void_p, _VISIT, c_void_p]),
        "stow_tag_push": (c_int, [c_char_p]),
        "stow_tag_pop": (c_int, []),
        "stow_tag_name": (c_char_p, [c_uint32]),
    }
)

_open_heaps: "weakref.WeakSet[Heap]" = weakref.WeakSet()
_open_lock = threading.RLock()  # guards _open_heaps: one thread lists the heaps while another opens one


def _after_fork() -> None:
    global _open_lock
    _open_lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def _every_heap() -> "List[Heap]":
    with _open_lock:
        return list(_open_heaps)


def _number(what: str, given: Any) -> int:
    """Checks an address or a stream: ctypes would accept a string as a pointer."""
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 1 << 64:
        raise TypeError(f"{what}: {given!r} is invalid; pass a number from alloc() or the framework")
    return given


def _tag_text(tag: "Optional[str]") -> "Optional[bytes]":
    if tag is not None and not isinstance(tag, str):
        raise TypeError(f'tag: {tag!r} is not a text; write it as "batch 7"')
    return None if tag is None else tag.encode("utf-8", "replace")


class Block:
    """An allocation that is freed with its last reference."""

    __slots__ = ("address", "heap", "nbytes", "stream", "tag", "__weakref__")

    def __init__(self, heap: "Heap", size: int, stream: int, tag: "Optional[str]") -> None:
        __tracebackhide__ = True  # a notebook shows the caller's line, not ours
        self.heap, self.nbytes, self.stream, self.tag = heap, size, stream, tag
        self.address = heap.alloc(size, stream=stream, tag=tag)

    def __del__(self) -> None:
        if getattr(self, "address", 0) and self.heap._handle:
            self.heap.free(self.address, stream=self.stream)

    def __repr__(self) -> str:
        return f"<{format_size(self.nbytes)} at {self.address:#x}{', ' + shown(self.tag) if self.tag else ''}>"


class Heap:
    """The allocator of one device. Addresses are plain numbers of device memory.

    >>> with heap("sim:64M") as small:
    ...     address = small.alloc("16M", tag="batch 1")
    ...     small.stats()["live_bytes"]
    16777216
    """

    def __init__(self, device: str, vram: int, spill: int) -> None:
        self.device = device
        self._handle = c_void_p()
        options = _Options(device_name=device.encode(), background=1)
        options.vram_limit_bytes, options.host_limit_bytes = vram, spill
        call("stow_heap_open", ctypes.byref(self._handle), ctypes.byref(options))
        self.simulated = bool(self.props().kind == b"sim")  #: in host memory: the default where there is no GPU
        with _open_lock:
            _open_heaps.add(self)
        for trace in listening():
            self.introduce(trace)

    def props(self) -> DeviceProps:
        """Returns what its device is and can do."""
        props = DeviceProps()
        call("stow_device_get_props", lib().stow_heap_device(self.handle), ctypes.byref(props))
        return props

    @property
    def _where(self) -> str:
        if not self.simulated:
            return self.device or "the first device"
        return f"{self.device}, a simulated device" if self.device else "a simulated device"

    def introduce(self, trace: Trace) -> None:
        """Writes the facts of this heap into a trace that listens."""
        stats = self.stats()
        trace.fact("device_name", self.device or "the first device")
        trace.fact("device_bytes", str(stats["limit_bytes"]))

    @property
    def handle(self) -> c_void_p:
        """The library's own handle, for the functions of stowage/heap.h."""
        if not self._handle:
            raise StowageError("this heap is closed; open another with stowage.heap()")
        return self._handle

    def alloc(self, size: "str | int", *, stream: int = 0, tag: Optional[str] = None) -> int:
        """Allocates `size` bytes and returns their address. OutOfMemory contains the numbers of the failure."""
        __tracebackhide__ = True
        address = c_uint64()
        bytes_wanted, named, ordered = parse_size(size), _tag_text(tag), _number("stream", stream)
        if named is not None:
            call("stow_tag_push", named)
        try:
            call("stow_heap_alloc", ctypes.byref(address), self.handle, bytes_wanted, ordered or None)
        except OutOfMemory:
            self._tell(FAIL, self.failure()["device_free_bytes"], bytes_wanted, tag)
            raise
        finally:
            if named is not None:
                call("stow_tag_pop")
        self._tell(ALLOC, address.value, bytes_wanted, tag)
        return address.value

    def block(self, size: "str | int", *, stream: int = 0, tag: Optional[str] = None) -> Block:
        """Allocates `size` bytes as an object that frees them with its last reference.

        >>> small = heap("sim:64M")
        >>> kept = small.block("1M")
        >>> del kept
        >>> small.stats()["live_bytes"]
        0
        """
        __tracebackhide__ = True
        return Block(self, parse_size(size), stream, tag)

    @staticmethod
    def _tell(kind: int, address: int, size: int, tag: "Optional[str]" = None) -> None:
        for trace in listening():
            trace.event(kind, address, size, tag)

    def free(self, address: int, *, stream: int = 0) -> None:
        """Frees an address; raises an error for a wrong one."""
        call("stow_heap_free", self.handle, _number("address", address), _number("stream", stream) or None)
        self._tell(FREE, address, 0)

    def trim(self, keep: "str | int" = 0) -> int:
        """Returns cached pages to the device. Returns the bytes released."""
        released = c_uint64()
        call("stow_heap_trim", self.handle, parse_size(keep), ctypes.byref(released))
        return released.value

    def limit(self, *, vram: "str | int | None" = None, spill: "str | int | None" = None) -> None:
        """Changes the limits of device memory and of spilled host memory."""
        for tier, wanted in ((_VRAM, vram), (_HOST, spill)):
            if wanted is not None:
                call("stow_heap_set_limit", self.handle, tier, parse_size(wanted))

    def stats(self) -> "Dict[str, int]":
        """Returns the live, held and cached bytes and the peaks; `spilled_bytes` of them are on the host."""
        raw = _Stats()
        call("stow_heap_get_stats", self.handle, ctypes.byref(raw))
        vram, host = raw.tier[_VRAM], raw.tier[_HOST]
        return {
            "limit_bytes": vram.limit_bytes,
            "live_bytes": vram.live_bytes + host.live_bytes,
            "held_bytes": vram.held_bytes + host.held_bytes,
            "cached_bytes": vram.cached_bytes + host.cached_bytes,
            "peak_live_bytes": vram.peak_live_bytes,
            "peak_held_bytes": vram.peak_held_bytes,
            "spilled_bytes": host.held_bytes,
            "live_count": raw.live_count,
        }

    def tags(self) -> "List[Dict[str, Any]]":
        """Returns live bytes by tag, largest first."""
        sums: "Dict[int, List[int]]" = {}

        def visit(_: Any, entry: Any) -> bool:
            line = sums.setdefault(entry.contents.tag, [0, 0])
            line[0] += entry.contents.bytes
            line[1] += 1
            return True

        call("stow_heap_each", self.handle, _VISIT(visit), None)
        lines = [
            {"tag": lib().stow_tag_name(tag).decode("utf-8", "replace"), "bytes": line[0], "count": line[1]}
            for tag, line in sums.items()
        ]
        return sorted(lines, key=lambda line: -line["bytes"])

    def failure(self) -> "Dict[str, int]":
        """Returns the numbers of the latest request that failed."""
        raw = _Failure()
        call("stow_heap_last_failure", self.handle, ctypes.byref(raw))
        return {field[0]: getattr(raw, field[0]) for field in _Failure._fields_[1:]}

    def close(self) -> None:
        """Closes the heap; frees live allocations and raises an error if there were any."""
        if not self._handle:
            return
        handle, self._handle = self._handle, c_void_p()
        call("stow_heap_close", handle)

    def __enter__(self) -> "Heap":
        return self

    def __exit__(self, *_: Any) -> None:
        self._drop()

    def _drop(self) -> None:
        """Closes the heap at the end of a `with`, with all its live allocations."""
        try:
            self.close()
        except StowageError:
            pass

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._drop()

    def __repr__(self) -> str:
        if not self._handle:
            return "<stowage heap, closed>"
        stats = self.stats()
        return f"<stowage heap on {self._where}: {format_size(stats['live_bytes'])} live of {format_size(stats['limit_bytes'])}>"


def heap(device: "Optional[str | int]" = None, *, vram: "str | int | None" = None, spill: "str | int | None" = None) -> Heap:
    """Opens a heap on a device: a GPU by index or UUID, or a simulated one such as "sim:16G"; by default the first GPU, or a simulated
    one where there is no GPU.

    `vram` limits its device memory; `spill` is how much may go to host memory when that is full.

    >>> heap("sim:lots")
    Traceback (most recent call last):
        ...
    stowage._library.Invalid: device "sim:lots": "lots" has no valid size suffix (K, M, G or T); write it like ...
    """
    return Heap(
        device_name(device),
        0 if vram is None else parse_size(vram, "vram"),
        0 if spill is None else parse_size(spill, "spill"),
    )


def heap_facts() -> "List[Dict[str, Any]]":
    """Returns every open heap with its tags, for info()."""
    facts = []
    for one in _every_heap():
        try:
            known: "Dict[str, Any]" = {"device": one.device or "the first device", "simulated": one.simulated, "tags": one.tags()}
            known.update(one.stats())
            facts.append(known)
        except StowageError:
            continue
    return facts


def open_heaps() -> "List[Heap]":
    """The heaps that are open."""
    return [one for one in _every_heap() if one._handle]


# ---- one heap for each device, for other libraries ----


class PerDevice:
    """Heaps by device number, opened on first use, and the stream of each allocation."""

    def __init__(self, vram: int, spill: int) -> None:
        self._vram, self._spill = vram, spill
        self._heaps: "Dict[int, Heap]" = {}
        self._streams: "Dict[int, int]" = {}
        self._lock = threading.Lock()

    def heap(self, device: int) -> Heap:
        with self._lock:
            if device not in self._heaps:
                self._heaps[device] = Heap(str(device), self._vram, self._spill)
            return self._heaps[device]

    def alloc(self, size: int, device: int, stream: int) -> int:
        address = self.heap(device).alloc(max(size, 1), stream=stream)
        self._streams[address] = stream
        return address

    def free(self, address: int, device: int) -> None:
        # Ordered by the stream of the allocation, like the libraries' own pools.
        self.heap(device).free(address, stream=self._streams.pop(address, 0))


def use_cupy(*, vram: "str | int | None" = None, spill: "str | int | None" = None) -> None:
    """Lets CuPy allocate device memory from a heap for each device. Existing arrays stay in CuPy's pool.

    A request that does not fit raises CuPy's own OutOfMemoryError with the heap's explanation.
    """
    vram_bytes, spill_bytes = parse_size(vram or 0, "vram"), parse_size(spill or 0, "spill")
    try:
        import cupy  # type: ignore[import-not-found]
    except ImportError:
        raise Missing("CuPy is not installed here; install cupy-cuda12x or the one for your CUDA") from None
    if not hasattr(getattr(cupy, "cuda", None), "PythonFunctionAllocator"):
        raise Unsupported(f"CuPy {getattr(cupy, '__version__', '(no version)')} has no PythonFunctionAllocator; install CuPy 9 or later")
    per = PerDevice(vram_bytes, spill_bytes)

    def alloc(size: int, device: int) -> int:
        try:
            return per.alloc(size, device, cupy.cuda.get_current_stream().ptr)
        except OutOfMemory as reason:
            failed = per.heap(device).failure()
            error = cupy.cuda.memory.OutOfMemoryError(size, failed["live_bytes"], failed["limit_bytes"])
            add = getattr(error, "add_note", None)
            if add is not None:
                add(f"stowage: {reason}")
            raise error from reason

    def free(address: int, device: int) -> None:
        per.free(address, device)

    cupy.cuda.set_allocator(cupy.cuda.PythonFunctionAllocator(alloc, free).malloc)
