"""The watch over host memory: raises a MemoryError in the running cell before the kernel is killed.

A thread reads what this process holds and what it can still allocate, and does two things. It bounds a single request by what is
left (RLIMIT_DATA, adjusted at every reading), so that a request that can never fit fails at once with a MemoryError. And when little
is left, it interrupts the main thread with a MemoryError while that runs the program's code: in a notebook only inside a cell. The
last figures are kept in a file, for `explain(last=True)` after a crash.

A request that fails by the bound frees what its line was making before anyone can look: the list of a comprehension is in no variable.
So the watch describes what the process holds while memory fills, and the error gets that description (`recall_scene`).

A large array of untouched zeros counts as touched: if it is larger than what is left, it is refused.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import resource
import signal
import sys
import threading
import time
from typing import Any, Iterator, List, Optional

from . import _death, _memory
from ._cache import shrink_all
from ._errors import trace_of
from ._frames import threads
from ._host import Scene, samples, scene_of, take_scene
from ._library import Invalid, StowageError
from ._library import format_size as size

#: This signal is ignored by default, so a late one is harmless.
_SIGNAL = signal.SIGURG
_LOOK_S = 0.05
#: Near the limit the watch looks more often: a process that grows by _FASTEST bytes per second is seen before it is there.
_LOOK_LEAST_S = 0.01
_FASTEST = 4 << 30  # numpy.ones fills 1.3 GB per second on one core (2.5 GHz Xeon)
_NOTE_S = 1.0
#: Time for the program to free memory before it is interrupted again.
_AGAIN_S = 3.0
#: Extra memory above the limit for small requests, so that the interpreter can still report the error.
_FLOOR = 64 << 20
#: Memory for the explanation, which searches all objects for holders.
_EXPLAINING = 256 << 20
#: A watch that cannot read memory for this long reports it on standard error, once per failure.
_SILENT_S = 2.0
#: The search for objects takes at most one part in so many of the time of one core.
_SCENE_PART = 10
#: A scene is forgotten this long after its memory was freed: an error that was due to it has been explained by then.
_SCENE_S = 2.0


class HostMemoryError(MemoryError):
    """Host memory is about to run out; the message shows what is held, the limit, and the growth."""

    scene: "Optional[Scene]" = None


class _Watch:
    def __init__(self, limit: "Optional[int]") -> None:
        self.limit = limit
        self.end = threading.Event()
        self.pending: "Optional[str]" = None
        self.hard_before = _bounds_before()
        self.failing_since = 0.0  # 0: the last reading worked
        self.reported = False
        self.growth = 0.0
        self.seen: "Optional[_memory.Host]" = None
        self.seen_at = 0.0
        self.noted_at = 0.0
        self.raised_at = 0.0
        self.wait_s = _LOOK_S
        self.scene: "Optional[Scene]" = None
        self.peak_bytes = 0  # the most that was held since the scene
        self.scene_after = 0.0  # the next scene is not taken before
        self.freed_at = 0.0  # when the memory of the scene was freed; 0: it is held
        self.watcher = _memory.Watcher()
        self.thread = threading.Thread(target=self.go, name="stowage-ram", daemon=True)

    def room(self, now: "_memory.Host") -> int:
        """Returns what this process can still allocate."""
        left = now.usable_bytes
        if self.limit is not None:
            left = min(left, self.limit - now.held_bytes)
        return max(0, left)

    def margin(self, now: "_memory.Host") -> int:
        """Returns the smallest acceptable rest: a twentieth, from 32 MiB to 1 GiB."""
        whole = self.limit if self.limit is not None else now.total_bytes
        return max(32 << 20, min(whole // 20, 1 << 30))

    def go(self) -> None:
        try:
            while not self.end.wait(self.wait_s):
                self.look_or_retry()
        finally:
            if not self.end.is_set() and not sys.is_finalizing():
                _say("the watch over host memory has stopped: limits of host memory are not enforced; stowage.enable() starts it again")

    def look_or_retry(self) -> None:
        """Reads once. Retries a failure (no file descriptor, no memory) at the next turn, and reports it if it lasts."""
        try:
            self.look()
        except MemoryError:
            return  # the process is at its limit; the next reading may succeed
        except Exception as reason:
            if sys.is_finalizing():
                self.end.set()
                return
            at = time.monotonic()
            self.failing_since = self.failing_since or at
            if at - self.failing_since >= _SILENT_S and not self.reported:
                self.reported = True
                _say(f"cannot read host memory ({reason}): limits of host memory are not enforced now; trying again")
            return
        self.failing_since = 0.0
        if self.reported:
            self.reported = False
            _say("host memory can be read again: limits are enforced")

    def look(self) -> None:
        now, at = self.watcher.host(), time.monotonic()
        if self.seen is not None and at > self.seen_at:
            rate = (now.held_bytes - self.seen.held_bytes) / (at - self.seen_at)
            self.growth = 0.8 * self.growth + 0.2 * rate
        self.seen, self.seen_at = now, at
        samples.append((at, now.held_bytes))
        room, margin = self.room(now), self.margin(now)
        if _undisturbed == 0:
            self.bound(now)
        if room < margin:
            self.press(now, room, at)
        elif room > 2 * margin:
            self.raised_at = 0.0  # memory was freed: the next shortage is a new one
        self.wait_s = min(_LOOK_S, max(_LOOK_LEAST_S, (room - margin) / _FASTEST)) if room >= margin else _LOOK_S
        if self.pending is None:  # else the handler takes the scene, on the line it interrupts
            self.keep_scene(now, at)
        if at - self.noted_at >= _NOTE_S:
            self.noted_at = at
            _death.note(now, self.limit, self.growth)

    def keep_scene(self, now: "_memory.Host", at: float) -> None:
        """Describes what the process holds, each time it has grown by a sixteenth of its limit, from two fifths on."""
        before = self.scene.held_bytes if self.scene is not None else 0
        if 10 * now.held_bytes < 9 * before:
            self.freed_at = self.freed_at or at
            if at - self.freed_at < _SCENE_S:
                return
            self.scene, before = None, 0
        self.freed_at = 0.0
        self.peak_bytes = max(self.peak_bytes, now.held_bytes)
        if self.limit is None or 5 * now.held_bytes < 2 * self.limit or 16 * (now.held_bytes - before) < self.limit or at < self.scene_after:
            return
        spent = time.thread_time()
        self.scene = take_scene(threads()[0], self.limit)
        self.peak_bytes = now.held_bytes
        self.scene_after = at + _SCENE_PART * (time.thread_time() - spent)

    def bound(self, now: "_memory.Host") -> None:
        """Bounds each request by what is left; above the limit, all requests together by the floor."""
        left = max(now.usable_bytes, _FLOOR)
        if self.limit is not None:
            left = min(left, max(0, self.limit + _FLOOR - now.held_bytes))
        self.set_bound(now.data_bytes + left)

    def set_bound(self, soft: int) -> None:
        before, hard = self.hard_before
        for bound in (before, hard):
            if bound != resource.RLIM_INFINITY:
                soft = min(soft, bound)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

    def press(self, now: "_memory.Host", room: int, at: float) -> None:
        """Handles a shortage: empties the caches, then interrupts the program."""
        freed = shrink_all()
        if freed >= self.margin(now) or at - self.raised_at < _AGAIN_S:
            return
        self.raised_at = at
        whole = f"of its limit of {size(self.limit)}" if self.limit else f"and the host has {size(now.total_bytes)}"
        grows = f"growing by {size(int(self.growth))} per second; " if self.growth > 1 << 20 else ""
        # Two lines: a notebook breaks a longer one anywhere.
        self.pending = f"host memory runs out: this process holds {size(now.held_bytes)} {whole},\n{grows}{size(room)} can still be taken"
        _death.note(now, self.limit, self.growth)
        signal.pthread_kill(threading.main_thread().ident or 0, _SIGNAL)


_watch: "Optional[_Watch]" = None
_registered = False  # atexit and fork handlers are registered once
_before: Any = None  # RLIMIT_DATA before the first watch; a forked child must not mistake an inherited bound for the user's
_undisturbed = 0
_in_cell: "Optional[bool]" = None  # None: not in a notebook, where the main thread always runs the program


def _bounds_before() -> Any:
    global _before
    if _before is None:
        _before = resource.getrlimit(resource.RLIMIT_DATA)
    return _before


def _say(text: str) -> None:
    """Writes one line to standard error, in any state of the process."""
    with contextlib.suppress(Exception):
        os.write(2, f"stowage: {text}\n".encode())


def _interrupt(_: int, frame: Any) -> None:
    """Signal handler: runs on the main thread, between two instructions."""
    watch = _watch
    if watch is None or watch.pending is None:
        return
    message, watch.pending = watch.pending, None
    if _in_cell is not False and _undisturbed == 0:
        error = HostMemoryError(message)
        # Before the exception frees what the interrupted line is making: the list of a comprehension is in no variable.
        with contextlib.suppress(Exception), undisturbed():
            error.scene = take_scene(frame, watch.limit)
        raise error


def recall_scene(error: BaseException) -> None:
    """Gives the error of a failed request the scene that the watch kept, if its memory was freed since and the same line of the program
    was running.
    """
    watch = _watch
    scene = watch.scene if watch is not None else None
    if watch is None or scene is None or scene_of(error) is not None or 10 * _memory.host().held_bytes >= 9 * scene.held_bytes:
        return
    at = trace_of(error)
    while at is not None:
        if (at.tb_frame.f_code, at.tb_lineno) in scene.running:
            with contextlib.suppress(Exception):  # an error without attributes
                BaseException.__setattr__(error, "scene", scene._replace(held_bytes=watch.peak_bytes))
        at = at.tb_next


def cut_handler(error: BaseException) -> None:
    """Cuts the signal handler off the traceback, so that it ends at the line of the program."""
    at = trace_of(error)
    while at is not None and at.tb_next is not None:
        if at.tb_next.tb_frame.f_code is _interrupt.__code__:
            at.tb_next = None
        at = at.tb_next


@contextlib.contextmanager
def undisturbed() -> "Iterator[None]":
    """Context in which the main thread is not interrupted and has extra memory, to report the error."""
    global _undisturbed
    _undisturbed += 1
    watch = _watch
    try:
        if watch is not None:
            with contextlib.suppress(Exception):
                watch.set_bound(_memory.host().data_bytes + _EXPLAINING)
        yield
    finally:
        _undisturbed -= 1
        if watch is not None and _undisturbed == 0:  # not at the next look: the program may fill the extra memory until then
            with contextlib.suppress(Exception):
                watch.bound(_memory.host())


def is_short() -> bool:
    """Returns whether the watch would soon interrupt the program."""
    watch = _watch
    if watch is None:
        return False
    now = _memory.host()
    return watch.room(now) < 2 * watch.margin(now)


def cell(begins: bool) -> None:
    """Notes that a cell begins or ends: the main thread is interrupted only inside a cell."""
    global _in_cell
    _in_cell = begins


def check(limit: "Optional[int]") -> "List[str]":
    """Rejects a limit that is too low to work with. Returns notes about other limits."""
    if limit is None:
        return []
    now = _memory.host()
    if limit < now.held_bytes + _FLOOR:
        raise Invalid(
            f"ram: this process already holds {size(now.held_bytes)}, so a limit of {size(limit)} is too low; "
            f"give at least {size(now.held_bytes + 2 * _FLOOR)}, or stowage.release() first"
        )
    if limit > now.total_bytes:
        return [f"the host has {size(now.total_bytes)}, so a limit of {size(limit)} has no effect"]
    return []


def start(limit: "Optional[int]") -> "List[str]":
    """Starts the watch, or sets another limit (already checked) on the running one. Returns notes for the user. Replaces a watch whose
    thread has ended.
    """
    global _watch, _registered
    if _watch is not None and _watch.thread.is_alive():
        if limit is not None:
            _watch.limit = limit
        return []
    notes = []
    watch = _Watch(limit if limit is not None or _watch is None else _watch.limit)
    _watch = None
    try:
        signal.signal(_SIGNAL, _interrupt)
    except ValueError:
        notes.append("not called on the main thread: near the limit requests fail, but nothing is interrupted")
    watch.look_or_retry()
    try:
        watch.thread.start()
    except RuntimeError as reason:
        resource.setrlimit(resource.RLIMIT_DATA, watch.hard_before)
        raise StowageError(f"the watch over host memory cannot start: {reason}; end some threads, or raise ulimit -u") from None
    _watch = watch
    if not _registered:
        _registered = True
        atexit.register(stop)
        os.register_at_fork(after_in_child=_after_fork)
    return notes


def _after_fork() -> None:
    """In a forked child: no thread watches. The bound stays as it was; enable() or limit() starts a watch here too."""
    global _watch, _undisturbed
    _watch, _undisturbed = None, 0


def stop() -> None:
    """Stops the watch and removes the bound."""
    global _watch
    watch, _watch = _watch, None
    if watch is None:
        return
    watch.end.set()
    if watch.thread is not threading.current_thread():
        watch.thread.join(timeout=2)
    resource.setrlimit(resource.RLIMIT_DATA, watch.hard_before)
    _death.forget()
