"""Columns of text in an npz that `stowage shrink` wrote: docs/formats.md, "Tables as npz"."""

from __future__ import annotations

import io
import os
from typing import Any, Callable, Iterator, List, Optional, Tuple

from ._library import NotFound, StowageError, Unreadable, shown

_CHUNK_ROWS = 4096
_GAP_BYTES = 64 << 10  # texts closer together than this are read in one go

Opener = Callable[[str], Any]


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


class TextColumn:
    """The texts of one column; reads rows on demand."""

    def __init__(self, path: str, opener: Opener) -> None:
        self.name = path
        self._codes = _try(opener, path + ".codes")
        base = path if self._codes is None else path + ".words"
        self._bytes = opener(base + ".bytes")
        self._offsets = _try(opener, base + ".offsets") if self._bytes.ndim == 1 else None
        self._words: Optional[List[str]] = None
        self.rows = len(self._codes) if self._codes is not None else self._count()

    @property
    def layout(self) -> str:
        return "dictionary" if self._codes is not None else "fixed" if self._offsets is None else "offsets"

    def _count(self) -> int:
        return len(self._bytes) if self._offsets is None else len(self._offsets) - 1

    def close(self) -> None:
        for part in (self._codes, self._bytes, self._offsets):
            if part is not None:
                part.close()

    # ---- reading ----

    def words(self) -> "List[str]":
        """Returns the text of each code of a dictionary. Read once."""
        if self._words is None:
            self._words = self._written_out(0, self._count())
        return self._words

    def codes(self) -> "Optional[Tuple[Any, List[str]]]":
        """Returns the code of each row and the word of each code; None without a dictionary."""
        return (self._codes[:], self.words()) if self._codes is not None else None

    def _written_out(self, first: int, stop: int) -> "List[str]":
        """Returns texts `first` to `stop` of a column without a dictionary."""
        if first >= stop:
            return []
        if self._offsets is None:
            return [_decode(row.tobytes()) for row in self._bytes[first:stop]]
        ends = self._offsets[first : stop + 1].tolist()
        data = self._bytes[ends[0] : ends[-1]].tobytes()
        return [_decode(data[a - ends[0] : b - ends[0]]) for a, b in zip(ends, ends[1:])]

    def read(self, first: int, stop: int) -> "List[str]":
        if self._codes is None:
            return self._written_out(first, stop)
        words = self.words()
        return [words[code] for code in self._codes[first:stop].tolist()]

    def read_spans(self, spans: Any) -> "List[str]":
        """Returns the texts at these byte ranges, in any order. Reads neighbours together."""
        order = spans[:, 0].argsort(kind="stable").tolist()
        pairs = spans.tolist()
        texts = [""] * len(pairs)
        at = 0
        while at < len(order):
            start, stop = pairs[order[at]]
            end = at + 1
            while end < len(order) and pairs[order[end]][0] - stop <= _GAP_BYTES:
                stop = max(stop, pairs[order[end]][1])
                end += 1
            data = self._bytes[start:stop].tobytes()
            for row in order[at:end]:
                a, b = pairs[row]
                texts[row] = _decode(data[a - start : b - start])
            at = end
        return texts

    # ---- in batches ----

    def origin(self) -> "Tuple[Any, Optional[str], Optional[List[int]]]":
        """Returns what the C library reads per row (file, raw type, raw shape): a code, the bytes, or their range."""
        if self._codes is not None:
            return self.name + ".codes", None, None
        if self._offsets is None:
            return self.name + ".bytes", None, None
        return _Spans(self._offsets, self.name), "int64", [self.rows, 2]

    def take(self, rows: Any) -> Any:
        """Returns the texts of a batch of rows from `origin`."""
        if self._codes is not None:
            words = self.words()
            return as_objects([words[code] for code in rows.tolist()])
        if self._offsets is None:
            return as_objects([_decode(row.tobytes()) for row in rows])
        return as_objects(self.read_spans(rows))


class Bytes(io.RawIOBase):
    """A file of `size` bytes that are made or fetched when they are read."""

    def __init__(self, size: int) -> None:
        self._size, self._at = size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at


