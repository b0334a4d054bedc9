"""Models, written tensor by tensor: `stowage.save(model.state_dict(), "model.safetensors")`."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
from ctypes import POINTER, c_uint64, c_void_p, pointer
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from ._library import Invalid, Unsupported, call, lib, parse_size, shown
from ._load import LazyModel, _float_type
from ._model import ModelEntry, is_swapped, type_of

_FLOATS = ("float64", "float32", "float16", "bfloat16")


def save(
    tensors: Any,
    path: Any,
    *,
    dtype: Any = None,
    metadata: "Optional[Mapping[str, str]]" = None,
    shard: "str | int | None" = None,
    staging: "str | int" = "64M",
    allow_nan: bool = False,
) -> None:
    """Writes tensors to a safetensors file, or to a folder of such files with an index.

    `tensors` is a dict of torch tensors or NumPy arrays, a torch module, or what `stowage.load(..., lazy=True)` returns, whose tensors
    are then read one at a time. Tensors on a GPU, or that are not contiguous, pass through at most `staging` bytes of host memory.
    `path` ends with .safetensors, or names a folder, in which a new file begins before one exceeds `shard` ("2G"). The file or folder
    appears under its name only when it is complete.

    >>> import numpy, os, tempfile
    >>> from stowage import load, save
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = os.path.join(folder.name, "model.safetensors")
    >>> save({"w": numpy.ones((2, 3)), "step": numpy.array(7)}, file, dtype="float16", metadata={"format": "np"})
    >>> {name: (made.dtype.name, made.shape) for name, made in load(file, framework="numpy").items()}
    {'step': ('int64', ()), 'w': ('float16', (2, 3))}

    dtype     float tensors are written in this type, rounded to nearest; others stay
    metadata  strings for the file's __metadata__; "format" is "pt" or "np" unless given
    allow_nan tensors that `dtype` converts may have NaN and infinities, and values that become infinite (above 65504 for float16);
              otherwise they raise Invalid, as they do in `stowage shrink`
    """
    if hasattr(tensors, "state_dict"):
        tensors = tensors.state_dict()
    if not isinstance(tensors, Mapping):
        raise Invalid(f"tensors: {type(tensors).__name__}; give a dict of tensors or a torch module")
    path = os.fsdecode(os.fspath(path))
    for ending in (".gguf", ".pt", ".pth", ".bin", ".npz"):
        if path.endswith(ending):
            raise Unsupported(f"{shown(path)}: save writes .safetensors; `stowage shrink` writes GGUF from GGUF")
    most = parse_size(staging, "staging")
    if most < 1 << 20:
        raise Invalid(f"staging: {staging!r}; give at least 1M")
    items = [_Item.of(tensors, name, None if dtype is None else _float_type(dtype), allow_nan) for name in tensors]
    notes = {str(key): str(value) for key, value in (metadata or {}).items()}
    notes.setdefault("format", "np" if items and all(item.numpy for item in items) else "pt")
    if path.endswith(".safetensors"):
        if shard is not None:
            raise Invalid(f"shard: {shown(path)} is one file; name a folder to write several")
        _write_file(tensors, items, path, notes, most)
    else:
        _write_folder(tensors, items, path, notes, most, None if shard is None else parse_size(shard, "shard"))


class _Item(NamedTuple):
    name: str
    dtype: str  #: as written
    shape: Tuple[int, ...]
    bytes: int
    numpy: bool
    allow_nan: bool

    @staticmethod
    def of(tensors: "Mapping[str, Any]", name: Any, dtype: Optional[str], allow_nan: bool) -> "_Item":
        if not isinstance(name, str):
            raise Invalid(f"tensors: {name!r} is not a name; names are strings")
        if "\0" in name:
            raise Invalid(f"tensors: {name!r}: a name with a NUL, which no reader finds again; rename the tensor")
        try:
            name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise Invalid(f"tensors: {name!r} is no text in UTF-8; rename the tensor") from None
        one = tensors.view(name) if isinstance(tensors, LazyModel) else tensors[name]
        if not hasattr(one, "dtype") or not hasattr(one, "shape"):
            raise Invalid(f"{shown(name)}: {type(one).__name__} is not a tensor; a state_dict holds tensors only")
        if not isinstance(tensors, LazyModel) and not hasattr(one, "ctypes") and not hasattr(one, "data_ptr"):
            raise Invalid(f"{shown(name)}: {type(one).__name__} is one number, not an array; use numpy.asarray(x)")
        if getattr(one, "is_sparse", False) or getattr(one, "is_quantized", False):
            raise Unsupported(f"{shown(name)}: safetensors holds dense tensors; use .to_dense() or .dequantize()")
        if str(getattr(one, "device", "")) == "meta":
            raise Invalid(f"{shown(name)}: on the device \"meta\", without values; load the model before you save it")
        kind = type_of(one)
        written = dtype if dtype is not None and kind in _FLOATS else kind
        count = 1
        for n in one.shape:
            count *= int(n)
        numpy = not str(one.dtype).startswith("torch.")
        return _Item(name, written, tuple(int(n) for n in one.shape), count * _width(name, written), numpy, allow_nan)


_WIDTHS = {"bool": 1, "C64": 8, "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}
_WIDTHS.update({f"F8_{kind}": 1 for kind in ("E4M3", "E5M2", "E8M0", "E4M3FNUZ", "E5M2FNUZ")})
_WIDTHS.update({f"{kind}{8 * n}": n for kind in ("int", "uint") for n in (1, 2, 4, 8)})


def _width(name: str, kind: str) -> int:
    if kind not in _WIDTHS:
        raise Unsupported(f"{shown(name)}: safetensors has no values of type {kind}")
    return _WIDTHS[kind]


# ---- files ----


def _write_file(tensors: "Mapping[str, Any]", items: "List[_Item]", path: str, notes: "Dict[str, str]", most: int) -> None:
    entries = (POINTER(ModelEntry) * max(1, len(items)))()
    held = []
    for i, item in enumerate(items):
        shape = (c_uint64 * max(1, len(item.shape)))(*item.shape)
        name = item.name.encode("utf-8", "surrogateescape")
        held.append(ModelEntry(len(item.shape), name, item.dtype.encode(), shape, int(item.allow_nan), 0))
        entries[i] = pointer(held[-1])
    handle = c_void_p()
    text = json.dumps(notes, ensure_ascii=False, separators=(",", ":")).encode() if notes else None
    call("stow_model_writer_open", ctypes.byref(handle), os.fsencode(path), entries, len(items), text)
    close = lib().stow_model_writer_close
    try:
        for i, item in enumerate(items):
            _put(handle, i, tensors[item.name], item.dtype, most)
        call("stow_model_writer_commit", handle)
    finally:
        close(handle)


def _put(handle: c_void_p, number: int, one: Any, dtype: str, most: int) -> None:
    """Writes one tensor. A tensor of a lazy model is dropped with this frame, before the next one is read."""
    kind = type_of(one)
    convert = None if kind == dtype else kind.encode()
    at = 0
    for part in _pieces(one, most):
        count = _count(part)
        call("stow_model_writer_put", handle, number, at, count, convert, _address(part))
        at += count


def _count(part: Any) -> int:
    return int(part.numel() if hasattr(part, "numel") else part.size)


def _address(part: Any) -> int:
    return int(part.data_ptr() if hasattr(part, "data_ptr") else part.ctypes.data)


def _pieces(one: Any, most: int) -> "Iterator[Any]":
    """Yields the values of a tensor in C order as contiguous parts in host memory; a part that had to be copied has at most `most`
    bytes."""
    if _count(one) == 0:
        return
    torch_tensor = hasattr(one, "data_ptr")
    if torch_tensor:
        one = one.detach()
        direct = one.device.type == "cpu" and one.is_contiguous() and not one.is_conj() and not one.is_neg()
        width = one.element_size()
    else:
        direct, width = one.flags.c_contiguous and not is_swapped(one), one.itemsize
    if direct:
        yield one
        return
    if _count(one) * width <= most or one.ndim == 0:
        if torch_tensor:
            yield one.to("cpu").contiguous().resolve_conj().resolve_neg()
        else:
            yield one.astype(one.dtype.newbyteorder("="), order="C")  # a copy in this machine's byte order
        return
    rows = max(1, most // (_count(one) // one.shape[0] * width))
    for first in range(0, one.shape[0], rows):
        part = one[first : first + rows]
        yield from _pieces(part if len(part) > 1 else part[0], most)


# ---- folders ----


def _write_folder(
    tensors: "Mapping[str, Any]", items: "List[_Item]", path: str, notes: "Dict[str, str]", most: int, shard: Optional[int]
) -> None:
    path = path.rstrip("/") or "/"
    if os.path.lexists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise Invalid(f"{shown(path)} exists; name a new or an empty folder, or a file that ends with .safetensors")
    files: "List[List[_Item]]" = [[]]
    used = 0
    for item in items:
        if shard is not None and files[-1] and used + item.bytes > shard:
            files.append([])
            used = 0
        files[-1].append(item)
        used += item.bytes
    partial = path + ".partial"
    os.mkdir(partial)
    try:
        names = _write_files(tensors, files, partial, notes, most)
        if len(files) > 1:
            _write_index(partial, files, names)
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(path)  # empty
        os.rename(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _write_files(tensors: "Mapping[str, Any]", files: "List[List[_Item]]", folder: str, notes: "Dict[str, str]", most: int) -> "List[str]":
    names = []
    for i, items in enumerate(files):
        names.append("model.safetensors" if len(files) == 1 else f"model-{i + 1:05}-of-{len(files):05}.safetensors")
        _write_file(tensors, items, os.path.join(folder, names[-1]), notes, most)
    return names


def _write_index(folder: str, files: "List[List[_Item]]", names: "List[str]") -> None:
    total = sum(item.bytes for items in files for item in items)
    where = {item.name: name for items, name in zip(files, names) for item in items}
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
