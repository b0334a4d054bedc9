"""The C library, found and loaded once.

Called by every other file of the package. `lib()` is the library with the argument types of every function the package
uses, declared in one table; `check()` turns a status of the library into the Python exception of its kind, with the
library's own message.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint64
from pathlib import Path
from typing import Any, List, Optional, Tuple

from ._run_names import ENV_HDF5_LIBRARY, ENV_LIBRARY

_HERE = Path(__file__).resolve().parent
#: Where a wheel has the compiled parts, laid out like an installation: bin, lib, lib/stowage.
NATIVE = _HERE / "_native"
_LIBRARY = "libstowage.so.1"
#: Which library has a function, by the beginning of its name; the rest are in libstowage.
_PARTS = {
    "stow_array_": "data",
    "stow_arrow_": "data",
    "stow_batches_": "data",
    "stow_values_": "data",
    "stow_recording_": "analysis",
    "stow_replay_": "analysis",
    "stow_tune_": "analysis",
    "stow_explain_": "analysis",
    "stow_explanation_": "analysis",
    "stow_report_": "analysis",
    "stow_inspect_": "data",
    "stow_inspection_": "data",
    "stow_shrink_": "data",
    "stow_model_": "data",
}


def _printable(message: str) -> str:
    """Removes terminal control characters from a message, without the library, which may be missing.

    The library's own messages are already clean (stow_text_show); this is for messages of the package.
    """
    text = str(message)
    return text if text.isprintable() else "".join(c if c.isprintable() or c in "\n\t\xa0" else "?" for c in text)


class StowageError(RuntimeError):
    """An error of the library; the message states what failed, the value, and what to do next.

    `status` is the library's status code (stowage/status.h); 0 for an error of the package itself or of the command.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(_printable(message))
        self.status = status


class OutOfMemory(StowageError, MemoryError):
    """A tier, a limit or a budget is too small for the request."""


class Invalid(StowageError, ValueError):
    """An invalid argument."""


class NotFound(StowageError, FileNotFoundError):
    """No such device, file, name or allocation."""


class NoTensor(StowageError, KeyError):
    """A model has no tensor of this name."""

    __str__ = StowageError.__str__  # KeyError quotes its message


class Unsupported(StowageError, NotImplementedError):
    """This driver, machine, framework or build cannot do it."""


class Missing(Unsupported, ImportError):
    """A required Python library is not installed, or a different library has its name."""


class Unreadable(StowageError, OSError):
    """A file could not be read or written, or does not match its format."""

    malformed = False  # by the latter


_KINDS = {
    -1: Invalid,
    -2: OutOfMemory,
    -3: OutOfMemory,
    -4: NotFound,
    -5: Unsupported,
    -8: Invalid,
    -9: Unreadable,
    -10: Unreadable,
    -14: OutOfMemory,
}


def shown(text: Any) -> str:
    """Makes a name, path or URL safe to print: one line, no control characters, no password and no query.

    >>> shown("https://user:pass@host/x?sig=1 \\x1b[2J")
    'https://host/x'
    """
    given = str(text).encode("utf-8", "surrogatepass").replace(b"\0", b"?")
    to = ctypes.create_string_buffer(len(given) + 1)
    return (lib().stow_text_show(to, len(to), given) or b"").decode("utf-8", "replace")


def shown_lines(text: Any) -> str:
    """Does the same for text with several lines."""
    return "\n".join(shown(line) for line in str(text).split("\n"))


def error(status: int, message: str) -> StowageError:
    """Returns the exception for a status of the library."""
    made = _KINDS.get(status, StowageError)(message)
    made.status = status
    return made


# ---- the table: result, arguments ----

#: Functions for every module; each module adds its own (`declare`).
_FUNCTIONS: "dict[str, Tuple[Any, List[Any]]]" = {
    "stow_version": (c_char_p, []),
    "stow_status_message": (c_char_p, []),
    "stow_size_parse": (c_int, [POINTER(c_uint64), c_char_p]),
    "stow_size_format": (c_char_p, [c_char_p, c_uint64]),
    "stow_text_show": (c_char_p, [c_char_p, c_size_t, c_char_p]),
}


