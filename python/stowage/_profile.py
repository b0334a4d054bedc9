"""Host memory by line and function of a part of the program.

libstowage-profile.so samples allocations in this process: it hooks malloc in every loaded library, and Python's allocator of small objects.
src/run/profile.h describes the estimates and their errors; this module reads the file that the library writes.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import struct
import sys
import tempfile
from dataclasses import dataclass
from importlib.machinery import ExtensionFileLoader
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar, overload

from . import _show
from ._library import StowageError, Unsupported, native, shown_lines
from ._library import format_size as size
from ._run_names import ENV_PROFILE, RUN_PROFILE

_HEAD = struct.Struct("=QQQddQII")  # profile_file: magic, period, peak, held, held_peak, dropped, site_count, frozen
_SITE = struct.Struct("=256s96sIIQddddddQ")  # profile_site
_MAGIC = 0x31666F7270777473
_SHOWN = 16

_library: Any = None
_running = False

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class Line:
    """Estimated bytes of a line or a function: held at the peak of the process, kept at the end, allocated in total. `error` is the
    standard error of `allocated`.
    """

    file: str
    line: int  #: 0 for a function
    function: str
    peak: int
    kept: int
    allocated: int
    error: int


def _load() -> Any:
    """Returns the library; it stays loaded."""
    global _library
    if _library is None:
        path = native("lib/stowage/libstowage-profile.so")
        if path is None:
            raise Unsupported("libstowage-profile.so is not in this installation; install the package again")
        found = ctypes.PyDLL(str(path))
        found.stowage_profile_start.argtypes, found.stowage_profile_start.restype = [ctypes.c_char_p], ctypes.c_int
        found.stowage_profile_loaded.argtypes, found.stowage_profile_loaded.restype = [], None
        found.stowage_profile_stop.argtypes, found.stowage_profile_stop.restype = [], None
        _library = found
    return _library


class _Imports:
    """Counts the allocations of extension modules that are imported while a profile runs, and of the libraries they load."""

    def __init__(self) -> None:
        self._before: Any = None

    def start(self, loaded: "Callable[[], None]") -> None:
        before = self._before = ExtensionFileLoader.create_module

        @functools.wraps(before)
        def create_module(loader: Any, spec: Any) -> Any:
            module = before(loader, spec)
            loaded()
            return module

        setattr(ExtensionFileLoader, "create_module", create_module)  # noqa: B010 (mypy refuses an assignment)

    def stop(self) -> None:
        setattr(ExtensionFileLoader, "create_module", self._before)  # noqa: B010


_imports = _Imports()


def _read(path: str) -> "Tuple[int, List[Tuple[Line, float]]]":
    """Returns the peak, and the lines with the variances of what they allocated."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:  # nothing was sampled
        return 0, []
    magic, _, peak_number, _, top, _, count, _ = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise StowageError(f"{path}: not a profile of this version")
    lines = []
    for at in range(count):
        name, function, line, _, _, allocated, variance, held, _, peak, _, number = _SITE.unpack_from(data, _HEAD.size + at * _SITE.size)
        one = Line(_text(name), line, _text(function), round(peak if number == peak_number else held), round(held), round(allocated), 0)
        one.error = round(math.sqrt(variance))
        lines.append((one, variance))
    return round(top), lines


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "replace")


