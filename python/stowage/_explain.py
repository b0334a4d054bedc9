"""Explaining: why memory ran out, from the `stowage explain` command.

Called by people after a failure, and by the hooks of `enable()` and `%load_ext stowage` as it happens: an out-of-memory
exception then carries the explanation as a note. The causes and fixes are the command's; added here is what only this
process knows: its largest objects, and who holds them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
import weakref
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

from . import _memory
from ._death import explain_last
from ._explanation import Explanation
from ._history import take_refusal
from ._library import NotFound, OutOfMemory, StowageError
from ._library import format_size as size
from ._limits import ram_limit
from ._objects import Finder, describe, find_large, paths_to
from ._ram import undisturbed

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
_ended_with: "Dict[str, str]" = {}  #: recordings of this process, and the error each ended with


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
    with undisturbed():
        return _explain_new(error, name, message, on_host)


def _explain_new(error: BaseException, name: str, message: str, on_host: bool) -> Explanation:
    global _latest
    facts = host_facts() if on_host or "can't allocate memory" in message else []
    arguments = ["--message", "-"]
    path = None
    if "torch" in name or "CUDA out of memory" in message:
        path = take_refusal()
    if path is not None:
        arguments = [path, *arguments]
    if on_host:
        # With it a request that could never fit is told from one that came at a bad moment.
        limit, total = ram_limit(), _memory.host().total_bytes
        message += f"\nhost memory in all: {size(total if limit is None else min(limit, total))}\n"
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
        attach(error, made)
    return made


def attach(error: BaseException, made: Explanation) -> None:
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

_hooked = False


def _on_exception(kind: Any, error: Any, where: Any) -> None:
    made = annotate(error) if isinstance(error, BaseException) else None
    _before_hook(kind, error, where)
    if made is not None and not hasattr(error, "add_note") and made.headline not in str(error):
        print("stowage: " + made.text, file=sys.stderr)  # it has no text of its own that could carry it, as NumPy's has not


_before_hook: Any = sys.__excepthook__


def hook_exceptions() -> None:
    """From now on an out-of-memory exception that ends the program is printed with its explanation."""
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


def note_ending(path: str, message: str) -> None:
    """A recording of this process ended with that error, whose words it does not have itself."""
    _ended_with[os.path.abspath(path)] = message
