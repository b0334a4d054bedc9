"""Reads the records of batches ahead, in background threads, within a budget of bytes."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, List, Optional

from ._library import OutOfMemory, format_size
from ._records import Records

_THREADS = 4
_AHEAD = 8  # batches


class _Batch:
    """One batch: its index, and its records once they are read."""

    def __init__(self, arrays: "List[Any]", size: int) -> None:
        self.arrays, self.bytes = arrays, size
        self.work: "Optional[Future[List[Any]]]" = None


class Reading:
    """The batches of records that are being read. Called by one thread at a time."""

    def __init__(self, records: "List[Optional[Records]]", decoders: "List[Any]", threads: int, memory: int) -> None:
        self._records, self._decoders = records, decoders
        self._threads, self._memory = threads or _THREADS, memory
        self._pool: Optional[ThreadPoolExecutor] = None
        self._held = 0  # bytes of the batches that are being read or wait to be taken
        self._full = False  # the last batch did not fit beside the others

    def wants(self, ahead: int) -> bool:
        """Returns whether another batch should be begun. One is always read, whatever it takes."""
        return ahead == 0 or (ahead < _AHEAD and not self._full)

    def begin(self, arrays: "List[Any]") -> _Batch:
        size = sum(found.bytes_of(rows) for found, rows in zip(self._records, arrays) if found is not None)
        batch = _Batch(arrays, size)
        if self._held + size > self._memory:
            self._full = True  # begun when it is due
        else:
            self._start(batch)
        return batch

    def _start(self, batch: _Batch) -> None:
        if batch.bytes > self._memory:
            wanted = format_size(batch.bytes * 4 // 3 + (1 << 20))
            raise OutOfMemory(
                f"a batch of records has {format_size(batch.bytes)}, and {format_size(self._memory)} of memory= is for records: "
                f"give {wanted}, or a smaller batch_size"
            )
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="stowage-records")
        self._held += batch.bytes
        batch.work = self._pool.submit(self._read, batch.arrays)

    def _read(self, arrays: "List[Any]") -> "List[Any]":
        made = list(arrays)
        for i, (found, decode) in enumerate(zip(self._records, self._decoders)):
            if found is not None:
                records = found.read(arrays[i])
                made[i] = records if decode is None else _stacked([decode(record) for record in records])
        return made

    def finish(self, ahead: "deque[_Batch]") -> "List[Any]":
        """Waits for the first batch and removes it. After an error it stays, and the next call reads it again."""
        batch = ahead[0]
        if batch.work is None:
            self._start(batch)
        assert batch.work is not None
        try:
            made = batch.work.result()
        finally:
            batch.work = None
            self._held -= batch.bytes
        ahead.popleft()
        self._full = False
        if ahead and ahead[0].work is None and self._held + ahead[0].bytes <= self._memory:
            self._start(ahead[0])
        return made

    def forget(self, ahead: "deque[_Batch]") -> None:
        """Ends what was begun; waits for threads that are reading."""
        for batch in ahead:
            if batch.work is not None and not batch.work.cancel():
                batch.work.exception()
        ahead.clear()
        self._held, self._full = 0, False

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None


def _stacked(values: "List[Any]") -> Any:
    """Returns one array or tensor where all values are arrays of the same shape and type, or numbers; else the list.

    >>> _stacked([1, 2]).tolist(), _stacked(["a", "b"])
    ([1, 2], ['a', 'b'])
    """
    import numpy

    first = values[0]
    if all(isinstance(value, (bool, int, float, numpy.generic)) for value in values):
        return numpy.array(values)
    kind, shape = type(first), getattr(first, "shape", None)
    if shape is None or any(type(value) is not kind or value.shape != shape or value.dtype != first.dtype for value in values):
        return values
    if isinstance(first, numpy.ndarray):
        return numpy.stack(values)
    if kind.__module__.partition(".")[0] == "torch":
        import torch

        return torch.stack(values)
    return values
