"""Arrow streams (the PyCapsule interface, `__arrow_c_stream__`): tables of pandas, polars, pyarrow and DuckDB without a copy.

The library reads and makes the streams (stowage/arrow.h). This module passes their structs to and from other packages.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from ctypes import POINTER, PYFUNCTYPE, byref, c_char_p, c_double, c_int, c_uint32, c_uint64, c_void_p, py_object
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ._library import Growing, NotFound, Unsupported, call, counted, declare, lib

_NAME = b"arrow_array_stream"


class Stream(ctypes.Structure):
    """struct ArrowArrayStream. The holder calls `drop`, or passes it on."""

    _fields_ = [
        ("get_schema", c_void_p),
        ("get_next", c_void_p),
        ("get_last_error", c_void_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]

    def drop(self) -> None:
        if self.release:
            _Release(self.release)(ctypes.addressof(self))


_Release = ctypes.CFUNCTYPE(None, c_void_p)


class PlanOptions(Growing):
    _fields_ = [("purpose", c_uint32), ("tolerance", c_double), ("absolute", c_uint32), ("reserved", c_uint32)]


class _Column(Growing):
    _fields_ = [
        ("scanned", c_uint32),
        ("name", c_char_p),
        ("from_type", c_char_p),
        ("to_type", c_char_p),
        ("rows", c_uint64),
        ("nulls", c_uint64),
        ("bytes", c_uint64),
        ("bytes_after", c_uint64),
        ("nans", c_uint64),
        ("infs", c_uint64),
        ("zeros", c_uint64),
        ("least", c_double),
        ("most", c_double),
        ("error", c_double),
    ]


declare(
    {
        "stow_arrow_capsule_free": (None, [c_void_p]),
        "stow_arrow_open": (c_int, [POINTER(Stream), c_char_p, c_uint64]),
        "stow_arrow_plan_make": (c_int, [POINTER(c_void_p), POINTER(Stream), POINTER(PlanOptions)]),
        "stow_arrow_plan_close": (None, [c_void_p]),
        "stow_arrow_plan_get_column": (c_int, [c_void_p, c_uint64, POINTER(_Column)]),
        "stow_arrow_plan_apply": (c_int, [c_void_p, POINTER(Stream), POINTER(Stream)]),
    }
)

# ---- capsules ----

_new = PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", ctypes.pythonapi))
_pointer = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_libc = ctypes.CDLL(None)
_libc.malloc.restype, _libc.malloc.argtypes = c_void_p, [ctypes.c_size_t]


def capsule(stream: Stream) -> Any:
    """Returns a capsule that owns the stream."""
    address = _libc.malloc(ctypes.sizeof(Stream))
    if not address:
        stream.drop()
        raise MemoryError
    ctypes.memmove(address, byref(stream), ctypes.sizeof(Stream))
    return _new(address, _NAME, ctypes.cast(lib().stow_arrow_capsule_free, c_void_p))


def take(thing: Any) -> Stream:
    """Takes the Arrow stream of `thing` out of its capsule."""
    given = thing.__arrow_c_stream__()
    inside = Stream.from_address(_pointer(given, _NAME))
    made = Stream.from_buffer_copy(inside)
    inside.release = None
    return made


def has_stream(thing: Any) -> bool:
    return callable(getattr(thing, "__arrow_c_stream__", None))


class Frames:
    """A table that other packages read through `__arrow_c_stream__`, batch by batch: `pyarrow.table(x)`, `polars.DataFrame(x)`."""

    def __init__(self, begin: "Callable[[], Stream]", shown: str) -> None:
        self._begin, self._shown = begin, shown

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return capsule(self._begin())

    def __repr__(self) -> str:
        return f"<stowage: {self._shown}>"


def frames_of_file(path: str, batch_bytes: int = 0) -> Frames:
    """A table that shrink wrote (.npz), or one array, as record batches of about `batch_bytes`."""

    def begin() -> Stream:
        stream = Stream()
        call("stow_arrow_open", byref(stream), path.encode("utf-8", "surrogateescape"), batch_bytes)
        return stream

    return Frames(begin, path)


# ---- batches of a generator ----


class _Raised(threading.local):
    """What a generator raised on this thread: a stream passes on only the text of an error."""

    reason: "Optional[BaseException]" = None


_raised = _Raised()


def stream_of(schema: Any, batches: "Iterator[Any]") -> Any:
    """Returns pyarrow's capsule of batches that a generator yields. `relayed` raises what the generator raises."""
    import pyarrow  # type: ignore[import-not-found, import-untyped, unused-ignore]

    return pyarrow.RecordBatchReader.from_batches(schema, _noted(batches)).__arrow_c_stream__()


