"""What a table takes on disk, before it is written.

Parquet and Feather compress, so their size is an estimate: parts of the table are written to a file object that only counts bytes. A table
that is small enough is counted whole, and then the size is exact. Compressing takes longer than reading, so little is compressed.
"""

from __future__ import annotations

import io
from typing import Any, Callable, Dict, Iterator, List

from ._arrow import stream_of

_RUNS = 4  # at most this many parts of a larger table
_PIECES = 4  # of each part
_EXACT_BYTES = 4 << 20  # in memory; of more, not every column is written whole


class Sample:
    """A table that keeps parts of itself while it is read: runs of neighbouring batches, evenly spread over the table."""

    def __init__(self, table: Any, run_bytes: int) -> None:
        self._table, self._run_bytes = table, max(1, run_bytes)
        self._runs: "List[List[Any]]" = []
        self._stride, self.rows = 1, 0
        self.text_bytes: "Dict[str, int]" = {}  # of each column of text, in UTF-8; known when the table was read
        self.decimals: "Dict[str, int]" = {}  # the largest value of each column of decimals, as `largest` counts it
        self._schema: Any = None

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        import pyarrow

        reader = pyarrow.RecordBatchReader.from_stream(self._table)
        self._schema = reader.schema
        return stream_of(reader.schema, self._pass_on(reader))

    def empty(self) -> Any:
        """Returns a table of no rows with the same columns. Call it after the table was read."""
        import pyarrow

        return pyarrow.Table.from_batches([], self._schema)  # `empty_table` imports pandas

    def _pass_on(self, reader: Any) -> "Iterator[Any]":
        import pyarrow

        number, run, filled = 0, [], 0
        self._runs, self._stride, self.rows, self.text_bytes, self.decimals = [], 1, 0, {}, {}
        for batch in reader:
            self.rows += batch.num_rows
            for name, column in zip(batch.schema.names, batch.columns):
                self.text_bytes[name] = self.text_bytes.get(name, 0) + _text_bytes(column)
                if pyarrow.types.is_decimal(column.type):
                    self.decimals[name] = max(self.decimals.get(name, 0), largest(column))
            if number % self._stride == 0:
                run.append(batch)
            filled += batch.nbytes
            if filled >= self._run_bytes:
                self._keep(run)
                number, run, filled = number + 1, [], 0
            yield batch
        self._keep(run)

    def _keep(self, run: "List[Any]") -> None:
        if run:
            self._runs.append(run)
        if len(self._runs) > _RUNS:  # every second one, from here on and of those before
            self._runs, self._stride = self._runs[::2], self._stride * 2

    def bytes(self, write: "Callable[[Any, List[int], Any], None]", whole: "Callable[[Any], List[int]]") -> int:
        """Returns how many bytes `write(table, columns, file)` makes of the whole table; exact if all of it was kept and is small.

        `whole` returns the columns with dictionaries, whose size does not grow with the rows: two parts of them are written with all
        rows. Of the others, a few short pieces of each part are enough.
        """
        import pyarrow

        if not self._runs:
            return _written(self.empty(), list(range(len(self._schema))), write)
        parts = [pyarrow.Table.from_batches(run) for run in self._runs]
        kept = sum(part.nbytes for part in parts)
        if self._stride == 1 and kept <= _EXACT_BYTES:
            return _written(pyarrow.concat_tables(parts), list(range(parts[0].num_columns)), write)
        some = whole(parts[0])
        others = [number for number in range(parts[0].num_columns) if number not in set(some)]
        total = 0.0
        if some:
            few = parts[:: max(1, len(parts) // 2)][:2]
            total += sum(_written(part, some, write) for part in few) * self.rows / sum(part.num_rows for part in few)
        for part in parts if others else ():
            thin = _thin(part, min(1.0, _EXACT_BYTES / kept))
            frame = _written(part.slice(0, 1), others, write)  # headers and footer
            made = frame + (_written(thin, others, write) - frame) * part.num_rows / thin.num_rows
            total += made * self.rows / sum(one.num_rows for one in parts)
        return round(total)


def _thin(table: Any, share: float) -> Any:
    """Returns a share of the rows: a few pieces of neighbouring rows."""
    import pyarrow

    rows = max(1, int(table.num_rows / _PIECES * share))
    return pyarrow.concat_tables([table.slice(table.num_rows * number // _PIECES, rows) for number in range(_PIECES)])


def _written(table: Any, columns: "List[int]", write: "Callable[[Any, List[int], Any], None]") -> int:
    count = Count()
    write(table.select(columns), columns, count)
    return count.written


def largest(decimals: Any) -> int:
    """Returns the largest absolute value of an array of decimals, in units of their last digit."""
    import pyarrow.compute

    ends = pyarrow.compute.min_max(decimals).as_py()
    return max(abs(int(end.scaleb(decimals.type.scale))) for end in ends.values()) if ends["min"] is not None else 0


def _text_bytes(column: Any) -> int:
    """Returns the bytes of all texts of an array; 0 if it holds no text."""
    import pyarrow
    import pyarrow.compute

    texts = column.dictionary if pyarrow.types.is_dictionary(column.type) else column
    if str(texts.type) == "string_view":
        texts = texts.cast(pyarrow.large_string())
    elif not (pyarrow.types.is_string(texts.type) or pyarrow.types.is_large_string(texts.type)):
        return 0
    lengths = pyarrow.compute.binary_length(texts)
    if pyarrow.types.is_dictionary(column.type):
        lengths = lengths.take(column.indices)
    return pyarrow.compute.sum(lengths).as_py() or 0


class Count(io.RawIOBase):
    """A file that keeps nothing but its length."""

    def __init__(self) -> None:
        super().__init__()
        self.written = self._at = 0

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self.written)[whence]
        return self._at

    def write(self, data: Any) -> int:
        count = memoryview(data).nbytes
        self._at += count
        self.written = max(self.written, self._at)
        return count
