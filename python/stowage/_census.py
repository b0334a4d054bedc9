# mypy: ignore-errors
"""Census: large values that no variable leads to, found among all objects of the process: garbage in cycles, linked objects, values
without a name.

A part of _holders.py, above _variables.py; its rules hold here too.
"""
import gc
import itertools
import sys

from ._access import *
from ._fields import *
from ._samples import *
from ._variables import *
from ._weighing import *


def instances(until):
    """Yields (value, name, where) of the containers in objects of the program's own classes, even if a library holds those objects (a
    logging handler, a trainer's callback). Not arrays: an array that matters is in a container or has a name."""
    if not until.has_time_for(10 * blocks_held()):
        return
    own, looked = {}, {}
    for value in listed():
        kind = type(value)
        if kind not in own:
            own[kind] = is_own_module(module_of(kind))
        if not own[kind] or is_a(value, type) or looked.get(kind, 0) >= SAMPLES:
            continue
        looked[kind] = looked.get(kind, 0) + 1
        for name, held in list(fields_of(value).items()):
            if is_a(held, (list, dict, set)) or class_name(held) == "deque":
                yield held, f"{qualified(kind)}.{name}", "module " + module_of(kind)


def nameless(made, until):
    """Yields (value, name, where) of containers of large objects, even if no variable holds them: list(…) has no name before it is
    complete. made: name and place of what the program makes; None if it makes nothing."""
    if made is None or not until.has_time_for(3 * blocks_held()):
        return
    for value in listed():
        if type(value) not in (list, dict, set) or len(value) < 4:
            continue
        if len(value) >= COLLECTED:  # a comprehension fills it, or a call of C code
            yield (value, *made)
            continue
        first, size = first_of(value), get(first_of(value), "nbytes")
        if is_a(size, int) and size >= LARGE or is_a(first, bytes) and length(first) >= LARGE:
            yield (value, *made)


LARGE = 64 << 10
STARTS = 16  # holders of one group that are searched
CLOSURE = 4000  # objects that one search opens
OPAQUE = (type, type(sys), type(len), type(is_array.__code__), property, staticmethod, classmethod)


COLLECTED = 50_000  # elements of a container that a line is making


class Group:
    """Large values of one type that holders of one type refer to."""

    def __init__(self):
        self.size = self.count = 0
        self.holders = []  # the newest first

    def add(self, holder, size):
        self.size, self.count = self.size + size, self.count + 1
        self.holders.append(holder)


def is_globals(value):
    return type(value) is dict and "__name__" in value and ("__builtins__" in value or "__spec__" in value)


SIZED = frozenset((bytes, bytearray, str, list, dict, set))
LENGTH = 1000  # elements below which none of these takes LARGE


def is_measured(kind, value):
    """Returns whether a value of that type can be large by itself: an array, a text or a container."""
    return issubclass(kind, tuple(SIZED)) or kind not in OPAQUE and is_array(value)


def of_types(values, types, wanted):
    """Returns those values whose types are in a set. There are millions of references: no Python code runs for each."""
    return list(itertools.compress(values, map(wanted.__contains__, types)))


def kinds_here(values, kinds):
    """Returns the types among the values that can be large by themselves, or are tuples. kinds: what is_measured() returned for each type."""
    here = set(map(type, values))
    unknown = here - kinds.keys()
    if unknown:
        types = list(map(type, values))
        kinds.update((kind, is_measured(kind, values[types.index(kind)])) for kind in unknown)
    return {kind for kind in here if kinds[kind] or kind is tuple}


def large_ones(values, types, here, seen):
    """Returns the ids of those values that may be large and were not seen yet. Only few are neither short texts nor small containers."""
    plain = of_types(values, types, SIZED)
    found = list(itertools.compress(plain, map(LENGTH.__le__, map(len, plain))))
    rare = here - SIZED - {tuple}
    found += of_types(values, types, rare) if rare else []
    return {id(value) for value in found
            if id(value) not in seen and (is_array(value) or byte_size(value) >= LARGE) and not is_globals(value)}


