"""Explaining: why memory ran out, from the `stowage explain` command; recording, and the report in a notebook.

Called by people after a failure, and by the hooks of `enable()` and `%load_ext stowage` as it happens: an out-of-memory
exception then carries the explanation as a note. The causes and fixes are the command's; added here is what only this
process knows: its largest objects, and who holds them.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import os
import pickle
import sys
import tempfile
import traceback
import weakref
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Union

from . import _memory, _show
from ._command import run, run_json
from ._library import NotFound, OutOfMemory, StowageError, Unsupported, call, declare, lib
from ._library import format_size as size

#: Events kept of PyTorch's history, and so of what an explanation can look back at.
HISTORY = 200_000


class Explanation:
    """Why memory ran out: `text` for people, `data` for programs (the JSON of `stowage explain`)."""

    def __init__(self, arguments: "List[str]", message: "Optional[str]", facts: "Optional[List[str]]" = None) -> None:
        self._arguments, self._message = arguments, message
        self._data: "Optional[Dict[str, Any]]" = None
        self.facts = facts or []  #: what this process knew beside it
        self._said = _show.name_cells(run(["explain", *arguments], text=message).rstrip())

    @property
    def message(self) -> str:
        """The error's own words, where it was made of them."""
        return self._message or ""

    @property
    def of_recording(self) -> bool:
        """Made from what was recorded, not of the error's words alone."""
        return self._arguments[0] != "--message"

    @property
    def text(self) -> str:
        if not self.facts:
            return self._said
        return self._said + "\n\nThis process\n" + "\n".join(f"  {line}" for line in self.facts)

    @property
    def headline(self) -> str:
        """The first sentence."""
        return self._said.split("\n", 1)[0]

    @property
    def data(self) -> "Dict[str, Any]":
        if self._data is None:
            self._data = run_json(["explain", *self._arguments], text=self._message)
        return self._data

    @property
    def cause(self) -> "Optional[str]":
        """The first cause's name ("no_grad_missing"), None where there is none."""
        return self.data["causes"][0]["id"] if self.data["causes"] else None

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        headline, _, rest = self.text.partition("\n")
        return _show.html_block(headline, _show.html_text(rest.strip("\n")))


# ---- exceptions ----

_TEXTS = (
    "out of memory",
    "can't allocate memory",
    "RESOURCE_EXHAUSTED",
    "OOM when allocating",
    "STATUS_ALLOC_FAILED",
    "CUDA_ERROR_OUT_OF_MEMORY",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Is that exception one of memory: Python's, PyTorch's, CuPy's, JAX's, TensorFlow's?

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("CUDA out of memory. Tried …")), is_out_of_memory(KeyError())
    (True, True, False)
    """
    if isinstance(error, MemoryError) or type(error).__name__ in ("OutOfMemoryError", "ResourceExhaustedError"):
        return True
    text = str(error) if isinstance(error, Exception) else ""
    return any(part in text for part in _TEXTS)


def host_facts(most: int = 5) -> "List[str]":
    """This process and its largest objects of host memory, with who holds them."""
    from ._enable import ram_limit
    from ._objects import Finder, describe, find_large, paths_to

    now, limit = _memory.host(), ram_limit()
    within = f" of the {size(limit)} it is limited to" if limit is not None else ""
    left = now.usable_bytes if limit is None else min(now.usable_bytes, max(0, limit - now.held_bytes))
    lines = [f"holds {size(now.held_bytes)} of host memory{within}; {size(left)} can still be taken"]
    pieces = find_large()[:most]
    finder = Finder() if pieces else None
    for piece in pieces:
        paths = paths_to(piece.object, finder)
        lines.append(f"{describe(piece)}, held by {paths[0]}" if paths else describe(piece))
    return lines


_latest: "Optional[Explanation]" = None
_observed: "Optional[str]" = None  # the snapshot file of PyTorch's latest refusal


def _snapshot_file() -> "Optional[str]":
    """PyTorch's view of its memory as a file, None where it has none to give."""
    torch = _memory.torch_cuda()
    take = getattr(getattr(getattr(torch, "cuda", None), "memory", None), "_snapshot", None)
    if take is None:
        return None
    try:
        view = take()
    except Exception:  # another allocator was plugged in
        return None
    if not any(view.get("device_traces", [])):
        return None  # no history was kept: the error's own words tell more
    handle, path = tempfile.mkstemp(prefix="stowage-", suffix=".pickle")
    with os.fdopen(handle, "wb") as file:
        pickle.dump(view, file, protocol=4)
    return path


