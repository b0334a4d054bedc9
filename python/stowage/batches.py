"""Batches of rows from files far larger than memory: `stowage.batches(path, batch_size=256, shuffle=True)`.

The C library reads ahead in the background, within a memory budget. Batches are NumPy arrays (or torch tensors) over its buffers,
without a copy. An array that you keep holds its own buffer, and no other.
"""

from __future__ import annotations

import ctypes
import operator
import os
import sys
import threading
import warnings
import weakref
from collections import deque
from ctypes import POINTER, byref, c_int, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, Iterable, Iterator, List, Optional

from ._array import ArrayInfo, ArrayOptions, Origin, as_float32, is_array, origin_of
from ._buffer import Buffers
from ._epochs import Epochs
from ._gpu import destination, device_handle
from ._library import Growing, Invalid, NotFound, StowageError, call, check, counted, declare, lib, parse_budget
from ._memory import host
from ._reading import Reading
from ._records import Records, Tokens, find_records
from ._text import LazyText, TextColumn, column_names, find_text
from .lazy import LazyArray, LazyTable

_NOT_READY = -6
_FILES_MAX = 16
_STATE_VERSION = 1  #: of what state_dict() returns
_STATE = (
    "rows batch_rows seed epoch next_batch rank world shuffle drop_last block_rows window_rows"
).split()
_EARLIER_MAX = 8
_LEAST_BYTES = 4 << 20  # the smallest budget of the library
_SHUFFLES = {False: 0, True: 1, "window": 1, "disk": 2}


class _Memory(ctypes.Structure):
    _fields_ = [("allocate", c_void_p), ("release", c_void_p), ("user", c_void_p)]


class _Options(Growing):
    _fields_ = [
        ("file_count", c_uint32),
        ("files", POINTER(POINTER(ArrayOptions))),
        ("batch_rows", c_uint64),
        ("drop_last", c_uint32),
        ("shuffle", c_uint32),
        ("seed", c_uint64),
        ("rank", c_uint32),
        ("world", c_uint32),
        ("readers", c_uint32),
        ("reserved", c_uint32),
        ("memory_bytes", c_uint64),
        ("memory", _Memory),
        ("device", c_void_p),
        ("scratch", ctypes.c_char_p),
    ]


class _State(Growing):
    _fields_ = [
        ("reserved", c_uint32),
        *[(name, c_uint64) for name in _STATE],
        ("deck_rows", c_uint64),
        ("earlier_count", c_uint64),
        ("earlier", c_uint64 * 3 * _EARLIER_MAX),
    ]


class _Info(Growing):
    _fields_ = [
        ("readers", c_uint32),
        ("rows", c_uint64),
        ("rank_rows", c_uint64),
        ("batch_count", c_uint64),
        ("rank", c_uint32),
        ("world", c_uint32),
        ("memory_bytes", c_uint64),
        ("planned_bytes", c_uint64),
        ("block_rows", c_uint64),
        ("window_rows", c_uint64),
        ("drops_cache", c_uint32),
        ("reserved", c_uint32),
        ("scratch_bytes", c_uint64),
        ("shuffle_quality", ctypes.c_double),
    ]


declare(
    {
        "stow_batches_open": (c_int, [POINTER(c_void_p), POINTER(_Options)]),
        "stow_batches_close": (None, [c_void_p]),
        "stow_batches_next": (c_int, [c_void_p, POINTER(c_void_p), POINTER(c_uint64)]),
        "stow_batches_wait": (c_int, [c_void_p, c_uint64]),
        "stow_batches_send": (c_int, [c_void_p, POINTER(c_uint64), c_void_p, POINTER(c_uint64)]),
        "stow_batches_release": (c_int, [c_void_p]),
        "stow_batches_set_epoch": (c_int, [c_void_p, c_uint64]),
        "stow_batches_get_state": (c_int, [c_void_p, POINTER(_State)]),
        "stow_batches_set_state": (c_int, [c_void_p, POINTER(_State)]),
        "stow_batches_get_info": (c_int, [c_void_p, POINTER(_Info)]),
        "stow_batches_get_file": (c_int, [c_void_p, c_uint32, POINTER(ArrayInfo)]),
    }
)