def large_bytes(value, seen):
    """Returns the bytes of a value of large_ones() if neither it nor the array it is a view of was seen yet."""
    try:
        weight = weigh(value, 2)
    except Exception:
        return 0
    key = weight.owner or id(value)
    if weight.size < LARGE or key in seen or id(value) in seen:
        return 0
    seen[key] = seen[id(value)] = True
    return weight.size


class Listed(list):
    """A list of objects that is not among them."""
    __slots__ = ()


# Tuples, and what a search for the others is made of: that is among the objects, and leads to tuples or to everything.
LEFT_OUT = {kind: () for kind in (tuple, map, itertools.chain, itertools.starmap, itertools.groupby, Listed)}


def whole(function, *arguments, left_out=LEFT_OUT):
    """Calls a function of gc as map() does, and returns what all calls returned, without tuples.

    C code that fills a tuple, as tuple(x for x in …) does, fails if anything else refers to it when it is resized. So nothing here may
    refer to a tuple while the program can run: making a list is one call of C code, inside which the function is called and groups of
    tuples are skipped.
    """
    return Listed(itertools.chain.from_iterable(itertools.starmap(left_out.get, itertools.groupby(
        itertools.chain.from_iterable(map(function, *arguments)), type))))


def listed(generations=(None,)):
    """Returns the objects that the collector knows, without tensors and tuples. PyTorch warns about a tensor that ends while such a list
    refers to it, and the program runs on while the list is read."""
    torch = sys.modules.get("torch")
    tensors = () if torch is None else (get(torch, "Tensor", None), get(get(torch, "nn", None), "Parameter", None))
    return whole(gc.get_objects, generations, left_out={**LEFT_OUT, **{kind: () for kind in tensors}})


TOGETHER = 256  # objects whose references are read in one step
AT_ONCE = 1 << 16  # elements of one container that are read in one step


def referred(holders):
    """Yields (holders, what they refer to). A long container is yielded in parts: a program that is short of memory has none for a
    copy of it, and a step must not take long."""
    long = [one for one in holders if type(one) in (list, dict, set) and len(one) > AT_ONCE]
    if long:
        holders = [one for one in holders if not any(one is other for other in long)]
    yield holders, gc.get_referents(*holders)
    for one in long:
        rest = itertools.chain(one, one.values()) if type(one) is dict else iter(one)
        try:
            while True:
                part = list(itertools.islice(rest, AT_ONCE))
                if not part:
                    break
                yield [one], part
        except RuntimeError:  # the program changed it meanwhile
            continue


def census(until, seen):
    """Returns {(type of the holder, type of the value): Group} of large values that were not seen yet. Newest objects come first, as
    many as there is time for."""
    groups, kinds, opened, skipped = {}, {}, set(), {*OPAQUE, type(is_array)}
    for generation in range(3):
        objects = listed([generation])
        while objects:
            if until.is_over():
                return groups
            waiting = [one for one in objects[:-TOGETHER - 1:-1]
                       if type(one) not in skipped and (type(one) is not dict or "__name__" not in one or not is_globals(one))]
            del objects[-TOGETHER:]
            while waiting:
                tuples = []
                for holders, values in referred(waiting):
                    here = kinds_here(values, kinds)
                    types = list(map(type, values)) if here else ()
                    large = large_ones(values, types, here, seen) if here else ()
                    for one in holders if large else ():
                        of_one = values if len(holders) == 1 else gc.get_referents(one)
                        for value in () if large.isdisjoint(map(id, of_one)) else of_one:
                            size = large_bytes(value, seen) if id(value) in large else 0
                            if size:
                                groups.setdefault((type(one), type(value)), Group()).add(one, size)
                    # Tuples are complete if something refers to them.
                    if tuple in here:
                        fresh = [value for value in of_types(values, types, {tuple}) if id(value) not in opened]
                        opened.update(map(id, fresh))
                        tuples += fresh
                    if until.is_over():
                        return groups
                waiting = tuples
    return groups