def explain_exception(error: BaseException) -> Explanation:
    """The explanation of an out-of-memory exception; the same each time it is asked for."""
    known = getattr(error, "__stowage__", None)
    if known is not None:
        return known
    message = "".join(traceback.format_exception_only(type(error), error))
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    on_host = isinstance(error, MemoryError) and "cupy" not in name and "OutOfMemory" not in name
    if on_host and "MemoryError" not in message:
        message = "MemoryError: " + message
    with _memory.undisturbed():
        return _explain_new(error, name, message, on_host)


def _explain_new(error: BaseException, name: str, message: str, on_host: bool) -> Explanation:
    global _latest, _observed
    facts = host_facts() if on_host or "can't allocate memory" in message else []
    arguments = ["--message", "-"]
    path = None
    if "torch" in name or "CUDA out of memory" in message:
        path, _observed = _observed or _snapshot_file(), None
    if path is not None:
        arguments = [path, *arguments]
    made = Explanation(arguments, message, facts)
    if path is not None:
        weakref.finalize(made, lambda file: Path(file).unlink() if Path(file).exists() else None, path)
    _latest = made
    with contextlib.suppress(Exception):
        error.__stowage__ = made  # type: ignore[attr-defined]
    return made


def annotate(error: BaseException) -> "Optional[Explanation]":
    """Adds the explanation to an out-of-memory exception as a note (Python 3.11), or to its text; None for any other."""
    if not isinstance(error, Exception) or not is_out_of_memory(error):
        return None
    before = getattr(error, "__stowage__", None)
    if before is None and isinstance(error, OutOfMemory):
        return None  # one of ours says itself what was asked and what was there
    try:
        made = explain_exception(error)
    except Exception:  # the program's own error is never hidden behind ours
        return None
    if before is None:
        _attach(error, made)
    return made


def _attach(error: BaseException, made: Explanation) -> None:
    """The explanation becomes a note of the exception, or a part of its text before Python 3.11."""
    global _latest
    _latest = made
    with contextlib.suppress(Exception):
        error.__stowage__ = made  # type: ignore[attr-defined]
    note = "stowage: " + made.text
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif error.args and isinstance(error.args[0], str):
        error.args = (error.args[0] + "\n" + note, *error.args[1:])
    elif not error.args:
        error.args = (note,)


# ---- hooks ----

_hooked: "set[str]" = set()


def _on_exception(kind: Any, error: Any, where: Any) -> None:
    made = annotate(error) if isinstance(error, BaseException) else None
    _before_hook(kind, error, where)
    if made is not None and not hasattr(error, "add_note") and made.headline not in str(error):
        print("stowage: " + made.text, file=sys.stderr)  # it has no text of its own that could carry it, as NumPy's has not


_before_hook: Any = sys.__excepthook__


def hook_exceptions() -> None:
    """From now on an out-of-memory exception that ends the program is printed with its explanation."""
    global _before_hook
    if "excepthook" not in _hooked:
        _hooked.add("excepthook")
        _before_hook = sys.excepthook
        sys.excepthook = _on_exception


def _forget_observed() -> None:
    """A program may catch one refusal after the other and ask about none."""
    global _observed
    path, _observed = _observed, None
    if path is not None:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _on_torch_refusal(*_: Any) -> None:
    """PyTorch is about to raise: its view of this moment is the best there will be."""
    global _observed
    _forget_observed()
    try:
        _observed = _snapshot_file()
    except Exception:
        _observed = None


def _arm_torch() -> None:
    """CUDA has started in PyTorch, or is about to."""
    torch = _memory.loaded("torch")
    if torch is None or "torch" in _hooked:
        return
    _hooked.add("torch")
    atexit.register(_forget_observed)
    try:
        start_history(torch)
        torch._C._cuda_attach_out_of_memory_observer(_on_torch_refusal)
    except Exception:  # an old PyTorch, or one without CUDA, has neither: the error's text is what is left
        pass


def hook_torch(torch: Any = None) -> bool:
    """Has PyTorch keep a history and tell when it runs out, from the moment it starts CUDA; False where it is not loaded.

    Costs 1.5 to 2 us for each allocation. Does not start CUDA itself: a program may still want to fork.
    """
    torch = torch or _memory.loaded("torch")
    if torch is None or "torch asked" in _hooked:
        return torch is not None
    _hooked.add("torch asked")
    if _memory.torch_cuda() is not None:
        _arm_torch()
    elif hasattr(torch.cuda, "_lazy_call"):
        torch.cuda._lazy_call(_arm_torch)
    return True


def start_history(torch: Any) -> None:
    """PyTorch's history of allocations, with Python's lines."""
    begin = getattr(torch.cuda.memory, "_record_memory_history", None)
    if begin is None:
        raise Unsupported(f"PyTorch {torch.__version__} keeps no history of allocations; install 2.1 or later")
    try:
        begin(max_entries=HISTORY, stacks="python")
    except TypeError:
        begin(True)  # before 2.1


