# mypy: ignore-errors
"""Finds what fills the host memory of this Python process: the variables that hold most, and the lines that fill them.

The one engine behind `stowage run` and notebooks. The package imports it (_host.py); the build also puts it before
src/shim/host/report.py, which runs in processes of `stowage run`, possibly just before they run out of memory. So it imports only
what every interpreter has loaded, allocates nothing large, changes nothing, prints nothing, and searches for a bounded time (Deadline).
It reads the variables of all frames and of the program's own modules. The build leaves the import of _weighing.py out and puts that file
before this one.
"""
import _thread
import gc
import itertools
import os
import sys
import time

from ._weighing import *

SECONDS = 0.5
SHOWN = 24
PLACED = 8  # objects for which the line that fills them is searched
BLOCK = 48  # bytes of an object on average: a float takes 24, a tuple of two 56, a dict of four 232
MADE = "what line "  # "what line 7 makes": a value that has no name of the program's yet
OBJECT, FRAME = "object", "frame"  # first words of the lines (src/run/protocol.h)


# ---- the program's own frames and variables ----


def is_own_frame(frame):
    name, path = frame.f_globals.get("__name__", ""), frame.f_code.co_filename
    if path in ("<string>", "<stdin>"):
        return name == "__main__" and sys.argv[:1] in (["-c"], ["-"], [""])  # python -c, or a program from a pipe; not a dataclass's functions
    return is_own(path) and not (isinstance(name, str) and name.startswith("stowage."))


def threads():
    """Returns the frame of the main thread, and those of the others; not of the calling thread."""
    frames = {ident: frame for ident, frame in sys._current_frames().items() if ident != _thread.get_ident()}
    known = sys.modules.get("threading")
    main = known.main_thread().ident if known is not None else None
    first = frames.pop(main, None) if main is not None else None
    if first is None and frames:
        first = frames.pop(next(iter(frames)))
    return first, list(frames.values())


def stack_of(frame):
    while frame is not None:
        yield frame
        frame = frame.f_back


def cached(function):
    """Returns what functools.lru_cache keeps for a function."""
    held = gc.get_referents(function)
    kept = next((h for h in held if isinstance(h, dict) and h is not function.__dict__), {})
    if type(next(iter(kept.values()), None)).__name__ != "_lru_list_elem":
        return kept
    return [h for h in held if not isinstance(h, (type, int, dict)) and not callable(h)]


def behind(value, name, depth):
    """Yields (value, name) of what a function or a class of the program keeps."""
    if callable(get(value, "cache_info", None)):
        yield cached(value), f"the cache of {name}"
    elif isinstance(value, type):
        for n, v in list(vars(value).items()):
            if not n.startswith("__"):
                v = get(v, "__func__", v)  # of a static or a class method
                if callable(get(v, "cache_info", None)):
                    yield from behind(v, f"{name}.{n}", depth)
                elif isinstance(v, (dict, list, tuple)):
                    yield from opened(v, f"{name}.{n}", depth - 1)
                else:
                    yield v, f"{name}.{n}"
    elif has(value, "__code__") and has(value, "__closure__"):
        code = value.__code__
        given = value.__defaults__ or ()
        yield from ((v, f"{n} of {name}") for n, v in zip(code.co_varnames[code.co_argcount - len(given):], given))
        yield from ((c.cell_contents, f"{n} of {name}") for n, c in zip(code.co_freevars, value.__closure__ or ()))


FEW = 16  # elements of a record or a bundle rather than a collection: each is looked at by itself
HOLDERS = ("queue", "collections", "asyncio", "multiprocessing", "logging")  # modules whose objects only hold others


def opened(value, name, depth=2):
    """Yields (value, name) of a variable, of the attributes of the program's own objects, and of the few things in a bundle."""
    yield value, name
    if queued(value) is not None or type(value).__name__ in ("Pool", "ThreadPool", "SharedMemory"):
        return
    if depth > 0 and type(value).__module__ in ("builtins", "collections") and isinstance(value, (dict, list, tuple)) and 0 < len(value) <= FEW:
        for key, v in list(value.items() if isinstance(value, dict) else enumerate(value)):
            if isinstance(v, (dict, list, tuple, set)) or (isinstance(value, dict) and has(v, "nbytes")):
                yield from opened(v, item_name(name, key), depth - 1)
    if not is_library(value) and is_own_module(get(value, "__module__", None)) or type(value).__module__.split(".")[0] in HOLDERS:
        if isinstance(value, type) or callable(value):
            yield from behind(value, name, depth)
        inner = get(value, "__dict__", None)
        if depth > 0 and isinstance(inner, dict) and not isinstance(value, type):
            for n, v in list(inner.items()):
                yield from opened(v, f"{name}.{n}", depth - 1)


def is_result(name):
    """Returns true for the names under which a notebook keeps inputs and results."""
    return name in ("In", "Out", "_oh", "_ih", "_dh") or name.strip("_") == "" or (name[0] == "_" and name[1:].lstrip("i").isdigit())


def is_imported(value, module):
    """Returns whether a class or function is a variable of another module of the program too, the one that defines it: it is listed there,
    with its own file. What a function of that module returned (a decorated function, a class made by a factory) is only here."""
    own = get(value, "__module__", None)
    if not isinstance(value, (type, type(is_own))) or own == module or not is_own_module(own):
        return False
    return get(sys.modules.get(own), "__dict__", {}).get(value.__name__) is value


def named(values, where, shell):
    """Yields (value, name, where) of module variables. A notebook's results come last: they are often a second name of a variable."""
    for variable, value in values:
        if not variable.startswith("__") and not (shell and is_result(variable)):
            yield from ((v, n, where) for v, n in opened(value, variable))
    for number, value in list(dict(values).get("Out", {}).items()) if shell else ():
        yield from ((v, n, where) for v, n in opened(value, f"Out[{number}]"))


