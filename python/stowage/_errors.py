"""Reads exceptions without running code of the program.

An exception of the program may define __str__, __getattr__ or __class__, and is read in sys.excepthook and in notebooks, before it is
shown. So its text is asked of known libraries only; of others it is the texts it was made with.
"""

from __future__ import annotations

from typing import Any

from ._access import elements_of, get, is_a, is_known, module_of, qualified

args_of = BaseException.__dict__["args"].__get__
trace_of = BaseException.__dict__["__traceback__"].__get__


def text_of(error: BaseException) -> str:
    """Returns str(error), or the texts among its arguments if that would run code of the program.

    >>> class Closed(RuntimeError):
    ...     def __str__(self): raise KeyError
    >>> text_of(Closed("out of memory")), text_of(OSError(2, "no file")), text_of(ValueError(Closed()))
    ('out of memory', '[Errno 2] no file', '')
    """
    args = args_of(error)
    if is_known(type(error)) and all(map(_has_known_text, args)):
        try:
            return str(error)
        except Exception:
            pass
    return ", ".join(part for part in args if type(part) is str)


def _has_known_text(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_has_known_text, value))
    return is_known(type(value)) and not is_a(value, (list, dict, set, frozenset, BaseException))


def name_of(error: BaseException) -> str:
    """Returns the name of its class, with its module."""
    return f"{module_of(type(error))}.{qualified(type(error))}"


def last_lines(error: BaseException) -> str:
    """Returns what the interpreter shows below the traceback: the class, the text and the notes."""
    name, text = name_of(error), text_of(error)
    name = name.partition(".")[2] if module_of(type(error)) in ("builtins", "__main__") else name
    notes = [note for note in elements_of(get(error, "__notes__", ())) if type(note) is str]
    return "\n".join([f"{name}: {text}" if text else name, *notes]) + "\n"