SEARCHING = {function.__code__.co_filename for function in (weigh, stack_of, variables, whole)}  # files of this search; _holders adds its own


def is_ours(value):
    """Returns whether it is a frame, a generator or a group of this search."""
    code = get(value, "gi_code", None) or get(value, "f_code", None)
    return type(value) is Group or get(code, "co_filename", "") in SEARCHING


def referrers(values, known, limit):
    """Returns objects that refer to one of them and are not known; not those that hold very much, which are in use."""
    found = whole(gc.get_referrers, *((value,) for value in values)) if values else []
    return [r for r in found if r is not values and id(r) not in known and not is_a(r, OPAQUE) and not is_ours(r) and not is_globals(r)
            and not (is_a(r, (list, dict, tuple, set)) and length(r) > LONG)][:limit]


def search(members):
    """Extends a list of objects by those that refer to them, and by all that these lead to, up to CLOSURE. Returns the references
    between them, for each member the indexes of those it refers to."""
    known = {id(one): at for at, one in enumerate(members)}
    known[id(members)] = 0  # not an object of the program
    above = members[:]
    for _ in range(3):
        above = referrers(above, known, 4 * STARTS)
        for one in above:
            known[id(one)] = len(members)
            members.append(one)
    edges = []
    while len(edges) < len(members) and len(members) < CLOSURE:
        to = []
        for one in gc.get_referents(members[len(edges)]):
            if gc.is_tracked(one) and not is_a(one, OPAQUE) and not is_globals(one):
                if id(one) not in known:
                    known[id(one)] = len(members)
                    members.append(one)
                to.append(known[id(one)])
        edges.append(to)
    return edges


def unreachable(members, edges, held):
    """Returns which members nothing else refers to, as the cycle collector finds them: their references all come from each other.
    held: by id, references from lists of this search."""
    inside = [0] * len(members)
    for to in edges:
        for at in to:
            inside[at] += 1
    outside = [count - ALONE - inside[at] - held.get(id(members[at]), 0) for at, count in enumerate(references(members))]
    used = [at for at, count in enumerate(outside) if count != 0]  # below 0: the program, which goes on, has changed it
    marked = set(used)
    while used:
        at = used.pop()
        for to in edges[at] if at < len(edges) else ():
            if to not in marked:
                marked.add(to)
                used.append(to)
    return [at for at in range(len(members)) if at not in marked]


def cycle_of(start, dead, edges):
    """Returns the indexes of a cycle that leads to a member that nothing uses."""
    dead = set(dead)
    before = {to: at for at in range(len(edges)) if at in dead for to in edges[at] if to in dead}
    path = [start]
    while before.get(path[-1], path[0]) not in path:
        path.append(before[path[-1]])
    last = before.get(path[-1], path[0])
    return path[path.index(last):][::-1]


def is_in_cycle(start, dead, edges):
    """Returns whether a member that nothing uses is in a cycle, or one leads to it. A tuple that a call of C code uses is not."""
    path = cycle_of(start, dead, edges)
    return path[-1] < len(edges) and path[0] in edges[path[-1]]


def reference_name(holder, value, owner):
    """Returns how a holder refers to a value: "Node.parent", "error in load()"; "" if it has no name. owner: what refers to the holder."""
    if is_a(holder, dict):
        key = next((k for k, v in pairs_of(holder) if v is value), None)
        if type(key) is not str:
            return ""
        return f"{type_name(owner)}.{key}" if is_dict_of(holder, owner) else f"[{key!r}]"
    if has(holder, "f_code"):
        name = next((n for n, v in locals_of(holder).items() if v is value), "")
        return f"{name} in {holder.f_code.co_name}()" if name else ""
    parts = {**(fields_of(holder) if not is_a(holder, OPAQUE) else {}), **slots_of(holder)}
    name = next((n for n, v in list(parts.items()) if v is value), "")
    return f"{type_name(holder)}.{name}" if name else ""


