"""Records of any length for `stowage.batches`: files of a folder, samples of tar shards, lines of text; and sequences of tokens.

An index (where each record lies) is made once and kept in an unnamed file, so that memory does not grow with the number of records.
The C library shuffles, shards and resumes the rows of the index; the records of a batch are read here.
"""

from __future__ import annotations

import contextlib
import glob
import os
import tempfile
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from ._array import origin_of, type_name
from ._library import Invalid, NotFound, Unreadable, Unsupported, format_size, need, shown
from ._remote_records import Fill, RemoteFile, StoreFolder, is_remote, name_of
from ._store import expand, without_scheme

_KINDS = ("files", "tar", "lines", "tokens")
_CHUNK_BYTES = 4 << 20
_GAP_BYTES = 64 << 10  # records closer together than this are read in one go
_INDEX_ROWS = 1 << 16
_BLOCK = 512  # of a tar
_META_BYTES = 1 << 20  # of a long name or a pax header
_COLUMNS = 3  # of the index: file (or where its name is), start (or the length of the name), bytes


def records(
    paths: "str | os.PathLike[str] | Iterable[Any]",
    kind: Optional[str] = None,
    *,
    pattern: Optional[str] = None,
    length: Optional[int] = None,
    dtype: Any = "uint16",
    headers: "Optional[Dict[str, str]]" = None,
    cache: "str | int | None" = None,
) -> Any:
    """Opens records of any length, to be read by `stowage.batches`.

    `paths` is a path, a glob or a list of these, read one after another in sorted order (a list keeps its order). `kind` is

    - "files": one record per file of a folder and its subfolders, as bytes with a `name` (relative to the folder). `pattern` selects
      names ("*.jpg"). Names that begin with a dot are left out. The default for folders.
    - "tar": one record per sample of tar shards in the layout of WebDataset: the members `key.ext` with the same key, next to each
      other, as {"__key__": key, "ext": bytes}. The default for .tar.
    - "lines": one record per line of text, as bytes without the line end. The default for .txt.
    - "tokens": arrays of `length` tokens of type `dtype`, from flat binary files. What is left at the end of a file is not read.

    A path may be an address: https://… (`headers` are sent with every request, `cache="10G"` caches the data on disk), or that of an
    object store (s3://…, with fsspec), where folders and globs work too.
    """
    found = _expand(paths)
    if kind is None:
        kinds = {_kind_of(path) for path in found}
        if len(kinds) != 1 or None in kinds:
            raise Invalid(f"records of {os.fspath(found[0])}: say what they are: kind={' or '.join(map(repr, _KINDS))}")
        kind = kinds.pop()
    if kind not in _KINDS:
        raise Invalid(f"records of kind {kind!r}: must be {', '.join(_KINDS)}")
    if (length is not None) != (kind == "tokens"):
        raise Invalid("length= is the number of tokens in a sequence: give it with kind='tokens', and only then")
    if pattern is not None and kind != "files":
        raise Invalid("pattern= selects the files of a folder: give it with kind='files'")
    again = (paths if isinstance(paths, (str, os.PathLike)) else list(paths), kind, pattern, length, dtype, headers, cache)
    hosts = {origin_of(path) for path in found} - {None}
    if headers and len(hosts) > 1:
        raise Invalid(f"headers go to one host, and these URLs are on {len(hosts)}; open them one by one")
    how = (headers, cache)
    if kind == "tokens":
        return Tokens(found, length, dtype, how, again)
    return Records(found, str(kind), pattern, how, again)


def _again(paths: Any, kind: str, pattern: Optional[str], length: Optional[int], dtype: Any, headers: Any, cache: Any) -> Any:
    return records(paths, kind, pattern=pattern, length=length, dtype=dtype, headers=headers, cache=cache)


def find_records(path: Any, headers: "Optional[Dict[str, str]]" = None, cache: "str | int | None" = None) -> "Optional[Records]":
    """Returns the records at a path, a pattern or a list of these that can be nothing else: folders, .tar or .txt files; None for
    anything else."""
    for each in path if isinstance(path, (list, tuple)) and path else [path]:
        if not isinstance(each, (str, os.PathLike)) or _kind_of(each) is None:
            return None
        name = os.fsdecode(os.fspath(each))
        if not os.path.exists(name) and not is_remote(name) and not glob.glob(name):
            return None
    found = records(path, headers=headers, cache=cache)
    return found if isinstance(found, Records) else None


