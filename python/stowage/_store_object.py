"""Objects of a store that the C library reads a range at a time, and datasets of HDF5 in a store, which h5py reads.

Opened by _store.open_address. Memory: a few blocks for each object; for HDF5, one row of chunks for each dataset.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from typing import Any, List, Optional, Sequence

from ._library import Invalid, NotFound, StowageError, Unreadable, Unsupported, need, shown

_BLOCK_BYTES, _BLOCKS = 1 << 20, 4


class Ranges:
    """What the C library reads by ranges (fill_at) instead of a path. Several threads may call fill_at."""

    name: str  # for messages
    bytes: int
    address: str  # of the file that has the member
    member: "Optional[str]" = None  # the array or tensor of the file to read; None: the ranges are one array
    raw_dtype: "Optional[str]" = None  # of ranges that are raw values; None: a file that says it
    raw_shape: "Sequence[int]" = ()

    def fill_at(self, to: memoryview, offset: int) -> None:
        """Fills `to` with the bytes from `offset` on."""
        raise NotImplementedError


class StoreObject(Ranges):
    """A whole object. Small reads, as of a directory or of deflated data, go through blocks that are kept; large ones do not."""

    def __init__(self, system: Any, path: str, address: str, member: str) -> None:
        self.name, self.address, self.member = f"{address}:{member}", address, member
        self._system, self._path = system, path
        self.bytes = int(system.info(path)["size"])
        self._lock = threading.Lock()
        self._blocks: "OrderedDict[int, bytes]" = OrderedDict()

    def fill_at(self, to: memoryview, offset: int) -> None:
        if len(to) >= _BLOCK_BYTES:
            to[:] = self._range(offset, offset + len(to))
            return
        done = 0
        while done < len(to):
            number, within = divmod(offset + done, _BLOCK_BYTES)
            part = self._block(number)[within : within + len(to) - done]
            if not part:
                raise EOFError(f"{self.name}: it ends at byte {offset + done}")
            to[done : done + len(part)] = part
            done += len(part)

    def _block(self, number: int) -> bytes:
        with self._lock:
            if number in self._blocks:
                self._blocks.move_to_end(number)
                return self._blocks[number]
        data = self._range(number * _BLOCK_BYTES, min(self.bytes, (number + 1) * _BLOCK_BYTES))
        with self._lock:
            self._blocks[number] = data
            while len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        return data

    def _range(self, start: int, end: int) -> bytes:
        data = bytes(self._system.cat_file(self._path, start=start, end=end)) if start < end else b""
        if len(data) != max(end - start, 0):
            raise EOFError(f"{self.name}: {len(data)} bytes at byte {start} instead of {end - start}")
        return data


class Hdf5Dataset(Ranges):
    """A dataset of HDF5 in a store, as the raw values of its rows. A row of chunks is read, unpacked and kept at a time."""

    def __init__(self, system: Any, path: str, address: str, member: str) -> None:
        h5py = need("h5py", "HDF5 in a store")
        self.name = f"{address}:{member}" if member else address
        self._lock = threading.Lock()
        opened = system.open(path, "rb", block_size=_BLOCK_BYTES)
        try:
            self._file = h5py.File(opened, "r", rdcc_nbytes=0)
            self._set = self._find(h5py, member)
        except StowageError:
            raise
        except (OSError, RuntimeError) as reason:
            raise Unreadable(f"{shown(address)}: h5py cannot read it: {reason}") from None
        kind = self._set.dtype
        if kind.kind not in "biuf" or kind.itemsize > 8:
            raise Unsupported(f"{shown(self.name)}: items of type {kind} are not numbers; copy the file to disk")
        self._kind = kind.newbyteorder("=")
        if not self._set.shape:
            raise Invalid(f"{shown(self.name)}: one number without rows; read it with h5py")
        self.raw_dtype, self.raw_shape = self._kind.name, list(self._set.shape)
        self._row_bytes = self._kind.itemsize * math.prod(self._set.shape[1:])
        self.bytes = self._row_bytes * self._set.shape[0]
        chunks = self._set.chunks
        self._band_rows = chunks[0] if chunks is not None else max(1, _BLOCK_BYTES // max(self._row_bytes, 1))
        self._band: "Optional[memoryview]" = None
        self._band_number = -1

    def _find(self, h5py: Any, member: str) -> Any:
        found: "List[str]" = []
        self._file.visititems(lambda name, what: found.append(name) if isinstance(what, h5py.Dataset) else None)
        if not member and len(found) == 1:
            member = found[0]
        if member.strip("/") in found:
            return self._file[member.strip("/")]
        there = shown(", ".join(found[:20]) or "none")
        if member:
            raise NotFound(f"{shown(self.name)}: no such dataset; there are {there}")
        raise Invalid(f"{shown(self.name)}: it holds {len(found)} datasets; name one after a colon: {there}")

    def fill_at(self, to: memoryview, offset: int) -> None:
        import numpy

        with self._lock:
            done = 0
            while done < len(to):
                number, within = divmod(offset + done, self._band_rows * self._row_bytes)
                if number != self._band_number or self._band is None:
                    self._band = None
                    rows = self._set[number * self._band_rows : (number + 1) * self._band_rows]
                    self._band = memoryview(numpy.ascontiguousarray(rows, dtype=self._kind)).cast("B")
                    self._band_number = number
                part = self._band[within : within + len(to) - done]
                if not part:
                    raise EOFError(f"{self.name}: it ends at byte {offset + done}")
                to[done : done + len(part)] = part
                done += len(part)
