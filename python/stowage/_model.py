"""Shared by load and save: the C structures of stowage/model.h, an open model, and the types of torch and NumPy."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import sys
import threading
import weakref
from ctypes import POINTER, c_char_p, c_int, c_uint32, c_uint64, c_void_p
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ._library import Growing, Invalid, Unsupported, call, declare, lib, need, shown

#: Bytes that a thread reads in one call: large enough that Python's overhead does not matter.
PIECE_BYTES = 8 << 20
#: Every block of a quantized type divides this.
BLOCK = 256


class ModelInfo(Growing):
    _fields_ = [
        ("file_count", c_uint32),
        ("format", c_char_p),
        ("tensor_count", c_uint64),
        ("bytes", c_uint64),
        ("metadata", c_char_p),
    ]


class ModelTensor(Growing):
    _fields_ = [
        ("dims", c_uint32),
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("shape", POINTER(c_uint64)),
        ("count", c_uint64),
        ("bytes", c_uint64),
        ("block_values", c_uint32),
        ("block_bytes", c_uint32),
        ("convertible", c_uint32),
        ("file", c_uint32),
        ("offset", c_uint64),
        ("path", c_char_p),
        ("quantized", c_uint32),
        ("reserved", c_uint32),
    ]


class ModelPiece(Growing):
    _fields_ = [
        ("allow_nan", c_uint32),
        ("first", c_uint64),
        ("count", c_uint64),
        ("runs", c_uint64),
        ("step", c_uint64),
        ("dtype", c_char_p),
        ("to", c_void_p),
    ]


class ModelEntry(Growing):
    _fields_ = [
        ("dims", c_uint32),
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("shape", POINTER(c_uint64)),
        ("allow_nan", c_uint32),
        ("reserved", c_uint32),
    ]


declare(
    {
        "stow_model_open": (c_int, [POINTER(c_void_p), c_char_p, c_void_p]),
        "stow_model_close": (None, [c_void_p]),
        "stow_model_get_info": (c_int, [c_void_p, POINTER(ModelInfo)]),
        "stow_model_get_tensor": (c_int, [c_void_p, c_uint64, POINTER(ModelTensor)]),
        "stow_model_read": (c_int, [c_void_p, c_uint64, POINTER(ModelPiece)]),
        "stow_model_check": (c_int, [c_void_p]),
        "stow_model_writer_open": (c_int, [POINTER(c_void_p), c_char_p, POINTER(POINTER(ModelEntry)), c_uint64, c_char_p]),
        "stow_model_writer_put": (c_int, [c_void_p, c_uint64, c_uint64, c_uint64, c_char_p, c_void_p]),
        "stow_model_writer_commit": (c_int, [c_void_p]),
        "stow_model_writer_close": (None, [c_void_p]),
    }
)


class Facts(NamedTuple):
    """A tensor as described in the header of a file."""

    number: int
    name: str
    dtype: str  #: "float32", "bfloat16"; "Q4_K", "F8_E4M3" where NumPy has no name
    shape: Tuple[int, ...]
    values: int
    bytes: int
    block_values: int
    block_bytes: int
    convertible: bool
    path: str  #: of its file
    offset: int  #: in that file
    quantized: bool  #: values or scales of a layer that is quantized with scales beside it


class Model:
    """An open model: the list of its tensors, and reads of their values by any thread."""

    def __init__(self, path: Any, allow_nan: bool = False) -> None:
        self.allow_nan = allow_nan
        self.path = os.fspath(path)
        if not isinstance(self.path, str):
            self.path = os.fsdecode(self.path)
        handle = c_void_p()
        call("stow_model_open", ctypes.byref(handle), os.fsencode(self.path), None)
        self._handle = handle
        self._closer = weakref.finalize(self, lib().stow_model_close, handle)
        info = ModelInfo()
        call("stow_model_get_info", handle, ctypes.byref(info))
        self.format = info.format.decode()
        self.bytes = int(info.bytes)
        self.metadata_text: Optional[bytes] = info.metadata
        self.tensors: Dict[str, Facts] = {}
        one = ModelTensor()
        for i in range(info.tensor_count):
            call("stow_model_get_tensor", handle, i, ctypes.byref(one))
            name = one.name.decode("utf-8", "surrogateescape")
            self.tensors[name] = Facts(
                i,
                name,
                one.dtype.decode(),
                tuple(one.shape[: one.dims]),
                int(one.count),
                int(one.bytes),
                int(one.block_values),
                int(one.block_bytes),
                bool(one.convertible),
                os.fsdecode(one.path),
                int(one.offset),
                bool(one.quantized),
            )

    def close(self) -> None:
        self._closer()

    def read(self, number: int, run: "Run", dtype: Optional[bytes], to: int) -> None:
        if not self._closer.alive:
            raise Invalid(f"{shown(self.path)} is closed; load it again")
        piece = ModelPiece(int(self.allow_nan), run.first, run.values, run.runs, run.step, dtype, to)
        call("stow_model_read", self._handle, number, ctypes.byref(piece))

    def check(self) -> None:
        """Raises if a file changed since it was opened."""
        call("stow_model_check", self._handle)


class Run(NamedTuple):
    """`runs` times `values` values, each `step` values after the one before."""

    first: int
    values: int
    runs: int = 1
    step: int = 0

    def split(self, most: int) -> "Iterator[Run]":
        """Yields parts of at most about `most` values, in order. A part begins at a whole block."""
        if self.runs > 1 and self.values < most:
            each = max(1, most // max(1, self.values))
            for i in range(0, self.runs, each):
                yield Run(self.first + i * self.step, self.values, min(each, self.runs - i), self.step)
            return
        most = max(BLOCK, most - most % BLOCK)
        for i in range(self.runs):
            first, end = self.first + i * self.step, self.first + i * self.step + self.values
            while first < end:
                stop = min(end, first - first % BLOCK + most)
                yield Run(first, stop - first)
                first = stop


def select(shape: "Tuple[int, ...]", index: Any, name: str) -> "Tuple[Tuple[int, ...], List[Run]]":
    """Returns the shape of shape[index], and the values to read for it in order.

    >>> select((4, 10), (slice(1, 3), slice(2, 5)), "w")
    ((2, 3), [Run(first=12, values=3, runs=2, step=10)])
    >>> select((4, 10), slice(1, 3), "w")
    ((2, 10), [Run(first=10, values=20, runs=1, step=0)])
    """
    given = list(index) if isinstance(index, tuple) else [index]
    if sum(n is Ellipsis for n in given) > 1:
        raise IndexError("an index can have only one ellipsis")
    missing = len(shape) - sum(n is not Ellipsis for n in given)
    if missing < 0:
        raise IndexError(f"{shown(name)} has {len(shape)} dimensions, {len(given)} were indexed")
    at = next((i for i, n in enumerate(given) if n is Ellipsis), len(given))
    given[at : at + 1] = [slice(None)] * missing
    taken: List[Tuple[int, int, int]] = []  # first, count, step of each dimension
    result: List[int] = []
    for n, size in zip(given, shape):
        if isinstance(n, slice):
            start, stop, step = n.indices(size)
            if step < 0:
                raise IndexError("steps below 0 are not read from a file: load the tensor, then index it")
            taken.append((start, len(range(start, stop, step)), step))
            result.append(taken[-1][1])
        elif _is_number(n):
            i = n.__index__()
            if not -size <= i < size:
                raise IndexError(f"index {i} is out of range for a dimension of {size}")
            taken.append((i % size, 1, 1))
        else:
            raise IndexError("only numbers, slices and ... are read from a file: load the tensor, then index it")
    return tuple(result), _runs(shape, taken)


def _is_number(n: Any) -> bool:
    """Whether an index is one number. An array of one number keeps a dimension, and True is no row: neither counts."""
    one = getattr(n, "ndim", 0) == 0 and "bool" not in str(getattr(n, "dtype", ""))
    return one and hasattr(n, "__index__") and not isinstance(n, bool)


def _runs(shape: "Tuple[int, ...]", taken: "List[Tuple[int, int, int]]") -> "List[Run]":
    if any(count == 0 for _, count, _ in taken):
        return []
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * shape[d + 1]
    d, inner = len(shape) - 1, 1
    while d >= 0 and taken[d][:2] == (0, shape[d]):
        inner *= shape[d]
        d -= 1
    first = 0
    if d >= 0 and (taken[d][2] == 1 or taken[d][1] == 1):  # the values of this dimension follow one another
        first, inner = taken[d][0] * strides[d], inner * taken[d][1]
        d -= 1
    if d < 0:
        return [Run(first, inner)]
    start, count, step = taken[d]
    first += start * strides[d]
    outer = [range(s * strides[k], (s + (c - 1) * t) * strides[k] + 1, t * strides[k]) for k, (s, c, t) in enumerate(taken[:d])]
    return [Run(first + sum(place), inner, count, step * strides[d]) for place in itertools.product(*outer)]


# ---- types ----


def torch_is_there() -> bool:
    return "torch" in sys.modules or importlib.util.find_spec("torch") is not None


#: Names of the library for types that only torch has, and torch's names.
_FLOAT8 = {
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "C64": "complex64",
}
#: For types that torch before 2.3 lacks: the next type that holds every value.
_WIDER = {"uint16": "int32", "uint32": "int64"}
_FLOATS = ("float64", "float32", "float16", "bfloat16")


class Frame:
    """Makes tensors of torch or arrays of NumPy, and knows their types by the names of the library."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.module = need(name, "stowage.load")

    def type(self, name: str) -> Any:
        """Returns the framework's type of this name; None if it has none."""
        if self.name == "torch":
            return getattr(self.module, _FLOAT8.get(name, name), None)
        if name == "bfloat16" or name.startswith("F8_"):
            try:
                import ml_dtypes  # type: ignore[import-not-found, unused-ignore]
            except ImportError:
                return None
            kind = getattr(ml_dtypes, _FLOAT8.get(name, name), None)
            return None if kind is None else self.module.dtype(kind)
        if name == "C64":
            return self.module.dtype("complex64")
        return self.module.dtype(name) if name.islower() else None

    def choose(self, facts: Facts, dtype: Optional[str], raw: bool) -> "Tuple[str, Any, Optional[bytes], Tuple[int, ...]]":
        """Returns what a tensor becomes: name and type, what to convert it to (None: nothing), and the shape."""
        quantized = facts.block_values > 1
        if raw and (quantized or self.type(facts.dtype) is None):
            last = (facts.shape[-1] if facts.shape else 1) // facts.block_values * facts.block_bytes
            return "uint8", self.type("uint8"), None, (*facts.shape[:-1], last)
        is_float = quantized or facts.dtype in _FLOATS or (facts.dtype.startswith("F8_") and facts.convertible)
        wanted = dtype if dtype is not None and is_float and not facts.quantized else facts.dtype
        if self.type(wanted) is None:
            wanted = _WIDER.get(wanted, "float32" if is_float else wanted)
        kind = self.type(wanted)
        if kind is None or (wanted != facts.dtype and not facts.convertible):
            other = "raw=True loads its bytes" if quantized or is_float else 'framework="numpy" loads it'
            raise Unsupported(f"tensor {shown(facts.name)}: {self.name} has no values of type {facts.dtype}; {other}")
        return wanted, kind, None if wanted == facts.dtype else wanted.encode(), facts.shape

    def empty(self, shape: "Tuple[int, ...]", kind: Any, count: int) -> Any:
        """Returns a tensor in host memory. Large ones come from NumPy, which requests huge pages: they are faster to fault in."""
        if self.name == "numpy":
            try:
                return self.module.empty(shape, kind)
            except ValueError as reason:  # more than an index can count, in a shape with a 0
                raise Unsupported(f"shape {shape}: NumPy cannot hold it: {reason}") from None
        width = self.module.empty((), dtype=kind).element_size()
        if count * width >= 4 << 20:
            try:
                import numpy
            except ImportError:
                pass
            else:
                flat = self.module.from_numpy(numpy.empty(count * width, "uint8"))
                return flat.view(kind).view(shape)
        return self.module.empty(shape, dtype=kind)

    def address(self, tensor: Any) -> int:
        return int(tensor.data_ptr()) if self.name == "torch" else int(tensor.ctypes.data)

    def width(self, tensor: Any) -> int:
        return int(tensor.element_size() if self.name == "torch" else tensor.itemsize)