def _kind_of(path: Any) -> Optional[str]:
    name = os.fsdecode(os.fspath(path))
    if os.path.isdir(name):
        return "files"
    if is_remote(name):
        name = name_of(name)
        if name.endswith("/"):
            return "files"
    return {".tar": "tar", ".txt": "lines"}.get(os.path.splitext(name)[1].lower())


def _expand(paths: Any) -> "List[str]":
    if isinstance(paths, (str, bytes, os.PathLike)):
        paths = [paths]
    found: "List[str]" = []
    for each in paths:
        if not isinstance(each, (str, bytes, os.PathLike)):
            raise TypeError(f"{each!r}: records are read from paths")
        name = without_scheme(os.fsdecode(os.fspath(each)))
        if os.path.exists(name):
            found.append(name)
            continue
        if is_remote(name):
            found += expand(name)
            continue
        matches = sorted(glob.glob(name))
        if not matches:
            raise NotFound(f"{name}: no such file or folder")
        found += matches
    if not found:
        raise Invalid("records of an empty list of paths")
    return found


class Record(bytes):
    """The bytes of a file, with its `name` relative to the folder."""

    name: str = ""


class _File:
    """One file of records as it was when it was indexed."""

    def __init__(self, path: str) -> None:
        self.path = path
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._facts = self._look(fd)
        finally:
            os.close(fd)
        self.bytes = self._facts[0]

    @staticmethod
    def _look(fd: int) -> "Tuple[int, int, int]":
        found = os.fstat(fd)
        return found.st_size, found.st_mtime_ns, found.st_ino

    @contextlib.contextmanager
    def opened(self) -> "Iterator[Fill]":
        """Yields a function that fills memory from an offset on."""
        fd = self._open()
        try:
            yield lambda to, offset: self._fill(fd, to, offset)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def near(self) -> "Iterator[Callable[[int, int], bytes]]":
        """Yields a function that reads a part: offset and bytes."""
        fd = self._open()
        try:
            yield lambda offset, count: os.pread(fd, count, offset)
        finally:
            os.close(fd)

    def _fill(self, fd: int, to: memoryview, offset: int) -> None:
        done = 0
        while done < len(to):
            got = os.preadv(fd, [to[done:]], offset + done)
            if got == 0:
                raise Unreadable(f"{self.path}: ends at byte {offset + done}; it had {self.bytes} bytes when it was opened")
            done += got

    def _open(self) -> int:
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        if self._look(fd) != self._facts:
            os.close(fd)
            raise Unreadable(f"{self.path}: was replaced or modified since its records were indexed; open it again")
        return fd

    def read(self, start: int, stop: int) -> bytearray:
        data = bytearray(stop - start)
        with self.opened() as fill:
            fill(memoryview(data), start)
        return data


def _file(path: str, how: "Tuple[Any, Any]") -> "_File | RemoteFile":
    return RemoteFile(path, *how) if is_remote(path) and not os.path.exists(path) else _File(path)