def declare(functions: "dict[str, Tuple[Any, List[Any]]]") -> None:
    """Adds functions to the table. One whose result is a status is called through `call()`, or checked with `check()`."""
    _FUNCTIONS.update(functions)


class Growing(ctypes.Structure):
    """A struct of the library that may grow: its first member is its size here, and the library goes by that."""

    _fields_: Any = [("struct_bytes", ctypes.c_uint32)]

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(ctypes.sizeof(type(self)), *values, **named)


# ---- finding it ----


def _places() -> "List[Path]":
    """Returns the folders that may hold the compiled parts, as an installation or as a build folder."""
    places = [NATIVE]
    tree = _HERE.parent.parent
    if (tree / "CMakePresets.json").is_file():
        places.append(tree / "build" / "release")
    return places


def library_path() -> str:
    """Returns the library to load: `STOWAGE_LIBRARY`, the wheel's, a source tree's, or the system's."""
    named = os.environ.get(ENV_LIBRARY)
    if named:
        if not Path(named).is_file():
            raise NotFound(f'{ENV_LIBRARY} names "{named}", which does not exist; unset it, or set it to libstowage.so')
        return named
    for place in _places():
        for part in ("lib", ""):
            if (place / part / _LIBRARY).is_file():
                return str(place / part / _LIBRARY)
    return _LIBRARY


def native(name: str) -> Optional[Path]:
    """Returns a compiled part by its path in an installation (`bin/stowage`, `lib/stowage/libstowage-shim.so`)."""
    for place in _places():
        for candidate in (place / name, place / Path(name).name):
            if candidate.is_file():
                return candidate
    return None


def _name_hdf5() -> None:
    """Names the libhdf5 that h5py brings, if it brings one: the worker that reads HDF5 does not know sys.path."""
    if os.environ.get(ENV_HDF5_LIBRARY):
        return
    for place in sys.path:
        try:
            found = sorted(n for n in os.listdir(os.path.join(place, "h5py.libs")) if n.startswith("libhdf5-"))
        except OSError:
            continue
        if found:
            os.environ[ENV_HDF5_LIBRARY] = os.path.join(os.path.abspath(place), "h5py.libs", found[0])
            return


class _Libraries:
    """The three libraries as one: a function is found, and its types set, when it is first used."""

    def __init__(self) -> None:
        self._path = library_path()
        self._loaded: "dict[str, ctypes.CDLL]" = {}
        self._load("")

    def _load(self, part: str) -> ctypes.CDLL:
        path = self._path
        if part:
            folder, name = os.path.split(path)
            path = os.path.join(folder, name.replace("libstowage", f"libstowage-{part}", 1))
        try:
            self._loaded[part] = ctypes.CDLL(path)
            if part == "data":
                _name_hdf5()
        except OSError as reason:
            raise NotFound(
                f"cannot load {path} ({reason}); install the package with pip, build it with make in the source tree, "
                f"or set {ENV_LIBRARY} to libstowage.so"
            ) from None
        return self._loaded[part]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("stow_"):
            raise AttributeError(name)
        with _lock:
            part = next((part for start, part in _PARTS.items() if name.startswith(start)), "")
            library = self._loaded.get(part) or self._load(part)
            function = getattr(library, name)
            if name in _FUNCTIONS:
                function.restype, function.argtypes = _FUNCTIONS[name]
            setattr(self, name, function)
        return function


_loaded: Optional[_Libraries] = None
_lock = threading.RLock()


def lib() -> Any:
    """The libraries, loaded at the first call.

    >>> lib().stow_version().decode().count(".")
    2
    """
    global _loaded
    if _loaded is not None:
        return _loaded
    with _lock:
        if _loaded is None:
            _loaded = _Libraries()
    return _loaded


