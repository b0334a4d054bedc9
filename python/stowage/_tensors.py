"""Reads the tensors, containers and fields of a program without running its code.

A property, __getattr__, __len__, __torch_function__ or a metaclass may do anything, and the program has just run out of memory. So what
is read here is what the interpreter and PyTorch store themselves. A part of _program.py, above _access.py.
"""
import itertools
import types
from _collections import deque
from typing import Any

from ._access import *

_LISTS = (list, tuple, deque, set, frozenset)


_PLAIN = frozenset(map(id, (int, float, str, bool, bytes, type(None))))


def is_plain(value: Any) -> bool:
    """Returns whether it is a number, a text or None, and not of a subclass."""
    return id(type(value)) in _PLAIN


def dictionary_of(value: Any) -> "dict[str, Any]":
    """Returns the instance dictionary, {} if there is none."""
    held = get(value, "__dict__")
    return held if is_a(held, dict) else {}


def fields_of(value: Any) -> "list[tuple[str, Any]]":
    """Returns the stored attributes of an object: its dictionary, and its slots."""
    found = [pair for pair in dict.items(dictionary_of(value)) if type(pair[0]) is str]
    for kind in bases_of(type(value)):
        for name, slot in list(names_of(kind).items()):
            if type(slot) is types.MemberDescriptorType and not name.startswith("__"):
                try:
                    found.append((name, slot.__get__(value)))
                except Exception:  # an empty slot
                    pass
    return found


def entries_of(value: Any, most: int) -> "list[tuple[Any, Any]]":
    """Returns the last entries of a built-in container, with their keys; of a subclass too. [] for another object."""
    if is_a(value, dict):
        start = max(0, dict.__len__(value) - most)
        return list(itertools.islice(dict.items(value), start, None))
    for kind in _LISTS:
        if is_a(value, kind):
            start = max(0, kind.__len__(value) - most)
            return list(enumerate(itertools.islice(kind.__iter__(value), start, None), start))
    return []


def first_entries(value: Any, most: int) -> "list[tuple[Any, Any]]":
    """Returns the first entries of a built-in container, with their keys."""
    if is_a(value, dict):
        return list(itertools.islice(dict.items(value), most))
    kind = next((kind for kind in _LISTS if is_a(value, kind)), None)
    return list(enumerate(itertools.islice(kind.__iter__(value), most))) if kind is not None else []


def count_of(value: Any) -> int:
    """Returns the length of a built-in container, 0 for another object."""
    kind = next((kind for kind in (dict, *_LISTS) if is_a(value, kind)), None)
    return kind.__len__(value) if kind is not None else 0


class Tensors:
    """Reads tensors. While it is entered, PyTorch asks neither a mode nor a subclass (__torch_function__)."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.kind = torch.Tensor
        self.own = {id(kind) for kind in (torch.Tensor, torch.nn.Parameter)}
        self.guard: Any = None

    def __enter__(self) -> "Tensors":
        self.guard = self.torch._C.DisableTorchFunction()
        self.guard.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.guard.__exit__(None, None, None)

    def has(self, value: Any) -> bool:
        """Returns whether it is a tensor that can be read: the shape of a subclass with __torch_dispatch__ of its own may run its code."""
        kind = type(value)
        if id(kind) in self.own:
            return True
        if not is_a(value, self.kind):
            return False
        base = next((base for base in bases_of(kind) if "__torch_dispatch__" in names_of(base)), self.kind)
        if base is not self.kind and not (module_of(base).startswith("torch.") and is_known(base)):
            return False
        self.own.add(id(kind))
        return True

    def read(self, tensor: Any, name: str) -> Any:
        """Returns an attribute as PyTorch itself stores it, whatever a subclass defines under its name."""
        return in_class(self.kind, name).__get__(tensor)

    def shape(self, tensor: Any) -> "tuple[int, ...]":
        return tuple(int(n) for n in tuple.__iter__(self.read(tensor, "shape")))

    def count(self, tensor: Any) -> int:
        count = 1
        for n in self.shape(tensor):
            count *= n
        return count

    def size(self, tensor: Any) -> int:
        """Returns its bytes."""
        return self.count(tensor) * int(self.torch._utils._element_size(self.read(tensor, "dtype")))

    def device(self, tensor: Any) -> str:
        fields = dictionary_of(tensor)  # of a fake tensor, which has no memory
        fake = dict.get(fields, "_fake_device") or dict.get(fields, "fake_device")
        return str(getattr(fake or self.read(tensor, "device"), "type", "cpu"))

    def graph(self, tensor: Any) -> Any:
        """Returns the node of the graph that made it, None if there is none."""
        return self.read(tensor, "grad_fn")
