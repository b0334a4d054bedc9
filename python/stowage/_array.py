"""Shared by batches and open: the C structures, the source of an array, and its NumPy type."""

from __future__ import annotations

import bisect
import ctypes
import os
import re
import threading
import time
import urllib.parse
import weakref
from ctypes import CFUNCTYPE, POINTER, c_char, c_char_p, c_int, c_uint32, c_uint64, c_void_p
from typing import Any, Callable, Iterable, List, Optional, Tuple

from ._library import Growing, Invalid, Missing, StowageError, Unsupported, call, declare, lib, need, parse_size, shown
from ._store import is_store, objects_of, open_address, without_scheme
from ._store_object import Ranges

READER = CFUNCTYPE(c_int, c_void_p, c_uint64, c_void_p, c_uint64)
_IO_FAILED = -9
_TRIES, _WAIT_FIRST_S = 4, 0.1  # attempts of a read that fails with a connection error
#: Errors of an OSError that a retry does not change.
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, ValueError)


class ArrayOptions(Growing):
    _fields_ = [
        ("raw_dims", c_uint32),
        ("path", c_char_p),
        ("raw_dtype", c_char_p),
        ("raw_shape", POINTER(c_uint64)),
        ("as_dtype", c_char_p),
        ("headers", POINTER(c_char_p)),
        ("read", READER),
        ("read_user", c_void_p),
        ("read_bytes", c_uint64),
        ("cache_bytes", c_uint64),
        ("data", c_void_p),
        ("data_bytes", c_uint64),
        ("member", c_char_p),
    ]


class ArrayInfo(Growing):
    _fields_ = [
        ("dims", c_uint32),
        ("dtype", c_char * 72),
        ("file_dtype", c_char * 72),
        ("item_bytes", c_uint64),
        ("shape", c_uint64 * 64),
        ("rows", c_uint64),
        ("row_items", c_uint64),
        ("fortran_order", c_uint32),
        ("reserved", c_uint32),
    ]


declare(
    {
        "stow_array_open": (c_int, [POINTER(c_void_p), POINTER(ArrayOptions)]),
        "stow_array_close": (None, [c_void_p]),
        "stow_array_get_info": (c_int, [c_void_p, POINTER(ArrayInfo)]),
        "stow_array_read": (c_int, [c_void_p, c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, c_void_p]),
    }
)


def _store_ranges(file: Any) -> "Optional[Callable[[memoryview, int], None]]":
    """Returns a function that reads ranges of an object opened with fsspec, or None for other files.

    A file object has one position and is read under a lock. A file system of fsspec reads any range by itself (`cat_file`), from
    several threads at once.
    """
    system, path = getattr(file, "fs", None), getattr(file, "path", None)
    cat: Any = getattr(system, "cat_file", None)
    if not callable(cat) or not isinstance(path, str) or "w" in str(getattr(file, "mode", "rb")):
        return None

    def fill(to: memoryview, offset: int) -> None:
        data = cat(path, start=offset, end=offset + len(to))
        if len(data) != len(to):
            raise EOFError(f"{path}: {len(data)} bytes at byte {offset} instead of {len(to)}")
        to[:] = data

    return fill


