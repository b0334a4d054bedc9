"""Recording what a stretch of the program asks of device memory, and naming its steps.

On a card the allocations are PyTorch's, from its own history; where there is none, those of heaps, which tell the
recording's trace.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Iterator, List, Optional, Union

from . import _memory
from ._command import run
from ._explain import annotate, attach, explain, note_ending
from ._explanation import Explanation
from ._heap import open_heaps
from ._history import is_hooked, snapshot_file, start_history, stop_history
from ._library import NotFound, OutOfMemory, StowageError, shown
from ._report import Report, note_latest, report
from ._trace import Trace

_recordings: "List[Recording]" = []  #: those being made now


class Recording:
    """A recording being made; `path` is where it will be."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._trace: "Optional[Trace]" = None
        self._torch = _memory.loaded("torch")
        if self._torch is not None and hasattr(self._torch, "cuda") and self._torch.cuda.is_available():
            stop_history(self._torch)  # what was before is not part of this
            start_history(self._torch)
            return
        self._torch = None
        self._trace = Trace(path)
        for one in open_heaps():
            one.introduce(self._trace)
        self._trace.listen()

    def mark(self, name: str, begins: bool) -> None:
        """A step begins or ends; PyTorch is told itself."""
        if self._trace is not None:
            self._trace.mark(name, begins)

    def finish(self) -> None:
        """Writes it; nothing is recorded any more."""
        if self._trace is not None:
            trace, self._trace = self._trace, None
            trace.close()
        else:
            self._save_history()
        note_latest(self.path)

    def _save_history(self) -> None:
        path = snapshot_file()
        if not is_hooked():
            stop_history(self._torch)
        if path is None:
            raise StowageError("nothing was recorded: PyTorch took no memory of a card, or keeps no history")
        try:
            run(["convert", path, self.path])
        finally:
            os.unlink(path)

    def explain(self) -> Explanation:
        """Of what was recorded."""
        return explain(self.path)

    def report(self) -> Report:
        return report(self.path)

    def __repr__(self) -> str:
        return f"<stowage recording {shown(self.path)}>"


@contextlib.contextmanager
def record(path: "Union[str, os.PathLike[str]]") -> "Iterator[Recording]":
    """Records what is asked of device memory inside the `with`, to a .stow file.

    PyTorch's allocations on a card with their lines; where there is no card, those of heaps (`stowage.heap`). An
    out-of-memory error that passes carries its explanation.

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
        raise FileExistsError(f"{where} is there already, and may be the only copy of another run; name another file")
    if _recordings:
        raise StowageError(f"{_recordings[0].path} is being recorded already; end that with first")
    if not os.path.isdir(os.path.dirname(os.path.abspath(where))):
        raise NotFound(f"{where}: its folder is not there; make it first")
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
            # Of what was recorded: the words of a heap alone do not tell who held it.
            with contextlib.suppress(Exception):
                attach(failed, Explanation([where], None))
        elif failed is not None:
            made = annotate(failed)
            if made is not None and made.of_recording:
                # A history does not have the error's own words: the card's size, its other users.
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
    """Names an iteration in what is recorded, so that what grows from one to the next is seen.

    >>> with step("train 1"):
    ...     pass
    """
    global _steps
    if name is not None and (not isinstance(name, str) or not name or len(name) > 200):
        raise ValueError(f"step: {name!r}: a name is a text of at most 200 letters")
    _steps += 1
    return Step(name if name is not None else f"step {_steps}")
