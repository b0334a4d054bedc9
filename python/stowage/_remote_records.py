"""Files of records on a server or in an object store: the same interface as a local file of `_records.py`."""

from __future__ import annotations

import contextlib
import queue
import re
import urllib.parse
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ._library import Invalid, shown
from ._store import open_store
from .lazy import LazyArray

_HANDLES = 8  # ranges that are requested at once, of one file
_WINDOW = 256 << 10  # read at once where headers are looked for

Fill = Callable[[memoryview, int], None]


def is_remote(path: str) -> bool:
    """Returns whether it is the address of a server or of an object store: https://…, s3://…"""
    return re.match(r"[a-z][a-z0-9+.-]+(::[a-z0-9]+:)*://", path, re.IGNORECASE) is not None


def is_web(path: str) -> bool:
    return re.match(r"https?://", path, re.IGNORECASE) is not None


def name_of(path: str) -> str:
    """Returns the part of an address that ends like a file's name.

    >>> name_of("https://host/a/train.tar?token=1")
    '/a/train.tar'
    """
    return urllib.parse.urlsplit(path).path


class RemoteFile:
    """One file of records. Its ranges are read as those of arrays are: with retries, headers, a cache and a check for changes."""

    def __init__(self, address: str, headers: "Optional[Dict[str, str]]", cache: "str | int | None") -> None:
        self.path = shown(address)
        self._given = (address, None, "uint8", None, headers if is_web(address) else None, cache)
        self._free: "queue.LifoQueue[Optional[LazyArray]]" = queue.LifoQueue()
        for _ in range(_HANDLES - 1):
            self._free.put(None)
        first = LazyArray(*self._given)
        self._free.put(first)
        self.bytes = first.nbytes

    def _fill(self, to: memoryview, offset: int) -> None:
        import numpy

        handle = self._free.get()
        try:
            if handle is None:
                handle = LazyArray(*self._given)
            handle.read_into(numpy.frombuffer(to, numpy.uint8), offset)
        finally:
            self._free.put(handle)

    @contextlib.contextmanager
    def opened(self) -> "Iterator[Fill]":
        yield self._fill

    @contextlib.contextmanager
    def near(self) -> "Iterator[Callable[[int, int], bytes]]":
        """Yields a function that reads small parts one after another: each request brings some of what follows."""
        held, start = b"", 0

        def read(offset: int, count: int) -> bytes:
            nonlocal held, start
            count = max(0, min(count, self.bytes - offset))
            if not start <= offset <= offset + count <= start + len(held):
                data = bytearray(min(max(count, _WINDOW), self.bytes - offset))
                self._fill(memoryview(data), offset)
                held, start = bytes(data), offset
            return held[offset - start : offset - start + count]

        yield read

    def read(self, start: int, stop: int) -> bytearray:
        data = bytearray(stop - start)
        if data:
            self._fill(memoryview(data), start)
        return data


class StoreFolder:
    """The objects below an address of a store, as files of a folder."""

    def __init__(self, address: str) -> None:
        if is_web(address):
            raise Invalid(f"{shown(address)}: a web server does not list its folders; give the files, as tar shards or a list")
        self._system, root = open_store(address)
        self._root = root.rstrip("/") + "/"

    def files(self) -> "List[Tuple[str, int]]":
        """Returns the name of each object, relative to the address, and its size; sorted."""
        found = self._system.find(self._root, detail=True)
        sizes = {path: int(facts.get("size") or 0) for path, facts in found.items() if facts.get("type", "file") == "file"}
        return sorted((path.lstrip("/")[len(self._root.lstrip("/")) :], size) for path, size in sizes.items())

    def read(self, name: str) -> bytes:
        return bytes(self._system.cat_file(self._root + name))