class _FileReader:
    """Reads from a seekable Python file object, for the C library's threads."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.lock = threading.Lock()
        self.failed: Optional[BaseException] = None
        self.stopped = False  # the reader was closed
        #: Reads a range without a position, so that several threads can read at once.
        self.ranges: Optional[Callable[[memoryview, int], None]] = getattr(file, "fill_at", None) or _store_ranges(file)
        if hasattr(file, "fill_at"):
            self.bytes = file.bytes
        else:
            self.bytes = file.seek(0, os.SEEK_END)
        if self.bytes is None:  # some file objects do not follow io's rule
            self.bytes = file.tell()
        self.function = READER(self._read)

    def _read(self, _user: Any, offset: int, to: int, count: int) -> int:
        try:
            self._fill_at_last(memoryview((c_char * count).from_address(to)).cast("B"), offset)
            return 0
        except BaseException as reason:  # an exception must not pass through C
            self.failed = reason
            return _IO_FAILED

    def _fill_at_last(self, to: memoryview, offset: int) -> None:
        for wait in range(_TRIES - 1):
            try:
                return self._fill(to, offset)
            except OSError as reason:  # timeouts and dropped connections are
                # The library's own reader, of one of several objects, has tried again already.
                if isinstance(reason, (*_FINAL, StowageError)) or self.stopped:
                    raise
            time.sleep(_WAIT_FIRST_S * 2**wait)
        self._fill(to, offset)

    def _fill(self, to: memoryview, offset: int) -> None:
        if self.ranges is not None:
            if self.stopped:
                raise EOFError("closed")
            return self.ranges(to, offset)
        with self.lock:
            if self.stopped:
                raise EOFError("closed")
            self.file.seek(offset)
            done = 0
            while done < len(to) and not self.stopped:
                part = self.file.read(min(len(to) - done, 4 << 20))
                if not part:
                    raise EOFError(f"it ends at byte {offset + done}; it had {self.bytes} bytes when it was opened")
                to[done : done + len(part)] = part
                done += len(part)


class Origin:
    """One array as the caller described it, and its C options. Keeps the objects alive that C points to."""

    def __init__(
        self,
        given: Any,
        dtype: Any = None,
        raw_dtype: Any = None,
        raw_shape: Optional[Iterable[int]] = None,
        headers: "Optional[dict[str, str]]" = None,
        cache: "str | int | None" = None,
    ) -> None:
        self.reader: Optional[_FileReader] = None
        self.seen_as: "Optional[Tuple[Any, Tuple[int, ...]]]" = None
        self.options = ArrayOptions()
        if not hasattr(given, "read") and not isinstance(given, os.PathLike) and callable(getattr(given, "open", None)):
            given = given.open() if hasattr(given, "mode") else given.open("rb")  # fsspec.open's, or a path of its kind
        if isinstance(given, (list, tuple)) and given:
            if any(isinstance(one, str) and origin_of(one) is not None for one in given):
                given, headers, cache = _Joined(list(given), headers, cache), None, None
            else:
                given = _of_store(given) if any(map(is_store, given)) else several(given)
        if isinstance(given, str):
            given = _of_store([given]) if is_store(given) else without_scheme(given)
        if is_array(given):
            given = self._keep(given, dtype)
            path, raw_dtype, raw_shape = "an array in memory", self.stored, self.stored_shape
        elif hasattr(given, "fill_at") or (hasattr(given, "read") and hasattr(given, "seek")):
            self.reader = _FileReader(given)
            path = str(getattr(given, "name", None) or getattr(given, "path", None) or type(given).__name__)
            self.options.read = self.reader.function
            self.options.read_bytes = self.reader.bytes
            if isinstance(given, Ranges):
                self.options.member = None if given.member is None else given.member.encode()
                if raw_dtype is None and given.raw_dtype is not None:
                    raw_dtype, raw_shape = given.raw_dtype, given.raw_shape
        elif isinstance(given, (str, bytes, os.PathLike)):
            path = os.fsdecode(os.fspath(given))
        else:
            raise TypeError(f"{given!r}: give a path, a URL, or a file object that has read and seek")
        #: For messages and reprs: without password and query. `options` has the real path.
        self.name = shown(path)
        self.origin = origin_of(path)
        self.options.path = os.fsencode(path if self.options.member is None else given.address)
        if dtype is not None:
            self.options.as_dtype = type_name(dtype).encode()
        if raw_dtype is not None:
            self.options.raw_dtype = type_name(raw_dtype).encode()
        if raw_shape is not None:
            shape = [int(n) for n in raw_shape]
            self.shape = (c_uint64 * max(len(shape), 1))(*shape)
            self.options.raw_shape = self.shape
            self.options.raw_dims = len(shape)
        if cache is not None:
            self.options.cache_bytes = parse_size(cache, "cache")
        if headers:
            lines = [f"{name}: {value}".encode() for name, value in headers.items()]
            self.headers = (c_char_p * (len(lines) + 1))(*lines, None)
            self.options.headers = self.headers

    def _keep(self, given: Any, dtype: Any) -> Any:
        """Makes the options of an array in memory, and keeps it alive.

        Values that are not numbers of the library are passed on as bytes.
        """
        numpy = need("numpy", "reading arrays")
        array = given.numpy() if hasattr(given, "numpy") and hasattr(given, "device") else numpy.asarray(given)
        if array.ndim == 0 or array.dtype.hasobject:
            raise Invalid(f"an array in memory of type {array.dtype} with {array.ndim} dimensions: must have rows, and no objects")
        array = numpy.ascontiguousarray(array)
        number = array.dtype.kind in "biuf" and array.dtype.itemsize <= 8
        if number and not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if not number and dtype is not None:
            raise Invalid(f"an array in memory of type {array.dtype} cannot be converted to {dtype}")
        #: Its type and shape of rows, where the library has only bytes.
        self.seen_as = None if number else (array.dtype, array.shape[1:])
        self.stored = array.dtype.name if number else "uint8"
        self.stored_shape = list(array.shape) if number else [len(array), array.nbytes // max(len(array), 1)]
        self.array = array
        self.options.data = array.ctypes.data or 1
        self.options.data_bytes = array.nbytes
        return array

    def stop(self) -> None:
        """Call before closing: threads that wait for the file object stop waiting."""
        if self.reader is not None:
            self.reader.stopped = True

    def explain(self, error: BaseException) -> BaseException:
        """Returns the library's error, with the file object's own error as its cause; an interrupt of the file object as it is."""
        if self.reader is not None and self.reader.failed is not None:
            failed, self.reader.failed = self.reader.failed, None
            if not isinstance(failed, Exception):
                return failed  # Ctrl-C, or an exit of the program
            error.__cause__ = failed
        return error


class _Joined(Ranges):
    """Several objects of a store, or files of servers, as one array of raw values: their rows follow one another."""

    def __init__(self, addresses: "List[str]", headers: "Optional[dict[str, str]]" = None, cache: "str | int | None" = None) -> None:
        if headers and len(set(map(origin_of, addresses))) > 1:
            raise Invalid("headers= with several URLs: they must all be on one server, which alone gets the headers")
        self.name = f"{addresses[0]} and {len(addresses) - 1} more"
        #: First byte, object, its handle and the lock for that.
        self._parts: "List[Tuple[int, Origin, c_void_p, threading.Lock]]" = []
        self.bytes, rows = 0, 0
        for address in addresses:
            origin, handle, info = Origin(address, headers=headers, cache=cache), c_void_p(), ArrayInfo()
            try:
                call("stow_array_open", ctypes.byref(handle), ctypes.byref(origin.options))
            except StowageError as error:
                raise origin.explain(error)
            weakref.finalize(self, lib().stow_array_close, handle)
            self._parts.append((self.bytes, origin, handle, threading.Lock()))
            call("stow_array_get_info", handle, ctypes.byref(info))
            found = info.dtype.decode(), shape_of(info)[1:]
            if info.dims == 0:
                raise Invalid(f"{shown(address)}: one number without rows cannot be one of several objects")
            if self.raw_dtype is None:
                self.raw_dtype, row_shape = found
                self._row_bytes = int(info.item_bytes * info.row_items)
            if found != (self.raw_dtype, row_shape):
                first = f"{shown(addresses[0])} {self.raw_dtype} {row_shape}"
                raise Invalid(f"{shown(address)}: its rows are {found[0]} {found[1]}, those of {first}")
            rows += int(info.rows)
            self.bytes += int(info.rows) * self._row_bytes
        self.raw_shape = [rows, *row_shape]

    def fill_at(self, to: memoryview, offset: int) -> None:
        ends = [first for first, *_ in self._parts[1:]] + [self.bytes]
        while to.nbytes > 0:
            number = bisect.bisect_right(ends, offset)
            start, origin, handle, lock = self._parts[number]
            stop = min(offset + to.nbytes, ends[number])
            row, within = divmod(offset - start, self._row_bytes)
            count = -(-(stop - start) // self._row_bytes) - row
            rows = bytearray(count * self._row_bytes)
            try:
                with lock:
                    call("stow_array_read", handle, row, count, 1, 0, 0, (c_char * len(rows)).from_buffer(rows))
            except StowageError as error:
                raise origin.explain(error)
            to[: stop - offset] = memoryview(rows)[within : within + stop - offset]
            to, offset = to[stop - offset :], stop


def _of_store(paths: "Iterable[Any]") -> Any:
    """Opens an object of a store, or several as one array."""
    names = [os.fsdecode(os.fspath(path)) for path in paths]
    if not all(map(is_store, names)):
        several(names)  # raises
    found = objects_of(names)
    return open_address(found[0]) if len(found) == 1 else _Joined(found)


def is_array(given: Any) -> bool:
    """Returns whether these are values in memory: an array of NumPy, a tensor of torch, a column of pandas."""
    return hasattr(given, "__array__") and hasattr(given, "shape") and hasattr(given, "dtype")


def several(paths: "Iterable[Any]") -> str:
    """Returns the name of several files whose rows follow one another, as the library reads it.

    >>> several(["a.npy", "b-*.npy"])
    'a.npy\\nb-*.npy'
    """
    names = [without_scheme(os.fsdecode(os.fspath(path))) for path in paths]
    for name in names:
        if is_store(name):
            raise Unsupported(f"{shown(name)}: files on disk and objects of a store are not read as one; copy the object to disk first")
    if any("\n" in name for name in names):
        raise Invalid("a file whose name has a line feed cannot be one of several")
    return "\n".join(names)


def origin_of(path: str) -> Optional[Tuple[str, str, int]]:
    """Returns scheme, host and port of an http(s) URL; None for anything else.

    >>> origin_of("https://user:pass@Host/x?y"), origin_of("x.npy")
    (('https', 'host', 443), None)
    """
    if not re.match(r"https?://", path, re.IGNORECASE):
        return None
    parts = urllib.parse.urlsplit(path)
    try:
        port = parts.port
    except ValueError:
        port = -1  # the library reports what is wrong with it
    return parts.scheme, parts.hostname or "", port or (443 if parts.scheme == "https" else 80)


def type_name(dtype: Any) -> str:
    """Returns the library's name of a type; accepts names and NumPy's and torch's types.

    >>> type_name("f16"), type_name(float), type_name("<f4")
    ('f16', 'float64', 'float32')
    """
    if dtype in ("i8", "u8"):
        kind = {"i8": "int", "u8": "uint"}[dtype]
        raise Invalid(f'"{dtype}" is {kind}64 in NumPy and {kind}8 in the command; write which: "{kind}64" or "{kind}8"')
    if isinstance(dtype, str) and dtype[:1] not in ("<", ">", "=", "|"):
        return dtype
    text = str(dtype)
    if text.startswith("torch."):
        return text[len("torch.") :]
    import numpy

    try:
        return numpy.dtype(dtype).name
    except TypeError:
        raise Invalid(f"{dtype!r} is not a number type; write it as float32 or f16") from None


def numpy_type(name: str) -> Tuple[Any, bool]:
    """Returns NumPy's dtype for a name of the library, and whether it replaces bfloat16, which NumPy lacks."""
    numpy = need("numpy", "reading arrays")
    if name != "bfloat16":
        return numpy.dtype(name), False
    try:
        import ml_dtypes  # type: ignore[import-not-found, unused-ignore]

        return numpy.dtype(ml_dtypes.bfloat16), True
    except ImportError:
        return numpy.dtype("uint16"), True


def as_float32(info: ArrayInfo, is_asked: bool, name: str) -> bool:
    """Returns whether to read as float32, which holds every bfloat16: NumPy has no type for it without ml_dtypes."""
    if info.dtype != b"bfloat16" or numpy_type("bfloat16")[0] != "uint16":
        return False
    if is_asked:
        raise Missing(f"{shown(name)}: dtype bfloat16: NumPy has no such type: pip install ml_dtypes, or give dtype=\"float32\"")
    return True


def shape_of(info: ArrayInfo) -> Tuple[int, ...]:
    return tuple(info.shape[: info.dims])