class _Index:
    """Rows of three numbers in an unnamed file."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="stowage-index-")
        self._rows: "List[Tuple[int, int, int]]" = []
        self.count = 0

    def add(self, a: int, b: int, c: int) -> None:
        self._rows.append((a, b, c))
        if len(self._rows) >= _INDEX_ROWS:
            self.flush()

    def add_many(self, rows: Any) -> None:
        self.flush()
        self._file.write(rows.tobytes())
        self.count += len(rows)

    def flush(self) -> None:
        import numpy

        if self._rows:
            self._file.write(numpy.array(self._rows, dtype=numpy.int64).tobytes())
            self.count += len(self._rows)
            self._rows = []
        self._file.flush()

    @property
    def path(self) -> str:
        return f"/proc/self/fd/{self._file.fileno()}"


class Records:
    """Records that `stowage.batches` reads. `len()` is their number."""

    def __init__(
        self, paths: "List[str]", kind: str, pattern: Optional[str], how: "Tuple[Any, Any]", again: "Tuple[Any, ...]"
    ) -> None:
        need("numpy", "reading records")
        self.kind, self.name, self._reduced = kind, shown(paths[0]), again
        self._index = _Index()
        self._files: "List[_File | RemoteFile]" = []
        self._stores: "Dict[bytes, StoreFolder]" = {}
        self._folder = ""
        if kind == "files":
            self._names = tempfile.TemporaryFile(prefix="stowage-names-")
            self._index_folders(paths, pattern)
        else:
            for path in paths:
                self._files.append(_file(path, how))
                (_index_tar if kind == "tar" else _index_lines)(self._index, len(self._files) - 1, self._files[-1])
        self._index.flush()
        if self._index.count == 0:
            raise Invalid(f"{self.name}: no records of kind {kind!r} in it" + (f" that match {pattern!r}" if pattern else ""))

    def __len__(self) -> int:
        return self._index.count

    def __repr__(self) -> str:
        return f"<stowage.records of {self.name}: {len(self)} {self.kind}>"

    def __reduce__(self) -> Any:
        return _again, self._reduced

    def _index_folders(self, paths: "List[str]", pattern: Optional[str]) -> None:
        import fnmatch

        at = 0
        for root in paths:
            if is_remote(root) and not os.path.isdir(root):
                store = self._stores[os.fsencode(root)] = StoreFolder(root)
                for path, size in store.files():
                    hidden = any(part.startswith(".") for part in path.split("/"))
                    if hidden or (pattern and not fnmatch.fnmatch(path.rpartition("/")[2], pattern)):
                        continue
                    at = self._add_name(at, root, path, size)
                continue
            if not os.path.isdir(root):
                raise Invalid(f"{root}: records of kind 'files' are read from folders")
            for folder, below, names in os.walk(root):
                below[:] = sorted(name for name in below if not name.startswith("."))
                for name in sorted(names):
                    path = os.path.join(folder, name)
                    if name.startswith(".") or (pattern and not fnmatch.fnmatch(name, pattern)) or not os.path.isfile(path):
                        continue
                    at = self._add_name(at, root, os.path.relpath(path, root), os.stat(path).st_size)
        self._names.flush()

    def _add_name(self, at: int, root: str, name: str, size: int) -> int:
        """Adds a file. Keeps both parts of its path: the record's name is relative to its folder."""
        text = os.fsencode(root) + b"\0" + os.fsencode(name)
        self._names.write(text)
        self._index.add(at, len(text), size)
        return at + len(text)

    # ---- what batches call ----

    def origin(self) -> "Tuple[str, str, List[int]]":
        """Returns the index, as the C library reads it: path, type and shape."""
        return self._index.path, "int64", [len(self), _COLUMNS]

    @staticmethod
    def bytes_of(rows: Any) -> int:
        """Returns the bytes of a batch of rows of the index."""
        return int(rows[:, 2].sum())

    def read(self, rows: Any) -> "List[Any]":
        """Returns the records of a batch of rows of the index."""
        if self.kind == "files":
            return [self._read_file(*row) for row in rows.tolist()]
        return self._read_spans(rows, _sample if self.kind == "tar" else _line)

    def _read_file(self, at: int, length: int, size: int) -> Record:
        root, _, name = os.pread(self._names.fileno(), length, at).partition(b"\0")
        path = os.path.join(root, name)
        if root in self._stores:
            data = self._stores[root].read(os.fsdecode(name))
        else:
            with open(path, "rb", buffering=0) as file:
                data = file.read(size + 1) if size else file.read(1)
        if len(data) != size:
            raise Unreadable(f"{shown(os.fsdecode(path))}: had {size} bytes when it was indexed, and now has others; open it again")
        record = Record(data)
        record.name = os.fsdecode(name)
        return record

    def _read_spans(self, rows: Any, take: "Callable[[_File | RemoteFile, int, memoryview], Any]") -> "List[Any]":
        """Returns the records at these places, in any order. Reads neighbours together."""
        import numpy

        order = numpy.lexsort((rows[:, 1], rows[:, 0])).tolist()
        places = rows.tolist()
        made: "List[Any]" = [None] * len(places)
        at = 0
        while at < len(order):
            number, start, size = places[order[at]]
            stop, end = start + size, at + 1
            while end < len(order):
                other, first, more = places[order[end]]
                if other != number or first - stop > _GAP_BYTES or first + more - start > _CHUNK_BYTES:
                    break
                stop = max(stop, first + more)
                end += 1
            file = self._files[number]
            data = memoryview(file.read(start, stop))
            for row in order[at:end]:
                _, first, size = places[row]
                made[row] = take(file, first, data[first - start : first - start + size])
            at = end
        return made


# ---- lines ----


def _line(_file: "_File | RemoteFile", _start: int, data: memoryview) -> Any:
    return bytes(data)


