"""Finds the values of a program that keep tensors, and how many graphs each of them has.

A part of _kept.py, above _tensors.py: it looks through the variables of the running functions, and runs no code of the program.
"""
import sys
import time
from typing import Any

from ._access import *
from ._tensors import *

OBJECTS_MOST = 4000
ENTRIES_MOST = 64  # of a container that are looked at


class Holder:
    """A value of the program that keeps tensors: how it is reached, and how many graphs it has."""

    def __init__(self, name: str, field: str, value: Any, graphs: int, tensors: int, path: str, frame: Any) -> None:
        self.name, self.field, self.value, self.graphs, self.tensors = name, field, value, graphs, tensors
        self.path, self.frame = path, frame
        self.size = 0  # bytes on a device


def key_of(holder: Holder) -> str:
    """Returns how the source writes it (names_in)."""
    return "." + holder.field if holder.field else holder.name


class Search:
    """Looks through the variables of the running functions."""

    def __init__(self, torch: Any, tensors: Any, until: float) -> None:
        self.torch, self.tensors, self.until = torch, tensors, until
        self.seen: "set[int]" = set()
        self.holders: "list[Holder]" = []
        self.objects = 0

    def over(self) -> bool:
        return self.objects > OBJECTS_MOST or time.monotonic() > self.until

    def inside(self, value: Any, depth: int = 0) -> "tuple[set[int], int, int]":
        """Returns the graphs that a value keeps, how many tensors it has, and about how many bytes of them are on a device."""
        if is_a(value, self.torch.nn.Parameter):
            return set(), 0, 0
        if self.tensors.has(value):
            node = self.tensors.graph(value)
            size = self.tensors.size(value) if self.tensors.device(value) != "cpu" else 0
            return ({id(node)} if node is not None else set()), 1, size
        graphs: "set[int]" = set()
        tensors = size = 0
        if depth > 4 or self.over():
            return graphs, tensors, size
        self.objects += 1
        entries = entries_of(value, ENTRIES_MOST)
        if not entries and count_of(value) == 0 and is_of_program(value) and not is_a(value, self.torch.nn.Module):
            entries = fields_of(value)[:ENTRIES_MOST]
        for _, part in entries:
            if is_plain(part):
                continue
            some, count, bytes_of = self.inside(part, depth + 1)
            graphs |= some
            tensors, size = tensors + count, size + bytes_of
        return graphs, tensors, size * max(len(entries), count_of(value)) // max(1, len(entries))

    def terms(self, tensor: Any) -> int:
        """Returns how many terms a sum has, as far as its graph shows."""
        node, count = self.tensors.graph(tensor), 0
        while node is not None and count < ENTRIES_MOST:
            if not class_name(node).startswith(("AddBackward", "SubBackward")):
                break
            parts = [p[0] for p in get(node, "next_functions") or () if p[0] is not None]
            count += 1
            node = next((p for p in parts if class_name(p).startswith(("AddBackward", "SubBackward"))), None)
        return count

    def take(self, name: str, field: str, value: Any, path: str, frame: Any, depth: int = 0) -> None:
        """Notes a variable, and the fields of an object of the program."""
        if id(value) in self.seen or self.over() or is_a(value, self.torch.optim.Optimizer) or is_plain(value) or type(value) is type:
            return
        if self.tensors.has(value):
            if self.tensors.graph(value) is not None:
                self.holders.append(Holder(name, field, value, self.terms(value), 1, path, frame))
            return
        self.seen.add(id(value))
        if count_of(value) > 0 or entries_of(value, 1):
            graphs, tensors, size = self.inside(value)
            if tensors > 0:
                self.holders.append(Holder(name, field, value, len(graphs), tensors, path, frame))
                self.holders[-1].size = size
        elif depth < 3 and (is_of_program(value) or is_a(value, self.torch.nn.Module)):
            for key, part in fields_of(value)[:200]:
                if key not in ("_parameters", "_buffers") and not key.endswith("_hooks"):
                    if key == "_modules":
                        for module in [m for _, m in entries_of(part, ENTRIES_MOST)]:
                            self.take(name, "", module, path, frame, depth + 1)
                    else:
                        self.take(name, key, part, path_of(value) or path, frame, depth + 1)


def path_of(value: Any) -> str:
    """Returns the file of an object's class, "" if it is not of the program."""
    paths = (get(sys.modules.get(module_of(kind)), "__file__") for kind in bases_of(type(value)))
    return next((path for path in paths if is_own(path)), "")


def is_of_program(value: Any) -> bool:
    """Returns whether its class is one of the program's, and not built in."""
    name = module_of(type(value))
    return not is_a(value, type) and not name.startswith(("torch", "numpy", "builtins", "importlib")) and bool(
        name in ("__main__", "<run_path>") or path_of(value)
    )


def stored_names(value: Any) -> "dict[str, Any]":
    """Returns the fields of a named tuple, a dict or another object, in their order."""
    if is_a(value, dict):
        return {key: part for key, part in entries_of(value, ENTRIES_MOST) if type(key) is str}
    if is_a(value, tuple):
        names = in_class(type(value), "_fields")
        return dict(zip(names, [part for _, part in entries_of(value, ENTRIES_MOST)])) if type(names) is tuple else {}
    return dict(fields_of(value))