def file_of(module):
    """Returns the file of a module; None for a notebook, whose code is in cells. At the exit __main__ no longer has its __file__."""
    path = get(module, "__file__", None)
    if "get_ipython" in get(module, "__dict__", ()):
        return None
    if path is None and get(module, "__name__", "") == "__main__" and sys.argv and sys.argv[0].endswith(".py"):
        path = os.path.abspath(sys.argv[0])
    return path


def tasks_of(frames):
    """Returns the frames of the tasks of asyncio that wait, for the loops that these frames run."""
    known, found = sys.modules.get("asyncio"), []
    for loop in [locals_of(frame).get("self") for frame in frames if known is not None and frame.f_code.co_name == "_run_once"]:
        for task in itertools.islice(known.all_tasks(loop), SAMPLES):
            found.extend(frame for frame in suspended(task) if frame not in frames)
    return found


made_texts = {}  # the statements that make values without a name, by their places, as they were when the search began


def line_of(frame):
    """Returns the line a frame is at. Since Python 3.10 some instructions have none: then that of the last one before it that has."""
    if frame.f_lineno:
        return frame.f_lineno
    lines = get(frame.f_code, "co_lines", tuple)()
    return next((line for start, _, line in reversed(list(lines)) if line and start <= frame.f_lasti), 0)


def made_by(frame):
    """Returns the name and the place of what the statement a frame is at makes, and keeps its text: the program goes on meanwhile."""
    line = beginning(source_lines(frame.f_code.co_filename), line_of(frame))
    where = f"{frame.f_code.co_name} at {frame.f_code.co_filename}:{line}"
    if where not in made_texts:
        made_texts[where] = assigned(frame)
    return f"{MADE}{line} makes", where


def assigned(frame):
    """Returns the text of the statement a frame is at; of "return f(x)" with the variable that the caller assigns it to in place of the
    word."""
    text = source(frame)
    if not text.startswith("return "):
        return text
    own = (source(f) for f in itertools.islice(stack_of(frame.f_back), 64) if is_own_frame(f))
    call = next((each for each in own if not each.startswith("return ")), "")
    target, sign, _ = call.partition(" = ")
    return f"{target} = {text[len('return '):]}" if sign and target.replace(".", "").isidentifier() else text


def gathered(frames):
    """Yields (value, name, where) of the tasks that asyncio.gather waits for, which keep their results until all are complete: they are
    what the line that waits makes."""
    known = sys.modules.get("asyncio")
    for loop in [locals_of(frame).get("self") for frame in frames if known is not None and frame.f_code.co_name == "_run_once"]:
        for task in itertools.islice(known.all_tasks(loop), REACH):
            own, last = next((f for f in reversed(suspended(task)) if is_own_frame(f)), None), list(waiting(task))[-1:]
            found = kept_by(last[0]) if own is not None and last else []
            found += gc.get_referents(*(one for one in found if type(one).__name__ == "FutureIter"))  # what `await future` makes
            for future in found:
                tasks = get(future, "_children", None)
                if isinstance(tasks, list):
                    yield (tasks, *made_by(own))


def is_given(frame, name):
    """Returns whether a variable of a frame was made elsewhere: an argument, but not self, or what a comprehension goes through."""
    code = frame.f_code
    return code.co_name.startswith("<") and code.co_name != "<module>" or (
        name not in ("self", "cls") and name in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount])


def variables(main, others):
    """Yields (value, name, where) of everything a variable names. The program's own names come first: a thing is reported once."""
    frames = [frame for top in [main, *others] for frame in stack_of(top) if frame.f_code.co_name != "<module>"]
    # People know the line that called a library. It is read first: the program goes on while the rest is.
    callers = [(frame, next((f for f in stack_of(frame) if is_own_frame(f)), frame)) for frame in frames
               if not is_own(frame.f_code.co_filename) and not is_own_frame(frame)]
    callers = [(frame, own, made_by(own)) for frame, own in callers]
    yield from gathered(frames)
    frames += tasks_of(frames)
    given = []
    for frame in frames:
        if is_own_frame(frame):
            where = f"{frame.f_code.co_name} at {frame.f_code.co_filename}:{frame.f_lineno}"
            for name, value in locals_of(frame).items():
                if is_given(frame, name):
                    given.append((value, name, where))
                else:
                    yield from ((v, n, where) for v, n in opened(value, name))
    for name, module in list(sys.modules.items()):
        if is_own_module(name):
            where = "module " + (file_of(module) or name)
            values = [(n, v) for n, v in list(get(module, "__dict__", {}).items()) if not is_imported(v, name)]
            yield from named(values, where, name == "__main__" and "get_ipython" in vars(module))
    for value, name, where in given:
        yield from ((v, n, where) for v, n in opened(value, name))
    for frame, own, (name, where) in callers:
        yield from ((v, name if own is not frame else n, where) for n, v in locals_of(frame).items() if has(v, "nbytes") or has(v, "memory_usage"))


MANY = 400_000  # objects, above which a list of them all takes too long and too much


def instances():
    """Yields (value, name, where) of the containers in objects of the program's own classes, even if a library holds those objects (a
    logging handler, a trainer's callback). Not arrays: an array that matters is in a container or has a name."""
    if get(sys, "getallocatedblocks", int)() > MANY:
        return
    own, looked = {}, {}
    for value in listed():
        kind = type(value)
        if kind not in own:
            own[kind] = is_own_module(get(kind, "__module__", None))
        if not own[kind] or isinstance(value, type) or looked.get(kind, 0) >= SAMPLES:
            continue
        looked[kind] = looked.get(kind, 0) + 1
        for name, held in list((get(value, "__dict__", None) or {}).items()):
            if isinstance(held, (list, dict, set)) or type(held).__name__ == "deque":
                yield held, f"{kind.__qualname__}.{name}", "module " + kind.__module__