def is_swapped(tensor: Any) -> bool:
    """Returns whether an array's values are not in this machine's byte order."""
    return hasattr(tensor.dtype, "newbyteorder") and tensor.dtype.byteorder == ">"


def type_of(tensor: Any) -> str:
    """Returns the library's name for the type of a tensor or an array, whatever its byte order."""
    text = str(tensor.dtype)
    if text.startswith("torch."):
        text = text[len("torch.") :]
    elif is_swapped(tensor):
        text = str(tensor.dtype.newbyteorder("="))
    return next((ours for ours, theirs in _FLOAT8.items() if theirs == text), text)


# ---- threads ----


def in_threads(threads: int, work: "Callable[[int, Callable[[], Any]], None]", jobs: "Iterator[Any]") -> None:
    """Runs work(member, next_job) on several threads, the caller's among them. next_job returns None at the end, or after a failure."""
    lock = threading.Lock()
    failed: List[BaseException] = []

    def next_job() -> Any:
        with lock:
            return None if failed else next(jobs, None)

    def member(number: int) -> None:
        try:
            work(number, next_job)
        except BaseException as reason:
            failed.append(reason)

    others = [threading.Thread(target=member, args=(i,), name=f"stowage-{i}", daemon=True) for i in range(1, threads)]
    for thread in others:
        thread.start()
    try:
        member(0)
        for thread in others:
            thread.join()
    except BaseException as reason:  # an interrupt: the others stop after their job
        failed.append(reason)
        for thread in others:
            thread.join()
    if failed:
        raise failed[0]


def thread_count(threads: Optional[int]) -> int:
    if threads is not None:
        if threads < 1:
            raise Invalid(f"threads: {threads}; give 1 or more")
        return min(threads, 64)
    try:
        available = len(os.sched_getaffinity(0))
    except AttributeError:
        available = os.cpu_count() or 1
    return min(available, 8)