class Profile:
    """The host memory of the code inside a `with`, by line and by function. The figures are available after the `with`."""

    def __init__(self) -> None:
        self.lines: "List[Line]" = []  #: the largest at the peak first
        self.functions: "List[Line]" = []
        self.peak = 0  #: bytes allocated inside that were held at once
        self._folder: "Optional[tempfile.TemporaryDirectory[str]]" = None

    def __enter__(self) -> "Profile":
        global _running
        if os.environ.get(ENV_PROFILE):
            raise StowageError("this process runs under `stowage run --profile`, which profiles all of it")
        if _running:
            raise StowageError("a profile is already running; end it first")
        library = _load()
        self._folder = tempfile.TemporaryDirectory()
        if not library.stowage_profile_start(os.fsencode(self._folder.name)):
            raise StowageError("the profile cannot start: the allocator of this process is unknown")
        _running = True
        _imports.start(library.stowage_profile_loaded)
        return self

    def __exit__(self, *_: Any) -> None:
        global _running
        _imports.stop()
        _load().stowage_profile_stop()
        _running = False
        folder, self._folder = self._folder, None
        if folder is None:
            return
        with folder:
            names = [name for name in os.listdir(folder.name) if name.endswith(f"{os.getpid()}{RUN_PROFILE}")]
            self.peak, lines = _read(f"{folder.name}/{names[0]}") if names else (0, [])
        self.lines = _sorted([line for line, _ in lines])
        sums: "Dict[Tuple[str, str], Tuple[Line, float]]" = {}
        for line, variance in lines:
            into, before = sums.get((line.file, line.function), (Line(line.file, 0, line.function, 0, 0, 0, 0), 0.0))
            into.peak, into.kept, into.allocated = into.peak + line.peak, into.kept + line.kept, into.allocated + line.allocated
            into.error = round(math.sqrt(before + variance))
            sums[line.file, line.function] = into, before + variance
        self.functions = _sorted([line for line, _ in sums.values()])

    def _rows(self, lines: "List[Line]", what: str) -> "List[Tuple[str, ...]]":
        rows: "List[Tuple[str, ...]]" = [("peak", "kept", "allocated", "±", what)]
        for line in lines[:_SHOWN]:
            place = _show.name_cells(line.file)
            if os.path.isabs(place) and os.path.exists(place):
                place = os.path.relpath(place)
            name = f"{place}:{line.line} {line.function}" if line.line else f"{line.function} in {place}"
            cells = [size(value) if value else "-" for value in (line.peak, line.kept, line.allocated, line.error)]
            rows.append((*cells, name if line.file else "no line of the program (native threads)"))
        return rows

    def __repr__(self) -> str:
        if not self.lines:
            return "nothing was sampled: less than 512 KiB was allocated, or the code has not ended"
        parts = [_show.text_table(self._rows(lines, what), right=[0, 1, 2, 3]) for lines, what in ((self.lines, "line"), (self.functions, "function"))]
        return "\n".join([f"peak {size(self.peak)} of host memory (sampled every 512 KiB; ±: standard error of allocated)", *parts])

    def _repr_html_(self) -> str:
        if not self.lines:
            return _show.html_block("stowage: lines", _show.html_text(repr(self)))
        tables = [_show.html_table(self._rows(lines, what), right=[0, 1, 2, 3]) for lines, what in ((self.lines, "line"), (self.functions, "function"))]
        return _show.html_block(f"stowage: peak {size(self.peak)} of host memory, sampled every 512 KiB", *tables)


def _sorted(lines: "List[Line]") -> "List[Line]":
    return sorted(lines, key=lambda line: (-line.peak, -line.allocated, line.file, line.line))


@overload
def profile() -> Profile: ...


@overload
def profile(function: Function) -> Function: ...


def profile(function: Any = None) -> Any:
    """Profiles the host memory of a function or a block, by line and by function.

    As a decorator it prints a table on standard error after each call; `with stowage.profile() as seen:` shows nothing, and `seen` has
    the figures. Bytes are estimates from samples, with their standard error; blocks of several MiB are exact. For device memory by
    line use `stowage run --profile`.

    >>> import stowage
    >>> with stowage.profile() as seen:
    ...     data = bytearray(64 << 20)
    >>> round(seen.peak / 2**20) in range(64, 68)
    True
    """
    if function is None:
        return Profile()

    @functools.wraps(function)
    def profiled(*arguments: Any, **named: Any) -> Any:
        if _running or os.environ.get(ENV_PROFILE):  # a recursive call, or `stowage run --profile` already profiles everything
            return function(*arguments, **named)
        seen = Profile()
        try:
            with seen:
                return function(*arguments, **named)
        finally:
            answer = shown_lines(f"stowage: {function.__qualname__}: {seen!r}")
            print(answer, file=sys.stderr)

    return profiled