def _noted(batches: "Iterator[Any]") -> "Iterator[Any]":
    try:
        yield from batches
    except GeneratorExit:
        raise
    except BaseException as reason:
        if _raised.reason is None:  # the first: generators further on raise only its text
            _raised.reason = reason
        raise


@contextlib.contextmanager
def relayed() -> "Iterator[None]":
    """Raises what a generator of `stream_of` raised instead of the error that the reader of its stream made of it."""
    _raised.reason = None
    try:
        yield
    except BaseException as reason:
        first, _raised.reason = _raised.reason, None
        if first is None or first is reason:
            raise
        raise first from None


class Passed:
    """A table whose batches pass through Python, so that handlers of signals run between them."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        import pyarrow

        reader = pyarrow.RecordBatchReader.from_stream(self._table)
        return stream_of(reader.schema, reader)


class Renamed:
    """A table whose columns have other names."""

    def __init__(self, table: Any, names: "Dict[str, str]") -> None:
        self._table, self._names = table, names

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        import pyarrow

        reader = pyarrow.RecordBatchReader.from_stream(self._table)
        fields = [field.with_name(self._names.get(field.name, field.name)) for field in reader.schema]
        schema = pyarrow.schema(fields, reader.schema.metadata)
        return stream_of(schema, (pyarrow.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in reader))


# ---- smaller types ----


class Column(NamedTuple):
    """What a plan knows about a column."""

    name: str
    from_type: str
    to_type: str
    scanned: bool
    rows: int
    nulls: int
    bytes: int
    bytes_after: int
    nans: int
    infs: int
    zeros: int
    least: float
    most: float
    error: float


class Plan:
    """The smallest types for the columns of a table, after one reading of it."""

    def __init__(self, thing: Any, tolerance: "Optional[Tuple[float, bool]]" = None, purpose: int = 0) -> None:
        options = PlanOptions(purpose=purpose)
        if tolerance is not None:
            options.tolerance, options.absolute = tolerance[0], not tolerance[1]
        stream, self._handle = take(thing), c_void_p()
        call("stow_arrow_plan_make", byref(self._handle), byref(stream), byref(options))
        self._close = weakref.finalize(self, lib().stow_arrow_plan_close, self._handle)
        self.columns = self._read()

    def _read(self) -> "List[Column]":
        made: "List[Column]" = []
        while True:
            one = _Column()
            try:
                call("stow_arrow_plan_get_column", self._handle, len(made), byref(one))
            except NotFound:
                return made
            texts = {name: getattr(one, name).decode("utf-8", "replace") for name in ("name", "from_type", "to_type")}
            rest = {name: getattr(one, name) for name in Column._fields[4:]}
            made.append(Column(scanned=bool(one.scanned), **texts, **rest))

    @property
    def rows(self) -> int:
        return self.columns[0].rows if self.columns else 0

    def apply(self, thing: Any) -> Frames:
        """Returns the same table in the plan's types. Columns that keep their type are not copied."""

        def begin() -> Stream:
            stream, given = Stream(), take(thing)
            call("stow_arrow_plan_apply", self._handle, byref(stream), byref(given))
            return stream

        return Frames(begin, f"{counted(self.rows, 'row')} of {counted(len(self.columns), 'column')}")


# ---- back to the package the table came from ----


def back(thing: Any, frames: Frames) -> Any:
    """Returns the frames as an object of the kind of `thing`; the frames themselves for an unknown kind."""
    package = type(thing).__module__.partition(".")[0]
    if package == "pyarrow":
        import pyarrow

        made = pyarrow.table(frames)
        if isinstance(thing, pyarrow.RecordBatch):
            whole = made.combine_chunks().to_batches()
            return whole[0] if whole else pyarrow.RecordBatch.from_pylist([], schema=made.schema)
        return made
    if package == "polars":
        import polars  # type: ignore[import-not-found, unused-ignore]

        made = polars.DataFrame(frames)
        return made if isinstance(thing, polars.DataFrame) else made.to_series()
    return frames


def as_table(thing: Any) -> Any:
    """Returns `thing` as a table that can be read twice."""
    package, kind = type(thing).__module__.partition(".")[0], type(thing).__name__
    if package == "polars" and kind == "Series":
        return thing.to_frame()
    if package == "pyarrow" and kind == "RecordBatchReader":
        raise Unsupported("shrink: a RecordBatchReader can be read once; give reader.read_all(), or the file it reads")
    return thing