def _index_lines(index: _Index, number: int, file: "_File | RemoteFile") -> None:
    import numpy

    with file.opened() as fill:
        begin = at = 0  # of the line; of the chunk
        last = -1  # the byte before the chunk
        while at < file.bytes:
            data = bytearray(min(_CHUNK_BYTES, file.bytes - at))
            fill(memoryview(data), at)
            if at == 0 and data[:2] == b"\x1f\x8b":
                raise Unsupported(f"{file.path}: compressed; lines are read at random: decompress it first")
            values = numpy.frombuffer(data, dtype=numpy.uint8)
            ends = numpy.flatnonzero(values == 10)
            if len(ends):
                before = numpy.where(ends > 0, values[ends - 1], last)
                rows = numpy.empty((len(ends), _COLUMNS), dtype=numpy.int64)
                rows[:, 0] = number
                rows[0, 1] = begin
                rows[1:, 1] = ends[:-1] + 1 + at
                rows[:, 2] = ends + at - rows[:, 1]
                rows[:, 2] -= (before == 13) & (rows[:, 2] > 0)  # the other half of \r\n
                index.add_many(rows)
                begin = int(ends[-1]) + 1 + at
            last = data[-1]
            at += len(data)
        if begin < file.bytes:
            index.add(number, begin, file.bytes - begin)
            index.flush()


# ---- tar ----


class _Member:
    """One regular file of a tar."""

    def __init__(self, name: str, head: int, start: int, size: int, end: int) -> None:
        self.head, self.start, self.bytes, self.end = head, start, size, end
        folder, slash, base = name.rpartition("/")
        stem, _, self.ext = base.partition(".")
        self.key = folder + slash + stem
        self.ext = self.ext.lower()
        #: Members without an extension, and hidden ones, are no part of a sample.
        self.sampled = bool(stem and self.ext)


def _number(field: bytes) -> int:
    """Returns a number of a tar header; -1 if it is not one."""
    if field[0] & 0x80:  # binary, for 8 GiB and more
        return int.from_bytes(field, "big", signed=False) - (0x80 << 8 * (len(field) - 1)) if field[0] == 0x80 else -1
    text = field.split(b"\0", 1)[0].strip(b" ")
    try:
        return int(text, 8) if text else 0
    except ValueError:
        return -1


def _pax(path: str, at: int, data: bytes) -> "Dict[bytes, bytes]":
    """Returns the records "LENGTH KEY=VALUE\\n" of an extended header."""
    found: "Dict[bytes, bytes]" = {}
    while data.strip(b"\0"):
        digits, space, _ = data.partition(b" ")
        length = int(digits) if space and digits.isdigit() and len(digits) < 8 else 0
        line = data[len(digits) + 1 : length]
        key, equals, value = line[:-1].partition(b"=")
        if not 0 < length <= len(data) or not line.endswith(b"\n") or not equals:
            raise Unreadable(f"{path}: the extended tar header at byte {at} is damaged")
        found[key] = value
        data = data[length:]
    return found


def _check_name(path: str, at: int, raw: bytes) -> str:
    name = raw.decode("utf-8", "surrogateescape")
    while name.startswith("./"):
        name = name[2:]
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise Unreadable(f"{path}: the member at byte {at} is named {name[:100]!r}, which points outside of the archive: not a shard")
    return name


def _members(
    path: str, size: int, read: "Callable[[int, int], bytes]", shift: int = 0, whole: bool = True
) -> "Iterator[_Member]":
    """Yields the regular files in `size` bytes of a tar, which begin at `shift` of the file and are all of it if `whole`. Every size
    is checked against what is there before anything is read or allocated."""
    at, head, long_name = 0, -1, b""
    extended: "Dict[bytes, bytes]" = {}
    while at < size:
        block = read(at, min(_BLOCK, size - at))
        if len(block) == _BLOCK and not block.strip(b"\0"):
            return
        where = at + shift
        if len(block) < _BLOCK:
            raise Unreadable(f"{path}: ends at byte {size + shift}, within a tar header: it was cut")
        if _number(block[148:156]) != sum(block) - sum(block[148:156]) + 8 * 32:
            raise Unreadable(f"{path}: no tar header at byte {where} (its checksum is wrong): not a tar file, or damaged")
        count, kind = _number(block[124:136]), block[156:157]
        meta = kind in (b"L", b"K", b"x", b"g")
        if b"size" in extended and not meta:
            count = int(extended[b"size"]) if extended[b"size"].isdigit() and len(extended[b"size"]) < 20 else -1
        start = at + _BLOCK
        end = start + (count + _BLOCK - 1) // _BLOCK * _BLOCK
        if count < 0 or start + count > size:
            stated = f"{count} bytes" if count >= 0 else "a size that is no number"
            raise Unreadable(f"{path}: the member at byte {where} has {stated}, but only {size - start} are left: it was cut, or is damaged")
        if head < 0:
            head = at
        if meta:
            if count > _META_BYTES:
                raise Unreadable(f"{path}: a header of {format_size(count)} at byte {where}, at most {format_size(_META_BYTES)} is read")
            data = read(start, count)
            if kind == b"L":
                long_name = data.rstrip(b"\0")
            elif kind == b"x":
                extended = _pax(path, where, data)
        else:
            if kind == b"S" or any(key.startswith(b"GNU.sparse") for key in extended):
                raise Unsupported(f"{path}: the member at byte {where} is sparse, which is not read; pack the shard without --sparse")
            name, prefix = block[:100].split(b"\0", 1)[0], block[345:500].split(b"\0", 1)[0]
            if block[257:263] == b"ustar\0" and prefix:
                name = prefix + b"/" + name
            text = _check_name(path, where, extended.get(b"path") or long_name or name)
            if kind in (b"0", b"\0", b"7"):
                yield _Member(text, head, start, count, min(end, size))
            head, long_name, extended = -1, b"", {}
        at = end
    if whole:
        raise Unreadable(f"{path}: ends at byte {size} without the mark of its end: it was cut")


