"""Reads objects of a program without running its code.

A property, __getattr__, __len__, __torch_function__ or a metaclass may do anything, and the program has just run out of memory. So what
is read here is what the interpreter and PyTorch store themselves: instance dictionaries, slots, the contents of built-in containers and
the descriptors of C types. The lowest part of _program.py; the build puts both before src/shim/inside.py, so it imports nothing of the
package.
"""
import collections
import itertools
import types
from typing import Any

_BASES = type.__dict__["__mro__"].__get__
_NAMESPACE = type.__dict__["__dict__"].__get__
_NAME = type.__dict__["__name__"].__get__
_READ_BY_C = (types.GetSetDescriptorType, types.MemberDescriptorType)
_LISTS = (list, tuple, collections.deque, set, frozenset)


def is_a(value: Any, *kinds: Any) -> bool:
    """isinstance() without __class__ and __instancecheck__."""
    return any(base is kind for base in _BASES(type(value)) for kind in kinds)


def kind_of(value: Any) -> str:
    """Returns the name of its class."""
    return _NAME(type(value))


def stored(value: Any, name: str, default: Any = None) -> Any:
    """Returns an attribute that is in the object's dictionary, in a slot, or read by C; the default for one that runs code.

    >>> class Odd:
    ...     count = property(lambda self: 1 / 0)
    ...     def __init__(self): self.size = 3
    ...     def __getattribute__(self, name): raise RuntimeError(name)
    >>> stored(Odd(), "size"), stored(Odd(), "count"), stored(Odd(), "none")
    (3, None, None)
    """
    for kind in _BASES(type(value)):
        found = _NAMESPACE(kind).get(name)
        if found is None:
            continue
        if type(found) in _READ_BY_C:
            try:
                return found.__get__(value)
            except Exception:  # an empty slot
                return default
        if type(found) is property:
            return default
        break
    return dict.get(dictionary_of(value), name, default)


def dictionary_of(value: Any) -> "dict[str, Any]":
    """Returns the instance dictionary, {} if there is none."""
    for kind in _BASES(type(value)):
        found = _NAMESPACE(kind).get("__dict__")
        if found is not None:
            held = found.__get__(value) if type(found) is types.GetSetDescriptorType else None
            return held if held is not None and is_a(held, dict) else {}
    return {}


def fields_of(value: Any) -> "list[tuple[str, Any]]":
    """Returns the stored attributes of an object: its dictionary, and its slots."""
    found = [pair for pair in dict.items(dictionary_of(value)) if type(pair[0]) is str]
    for kind in _BASES(type(value)):
        for name, slot in list(_NAMESPACE(kind).items()):
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
        for base in _BASES(kind):
            if "__torch_dispatch__" in _NAMESPACE(base):
                made_in = _NAMESPACE(base).get("__module__")
                if base is not self.kind and not (type(made_in) is str and made_in.startswith("torch.")):
                    return False
                break
        self.own.add(id(kind))
        return True

    def shape(self, tensor: Any) -> "tuple[int, ...]":
        shape = stored(tensor, "shape")
        return tuple(int(n) for n in tuple.__iter__(shape)) if shape is not None and is_a(shape, tuple) else ()

    def count(self, tensor: Any) -> int:
        count = 1
        for n in self.shape(tensor):
            count *= n
        return count

    def size(self, tensor: Any) -> int:
        """Returns its bytes."""
        kind = stored(tensor, "dtype")
        return self.count(tensor) * int(self.torch._utils._element_size(kind)) if kind is not None else 0

    def device(self, tensor: Any) -> str:
        fields = dictionary_of(tensor)  # of a fake tensor, which has no memory
        fake = dict.get(fields, "_fake_device") or dict.get(fields, "fake_device")
        return str(getattr(fake or stored(tensor, "device"), "type", "cpu"))

    def graph(self, tensor: Any) -> Any:
        """Returns the node of the graph that made it, None if there is none."""
        return stored(tensor, "grad_fn")
