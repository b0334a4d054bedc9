"""Records the device memory requests of a part of the program, and names its steps.

On a GPU it records PyTorch's allocations, from PyTorch's history. Without a GPU it records those of heaps, which send their events
to the recording's trace; if there are none, the host memory of the process.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Iterator, List, Optional, Union

from . import _memory
from ._analysis import convert, explain_recording
from ._explain import annotate, attach, explain, note_ending
from ._explanation import Explanation
from ._heap import open_heaps
from ._host import HostTrace
from ._history import is_hooked, snapshot_file, start_history, stop_history
from ._library import NotFound, OutOfMemory, StowageError, shown
from ._report import Report, note_latest, report
from ._trace import Trace

_recordings: "List[Recording]" = []  #: those being made now


def is_recording() -> bool:
    """Returns true inside `record`."""
    return bool(_recordings)


class Recording:
    """A recording in progress; `path` is its destination."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._trace: "Optional[Trace]" = None
        self._host: "Optional[HostTrace]" = None
        self._torch = _memory.loaded("torch")
        if self._torch is not None and hasattr(self._torch, "cuda") and self._torch.cuda.is_available():
            stop_history(self._torch)  # earlier events are not part of this recording
            start_history(self._torch)
            return
        self._torch = None
        self._trace = Trace(path)
        self._host = HostTrace(path + ".host")
        for one in open_heaps():
            one.introduce(self._trace)
        self._trace.listen()

    def mark(self, name: str, begins: bool) -> None:
        """Marks the start or the end of a step."""
        if self._trace is not None:
            self._trace.mark(name, begins)
        if self._host is not None:
            self._host.mark(name, begins)

    def finish(self) -> None:
        """Writes the recording and stops it."""
        if self._trace is not None:
            trace, self._trace = self._trace, None
            try:
                trace.close()
            finally:
                self._keep_host(trace.events == 0)
        else:
            self._save_history()
        note_latest(self.path)

    def _keep_host(self, wanted: bool) -> None:
        """Makes it a recording of host memory if no heap was used."""
        host, self._host = self._host, None
        if host is None:
            return
        try:
            host.close()
            if wanted:
                os.replace(host.path, self.path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(host.path)

    def _save_history(self) -> None:
        path = snapshot_file()
        if not is_hooked():
            stop_history(self._torch)
        if path is None:
            raise StowageError("nothing was recorded: PyTorch allocated no device memory, or keeps no history")
        try:
            convert(path, self.path)
        finally:
            os.unlink(path)

    def explain(self) -> Explanation:
        """Explains the recording."""
        return explain(self.path)

    def report(self) -> Report:
        return report(self.path)

    def __repr__(self) -> str:
        return f"<stowage recording {shown(self.path)}>"


@contextlib.contextmanager
def record(path: "Union[str, os.PathLike[str]]") -> "Iterator[Recording]":
    """Records the device memory requests inside the `with` to a .stow file.

    It records PyTorch's allocations on a GPU with their lines. Without a GPU it records those of heaps (`stowage.heap`); if none is
    used, the host memory of the process: sampled, by the variable that holds it and the line that fills it. An out-of-memory error that
    passes through gets an explanation.

    >>> import stowage, tempfile, os
    >>> folder = tempfile.TemporaryDirectory()
    >>> with stowage.record(os.path.join(folder.name, "run.stow")) as recording:
    ...     with stowage.heap("sim:64M") as small:
    ...         address = small.alloc("1M")
    >>> "1 allocation" in stowage.report(recording.path).text
    True
    >>> folder.cleanup()
    """
    where = os.fspath(path)
    if os.path.exists(where):
        raise FileExistsError(f"{where} already exists and may be the only copy of another run; use another name")
    if _recordings:
        raise StowageError(f"{_recordings[0].path} is already being recorded; end that `with` block first")
    if not os.path.isdir(os.path.dirname(os.path.abspath(where))):
        raise NotFound(f"{where}: the folder does not exist; create it first")
    recording = Recording(where)
    _recordings.append(recording)
    failed: "Optional[BaseException]" = None
    try:
        yield recording
    except BaseException as error:
        failed = error
        raise
    finally:
        _recordings.remove(recording)
        try:
            recording.finish()
        except StowageError:
            if failed is None:  # the program's own error is never hidden behind ours
                raise
        if failed is not None and isinstance(failed, OutOfMemory):
            # Explain from the recording: a heap's message alone does not show who held the memory.
            with contextlib.suppress(Exception):
                attach(failed, Explanation(explain_recording(where), of_recording=True))
        elif failed is not None:
            made = annotate(failed)
            if made is not None and made.of_recording:
                # A history lacks the error text: the GPU's size and its other users.
                note_ending(where, made.message)


class Step:
    """One iteration: `with stowage.step():`, or a call at the end of each."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._range: Any = None

    def __enter__(self) -> "Step":
        for one in _recordings:
            one.mark(self.name, True)
        torch = _memory.loaded("torch")
        mark = getattr(getattr(getattr(torch, "autograd", None), "profiler", None), "record_function", None)
        if mark is not None:
            self._range = mark(self.name)
            self._range.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._range is not None:
            self._range.__exit__(*error)
            self._range = None
        for one in _recordings:
            one.mark(self.name, False)


_steps = 0


def step(name: "Optional[str]" = None) -> Step:
    """Names an iteration in the recording, so that growth from one to the next shows.

    >>> with step("train 1"):
    ...     pass
    """
    global _steps
    if name is not None and (not isinstance(name, str) or not name or len(name) > 200):
        raise ValueError(f"step: {name!r}: a name is a text of at most 200 characters")
    _steps += 1
    return Step(name if name is not None else f"step {_steps}")
