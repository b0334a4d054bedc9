"""A cache: keeps objects until memory is short.

`release()` and the watch over host memory empty every cache.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import OrderedDict
from typing import Any, Callable, Dict, Hashable, Iterator, MutableMapping, Tuple

from ._library import Invalid, parse_size
from ._library import format_size as size
from ._pieces import Kinds

_caches: "weakref.WeakSet[Cache]" = weakref.WeakSet()
_caches_lock = threading.RLock()  # guards _caches: the watch iterates over it while other threads make caches


def _after_fork() -> None:
    """In a forked child: replaces the locks, because a thread that held one does not exist here."""
    global _caches_lock
    _caches_lock = threading.RLock()
    for one in list(_caches):
        one._lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def shrink_all() -> int:
    """Empties every cache. Returns the bytes they held."""
    with _caches_lock:
        every = list(_caches)
    return sum(one.shrink_to(0) for one in every)


class Cache(MutableMapping[Hashable, Any]):
    """Holds objects within a budget, and weak references after that: an object that is still in use elsewhere is found.

    >>> import numpy
    >>> kept = cache("2M")
    >>> kept["a"], kept["b"] = numpy.zeros(200_000), numpy.zeros(200_000)
    >>> "a" in kept, "b" in kept
    (False, True)
    >>> kept.load("a", lambda: numpy.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    __hash__ = object.__hash__  # by identity, not by contents

    def __init__(self, budget: int) -> None:
        self.budget_bytes = budget
        self.held_bytes = 0
        self._strong: "OrderedDict[Hashable, Tuple[Any, int]]" = OrderedDict()
        self._weak: "Dict[Hashable, weakref.ref[Any]]" = {}
        self._lock = threading.RLock()  # the watch over host memory empties it from its own thread
        with _caches_lock:
            _caches.add(self)

    @staticmethod
    def _weigh(thing: Any) -> int:
        piece = Kinds().piece(thing)
        return piece.bytes if piece is not None else sys.getsizeof(thing)

    def __setitem__(self, key: Hashable, thing: Any) -> None:
        weight = self._weigh(thing)
        with self._lock:
            self._forget(key)
            try:
                self._weak[key] = weakref.ref(thing)
            except TypeError:
                pass  # bytes, lists and numbers have no weak references
            if weight <= self.budget_bytes:
                self._strong[key] = (thing, weight)
                self.held_bytes += weight
                self.shrink_to(self.budget_bytes)

    def __getitem__(self, key: Hashable) -> Any:
        with self._lock:
            if key in self._strong:
                self._strong.move_to_end(key)
                return self._strong[key][0]
            known = self._weak.get(key)
            thing = known() if known is not None else None
            if thing is None:
                self._weak.pop(key, None)
                raise KeyError(key)
            return thing

    def _forget(self, key: Hashable) -> None:
        if key in self._strong:
            self.held_bytes -= self._strong.pop(key)[1]
        self._weak.pop(key, None)

    def __delitem__(self, key: Hashable) -> None:
        with self._lock:
            if key not in self:
                raise KeyError(key)
            self._forget(key)

    def __contains__(self, key: object) -> bool:
        known = self._weak.get(key)  # type: ignore[call-overload]
        return key in self._strong or (known is not None and known() is not None)

    def __iter__(self) -> "Iterator[Hashable]":
        with self._lock:
            return iter([key for key in dict.fromkeys([*self._strong, *self._weak]) if key in self])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def load(self, key: Hashable, make: "Callable[[], Any]") -> Any:
        """Returns the object under `key`; makes and keeps it if it no longer exists."""
        try:
            return self[key]
        except KeyError:
            thing = make()
            self[key] = thing
            return thing

    def shrink_to(self, budget: int) -> int:
        """Drops the least recently used objects until at most `budget` bytes are held. Returns the bytes dropped."""
        with self._lock:
            before = self.held_bytes
            while self.held_bytes > budget and self._strong:
                _, (thing, weight) = self._strong.popitem(last=False)
                self.held_bytes -= weight
                del thing
            return before - self.held_bytes

    def __repr__(self) -> str:
        return f"<stowage cache: {len(self._strong)} held, {size(self.held_bytes)} of {size(self.budget_bytes)}>"


def cache(budget: "str | int") -> Cache:
    """Returns a mapping that holds at most `budget` bytes. Drops the least recently used first, and everything when memory is short.

    >>> cache("0")
    Traceback (most recent call last):
        ...
    stowage._library.Invalid: budget: 0 bytes can hold nothing; write a size such as 2G
    """
    bytes_given = parse_size(budget, "budget")
    if bytes_given == 0:
        raise Invalid("budget: 0 bytes can hold nothing; write a size such as 2G")
    return Cache(bytes_given)