class _Spans(Bytes):
    """The offsets as a file of int64 pairs, start and stop of each text: rows that the C library can batch and shuffle."""

    def __init__(self, offsets: Any, name: str) -> None:
        super().__init__(16 * (len(offsets) - 1))
        self._offsets, self.name = offsets, name + ".offsets"

    def read(self, size: int = -1) -> bytes:
        import numpy

        stop = self._size if size < 0 else min(self._size, self._at + size)
        if stop <= self._at:
            return b""
        first, last = self._at // 16, (stop + 15) // 16
        ends = self._offsets[first : last + 1].astype(numpy.int64)
        pairs = numpy.stack([ends[:-1], ends[1:]], axis=1).tobytes()
        data = pairs[self._at - 16 * first : stop - 16 * first]
        self._at = stop
        return data


def as_objects(texts: "List[str]") -> Any:
    import numpy

    made = numpy.empty(len(texts), dtype=object)
    made[:] = texts
    return made


def _try(opener: Opener, path: str) -> Any:
    try:
        return opener(path)
    except StowageError:
        return None


def find_text(path: Any, opener: Opener) -> "Optional[TextColumn]":
    """Returns the text column `file.npz:name` if no member has that name; None if there is no such column."""
    if not isinstance(path, (str, os.PathLike)):
        return None
    name = os.fspath(path)
    if isinstance(name, bytes) or ".npz:" not in name:
        return None
    if set(name) & set("*?[\n") and not os.path.exists(name.rpartition(":")[0]):
        return None  # several files: each has its own dictionary
    try:
        return TextColumn(name, opener)
    except StowageError:
        return None


def _is_fixed_text(archive: Any, member: str) -> bool:
    """Returns whether an array holds texts of one width: uint8, rows x width. A column of numbers may be called `rx.bytes` too."""
    import zipfile
    import zlib

    from numpy.lib import format as npy

    try:
        with archive.open(member + ".npy") as file:
            read = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = read(file)
        return bool(len(shape) == 2 and dtype == "uint8")
    except (ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error):  # RuntimeError: an encrypted member
        return False


def column_names(path: Any) -> "List[str]":
    """Returns the columns of the npz at `path`, or in an open file; none if it is not one, or is sparse."""
    import zipfile

    is_file = hasattr(path, "seek") or isinstance(path, (str, os.PathLike)) and os.path.isfile(path)
    if not is_file or not zipfile.is_zipfile(path):
        return []
    found: "List[str]" = []
    try:
        with zipfile.ZipFile(path) as archive:
            members = dict.fromkeys(name[:-4] for name in archive.namelist() if name.endswith(".npy"))
            fixed = {name for name in members if name.endswith(".bytes") and _is_fixed_text(archive, name)}
    except (zipfile.BadZipFile, OSError, ValueError):
        return []  # the library's reader says what is wrong with it
    for name in members:
        base, _, part = name.rpartition(".")
        if part == "codes" and f"{base}.words.bytes" in members:
            found.append(base)
        elif part == "bytes" and not base.endswith(".words") and (name in fixed or f"{base}.offsets" in members):
            found.append(base)
        elif part == "offsets" and f"{base}.bytes" in members or part == "bytes" and f"{base[:-6]}.codes" in members:
            continue  # belongs to a column of text
        else:
            found.append(name)
    return [] if {"indptr", "indices", "format"} <= set(found) else found


class Members:
    """The arrays of an npz, read whole. The directory is read once, so that thousands of members take no longer than their values."""

    def __init__(self, path: str, file: Any = None) -> None:
        import numpy

        self._path, self._file = path, numpy.load(path if file is None else file, allow_pickle=False)
        self._names = set(self._file.files)

    def __enter__(self) -> "Members":
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()

    def has(self, path: str) -> bool:
        """Returns whether `file.npz:member` is there."""
        return path[len(self._path) + 1 :] in self._names

    def read(self, path: str) -> Any:
        """Returns the array `file.npz:member`."""
        import zipfile
        import zlib

        if not self.has(path):
            raise NotFound(f"{shown(path)}: no such member")
        try:
            values = self._file[path[len(self._path) + 1 :]]
        except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as reason:
            raise Unreadable(f"{shown(path)}: {reason}; copy or write the file again") from None
        return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def as_series(values: Any) -> Any:
    """Returns the values as a pandas Series; times that its datetime64 does not hold are Python objects."""
    import pandas

    try:
        return pandas.Series(values)
    except pandas.errors.OutOfBoundsDatetime:
        return pandas.Series(values.astype(object))