def batches(
    data: Any,
    batch_size: int = 32,
    shuffle: "bool | str" = False,
    seed: int = 0,
    drop_last: bool = False,
    num_workers: "int | str" = "auto",
    memory: "str | int | None" = "256M",
    dtype: Any = None,
    rank: Optional[int] = None,
    world: Optional[int] = None,
    device: Any = None,
    raw_dtype: Any = None,
    raw_shape: Optional[Iterable[int]] = None,
    headers: Optional[Dict[str, str]] = None,
    cache: "str | int | None" = None,
    scratch: "str | os.PathLike[str] | None" = None,
    decode: Any = None,
) -> "Batches":
    """Iterates over the rows of one file, or of several in step, in batches, within `memory`.

    `data` is a path (.npy, `file.npz:member`, also a column of text that `stowage shrink` wrote, which gives arrays of str,
    `file.safetensors:tensor`, `file.pt:tensor`, raw values with `raw_dtype`), an http(s) URL, an address of an object store
    (s3://…, with fsspec), a file object that can seek, an array in memory, `stowage.records(…)` (a folder, .tar and .txt are taken
    as records), or a list, tuple or dict of these: then each batch is a tuple or a dict. `decode` is called with each record, in
    background threads; what it returns is stacked to an array where the shapes are equal.

    `shuffle=True` shuffles within a window in memory; `.shuffle_quality` says how well. `shuffle="disk"` copies the rows once, in
    random order, into a scratch file (in `scratch`, or $TMPDIR, or /var/tmp), which is close to a uniform shuffle in any `memory`.

    `dtype` converts (one type, or one for each file in the same structure); a value that does not fit is an error that names its
    row. `rank` and `world` come from RANK and WORLD_SIZE, Slurm's or MPI's variables if not given; each epoch of a shuffle divides
    the rows among the ranks anew. `num_workers` are background reading threads. `device` gives torch tensors: "cpu" without a copy, "cuda" (CuPy arrays if torch is not installed) through the library's pinned memory, copied while the previous step
    computes, and a `stowage.heap()` the same in that heap's memory. `memory=None` is a quarter of what is free. `cache="10G"`
    caches data from http(s) on disk, for the next epoch and the next run.

    Each `for` over it is an epoch, in a new order if shuffled; after `load_state_dict` or `next()` it continues from there.
    """
    return _class()(
        data,
        dict(
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            num_workers=num_workers,
            memory=memory,
            dtype=dtype,
            rank=rank,
            world=world,
            device=device,
            raw_dtype=raw_dtype,
            raw_shape=None if raw_shape is None else list(raw_shape),
            headers=headers,
            cache=cache,
            scratch=None if scratch is None else os.fspath(scratch),
            decode=decode,
        ),
    )