REACH = 20_000  # objects that a search from the program's variables opens
LONG = 1000  # elements of a container that is weighed, and not searched


def reached(main, others):
    """Yields (value, name, where) of long containers that a chain of objects leads to from the program's variables, as a handler of
    logging keeps records."""
    seen, waiting = set(), list(variables(main, others))
    for name, module in list(sys.modules.items()):
        if is_own_module(name):
            where = "module " + (file_of(module) or name)
            waiting.extend((v, n, where) for n, v in list(get(module, "__dict__", {}).items()) if not n.startswith("__"))
    for value, name, where in itertools.islice(_chain(waiting, seen), REACH):
        yield value, name, where


def _chain(waiting, seen):
    at = 0
    while at < len(waiting) and len(waiting) < REACH:
        value, name, where = waiting[at]
        at += 1
        if id(value) in seen or isinstance(value, (str, bytes, int, float, type, type(sys))):
            continue
        seen.add(id(value))
        if isinstance(value, (list, tuple, dict, set)) or type(value).__name__ == "deque":
            if len(value) >= LONG:
                yield value, name, where
            elif isinstance(value, dict):
                waiting.extend((v, item_name(name, k), where) for k, v in list(value.items()))
            else:
                waiting.extend((v, f"{name}[{i}]"[:60], where) for i, v in enumerate(list(value)))
            continue
        inner = get(value, "__dict__", None)
        if isinstance(inner, dict):
            kind = type(value)
            own = is_own_module(get(kind, "__module__", None))
            module = sys.modules.get(kind.__module__)
            waiting.extend((v, f"{kind.__qualname__ if own else name}.{n}", "module " + (file_of(module) or kind.__module__) if own else where)
                           for n, v in list(inner.items()))


COLLECTING = ("map(", ".apply(", ".applymap(", ".transform(", ".agg(", ".starmap(", "gather(")


def collects(frame):
    """Returns whether the line of a frame keeps what each of many calls returns: a comprehension, map, apply."""
    text = source(frame)
    return frame.f_code.co_name in ("<listcomp>", "<dictcomp>", "<setcomp>") or any(call in text for call in COLLECTING) or (
        " for " in text and " in " in text and any(sign in text.split(" for ")[0] for sign in "[{("))


def maker_of(main):
    """Returns the frame of the program that makes something: not a constructor, not a generator, which another line consumes, and not a
    function that another line calls for each of many elements."""
    own = [frame for frame in itertools.islice(stack_of(main), 64) if is_own_frame(frame) and not frame.f_code.co_flags & 0x20  # CO_GENERATOR
           and frame.f_code.co_name not in ("__init__", "__new__", "<genexpr>")]
    return next((frame for frame in own[1:4] if collects(frame)), own[0]) if own else None


def nameless(made):
    """Yields (value, name, where) of containers of large objects, even if no variable holds them: list(…) has no name before it is
    complete. made: name and place of what the program makes; None if it makes nothing."""
    if made is None or get(sys, "getallocatedblocks", int)() > MANY:
        return
    for value in listed():
        if type(value) not in (list, dict) or len(value) < 4:
            continue
        first = value[0] if type(value) is list else next(iter(value.values()), None)
        if isinstance(get(first, "nbytes", None), int) and first.nbytes >= 64 << 10 or isinstance(first, bytes) and len(first) >= 64 << 10:
            yield (value, *made)


TREE = 20_000  # objects that a search from one element opens


def reach(value, seen):
    """Returns the number and the bytes of the objects that one object leads to and that are not in `seen`, at most TREE."""
    waiting, size, before = [value], 0, len(seen)
    while waiting and len(seen) - before < TREE:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (type, type(sys))) or has(type(one), "__globals__"):
            continue
        seen.add(id(one))
        size += sys.getsizeof(one, 0)
        waiting.extend(gc.get_referents(one))
    return len(seen) - before, size