def stop_history(torch: Any) -> None:
    """Ends the history and forgets it; quietly nothing where there is none."""
    with contextlib.suppress(Exception):
        torch.cuda.memory._record_memory_history(enabled=None)


class _LateTorch:
    """Hooks torch at the end of its import: `enable()` may come first."""

    def find_spec(self, name: str, *_: Any) -> Any:
        if name != "torch":
            return None
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec(name)
        loader = spec.loader if spec is not None else None
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        execute = loader.exec_module

        def then_hook(module: Any) -> None:
            execute(module)
            with contextlib.suppress(Exception):
                hook_torch(module)

        setattr(loader, "exec_module", then_hook)
        return spec


def hook_torch_when_loaded() -> None:
    """hook_torch() now, or at the end of torch's import."""
    if not hook_torch() and "late" not in _hooked:
        _hooked.add("late")
        sys.meta_path.insert(0, _LateTorch())  # type: ignore[arg-type]


# ---- asking ----


def explain(
    what: "Union[None, BaseException, str, os.PathLike[str]]" = None,
    *,
    message: "Optional[str]" = None,
    last: bool = False,
) -> Explanation:
    """Why memory ran out, and what to change.

    Without arguments: the latest out-of-memory error of this process. Of an exception; of a recording (a PyTorch
    snapshot, a .stow trace); of an error's `message` alone; `last`: of the last run or the kernel that died before.

    >>> explain(message="RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.").data["numbers"]["asked_bytes"]
    2147483648
    """
    given = [what is not None, message is not None, last]
    if sum(given) > 1 and not (message is not None and isinstance(what, (str, os.PathLike))):
        raise TypeError("explain: give one of: an exception, a recording (with its message), message=, last=True")
    if message is not None and not isinstance(message, str):
        raise TypeError(f"explain: message={message!r} is no text; give the error's own words")
    if last:
        from ._death import explain_last

        return explain_last()
    if isinstance(what, BaseException):
        if not is_out_of_memory(what):
            raise ValueError(f"{type(what).__name__} is no out-of-memory error: {what}")
        return explain_exception(what)
    if what is not None:
        if not isinstance(what, (str, os.PathLike)):
            raise TypeError(f"explain: {type(what).__name__} is neither an exception nor the path of a recording")
        path = os.fspath(what)
        if not os.path.exists(path):
            raise NotFound(f"{path}: there is no such recording; an error's text goes as explain(message=…)")
        message = message if message is not None else _ended_with.get(os.path.abspath(path))
        return Explanation([path] + (["--message", "-"] if message is not None else []), message)
    if message is not None:
        return Explanation(["--message", "-"], message)
    return _explain_latest()


def _explain_latest() -> Explanation:
    last = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(last, BaseException) and is_out_of_memory(last):
        return explain_exception(last)
    if _latest is not None:
        return _latest
    raise StowageError(
        "nothing ran out of memory in this process; give the exception, a recording or message=, or last=True for the run "
        "before this one"
    )


# ---- recording ----


class _TraceOptions(ctypes.Structure):
    _fields_ = [
        ("version", c_uint32),
        ("record_path", c_char_p),
        ("ring_path", c_char_p),
        ("ring_bytes", c_uint64),
        ("text_bytes", c_uint64),
    ]


class _TraceRecord(ctypes.Structure):
    _fields_ = [
        ("addr", c_uint64),
        ("bytes", c_uint64),
        ("stream", c_uint64),
        ("stack", c_uint32),
        ("tag", c_uint32),
        ("device", c_uint16),
        ("kind", c_uint8),
        ("tier", c_uint8),
    ]


class _TraceFrame(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("file", c_char_p), ("line", c_uint32), ("address", c_void_p)]


_ALLOC, _FREE, _FAIL = 0, 2, 3
_FRAMES_MAX = 32

declare(
    {
        "stow_trace_event": (None, [c_void_p, POINTER(_TraceRecord)]),
        "stow_trace_tag": (c_int, [c_void_p, c_char_p, POINTER(c_uint32)]),
        "stow_trace_stack": (c_int, [c_void_p, c_uint64, POINTER(_TraceFrame), c_size_t, POINTER(c_uint32)]),
        "stow_trace_stack_find": (c_uint32, [c_void_p, c_uint64]),
    }
)

_recordings: "List[Recording]" = []
_ended_with: "Dict[str, str]" = {}  #: recordings of this process, and the error each ended with
_last_recording: "Optional[str]" = None


