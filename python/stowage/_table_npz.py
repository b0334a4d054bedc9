"""Tables as .npz, written with pyarrow: the layout of docs/formats.md, "Tables as npz", as the library writes it for tables of text."""

from __future__ import annotations

import io
import itertools
import os
import re
import tempfile
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from ._arrow import Column, Plan
from ._arrow_types import filled, is_coded_text, is_text, numpy_of, record_batches
from ._column_texts import TextColumns, Texts, offset_bytes, plain_parts, word_parts
from ._library import Invalid, Unsupported
from ._newfile import beside
from ._sizes import Count, Sample, largest

_MEMBER = "w"  # writes a member into an archive that is open; creates no file
_EXACT_DIGITS = 15  # a decimal of so many digits comes back from a float64


class _Spool:
    """A temporary file that keeps the parts of several members, in the order in which they come."""

    def __init__(self, file: Any) -> None:
        self._file, self._end = file, 0

    def keep(self, part: Any) -> "Tuple[int, int]":
        """Returns where the bytes of an array are now."""
        data = memoryview(part).cast("B") if part.size else b""
        self._file.write(data)
        place = self._end, len(data)
        self._end += len(data)
        return place

    def parts(self, places: "List[Tuple[int, int]]") -> "Iterator[bytes]":
        for offset, length in places:
            self._file.seek(offset)
            yield self._file.read(length)


def write_npz(frames: Any, columns: "List[Column]", texts: TextColumns, path: str) -> None:
    """Writes the layout of docs/formats.md, "Tables as npz". Reads the table once: a member is complete only when all rows were
    read, so the members' parts wait in a temporary file."""
    with beside(path) as made, tempfile.TemporaryFile(dir=os.path.dirname(path) or ".") as file:
        writers, reader = _column_writers(_Spool(file), frames, columns, texts)
        for batch in reader:
            for writer, array in zip(writers, batch.columns):
                writer.add(array)
        _write_members(writers, columns, texts, made)


def _column_writers(
    spool: "_Spool", frames: Any, columns: "List[Column]", texts: TextColumns
) -> "Tuple[List[_Numbers | _Texts], Any]":
    reader = record_batches(frames)
    return [_column_writer(spool, field.type, column, texts) for field, column in zip(reader.schema, columns)], reader


def _write_members(writers: "List[_Numbers | _Texts]", columns: "List[Column]", texts: TextColumns, file: Any) -> None:
    import zipfile

    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for writer, name in zip(writers, member_names([column.name for column in columns], texts)):
            writer.write(archive, name)


def npz_bytes(sample: Sample, plan: Plan, texts: TextColumns) -> "Optional[int]":
    """Returns the size of the .npz that `write_npz` makes; None if a column has no npz form."""
    if any(digits >= 10**_EXACT_DIGITS for digits in sample.decimals.values()):
        return None
    try:
        writers = _column_writers(_Spool(io.BytesIO()), plan.apply(sample.empty()), plan.columns, texts)[0]
    except (Invalid, Unsupported):
        return None
    headers = Count()
    _write_members(writers, plan.columns, texts, headers)
    return headers.written + sum(one.data_bytes() for one in writers)


#: Each may be the end of a member's name. A column of text reserves all, so that the names alone show the layout.
_ENDINGS = (".codes", ".offsets", ".bytes", ".words.offsets", ".words.bytes")


def member_names(names: "List[str]", texts: TextColumns) -> "List[str]":
    """Returns a name for each column that readers of archives accept and that is no other column's member. Names that are free stay.

    >>> member_names(["/x", "x", "x"], TextColumns(0))
    ['_x', 'x', 'x.1']
    """
    taken: "Set[str]" = set()
    made: "Dict[int, str]" = {}
    for first, last in ((0, 1), (1, len(names) + 1)):  # the names of the file come first: in a, a, a.1 the second is a.2
        for at, column in enumerate(names):
            clean = re.sub(r"^/|\\|[\x00-\x1f]|\.(?=\.)", "_", column)
            for number in range(first, last if at not in made else 0):
                name = f"{clean}.{number}" if number else clean
                own = {name, *(name + ending for ending in _ENDINGS if column in texts)}
                if not own & taken:
                    taken |= own
                    made[at] = name
                    break
    return [made[at] for at in range(len(names))]


def note_members(names: "List[str]", texts: TextColumns) -> str:
    """Returns a line for each column whose member has another name."""
    pairs = zip(names, member_names(names, texts))
    return "".join(f'\ncolumn "{name}" is member "{member}": the name is taken or unsafe in an archive' for name, member in pairs if name != member)


def _member(archive: Any, name: str, descr: str, shape: "Tuple[int, ...]", parts: "Iterator[Any]") -> None:
    import numpy

    with archive.open(f"{name}.npy", _MEMBER, force_zip64=True) as file:
        numpy.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
        for part in parts:
            file.write(part)


class _Numbers:
    """A column of numbers, booleans or times: one member."""

    def __init__(self, spool: _Spool, column: Column, descr: str, convert: "Callable[[Any], Any]") -> None:
        self._spool, self._column, self._descr, self._convert = spool, column, descr, convert
        self._places: "List[Tuple[int, int]]" = []

    def add(self, array: Any) -> None:
        self._places.append(self._spool.keep(self._convert(array)))

    def write(self, archive: Any, name: str) -> None:
        _member(archive, name, self._descr, (self._column.rows,), self._spool.parts(self._places))

    def data_bytes(self) -> int:
        """Returns the bytes of all rows, without headers."""
        import numpy

        return self._column.rows * numpy.dtype(self._descr).itemsize


