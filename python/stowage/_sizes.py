"""What a table takes on disk, before it is written.

Parquet and Feather compress, so their size is an estimate: parts of the table are written to a file object that only counts bytes. A table
that is small enough is counted whole, and then the size is exact. Compressing takes longer than reading, so little is compressed.
"""

from __future__ import annotations

import io
from typing import Any, Callable, Dict, Iterator, List, Tuple

from ._arrow import stream_of
from ._arrow_types import is_coded_text, arrow_of
from ._column_texts import Texts

_PIECES = 256  # at most this many of a larger table, at least half as many: a twentieth of the table is in six or more of them
_PIECE_ROWS = 64  # at least
_HEAD_ROWS = 20000  # the first rows decide which columns get a dictionary
_EXACT_BYTES = 4 << 20  # in memory; of more, not every column is written whole


class Sample:
    """A table that keeps pieces of itself while it is read: a few neighbouring rows each, evenly spread over all of it."""

    def __init__(self, table: Any, kept_bytes: int) -> None:
        self._table, self._kept_bytes = table, kept_bytes
        self._rows_known = 0
        #: Each has the same number of rows, because the size of what is not kept is found by the rows.
        self._pieces: "List[Tuple[int, Any]]" = []
        self._piece_rows = 0
        self._first: "List[Any]" = []  # all batches, of a small table
        self._is_small = True
        self._stride, self.rows = 1, 0
        self.decimals: "Dict[str, int]" = {}  # the largest value of each column of decimals, as `largest` counts it
        self._schema: Any = None

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        import pyarrow

        reader = pyarrow.RecordBatchReader.from_stream(self._table)
        self._schema = reader.schema
        return stream_of(reader.schema, self._pass_on(reader))

    def expect(self, rows: int) -> None:
        """Says how many rows the table has; 0: nobody knows. Then fewer pieces are copied that are not kept."""
        self._rows_known = rows

    def empty(self) -> Any:
        """Returns a table of no rows with the same columns. Call it after the table was read."""
        import pyarrow

        return pyarrow.Table.from_batches([], self._schema)  # `empty_table` imports pandas

    def _pass_on(self, reader: Any) -> "Iterator[Any]":
        import pyarrow

        read_bytes = held_bytes = first_rows = 0
        self._pieces, self._first, self._is_small = [], [], True
        self._piece_rows, self._stride = 0, 1
        self.rows, self.decimals = 0, {}
        for batch in reader:
            for name, column in zip(batch.schema.names, batch.columns):
                if pyarrow.types.is_decimal(column.type):
                    self.decimals[name] = max(self.decimals.get(name, 0), largest(column))
            read_bytes += batch.nbytes
            self._is_small = self._is_small and read_bytes <= _EXACT_BYTES
            if self._is_small or first_rows < _HEAD_ROWS:
                self._first.append(batch)
                first_rows += batch.num_rows
            held_bytes = self._cut(batch, held_bytes)
            self.rows += batch.num_rows
            yield batch

    def _cut(self, batch: Any, held_bytes: int) -> int:
        """Keeps the pieces of a batch that are due. Takes and returns the bytes of all pieces."""
        if self._piece_rows == 0 and batch.num_rows > 0:
            row_bytes = sum(_plain_bytes(column) for column in batch.columns) // batch.num_rows
            self._piece_rows = max(_PIECE_ROWS, self._kept_bytes // _PIECES // max(1, row_bytes))
            while -(-self._rows_known // self._piece_rows) > self._stride * _PIECES:
                self._stride *= 2
        at, end = self.rows, self.rows + batch.num_rows
        while at < end:
            number = at // self._piece_rows
            stop = min((number + 1) * self._piece_rows, end)
            if number % self._stride == 0:
                piece = _copy(batch.slice(at - self.rows, stop - at))
                self._pieces.append((number, piece))
                held_bytes += piece.nbytes
            at = stop
            while len(self._pieces) > _PIECES or len(self._pieces) > 1 and held_bytes > self._kept_bytes:
                self._stride *= 2  # every second one, from here on and of those before
                self._pieces = [one for one in self._pieces if one[0] % self._stride == 0]
                held_bytes = sum(piece.nbytes for _, piece in self._pieces)
        return held_bytes

    def bytes(self, write: "Callable[[Any, List[int], bool, Any], None]", whole: "Callable[[Any], List[int]]") -> int:
        """Returns how many bytes `write(table, columns, is_main, file)` makes of the whole table; exact if the table is small. One part of
        several is the main one, with what the file has once.

        `whole` returns the columns with dictionaries, of the first rows. A dictionary does not grow with the rows, so all pieces of these
        columns are written; of the others, some.
        """
        import pyarrow

        if self._is_small:
            table = pyarrow.Table.from_batches(self._first, self._schema)
            return _written(table, list(range(len(self._schema))), True, write)
        some = whole(pyarrow.Table.from_batches(self._first))
        others = [number for number in range(len(self._schema)) if number not in set(some)]
        kept = [piece for _, piece in self._pieces]
        thin = kept[:: max(1, round(sum(piece.nbytes for piece in kept) / _EXACT_BYTES))]
        total = 0.0
        for columns, pieces in ((some, kept), (others, thin)):
            if columns:
                part = pyarrow.Table.from_batches(pieces)
                is_main = total == 0
                frame = _written(part.slice(0, 1), columns, is_main, write)  # headers and footer
                total += frame + (_written(part, columns, is_main, write) - frame) * self.rows / part.num_rows
        return round(total)


def _copy(batch: Any) -> Any:
    """Returns the rows of a slice without the rest of its batch. Text that was read as codes becomes text: its dictionary has words of
    all rows, and may be larger than the rows."""
    import numpy
    import pyarrow

    made = batch.take(arrow_of(numpy.arange(batch.num_rows)))
    columns = [one.dictionary_decode() if is_coded_text(one.type) else one for one in made.columns]
    return pyarrow.RecordBatch.from_arrays(columns, names=made.schema.names)


def _plain_bytes(column: Any) -> int:
    """Returns the bytes of an array, with the text of its codes instead of the dictionary."""
    if not is_coded_text(column.type):
        return column.nbytes
    texts = Texts()
    texts.give_up()
    texts.add(column)
    return column.indices.nbytes + texts.bytes


def _written(table: Any, columns: "List[int]", is_main: bool, write: "Callable[[Any, List[int], bool, Any], None]") -> int:
    count = Count()
    write(table.select(columns), columns, is_main, count)
    return count.written


def largest(decimals: Any) -> int:
    """Returns the largest absolute value of an array of decimals, in units of their last digit."""
    import pyarrow.compute

    ends = pyarrow.compute.min_max(decimals).as_py()
    return max(abs(int(end.scaleb(decimals.type.scale))) for end in ends.values()) if ends["min"] is not None else 0


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
