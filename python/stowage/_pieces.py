"""Pieces of memory: which objects show one, and how much it is.

Knows the arrays of NumPy, PyTorch, CuPy, JAX and TensorFlow, SciPy's matrices, pandas' tables, blocks of heaps and plain
bytes; imports no framework: a framework that is not loaded has no objects.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, List, Optional, Tuple

from ._access import class_name, is_a, is_known
from ._heap import Block
from ._memory import loaded
from ._weighing import is_own_tensor


@dataclass
class Large:
    """One piece of memory and the object that shows it."""

    kind: str  #: "numpy.ndarray float64 (1000, 100)"
    bytes: int  #: of the whole piece: of a view, what it is a view of
    place: str  #: "host", "cuda:0", "file"
    key: Tuple[Any, ...]  #: the same for all views of one piece
    object: Any
    view: bool  #: the object shows only a part of the piece


def numpy_piece(array: Any, numpy: Any) -> Large:
    plain = numpy.asarray(array)  # without attributes of the program's class
    root = array
    base = numpy.ndarray.base.__get__(root)
    while is_a(base, numpy.ndarray):
        root, base = base, numpy.ndarray.base.__get__(base)
    whole, place = numpy.ndarray.nbytes.__get__(root), "host"
    if base is not None and is_known(type(base)):
        if class_name(base) == "mmap":
            place = "file"
        try:
            whole = max(whole, memoryview(base).nbytes)
        except TypeError:
            pass
    pointer = numpy.asarray(root).__array_interface__["data"][0]
    kind = f"numpy.ndarray {plain.dtype} {plain.shape}"
    return Large(kind, whole, place, ("host", pointer), array, array is not root or plain.nbytes < whole)


def _torch_piece(tensor: Any) -> "Optional[Large]":
    if not is_known(type(tensor)):
        return _own_tensor_piece(tensor)
    try:
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
        whole, pointer = storage.nbytes(), storage.data_ptr()
    except Exception:  # sparse, meta and functional tensors have no storage
        return None
    place = "host" if tensor.device.type == "cpu" else str(tensor.device)
    kind = f"torch.Tensor {str(tensor.dtype).replace('torch.', '')} {tuple(tensor.shape)}"
    own = tensor.element_size() * tensor.nelement()
    return Large(kind, whole, place, (place, pointer), tensor, own < whole)


def _own_tensor_piece(tensor: Any) -> "Optional[Large]":
    """A tensor of the program's class, read as a plain one: its own class may define any operation."""
    torch = loaded("torch")
    if torch is None or not is_own_tensor(type(tensor)):
        return None
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        piece = _torch_piece(torch.Tensor.as_subclass(tensor, torch.Tensor))
    if piece is not None:
        piece.object = tensor
    return piece


def _cupy_piece(array: Any) -> Large:
    memory = array.data.mem
    kind = f"cupy.ndarray {array.dtype} {array.shape}"
    whole = max(memory.size, array.nbytes)
    place = f"cuda:{array.device.id}"
    return Large(kind, whole, place, (place, memory.ptr), array, array.nbytes < whole)


def _jax_piece(array: Any) -> "Optional[Large]":
    try:
        if array.is_deleted():
            return None
        device = next(iter(array.devices()))
        place = "host" if device.platform == "cpu" else f"{device.platform}:{device.id}"
        kind = f"jax.Array {array.dtype} {array.shape}"
        return Large(kind, array.nbytes, place, ("jax", id(array)), array, False)
    except Exception:  # a tracer, or an array of several processes
        return None


def _scipy_piece(matrix: Any) -> Large:
    names = ("data", "indices", "indptr", "row", "col", "offsets")
    whole = sum(getattr(getattr(matrix, name, None), "nbytes", 0) for name in names)
    kind = f"scipy.sparse {matrix.format} {matrix.dtype} {matrix.shape}"
    return Large(kind, whole, "host", ("object", id(matrix)), matrix, False)


def _pandas_piece(table: Any) -> Large:
    used = table.memory_usage(index=True)
    kind = f"pandas.{type(table).__name__} {table.shape}"
    return Large(kind, int(used if isinstance(used, int) else used.sum()), "host", ("object", id(table)), table, False)


def _tensorflow_piece(tensor: Any) -> "Optional[Large]":
    try:
        device = tensor.device.rpartition("/device:")[2].lower()
        place = "host" if device.startswith("cpu") or not device else device.replace("gpu", "cuda")
        whole = int(tensor.shape.num_elements()) * tensor.dtype.size
        kind = "Variable" if hasattr(tensor, "assign") else "Tensor"
        return Large(f"tf.{kind} {tensor.dtype.name} {tuple(tensor.shape)}", whole, place, ("tf", id(tensor)), tensor, False)
    except Exception:
        return None


def _block_piece(block: Block) -> Large:
    kind = f"stowage.Block {block.tag or ''}".rstrip()
    return Large(kind, block.nbytes, block.heap.device or "the first device", ("block", id(block)), block, False)


PLAIN = frozenset((bytes, bytearray, str))


class Kinds:
    """The types that are shown as memory, for the frameworks loaded when it was created."""

    def __init__(self) -> None:
        self._makers: "Dict[type, Any]" = {}
        self._bases: "List[Tuple[Any, Any]]" = []
        numpy = loaded("numpy")
        self._add("pandas", ("DataFrame", "Series"), _pandas_piece)
        self._numpy = lambda array: numpy_piece(array, numpy)
        self._add("numpy", ("ndarray",), self._numpy)
        self._add("torch", ("Tensor",), _torch_piece)
        self._add("cupy", ("ndarray",), _cupy_piece)
        self._add("jax", ("Array",), _jax_piece)
        self._add("scipy.sparse", ("spmatrix", "sparray"), _scipy_piece)
        self._add("tensorflow", ("Tensor", "Variable"), _tensorflow_piece)
        self._bases.append((Block, _block_piece))
        for plain in PLAIN:
            self._makers[plain] = self.plain

    def _add(self, library: str, names: "Tuple[str, ...]", make: Any) -> None:
        """Adds the types of a loaded library. An old version, or another library of that name, may lack some."""
        module = loaded(library)
        kinds = tuple(kind for kind in (getattr(module, name, None) for name in names) if isinstance(kind, type))
        if kinds:
            self._bases.append((kinds, make))

    @staticmethod
    def plain(text: Any) -> "Optional[Large]":
        size = sys.getsizeof(text)
        kind = f"{type(text).__name__} of {len(text)}"
        return Large(kind, size, "host", ("object", id(text)), text, False)

    def maker(self, kind: type) -> Any:
        """Returns the function that describes objects of that type, or None."""
        try:
            return self._makers[kind]
        except KeyError:
            found = None
            for base, make in self._bases:
                try:
                    if issubclass(kind, base) and (is_known(kind) or make in (self._numpy, _torch_piece)):
                        found = make
                        break
                except TypeError:
                    continue
            self._makers[kind] = found
            return found

    def shown(self, things: "List[Any]") -> "FrozenSet[type]":
        """Returns which types of those objects are shown. For many objects this is far faster than a call for each."""
        return frozenset(kind for kind in set(map(type, things)) if self.maker(kind) is not None)

    def piece(self, thing: Any) -> "Optional[Large]":
        """Returns the memory of one object, or None if it is not an array, a table or text."""
        make = self.maker(type(thing))
        if make is None:
            return None
        try:
            return make(thing)
        except Exception:  # ignore an object that is only partly constructed or destroyed
            return None