class Batches:
    """See `batches`. `len()` is the number of batches of this rank in an epoch."""

    def __init__(self, data: Any, settings: Dict[str, Any]) -> None:
        self._data, self._settings = _columns(data), settings
        self._batch_rows = 0
        self._unpickled: "Optional[tuple[Any, ...]]" = None  # from where, and not used since
        self._starts = 0  # how often the epoch was set; a loader's workers count theirs from there
        self._epochs = Epochs.make() if "torch.utils.data" in sys.modules else None
        self._lock = threading.RLock()
        self._open(settings["rank"], settings["world"])

    # ---- opening ----

    def _open(self, rank: Optional[int], world: Optional[int]) -> None:
        given = self._settings
        if isinstance(self._data, dict):
            keys: Optional[List[Any]] = list(self._data)
            parts = list(self._data.values())
        else:
            keys = None
            parts = list(self._data) if isinstance(self._data, (list, tuple)) else [self._data]
        if not 1 <= len(parts) <= _FILES_MAX:
            raise Invalid(f"batches: {len(parts)} files given; give 1 to {_FILES_MAX}")
        self._keys, self._single = keys, not isinstance(self._data, (dict, list, tuple))
        types = _for_each(given["dtype"], keys, len(parts))
        self._check_hosts(parts)
        self._records = [part if isinstance(part, Records) else self._find_records(part) for part in parts]
        decoders = _for_each(given["decode"], keys, len(parts))
        if given["decode"] is not None and not any(self._records):
            raise Invalid("decode= is called with records, and these are arrays: give stowage.records(…), a folder, .tar or .txt")
        self._reading = Reading(self._records, decoders, self._workers(), self._memory() * 3 // 4) if any(self._records) else None
        self._tensors, self._gpu = destination(given["device"])
        self._texts: "List[Optional[TextColumn]]" = [None] * len(parts)
        try:
            handle = self._open_files(parts, types, rank, world)
        except Invalid:
            table = _of_table(parts) if given["raw_dtype"] is None else None
            if table is None:
                raise
            raise table from None
        except NotFound:
            self._texts = [self._find_text(part) for part in parts]
            if not any(self._texts):
                raise
            handle = self._open_files(parts, types, rank, world)
        if not self._tensors and self._gpu is None:
            handle = self._without_bfloat16(handle, parts, types, rank, world)
        self._opened, self._pid = handle, os.getpid()
        library = lib()
        self._close = weakref.finalize(self, _close, library.stow_batches_close, handle, self._origins)
        self._next, self._wait, self._release, self._send_to = (
            library.stow_batches_next,
            library.stow_batches_wait,
            library.stow_batches_release,
            library.stow_batches_send,
        )
        self._batch_rows = min(self._batch_rows, max(1, int(self.info["rows"])))
        self._slots, self._rows = (c_void_p * len(parts))(), c_uint64()
        self._files = [self._file(i) for i in range(len(parts))]
        gpu = self._gpu
        self._kinds = [] if gpu is None else [gpu.kind(file.dtype, file.is_bfloat16) for file in self._files]
        self._loop: "Optional[weakref.ref[_Epoch]]" = None
        self._untouched, self._finished = True, False
        self._ahead: "deque[Any]" = deque()

    def _options(self, rank: Optional[int], world: Optional[int]) -> _Options:
        given = self._settings
        batch_size = _whole(given["batch_size"], 1, "batch_size {!r}: must be a whole number of rows, 1 or more")
        readers = self._workers()
        if (rank is None) != (world is None):
            raise Invalid("rank and world go together: give both or neither")
        if world is not None:
            refusal = f"rank {rank!r} of {world!r}: ranks count from 0 to one less than the world"
            if _whole(rank, 0, refusal) >= _whole(world, 1, refusal) or world > 0xFFFFFFFF:
                raise Invalid(refusal)
        self._batch_rows = batch_size
        options = _Options(batch_rows=batch_size, drop_last=bool(given["drop_last"]))
        try:
            options.shuffle = _SHUFFLES[given["shuffle"] if isinstance(given["shuffle"], str) else bool(given["shuffle"])]
        except KeyError:
            raise Invalid(f'shuffle {given["shuffle"]!r}: must be True, False, "window" or "disk"') from None
        if given["scratch"] is not None:
            options.scratch = os.fsencode(given["scratch"])
        options.files = (POINTER(ArrayOptions) * len(self._origins))(*[ctypes.pointer(origin.options) for origin in self._origins])
        options.file_count = len(self._origins)
        options.seed = _whole(given["seed"], None, "seed {!r}: must be a whole number") & 0xFFFFFFFFFFFFFFFF
        options.rank, options.world = rank or 0, world or 0
        options.readers = readers
        options.memory_bytes = 0 if given["memory"] is None else parse_budget(given["memory"])
        if self._reading is not None:  # the index of records takes a quarter
            options.memory_bytes = max(_LEAST_BYTES, self._memory() // 4)
        if self._gpu is not None:
            options.device = device_handle(self._gpu.index)
        return options

    def _workers(self) -> int:
        """Returns the number of reading threads; 0: as the library chooses."""
        workers = self._settings["num_workers"]
        if isinstance(workers, str) and workers == "auto":
            return 0
        return max(1, _whole(workers, 0, 'num_workers {!r}: must be "auto" or a number of reading threads'))

    def _memory(self) -> int:
        given = self._settings["memory"]
        if given is not None:
            return parse_budget(given)
        return max(4 * _LEAST_BYTES, host().usable_bytes // 4)

    @property
    def _handle(self) -> c_void_p:
        """Returns the library's handle; raises an error once it is closed."""
        if not self._close.alive:
            raise ValueError("these batches are closed")
        return self._opened

    def _file(self, number: int) -> Buffers:
        info = ArrayInfo()
        call("stow_batches_get_file", self._handle, number, byref(info))
        return Buffers(info, self._origins[number].seen_as)

    def _explain(self, error: BaseException) -> BaseException:
        for origin in self._origins:
            error = origin.explain(error)
        return error

    def _open_files(self, parts: "List[Any]", types: "List[Any]", rank: Optional[int], world: Optional[int]) -> c_void_p:
        self._origins = [self._origin(*each) for each in zip(parts, types, self._texts, self._records)]
        self._refuse_hosts({origin.origin for origin in self._origins})
        handle = c_void_p()
        options = self._options(rank, world)
        try:
            call("stow_batches_open", byref(handle), byref(options))
        except StowageError as error:
            raise self._explain(error)
        return handle

    def _without_bfloat16(self, handle: c_void_p, parts: "List[Any]", types: "List[Any]", rank: Optional[int], world: Optional[int]) -> c_void_p:
        """Opens the files again if NumPy lacks the type of some, which then become float32."""
        lacking = []
        for number, origin in enumerate(self._origins):
            info = ArrayInfo()
            call("stow_batches_get_file", handle, number, byref(info))
            lacking.append(origin.seen_as is None and as_float32(info, types[number] is not None, origin.name))
        if not any(lacking):
            return handle
        _close(lib().stow_batches_close, handle, self._origins)
        return self._open_files(parts, ["float32" if lacks else kind for lacks, kind in zip(lacking, types)], rank, world)

    def _find_text(self, part: Any) -> "Optional[TextColumn]":
        given = self._settings
        if given["raw_dtype"] is not None:
            return None
        column = find_text(part, lambda path: LazyArray(path, None, None, None, given["headers"], given["cache"]))
        if column is not None and self._gpu is not None:
            raise Invalid(f"{column.name} is text, which stays in host memory: leave device= out, or give {column.name}.codes")
        return column

    def _check_hosts(self, parts: "List[Any]") -> None:
        """Refuses headers for several servers, before anything is sent."""
        self._refuse_hosts({origin_of(os.fsdecode(part)) for part in parts if isinstance(part, (str, bytes, os.PathLike))})

    def _refuse_hosts(self, hosts: "set[Any]") -> None:
        hosts = hosts - {None}
        if self._settings["headers"] and len(hosts) > 1:
            raise Invalid(f"headers go to one host, and these URLs are on {len(hosts)}; open them one by one")

    def _find_records(self, part: Any) -> "Optional[Records]":
        if self._settings["raw_dtype"] is not None:
            return None
        return find_records(part, self._settings["headers"], self._settings["cache"])

    def _origin(self, part: Any, kind: Any, text: "Optional[TextColumn]", found: "Optional[Records]") -> Origin:
        given = self._settings
        if found is not None:
            if kind is not None or self._gpu is not None:
                raise Invalid(f"{found.name} is records, which have no dtype and stay in host memory: leave dtype= and device= out")
            return Origin(found.origin()[0], None, *found.origin()[1:])
        if isinstance(part, Tokens):
            return Origin(part, kind, part.dtype, [len(part), part.length])
        if isinstance(part, LazyArray) and part._given[1] is None:
            return Origin(part._given[0], kind, *part._given[2:])
        if is_array(part):
            return Origin(part, kind)
        if text is None:
            return Origin(part, kind, given["raw_dtype"], given["raw_shape"], given["headers"], given["cache"])
        if kind is not None:
            raise Invalid(f"{text.name} is text, which has no dtype to convert to")
        file, raw_dtype, raw_shape = text.origin()
        return Origin(file, None, raw_dtype, raw_shape, given["headers"], given["cache"])

    # ---- facts ----

    @property
    def info(self) -> Dict[str, Any]:
        """The plan: rows, rank, world, readers, planned_bytes, block_rows, window_rows, shuffle_quality and so on."""
        made = _Info()
        call("stow_batches_get_info", self._handle, byref(made))
        return {field[0]: getattr(made, field[0]) for field in _Info._fields_ if field[0] != "reserved"}

    @property
    def shuffle_quality(self) -> float:
        """How well the rows are mixed, from 0 (not shuffled) to 1 (as in a uniform shuffle).

        It is the number of different classes in a batch of 256 rows of a file that is sorted by 1,000 classes, relative to a uniform
        shuffle (226).
        """
        return float(self.info["shuffle_quality"])

    def __len__(self) -> int:
        return int(self.info["batch_count"])

    def __repr__(self) -> str:
        names = ", ".join(origin.name if found is None else found.name for origin, found in zip(self._origins, self._records))
        if not self._close.alive:
            return f"<stowage.batches of {names}: closed>"
        facts = self.info
        share = f", rank {facts['rank']} of {facts['world']}" if facts["world"] > 1 else ""
        mixed = f", shuffled (quality {facts['shuffle_quality']:.2f})" if self._settings["shuffle"] else ""
        return f"<stowage.batches of {names}: {facts['batch_count']} of {counted(self._settings['batch_size'], 'row')}{share}{mixed}>"

    # ---- iterating ----

    def __iter__(self) -> "Iterator[Any]":
        self._move_to_this_process()
        with self._lock:
            later = (not self._untouched) + (self._epochs.count(self._starts) if self._epochs is not None else 0)
            if later:
                self.set_epoch(self._state().epoch + later)
            loop = _Epoch(self)
            self._loop = weakref.ref(loop)
            return loop

    def __next__(self) -> Any:
        self._move_to_this_process()
        with self._lock:
            if self._finished:
                raise StopIteration
            return self._take()

    def _take(self) -> Any:
        """Returns the next batch; raises StopIteration at the end of the epoch."""
        if self._gpu is not None:
            return self._take_from_gpu()
        arrays = self._arrays() if self._reading is None else self._read_records(self._reading)
        if arrays is None:
            self._finished, self._untouched = True, False
            raise StopIteration
        parts = [
            text.take(array) if text is not None else file.tensor(array) if self._tensors and found is None else array
            for file, array, text, found in zip(self._files, arrays, self._texts, self._records)
        ]
        return self._shaped(parts)

    def _read_records(self, reading: Reading) -> Optional[List[Any]]:
        """Returns the next batch, with its records in place of their index. Reads the following ones ahead."""
        while reading.wants(len(self._ahead)):
            arrays = self._arrays()
            if arrays is None:
                break
            self._ahead.append(reading.begin(arrays))
        return reading.finish(self._ahead) if self._ahead else None

    def _arrays(self) -> Optional[List[Any]]:
        self._await()
        self._check(self._next(self._handle, self._slots, byref(self._rows)))
        rows = self._rows.value
        if rows == 0:
            return None
        release = self._release
        return [file.array(slot, rows, release) for file, slot in zip(self._files, self._slots)]

    def _await(self) -> None:
        handle = self._handle
        while self._wait(handle, 100000) == _NOT_READY:
            pass  # returns to Python, so that interrupts are handled

    def _check(self, status: int) -> None:
        if status != 0:
            try:
                check(status)
            except StowageError as error:
                raise self._explain(error)

    def _shaped(self, parts: List[Any]) -> Any:
        if self._single:
            return parts[0]
        return tuple(parts) if self._keys is None else dict(zip(self._keys, parts))

    # ---- to a GPU ----

    def _send(self) -> bool:
        """Starts to copy the next batch on a separate stream. Returns False at the end."""
        gpu, handle = self._gpu, self._handle
        self._await()
        size = self._batch_rows
        parts, places = gpu.empty([(size, *file.row_shape) for file in self._files], self._kinds)
        self._check(self._send_to(handle, (c_uint64 * len(places))(*places), gpu.stream, byref(self._rows)))
        rows = self._rows.value
        if rows == 0:
            return False
        self._ahead.append((parts if rows == size else [part[:rows] for part in parts], gpu.mark()))
        return True

    def _take_from_gpu(self) -> Any:
        while len(self._ahead) < 2 and self._send():
            pass
        if not self._ahead:
            self._finished, self._untouched = True, False
            raise StopIteration
        parts, done = self._ahead.popleft()
        self._gpu.hand_over(parts, done)
        return self._shaped(parts)

    # ---- position ----

    def _state(self) -> _State:
        state = _State()
        call("stow_batches_get_state", self._handle, byref(state))
        state.next_batch -= len(self._ahead)  # taken, but not yet given to the caller
        return state

    def _forget_ahead(self) -> None:
        if self._reading is not None:
            self._reading.forget(self._ahead)
        while self._ahead:  # copies in flight must finish before the memory is reused
            self._gpu.hand_over(*self._ahead.popleft())

    def _begin(self) -> None:
        self._forget_ahead()
        self._untouched, self._finished, self._loop = True, False, None
        self._starts += 1

    def set_epoch(self, epoch: int) -> None:
        """Starts an epoch at its first batch; each epoch of a shuffle has a different order.

        Workers that a DataLoader starts after this begin with this epoch.
        """
        with self._lock:
            call("stow_batches_set_epoch", self._handle, _whole(epoch, 0, "epoch {!r}: epochs count from 0"))
            self._begin()

    def state_dict(self) -> Dict[str, Any]:
        """Returns the position in plain numbers, for a checkpoint."""
        with self._lock:
            state = self._state()
            made: Dict[str, Any] = {"version": _STATE_VERSION, **{name: int(getattr(state, name)) for name in _STATE}}
            if state.deck_rows:
                made["deck_rows"] = int(state.deck_rows)
            if state.earlier_count:
                made["earlier"] = [[int(n) for n in world] for world in state.earlier[: state.earlier_count]]
            return made

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Continues with exactly the batches that remained when the state was taken, in the same order.

        If the world size is another one, continues the epoch with the rows that remain, each exactly once over all ranks. Take the
        state when all ranks have taken the same number of batches in the epoch, and load the state of one rank on all ranks.
        """
        missing = [name for name in ("version", *_STATE) if name not in state]
        if missing:
            raise Invalid(f"state: {', '.join(missing)} missing; give a dict from state_dict()")
        if state["version"] != _STATE_VERSION:
            raise Invalid(f"state: version {state['version']!r} is unknown; this package reads version {_STATE_VERSION}")
        with self._lock:
            numbers = [_whole(state[name], 0, f"a state of batches whose {name} is {{!r}}") for name in _STATE]
            found = _State(0, *numbers)
            found.deck_rows = _whole(state.get("deck_rows", 0), 0, "a state of batches whose deck_rows is {!r}")
            earlier = list(state.get("earlier", ()))
            if len(earlier) > _EARLIER_MAX or any(len(world) != 3 for world in earlier):
                raise Invalid(f"a state of batches whose earlier is {earlier!r}")
            found.earlier_count = len(earlier)
            for to, world in zip(found.earlier, earlier):
                to[:] = [_whole(n, 0, "a state of batches whose earlier has {!r}") for n in world]
            call("stow_batches_set_state", self._handle, byref(found))
            self._begin()

    # ---- life ----

    def close(self) -> None:
        """Stops the readers. Arrays already returned stay valid."""
        with self._lock:
            self._forget_ahead()
            if self._reading is not None:
                self._reading.close()
            self._close()

    def __enter__(self) -> "Batches":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _move_to_this_process(self) -> None:
        """In a worker of a torch DataLoader: opens the files again, each worker with its share.

        A forked worker has the parent's batches, a spawned one has unpickled them.
        """
        if self._pid == os.getpid() and not self._unpickled:
            return
        data = sys.modules.get("torch.utils.data")
        worker = data.get_worker_info() if data is not None else None
        unpickled, self._unpickled = self._unpickled, None
        if self._pid == os.getpid() and worker is None:
            return
        state, starts, touched, epochs = self.state_dict(), self._starts, not self._untouched, self._epochs
        if unpickled is not None:
            starts, touched, place = unpickled
            epochs = Epochs.find(place) if place is not None else None
        rank, world = int(state["rank"]), int(state["world"])
        if worker is not None:
            rank, world = rank * worker.num_workers + worker.id, world * worker.num_workers
        self._close.detach()
        self._lock = threading.RLock()
        self._open(rank, world)
        self._epochs = None
        if worker is not None:
            self._begin_as_worker(state, touched, _later(worker, epochs, starts))

    def _begin_as_worker(self, state: Dict[str, Any], touched: bool, later: int) -> None:
        """Begins at the state of the loader's batches, or the epoch that many after it."""
        if touched or later:
            self.set_epoch(state["epoch"] + touched + later)
        elif state["next_batch"] or "earlier" in state:
            self.load_state_dict(state)
        elif state["epoch"]:
            self.set_epoch(state["epoch"])

    def __reduce__(self) -> Any:
        place = self._epochs.place if self._epochs is not None else None
        return _restore, (self._data, self._settings, self.state_dict(), (self._starts, not self._untouched, place))


def _restore(data: Any, settings: Dict[str, Any], state: Dict[str, Any], begun: "tuple[Any, ...]" = (0, False, None)) -> Batches:
    made = _class()(data, dict(settings, rank=state["rank"], world=state["world"]))
    made.load_state_dict(state)
    made._unpickled = begun
    return made


def _later(worker: Any, epochs: "Optional[Epochs]", starts: int) -> int:
    """Returns how many epochs a loader's workers have read before this one."""
    if epochs is not None and isinstance(worker.seed, int):
        return epochs.number(starts, worker.seed - worker.id)
    warnings.warn("stowage.batches: a worker cannot tell which epoch this is; call set_epoch(n) of the batches before each `for`", stacklevel=4)
    return 0


class _Epoch:
    """One `for` over the batches."""

    def __init__(self, owner: Batches) -> None:
        self._owner = owner

    def __iter__(self) -> "_Epoch":
        return self

    def __next__(self) -> Any:
        owner = self._owner
        with owner._lock:
            if owner._loop is None or owner._loop() is not self:
                raise StopIteration  # another epoch has begun since
            owner._untouched = False
            if owner._finished:
                raise StopIteration
            return owner._take()

    def __len__(self) -> int:
        return len(self._owner)


def _close(close: Any, handle: Any, origins: "List[Origin]") -> None:
    for origin in origins:
        origin.stop()
    close(handle)


def _columns(data: Any) -> Any:
    """Returns a dict of the columns of an opened table; texts by their path. Other data as they are."""
    if isinstance(data, LazyTable):
        return {name: f"{data._path}:{name}" for name in data.columns}
    if isinstance(data, dict):
        return {key: _column(part) for key, part in data.items()}
    return type(data)(map(_column, data)) if type(data) in (list, tuple) else _column(data)


def _column(part: Any) -> Any:
    """Returns the path of a text column that is opened, or of the only column of an .npz if that is text; other parts as they are."""
    if isinstance(part, LazyText):
        file, headers, _ = part._again[1]
        return file if headers is None else part
    path = os.fspath(part) if isinstance(part, (str, os.PathLike)) else None
    if isinstance(path, str) and path.endswith(".npz"):
        names = column_names(path)
        if len(names) == 1 and find_text(f"{path}:{names[0]}", _open_plain):
            return f"{path}:{names[0]}"
    return part


def _open_plain(path: str) -> LazyArray:
    return LazyArray(path, None, None, None, None, None)


def _of_table(parts: "List[Any]") -> "Optional[Invalid]":
    """Returns the error for the first path that is a table with columns of text, which no reader opens as one array."""
    for part in parts:
        names = column_names(part)
        path = os.fsdecode(part) if names else ""
        if len(names) < 2 or not any(find_text(f"{path}:{name}", _open_plain) for name in names):
            continue
        return Invalid(
            f"{path}: a table of {len(names)} columns: {', '.join(names[:12])}{', …' if len(names) > 12 else ''}; "
            f'give one ("{path}:{names[0]}"), a dict of some, or stowage.open("{path}") for all of them'
        )
    return None


def _for_each(dtype: Any, keys: Optional[List[Any]], count: int) -> List[Any]:
    """Returns one type per file, from one for all or from the same structure as the files."""
    if isinstance(dtype, dict):
        if keys is None or set(dtype) - set(keys):
            raise Invalid(f"dtype for {', '.join(map(str, dtype))}, but the files are {keys or 'not named'}")
        return [dtype.get(key) for key in keys]
    if isinstance(dtype, (list, tuple)):
        if len(dtype) != count:
            raise Invalid(f"{len(dtype)} types for {count} files: give one for each, or one for all")
        return list(dtype)
    return [dtype] * count


def _whole(value: Any, least: Optional[int], refusal: str) -> int:
    """Returns the number, also from NumPy; raises `refusal` if it is not a number, too small, or exceeds 64 bits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise Invalid(refusal.format(value)) from None
    if isinstance(value, bool) or (least is not None and not least <= number < 1 << 64):
        raise Invalid(refusal.format(value))
    return number


_torch_class: Any = None


def _class() -> Any:
    """Returns a base class that torch's DataLoader accepts as an IterableDataset, if torch is loaded."""
    global _torch_class
    data = sys.modules.get("torch.utils.data")
    if data is None or not hasattr(data, "IterableDataset"):
        return Batches
    if _torch_class is None:
        _torch_class = type("Batches", (Batches, data.IterableDataset), {"__module__": __name__, "__doc__": Batches.__doc__})
    return _torch_class
