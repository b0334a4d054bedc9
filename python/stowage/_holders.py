# mypy: ignore-errors
"""Finds what fills the host memory of this Python process: the variables that hold most, and the lines that fill them.

The one engine behind `stowage run` and notebooks. The package imports it (_host.py); the build also puts it before
src/shim/host/report.py, which runs in processes of `stowage run`, possibly just before they run out of memory. So it imports only
what every interpreter has loaded, allocates nothing large, changes nothing, prints nothing, and searches for a bounded time (Deadline).
It reads the variables of all frames and of the program's own modules, and samples the contents of containers.
"""
import _thread
import gc
import itertools
import os
import sys
import time

SAMPLES = 64
DEEP = 5
SECONDS = 0.5
SHOWN = 24
PLACED = 8  # objects for which the line that fills them is searched
LEAST = 1 << 20
GRAPHS = 4  # kept autograd graphs, from which on a small object is reported
BLOCK = 48  # bytes of an object on average: a float takes 24, a tuple of two 56, a dict of four 232
LIBRARY = os.path.dirname(os.__file__)  # sys.path does not have all of its folders yet when this is loaded
MADE = "what line "  # "what line 7 makes": a value that has no name of the program's yet
OBJECT, FRAME = "object", "frame"  # first words of the lines (src/run/protocol.h)


def get(value, name, default=None):
    """getattr for objects of others, which may raise anything: `torch.nbytes` is a RuntimeError.

    >>> class Closed:
    ...     def __getattr__(self, name):
    ...         raise OSError(name)
    >>> get(Closed(), "nbytes"), has(Closed(), "nbytes")
    (None, False)
    """
    if type(value).__name__ == "TypedStorage":  # of PyTorch: prints a warning for each attribute
        return default
    try:
        return getattr(value, name, default)
    except Exception:
        return default


def has(value, name):
    return get(value, name, ABSENT) is not ABSENT


ABSENT = object()


def type_name(value):
    kind = type(value)
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__.split('.')[0]}.{kind.__qualname__}"


