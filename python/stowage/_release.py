"""Frees memory, measures how much, and shows what holds the rest.

`release()` deletes the given names, collects unreachable objects and drops the caches of the loaded frameworks. It never frees what
the program can still reach and did not name. `holders()` shows who holds an object.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import traceback
import types
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from . import _memory, _objects, _show
from ._cache import shrink_all
from ._heap import open_heaps
from ._library import format_size as size
from ._library import shown
from ._pieces import Kinds
from ._ram import undisturbed

# ---- release ----


@dataclass
class Released:
    """The result of a release: bytes freed by each step, and what is still there."""

    steps: "List[Tuple[str, int, int]]" = field(default_factory=list)  #: (what was done, host bytes, device bytes)
    names: "List[str]" = field(default_factory=list)  #: names that were deleted
    rest: "List[Tuple[str, int, List[str]]]" = field(default_factory=list)  #: (what, bytes, who holds it)
    hidden: "List[str]" = field(default_factory=list)  #: unexpected holders
    host_bytes: int = 0
    device_bytes: int = 0

    @property
    def freed_bytes(self) -> int:
        """Host and device together."""
        return self.host_bytes + self.device_bytes

    def _rows(self) -> "List[Tuple[str, str, str]]":
        return [("freed", "host", "device")] + [(what, size(host), size(device)) for what, host, device in self.steps]

    def _rest_rows(self) -> "List[Tuple[str, str, str]]":
        rows = [("still there", "bytes", "held by")]
        for what, held, paths in self.rest:
            rows.append((what, size(held), ", ".join(paths[:3]) or "nothing Python can name: C code or a saved graph"))
        return rows

    def __repr__(self) -> str:
        lines = [f"freed {size(self.host_bytes)} of the host, {size(self.device_bytes)} of devices"]
        if self.names:
            lines.append(f"  deleted: {', '.join(self.names)}")
        if self.steps:
            lines.append(_show.text_table(self._rows(), right=[1, 2]))
        if self.rest:
            lines.append(_show.text_table(self._rest_rows(), right=[1]))
        lines += [f"  {line}" for line in self.hidden]
        return _show.join_lines(lines)

    def _repr_html_(self) -> str:
        parts = [_show.html_table(self._rows(), right=[1, 2])] if self.steps else []
        if self.rest:
            parts.append(_show.html_table(self._rest_rows(), right=[1]))
        parts += [_show.html_text(line) for line in self.hidden]
        title = f"freed {size(self.host_bytes)} of the host, {size(self.device_bytes)} of devices"
        return _show.html_block(title, *parts)


def _held() -> "Tuple[int, int]":
    """Returns the bytes held now: on the host, and on devices by frameworks and heaps of this process."""
    device = sum(pool.held_bytes for pool in _memory.pools())
    device += sum(one.stats()["held_bytes"] for one in open_heaps())
    return _memory.host().held_bytes, device


def _collect() -> None:
    # Twice: objects freed by a finalizer are found only by the next collection.
    gc.collect()
    gc.collect()


def _drop_torch() -> None:
    torch = _memory.torch_cuda()
    if torch is not None:
        with contextlib.suppress(Exception):  # another allocator was plugged in, or it is too old to have it
            torch.cuda.empty_cache()


def _drop_cupy() -> None:
    cupy = _memory.loaded("cupy")
    for name in ("get_default_memory_pool", "get_default_pinned_memory_pool"):
        pool = getattr(cupy, name, None)
        if pool is not None:
            with contextlib.suppress(Exception):
                pool().free_all_blocks()


def _trim_heaps() -> None:
    for one in open_heaps():
        one.trim()


def trim_host() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


_STEPS: "List[Tuple[str, Callable[[], object]]]" = [
    ("unreachable objects", _collect),
    ("stowage caches", shrink_all),
    ("PyTorch's cache", _drop_torch),
    ("CuPy's pools", _drop_cupy),
    ("cached pages of heaps", _trim_heaps),
    ("free memory of the C library", trim_host),
]


def _last_tracebacks() -> "Iterator[types.TracebackType]":
    """Clears the tracebacks that the interpreter keeps for a debugger."""
    last = getattr(sys, "last_exc", None)
    for kept in (getattr(sys, "last_traceback", None), getattr(last, "__traceback__", None)):
        if kept is not None:
            yield kept


def drop_tracebacks() -> None:
    """Clears the frames of the last traceback and drops it."""
    for kept in _last_tracebacks():
        traceback.clear_frames(kept)
        for frame, _ in traceback.walk_tb(kept):
            frame.f_locals  # before Python 3.13 a dict of its own, which is brought up to date here
    for name in ("last_traceback", "last_value", "last_type", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)


def _frames_hold(piece: Any) -> bool:
    for kept in _last_tracebacks():
        at: "Optional[types.TracebackType]" = kept
        while at is not None:
            # The locals of a module's frame are its globals: they do not belong to the traceback.
            frame = at.tb_frame
            if frame.f_code.co_flags & _objects.OPTIMIZED and _objects.local_name(frame, piece.object) is not None:
                return True
            at = at.tb_next
    return False


def _check_names(names: "Tuple[str, ...]", space: "Dict[str, Any]") -> None:
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f'release: {type(name).__name__} is not a name; write release("x"): only a name can be deleted, an object is freed '
                "with its last name (stowage.holders(x) lists them)"
            )
        if name not in space:
            raise NameError(f'release: no name "{name}" in {space.get("__name__", "the caller")}; nothing was deleted')


def _delete(names: "Tuple[str, ...]", space: "Dict[str, Any]") -> "List[str]":
    gone = []
    for name in dict.fromkeys(names):
        del space[name]
        gone.append(name)
    return gone


def release(*names: str, tracebacks: bool = False, most: int = 8) -> Released:
    """Frees what can be freed, and shows how much that was and what holds the rest.

    First it deletes the given names from the caller's globals. Then it collects unreachable objects, drops the caches of PyTorch and
    CuPy, trims heaps, and returns free memory to the system. `tracebacks` also drops the frames of the last traceback, which hold
    the local variables of the failed call.

    >>> import numpy
    >>> table = numpy.ones((1000, 1000))
    >>> release("table").freed_bytes > 7_000_000
    True
    >>> release("tabel")
    Traceback (most recent call last):
        ...
    NameError: release: no name "tabel" in stowage._release; nothing was deleted
    """
    caller = sys._getframe(1)
    return release_from(caller.f_globals, names, tracebacks=tracebacks, most=most)


def release_from(
    space: "Dict[str, Any]",
    names: "Tuple[str, ...]",
    *,
    tracebacks: bool = False,
    most: int = 8,
    first: "Optional[Tuple[str, Callable[[], object]]]" = None,
) -> Released:
    """Does the same for the names of a given namespace; runs `first` before everything else."""
    _check_names(names, space)
    with undisturbed():
        return _release_now(space, names, tracebacks, most, first)


def _release_now(
    space: "Dict[str, Any]",
    names: "Tuple[str, ...]",
    tracebacks: bool,
    most: int,
    first: "Optional[Tuple[str, Callable[[], object]]]",
) -> Released:
    result = Released()
    begin = before = _held()
    steps: "List[Tuple[str, Callable[[], object]]]" = []
    if first is not None:
        steps.append(first)
    if names:
        steps.append((f"the names {', '.join(names)}", lambda: result.names.extend(_delete(names, space))))
    if tracebacks:
        steps.append(("the last traceback", drop_tracebacks))
    for what, step in steps + _STEPS:
        step()
        after = _held()
        gone = (max(0, before[0] - after[0]), max(0, before[1] - after[1]))
        if max(gone) >= 1 << 16:
            result.steps.append((what, *gone))
        before = after
    result.host_bytes = max(0, begin[0] - before[0])
    result.device_bytes = max(0, begin[1] - before[1])
    pieces = _objects.find_large()[:most]
    finder = _objects.Finder()
    for piece in pieces:
        result.rest.append((piece.kind, piece.bytes, _objects.paths_to(piece.object, finder)))
        if _frames_hold(piece):
            result.hidden.append(f"the last traceback's frames hold {piece.kind}: release(tracebacks=True), or %release")
    return result


# ---- holders ----


class Holders(List[str]):
    """Who holds an object: a list of names, simplest first, and the bytes it would free."""

    def __init__(self, names: "List[str]", title: str) -> None:
        super().__init__(names)
        self.title = title

    def __repr__(self) -> str:
        lines = [self.title] + [f"  {name}" for name in self]
        if not self:
            lines.append("  nothing Python can name holds it: C code, a saved graph, or a temporary")
        return "\n".join(map(shown, lines))

    def _repr_html_(self) -> str:
        return _show.html_block(self.title, _show.html_text("\n".join(self) or "nothing Python can name"))


def holders(thing: Any) -> Holders:
    """Returns who holds a tensor, an array or any object: module names, lists, closures, locals, and views that keep all of it.

    >>> import numpy, sys, types
    >>> shelf = sys.modules["shelf"] = types.ModuleType("shelf")
    >>> def fill():
    ...     table = numpy.zeros((1000, 100))
    ...     shelf.rows = [table[:2]]
    >>> fill()
    >>> holders(shelf.rows[0])
    a view of 781.2 KiB on host: numpy.ndarray float64 (2, 100)
      shelf.rows[0]
    >>> del sys.modules["shelf"]
    """
    with undisturbed():
        return _find_holders(thing)


def _find_holders(thing: Any) -> Holders:
    piece = Kinds().piece(thing)
    if piece is None:
        return Holders(_objects.paths_to(thing), f"{type(thing).__module__}.{type(thing).__qualname__}")
    finder = _objects.Finder()
    names = finder.paths(thing)
    if piece.key[0] != "object":
        others = _objects.sharers(piece)
        finder.hidden.add(id(others))
        for at in range(len(others)):
            if others[at] is not thing:
                part = getattr(Kinds().piece(others[at]), "view", False)
                shown = finder.paths(others[at])
                names += [f"{name} ({'a view' if part else 'the whole'} of it)" for name in shown if "a view of it" not in name]
    what = "a view of " if piece.view else ""
    title = f"{what}{size(piece.bytes)} on {piece.place}: {piece.kind}"
    return Holders(list(dict.fromkeys(names)), title)
