"""The library's trace in Python: a recording opens one, and heaps send their events to it.

Heaps know the traces that listen, not the recordings. An event has the program's lines, not those of this package.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, List, Optional, Tuple

from ._library import Growing, call, declare, lib


class _Options(Growing):
    _fields_ = [
        ("reserved", c_uint32),
        ("record_path", c_char_p),
        ("ring_path", c_char_p),
        ("ring_bytes", c_uint64),
        ("text_bytes", c_uint64),
    ]


class _Record(ctypes.Structure):
    _fields_ = [
        ("addr", c_uint64),
        ("bytes", c_uint64),
        ("stream", c_uint64),
        ("stack", c_uint32),
        ("tag", c_uint32),
        ("device", c_uint16),
        ("kind", c_uint8),
        ("tier", c_uint8),
        ("reserved", c_uint32),
    ]


class _Frame(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("file", c_char_p), ("line", c_uint32), ("reserved", c_uint32), ("address", c_void_p)]


ALLOC, FREE, FAIL, _LAUNCH, _TOUCH = 0, 2, 3, 13, 14  #: kinds of events (stowage/trace.h)
_FRAMES_MAX = 32

declare(
    {
        "stow_trace_open": (c_int, [POINTER(c_void_p), POINTER(_Options)]),
        "stow_trace_close": (c_int, [c_void_p]),
        "stow_trace_mark_begin": (c_int, [c_void_p, c_char_p]),
        "stow_trace_mark_end": (c_int, [c_void_p, c_char_p]),
        "stow_trace_fact": (c_int, [c_void_p, c_char_p, c_char_p]),
        "stow_trace_event": (None, [c_void_p, POINTER(_Record)]),
        "stow_trace_tag": (c_int, [c_void_p, c_char_p, POINTER(c_uint32)]),
        "stow_trace_stack": (c_int, [c_void_p, c_uint64, POINTER(_Frame), c_size_t, POINTER(c_uint32)]),
        "stow_trace_stack_find": (c_uint32, [c_void_p, c_uint64]),
    }
)

_listening: "List[Trace]" = []


def listening() -> "List[Trace]":
    """Returns the traces that listen to heaps."""
    return list(_listening)


class Trace:
    """A .stow file being written."""

    def __init__(self, path: str) -> None:
        self._handle = c_void_p()
        self.events = 0  #: events of heaps
        options = _Options(record_path=os.fsencode(path))
        call("stow_trace_open", ctypes.byref(self._handle), ctypes.byref(options))

    def listen(self) -> None:
        """Receives the events of heaps from now on, until it is closed."""
        _listening.append(self)

    def fact(self, name: str, value: str) -> None:
        """Writes a fact about the whole recording."""
        if self._handle:
            call("stow_trace_fact", self._handle, name.encode(), value.encode())

    def event(self, kind: int, address: int, size_bytes: int, tag: "Optional[str]") -> None:
        """Records an event of a heap, with the program's lines."""
        if not self._handle:
            return  # closed by another thread in the meantime
        self.events += 1
        number = c_uint32()
        if tag is not None:
            lib().stow_trace_tag(self._handle, tag.encode(), ctypes.byref(number))
        event = _Record(addr=address, bytes=size_bytes, stack=self._stack(), tag=number.value, kind=kind)
        lib().stow_trace_event(self._handle, ctypes.byref(event))

    def block(self, kind: int, address: int, size_bytes: int, stack: int) -> None:
        """Records an event of a block with a stack that `stack` numbered."""
        event = _Record(addr=address, bytes=size_bytes, stack=stack, kind=kind)
        lib().stow_trace_event(self._handle, ctypes.byref(event))

    def launch(self, name: str, device_ns: int, addresses: "List[int]") -> None:
        """Records a kernel, its time on the device and the addresses that it uses."""
        number = c_uint32()
        lib().stow_trace_tag(self._handle, name.encode("utf-8", "replace")[:200], ctypes.byref(number))
        first = addresses[0] if addresses else 0
        event = _Record(addr=first, bytes=device_ns, tag=number.value, kind=_LAUNCH)
        lib().stow_trace_event(self._handle, ctypes.byref(event))
        for address in addresses[1:]:
            event = _Record(addr=address, kind=_TOUCH)
            lib().stow_trace_event(self._handle, ctypes.byref(event))

    def stack(self, frames: "List[Tuple[str, str, int]]") -> int:
        """Returns the number of a stack: (function, file, line), innermost first."""
        if not frames:
            return 0
        listed = (_Frame * len(frames))()
        for slot, (name, file, line) in zip(listed, frames):
            slot.name, slot.file, slot.line = name.encode("utf-8", "replace"), os.fsencode(file), line
        number = c_uint32()
        lib().stow_trace_stack(self._handle, 0, listed, len(frames), ctypes.byref(number))
        return number.value

    def event_at(self, kind: int, address: int, size_bytes: int, tag: str, file: str, line: int) -> None:
        """Records an event of host memory, with one line of the program."""
        if not self._handle:
            return
        number, stack = c_uint32(), c_uint32()
        lib().stow_trace_tag(self._handle, tag.encode(), ctypes.byref(number))
        if file:
            frame = _Frame(name=tag.encode(), file=file.encode(), line=line)
            lib().stow_trace_stack(self._handle, 0, ctypes.byref(frame), 1, ctypes.byref(stack))
        event = _Record(addr=address, bytes=size_bytes, stack=stack.value, tag=number.value, kind=kind, tier=1)
        lib().stow_trace_event(self._handle, ctypes.byref(event))

    def _stack(self) -> int:
        """Returns the number of the caller's stack, without frames of this package."""
        frames: "List[Any]" = []
        at: Any = sys._getframe(1)
        while at is not None and len(frames) < _FRAMES_MAX:
            if not at.f_globals.get("__name__", "").startswith("stowage."):
                frames.append((at.f_code, at.f_lineno))
            at = at.f_back
        key = hash(tuple((id(code), line) for code, line in frames)) & (1 << 64) - 1 or 1
        known = lib().stow_trace_stack_find(self._handle, key)
        if known:
            return known
        listed = (_Frame * max(1, len(frames)))()
        for slot, (code, line) in zip(listed, frames):
            slot.name, slot.file, slot.line = code.co_name.encode(), code.co_filename.encode(), line
        number = c_uint32()
        lib().stow_trace_stack(self._handle, key, listed, len(frames), ctypes.byref(number))
        return number.value

    def mark(self, name: str, begins: bool) -> None:
        """Marks the start or the end of a named range."""
        call("stow_trace_mark_begin" if begins else "stow_trace_mark_end", self._handle, name.encode())

    def close(self) -> None:
        """Closes the file and stops listening."""
        if self in _listening:
            _listening.remove(self)
        handle, self._handle = self._handle, c_void_p()
        call("stow_trace_close", handle)