class Recording:
    """A recording being made; `path` is where it will be."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._trace = c_void_p()
        self._torch = _memory.loaded("torch")
        if self._torch is not None and hasattr(self._torch, "cuda") and self._torch.cuda.is_available():
            stop_history(self._torch)  # what was before is not part of this
            start_history(self._torch)
            return
        self._torch = None
        options = _TraceOptions(version=1, record_path=os.fsencode(path))
        call("stow_trace_open", ctypes.byref(self._trace), ctypes.byref(options))
        from ._heap import open_heaps

        for one in open_heaps():
            self.add_heap(one)

    def add_heap(self, one: Any) -> None:
        """A heap is there, or was opened while this records; what it is goes into the recording."""
        if self._trace:
            stats = one.stats()
            call("stow_trace_fact", self._trace, b"device_name", (one.device or "the first device").encode())
            call("stow_trace_fact", self._trace, b"device_bytes", str(stats["limit_bytes"]).encode())

    def heap_event(self, kind: int, address: int, size_bytes: int, tag: "Optional[str]") -> None:
        """What a heap did for the program, with the lines that asked for it."""
        if not self._trace:
            return
        number = c_uint32()
        if tag is not None:
            lib().stow_trace_tag(self._trace, tag.encode(), ctypes.byref(number))
        event = _TraceRecord(addr=address, bytes=size_bytes, stack=self._stack(), tag=number.value, kind=kind)
        lib().stow_trace_event(self._trace, ctypes.byref(event))

    def _stack(self) -> int:
        """The number of the calling lines, without those of this package."""
        frames: "List[Any]" = []
        at: Any = sys._getframe(1)
        while at is not None and len(frames) < _FRAMES_MAX:
            if not at.f_globals.get("__name__", "").startswith("stowage."):
                frames.append((at.f_code, at.f_lineno))
            at = at.f_back
        key = hash(tuple((id(code), line) for code, line in frames)) & (1 << 64) - 1 or 1
        known = lib().stow_trace_stack_find(self._trace, key)
        if known:
            return known
        listed = (_TraceFrame * max(1, len(frames)))()
        for slot, (code, line) in zip(listed, frames):
            slot.name, slot.file, slot.line = code.co_name.encode(), code.co_filename.encode(), line
        number = c_uint32()
        lib().stow_trace_stack(self._trace, key, listed, len(frames), ctypes.byref(number))
        return number.value

    def mark(self, name: str, begins: bool) -> None:
        if self._trace:
            call("stow_trace_mark_begin" if begins else "stow_trace_mark_end", self._trace, name.encode())

    def finish(self) -> None:
        global _last_recording
        if self._torch is not None:
            path = _snapshot_file()
            if "torch" not in _hooked:
                stop_history(self._torch)
            if path is None:
                raise StowageError("nothing was recorded: PyTorch took no memory of a card, or keeps no history")
            try:
                run(["convert", path, self.path])
            finally:
                os.unlink(path)
        else:
            trace, self._trace = self._trace, c_void_p()
            call("stow_trace_close", trace)
        _last_recording = self.path

    def explain(self) -> Explanation:
        """Of what was recorded."""
        return explain(self.path)

    def report(self) -> "Report":
        return report(self.path)

    def __repr__(self) -> str:
        return f"<stowage recording {self.path}>"


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
                _attach(failed, Explanation([where], None))
        elif failed is not None:
            made = annotate(failed)
            if made is not None and made.of_recording:
                # A history does not have the error's own words: the card's size, its other users.
                _ended_with[os.path.abspath(where)] = made.message


def recordings() -> "List[Recording]":
    """Those being made now."""
    return list(_recordings)


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


# ---- report ----


class Report:
    """A recording as a page: inline in a notebook, text elsewhere; `save()` writes the page."""

    def __init__(self, paths: "List[str]") -> None:
        self.paths = paths
        self._page: "Optional[str]" = None

    @property
    def text(self) -> str:
        return _show.name_cells(run(["report", "--text", *self.paths]).rstrip())

    @property
    def page(self) -> str:
        """The page: one file of HTML that needs nothing else."""
        if self._page is None:
            self._page = _show.name_cells(run(["report", "--output", "-", *self.paths]))
        return self._page

    def save(self, path: "Union[str, os.PathLike[str]]") -> None:
        """Writes the page to a file."""
        run(["report", "--output", os.fspath(path), *self.paths])

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        # A frame of its own: the page has scripts and styles that are not the notebook's.
        return f'<iframe srcdoc="{_show.escape(self.page)}" style="width:100%;height:640px;border:0"></iframe>'


def report(*recordings: "Union[str, os.PathLike[str]]") -> Report:
    """The report of a recording, or of two side by side; of the latest of this process where none is named.

    >>> report("nowhere.stow")
    Traceback (most recent call last):
        ...
    stowage._library.NotFound: nowhere.stow: there is no such recording
    """
    paths = [os.fspath(one) for one in recordings] or ([_last_recording] if _last_recording else [])
    if not paths:
        raise StowageError("nothing was recorded in this process; name a recording, or make one: with stowage.record(…):")
    for path in paths:
        if not os.path.exists(path):
            raise NotFound(f"{path}: there is no such recording")
    return Report(paths)


