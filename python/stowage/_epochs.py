"""Which epoch the workers of a torch DataLoader read: a small table that they share with the process of the loader.

A loader starts its workers anew for each `for`, from the batches as they were, and gives all of them one number (its base seed). The
first worker with a new number takes the next epoch; the others find it in the table.
"""

from __future__ import annotations

import fcntl
import os
import struct
import weakref
from typing import List, Optional, Tuple

_ENTRY = struct.Struct("=QQ")  #: which start of the batches (`Epochs.number`), and the loader's number
_NAME = "stowage-epochs"


class Epochs:
    """The table, in memory without a name. A forked worker inherits its descriptor; a spawned one opens that of its parent."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.place = (os.getpid(), descriptor)
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def make(cls) -> "Optional[Epochs]":
        try:
            return cls(os.memfd_create(_NAME, os.MFD_CLOEXEC))
        except (AttributeError, OSError):
            return None

    @classmethod
    def find(cls, place: "Tuple[int, int]") -> "Optional[Epochs]":
        """Returns the table of another process; None if that is on another machine, or has ended."""
        path = f"/proc/{place[0]}/fd/{place[1]}"
        try:
            return cls(os.open(path, os.O_RDWR | os.O_CLOEXEC)) if _NAME in os.readlink(path) else None
        except OSError:
            return None

    def _entries(self) -> "List[Tuple[int, int]]":
        size = os.fstat(self._descriptor).st_size
        return [(start, loader) for start, loader in _ENTRY.iter_unpack(os.pread(self._descriptor, size, 0))]

    def count(self, start: int) -> int:
        """Returns how many epochs loaders have begun since that start."""
        return sum(entry[0] == start for entry in self._entries())

    def number(self, start: int, loader: int) -> int:
        """Returns how many epochs came before this loader's, since that start. All workers of one loader get the same."""
        mine = (start, loader & 0xFFFFFFFFFFFFFFFF)
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            entries = [entry for entry in self._entries() if entry[0] == start]
            if mine not in entries:
                entries.append(mine)
                os.pwrite(self._descriptor, _ENTRY.pack(*mine), os.fstat(self._descriptor).st_size)
            return entries.index(mine)
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