class LazyText:
    """A text column on disk. Indexing returns a str or a NumPy array of str (dtype object)."""

    def __init__(self, column: TextColumn, again: "Tuple[Any, ...]") -> None:  # again: as __reduce__ returns it
        import numpy

        self._column, self._again = column, again
        self.shape = (column.rows,)
        self.ndim, self.size = 1, column.rows
        self.dtype = numpy.dtype(object)

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"<stowage.open({self._column.name!r}): {self.size} texts, {self._column.layout}>"

    def __getitem__(self, index: Any) -> Any:
        import numpy

        if isinstance(index, tuple) and len(index) == 1:
            index = index[0]
        if index is Ellipsis:
            index = slice(None)
        if isinstance(index, slice):
            rows = range(self.size)[index]
            if len(rows) == 0:
                return as_objects([])
            low, high = min(rows[0], rows[-1]), max(rows[0], rows[-1]) + 1
            if abs(rows.step) == 1 or high - low <= _CHUNK_ROWS:
                return as_objects(self._column.read(low, high))[:: rows.step]
            return self._pick(numpy.arange(rows.start, rows.stop, rows.step))
        if hasattr(index, "__index__") and numpy.ndim(index) == 0 and not isinstance(index, (bool, numpy.bool_)):
            row = range(self.size)[index]
            return self._column.read(row, row + 1)[0]
        numbers = numpy.asarray(index)
        if numbers.dtype == bool:
            if numbers.shape != self.shape:
                raise IndexError(f"mask: its shape {numbers.shape} must be ({self.size},)")
            numbers = numpy.flatnonzero(numbers)
        if numbers.size and (numbers.min() < -self.size or numbers.max() >= self.size):
            raise IndexError(f"row {numbers.max()} is out of range: there are {self.size} texts")
        return self._pick(numpy.where(numbers < 0, numbers + self.size, numbers).astype(numpy.intp))

    def _pick(self, numbers: Any) -> Any:
        """Returns rows by number, in any order and shape; reads neighbours together."""
        import numpy

        wanted, places = numpy.unique(numbers, return_inverse=True)
        texts: "List[str]" = []
        ends = [*(numpy.flatnonzero(numpy.diff(wanted) != 1) + 1).tolist(), len(wanted)] if len(wanted) else []
        begin = 0
        for end in ends:
            texts += self._column.read(int(wanted[begin]), int(wanted[end - 1]) + 1)
            begin = end
        return as_objects(texts)[places.reshape(numpy.shape(numbers))]

    def __iter__(self) -> "Iterator[str]":
        for first in range(0, self.size, _CHUNK_ROWS):
            yield from self._column.read(first, min(self.size, first + _CHUNK_ROWS))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        whole = self[:]
        return whole if dtype is None else whole.astype(dtype)

    def __reduce__(self) -> Any:
        return self._again

    def to_pandas(self) -> Any:
        """Returns the texts as a pandas Series: a Categorical if they are stored as a dictionary. Empty text is missing."""
        import numpy
        import pandas

        parts = self._column.codes()
        if parts is None:
            return pandas.Series([text or None for text in self], dtype=object)
        codes, words = parts
        places = numpy.cumsum([word != "" for word in words]) - 1  # without the empty word
        places[[at for at, word in enumerate(words) if word == ""]] = -1
        return pandas.Series(pandas.Categorical.from_codes(places[codes], [word for word in words if word]))

    def close(self) -> None:
        self._column.close()

    def __enter__(self) -> "LazyText":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