# ---- calling it ----


def check(status: int) -> None:
    """Raises the exception for a failed status, with the library's message for this thread."""
    __tracebackhide__ = True
    if status != 0:
        raise error(status, lib().stow_status_message().decode("utf-8", "replace") or "it failed without a reason")


def call(name: str, *arguments: Any) -> None:
    """Calls a function of the library that returns a status, and checks it."""
    __tracebackhide__ = True
    try:
        function = getattr(lib(), name)
    except AttributeError:
        version = lib().stow_version().decode()
        raise Unsupported(
            f"the library loaded, {library_path()} ({version}), has no {name}: it is older than this package; "
            "install both from the same version"
        ) from None
    check(function(*arguments))


# ---- other libraries ----


def need(name: str, what: str) -> Any:
    """Imports a Python library that `what` requires.

    >>> need("no_such_library", "stowage.open")
    Traceback (most recent call last):
        ...
    stowage._library.Missing: stowage.open needs no_such_library, which cannot be imported here (No module named \
'no_such_library'): pip install no_such_library
    """
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as reason:
        library = name.partition(".")[0]
        raise Missing(f"{what} needs {library}, which cannot be imported here ({reason}): pip install {library}") from None


# ---- sizes ----


def parse_size(size: "str | int | float", what: str = "size") -> int:
    """Parses a size.

    >>> parse_size("1.5G"), parse_size(4096)
    (1610612736, 4096)
    >>> parse_size("8 apples")
    Traceback (most recent call last):
        ...
    stowage._library.Invalid: size "8 apples" has no unit named "apples"; write a size such as 8G, 512 MiB or 1.5GiB
    """
    if isinstance(size, bool) or not isinstance(size, (str, int, float)):
        raise TypeError(f'{what}: {size!r} is not a size; write it as "8G", "512M" or a number of bytes')
    if isinstance(size, float):
        if not size.is_integer():
            raise Invalid(f"{what}: {size!r} is not a whole number of bytes")
        size = int(size)
    if isinstance(size, int):
        if not 0 <= size < 1 << 64:
            raise Invalid(f"{what}: {size} bytes: must be from 0 to 2^64 - 1")
        return size
    value = c_uint64()
    status = lib().stow_size_parse(ctypes.byref(value), size.encode("utf-8", "replace"))
    if status != 0:
        said = lib().stow_status_message().decode("utf-8", "replace")
        raise error(status, said if what == "size" else f"{what}: {said}")
    return value.value


def parse_budget(memory: "str | int") -> int:
    """Parses `memory=`. The library takes 0 for its default, so 0 is an error.

    >>> parse_budget(0)
    Traceback (most recent call last):
        ...
    stowage._library.Invalid: memory: a budget of 0 B is too small; write it as "256M", or leave it out
    """
    bytes = parse_size(memory, "memory")
    if bytes == 0:
        raise Invalid('memory: a budget of 0 B is too small; write it as "256M", or leave it out')
    return bytes


def device_name(device: "str | int | None") -> str:
    """Returns a device name for the library; empty for the default device.

    >>> device_name(0), device_name("sim:16G"), device_name(None)
    ('0', 'sim:16G', '')
    """
    if device is None:
        return ""
    if isinstance(device, bool) or not isinstance(device, (str, int)):
        raise TypeError(f'device: {device!r} is not a device; write it as "0", a UUID, or "sim:16G"')
    text = str(device)
    if "\0" in text:
        raise Invalid(f"device: {device!r} has a zero byte in it")
    return text


def counted(count: int, word: str) -> str:
    """"1 row", "2 rows"."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def format_size(size: int) -> str:
    """Formats a size for people.

    >>> format_size(2 << 20)
    '2.0 MiB'
    >>> format_size(-512)
    '-512 B'
    """
    text = ctypes.create_string_buffer(24)
    lib().stow_size_format(text, abs(int(size)))
    return ("-" if size < 0 else "") + text.value.decode()
