# mypy: ignore-errors
"""Finds what fills the host memory of this Python process: the variables that hold most, and the lines that fill them.

The one engine behind `stowage run` and notebooks, in nine files, each above those it imports:

    _access     types, attributes and elements of objects, without running code of the program
    _samples    elements of containers, and what is known of an array at once
    _fields     what an object refers to
    _weighing   the bytes of a value with all it holds
    _frames     where the program is, and its statements
    _places     the line that fills a variable
    _variables  what the program's variables name
    _census     large values that no variable leads to
    _holders    the search through all of these, and the answer

The package imports it (_host.py). The build also joins the nine files, without their imports of each other, and puts them before
src/shim/host/report.py, which runs in processes of `stowage run`, possibly just before they run out of memory. So they import only
what every interpreter has loaded, allocate nothing large, change nothing, print nothing, and search for a bounded time (Deadline).
A name is given once in all of them.
"""
import gc
import itertools
import sys
import time

from ._access import *
from ._census import *
from ._fields import *
from ._frames import *
from ._places import *
from ._samples import *
from ._variables import *
from ._weighing import *

SHOWN = 24
PLACED = 8  # objects for which the line that fills them is searched
BLOCK = 48  # bytes of an object on average: a float takes 24, a tuple of two 56, a dict of four 232
LARGEST = 512  # … and at most, for what Python's allocator serves
BARE = 16 << 20  # that an interpreter holds without a program
OBJECT = "object"  # first word of a line (src/run/protocol.h)
TREE = 20_000  # objects that a search from one element opens


def reach(value, seen, until):
    """Returns the number and the bytes of the objects that one object leads to and that are not in `seen`, at most TREE."""
    waiting, size, before = [value], 0, len(seen)
    while waiting and len(seen) - before < TREE:
        if len(seen) % 256 == 0 and until.is_over():
            break
        one = waiting.pop()
        if id(one) in seen or is_a(one, (type, type(sys))) or has(type(one), "__globals__"):
            continue
        seen.add(id(one))
        size += byte_size(one)
        waiting.extend(gc.get_referents(one))
    return len(seen) - before, size


PEERS = 1000  # objects that refer to each other, from which on they can be most objects of the program


def peers_of(one, kind, until):
    """Returns objects of a class that one of them leads to, at most PEERS."""
    found, seen, at = [one], {id(one)}, 0
    while at < len(found) < PEERS and not until.is_over():
        inside = gc.get_referents(found[at])
        inside += [each for part in inside if type(part) in (list, dict, tuple, set) and length(part) <= SAMPLES for each in elements_of(part)]
        fresh = [each for each in inside if type(each) is kind and id(each) not in seen]
        seen.update(map(id, fresh))
        found += fresh
        at += 1
    return found[:PEERS]


