"""Finds the large objects of this process, and who holds them.

Called by release, holders, the cell magic and explanations of host memory. Finds pieces of memory (_pieces.py) through the
garbage collector; changes nothing, keeps nothing alive.
"""

from __future__ import annotations

import gc
import sys
import types
from itertools import chain, islice
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from ._access import class_name, elements_of, get, is_a, length, pairs_of
from ._fields import is_dict_of, slots_of
from ._library import format_size
from ._memory import loaded
from ._pieces import PLAIN, Kinds, Large, numpy_piece
from ._samples import Deadline, item_name, type_name
from ._show import name_cells, shell

_PACKAGE = __name__.rpartition(".")[0]
OPTIMIZED = 1  # CO_OPTIMIZED: a function's code, whose locals are not a dictionary


# ---- all there are ----


_BAGS = frozenset((dict, tuple))
_LONG = frozenset((dict, list, tuple, set))


def _untracked_bags(things: "Iterable[Any]") -> "List[Any]":
    """Returns the dictionaries and tuples that the garbage collector does not track, because nothing in them can be part of a cycle."""
    return [thing for thing in things if type(thing) in _BAGS and not gc.is_tracked(thing)]


def _tracked() -> "Iterator[List[Any]]":
    """Yields the collector's objects, in parts; for a module, its dictionary.

    Other references of a C module may point to dead objects: the asyncio of Python 3.12.1 shows the iterators that it keeps for
    reuse, and a reference to such a dead one leads to a list that grows forever.

    Of tens of millions of objects only those near the program's variables are yielded: a list of all takes seconds, and gigabytes.
    """
    until = Deadline(LONGEST)
    everything = gc.get_objects() if Deadline().has_time_for(sys.getallocatedblocks()) else _near()
    for start in range(0, len(everything), PART):
        if until.is_over():
            break
        part = [vars(thing) if type(thing) is types.ModuleType else thing for thing in everything[start : start + PART]]
        yield part
        part.clear()  # it may hold the frame of this search
    everything.clear()


LONGEST = 4.0  # seconds of a list, and of all searches for names: somebody waits for the answer, perhaps on a busy machine
SOME = 100_000  # elements of one container that are looked at
PART = 4096  # objects that are looked at in one step
NEAR = 200_000  # objects that are looked at if all are too many
FEW = 1000  # elements of a container that are looked at then


def _near() -> "List[Any]":
    """Returns objects that modules and running functions lead to, the nearest first."""
    waiting: "List[Any]" = [module for module in list(sys.modules.values()) if type(module) is types.ModuleType]
    waiting = [vars(module) for module in waiting] + [value for frame in _running() for _, value in _locals_of(frame)]
    seen, at = set(map(id, waiting)), 0
    while at < len(waiting) < NEAR:
        thing = waiting[at]
        at += 1
        if not gc.is_tracked(thing) and type(thing) not in _BAGS:
            continue
        inside = list(islice(elements_of(thing), FEW)) if type(thing) in _LONG and len(thing) > FEW else gc.get_referents(thing)
        waiting.extend(one for one in inside if id(one) not in seen and type(one) not in (type, types.ModuleType))
        seen.update(map(id, inside))
    return waiting


def _referents(things: "List[Any]") -> "List[Any]":
    """Returns what those objects refer to, each once. Of millions of elements no large piece of memory is one: some are looked at."""
    long = [thing for thing in things if type(thing) in _LONG and len(thing) > SOME]
    found = gc.get_referents(*([thing for thing in things if not any(thing is one for one in long)] if long else things))
    for one in long:
        found.extend(islice(elements_of(one), SOME))
    long.clear()  # its references would be found
    return list(dict(zip(map(id, found), found)).values())


def _shown_objects(kinds: Kinds, least: int) -> "Iterator[Any]":
    """Yields the objects with a kind that the collector's objects and the running frames refer to; some of them more than once.

    Leaves out bytes and text of fewer than `least` elements. There are millions of references, so it works on lists.
    """
    for part in _tracked():
        levels = [part, _referents(part)]
        while levels[-1]:  # bags in bags: these have no cycles
            levels.append(_referents(_untracked_bags(levels[-1])))
        for things in levels:
            wanted = kinds.shown(things)
            yield from [thing for thing in things if type(thing) in wanted and (type(thing) not in PLAIN or len(thing) >= least)]
            things.clear()  # they may hold the frame of this search
    for frame in _running():
        if frame.f_code.co_flags & OPTIMIZED:
            for _, value in _locals_of(frame):
                if kinds.maker(type(value)) is not None and (type(value) not in PLAIN or len(value) >= least):
                    yield value


