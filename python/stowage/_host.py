"""The host memory of this process, described and explained by the engine of `stowage run`.

_holders.py finds what variables hold; libstowage-analysis explains it. They meet in the files of a run's folder, so a notebook and a
command get the same answer. Called by explanations of host memory errors, and by recordings without a GPU.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import tempfile
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, FrozenSet, List, NamedTuple, Optional, Tuple

from . import _holders, _memory, _show
from ._access import get
from ._analysis import Answer, explain_run
from ._errors import trace_of
from ._library import StowageError
from ._library import format_size as size
from ._run_names import RUN_HOST, RUN_LINE_ASKED, RUN_OBJECTS, RUN_WATCH
from ._trace import ALLOC, FREE, Trace

_holders.name_cells(_show.name_cells)  # as In[3]

#: (seconds, bytes held): the last readings of the watch over host memory.
samples: "Deque[Tuple[float, int]]" = deque(maxlen=200)


def _innermost(error: "Optional[BaseException]") -> Any:
    """Returns the frame an exception came from; its locals may hold what fills memory."""
    where = trace_of(error) if error is not None else None
    frame = None
    while where is not None:
        frame, where = where.tb_frame, where.tb_next
    return frame


def _find(main: Any, others: "List[Any]", held: int) -> "List[Any]":
    """Returns what is large. Python's cycle collector waits meanwhile: the search would set it off, and it frees what is looked for."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return list(_holders.largest(main, others, held, collects))
    finally:
        if collects:
            gc.enable()


def describe_largest(error: "Optional[BaseException]" = None, most: int = 5) -> "List[str]":
    """Returns lines about the largest objects of this process: name, type, bytes, and the line that fills them."""
    main = _innermost(error)
    found = _find(main, _holders.threads()[1], _memory.host().held_bytes)
    lines = []
    for bytes_, weight, name, where, kind in sorted(_holders.without_wholes(found), key=lambda one: -one[0])[:most]:
        place, grows = _holders.place_of(name, where, main)
        shape = f" {weight.shape} of {weight.of}" if weight.shape else f" of {weight.count} {weight.of or 'elements'}" if weight.count > 1 else ""
        path, _, line = place.rpartition(":")
        at = f", {'grows' if grows else 'made'} at line {line} of {os.path.basename(path)}" if path else ""
        lines.append(f"{name}: {kind}{shape}, {size(bytes_)}{at}")
    return lines


def weigh_containers(names: "Dict[str, Any]", least: int = 1 << 20) -> "Dict[int, Tuple[int, str, List[str]]]":
    """Returns the containers among these variables that hold at least `least` bytes with all that is in them: by id, the bytes, the kind
    and the names.

    >>> list(weigh_containers({"rows": [bytes(1000) for _ in range(2000)], "n": 3}).values())[0][1:]
    ('list of 2000 bytes', ['rows'])
    """
    found: "Dict[int, Tuple[int, str, List[str]]]" = {}
    until = time.monotonic() + _holders.SECONDS
    for name, value in list(names.items()):
        if name.startswith("_") or not isinstance(value, (list, tuple, dict, set, frozenset, deque)) or time.monotonic() > until:
            continue
        if id(value) in found:
            found[id(value)][2].append(name)
            continue
        with contextlib.suppress(Exception):  # an object with its own behaviour
            weight = _holders.weigh(value, _holders.DEEP)
            if weight.size >= least:
                found[id(value)] = weight.size, f"{_holders.type_name(value)} of {weight.count} {weight.of or 'elements'}", [name]
    return found


def _resident(name: str) -> int:
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0


def _write(folder: str, name: str, lines: "List[str]") -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8", errors="replace") as file:
        file.write("\n".join(lines) + "\n")


class Scene(NamedTuple):
    """What this process held at a moment, as the lines of a run's folder."""

    host: "List[str]"
    objects: "List[str]"
    held_bytes: int
    running: "FrozenSet[Tuple[Any, int]]"  #: (code, line) of the program's own functions on the stack


def take_scene(main: Any, limit: "Optional[int]") -> Scene:
    """Describes what this process holds now. `main` is the frame where the program is."""
    now = _memory.host()
    whole = limit if limit is not None else now.total_bytes
    found = _find(main, _holders.threads()[1], now.held_bytes)
    pid = os.getpid()
    shared = _resident("RssShmem")
    start = samples[0][0] if samples else 0.0
    growth = int((now.held_bytes - samples[0][1]) / max(0.05, time.monotonic() - start)) if samples else 0
    host = [
        f"limit\t{whole}\t{'python' if limit is not None else 'machine'}",
        f"host\t{now.total_bytes}\t{now.usable_bytes}",
        f"held\t{now.held_bytes}\t{now.held_bytes}\t{growth}",
        "ended\tlimit",
        *(f"sample\t{int((at - start) * 1000)}\t{held}" for at, held in samples),
        f"process\t{pid}\t{os.getppid()}\t{now.held_bytes}\t{now.held_bytes - shared}\t{shared}\t0\t0\tpython",
        f"kind\tanonymous\t{now.held_bytes - shared}",
        f"kind\tshared\t{shared}",
    ]
    objects = [f"{RUN_LINE_ASKED}\t1\t{now.held_bytes - shared}\t1\t0\t0\t{len(sys.modules)}", *_holders.object_lines(found, main), *_holders.frame_lines(main)]
    running = frozenset((frame.f_code, frame.f_lineno) for frame in _holders.stack_of(main) if _holders.is_own_frame(frame))
    return Scene(host, objects, now.held_bytes, running)