def linked(one, held, until, name="", where=""):
    """Yields (bytes, weight, name, where, type) of objects of the program's class that refer to each other, as the nodes of a tree do, if
    they are much of what is held. All of them are counted: each leads to all others. If they are too many to list, their number is
    estimated from the blocks of all objects. name, where: of a variable that refers to one."""
    kind = type(one)
    if not is_own_module(module_of(kind)):
        return
    parts = {**fields_of(one), **slots_of(one)}
    names = [(type(value) is kind, link) for link, value in list(parts.items()) if is_peer(value, kind)]
    few_enough = until.has_time_for(blocks_held())
    nodes = [other for other in listed() if type(other) is kind] if names and few_enough else peers_of(one, kind, until) if names else []
    some = [weigh_instance(node, DEEP) for node in nodes[::max(1, len(nodes) // SAMPLES)]]
    count = len(nodes)
    if not few_enough and count >= PEERS:
        count = blocks_held() * len(some) // sum(2 + weight.objects for weight in some)  # a node's attributes are a block too
    size = sum(weight.size for weight in some) * count // max(1, len(some))
    del nodes
    if names and size >= held // 4:
        weight = Weight(size, count, kind_name(kind), mark="linked", words=", ".join(link for _, link in sorted(names)))
        yield (weight.size, weight, f"{kind_name(kind)}.{min(names)[1]}{' of ' * bool(name)}{name}", where or place_of_type(one),
               kind_name(kind))


def trees(values, held, until):
    """Yields (bytes, weight, name, where, type) of containers whose elements each keep much alive that the container does not list, as a
    tag of a page keeps the page, and an error the variables of its functions. Two elements are searched, after a first one that finds
    what all have in common."""
    blocks, counted, nodes_at = blocks_held(), {}, {}
    for value, name, where in values:
        if is_own_module(module_of(type(value))) and any(is_peer(v, type(value)) for v in few(attributes(value)[0])):
            # The outermost variable: those of functions that run, such as the newest node, come first.
            last = nodes_at.get(type(value), (None, "", ""))
            nodes_at[type(value)] = (value, name, where) if where != last[2] or len(name) < len(last[1]) else last
        if not is_a(value, (list, tuple, dict)) and class_name(value) != "deque" or length(value) < 4:
            continue
        if until.is_over():
            break
        if is_nested(value):
            continue  # weigh() counts all of it
        items = list(itertools.islice(elements_of(value), LONG))
        some = [items[len(items) * k // 4] for k in (1, 2, 3)]
        if any(type(each) in PLAIN_TEXT or is_array(each) for each in some):
            continue
        seen = {id(value), id(items), id(some)}
        (first, _), (one, size), (other, more) = [reach(each, seen, until) for each in some]
        count, size = (one + other) // 2, (size + more) // 2
        if max(first, one, other) >= TREE:
            kind = type(some[1])
            nodes = list(linked(some[1], held, until)) if kind not in counted else []
            counted[kind] = counted.get(kind, False) or len(nodes) > 0
            yield from nodes
            if counted[kind]:
                continue
        if 4 * count * length(value) >= blocks and count >= 100 or 2 * size * length(value) >= held:
            mark = "error" if is_a(some[1], BaseException) else "tree"
            weight = Weight(size * length(value), length(value), type_name(some[1]), mark=mark, objects=count * length(value))
            weight.owner = id(value)
            yield weight.size, weight, name, where, type_name(value)
    for kind, (value, name, _) in nodes_at.items():
        if not counted.get(kind) and not until.is_over():
            yield from linked(value, held, until, name, place_of_type(value))


def unnamed(made, found, held, collects, keeps=False):
    """Returns Python objects that no variable names yet, as those of a list that a comprehension is making, or no longer. Only their
    number is known. made: as for nameless(); held: bytes the process holds; keeps: whether the line that makes them is a comprehension,
    whose texts may be longer than most objects: the rest of what is held, if so many blocks can be that."""
    # Not arrays and long texts, which are few objects.
    named = sum(weight.text_bytes if weight.shape else size for size, weight, *_ in found if size < LARGE * max(1, weight.objects))
    # Counting reads every page of the interpreter's heap: not where what was found leaves too little for such objects.
    if made is None or held - sum(size for size, *_ in found) < named // 2:
        return []
    count = blocks_held()
    if count * BLOCK < max(2 * named, 32 * LEAST):
        return []
    rest = held - sum(size for size, *_ in found) - BARE
    size = rest if keeps and count * BLOCK < rest <= count * LARGEST else count * BLOCK
    weight = Weight(size, count, mark="nameless" if collects else "uncollected", objects=count)
    return [(weight.size, weight, *made, "list")]


LISTED = 20_000  # elements of a container that are remembered
PART = 1024  # bytes of an element, on average, from which on they are


def leaves(value, most):
    """Returns the ids of some elements of a container, and of what small containers among them hold."""
    found = []
    for one in sample(value)[:most]:
        inner = is_a(one, (list, tuple)) and 0 < length(one) <= SAMPLES
        found.extend(map(id, elements_of(one)) if inner else [id(one)])
    return found


class Parts:
    """The elements of the containers found so far. What two containers hold together counts once: a cache, and a list of its results."""

    def __init__(self):
        self._ids = set()

    def is_counted(self, value, weight):
        """Returns whether most of what a container holds was counted with another one; remembers its elements if not."""
        if not is_a(value, (list, tuple, dict, set)) or weight.size < PART * max(1, weight.count) or weight.count < 4:
            return False
        some = leaves(value, 8)
        if self._ids and 4 * sum(one in self._ids for one in some) >= 3 * len(some):
            return True
        if length(value) <= LISTED:
            self._ids.update(map(id, elements_of(value)))
        return False


def weighed(values, until, seen):
    """Yields (bytes, weight, name, where, type) of each that is large, or keeps graphs, and was not seen yet."""
    parts = seen.setdefault(Parts, Parts())
    for value, name, where in values:
        if until.is_over():
            break
        if is_a(value, (int, float, type, type(sys))) or callable(value) and not has(value, "__len__") and not is_database(value):
            continue
        try:
            weight = weigh(value, DEEP)
        except Exception:
            continue  # an object with its own behaviour
        key = weight.owner or id(value)
        if weight.size >= LEAST and parts.is_counted(value, weight):
            continue
        if (weight.size >= LEAST or weight.graphs >= GRAPHS or weight.mark in ("mapped", "database", "library")) and key not in seen:
            seen[key] = True
            weight.owner = key
            weight.values = summary(value) if weight.shape and weight.size >= LEAST else ""
            yield weight.size, weight, name, where, container_name(value)


def container_name(value):
    """Returns the name of its type; of a container of the program's own class, that of the container it is."""
    if is_own_module(module_of(type(value))):
        return next((qualified(kind) for kind in (dict, list, set) if is_a(value, kind)), type_name(value))
    return type_name(value)


def drawn(manager):
    """Returns the bytes of the arrays that a figure draws, and of the picture of its canvas, four bytes a pixel, if it was drawn."""
    canvas = get(manager, "canvas", None)
    figure = get(canvas, "figure", None)
    parts = [part for axes in get(figure, "axes", None) or () for part in get(axes, "_children", ())]
    box = get(figure, "bbox", None) if "renderer" in (get(canvas, "__dict__", None) or {}) else None
    picture = 4 * int(get(box, "width", 0)) * int(get(box, "height", 0))
    return picture + sum(weigh(value, 1).size for part in parts for value in list(get(part, "__dict__", {}).values()) if is_array(value))


def figures(held):
    """Yields (bytes, weight, name, where, type) of the figures that pyplot keeps until plt.close(), if they are much of what is held. Three of
    them are weighed."""
    known = get(get(sys.modules.get("matplotlib._pylab_helpers"), "Gcf", None), "figs", None) or {}
    open_ones = list(itertools.islice(known.values(), LONG))
    if len(open_ones) < 4:
        return
    some = [drawn(open_ones[len(open_ones) * k // 4]) for k in (1, 2, 3)]
    size = sum(some) * len(known) // len(some)
    if size >= held // 5:
        module = next((m for n, m in list(sys.modules.items()) if is_own_module(n)), None)
        where = "module " + (file_of(sys.modules.get("__main__")) or file_of(module) or "")
        yield size, Weight(size, len(known), "matplotlib.Figure", mark=""), FIGURES, where, "dict"


def arrays_first(values, until):
    """Yields the arrays, tensors and tables of a sequence before the rest: their sizes are known at once, while containers and objects
    may use up the time. Views come after the arrays they are views of: the variable of a loop over an array is one."""
    views, rest = [], []
    for one in values:
        if until.is_over():
            break
        if not is_array(one[0]):
            rest.append(one)
        elif has(get(one[0], "base", None), "nbytes"):
            views.append(one)
        else:
            yield one
    yield from views
    yield from rest


NODES = 4000  # of an autograd graph that are looked at


def carried(values):
    """Yields (bytes, weight, name, where, type) of the tensor whose graph goes back through the most iterations, as a state that each one
    passes to the next does: how often the graph uses one parameter."""
    torch, most = sys.modules.get("torch"), None
    for value, name, where in values if torch is not None else ():
        # A state that iterations pass on is outside of the model's own functions.
        if not is_a(value, get(torch, "Tensor", ())) or not is_known(type(value)) or get(value, "grad_fn", None) is None or value.dim() == 0 or where.startswith("forward at "):
            continue
        waiting, known, uses = [value.grad_fn], {}, {}  # a node that nothing refers to gets a new object each time
        while waiting and len(known) < NODES:
            for after, _ in waiting.pop().next_functions:
                if class_name(after) == "AccumulateGrad":
                    uses[id(after.variable)] = uses.get(id(after.variable), 0) + 1
                elif after is not None and id(after) not in known:
                    known[id(after)] = after
                    waiting.append(after)
        times = max(uses.values(), default=0)
        if times >= 2 * GRAPHS and (most is None or times > most[1].graphs):
            weight = weigh_tensor(value)
            weight.mark, weight.graphs = "carried", times
            most = weight.size, weight, name, where, type_name(value)
    return [] if most is None else [most]


INSIDE = "module stowage_inside"  # scripts of the shim, which hold copies of what does not fit on a device


def largest(main, others, held, collects=True, seconds=SECONDS):
    """Yields (bytes, weight, name, where, type) of all that is large, as it is found. held: bytes the process holds; collects: whether the
    program lets Python's cycle collector run; seconds: of this thread's own time."""
    until, seen, found = Deadline(seconds), {}, []
    counted_blocks.clear()
    known_kinds.clear()
    made_texts.clear()
    maker = maker_of(main)
    made = made_by(maker) if maker is not None else None

    def is_enough():
        """What a graph keeps has no name: no search finds it."""
        return found and sum(size for size, *_ in found) >= held // 2 or any(one[1].graphs >= 2 * GRAPHS for one in found)

    for values in (lambda: figures(held),
                   lambda: weighed(arrays_first(variables(main, others), until), until, seen),
                   lambda: carried(variables(main, others)),
                   lambda: trees(variables(main, others), held, until),
                   lambda: weighed(reached(main, others, until), until, seen),
                   lambda: weighed(instances(until), until, seen),
                   lambda: (one for one in unheld(held, until, seen, collects) if one[3] != INSIDE),
                   lambda: weighed(nameless(made, until), until, seen)):
        if until.is_over() or is_enough():
            break
        try:
            for one in values():
                found.append(one)
                yield one
        except Exception:
            continue  # the program changes what is searched: the other ways still find what is there
    for one in collected(held - sum(size for size, *_ in found), found):
        found.append(one)
        yield one
    yield from unnamed(made, found, held, collects, maker is not None and collecting(maker))


# ---- the answer ----


def object_line(found, place="", grows=False):
    size, w, name, where, kind = found
    words = [OBJECT, size, w.count, word(name)[:60], word(where)[-150:], word(kind)[:60], word(w.of)[:60], word(w.shape)[:60],
             size // max(1, w.count), word(place)[-150:], int(grows), w.mark, w.graphs, w.text_bytes, word(w.words)[:100],
             w.objects, made_texts.get(where) or line_text(place) if name.startswith(MADE) else line_text(place), w.values]
    return "\t".join(str(each) for each in words)


def without_parts(found):
    """Leaves out containers that are the elements of a container in the list, which together are most of it: groups["a"], beside groups."""
    parts = {}
    for one in found:
        if "[" in one[2] and one[4] in CONTAINERS:
            parts.setdefault((one[2].partition("[")[0], one[3]), []).append(one)
    for one in found:
        inner = parts.get((one[2], one[3]), ())
        if len(inner) > 1 and 10 * sum(part[0] for part in inner) >= 8 * one[0] and all(10 * part[0] < 8 * one[0] for part in inner):
            found = [other for other in found if not any(other is part for part in inner)]
    return found


def without_wholes(found):
    """Leaves out an object that mostly consists of another one in the list: agent, beside agent.memory; an archive, beside its buffer."""
    parts = [(name, where, size) for size, _, name, where, _ in found if "." in name or "[" in name]
    keys = {weight.owner for _, weight, *_ in found} - {None}  # what has no name yet has no owner either
    return [one for one in found if not (one[1].chief in keys and one[1].chief != one[1].owner) and not any(
        name.startswith((one[2] + ".", one[2] + "[")) and where == one[3] and 10 * size >= 8 * one[0] for name, where, size in parts)]


def object_lines(found, main, placed=True):
    """Returns lines about the largest, and about what keeps graphs; with the program's lines that fill the first of them."""
    found = sorted(without_wholes(without_parts(found)), key=lambda f: f[0], reverse=True)
    shown = found[:SHOWN] + [one for one in found[SHOWN:] if one[1].mark in ("graph", "carried", "mapped", "database", "library")][:4]
    lines = []
    for at, one in enumerate(shown):
        try:
            wanted = placed and (at < PLACED or one[1].mark in ("graph", "carried", "database", "library"))
            find = library_place if one[1].mark == "library" else place_of
            place = find(one[2], one[3], main, one[4], one[1].words, one[1].mark in ("carried", "graph"), one[1].of) if wanted else ("", False)
            if one[4] in CONTAINERS and one[1].words and one[1].mark in ("", "view"):
                one[1].words = widened(one[1].words, main)
            if place[1] and one[1].mark == "" and enclosing(place[0].rpartition(":")[0], int(place[0].rpartition(":")[2])) == "__getitem__":
                one[1].mark = "fetched"  # a cache that a dataset fills while it is read
            elif place[1] and one[1].mark == "" and one[4] in CONTAINERS and is_made_ahead(place[0]):
                one[1].mark = "ahead"
        except Exception:
            place = "", False
        lines.append(object_line(one, *place))
    return lines


SEARCHING.add(largest.__code__.co_filename)
