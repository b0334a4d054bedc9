"""The texts of a column: how many bytes they have, which of them differ, and how an .npz stores them.

A table is read twice: the texts are counted while its types are chosen, and numbered while it is written. So the layout
(docs/formats.md, "Tables as npz") and its size are known before a byte is written.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ._arrow import stream_of
from ._arrow_types import arrow_of, filled, is_coded_text, is_text, numpy_of, without_views

_WORD_BYTES = 150  # of a distinct text beside its own bytes: the header of an object and an entry of a dict (CPython 3.11)
_LOOK_ROWS = 1 << 17  # after so many rows, a column whose texts mostly differ gets no dictionary


class Layout(NamedTuple):
    """How a column of text is stored."""

    codes: "Optional[str]"  #: the type of the codes of a dictionary; None: each text is written out
    width: "Optional[int]"  #: the bytes of each text, if all have as many; None: there are offsets

    def text_bytes(self, count: int, length: int) -> int:
        """Returns the bytes of so many texts of that length together, with their offsets."""
        return length if self.width is not None else length + offset_bytes(length) * (count + 1)


def offset_bytes(length: int) -> int:
    return 4 if length < 1 << 31 else 8


class Texts:
    """The texts of one column. A missing text counts as an empty one."""

    def __init__(self) -> None:
        self.rows = self.bytes = self.words_bytes = 0
        self._shortest, self._longest = 1 << 63, 0
        #: The number of each distinct text, in the order in which they first occur. None: too many differ.
        self.words: "Optional[Dict[bytes, int]]" = {}
        self._last: Any = None  # the words of the previous batch
        self._places: Any = None  # the number of each of them; -1: it did not occur

    def add(self, column: Any) -> None:
        """Counts the texts of an array."""
        self.rows += len(column)
        if self.words is not None or is_coded_text(column.type):
            words, at = _words(column)
            self._add_words(words, at)
        else:
            self._add_lengths(_lengths(_plain(column)), None)

    def codes(self, column: Any) -> Any:
        """Returns the number of each text of an array that was counted before."""
        words, at = _words(column)
        return self._number(words, at)[at]

    def give_up(self) -> None:
        self.words, self._last, self._places = None, None, None
        self.words_bytes = 0

    @property
    def held_bytes(self) -> int:
        return self.words_bytes + _WORD_BYTES * len(self.words or ())

    def layout(self) -> Layout:
        """Returns the smallest layout, as src/data/text_layout.c chooses it."""
        width = self._longest if 0 < self._shortest == self._longest else None
        plain = Layout(None, width)
        if self.words is None:
            return plain
        count = len(self.words)
        size, kind = (1, "uint8") if count <= 1 << 8 else (2, "uint16") if count <= 1 << 16 else (4, "uint32")
        coded_bytes = self.rows * size + plain.text_bytes(count, self.words_bytes)
        return Layout(kind, width) if coded_bytes < plain.text_bytes(self.rows, self.bytes) else plain

    def _add_words(self, words: Any, at: Any) -> None:
        import numpy

        counts = numpy.bincount(at, minlength=len(words))
        self._add_lengths(_lengths(words), counts)
        if self.words is None:
            return
        self._number(words, at, counts > 0)
        if self.rows >= _LOOK_ROWS and 2 * len(self.words) > self.rows:
            self.give_up()

    def _add_lengths(self, lengths: Any, counts: Any) -> None:
        self.bytes += int(lengths.sum() if counts is None else counts @ lengths)
        lengths = lengths if counts is None else lengths[counts > 0]
        if len(lengths) > 0:
            self._shortest, self._longest = min(self._shortest, int(lengths.min())), max(self._longest, int(lengths.max()))

    def _number(self, words: Any, at: Any, used: Any = None) -> Any:
        """Returns the number of each word. `used`: which occur in `at`; None: those that do were numbered before, in another pass."""
        import numpy

        if self._last is None or not words.equals(self._last):
            self._last, self._places = words, numpy.full(len(words), -1, "int64")
        if used is None:
            used = numpy.bincount(at, minlength=len(words)) > 0
        new = used & (self._places < 0)
        if new.any():
            first = numpy.empty(len(words), "int64")
            first[at[::-1]] = numpy.arange(len(at) - 1, -1, -1)  # the last assignment to a place counts
            found = numpy.flatnonzero(new)
            self._name(words, found[numpy.argsort(first[found])])
        return self._places

    def _name(self, words: Any, found: Any) -> None:
        assert self.words is not None
        numbers = []
        for word in words.take(arrow_of(found)).to_pylist():
            before = len(self.words)
            numbers.append(self.words.setdefault(word, before))
            if len(self.words) > before:
                self.words_bytes += len(word)
        self._places[found] = numbers


class TextColumns:
    """The texts of all columns of text of a table, by name."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._of: "Dict[str, Texts]" = {}

    def begin(self, schema: Any) -> None:
        """Notes which columns are text, before the first batch."""
        for field in schema:
            if is_text(field.type) or is_coded_text(field.type):
                self[field.name]

    def __contains__(self, name: str) -> bool:
        return name in self._of

    def __getitem__(self, name: str) -> Texts:
        return self._of.setdefault(name, Texts())

    def add(self, batch: Any) -> None:
        """Counts the texts of a batch. Of columns whose distinct texts do not fit together, the one with most gives up."""
        for name, column in zip(batch.schema.names, batch.columns):
            if name in self:
                self[name].add(column)
        while sum(one.held_bytes for one in self._of.values()) > self._most_bytes:
            max(self._of.values(), key=lambda one: one.held_bytes).give_up()