def linked(one, held, name="", where=""):
    """Yields (bytes, weight, name, where, type) of objects of the program's class that refer to each other, as the nodes of a tree do, if
    they are much of what is held. All of them are counted: each leads to all others. name, where: of a variable that refers to one."""
    kind = type(one)
    if not is_own_module(get(kind, "__module__", None)) or get(sys, "getallocatedblocks", int)() > CENSUS:
        return
    parts = {**(get(one, "__dict__", None) or {}), **slots_of(one)}
    names = [(type(value) is kind, link) for link, value in list(parts.items()) if is_peer(value, kind)]
    objects = listed() if names else []
    count = sum(type(other) is kind for other in objects)
    nodes = itertools.islice((other for other in objects if type(other) is kind), 0, None, max(1, count // SAMPLES))
    some = [weigh_instance(node, DEEP).size for node in nodes]
    size = sum(some) * count // max(1, len(some))
    del objects, nodes
    if names and size >= held // 4:
        weight = Weight(size, count, kind_name(kind), mark="linked", words=", ".join(link for _, link in sorted(names)))
        yield (weight.size, weight, f"{kind_name(kind)}.{min(names)[1]}{' of ' * bool(name)}{name}", where or place_of_type(one),
               kind_name(kind))


def trees(values, held, until):
    """Yields (bytes, weight, name, where, type) of containers whose elements each keep much alive that the container does not list, as a
    tag of a page keeps the page, and an error the variables of its functions. Two elements are searched, after a first one that finds
    what all have in common."""
    blocks, counted, nodes_at = get(sys, "getallocatedblocks", int)(), {}, {}
    for value, name, where in values:
        if is_own_module(get(type(value), "__module__", None)) and any(is_peer(v, type(value)) for v in few(attributes(value)[0])):
            # The outermost variable: those of functions that run, such as the newest node, come first.
            last = nodes_at.get(type(value), (None, "", ""))
            nodes_at[type(value)] = (value, name, where) if where != last[2] or len(name) < len(last[1]) else last
        if not isinstance(value, (list, tuple, dict)) and type(value).__name__ != "deque" or len(value) < 4:
            continue
        if until.is_over():
            break
        items = list(itertools.islice(value.values() if isinstance(value, dict) else value, LONG))
        some = [items[len(items) * k // 4] for k in (1, 2, 3)]
        if any(type(each) in PLAIN_TEXT or is_array(each) for each in some):
            continue
        seen = {id(value), id(items), id(some)}
        (first, _), (one, size), (other, more) = [reach(each, seen) for each in some]
        count, size = (one + other) // 2, (size + more) // 2
        if max(first, one, other) >= TREE:
            kind = type(some[1])
            nodes = list(linked(some[1], held)) if kind not in counted else []
            counted[kind] = counted.get(kind, False) or len(nodes) > 0
            yield from nodes
            if counted[kind]:
                continue
        if 4 * count * len(value) >= blocks and count >= 100 or 2 * size * len(value) >= held:
            mark = "error" if isinstance(some[1], BaseException) else "tree"
            weight = Weight(size * len(value), len(value), type_name(some[1]), mark=mark, objects=count * len(value))
            weight.owner = id(value)
            yield weight.size, weight, name, where, type_name(value)
    for kind, (value, name, _) in nodes_at.items():
        if not counted.get(kind) and not until.is_over():
            yield from linked(value, held, name, place_of_type(value))


def unnamed(made, found, held, collects):
    """Returns Python objects that no variable names yet, as those of a list that a comprehension is making, or no longer. Only their
    number is known. made: as for nameless(); held: bytes the process holds."""
    # Not arrays and long texts, which are few objects.
    named = sum(weight.text_bytes if weight.shape else size for size, weight, *_ in found if size < LARGE * max(1, weight.objects))
    # Counting reads every page of the interpreter's heap: not where what was found leaves too little for such objects.
    if made is None or held - sum(size for size, *_ in found) < named // 2:
        return []
    count = get(sys, "getallocatedblocks", int)()
    if count * BLOCK < max(2 * named, 32 * LEAST):
        return []
    weight = Weight(count * BLOCK, count, mark="nameless" if collects else "uncollected", objects=count)
    return [(weight.size, weight, *made, "list")]


class Deadline:
    """SECONDS of this thread's own time. A program that computes lets the thread run for a part of the time only, so up to four times as
    long by the clock."""

    def __init__(self):
        self._own, self._clock = time.thread_time() + SECONDS, time.monotonic() + 4 * SECONDS

    def is_over(self):
        return time.thread_time() > self._own or time.monotonic() > self._clock


def weighed(values, until, seen):
    """Yields (bytes, weight, name, where, type) of each that is large, or keeps graphs, and was not seen yet."""
    for value, name, where in values:
        if until.is_over():
            break
        if isinstance(value, (int, float, type, type(sys))) or callable(value) and not has(value, "__len__") and not is_database(value):
            continue
        try:
            weight = weigh(value, DEEP)
        except Exception:
            continue  # an object with its own behaviour
        key = weight.owner or id(value)
        if (weight.size >= LEAST or weight.graphs >= GRAPHS or weight.mark in ("mapped", "database", "library")) and key not in seen:
            seen[key] = True
            weight.owner = key
            yield weight.size, weight, name, where, container_name(value)


def container_name(value):
    """Returns the name of its type; of a container of the program's own class, that of the container it is."""
    if is_own_module(get(type(value), "__module__", None)):
        return next((kind.__name__ for kind in (dict, list, set) if isinstance(value, kind)), type_name(value))
    return type_name(value)


def is_array(value):
    """Returns whether its size is known at once. Asks the class: an object may answer any name."""
    return has(type(value), "nbytes") or has(type(value), "memory_usage")


FIGURES = "figures of pyplot"


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


def arrays_first(values):
    """Yields the arrays, tensors and tables of a sequence before the rest: their sizes are known at once, while containers and objects
    may use up the time. Views come after the arrays they are views of: the variable of a loop over an array is one."""
    views, rest = [], []
    for one in values:
        if not is_array(one[0]):
            rest.append(one)
        elif get(one[0], "base", None) is not None and has(one[0].base, "nbytes"):
            views.append(one)
        else:
            yield one
    yield from views
    yield from rest


# ---- what no variable leads to ----

CENSUS = 4_000_000  # blocks, above which objects are not listed
LARGE = 64 << 10
STARTS = 16  # holders of one group that are searched
CLOSURE = 4000  # objects that one search opens
OPAQUE = (type, type(sys), type(len), type(is_array.__code__), property, staticmethod, classmethod)


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
            if id(value) not in seen and (is_array(value) or sys.getsizeof(value) >= LARGE) and not is_globals(value)}


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


def is_ours(value):
    """Returns whether it is a frame, a generator or a group of this search."""
    return type(value) is Group or get(get(value, "gi_code", None) or get(value, "f_code", None), "co_filename", "") == is_ours.__code__.co_filename


def referrers(values, known, limit):
    """Returns objects that refer to one of them and are not known; not those that hold very much, which are in use."""
    found = whole(gc.get_referrers, *((value,) for value in values)) if values else []
    return [r for r in found if r is not values and id(r) not in known and not isinstance(r, OPAQUE) and not is_ours(r) and not is_globals(r)
            and not (isinstance(r, (list, dict, tuple, set)) and len(r) > LONG)][:limit]


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
            if gc.is_tracked(one) and not isinstance(one, OPAQUE) and not is_globals(one):
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
    if isinstance(holder, dict):
        key = next((k for k, v in list(holder.items()) if v is value), None)
        if type(key) is not str:
            return ""
        return f"{type_name(owner)}.{key}" if get(owner, "__dict__", None) is holder else f"[{key!r}]"
    if has(holder, "f_code"):
        name = next((n for n, v in locals_of(holder).items() if v is value), "")
        return f"{name} in {holder.f_code.co_name}()" if name else ""
    inner = get(holder, "__dict__", None) if not isinstance(holder, OPAQUE) else None
    parts = {**(inner if isinstance(inner, dict) else {}), **slots_of(holder)}
    name = next((n for n, v in list(parts.items()) if v is value), "")
    return f"{type_name(holder)}.{name}" if name else ""


def place_of_type(holder):
    """Returns where the function of a frame is, or the class of an object, as "module train.py"."""
    if has(holder, "f_code"):
        return f"{holder.f_code.co_name} at {holder.f_code.co_filename}:{holder.f_lineno}"
    module = type(holder).__module__
    path = file_of(sys.modules.get(module))
    return "module " + (path if path and is_own(path) else module)


def name_of(members, edges, at, value):
    """Returns (name, where) of how a member, or what refers to it, refers to a value; ("", "") if no reference has a name."""
    for _ in range(3):
        holder, above = members[at], [i for i, to in enumerate(edges) if at in to]
        owner = next((i for i in above if get(members[i], "__dict__", None) is holder), None)
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
        owner = next((members[i] for i in path if get(members[i], "__dict__", None) is members[at]), members[at])
        name = reference_name(members[at], members[to], owner)
        if name:
            found.append((name[0] == "[", isinstance(members[to], (list, tuple, dict, set)), name, place_of_type(owner),
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
    if get(sys, "getallocatedblocks", int)() > CENSUS:
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


NODES = 4000  # of an autograd graph that are looked at


def carried(values):
    """Yields (bytes, weight, name, where, type) of the tensor whose graph goes back through the most iterations, as a state that each one
    passes to the next does: how often the graph uses one parameter."""
    torch, most = sys.modules.get("torch"), None
    for value, name, where in values if torch is not None else ():
        # A state that iterations pass on is outside of the model's own functions.
        if not isinstance(value, get(torch, "Tensor", ())) or get(value, "grad_fn", None) is None or value.dim() == 0 or where.startswith("forward at "):
            continue
        waiting, known, uses = [value.grad_fn], {}, {}  # a node that nothing refers to gets a new object each time
        while waiting and len(known) < NODES:
            for after, _ in waiting.pop().next_functions:
                if type(after).__name__ == "AccumulateGrad":
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


def largest(main, others, held, collects=True):
    """Yields (bytes, weight, name, where, type) of all that is large, as it is found. held: bytes the process holds; collects: whether the
    program lets Python's cycle collector run."""
    until, seen, found = Deadline(), {}, []
    made_texts.clear()
    maker = maker_of(main)
    made = made_by(maker) if maker is not None else None

    def is_enough():
        """What a graph keeps has no name: no search finds it."""
        return found and sum(size for size, *_ in found) >= held // 2 or any(one[1].graphs >= 2 * GRAPHS for one in found)

    for values in (lambda: figures(held),
                   lambda: weighed(arrays_first(variables(main, others)), until, seen),
                   lambda: carried(variables(main, others)),
                   lambda: trees(variables(main, others), held, until),
                   lambda: weighed(reached(main, others), until, seen),
                   lambda: (one for one in unheld(held, until, seen, collects) if one[3] != INSIDE),
                   lambda: weighed(instances(), until, seen),
                   lambda: weighed(nameless(made), until, seen)):
        if is_enough():
            break
        for one in values():
            found.append(one)
            yield one
    for one in collected(held - sum(size for size, *_ in found), found):
        found.append(one)
        yield one
    yield from unnamed(made, found, held, collects)


# ---- the line that fills an object ----


def source_lines(path):
    """Returns the lines of a file of the program, [] if there is none. (report.py has its own version.)"""
    import linecache

    return linecache.getlines(path)


def label(path):
    """Returns the name of a file for people; the package names cells of a notebook. May not contain a tab."""
    return path


GROWING = ("append", "extend", "add", "update", "insert", "setdefault", "put", "put_nowait", "push", "write",
           "writelines", "appendleft")


JOINING = ("concat(", "concatenate(", "append(", "vstack(", "hstack(", "stack(", "cat(", "union(", "merge(")


def identifier(name):
    """Returns the last plain name: _cache of "self._cache", rows of "rows['x']", render of "the cache of render"."""
    plain = name.split(" of ")[-1 if name.startswith("the cache of ") else 0].split(" in ")[0]
    plain = plain.rpartition("].")[2] if "]." in plain else plain
    return plain.split("[")[0].split(".")[-1].strip()


def follows(line, ident):
    """Yields the text after each whole-word occurrence of a name."""
    at = line.find(ident)
    while at >= 0:
        end = at + len(ident)
        before = line[at - 1] if at > 0 else " "
        after = line[end] if end < len(line) else " "
        if not (before.isalnum() or before in "_\"'") and not (after.isalnum() or after in "_\"'"):
            yield line[end:].lstrip()
        at = line.find(ident, end)


def past_index(text):
    """Returns what comes after "[…]" at the start of a text; the text itself if there is none."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth == 0:
            return text[at + 1:].lstrip() if letter == "]" else text
    return text


def is_assignment(text):
    return text.startswith("=") and not text.startswith("==")


EMPTY = ("None", "[]", "{}", "()", "list()", "dict()", "set()", '""', "''", "0")


def role_of(line, ident):
    """Returns 2 if the line adds to a variable of that name, 1 if it assigns one, 0.5 if what it assigns is empty, 0 otherwise."""
    stripped = line.lstrip()
    if stripped.startswith(("#", "def ", "class ", "import ", "from ")) or ident not in line:
        return 0
    best = 2 if f"SubElement({ident}," in line else 0  # of ElementTree: adds to its first argument
    for rest in follows(line, ident):
        inner = past_index(rest) if rest.startswith("[") else rest
        method = inner[1:].split("(")[0].strip() if inner.startswith(".") and "(" in inner else ""
        if method in GROWING or rest.startswith(("+=", "|=")) or (inner is not rest and (is_assignment(inner) or inner.startswith("+="))):
            return 2
        left = stripped.split("=")[0]
        if rest.startswith(",") and "=" in rest and open_brackets(left) == 0 and left.replace(",", " ").replace("(", " ").split().count(ident) and (
                left.replace(",", "").replace("(", "").replace(")", "").replace("self.", "").replace(" ", "").isidentifier()):
            best = max(best, 1)  # "x, y = f()"
        if is_assignment(rest) or (rest.startswith(":") and "=" in rest and stripped.startswith((ident, "self."))):
            # "x = x + [part]" adds to it too, and "x = np.vstack([x, part])".
            again = any(True for _ in follows(rest[1:], ident))
            empty = rest.rpartition("=")[2].split("#")[0].strip() in EMPTY
            best = max(best, 2 if again and ("+" in rest or any(call in rest for call in JOINING)) else 0.5 if empty else 1)
    return best


def is_own_kind(name):
    """Returns whether it is the name of a class of the program's main module."""
    return isinstance(get(sys.modules.get("__main__"), name, None), type)


CONTAINERS = ("list", "dict", "set", "tuple")
TABLES = ("pandas.DataFrame",)  # a line x["name"] = … sets one column of them


def sets_column(line, ident, column):
    """Returns true for the line that sets that column of a table."""
    return any(rest.startswith((f'["{column}"]', f"['{column}']")) and is_assignment(past_index(rest)) for rest in follows(line, ident))


def written_by(lines, ident):
    """Returns the number of the first line that writes to a file in memory through what was made of it, as an archive is, or that gives it
    to a call; 0 if there is none."""
    others, given = [], 0
    for number, line in enumerate(lines, 1):
        stripped = line.lstrip()
        if any(after.startswith(".write") for name in others for after in follows(line, name)):
            return number
        if ident not in line or stripped.startswith(("def ", "return ", "#", f"{ident} =", f"{ident}.")):
            continue
        for after in follows(line, ident):
            if after[:1] not in (",", ")"):
                continue
            if stripped.startswith("with ") and " as " in after:
                others.append(after.rpartition(" as ")[2].split(":")[0].strip())
            elif "=" in stripped.split("(")[0]:
                others.append(stripped.split("=")[0].strip())
            else:
                given = given or number
    return given


def enclosing(path, number):
    """Returns the name of the function that a line is in, "" if it is in none."""
    lines = source_lines(path)[:number]
    margin = len(lines[-1]) - len(lines[-1].lstrip()) if lines else 0
    for line in reversed(lines):
        if line.strip() and len(line) - len(line.lstrip()) < margin:
            margin = len(line) - len(line.lstrip())
            if line.lstrip().startswith(("def ", "async def ")):
                return line.partition("def ")[2].split("(")[0].strip()
    return ""


RELEASING = ("free", "release", "destroy", "close", "delete", "dispose")
ALLOCATING = ("alloc", "create", "new", "open", "init", "load", "make", "dup")


def library_place(name, where, main, *_):
    """Returns ("file:line", False) of the line that calls a C library for memory: the function with such a name, otherwise the line the
    program is at, otherwise the first call that frees nothing; ("", False) if there is none."""
    files = [where[len("module "):]] if where.startswith("module /") else []
    on_stack = [(f.f_code.co_filename, f.f_lineno) for f in itertools.islice(stack_of(main), 64) if is_own_frame(f)]
    ident, found = identifier(name), []
    for path in list(dict.fromkeys(files + [path for path, _ in on_stack]))[:4]:
        for number, line in enumerate(source_lines(path), 1):
            for rest in follows(line, ident) if ident in line and not line.lstrip().startswith("#") else ():
                function = rest[1:].partition("(")[0].strip().lower() if rest.startswith(".") and "(" in rest else ""
                if function.isidentifier() and not any(each in function for each in RELEASING):
                    found.append((any(each in function for each in ALLOCATING), (path, number) in on_stack, -len(found), path, number))
    return (f"{label(max(found)[3])}:{max(found)[4]}", False) if found else ("", False)


def parts_between(text):
    """Returns the parts of a text between the commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def called_alone(value):
    """Returns (function, whether it is called through an object or a module) if a value is a call and nothing else: ("load", True) of
    "self.load(path)"; ("", False) otherwise."""
    name, bracket, rest = value.partition("(")
    depth = 1
    for at, letter in enumerate(rest):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and rest[at + 1:].split("#")[0].strip():
            return "", False
    parts = (name[len("await "):] if name.startswith("await ") else name).split(".")
    return (parts[-1], len(parts) > 1) if bracket and all(part.isidentifier() for part in parts) else ("", False)


def body_of(name, path, dotted):
    """Returns (file, first, end) of the lines of a function of the program that returns a value, or None. dotted: it is a function of a
    module, or else a method."""
    module = next((m for n, m in list(sys.modules.items()) if is_own_module(n) and has(get(get(m, "__dict__", {}).get(name), "__code__", None), "co_filename")), None)
    path = vars(module)[name].__code__.co_filename if module is not None else path
    lines = source_lines(path)
    first = [at for at, line in enumerate(lines) if line.lstrip().startswith((f"def {name}(", f"async def {name}("))]
    if len(first) != 1 or not is_own(path) or (dotted and module is None and not any(
            text in lines[first[0]] for text in ("(self", "(cls"))):
        return None
    margin, at = len(lines[first[0]]) - len(lines[first[0]].lstrip()), first[0] + 1
    while at < len(lines) and (not lines[at].strip() or len(lines[at]) - len(lines[at].lstrip()) > margin or lines[at].lstrip()[0] in ")#"):
        at += 1
    return None if any(True for line in lines[first[0]:at] for _ in follows(line, "yield")) else (path, first[0] + 2, at + 1)


def is_filled(path, number, ident):
    """Returns whether a line assigns what a comprehension or a function of the program has filled, and not an empty container."""
    value = statement(source_lines(path), number).partition("=")[2].strip()
    return value[:1] in ("[", "{") or origin(path, number, ident, False)[1] != number


def origin(path, number, ident, table):
    """Returns (file, line, grows) of the line that makes what a line gets from a function of the program, as "x = load()" does: the line of
    that function. Otherwise the line itself. table: a line x["name"] = … adds nothing to it."""
    left, sign, value = statement(source_lines(path), number).partition("=")
    targets = [part.strip(" ()").partition(":")[0].rpartition(".")[2] for part in parts_between(left)]
    if not sign or ident not in targets or open_brackets(left):
        return path, number, False
    return made_in(value.strip(), targets.index(ident), len(targets), (path, number, False), table)


def made_in(value, at, count, here, table, depth=3):
    """Returns (file, line, grows) of the line that makes one of the `count` results of a call; `here` if that is not known."""
    name, dotted = called_alone(value)
    body = body_of(name, here[0], dotted) if name and depth > 0 else None
    path, first, end = body or ("", 0, 0)
    lines = source_lines(path) if body else []
    numbers = [each for each in range(first, end) if lines[each - 1].lstrip().startswith("return ") and enclosing(path, each) == name]
    given = parts_between(statement(lines, numbers[-1])[len("return "):]) if numbers else []
    if len(given) != count:
        return here
    result, inner = given[at], given[at].rpartition(".")[2]
    if not inner.isidentifier():
        return made_in(result, 0, 1, (path, numbers[-1], False), table, depth - 1) if "(" in result or "[" in result else here
    roles = [(role_of(lines[each - 1], inner), each) for each in range(first, numbers[-1])]
    added = [each for role, each in roles if role == 2 and not (table and any(rest.startswith("[") for rest in follows(lines[each - 1], inner)))]
    made = [each for role, each in roles if role == 1]
    if added or not made:
        return (path, added[0], True) if added else here
    left, _, value = statement(lines, made[-1]).partition("=")
    return made_in(value.strip(), 0, 1, (path, made[-1], False), table, depth - 1) if len(parts_between(left)) == 1 else (path, made[-1], False)


def place_of(name, where, main, kind="", words="", carries=False):
    """Returns ("file:line", grows) of the line that fills a variable, or makes it; ("", False) if it is not found.

    words: the columns of a table that hold most; the line that sets the first of them made the table large."""
    at = where[len("module "):] if where.startswith("module ") else where.rpartition(" at ")[2].rpartition(":")[0]
    on_stack = [(f.f_code.co_filename, f.f_lineno) for f in itertools.islice(stack_of(main), 64) if is_own_frame(f)]
    files = [at] if at.startswith(("/", "<")) else list(dict.fromkeys(path for path, _ in on_stack))
    if name.startswith(MADE):
        return f"{label(at)}:{where.rpartition(':')[2]}", kind in CONTAINERS
    if name == FIGURES:
        made = [(path, number) for path in files[:4] for number, line in enumerate(source_lines(path), 1)
                if any(call in line for call in ("subplots(", ".figure(", "subplot_mosaic(", "plt.plot("))]
        return (f"{label(made[0][0])}:{made[0][1]}", True) if made else ("", False)
    if kind == "multiprocessing.SharedMemory":  # a process that only opens the block does not make it
        made = [(path, number) for path in files[:4] for number, line in enumerate(source_lines(path), 1)
                if "create=True" in line and "SharedMemory(" in line and not line.lstrip().startswith("#")]
        if len(made) == 1:
            return f"{label(made[0][0])}:{made[0][1]}", False
    ident, best = identifier(name), (0, (0, False, False), "", 0)
    plain = "." not in name and " " not in name
    scope = ("" if where.startswith("module ") else where.partition(" at ")[0]) if plain else None  # the function whose variable it is
    if not ident.isidentifier():
        return "", False
    for path in files[:4]:
        for number, line in enumerate(source_lines(path), 1):
            if name.startswith("the cache of ") and line.lstrip().startswith(f"def {ident}("):
                return f"{label(path)}:{number}", True
            role = role_of(line, ident) if ident in line else 0
            if kind in TABLES and role:
                # A column takes more than the table without it, and the table does not grow by it.
                large = any(sets_column(line, ident, column) for column in words.split(", ")[:1])
                if large:
                    return f"{label(path)}:{number}", False
                role = 1 if any(rest.startswith("[") for rest in follows(line, ident)) else role
            if carries and role and any(True for _ in follows(line.partition("=")[2], ident)):
                role = 2  # "state = step(state)"
            # A line in the variable's function that gets it filled, before a line elsewhere that adds to a variable of that name. Of the same
            # role, a line in that function and the line the program is at; the first of those.
            inside = bool(role) and scope is not None and enclosing(path, number) == scope
            rank = 3 if inside and role == 2 else 2.5 if inside and role == 1 and is_filled(path, number, ident) else role
            current = (path, number) in on_stack
            if role == 1 and current and any(True for _ in follows(line.partition("=")[2], ident)):
                rank, current = 0.9, False  # "x = x[keep]" has not returned: an earlier line made what x is now
            here = rank, inside, current
            if role and here > best[1]:
                best = role, here, path, number
    if best[0] < 1 and is_own_kind(kind):  # nodes that a function links by setattr()
        calls = [(len(line) - len(line.lstrip()), number) for path in files[:1] for number, line in enumerate(source_lines(path), 1)
                 if any(rest.startswith("(") for rest in follows(line, kind)) and not line.lstrip().startswith(("class ", "#"))]
        best = (1, best[1], files[0], max(calls)[1]) if calls else best
    if kind.startswith("_io.") and best[0] == 1:
        number = written_by(source_lines(best[2]), ident)
        best = (2, best[1], best[2], number) if number else best
    if not best[0] and "." in name and " " not in name and name.partition(".")[0].isidentifier():
        # An attribute of a library's class, as handler.buffer: the line that makes the object.
        return place_of(name.partition(".")[0], where, main)[0], False
    if best[0] == 1:
        path, number, grows = origin(best[2], best[3], ident, kind in TABLES)
        return f"{label(path)}:{number}", grows
    return (f"{label(best[2])}:{best[3]}", best[0] == 2) if best[0] else ("", False)


# ---- the answer ----


def word(text):
    return "".join(c if c >= " " else "?" for c in str(text))


LITERAL = 60  # lines of one statement that are read


counted_lines = {}  # what open_brackets() returned: each answer reads the same lines again


def open_brackets(line):
    """Returns how many brackets a line opens and does not close, without those in texts and comments."""
    if line not in counted_lines:
        if len(counted_lines) >= 16 * LITERAL:
            counted_lines.clear()
        counted_lines[line] = count_brackets(line)
    return counted_lines[line]


def count_brackets(line):
    for quote in "\"'" if '"' in line or "'" in line else "":
        pieces = line.split(quote)
        line = "".join(pieces[::2]) if len(pieces) % 2 else line
    line = line.partition("#")[0]
    return sum(line.count(sign) for sign in "([{") - sum(line.count(sign) for sign in ")]}")


def beginning(lines, number):
    """Returns the number of the line where the statement of a line begins: that of a dict written over many lines has its name.

    >>> beginning(["table = {", "    'a': [", "        1],", "    'b': [2],", "}"], 4)
    1
    """
    first, depth = number, 0
    for at in range(min(number - 1, len(lines)), max(0, number - LITERAL), -1):
        line = lines[at - 1]
        depth += open_brackets(line)
        if depth > 0:
            first, depth = at, 0
        if line.lstrip().startswith(("def ", "class ", "async def ")):
            break
    return first


def statement(lines, number):
    """Returns the text of the statement that a line is part of, at most 120 characters, in one line."""
    text, depth = "", 0
    for line in lines[beginning(lines, number) - 1:][:LITERAL] if 0 < number <= len(lines) else ():
        depth += open_brackets(line)
        text += " " * (text[-1:] not in ("", "(", "[", "{")) + line.strip()
        if depth <= 0 or len(text) >= 120:
            break
    return word(text)[:120]


def source(frame):
    """Returns the text of the statement a frame is at, if it is the program's own and can be read."""
    path, line = frame.f_code.co_filename, frame.f_lineno  # a frame between two lines has none
    return statement(source_lines(path), line) if line and is_own(path) else ""


def pulse(main):
    """Returns a number that changes when the program continues: instruction pointers, and the integers among its own variables."""
    state = []
    for frame in itertools.islice(stack_of(main), 16):
        state.append(frame.f_lasti)
        if is_own_frame(frame):
            values = locals_of(frame) if frame.f_code.co_name != "<module>" else frame.f_globals
            state.extend(v for v in list(values.values())[-64:] if type(v) is int)
    return hash(tuple(state))


def frame_lines(main):
    return [f"{FRAME}\t{word(label(f.f_code.co_filename))[-190:]}\t{f.f_lineno or 0}\t{word(f.f_code.co_name)[:60]}\t{source(f)}"
            for f in itertools.islice((f for f in stack_of(main) if is_own_frame(f) or not is_own(f.f_code.co_filename)), 48)]


def line_text(place):
    """Returns the text of the statement at "file:line", "" if it cannot be read."""
    path, _, number = place.rpartition(":")
    return statement(source_lines(path), int(number)) if number.isdigit() and path.startswith("/") else ""


def object_line(found, place="", grows=False):
    size, w, name, where, kind = found
    words = [OBJECT, size, w.count, word(name)[:60], word(where)[-150:], word(kind)[:60], word(w.of)[:60], word(w.shape)[:60],
             size // max(1, w.count), word(place)[-150:], int(grows), w.mark, w.graphs, w.text_bytes, word(w.words)[:100],
             w.objects, made_texts.get(where) or line_text(place) if name.startswith(MADE) else line_text(place)]
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
            place = find(one[2], one[3], main, one[4], one[1].words, one[1].mark == "carried") if wanted else ("", False)
            if place[1] and one[1].mark == "" and enclosing(place[0].rpartition(":")[0], int(place[0].rpartition(":")[2])) == "__getitem__":
                one[1].mark = "fetched"  # a cache that a dataset fills while it is read
        except Exception:
            place = "", False
        lines.append(object_line(one, *place))
    return lines