class _Texts:
    """A column of text: codes and a dictionary, or each text."""

    def __init__(self, spool: _Spool, column: Column, texts: Texts) -> None:
        self._spool, self._column, self._texts, self._layout = spool, column, texts, texts.layout()
        self._ends: "List[Tuple[int, int]]" = []  # or the codes
        self._bytes: "List[Tuple[int, int]]" = []
        self._total = 0

    def add(self, array: Any) -> None:
        if self._layout.codes is not None:
            self._ends.append(self._spool.keep(self._texts.codes(array).astype(self._layout.codes)))
            return
        ends, data = plain_parts(array)
        if self._layout.width is None:
            self._ends.append(self._spool.keep((ends + self._total).astype(self._offsets(self._texts.bytes))))
        self._bytes.append(self._spool.keep(data))
        self._total += len(data)

    @staticmethod
    def _offsets(length: int) -> str:
        return f"<i{offset_bytes(length)}"

    def write(self, archive: Any, name: str) -> None:
        import numpy

        ends, data = self._spool.parts(self._ends), self._spool.parts(self._bytes)
        if self._layout.codes is None:
            self._write_texts(archive, name, self._column.rows, self._texts.bytes, ends, data)
            return
        _member(archive, f"{name}.codes", numpy.dtype(self._layout.codes).str, (self._column.rows,), ends)
        word_ends, words = word_parts(self._texts.words or {})
        later = numpy.array(word_ends[1:], self._offsets(len(words))).data
        self._write_texts(archive, f"{name}.words", len(word_ends) - 1, len(words), iter([later]), iter([words]))

    def _write_texts(self, archive: Any, name: str, count: int, length: int, ends: "Iterator[Any]", data: "Iterator[Any]") -> None:
        import numpy

        width = self._layout.width
        if width is None:
            kind = self._offsets(length)
            _member(archive, f"{name}.offsets", kind, (count + 1,), itertools.chain([numpy.zeros(1, kind).data], ends))
        _member(archive, f"{name}.bytes", "|u1", (length,) if width is None else (count, width), data)

    def data_bytes(self) -> int:
        """Returns the bytes of all rows, without headers and what a column without rows has too: words, or the first offset."""
        import numpy

        if self._layout.codes is not None:
            return self._column.rows * numpy.dtype(self._layout.codes).itemsize
        first = 0 if self._layout.width is not None else offset_bytes(self._texts.bytes)
        return self._layout.text_bytes(self._column.rows, self._texts.bytes) - first


def _column_writer(spool: _Spool, kind: Any, column: Column, texts: TextColumns) -> "_Numbers | _Texts":
    import numpy
    import pyarrow

    if is_text(kind) or is_coded_text(kind):
        return _Texts(spool, column, texts[column.name])
    plain: "Callable[[Any], Any]" = lambda array: array  # noqa: E731
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
        plain = lambda array: array.dictionary_decode()  # noqa: E731
    if pyarrow.types.is_temporal(kind) and not pyarrow.types.is_interval(kind):
        # A time of the day is the span since midnight: NumPy has no type of its own for it.
        is_moment = pyarrow.types.is_timestamp(kind) or pyarrow.types.is_date(kind)
        unit = "D" if pyarrow.types.is_date32(kind) else "ms" if pyarrow.types.is_date64(kind) else kind.unit
        width = pyarrow.int32() if kind.bit_width == 32 else pyarrow.int64()

        def times(array: Any) -> Any:
            values = filled(plain(array).cast(kind).view(width).cast(pyarrow.int64()), -(2**63))
            return numpy.ascontiguousarray(numpy_of(values), "<i8")

        return _Numbers(spool, column, f"<{'M' if is_moment else 'm'}8[{unit}]", times)
    if pyarrow.types.is_null(kind):  # NaN, as for a column without a value in a table of text
        return _Numbers(spool, column, "<f4", lambda array: numpy.full(len(array), numpy.nan, "<f4"))
    if pyarrow.types.is_boolean(kind) or pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind):
        dtype = numpy.dtype(kind.to_pandas_dtype())
        if column.nulls and dtype.kind != "f":
            if column.least <= column.most and max(abs(column.least), abs(column.most)) > 2**53:
                raise Invalid(
                    f"column {column.name}: has nulls and values above 2^53, which no npz type holds; write .parquet, or drop it"
                )
            dtype = numpy.dtype("float32" if dtype.itemsize <= 2 else "float64")
        target = pyarrow.from_numpy_dtype(dtype)

        def numbers(array: Any) -> Any:
            array = plain(array)
            if column.nulls:
                array = filled(array.cast(target), float("nan"))
            return numpy.ascontiguousarray(numpy_of(array), dtype)

        return _Numbers(spool, column, dtype.str, numbers)
    if pyarrow.types.is_decimal(kind) and 0 <= kind.scale <= _EXACT_DIGITS:
        wide = pyarrow.decimal128(38, kind.scale)

        def decimals(array: Any) -> Any:
            # Two exact numbers, so the quotient is the float that is nearest to the decimal: what reading its text gives.
            array = plain(array).cast(wide)
            if largest(array) >= 10**_EXACT_DIGITS:
                raise Unsupported(
                    f"column {column.name}: a decimal of more than {_EXACT_DIGITS} digits has no npz form; drop it, or write .parquet"
                )
            low = numpy.frombuffer(array.buffers()[1], "<i8")[2 * array.offset : 2 * (array.offset + len(array)) : 2]
            values = low / 10.0**kind.scale
            if array.null_count:
                values[numpy_of(array.is_null())] = numpy.nan
            return values

        return _Numbers(spool, column, "<f8", decimals)
    raise Unsupported(f"column {column.name}: {kind} has no npz form; drop it, or write .parquet")