class Counted:
    """A table whose texts are counted while it is read."""

    def __init__(self, table: Any, texts: TextColumns) -> None:
        self._table, self._texts = table, texts

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        import pyarrow

        reader = pyarrow.RecordBatchReader.from_stream(self._table)
        self._texts.begin(reader.schema)
        return stream_of(reader.schema, self._pass_on(reader))

    def _pass_on(self, reader: Any) -> Any:
        for batch in reader:
            self._texts.add(batch)
            yield batch


# ---- arrays ----


def _plain(column: Any) -> Any:
    """Returns an array of text as large_binary, with an empty text for a missing one."""
    import pyarrow

    if is_coded_text(column.type):
        column = column.dictionary_decode()
    made = column.cast(without_views(column.type)).cast(pyarrow.large_binary())
    return made if made.null_count == 0 else made.fill_null(_empty()[0])


def _empty() -> Any:
    """Returns one empty text as large_binary."""
    import numpy
    import pyarrow

    return pyarrow.Array.from_buffers(pyarrow.large_binary(), 1, [None, pyarrow.py_buffer(numpy.zeros(2, "int64")), pyarrow.py_buffer(b"")])


def plain_parts(column: Any) -> "Tuple[Any, Any]":
    """Returns the end of each text of an array after its start, and the bytes of all."""
    import numpy

    text = _plain(column)
    ends = _ends(text)
    data = text.buffers()[2]
    held = numpy.frombuffer(data, "uint8")[ends[0] : ends[-1]] if data is not None else numpy.empty(0, "uint8")
    return ends[1:] - ends[0], held


def _ends(text: Any) -> Any:
    import numpy

    return numpy.frombuffer(text.buffers()[1], "int64", len(text) + 1, text.offset * 8) if len(text) > 0 else numpy.zeros(1, "int64")


def _lengths(text: Any) -> Any:
    import numpy

    return numpy.diff(_ends(text))


def _words(column: Any) -> "Tuple[Any, Any]":
    """Returns distinct texts as large_binary, and where each text of an array is among them."""
    import pyarrow

    coded = column if is_coded_text(column.type) else column.cast(without_views(column.type)).dictionary_encode()
    words, indices = _plain(coded.dictionary), coded.indices.cast(pyarrow.int64())
    if indices.null_count > 0:
        indices = filled(indices, len(words))
        words = pyarrow.concat_arrays([words, _empty()])
    return words, numpy_of(indices)


def word_parts(words: "Dict[bytes, int]") -> "Tuple[List[int], bytes]":
    """Returns the end of each word, after a 0, and the bytes of all."""
    ends = [0]
    for word in words:
        ends.append(ends[-1] + len(word))
    return ends, b"".join(words)