def sample(values):
    """Returns some of its elements, in one step that no other thread can interrupt."""
    if isinstance(values, (list, tuple)):
        return values[::max(1, len(values) // SAMPLES)][:SAMPLES] if len(values) > SAMPLES * 64 else list(values[:SAMPLES])
    return list(itertools.islice(values, SAMPLES))


PLAIN = frozenset((int, float, bool, complex, type(None)))  # most values of most containers
PLAIN_TEXT = PLAIN | {str, bytes}


def item_name(name, key):
    """Returns the name of what a container holds under a key. Only plain keys are written out: repr() of another one runs code of the
    program. An optimizer's state has tensors as keys, and the repr() of a tensor on a device starts kernels and waits for them."""
    plain = type(key) in PLAIN_TEXT or (type(key) is tuple and all(type(part) in PLAIN_TEXT for part in key))
    return f"{name}[{key!r}]"[:60] if plain else f"{name}[{type_name(key)}]"[:60]


def references(values):
    return [sys.getrefcount(v) for v in values]


ALONE = references([object()])[0]  # of a value that only this list holds
SHARED = 4  # from so many references on, most are cells; a few can be variables


def sharers(values):
    """Returns for each value of a list, made by the caller alone, how many cells share it: a join repeats references, not strings.

    >>> word = "".join(["many ", "cells"])
    >>> cells = [word] * 1000
    >>> sharers(cells[:1])  # and the variable
    [1001]
    """
    return [n - ALONE if type(v) in PLAIN_TEXT and n - ALONE >= SHARED else 1 for v, n in zip(values, references(values))]


class Weight:
    """Bytes of a value with all it holds, and what it is made of.

    mark: "graph" (graphs: kept autograd graphs), "pinned", "shared", "mapped" (a file, which takes no memory), or "text" (text_bytes: in
    columns of Python strings, words: their names). objects: Python objects in it. owner: id of what holds the bytes, if that is another
    object. chief: that of the one part that is most of it."""

    def __init__(self, size, count=1, of="", shape="", owner=None, mark="", graphs=0, text_bytes=0, words="", objects=1, chief=None):
        self.size, self.count, self.of, self.shape, self.owner = size, count, of, shape, owner
        self.mark, self.graphs, self.text_bytes, self.words, self.objects = mark, graphs, text_bytes, words, objects
        self.chief = chief


def weigh_array(value):
    """NumPy's, and anything else with nbytes, dtype and shape. A view counts as the array it is a view of."""
    owner = value
    while get(owner, "base", None) is not None and has(owner.base, "nbytes"):
        owner = owner.base
    below = type(get(owner, "base", None)).__name__
    if type(owner).__name__ in ("memmap", "mmap") or "mmap" in below:
        return Weight(0, mark="mapped" if owner.nbytes >= LEAST else "", of=str(value.dtype), shape=str(tuple(value.shape)))
    size = int(owner.nbytes)
    if str(value.dtype) == "object":
        some = list(value.flat[::max(1, value.size // SAMPLES)][:SAMPLES])
        size += int(sum(weigh(v, 1).size / n for v, n in zip(some, sharers(some))) / max(1, len(some)) * value.size)
        if len(some) and all(isinstance(v, str) for v in some):
            return Weight(size, int(value.shape[0]), "object", str(tuple(value.shape)), id(owner), "text", 0, size)
    mark = "shared" if below in ("memoryview", "SharedMemory") and size >= LEAST else "view" if size >= 4 * max(1, value.nbytes) else ""
    return Weight(size, int(value.shape[0]) if value.shape else 1, str(value.dtype), str(tuple(value.shape)), id(owner), mark)


def is_text(dtype):
    """Returns whether a column keeps one Python string per cell. pandas 3 keeps text in the buffers of Arrow, which memory_usage()
    counts, if pyarrow is installed."""
    return str(dtype) in ("object", "str", "string") and get(dtype, "storage", "python") == "python"


def text_bytes(column):
    """Bytes of the Python strings of a column, estimated from samples all over it; a string that cells share counts once."""
    count = len(column)
    values = list(column.array[::max(1, count // SAMPLES)][:SAMPLES]) if has(column, "array") else list(itertools.islice(column, SAMPLES))
    return int(sum(sys.getsizeof(v) / n for v, n in zip(values, sharers(values))) * count / max(1, len(values)))


def weigh_frame(value):
    """A table of pandas. Columns of text hold one Python object per row, which memory_usage(deep=False) leaves out."""
    size = int(value.memory_usage(index=True, deep=False).sum())
    kinds = {str(t) for t in value.dtypes}
    texts, large = 0, []
    for at, dtype in enumerate(value.dtypes):
        if is_text(dtype) and at < SAMPLES:
            held = text_bytes(value.iloc[:, at]) + 8 * len(value)
            texts += held
            large.append((held, str(value.columns[at])))
            size += held - 8 * len(value)
    words = ", ".join(name for _, name in sorted(large, reverse=True)[:4])
    return Weight(size, len(value), " ".join(sorted(kinds))[:60], str(tuple(value.shape)), None, "text" if texts else "", 0, texts, words)


def weigh_series(value):
    size = int(value.memory_usage(index=True, deep=False))
    texts = text_bytes(value) if is_text(value.dtype) else 0
    return Weight(size + texts, len(value), str(value.dtype), f"({len(value)},)", None, "text" if texts else "", 0, texts + 8 * len(value),
                  str(value.name))


def graphs_of(value):
    """Number of autograd graphs a tensor keeps: 1 if it has one; if it is a sum of losses (`total += loss`), the terms of the sum."""
    node = value.grad_fn
    if node is None:
        return 0
    count = 1
    while type(node).__name__ == "AddBackward0" and value.dim() == 0 and count < 1_000_000:
        inputs = node.next_functions
        node = inputs[0][0] if inputs else None
        if node is None:  # 0 + loss, the first of them
            break
        count += 1
    return count if count > 2 else 1


def weigh_tensor(value):
    if value.device.type != "cpu":
        return Weight(0, mark="", graphs=0)
    storage = value.untyped_storage() if has(value, "untyped_storage") else value.storage()
    torch = sys.modules["torch"]
    mark = "shared" if value.is_shared() else "pinned" if torch.cuda.is_initialized() and value.is_pinned() else ""
    graphs = graphs_of(value)
    return Weight(storage.nbytes(), int(value.shape[0]) if value.shape else 1, str(value.dtype), str(tuple(value.shape)),
                  storage.data_ptr(), "graph" if graphs >= GRAPHS else mark, graphs)


def weigh_container(value, depth):
    size, count = sys.getsizeof(value), len(value)
    if count == 0 or depth == 0:
        return Weight(size, count)
    if isinstance(value, dict):
        parts = [v for _, v in sample(value.items())]
        keys = [k for k, _ in sample(value.items())]
        # The field names of many records are the same few strings.
        named = depth < DEEP and all(isinstance(k, str) for k in keys)
        extra = 0 if named else sum(weigh(k, depth - 1).size for k in keys)
    else:
        parts, extra = sample(value), 0
    shares = sharers(parts)
    each = [weigh(v, depth - 1) for v in parts]
    kinds = [type_name(v) for v in parts]
    # The same small object repeated (0, True, an interned name) counts once.
    if len(parts) > 1 and not isinstance(value, dict) and len({id(v) for v in parts}) == 1:
        return Weight(size + each[0].size, count, kinds[0])
    graphs = sum(w.graphs for w in each) * count // max(1, len(each))
    # Parts of one array keep it alive together, so it counts once.
    owners = [w.owner for w in each]
    joint = {w.owner: w.size for w in each if w.owner is not None and owners.count(w.owner) > 1}
    marks = [w.mark for w in each if w.mark in ("pinned", "shared") or (w.mark == "view" and w.owner not in joint)]
    mark = "graph" if graphs >= GRAPHS else marks[0] if len(marks) * 2 > len(each) else ""
    texts = sum(w.text_bytes for w in each) * count // max(1, len(each))
    at = max(range(len(each)), key=lambda i: each[i].size, default=0)
    alone = sum(w.size / n for w, n in zip(each, shares) if w.owner not in joint)
    size += sum(joint.values()) + int((alone + extra) * count / max(1, len(each)))
    return Weight(size, count, max(set(kinds), key=kinds.count) if kinds else "", "", None, mark, graphs, texts,
                  next((w.words for w in each if w.words), ""),
                  1 + int((sum(w.objects / n for w, n in zip(each, shares)) + (0 if extra == 0 else len(parts))) * count / max(1, len(each))),
                  (each[at].chief or each[at].owner or id(parts[at])) if each and 10 * each[at].size >= 8 * size else None)


def parts_of(value):
    """What a bound method, a partial or a closure holds: a list of listeners holds all that listen."""
    if has(value, "__self__") and has(value, "__func__"):
        return [value.__self__]
    if has(value, "func") and has(value, "keywords"):
        return [value.func, value.args, value.keywords]
    return [cell.cell_contents for cell in get(value, "__closure__", None) or ()]


def slots_of(value):
    names = [name for kind in type(value).__mro__ for name in ([kind.__dict__.get("__slots__")]
             if isinstance(kind.__dict__.get("__slots__"), str) else kind.__dict__.get("__slots__", ()))]
    return {name: get(value, name) for name in names if has(value, name)}


def weigh_table(value):
    """Tables of other libraries, and pictures."""
    if callable(get(value, "estimated_size", None)):  # polars
        return Weight(int(value.estimated_size()), len(value), "", str(tuple(value.shape)))
    if callable(get(value, "getbands", None)):  # PIL
        wide, high = value.size
        return Weight(wide * high * len(value.getbands()), high, value.mode, str((high, wide)))
    return Weight(int(value.nbytes), len(value), "", str(tuple(get(value, "shape", (len(value),)))))  # pyarrow


def is_database(value):
    """Returns whether it is a connection whose database may be in the memory of this process. Its size is not known: a query would wait
    for the program's own."""
    kind = type(value)
    return (kind.__name__, kind.__module__.split(".")[0]) in (("Connection", "sqlite3"), ("DuckDBPyConnection", "duckdb"),
                                                              ("DuckDBPyConnection", "_duckdb"))


def queued(value):
    """Returns the container in which a queue keeps what was put; None for anything else."""
    if type(value).__module__ not in ("queue", "asyncio.queues", "multiprocessing.queues"):
        return None
    held = [get(value, name, None) for name in ("queue", "_queue", "_buffer")]
    return next((each for each in held if has(each, "__len__")), None)


def weigh(value, depth):
    if type(value) in PLAIN:
        return Weight(sys.getsizeof(value))
    if isinstance(value, (bytes, bytearray, str)):
        return Weight(sys.getsizeof(value), len(value))
    if type(value).__name__ in ("BytesIO", "StringIO") and type(value).__module__ == "_io":
        return Weight(max(sys.getsizeof(value), value.tell()))
    inside = queued(value)
    if inside is not None:
        return weigh_container(inside, depth)
    if isinstance(value, (list, tuple, dict, set, frozenset)) or type(value).__name__ in ("deque", "OrderedDict", "defaultdict"):
        return weigh_container(value, depth)
    module = type(value).__module__.split(".")[0]
    if module == "pandas" and has(value, "memory_usage") and has(value, "dtypes"):
        return weigh_frame(value) if has(value, "columns") else weigh_series(value)
    if module == "torch" and has(value, "data_ptr") and has(value, "storage"):
        return weigh_tensor(value)
    if module in ("polars", "PIL", "pyarrow") and not isinstance(value, type):
        return weigh_table(value)
    if type(value).__name__ == "SharedMemory" and isinstance(get(value, "size", None), int):
        return Weight(value.size, 1, "", "", None, "shared")
    if isinstance(get(value, "nbytes", None), int) and has(value, "dtype") and has(value, "shape"):
        return weigh_array(value)
    if is_database(value):
        return Weight(sys.getsizeof(value), mark="database")
    if callable(value) and not isinstance(value, type):
        return Weight(sys.getsizeof(value) + sum(weigh(v, depth - 1).size for v in parts_of(value) if depth > 0))
    inner = get(value, "__dict__", None)
    if inner is None and has(type(value), "__slots__"):
        inner = slots_of(value)
    if depth > 0 and isinstance(inner, dict) and not isinstance(value, (type, type(sys))):
        held = weigh_container(inner, depth - 1)
        return Weight(sys.getsizeof(value) + held.size, held.count, type_name(value), graphs=held.graphs, objects=1 + held.objects,
                      chief=held.chief)
    return Weight(sys.getsizeof(value))


# ---- the program's own frames and variables ----


def locals_of(frame):
    """Returns the variables of a frame.

    Before Python 3.13 the frame keeps the dict of f_locals, and with it values that the function has replaced since: the dict is
    emptied again, unless something else holds it too."""
    values = frame.f_locals
    if sys.version_info >= (3, 13) or not frame.f_code.co_flags & 1:  # CO_OPTIMIZED: a function's
        return dict(values)
    copy = dict(values)
    if sys.gettrace() is None and sys.getrefcount(values) <= 3:
        values.clear()
    return copy


def is_own(path):
    """Returns true for a file of the program, false for a library's."""
    if not path or path.startswith("<"):
        return bool(path) and path.startswith("<ipython-input")
    return not path.startswith(LIBRARY) and "/site-packages/" not in path and "/dist-packages/" not in path


def is_own_frame(frame):
    name = frame.f_globals.get("__name__", "")
    return is_own(frame.f_code.co_filename) and not (isinstance(name, str) and name.startswith("stowage."))


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


def is_own_module(name):
    return name == "__main__" or (is_own(get(sys.modules.get(name), "__file__", None)) and not str(name).startswith("stowage"))


def cached(function):
    """Returns what functools.lru_cache keeps for a function."""
    held = gc.get_referents(function)
    kept = next((h for h in held if isinstance(h, dict) and h is not function.__dict__), {})
    if type(next(iter(kept.values()), None)).__name__ != "_lru_list_elem":
        return kept
    return [h for h in held if not isinstance(h, (type, int, dict)) and not callable(h)]


def behind(value, name):
    """Yields (value, name) of what a function or a class of the program keeps."""
    if callable(get(value, "cache_info", None)):
        yield cached(value), f"the cache of {name}"
    elif isinstance(value, type):
        for n, v in list(vars(value).items()):
            if not n.startswith("__"):
                v = get(v, "__func__", v)  # of a static or a class method
                yield v, f"{name}.{n}"
                if callable(get(v, "cache_info", None)):
                    yield from behind(v, f"{name}.{n}")
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
    if queued(value) is not None:
        return
    if depth > 0 and type(value) in (dict, list, tuple) and 0 < len(value) <= FEW:
        for key, v in list(value.items() if isinstance(value, dict) else enumerate(value)):
            if isinstance(v, (dict, list, tuple, set)) or (isinstance(value, dict) and has(v, "nbytes")):
                yield from opened(v, item_name(name, key), depth - 1)
    if is_own_module(get(value, "__module__", None)) or type(value).__module__.split(".")[0] in HOLDERS:
        if isinstance(value, type) or callable(value):
            yield from behind(value, name)
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


def variables(main, others):
    """Yields (value, name, where) of everything a variable names. The program's own names come first: a thing is reported once."""
    frames = [frame for top in [main, *others] for frame in stack_of(top) if frame.f_code.co_name != "<module>"]
    for frame in frames:
        if is_own_frame(frame):
            where = f"{frame.f_code.co_name} at {frame.f_code.co_filename}:{frame.f_lineno}"
            for name, value in locals_of(frame).items():
                yield from ((v, n, where) for v, n in opened(value, name))
    for name, module in list(sys.modules.items()):
        if is_own_module(name):
            where = "module " + (file_of(module) or name)
            values = [(n, v) for n, v in list(get(module, "__dict__", {}).items()) if not is_imported(v, name)]
            yield from named(values, where, name == "__main__" and "get_ipython" in vars(module))
    for frame in frames:
        if not is_own(frame.f_code.co_filename):
            own = next((f for f in stack_of(frame) if is_own_frame(f)), frame)  # people know the line that called the library
            where = f"{own.f_code.co_name} at {own.f_code.co_filename}:{own.f_lineno}"
            name = f"{MADE}{own.f_lineno} makes" if own is not frame else ""
            yield from ((v, name or n, where) for n, v in locals_of(frame).items() if has(v, "nbytes") or has(v, "memory_usage"))


MANY = 400_000  # objects, above which a list of them all takes too long and too much


def instances():
    """Yields (value, name, where) of the containers in objects of the program's own classes, even if a library holds those objects (a
    logging handler, a trainer's callback). Not arrays: an array that matters is in a container or has a name."""
    if get(sys, "getallocatedblocks", int)() > MANY:
        return
    own, looked = {}, {}
    for value in gc.get_objects():
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


def reached():
    """Yields (value, name, where) of long containers that a chain of objects leads to from the program's variables, as a handler of
    logging keeps records. For processes with so many objects that instances() does not list them."""
    if get(sys, "getallocatedblocks", int)() <= MANY:
        return
    seen, waiting = set(), []
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


def maker_of(main):
    """Returns the frame of the program that makes something: not a constructor, and not a generator, which another line consumes."""
    return next((frame for frame in stack_of(main) if is_own_frame(frame) and not frame.f_code.co_flags & 0x20  # CO_GENERATOR
                 and frame.f_code.co_name not in ("__init__", "__new__", "<genexpr>")), None)


def nameless(main):
    """Yields (value, name, where) of containers of large objects, even if no variable holds them: list(…) has no name before it is
    complete."""
    own = maker_of(main)
    if own is None or get(sys, "getallocatedblocks", int)() > MANY:
        return
    where = f"{own.f_code.co_name} at {own.f_code.co_filename}:{own.f_lineno}"
    for value in gc.get_objects():
        if type(value) not in (list, dict) or len(value) < 4:
            continue
        first = value[0] if type(value) is list else next(iter(value.values()), None)
        if isinstance(get(first, "nbytes", None), int) and first.nbytes >= 64 << 10 or isinstance(first, bytes) and len(first) >= 64 << 10:
            yield value, f"{MADE}{own.f_lineno} makes", where


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


def trees(values):
    """Yields (bytes, weight, name, where, type) of containers whose elements each keep many objects alive that the container does not
    list, as a tag of a page keeps the page. Two elements are searched, after a first one that finds what all have in common."""
    blocks = get(sys, "getallocatedblocks", int)()
    for value, name, where in values:
        if not isinstance(value, (list, tuple, dict)) and type(value).__name__ != "deque" or len(value) < 4:
            continue
        items = list(itertools.islice(value.values() if isinstance(value, dict) else value, LONG))
        some = [items[len(items) * k // 4] for k in (1, 2, 3)]
        if any(type(each) in PLAIN or isinstance(each, (str, bytes, tuple)) or is_array(each) for each in some):
            continue
        seen = {id(value), id(items)}
        _, (one, size), (other, more) = [reach(each, seen) for each in some]
        count, size = (one + other) // 2, (size + more) // 2
        if 4 * count * len(value) >= blocks and count >= 100:
            weight = Weight(size * len(value), len(value), type_name(some[1]), mark="tree", objects=count * len(value))
            weight.owner = id(value)
            yield weight.size, weight, name, where, type_name(value)


def unnamed(main, found, held):
    """Returns Python objects that no variable names yet, as those of a list that a comprehension is making. Only their number is
    known. held: bytes the process holds."""
    named = sum(weight.text_bytes if weight.shape else size for size, weight, *_ in found)
    own = maker_of(main)
    # Counting reads every page of the interpreter's heap: not where what was found leaves too little for such objects.
    if own is None or held - sum(size for size, *_ in found) < named // 2:
        return []
    count = get(sys, "getallocatedblocks", int)()
    if count * BLOCK < max(2 * named, 32 * LEAST):
        return []
    weight = Weight(count * BLOCK, count, mark="nameless", objects=count)
    where = f"{own.f_code.co_name} at {own.f_code.co_filename}:{own.f_lineno}"
    return [(weight.size, weight, f"{MADE}{own.f_lineno} makes", where, "list")]


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
        if (weight.size >= LEAST or weight.graphs >= GRAPHS or weight.mark in ("mapped", "database")) and key not in seen:
            seen[key] = True
            weight.owner = key
            yield weight.size, weight, name, where, type_name(value)


def is_array(value):
    """Returns whether its size is known at once. Asks the class: an object may answer any name."""
    return has(type(value), "nbytes") or has(type(value), "memory_usage")


def arrays_first(values):
    """Yields the arrays, tensors and tables of a sequence before the rest: their sizes are known at once, while containers and objects
    may use up the time."""
    rest = []
    for one in values:
        if is_array(one[0]):
            yield one
        else:
            rest.append(one)
    yield from rest


def largest(main, others, held):
    """Yields (bytes, weight, name, where, type) of all that is large, as it is found. held: bytes the process holds."""
    until, seen, found = Deadline(), {}, []
    for one in weighed(arrays_first(variables(main, others)), until, seen):
        found.append(one)
        yield one
    if sum(size for size, *_ in found) < held // 2:
        for one in weighed(itertools.chain(instances(), reached()), until, seen):
            found.append(one)
            yield one
    if sum(size for size, *_ in found) < held // 2:
        for one in weighed(nameless(main), until, seen):
            found.append(one)
            yield one
    many = get(sys, "getallocatedblocks", int)() > MANY and not until.is_over()
    if many and sum(size for size, *_ in found) < held // 4:
        for one in trees(variables(main, others)):
            found.append(one)
            yield one
    yield from unnamed(main, found, held)


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
    plain = name.split(" of ")[-1 if name.startswith("the cache of ") else 0]
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


def role_of(line, ident):
    """Returns 2 if the line adds to a variable of that name, 1 if it assigns one, 0 otherwise."""
    stripped = line.lstrip()
    if stripped.startswith(("#", "def ", "class ", "import ", "from ")) or ident not in line:
        return 0
    best = 0
    for rest in follows(line, ident):
        inner = past_index(rest) if rest.startswith("[") else rest
        method = inner[1:].split("(")[0].strip() if inner.startswith(".") and "(" in inner else ""
        if method in GROWING or rest.startswith(("+=", "|=")) or (inner is not rest and (is_assignment(inner) or inner.startswith("+="))):
            return 2
        if rest.startswith(",") and "=" in rest and stripped.split("=")[0].replace(",", " ").replace("(", " ").split().count(ident):
            best = max(best, 1)  # "x, y = f()"
        if is_assignment(rest) or (rest.startswith(":") and "=" in rest and stripped.startswith((ident, "self."))):
            # "x = x + [part]" adds to it too, and "x = np.vstack([x, part])".
            again = any(True for _ in follows(rest[1:], ident))
            best = max(best, 2 if again and ("+" in rest or any(call in rest for call in JOINING)) else 1)
    return best


CONTAINERS = ("list", "dict", "set", "tuple")
TABLES = ("pandas.DataFrame",)  # a line x["name"] = … sets one column of them


def sets_column(line, ident, column):
    """Returns true for the line that sets that column of a table."""
    return any(rest.startswith((f'["{column}"]', f"['{column}']")) and is_assignment(past_index(rest)) for rest in follows(line, ident))


def place_of(name, where, main, kind="", words=""):
    """Returns ("file:line", grows) of the line that fills a variable, or makes it; ("", False) if it is not found.

    words: the columns of a table that hold most; the line that sets the first of them made the table large."""
    at = where[len("module "):] if where.startswith("module ") else where.rpartition(" at ")[2].rpartition(":")[0]
    on_stack = [(f.f_code.co_filename, f.f_lineno) for f in itertools.islice(stack_of(main), 64) if is_own_frame(f)]
    files = [at] if at.startswith(("/", "<")) else list(dict.fromkeys(path for path, _ in on_stack))
    if name.startswith(MADE):
        return f"{label(at)}:{where.rpartition(':')[2]}", kind in CONTAINERS
    ident, best = identifier(name), (0, 0, "", 0)
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
            # The line the program is at, or one in a function it is in, before others of the same role; the first of those.
            here = 1 if (path, number) in on_stack else 0
            if role and (role, here) > best[:2]:
                best = role, here, path, number
    return (f"{label(best[2])}:{best[3]}", best[0] == 2) if best[0] else ("", False)


# ---- the answer ----


def word(text):
    return "".join(c if c >= " " else "?" for c in str(text))


def source(frame):
    """Returns the text of the line a frame is at, if it is the program's own and can be read."""
    path, line = frame.f_code.co_filename, frame.f_lineno  # a frame between two lines has none
    lines = source_lines(path) if line and is_own(path) else []
    return word(lines[line - 1].strip())[:120] if line and line <= len(lines) else ""


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
    """Returns the text of "file:line", "" if it cannot be read."""
    path, _, number = place.rpartition(":")
    lines = source_lines(path) if number.isdigit() and path.startswith("/") else []
    return word(lines[int(number) - 1].strip())[:120] if lines and 0 < int(number) <= len(lines) else ""


def object_line(found, place="", grows=False):
    size, w, name, where, kind = found
    words = [OBJECT, size, w.count, word(name)[:60], word(where)[-150:], word(kind)[:60], word(w.of)[:60], word(w.shape)[:60],
             size // max(1, w.count), word(place)[-150:], int(grows), w.mark, w.graphs, w.text_bytes, word(w.words)[:100],
             w.objects, line_text(place)]
    return "\t".join(str(each) for each in words)


def without_wholes(found):
    """Leaves out an object that mostly consists of another one in the list: agent, beside agent.memory; an archive, beside its buffer."""
    parts = [(name, where, size) for size, _, name, where, _ in found if "." in name or "[" in name]
    keys = {weight.owner for _, weight, *_ in found} - {None}  # what has no name yet has no owner either
    return [one for one in found if not (one[1].chief in keys and one[1].chief != one[1].owner) and not any(
        name.startswith((one[2] + ".", one[2] + "[")) and where == one[3] and 10 * size >= 8 * one[0] for name, where, size in parts)]


def object_lines(found, main, placed=True):
    """Returns lines about the largest, and about what keeps graphs; with the program's lines that fill the first of them."""
    found = sorted(without_wholes(found), key=lambda f: f[0], reverse=True)
    shown = found[:SHOWN] + [one for one in found[SHOWN:] if one[1].mark in ("graph", "mapped", "database")][:4]
    lines = []
    for at, one in enumerate(shown):
        try:
            wanted = placed and (at < PLACED or one[1].mark in ("graph", "database"))
            place = place_of(one[2], one[3], main, one[4], one[1].words) if wanted else ("", False)
        except Exception:
            place = "", False
        lines.append(object_line(one, *place))
    return lines
