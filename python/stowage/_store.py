"""Addresses of object stores (s3://bucket/x.npy), opened with fsspec, and of files (file:///x.npy).

Arrays, and records, are read from a store. Tables and `inspect` need a file on disk, or an http(s) URL that the library reads itself.
"""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Iterable, List, Tuple

from ._library import Invalid, NotFound, Unreadable, Unsupported, shown
from ._store_object import Hdf5Dataset, Ranges, StoreObject

_ADDRESS = re.compile(r"(?!https?:)[a-z][a-z0-9+.-]+(:|::[a-z0-9]+:)//")
_MEMBER = re.compile(r"\.(npz|npy|h5|hdf5|he5|nc|safetensors|pt|pth|ckpt|bin):", re.IGNORECASE)
_FILE = re.compile(r"file://(localhost)?(?=/)", re.IGNORECASE)
_HDF5 = re.compile(r"\.(h5|hdf5|he5|nc)$", re.IGNORECASE)
_PATTERN = set("*?[")
_LOCAL_HEADER_BYTES = 30  # of a member of a zip archive, before its name


def is_store(path: Any) -> bool:
    """Returns whether it is the address of an object in a store."""
    return isinstance(path, str) and _ADDRESS.match(path) is not None and _FILE.match(path) is None and not os.path.exists(path)


def without_scheme(path: Any) -> Any:
    """Returns the path of a file:// address; anything else as it is.

    >>> without_scheme("file:///tmp/x.npz:a"), without_scheme("x.npy")
    ('/tmp/x.npz:a', 'x.npy')
    """
    if isinstance(path, (list, tuple)):
        return [without_scheme(one) for one in path]
    return _FILE.sub("", path) if isinstance(path, str) and not os.path.exists(path) else path


def on_disk(path: Any) -> Any:
    """Returns what `inspect` and `shrink` read: a path or an http(s) URL. An object in a store is an error."""
    for one in path if isinstance(path, (list, tuple)) else [path]:
        if is_store(one):
            raise Unsupported(
                f"{shown(one)}: only stowage.open, stowage.batches and stowage.records read from a store; copy the file to disk first "
                "(fsspec.open), or give an http(s) URL"
            )
    return without_scheme(path)


def open_address(path: str) -> Any:
    """Opens an object, or a member of one ("s3://bucket/x.npz:a"), as a file object, or one with `fill_at`."""
    address, member = _split(path)
    try:
        if _HDF5.search(address):
            return Hdf5Dataset(*open_store(address), address, member)
        if member:
            stored = _Member(address, member) if address.lower().endswith(".npz") else None
            if stored is not None and stored.is_stored:
                return stored
            return StoreObject(*open_store(address), address, member)
        return _with_fsspec(address, lambda fsspec: fsspec.open(address, "rb").open())
    except FileNotFoundError as reason:
        if isinstance(reason, NotFound):
            raise
        raise NotFound(f"{shown(path)}: the store has no such object; check the address") from None


def _split(path: str) -> "Tuple[str, str]":
    """Returns the address of the object, and the member behind a colon."""
    found = _MEMBER.search(path)
    return (path, "") if found is None else (path[: found.end() - 1], path[found.end() :])


def objects_of(paths: "Iterable[str]") -> "List[str]":
    """Returns the objects, or members of objects, that addresses and patterns name."""
    made: "List[str]" = []
    for path in paths:
        address, member = _split(path)
        found = [address]
        if _PATTERN & set(address):
            system, inside = open_store(address)
            if not system.exists(inside):
                found = expand(address)
        made += [f"{one}:{member}" if member else one for one in found]
    return made


class _Member(Ranges):
    """A stored member of an npz in a store: a range of the object. A deflated one (`is_stored` is false) cannot be read here."""

    def __init__(self, address: str, member: str) -> None:
        import zipfile

        self.name = f"{address}:{member}"
        self._system, self._path = open_store(address)
        with self._system.open(self._path, "rb") as file:
            try:
                with zipfile.ZipFile(file) as archive:
                    names = archive.namelist()
                    listed = next((name for name in (member, member + ".npy") if name in names), None)
                    if listed is None:
                        there = ", ".join(name[:-4] if name.endswith(".npy") else name for name in names[:20])
                        raise NotFound(f"{shown(self.name)}: no such array; there are {shown(there)}")
                    info = archive.getinfo(listed)
            except zipfile.BadZipFile as reason:
                raise Unreadable(f"{shown(address)}: not an npz: {reason}") from None
            self.is_stored = info.compress_type == zipfile.ZIP_STORED
            file.seek(info.header_offset)
            header = file.read(_LOCAL_HEADER_BYTES)
        names_bytes = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        self._start = info.header_offset + _LOCAL_HEADER_BYTES + names_bytes
        self.bytes = info.file_size

    def fill_at(self, to: memoryview, offset: int) -> None:
        start = self._start + offset
        data = self._system.cat_file(self._path, start=start, end=start + len(to))
        if len(data) != len(to):
            raise EOFError(f"{self.name}: {len(data)} bytes at byte {offset} instead of {len(to)}")
        to[:] = data


def open_store(address: str) -> "Tuple[Any, str]":
    """Returns fsspec's file system of an object store, and the path in it."""
    system, path = _with_fsspec(address, lambda fsspec: fsspec.core.url_to_fs(address))
    return system, str(path)


def expand(address: str) -> "List[str]":
    """Returns the addresses that a pattern names, sorted; those of a server cannot be listed."""
    if re.match(r"https?://", address, re.IGNORECASE) or not _PATTERN & set(address):
        return [address]
    system, path = open_store(address)
    scheme = address[: address.index("://") + 3]
    found = sorted(scheme + str(one).lstrip("/") for one in system.glob(path))
    if not found:
        raise NotFound(f"{shown(address)}: no object has such a name")
    return found


def _with_fsspec(path: str, use: "Callable[[Any], Any]") -> Any:
    try:
        import fsspec  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise Invalid(
            f"{shown(path)}: reading it needs fsspec and the package for this store: pip install fsspec; or give an open file, "
            f"such as that of fsspec.open({shown(path)!r})"
        ) from None
    try:
        return use(fsspec)
    except (ImportError, ValueError) as error:  # the package for this store is missing, or there is none
        raise Invalid(f"{shown(path)}: fsspec cannot open it; try fsspec.open({shown(path)!r})") from error