def scene_of(error: BaseException) -> "Optional[Scene]":
    """Returns the scene that an error has, None if there is none."""
    found = get(error, "scene")
    return found if type(found) is Scene else None


def explain_full(error: BaseException, limit: "Optional[int]") -> "Optional[Answer]":
    """Explains why this process fills host memory, as `stowage run` does. None if there is not enough memory for that.

    An error that has a scene is explained from it: what the interrupted line was making is freed by now.
    """
    scene: Scene = scene_of(error) or take_scene(_innermost(error), limit)
    try:
        with tempfile.TemporaryDirectory(prefix="stowage-") as folder:
            _write(folder, RUN_WATCH, [])
            _write(folder, RUN_HOST, scene.host)
            _write(folder, f"{os.getpid()}{RUN_OBJECTS}", scene.objects)
            return explain_run(folder)
    except (OSError, StowageError, MemoryError):
        return None


# ---- recording without a GPU ----

_LOOK_S = 0.05
_PART = 25  #: the search for objects takes at most one part in so many of the time
_PIECE = 256 << 10


class _Holder:
    def __init__(self) -> None:
        self.pieces: "List[Tuple[int, int]]" = []  # (address, bytes), the oldest first
        self.bytes = 0
        self.target = 0
        self.place: "Tuple[str, int]" = ("", 0)


class HostTrace:
    """A recording of the host memory of this process, sampled by a thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._trace = Trace(path)
        now = _memory.host()
        for name, value in (("memory", "host"), ("device_name", "host memory"), ("device_bytes", str(now.total_bytes))):
            self._trace.fact(name, value)
        self._holders: "Dict[str, _Holder]" = {}
        self._address = 1 << 32
        self._asked_at, self._spent, self._asked_bytes = 0.0, 0.0, 0
        self._start_bytes = now.held_bytes
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._go, name="stowage-record", daemon=True)
        self._thread.start()

    def _go(self) -> None:
        watcher = _memory.Watcher()
        while not self._end.wait(_LOOK_S):
            with contextlib.suppress(Exception):
                self.look(watcher.host().held_bytes)

    def mark(self, name: str, begins: bool) -> None:
        """Marks a step, with what is held at its boundary."""
        self.look(_memory.host().held_bytes)
        self._trace.mark(name, begins)

    def look(self, held: int) -> None:
        """Adds or removes pieces until the live bytes are what the process holds."""
        with self._lock:
            at = time.monotonic()
            if at > self._asked_at + _PART * self._spent and abs(held - self._asked_bytes) > max(_PIECE, held // 50):
                self._aim(held)
                self._asked_at, self._spent, self._asked_bytes = at, time.monotonic() - at, held
            rest = self._holders.setdefault("other", _Holder())
            named = sum(one.target for one in self._holders.values()) - rest.target
            for one in reversed(list(self._holders.values())):
                if named <= held:
                    break
                if one is not rest:
                    less = min(named - held, one.target)
                    named, one.target = named - less, one.target - less
            rest.target = max(0, held - named)
            ordered = sorted(self._holders.items(), key=lambda item: item[1].target - item[1].bytes)
            for name, one in ordered:  # what shrinks first
                self._set(name, one)

    def _aim(self, held: int) -> None:
        main, others = _holders.threads() if threading.current_thread() is self._thread else (sys._getframe(1), [])
        found = _find(main, others, held)
        for one in self._holders.values():
            one.target = 0
        for bytes_, _, name, where, _ in sorted(_holders.without_wholes(found), key=lambda one: -one[0])[: _holders.SHOWN]:
            one = self._holders.setdefault(name[:60], _Holder())
            if one.target == 0:
                one.target = bytes_
                path, _, line = _holders.place_of(name, where, main)[0].rpartition(":")
                one.place = (path, int(line)) if path else one.place

    def _set(self, name: str, one: _Holder) -> None:
        change = one.target - one.bytes
        if abs(change) < _PIECE and one.target > 0 or change == 0:
            return
        while change < 0 and one.pieces:
            address, bytes_ = one.pieces.pop()
            self._trace.event_at(FREE, address, bytes_, name, *one.place)
            change += bytes_
        if change > 0:
            one.pieces.append((self._address, change))
            self._trace.event_at(ALLOC, self._address, change, name, *one.place)
            self._address += (change + 4095) // 4096 * 4096
        one.bytes = one.target

    def close(self) -> None:
        """Takes a last sample and closes the file."""
        self._end.set()
        self._thread.join(timeout=5)
        self._spent = self._asked_bytes = 0  # examine the objects once more
        with contextlib.suppress(Exception):
            self.look(_memory.host().held_bytes)
        self._trace.close()