def find_large(least: int = 1 << 20) -> "List[Large]":
    """Returns pieces of at least that many bytes, largest first, one object for each.

    >>> import numpy
    >>> table = numpy.zeros((1000, 1000))
    >>> [piece.kind for piece in find_large(8_000_000) if piece.object is table]
    ['numpy.ndarray float64 (1000, 1000)']
    """
    kinds = Kinds()
    seen: "set[int]" = set()
    pieces: "Dict[Tuple[Any, ...], Large]" = {}
    for thing in _shown_objects(kinds, least // 4):
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        piece = kinds.piece(thing)
        if piece is None or piece.bytes < least:
            continue
        before = pieces.get(piece.key)
        # A table represents the arrays inside it, a whole array its views.
        if before is None or (before.view and not piece.view):
            pieces[piece.key] = piece
    found = list(pieces.values())
    _drop_parts(found)
    found.sort(key=lambda piece: -piece.bytes)
    return found


def _drop_parts(found: "List[Large]") -> None:
    """Removes arrays that are part of a pandas table or a SciPy matrix of the list."""
    inside: "set[int]" = set()
    for piece in found:
        if piece.key[0] != "object":
            continue
        if piece.kind.startswith("scipy"):
            parts = [getattr(piece.object, name, None) for name in ("data", "indices", "indptr", "row", "col")]
        elif piece.kind.startswith("pandas"):
            manager = getattr(piece.object, "_mgr", None)
            parts = [getattr(block, "values", None) for block in getattr(manager, "blocks", ())]
        else:
            continue
        numpy = loaded("numpy")
        for part in parts:
            if numpy is not None and is_a(part, numpy.ndarray):
                inside.add(numpy_piece(part, numpy).key[1])
    found[:] = [piece for piece in found if not (piece.key[0] == "host" and piece.key[1] in inside)]


# ---- who holds a thing ----


class Finder:
    """Searches from an object to names that people know: globals, attributes, locals, closures.

    Objects of the search hold references too. So its lists are in `hidden`, nothing is sliced or captured by an inner function,
    and its frames are skipped.
    """

    DEPTH = 6
    MOST = 64  #: maximum number of referrers per object
    LOOKS = 100  #: maximum number of passes over all objects for one search: milliseconds each

    def __init__(self) -> None:
        self.modules: "Dict[int, str]" = {}
        for name, module in list(sys.modules.items()):
            self.modules.setdefault(id(get(module, "__dict__")), name)
        main = sys.modules.get("__main__")
        if main is not None:
            self.modules[id(get(main, "__dict__"))] = "__main__"
        self.bags: "Dict[int, Any]" = {}
        self.inside: "Dict[int, set[int]]" = {}
        self.looks = self.LOOKS
        self.hidden: "set[int]" = {id(self), id(self.__dict__), id(self.modules), id(self.bags), id(self.inside)}
        # A notebook keeps its results in more places than Out and _, the last one until the next cell.
        here = shell()
        places = [getattr(here, "user_ns_hidden", None)]
        for keeper in (getattr(here, "displayhook", None), getattr(here, "last_execution_result", None)):
            places += [keeper, getattr(keeper, "__dict__", None)]
        self.hidden.update(id(place) for place in places if place is not None)
        self._look_into_bags()
        self.until = Deadline(LONGEST)  # for all searches of this finder

    def _look_into_bags(self) -> None:
        """Notes arrays, and bags with arrays, in dictionaries and tuples that get_referrers does not see: which bag each of them is in."""
        kinds = Kinds()
        for part in _tracked():
            levels = [_untracked_bags(chain(part, _referents(part)))]
            while levels[-1]:
                levels.append(_untracked_bags(_referents(levels[-1])))
            for bags in reversed(levels):  # the innermost first
                wanted = kinds.shown(gc.get_referents(*bags))
                for bag in bags:
                    if id(bag) in self.bags or id(bag) in self.hidden:
                        continue
                    for value in list(bag.values()) if type(bag) is dict else bag:
                        if id(value) in self.bags or (type(value) in wanted and not (type(value) is str and len(value) < 4096)):
                            self.bags[id(bag)] = bag
                            self.inside.setdefault(id(value), set()).add(id(bag))
                bags.clear()

    def paths(self, thing: Any, depth: int = 0) -> "List[str]":
        """Returns the names through which `thing` can be reached, shortest first: all its holders, and one path to each."""
        found: "List[str]" = []
        if depth == 0:
            self.looks = self.LOOKS
        if depth >= self.DEPTH or self.looks <= 0:
            return found
        referrers = self._referrers(thing)
        self.hidden.add(id(referrers))
        for near in (True, False):
            for at in range(min(len(referrers), self.MOST)):
                if depth > 0 and found:
                    break
                if self._is_near(referrers[at]) is not near or id(referrers[at]) in self.hidden or _ours(referrers[at]):
                    continue
                self.hidden.add(id(referrers[at]))
                found.extend(self._through(referrers[at], thing, depth))
                self.hidden.discard(id(referrers[at]))
        self.hidden.discard(id(referrers))
        referrers.clear()  # our own frames may be in it
        for number in self.inside.get(id(thing), ()):
            found.extend(self._through(self.bags[number], thing, depth))
        found.extend(_locals_holding(thing))
        if depth == 0 and self.until.is_over():
            found.extend(self._in_modules(thing))
        unique = list(dict.fromkeys(found))
        unique.sort(key=_plainness)
        return unique

    def _referrers(self, thing: Any) -> "List[Any]":
        self.looks -= 1
        return [] if self.until.is_over() else gc.get_referrers(thing)

    def _in_modules(self, thing: Any) -> "Iterator[str]":
        """Yields the variables of modules that are the object: found at once, if the time for the search is over."""
        for module in self.modules.values():
            for name, value in list(get(sys.modules.get(module), "__dict__", {}).items()):
                if value is thing and type(name) is str:
                    yield name if module == "__main__" else f"{module}.{name}"

    def _is_near(self, referrer: Any) -> bool:
        """Returns its own name, or whether the search must continue from it."""
        return id(referrer) in self.modules or is_a(referrer, (types.FrameType, types.CellType, types.FunctionType))

    def _through(self, referrer: Any, thing: Any, depth: int) -> "List[str]":
        if is_a(referrer, dict):
            return self._through_dict(referrer, thing, depth)
        if is_a(referrer, (list, tuple)):
            at = next((index for index, one in enumerate(elements_of(referrer)) if one is thing), None)
            return [] if at is None else [f"{path}[{at}]" for path in self._above(referrer, depth)]
        if is_a(referrer, (set, frozenset)):
            return [f"a member of {path}" for path in self._above(referrer, depth)]
        if is_a(referrer, types.CellType):
            return self._through_cell(referrer)
        if is_a(referrer, types.FrameType):
            return [_frame_text(referrer, local_name(referrer, thing))]
        if is_a(referrer, (types.GeneratorType, types.CoroutineType)):
            return [f"the {class_name(referrer)} {referrer.__qualname__}"]
        if is_a(referrer, types.MethodType):
            return [f"the bound method {_name_of(get(referrer, '__func__'))}"]
        if is_a(referrer, types.FunctionType):
            return [f"a default of {_module_of(referrer)}.{_name_of(referrer)}"]
        if class_name(referrer).endswith("_iterator"):
            return []
        return self._through_instance(referrer, thing, depth)

    def _through_dict(self, holder: "Dict[Any, Any]", thing: Any, depth: int) -> "List[str]":
        keys = [key for key, value in pairs_of(holder) if value is thing]
        module = self.modules.get(id(holder))
        texts = [key for key in keys if type(key) is str]
        if module is not None:
            keys = texts
            if "Out" in keys and "_oh" in keys:
                keys.remove("_oh")  # the same under an internal name
            return [key if module == "__main__" else f"{module}.{key}" for key in keys]
        if self.looks <= 0:
            return []
        owners = self._referrers(holder)
        self.hidden.add(id(owners))
        names: "List[str]" = []
        for at in range(min(len(owners), self.MOST)):
            if is_a(owners[at], types.FrameType) and texts:  # the f_locals of a frame
                names = [_frame_text(owners[at], texts[0])]
                break
            if not is_a(owners[at], types.ModuleType) and is_dict_of(holder, owners[at]):
                if not is_a(owners[at], Large):
                    above = self._above(owners[at], depth)
                    names = [f"{path}.{key}" for key in texts for path in above]
                break
        else:
            if keys:
                names = [item_name(path, keys[0]) for path in self._above(holder, depth)]
        self.hidden.discard(id(owners))
        owners.clear()
        return names

    @staticmethod
    def _through_cell(cell: Any) -> "List[str]":
        for closure in gc.get_referrers(cell):
            if not is_a(closure, tuple):
                continue
            for above in gc.get_referrers(closure):
                if is_a(above, types.FunctionType) and above.__closure__ is closure:
                    if _module_of(above).startswith(_PACKAGE + "."):
                        return []
                    for name, held in zip(above.__code__.co_freevars, closure):
                        if held is cell:
                            return [f"{name} in the closure of {_module_of(above)}.{_name_of(above)}"]
        return []  # of a running function: found among its locals

    def _through_instance(self, owner: Any, thing: Any, depth: int) -> "List[str]":
        inside = get(owner, "__dict__", None)
        names = [key for key, value in pairs_of(inside) if value is thing and type(key) is str] if is_a(inside, dict) else []
        names = names or [key for key, value in slots_of(owner).items() if value is thing]
        if not names and get(owner, "base") is thing:
            return [f"{path}, a view of it" for path in self._above(owner, depth)]
        if not names:
            return [f"<{type_name(owner)}>"]
        return [f"{path}.{name}" for name in names for path in self._above(owner, depth)]

    def _above(self, holder: Any, depth: int) -> "List[str]":
        """Returns how the holder is reached; its type if nothing is known."""
        names = self.paths(holder, depth + 1)
        if names:
            return names[:4]
        size = f" of {length(holder)}" if is_a(holder, (list, tuple, dict, set, frozenset)) else ""
        return [f"<{class_name(holder)}{size}>"]


def _name_of(function: Any) -> str:
    name = get(function, "__qualname__")
    return name if type(name) is str else class_name(function)


def _module_of(function: Any) -> str:
    name = get(function, "__module__")
    return name if type(name) is str else ""


def _ours(referrer: Any) -> bool:
    """Returns true for an object of the search, not of the program."""
    if is_a(referrer, types.FrameType):
        name = dict.get(referrer.f_globals, "__name__", "")
        return is_a(name, str) and name.startswith(_PACKAGE + ".")
    return is_a(referrer, Large)


def _plainness(path: str) -> "Tuple[int, int]":
    """Sort key: names that people typed first, objects without a name last."""
    return (2 if path.startswith("<") else 1 if path.startswith(("local ", "a ", "the ", "_")) else 0, len(path))


def _locals_of(frame: types.FrameType) -> "Iterator[Tuple[str, Any]]":
    """A frame's locals; nothing of it stays with the frame.

    The collector does not see the locals of a running function (Python 3.11 and later), and before 3.13 the dictionary
    that f_locals makes would stay with the frame and keep what it shows.
    """
    shown = frame.f_locals
    try:
        yield from list(shown.items()) if type(shown) is dict or frame.f_code.co_flags & OPTIMIZED else pairs_of(shown) if is_a(shown, dict) else []
    finally:
        # Three references: the frame's, ours, and the count's own. More: the program called locals() and keeps it.
        if frame.f_code.co_flags & OPTIMIZED and is_a(shown, dict) and sys.getrefcount(shown) <= 3:
            shown.clear()


def _running() -> "List[types.FrameType]":
    """Returns the frames of the program without ours: keeping one of our frames would keep everything it found."""
    found = []
    at: "Optional[types.FrameType]"
    for at in sys._current_frames().values():
        while at is not None:
            if not _ours(at):
                found.append(at)
            at = at.f_back
    return found


def local_name(frame: types.FrameType, thing: Any) -> "Optional[str]":
    for name, value in _locals_of(frame):
        if value is thing:
            return name
    return None


def _frame_text(frame: types.FrameType, name: "Optional[str]") -> str:
    where = f"{name_cells(frame.f_code.co_filename)}:{frame.f_lineno}"
    return f"{'local ' + name if name else 'a temporary'} of {frame.f_code.co_name} ({where})"


def _locals_holding(thing: Any) -> "List[str]":
    found = []
    for frame in _running():
        if frame.f_code.co_flags & OPTIMIZED:
            name = local_name(frame, thing)
            if name is not None:
                found.append(_frame_text(frame, name))
    return found


def paths_to(thing: Any, finder: "Optional[Finder]" = None) -> "List[str]":
    """Names by which an object is reached; one finder may serve for several, as long as nothing changes.

    >>> import sys, types
    >>> module = sys.modules["shelf"] = types.ModuleType("shelf")
    >>> module.kept = [None, bytearray(8)]
    >>> paths_to(module.kept[1])
    ['shelf.kept[1]']
    >>> del sys.modules["shelf"]
    """
    return (finder or Finder()).paths(thing)


def sharers(piece: Large) -> "List[Any]":
    """Every object that shows the same piece of memory, views and the array they are views of."""
    kinds = Kinds()
    seen: "Dict[int, Any]" = {}
    for thing in _shown_objects(kinds, sys.maxsize):  # no text: two pieces of it are never the same memory
        if id(thing) not in seen and kinds.maker(type(thing)) is kinds.maker(type(piece.object)):
            other = kinds.piece(thing)
            if other is not None and other.key == piece.key:
                seen[id(thing)] = thing
    for thing in list(seen.values()):
        base = get(thing, "base")
        while base is not None and kinds.maker(type(base)) is kinds.maker(type(piece.object)):
            seen.setdefault(id(base), base)
            base = get(base, "base")
    return list(seen.values())


def describe(piece: Large) -> str:
    """One line for people."""
    part = " (a view)" if piece.view else ""
    return f"{format_size(piece.bytes)}  {piece.kind}{part} on {piece.place}"