def place_of_type(holder):
    """Returns where the function of a frame is, or the class of an object, as "module train.py"."""
    if has(holder, "f_code"):
        return f"{holder.f_code.co_name} at {holder.f_code.co_filename}:{holder.f_lineno}"
    module = module_of(type(holder))
    path = file_of(sys.modules.get(module))
    return "module " + (path if path and is_own(path) else module)


def name_of(members, edges, at, value):
    """Returns (name, where) of how a member, or what refers to it, refers to a value; ("", "") if no reference has a name."""
    for _ in range(3):
        holder, above = members[at], [i for i, to in enumerate(edges) if at in to]
        owner = next((i for i in above if is_dict_of(holder, members[i])), None)
        name = reference_name(holder, value, None if owner is None else members[owner])
        if name and name[0] != "[":
            return name, place_of_type(holder if owner is None else members[owner])
        if not above:
            break
        value, at = holder, above[0]
    return "", ""


def describe_garbage(members, edges, dead, start, weight):
    """Returns (bytes, weight, name, where, type) of garbage. The name is a reference of its cycle: rather from an object than from a dict,
    and rather to an object than to a container."""
    path, found = cycle_of(start, dead, edges), []
    for at, to in zip(path, path[1:] + path[:1]):
        owner = next((members[i] for i in path if is_dict_of(members[at], members[i])), members[at])
        name = reference_name(members[at], members[to], owner)
        if name:
            found.append((name[0] == "[", is_a(members[to], (list, tuple, dict, set)), name, place_of_type(owner),
                          f"{owner.f_code.co_name}()" if has(owner, "f_code") else type_name(owner)))
    weight.words = " -> ".join(one[2] for one in found)
    kind = type_name(members[path[0]])
    return (weight.size, weight, *(min(found)[2:] if found else (kind, place_of_type(members[path[0]]), kind)))


most_garbage = []  # the largest that was found in this process so far, at most one


def remember(one):
    if not most_garbage or one[0] > most_garbage[0][0]:
        most_garbage[:] = [one]
    return one


COLUMNS = "module pandas.core."  # what refers to the columns of tables, which have the names of the tables


def unheld(held, until, seen, collects):
    """Yields (bytes, weight, name, where, type) of groups of large values that the search for variables did not find: garbage in cycles,
    and values of objects that are found only one from another, as in a linked list."""
    if not until.has_time_for(blocks_held()):
        return
    groups = sorted(census(until, seen).items(), key=lambda item: item[1].size, reverse=True)[:3]
    for _, group in groups:
        group.holders = group.holders[::max(1, len(group.holders) // STARTS)][:STARTS]
    for kinds, group in groups:
        if group.size < max(8 * LEAST, held // 8):
            continue
        lists = {}
        for _, other in groups:
            for one in other.holders if other is not group else ():
                lists[id(one)] = lists.get(id(one), 0) + 1
        one, members, starts = None, group.holders, len(group.holders)
        edges = search(members)
        dead = unreachable(members, edges, lists)
        garbage = [at for at in dead if at < starts and is_in_cycle(at, dead, edges)]
        lost = len(garbage)
        weight = Weight(group.size, group.count, kind_name(kinds[1]), mark="linked")
        if 2 * lost >= starts:
            weight.size, weight.count = group.size * lost // starts, group.count * lost // starts
            weight.mark = "garbage" if collects else "uncollected"
            yield remember(describe_garbage(members, edges, dead, garbage[0], weight))
        else:
            value = next((v for v in gc.get_referents(members[0]) if type(v) is kinds[1]), None)
            name, where = name_of(members, edges, 0, value)
            if name and not where.startswith(COLUMNS):
                yield weight.size, weight, name, where, name.split(".")[0]
        members.clear()


def collected(rest, found):
    """Yields the garbage that an earlier search found, if the collector has freed most of it since: the allocator keeps that memory. rest:
    bytes that have no name."""
    now = sum(size for size, weight, *_ in found if weight.mark in ("garbage", "uncollected"))
    for size, weight, *names in most_garbage:
        if 2 * now < size and rest > size // 2:
            left = Weight(min(size, rest), weight.count, weight.of, mark="collected", words=weight.words)
            yield (left.size, left, *names)