def _sample(file: "_File | RemoteFile", start: int, data: memoryview) -> Any:
    """Returns the members of one sample, from its part of the file."""
    sample: "Dict[str, Any]" = {}
    for member in _members(file.path, len(data), lambda offset, count: bytes(data[offset : offset + count]), start, False):
        if member.sampled:
            sample["__key__"] = member.key
            sample[member.ext] = bytes(data[member.start : member.start + member.bytes])
    return sample


def _index_tar(index: _Index, number: int, file: "_File | RemoteFile") -> None:
    with file.near() as read:
        if read(0, 2) == b"\x1f\x8b":
            raise Unsupported(f"{file.path}: a compressed tar; samples are read at random: decompress it first")
        key, begin, end = "", 0, 0
        seen: "set[str]" = set()
        for member in _members(file.path, file.bytes, read):
            if not member.sampled:
                continue
            if seen and member.key != key:
                index.add(number, begin, end - begin)
                seen = set()
            if not seen:
                key, begin = member.key, member.head
            if member.ext in seen:
                raise Unreadable(f"{file.path}: the sample {key!r} has two members .{member.ext}, next to each other")
            seen.add(member.ext)
            end = member.end
        if seen:
            index.add(number, begin, end - begin)


# ---- tokens ----


class Tokens:
    """Sequences of tokens of one or several flat files: rows of one array."""

    def __init__(
        self, paths: "List[str]", length: Any, dtype: Any, how: "Tuple[Any, Any]", again: "Tuple[Any, ...]"
    ) -> None:
        numpy = need("numpy", "reading tokens")
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise Invalid(f"length {length!r}: must be a whole number of tokens, 1 or more")
        self.dtype, self.length, self.name, self._reduced = type_name(dtype), length, shown(paths[0]), again
        if self.dtype not in ("uint8", "uint16", "uint32", "int32", "int64", "int16", "uint64"):
            raise Invalid(f"tokens of type {self.dtype}: must be whole numbers, such as uint16 or uint32")
        item = numpy.dtype(self.dtype).itemsize
        self._row = item * length
        self._files = [_file(path, how) for path in paths]
        for file in self._files:
            if file.bytes % item:
                raise Unreadable(f"{file.path}: {file.bytes} bytes are not a whole number of {self.dtype}: it was cut, or has another type")
        self._ends: "List[int]" = []  # rows up to the end of each file
        for file in self._files:
            self._ends.append((self._ends[-1] if self._ends else 0) + file.bytes // self._row)
        if len(self) == 0:
            raise Invalid(f"{self.name}: has fewer than {length} tokens")

    def __len__(self) -> int:
        return self._ends[-1]

    def __repr__(self) -> str:
        return f"<stowage.records of {self.name}: {len(self)} sequences of {self.length} tokens>"

    def __reduce__(self) -> Any:
        return _again, self._reduced

    @property
    def bytes(self) -> int:
        return len(self) * self._row

    def fill_at(self, to: memoryview, offset: int) -> None:
        """Reads bytes of the rows; called by several threads."""
        from bisect import bisect_right

        done = 0
        while done < len(to):
            number = bisect_right(self._ends, (offset + done) // self._row)
            file = self._files[number]
            start = offset + done - (self._ends[number - 1] if number else 0) * self._row
            count = min(len(to) - done, file.bytes // self._row * self._row - start)
            with file.opened() as fill:
                fill(to[done : done + count], start)
            done += count
