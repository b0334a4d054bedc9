"""Explaining: why memory ran out, by libstowage-analysis.

Called by people after a failure, and by the hooks of `enable()` and `%load_ext stowage` as it happens: an out-of-memory
exception then carries the explanation as a note. The causes and fixes are the library's; this module adds what only this
process knows: its largest objects, and who holds them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import Any, Dict, List, Optional, Union

from . import _analysis, _memory, _show
from ._access import class_name, elements_of, get, is_a
from ._death import explain_last
from ._errors import args_of, last_lines, name_of, text_of, trace_of
from ._explanation import Explanation
from ._history import take_refusal
from ._library import NotFound, OutOfMemory, StowageError, Unreadable
from ._library import format_size as size
from ._library import parse_size, shown
from ._limits import ram_limit
from ._host import describe_largest, explain_full, scene_of
from ._ram import HostMemoryError, cut_handler, recall_scene, undisturbed

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
    """Returns true for an out-of-memory exception of Python, PyTorch, CuPy, JAX or TensorFlow.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("CUDA out of memory. Tried …")), is_out_of_memory(KeyError())
    (True, True, False)
    """
    if is_a(error, MemoryError) or class_name(error) in ("OutOfMemoryError", "ResourceExhaustedError"):
        return True
    text = text_of(error) if is_a(error, Exception) else ""
    return any(part in text for part in _TEXTS)


def host_facts(error: "Optional[BaseException]" = None) -> "List[str]":
    """Returns lines about this process and its largest objects in host memory."""
    now, limit = _memory.host(), ram_limit()
    within = f" of the {size(limit)} it is limited to" if limit is not None else ""
    left = now.usable_bytes if limit is None else min(now.usable_bytes, max(0, limit - now.held_bytes))
    lines = [f"holds {size(now.held_bytes)} of host memory{within}; {size(left)} can still be taken"]
    with contextlib.suppress(Exception):
        lines += describe_largest(error)
    return lines


_latest: "Optional[Explanation]" = None
_ended_with: "Dict[str, str]" = {}  #: recordings of this process, and the error that ended each


def _made_for(error: BaseException) -> "Optional[Explanation]":
    made = get(error, "__stowage__")
    return made if type(made) is Explanation else None


def explain_exception(error: BaseException) -> Explanation:
    """Returns the explanation of an out-of-memory exception; the same object at every call."""
    known = _made_for(error)
    if known is not None:
        return known
    message, name = last_lines(error), name_of(error)
    on_host = is_a(error, MemoryError) and "cupy" not in name and "OutOfMemory" not in name
    if on_host and "MemoryError" not in message:
        message = "MemoryError: " + message
    with undisturbed():
        return _explain_new(error, name, message, on_host)


def _explain_new(error: BaseException, name: str, message: str, on_host: bool) -> Explanation:
    facts: "List[str]" = []
    if on_host:
        recall_scene(error)
    if is_a(error, HostMemoryError) or (on_host and _fills_limit(error, message)):
        full = explain_full(error, ram_limit())
        if full is not None:
            return _attach_latest(error, Explanation(full, message))
    if on_host or "can't allocate memory" in message:
        facts = host_facts(error)
    if on_host:
        # This distinguishes a request that can never fit from one that failed only now.
        limit, total = ram_limit(), _memory.host().total_bytes
        within = "" if limit is None or limit >= total else f"{size(limit)}, the limit of stowage.limit(ram=…); the machine has "
        message = _lines_of(error) + message + f"\nhost memory in all: {within}{size(total)}\n"
    path = take_refusal() if "torch" in name or "CUDA out of memory" in message else None
    made = _explain_refusal(path, message, facts) if path is not None else None
    if made is None:
        made = Explanation(_analysis.explain_message(message), message, facts)
    return _attach_latest(error, made)


def _lines_of(error: BaseException) -> str:
    """Returns the lines of the traceback, which show what the program was doing."""
    frames = traceback.extract_tb(trace_of(error))
    return "Traceback (most recent call last):\n" + _show.name_cells("".join(traceback.format_list(frames))) if frames else ""


def _fills_limit(error: BaseException, message: str) -> bool:
    """Returns whether a request failed at the limit of this process because of what the process held, and not because of its size."""
    limit, scene = ram_limit(), scene_of(error)
    held = scene.held_bytes if scene is not None else _memory.host().held_bytes
    asked = _analysis.explain_message(message).data["numbers"].get("asked_bytes") or 0
    return limit is not None and asked <= held and 10 * (held + asked) >= 8 * limit


def _attach_latest(error: BaseException, made: Explanation) -> Explanation:
    global _latest
    _latest = made
    with contextlib.suppress(Exception):
        BaseException.__setattr__(error, "__stowage__", made)
    return made


def _explain_refusal(path: str, message: str, facts: "List[str]") -> "Optional[Explanation]":
    """Explains from the snapshot that PyTorch took when it ran out of memory, and removes the snapshot. None if the host has no memory left
    to read it."""
    try:
        return Explanation(_analysis.explain_recording(path, message), message, facts, of_recording=True)
    except OutOfMemory:
        return None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def annotate(error: BaseException) -> "Optional[Explanation]":
    """Adds the explanation to an out-of-memory exception: as a note (Python 3.11), or to its text. Returns None for others."""
    if not is_a(error, Exception) or not is_out_of_memory(error):
        return None
    cut_handler(error)
    before = _made_for(error)
    if before is None and is_a(error, OutOfMemory):
        return None  # our own errors already contain the numbers
    try:
        made = explain_exception(error)
    except Exception:  # never hide the program's own error behind ours
        return None
    if before is None:
        attach(error, made)
    return made


_NOTES = hasattr(BaseException, "add_note")


def attach(error: BaseException, made: Explanation) -> None:
    """Attaches the explanation as a note, or before Python 3.11 to the text of the exception."""
    global _latest
    _latest = made
    with contextlib.suppress(Exception):
        BaseException.__setattr__(error, "__stowage__", made)
    note = "stowage: " + made.text
    with contextlib.suppress(Exception):  # of a class that takes no attributes
        args = args_of(error)
        if _NOTES:
            notes = get(error, "__notes__")
            BaseException.__setattr__(error, "__notes__", [*(elements_of(notes) if is_a(notes, list) else ()), note])
        elif not args or type(args[0]) is str:
            BaseException.__dict__["args"].__set__(error, (args[0] + "\n" + note, *args[1:]) if args else (note,))


# ---- hooks ----

_hooked = False


def _on_exception(kind: Any, error: Any, where: Any) -> None:
    made = annotate(error) if is_a(error, BaseException) else None
    _before_hook(kind, error, where)
    if made is not None and not _NOTES and made.headline not in text_of(error):
        print("stowage: " + made.text, file=sys.stderr)  # its text cannot be changed, as with NumPy's error


_before_hook: Any = sys.__excepthook__


def hook_exceptions() -> None:
    """Installs a hook: an out-of-memory exception that ends the program is printed with its explanation."""
    global _before_hook, _hooked
    if not _hooked:
        _hooked = True
        _before_hook = sys.excepthook
        sys.excepthook = _on_exception


# ---- asking ----


def explain(
    what: "Union[None, BaseException, str, os.PathLike[str]]" = None,
    *,
    message: "Optional[str]" = None,
    last: bool = False,
    vram: "Union[None, int, str]" = None,
) -> Explanation:
    """Explains why memory ran out, and what to change.

    Without arguments it explains the latest out-of-memory error of this process. `what` is an exception, the text of an error, or a
    path: a recording (a PyTorch snapshot, a .stow trace), the folder of a run, or a file with the text of an error. A name that exists
    is always a path. `message` is the text of the error that ended a recording, and `last` means the last run or the kernel that died
    before. With `vram` the answer is for a GPU of that size: the recording is replayed there.

    >>> explain("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.").data["numbers"]["asked_bytes"]
    2147483648
    """
    if vram is not None and not (isinstance(what, (str, os.PathLike)) and os.path.isfile(what)):
        raise TypeError("explain: vram= needs a recording: the path of a PyTorch snapshot or a .stow trace")
    given = [what is not None, message is not None, last]
    if sum(given) > 1 and not (message is not None and isinstance(what, (str, os.PathLike))):
        raise TypeError("explain: give one of: an exception, the text of an error, a recording (with its message), last=True")
    if message is not None and not isinstance(message, str):
        raise TypeError(f"explain: message={message!r} is not a text; pass the text of the error")
    if last:
        return explain_last()
    if isinstance(what, BaseException):
        if not is_out_of_memory(what):
            raise ValueError(f"{class_name(what)} is not an out-of-memory error: {text_of(what)}")
        return explain_exception(what)
    if what is not None:
        if not isinstance(what, (str, os.PathLike)):
            raise TypeError(f"explain: {type(what).__name__} is not an exception, a text or the path of a recording")
        path = os.fspath(what)
        if _exists(path):
            return _explain_path(path, message, 0 if vram is None else parse_size(vram))
        made = _explain_text(path) if isinstance(what, str) and message is None else None
        if made is None:
            raise NotFound(f"{shown(path[:200])}: no such file, and not the text of a known out-of-memory error")
        return made
    if message is not None:
        return Explanation(_analysis.explain_message(message), message)
    return _explain_latest()


def _exists(path: str) -> bool:
    try:
        return os.path.exists(path)
    except ValueError:  # a text with a zero byte is no path
        return False


def _explain_text(text: str) -> "Optional[Explanation]":
    """Explains the text of an error. Returns None for one line without a known out-of-memory error: that is the name of a missing file."""
    answer = _analysis.explain_message(text)
    return Explanation(answer, text) if answer.data["causes"] or "\n" in text.strip() else None


def _explain_path(path: str, message: "Optional[str]", device_bytes: int) -> Explanation:
    """Explains the folder of a run, a recording, or a file with the text of an error."""
    message = message if message is not None else _ended_with.get(os.path.abspath(path))
    if os.path.isdir(path):
        return Explanation(_analysis.explain_run(path), of_recording=True)
    try:
        return Explanation(_analysis.explain_recording(path, message, device_bytes), message, of_recording=True)
    except Unreadable:
        text = _read_text(path) if message is None and device_bytes == 0 else ""
        made = _explain_text(text) if text != "" else None
        if made is None:
            raise
        return made


_TEXT_BYTES_MAX = 64 << 20  # as `stowage explain` reads


def _read_text(path: str) -> str:
    """Returns the content of a text file; "" for a binary one, which has zero bytes near its beginning."""
    with open(path, "rb") as file:
        start = file.read(512)
        return "" if b"\0" in start else (start + file.read(_TEXT_BYTES_MAX)).decode("utf-8", "replace")


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


def note_ending(path: str, message: str) -> None:
    """Remembers the error that ended a recording of this process, because the recording lacks its text."""
    _ended_with[os.path.abspath(path)] = message
