"""Arrays on disk, read a slice at a time: `stowage.open(path)[a:b, cols]`.

Reads only what the index selects, with explicit reads and no mapping; only the result stays in memory.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Optional, Tuple

from ._array import ArrayInfo, Origin, as_float32, numpy_type, origin_of, shape_of
from ._arrow import frames_of_file, take
from ._library import Invalid, NotFound, StowageError, Unsupported, call, check, counted, lib, need, shown
from ._store import is_store, without_scheme
from ._text import Bytes, LazyText, Members, TextColumn, as_series, column_names, find_text

if TYPE_CHECKING:
    import numpy

_CHUNK_BYTES = 4 << 20
_ZERO, _ONE = ctypes.c_uint64(0), ctypes.c_uint64(1)


def _address(array: "numpy.ndarray[Any, Any]") -> int:
    return int(array.ctypes.data)


def _address_of(array: "numpy.ndarray[Any, Any]") -> "Callable[[numpy.ndarray[Any, Any]], Any]":
    """Returns a function for the address of new arrays of this kind. A buffer is faster than `array.ctypes.data`, which builds objects first."""
    first_byte = (ctypes.c_char * 1).from_buffer
    try:
        first_byte(array)
    except (ValueError, TypeError):  # NumPy exports no buffer of this type
        return _address
    return first_byte


def open(
    file: Any,
    dtype: Any = None,
    *,
    raw_dtype: Any = None,
    raw_shape: Optional[Iterable[int]] = None,
    headers: "Optional[dict[str, str]]" = None,
    cache: "str | int | None" = None,
) -> "LazyArray | LazyText | LazyTable":
    """Opens an array without reading it.

    `file` is a path (.npy, `file.npz:member`, `file.safetensors:tensor`, raw values with `raw_dtype` and optionally `raw_shape`), an
    http(s) URL (`headers` are sent with every request; `cache="10G"` caches the data on disk), or a seekable file object. `dtype`
    converts the values; one that does not fit is an error that names its row.
    A pattern ("part-*.npy", "part-*.npz:x") or a list of paths or URLs is one array: their rows follow one another. A text column of an npz that `stowage shrink` wrote (`table.npz:city`) returns str and arrays of str. An npz of several arrays opens as a table: `table["city"]` is a column, and
    `pyarrow.table(table)` or `polars.DataFrame(table)` reads all of them (`__arrow_c_stream__`).
    """
    file = without_scheme(file)
    shape = None if raw_shape is None else list(raw_shape)
    is_plain = dtype is None and raw_dtype is None and headers is None
    try:
        array = LazyArray(file, dtype, raw_dtype, shape, headers, cache)
        names = column_names(file) if is_plain and array.ndim == 2 and array.dtype == "uint8" else []
        # A table of one column of text, all of one width, has one array: NAME.bytes.
        if len(names) == 1 and find_text(f"{os.fspath(file)}:{names[0]}", lambda path: LazyArray(path, None, None, None, headers, cache)):
            return LazyTable(os.fspath(file), names)
        return array
    except Invalid:
        if dtype is None and raw_dtype is None and _is_away(file):
            return _open_away(file, headers, cache)
        names = column_names(file) if is_plain else []
        if not names or not _is_table(os.fspath(file)):
            raise
        return LazyTable(os.fspath(file), names)
    except NotFound:
        if dtype is not None or raw_dtype is not None:
            raise
        column = find_text(file, lambda path: LazyArray(path, None, None, None, headers, cache))
        if column is None:
            raise
        return LazyText(column, (_open_again, (file, headers, cache)))


def _is_away(file: Any) -> bool:
    """Returns whether it is an npz at a URL or in a store, without a member."""
    return isinstance(file, str) and (is_store(file) or origin_of(file) is not None) and file.partition("?")[0].lower().endswith(".npz")


def _open_away(file: str, headers: "Optional[dict[str, str]]", cache: "str | int | None") -> "LazyTable":
    """Opens a table that is not on this disk. Its directory and the headers of its columns are read."""
    table = LazyTable(file, column_names(RemoteFile(file, headers, cache)), headers, cache)
    rows = {len(table[name]) for name in table.columns}
    if len(rows) != 1:
        listed = ", ".join(table.columns[:12])
        raise Invalid(f"{shown(file)}: it holds {len(table.columns)} arrays of different lengths; name one after a colon: {listed}")
    return table


class RemoteFile(Bytes):
    """The bytes of a file at a URL or in a store, which only readers that need few of them take."""

    def __init__(self, path: str, headers: "Optional[dict[str, str]]", cache: "str | int | None") -> None:
        self._bytes = LazyArray(path, None, "uint8", None, headers, cache)
        super().__init__(len(self._bytes))

    def read(self, size: int = -1) -> bytes:
        stop = self._size if size is None or size < 0 else min(self._size, self._at + size)
        data = bytes(self._bytes[self._at : stop].tobytes()) if stop > self._at else b""
        self._at += len(data)
        return data


def _is_table(path: str) -> bool:
    """Returns whether the arrays of an npz have the same number of rows and Arrow has their types."""
    try:
        take(frames_of_file(path)).drop()
        return True
    except StowageError:
        return False


def _open_again(file: Any, headers: "Optional[dict[str, str]]", cache: "str | int | None") -> "LazyArray | LazyText | LazyTable":
    return open(file, headers=headers, cache=cache)


class LazyTable:
    """The columns of an npz on disk. `table["city"]` opens one; Arrow packages read all of them batch by batch."""

    def __init__(
        self, path: str, columns: "list[str]", headers: "Optional[dict[str, str]]" = None, cache: "str | int | None" = None
    ) -> None:
        self._path, self.columns, self._known = path, columns, set(columns)
        self._headers, self._cache = headers, cache

    def __getitem__(self, name: str) -> "LazyArray | LazyText | LazyTable":
        if name not in self._known:
            raise KeyError(name)
        return open(f"{self._path}:{name}", headers=self._headers, cache=self._cache)

    def __len__(self) -> int:
        return len(self[self.columns[0]])

    def __repr__(self) -> str:
        return f"<stowage.open({shown(self._path)!r}): {counted(len(self.columns), 'column')}: {', '.join(self.columns[:8])}>"

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        if _is_away(self._path):
            raise Unsupported(f"{shown(self._path)}: Arrow streams are for files on disk; use to_pandas() or one column, or copy the file first")
        return frames_of_file(self._path).__arrow_c_stream__()

    def to_pandas(self, columns: "Optional[Iterable[str]]" = None) -> Any:
        """Returns all columns, or those given, as a pandas DataFrame in memory.

        A text column that is stored as a dictionary becomes a Categorical, whose values are not copied out; other texts become str.
        Empty text is missing, as in `pandas.read_csv`. Times become datetime64.
        """
        pandas = need("pandas", "to_pandas")
        made = {}
        away = RemoteFile(self._path, self._headers, self._cache) if _is_away(self._path) else None
        with Members(self._path, away) as members:
            for name in self.columns if columns is None else columns:
                if name not in self._known:
                    raise KeyError(name)
                path = f"{self._path}:{name}"
                made[name] = as_series(members.read(path)) if members.has(path) else LazyText(TextColumn(path, members.read), ()).to_pandas()
        return pandas.DataFrame(made)


class LazyArray:
    """An array on disk. Indexing reads the selected values and returns a NumPy array."""

    def __init__(self, *given: Any) -> None:
        self._given = given
        self._lock = threading.Lock()
        info = self._open_array(given)
        if as_float32(info, given[1] is not None, self._origin.name):
            self._closer()
            info = self._open_array((given[0], "float32", *given[2:]))
        self.shape: Tuple[int, ...] = shape_of(info)
        self.dtype: Any
        self.dtype, self._is_bfloat16 = numpy_type(info.dtype.decode())
        import numpy  # numpy_type says what to install where it is missing

        self._row_items = int(info.row_items)
        #: The shape of one row, for the fast path; None: it does not apply.
        self._row_shape = self.shape[1:] if self.shape and self._row_items > 0 else None
        # Looked up once: training reads rows one by one, and each name would cost a tenth of a microsecond.
        self._read_rows, self._is_open, self._empty = lib().stow_array_read, True, numpy.empty
        self._row_address = _address_of(numpy.empty(1, self.dtype)) if self._row_shape is not None else _address

    def _open_array(self, given: "Tuple[Any, ...]") -> ArrayInfo:
        self._origin = origin = Origin(*given)
        self._handle, info = ctypes.c_void_p(), ArrayInfo()
        try:
            call("stow_array_open", ctypes.byref(self._handle), ctypes.byref(origin.options))
        except StowageError as error:
            raise origin.explain(error)
        self._closer = weakref.finalize(self, lib().stow_array_close, self._handle)
        call("stow_array_get_info", self._handle, ctypes.byref(info))
        return info

    # ---- facts ----

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        count = 1
        for n in self.shape:
            count *= n
        return count

    @property
    def nbytes(self) -> int:
        """The bytes of the whole array in memory."""
        return self.size * int(self.dtype.itemsize)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        kind = "bfloat16" if self._is_bfloat16 else str(self.dtype)
        return f"<stowage.open({self._origin.name!r}): shape {self.shape}, {kind}>"

    # ---- life ----

    def close(self) -> None:
        with self._lock:
            self._is_open = False
            self._closer()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Record batches of one column, for pyarrow.table(x), polars.DataFrame(x) and others. Read batch by batch."""
        path, rest = self._given[0], self._given[1:]
        if not isinstance(path, (str, os.PathLike)) or any(one is not None for one in rest):
            raise Unsupported(f"{self._origin.name}: Arrow streams are for files opened by path alone, without dtype= and headers=")
        return frames_of_file(os.fspath(path)).__arrow_c_stream__()

    def to_pandas(self) -> Any:
        """Returns the values as a pandas DataFrame in memory: one column for each of a row. An npz of one array gives it its name."""
        pandas = need("pandas", "to_pandas")
        values = self[...]
        if values.ndim == 2:
            return pandas.DataFrame(values)
        if values.ndim != 1:
            raise Unsupported(f"{self._origin.name}: a DataFrame has two dimensions, this array {values.ndim}; select some of it first")
        names = column_names(self._given[0])
        return pandas.DataFrame({names[0] if len(names) == 1 else "values": as_series(values)})

    def __reduce__(self) -> Any:
        return LazyArray, self._given  # opened again, as in a worker of a torch DataLoader

    def __enter__(self) -> "LazyArray":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # ---- reading ----

    def _check_open(self) -> None:
        if not self._is_open:
            raise ValueError(f"{self._origin.name} is closed")

    def _read(self, to: "numpy.ndarray[Any, Any]", first: int, count: int, step: int = 1, item: int = 0, items: int = 0) -> None:
        with self._lock:
            self._check_open()
            if to.size == 0:
                return
            try:
                call("stow_array_read", self._handle, first, count, step, item, items, to.ctypes.data)
            except StowageError as error:
                raise self._origin.explain(error)

    def read_into(self, to: "numpy.ndarray[Any, Any]", first: int) -> None:
        """Fills an array with the rows from `first` on, in their stored type."""
        self._read(to, first, len(to))

    def _rows(self, first: int, count: int, step: int, span: "_Span") -> "numpy.ndarray[Any, Any]":
        """Returns rows with the columns of the span, as a new array."""
        import numpy

        chunk = numpy.empty((count,) + span.shape, self.dtype)
        self._read(chunk, first, count, step, span.item, span.items)
        return chunk

    def _one_row(self, row: int) -> Any:
        """Returns one row, without the general index: training reads rows one by one."""
        out: Any = self._empty(self._row_shape, self.dtype)
        with self._lock:
            if not self._is_open:
                self._check_open()
            status = self._read_rows(self._handle, row, _ONE, _ONE, _ZERO, _ZERO, self._row_address(out))
            if status != 0:
                try:
                    check(status)
                except StowageError as error:
                    raise self._origin.explain(error)
        return out if self._row_shape else out[()]

    def __getitem__(self, index: Any) -> Any:
        if type(index) is int and self._row_shape is not None and 0 <= index < self.shape[0]:
            return self._one_row(index)
        import numpy

        if (type(index) is int or isinstance(index, numpy.integer)) and self._row_shape is not None:
            count, number = self.shape[0], int(index)
            if -count <= number < count:
                return self._one_row(number % count)
        if not isinstance(index, tuple):
            index = (index,)
        # Let NumPy interpret the index, on an array that takes no memory.
        shape = numpy.broadcast_to(numpy.empty((), self.dtype), self.shape)[index].shape
        if not self.shape:
            whole = numpy.empty((), self.dtype)
            self._read(whole, 0, 1)
            return whole[index]
        lead, rows, rest = _written_out(index, self.ndim)
        if 0 in shape:
            return numpy.empty(shape, self.dtype)
        span = _Span(self.shape[1:], rest)
        row: Any = 0
        if _is_int(rows):
            block = self._rows(int(rows) % self.shape[0], 1, 1, span)
        elif isinstance(rows, slice):
            start, stop, step = rows.indices(self.shape[0])
            count = len(range(start, stop, step))
            first, row = (start, slice(None)) if step > 0 else (start + (count - 1) * step, slice(None, None, -1))
            if not lead and span.rows_stay_first:
                return self._read_range(first, count, abs(step), span, shape)[row]
            block = self._rows(first, count, abs(step), span)
        else:
            block, row = self._read_numbers(_numbers(rows, self.shape[0]), span)
        return block[(*lead, row, *span.taken)]

    def _read_range(self, first: int, count: int, step: int, span: "_Span", shape: "Tuple[int, ...]") -> Any:
        """Returns rows in even steps, read in parts if more is read than selected."""
        import numpy

        out = numpy.empty(shape, self.dtype)
        if span.straight:
            self._read(out, first, count, step, span.item, span.items)
            return out
        held = max(1, _CHUNK_BYTES // max(1, span.count * int(self.dtype.itemsize)))
        for done in range(0, count, held):
            part = min(held, count - done)
            out[done : done + part] = self._rows(first + done * step, part, step, span)[(slice(None),) + span.taken]
        return out

    def _read_numbers(self, numbers: Any, span: "_Span") -> "Tuple[Any, Any]":
        """Returns rows by number, in any order, and the position of each. Reads neighbours together and each row once."""
        import numpy

        wanted = numpy.unique(numbers)
        chunk = numpy.empty((len(wanted),) + span.shape, self.dtype)
        ends = [*(numpy.flatnonzero(numpy.diff(wanted) != 1) + 1).tolist(), len(wanted)]
        begin = 0
        for end in ends:
            self._read(chunk[begin:end], int(wanted[begin]), end - begin, 1, span.item, span.items)
            begin = end
        return chunk, numpy.searchsorted(wanted, numbers)

    def __array__(self, dtype: Any = None, copy: Any = None) -> "numpy.ndarray[Any, Any]":
        whole = self[...]
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __iter__(self) -> "Iterator[Any]":
        """Yields rows in order, read in parts."""
        held = max(1, _CHUNK_BYTES // max(1, self._row_items * self.dtype.itemsize))
        for first in range(0, len(self), held):
            yield from self[first : first + held]


class _Span:
    """Returns the range of items of each row that holds all selected columns, and the selection within it."""

    def __init__(self, row_shape: "Tuple[int, ...]", rest: "list[Any]") -> None:
        import numpy

        self.item, self.items = 0, 0  # 0 items: the whole row
        self.shape = row_shape
        rest = list(rest)
        own = [i for i, n in enumerate(rest) if not _is_free(n)]
        if own:
            columns, width, inner = rest[own[0]], row_shape[0], 1
            for n in row_shape[1:]:
                inner *= n
            if isinstance(columns, slice):
                steps = range(*columns.indices(width))
                low, high = min(steps[0], steps[-1]), max(steps[0], steps[-1]) + 1
                rest[own[0]] = slice(None, None, steps.step)
            else:
                picked = _numbers(columns, width)
                low, high = int(picked.min()), int(picked.max()) + 1
                rest[own[0]] = 0 if _is_int(columns) else picked - low
            if high - low < width:
                self.item, self.items = low * inner, (high - low) * inner
                self.shape = (high - low,) + row_shape[1:]
        self.taken = tuple(rest)
        self.count = 1
        for n in self.shape:
            self.count *= n
        lists = [n for n in rest if not (isinstance(n, slice) or _is_int(n) or _is_free(n))]
        numbers = [n for n in rest if _is_int(n)]
        free = len(own) < len(rest)
        #: The result is exactly the items read, in their order.
        self.straight = not (lists or free) and all(
            isinstance(n, slice) and n.indices(size) == (0, size, 1) or size == 1 and _is_int(n)
            for n, size in zip(rest, self.shape)
        )
        #: NumPy moves the dimension of several lists to the front; that of one list stays.
        self.rows_stay_first = not free and (not lists or len(lists) == 1 and not numbers and numpy.ndim(lists[0]) == 1)


def _is_free(n: Any) -> bool:
    """Returns true for an index that uses no dimension: a new axis, or an empty `...`."""
    return n is None or n is Ellipsis


def _is_int(n: Any) -> bool:
    import numpy

    return hasattr(n, "__index__") and not isinstance(n, (bool, numpy.bool_)) and numpy.ndim(n) == 0


def _numbers(index: Any, size: int) -> Any:
    """Returns the row numbers of an int, a list or a mask, all from 0 to size - 1."""
    import numpy

    numbers = numpy.asarray(index)
    if numbers.dtype == bool:
        return numpy.flatnonzero(numbers)
    if numbers.size == 0:
        return numbers.astype(numpy.intp)
    return numpy.where(numbers < 0, numbers + size, numbers) if numbers.ndim else numpy.asarray([int(numbers) % size])


def _written_out(index: "Tuple[Any, ...]", dims: int) -> "Tuple[list[Any], Any, list[Any]]":
    """Returns the index with all dimensions: the part before the rows, the rows, and the rest."""
    import numpy

    for n in index:
        if not _is_free(n) and not isinstance(n, slice):
            as_array = numpy.asarray(n)
            if as_array.dtype == bool and as_array.ndim != 1:
                raise IndexError("a mask over several dimensions would read everything: numpy.asarray(x)[mask] does")
    missing = [slice(None)] * (dims - sum(not _is_free(n) for n in index))
    whole: "list[Any]" = []
    for n in index:
        whole += missing if n is Ellipsis and missing else [n]
    if not any(n is Ellipsis for n in index):
        whole += missing
    rows = next(i for i, n in enumerate(whole) if not _is_free(n))
    return whole[:rows], whole[rows], whole[rows + 1 :]
