"""Runs in a Python process whose host memory is about to run out (watcher.c), and says what it holds.

arm() runs once, when the interpreter has started. report() writes the largest things that variables hold, and where the
main thread is, to PID.objects in the folder of the run (host_record.h tells its lines). It looks at the variables of all
frames and of the program's own modules, into containers by samples, for at most half a second; it makes nothing large,
changes nothing, and prints nothing. A first answer is written in steps, as the process may be killed at any moment; a later
one takes its place when it is whole.

shim_log(text), shim_state(), shim_keep(bytes), shim_line(path, number) and shim_forked() are the library's: unlike Python's
own ways to a file they do not let go of the interpreter's lock, so that no thread of Python's fills memory meanwhile.
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
STEP = 0.02  # seconds after which a first answer is written with what is found so far
SHOWN = 24
LEAST = 1 << 20
BLOCK = 48  # bytes of an object on average: a float takes 24, a tuple of two 56, a dict of four 232
LIBRARY = os.path.dirname(os.__file__)  # sys.path has not all of its folders yet when this is loaded


def type_name(value):
    kind = type(value)
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__.split('.')[0]}.{kind.__qualname__}"


def sample(values):
    """Some of its elements, in one step that no other thread can come into."""
    if isinstance(values, (list, tuple)):
        return values[::max(1, len(values) // SAMPLES)][:SAMPLES] if len(values) > SAMPLES * 64 else list(values[:SAMPLES])
    return list(itertools.islice(values, SAMPLES))


class Weight:
    """Bytes of a value with all it holds; what it is made of."""

    def __init__(self, size, count=1, of="", shape="", owner=None):
        self.size, self.count, self.of, self.shape, self.owner = size, count, of, shape, owner


def weigh_array(value):
    """NumPy's, and whatever else has nbytes, dtype and shape. A view counts as what it is a view of."""
    owner = value
    while getattr(owner, "base", None) is not None and hasattr(owner.base, "nbytes"):
        owner = owner.base
    if type(owner).__name__ in ("memmap", "mmap") or "mmap" in type(getattr(owner, "base", None)).__name__:
        return Weight(0)
    size = int(owner.nbytes)
    if str(value.dtype) == "object":
        size += sum(weigh(v, 1).size for v in value.flat[:SAMPLES]) // max(1, min(SAMPLES, value.size)) * value.size
    return Weight(size, int(value.shape[0]) if value.shape else 1, str(value.dtype), str(tuple(value.shape)), id(owner))


def weigh_frame(value):
    """A table of pandas."""
    size = int(value.memory_usage(index=True, deep=False).sum())
    kinds = {str(t) for t in value.dtypes}
    for name in value.columns[[str(t) in ("object", "str", "string") for t in value.dtypes]][:SAMPLES]:
        values = list(itertools.islice(value[name], SAMPLES))
        size += sum(sys.getsizeof(v) for v in values) // max(1, len(values)) * len(value)
    return Weight(size, len(value), " ".join(sorted(kinds))[:60], str(tuple(value.shape)))


def weigh_tensor(value):
    if value.device.type != "cpu":
        return Weight(0)
    storage = value.untyped_storage() if hasattr(value, "untyped_storage") else value.storage()
    return Weight(storage.nbytes(), int(value.shape[0]) if value.shape else 1, str(value.dtype), str(tuple(value.shape)),
                  storage.data_ptr())


def weigh_container(value, depth):
    size, count = sys.getsizeof(value), len(value)
    if count == 0 or depth == 0:
        return Weight(size, count)
    if isinstance(value, dict):
        parts = [(k, v) for k, v in sample(value.items())]
        kinds = [type_name(v) for _, v in parts]
        # The names of the fields of many records are the same few texts.
        named = depth < DEEP and all(isinstance(k, str) for k, _ in parts)
        each = [(0 if named else weigh(k, depth - 1).size) + weigh(v, depth - 1).size for k, v in parts]
    else:
        parts = sample(value)
        kinds = [type_name(v) for v in parts]
        each = [weigh(v, depth - 1).size for v in parts]
    # The same small object again and again (0, True, an interned name) counts once.
    if len(parts) > 1 and not isinstance(value, dict) and len({id(v) for v in parts}) == 1:
        return Weight(size + each[0], count, kinds[0])
    size += sum(each) * count // max(1, len(each))
    return Weight(size, count, max(set(kinds), key=kinds.count) if kinds else "")


def parts_of(value):
    """What a bound method, a partial or a closure holds: a list of listeners holds all that listen."""
    if hasattr(value, "__self__") and hasattr(value, "__func__"):
        return [value.__self__]
    if hasattr(value, "func") and hasattr(value, "keywords"):
        return [value.func, value.args, value.keywords]
    return [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]


def slots_of(value):
    names = [name for kind in type(value).__mro__ for name in ([kind.__dict__.get("__slots__")]
             if isinstance(kind.__dict__.get("__slots__"), str) else kind.__dict__.get("__slots__", ()))]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def weigh_table(value):
    """Tables of other libraries, and pictures."""
    if callable(getattr(value, "estimated_size", None)):  # polars
        return Weight(int(value.estimated_size()), len(value), "", str(tuple(value.shape)))
    if callable(getattr(value, "getbands", None)):  # PIL
        wide, high = value.size
        return Weight(wide * high * len(value.getbands()), high, value.mode, str((high, wide)))
    return Weight(int(value.nbytes), len(value), "", str(tuple(getattr(value, "shape", (len(value),)))))  # pyarrow


def weigh(value, depth):
    if isinstance(value, (bytes, bytearray, str)):
        return Weight(sys.getsizeof(value), len(value))
    if isinstance(value, (list, tuple, dict, set, frozenset)) or type(value).__name__ in ("deque", "OrderedDict", "defaultdict"):
        return weigh_container(value, depth)
    module = type(value).__module__.split(".")[0]
    if module == "pandas" and hasattr(value, "memory_usage") and hasattr(value, "dtypes") and hasattr(value, "columns"):
        return weigh_frame(value)
    if module == "torch" and hasattr(value, "data_ptr") and hasattr(value, "storage"):
        return weigh_tensor(value)
    if module in ("polars", "PIL", "pyarrow") and not isinstance(value, type):
        return weigh_table(value)
    if isinstance(getattr(value, "nbytes", None), int) and hasattr(value, "dtype") and hasattr(value, "shape"):
        return weigh_array(value)
    if callable(value) and not isinstance(value, type):
        return Weight(sys.getsizeof(value) + sum(weigh(v, depth - 1).size for v in parts_of(value) if depth > 0))
    inner = getattr(value, "__dict__", None)
    if inner is None and hasattr(type(value), "__slots__"):
        inner = slots_of(value)
    if depth > 0 and isinstance(inner, dict) and not isinstance(value, (type, type(sys))):
        held = weigh_container(inner, depth - 1)
        return Weight(sys.getsizeof(value) + held.size, held.count, type_name(value))
    return Weight(sys.getsizeof(value))


def locals_of(frame):
    """Its variables. Before Python 3.13 the frame keeps what it is asked for, and with it values the function has long
    replaced: unless somebody else holds that dict too, it is emptied again."""
    values = frame.f_locals
    if sys.version_info >= (3, 13) or not frame.f_code.co_flags & 1:  # CO_OPTIMIZED: a function's
        return dict(values)
    copy = dict(values)
    if sys.gettrace() is None and sys.getrefcount(values) <= 3:
        values.clear()
    return copy


def is_own(path):
    return bool(path) and not path.startswith(("<", LIBRARY)) and "/site-packages/" not in path and "/dist-packages/" not in path


def threads():
    """The frame of the main thread, and those of the others."""
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
    return name == "__main__" or is_own(getattr(sys.modules.get(name), "__file__", None))


def cached(function):
    """What functools.lru_cache keeps for a function."""
    held = gc.get_referents(function)
    kept = next((h for h in held if isinstance(h, dict) and h is not function.__dict__), {})
    if type(next(iter(kept.values()), None)).__name__ != "_lru_list_elem":
        return kept
    return [h for h in held if not isinstance(h, (type, int, dict)) and not callable(h)]


def behind(value, name):
    """(value, name) of what a function or a class of the program's own keeps."""
    if callable(getattr(value, "cache_info", None)):
        yield cached(value), f"the cache of {name}"
    elif isinstance(value, type):
        yield from ((v, f"{name}.{n}") for n, v in list(vars(value).items()) if not n.startswith("__"))
    elif hasattr(value, "__code__") and hasattr(value, "__closure__"):
        code = value.__code__
        given = value.__defaults__ or ()
        yield from ((v, f"{n} of {name}") for n, v in zip(code.co_varnames[code.co_argcount - len(given):], given))
        yield from ((c.cell_contents, f"{n} of {name}") for n, c in zip(code.co_freevars, value.__closure__ or ()))


FEW = 16  # of a container that is a record or a bundle rather than a collection: each is looked at by itself
HOLDERS = ("queue", "collections", "asyncio", "multiprocessing")  # modules whose objects only hold others


def opened(value, name, depth=2):
    """(value, name) of a variable, of the attributes of an object of the program's own, and of the few things in a bundle."""
    yield value, name
    if depth > 0 and type(value) in (dict, list, tuple) and 0 < len(value) <= FEW:
        for key, v in list(value.items() if isinstance(value, dict) else enumerate(value)):
            if isinstance(v, (dict, list, tuple, set)) or (isinstance(value, dict) and hasattr(v, "nbytes")):
                yield from opened(v, f"{name}[{key!r}]"[:60], depth - 1)
    if is_own_module(getattr(value, "__module__", None)) or type(value).__module__.split(".")[0] in HOLDERS:
        if isinstance(value, type) or callable(value):
            yield from behind(value, name)
        inner = getattr(value, "__dict__", None)
        if depth > 0 and isinstance(inner, dict) and not isinstance(value, type):
            for n, v in list(inner.items()):
                yield from opened(v, f"{name}.{n}", depth - 1)


def variables(main, others):
    """(value, name, where) of everything a variable names; the program's own names first, for a thing is told once."""
    frames = [frame for top in [main, *others] for frame in stack_of(top) if frame.f_code.co_name != "<module>"]
    for frame in frames:
        if is_own(frame.f_code.co_filename):
            where = f"{frame.f_code.co_name} at {frame.f_code.co_filename}:{frame.f_lineno}"
            for name, value in locals_of(frame).items():
                yield from ((v, n, where) for v, n in opened(value, name))
    for name, module in list(sys.modules.items()):
        if is_own_module(name):
            where = "module " + (getattr(module, "__file__", None) or name)
            for variable, value in list(getattr(module, "__dict__", {}).items()):
                if not variable.startswith("__"):
                    yield from ((v, n, where) for v, n in opened(value, variable))
    for frame in frames:
        if not is_own(frame.f_code.co_filename):
            where = f"{frame.f_code.co_name} at {frame.f_code.co_filename}:{frame.f_lineno}"
            yield from ((v, n, where) for n, v in locals_of(frame).items() if hasattr(v, "nbytes") or hasattr(v, "memory_usage"))


MANY = 400_000  # objects, above which a list of them all takes too long and too much


def instances():
    """(value, name, where) of the containers in objects of the program's own classes, whoever holds those: a library may
    (a handler of logging, a callback of a trainer). Not arrays: one that matters is in a container or has a name."""
    if getattr(sys, "getallocatedblocks", int)() > MANY:
        return
    own, looked = {}, {}
    for value in gc.get_objects():
        kind = type(value)
        if kind not in own:
            own[kind] = is_own_module(getattr(kind, "__module__", None))
        if not own[kind] or isinstance(value, type) or looked.get(kind, 0) >= SAMPLES:
            continue
        looked[kind] = looked.get(kind, 0) + 1
        for name, held in list((getattr(value, "__dict__", None) or {}).items()):
            if isinstance(held, (list, dict, set)) or type(held).__name__ == "deque":
                yield held, f"{kind.__qualname__}.{name}", "module " + kind.__module__


def unnamed(main, found):
    """Objects of Python's that no variable names yet, as those of a list that a comprehension is making: their number is
    known, and of what type the youngest are."""
    count = getattr(sys, "getallocatedblocks", int)()
    named = sum(size for size, weight, *_ in found if not weight.shape)
    own = next((frame for frame in stack_of(main) if is_own(frame.f_code.co_filename)
                and frame.f_code.co_name not in ("__init__", "__new__")), None)
    if own is None or count * BLOCK < max(2 * named, 32 * LEAST):
        return []
    kinds = [type_name(v) for v in gc.get_objects(0)[-SAMPLES * 8:]] if gc.get_count()[0] < 100_000 else []
    kinds = [k for k in kinds if k not in ("frame", "cell", "function", "tuple", "list", "dict")] or kinds
    weight = Weight(count * BLOCK, count, max(set(kinds), key=kinds.count) if kinds else "")
    where = f"{own.f_code.co_name} at {own.f_code.co_filename}:{own.f_lineno}"
    return [(weight.size, weight, f"what line {own.f_lineno} makes", where, "list")]


def weighed(values, until, seen):
    """(bytes, weight, name, where, type) of each that is large and not seen yet."""
    for value, name, where in values:
        if time.monotonic() > until:
            break
        if isinstance(value, (int, float, type, type(sys))) or callable(value) and not hasattr(value, "__len__"):
            continue
        try:
            weight = weigh(value, DEEP)
        except Exception:
            continue  # an object with ways of its own
        key = weight.owner or id(value)
        if weight.size >= LEAST and key not in seen:
            seen[key] = True
            yield weight.size, weight, name, where, type_name(value)


def largest(main, others, held):
    """(bytes, weight, name, where, type) of all that is large, as it is found."""
    until, seen, found = time.monotonic() + SECONDS, {}, []
    for one in weighed(variables(main, others), until, seen):
        found.append(one)
        yield one
    if sum(size for size, *_ in found) < held // 2:
        for one in weighed(instances(), until, seen):
            found.append(one)
            yield one
    yield from unnamed(main, found)


def word(text):
    return "".join(c if c >= " " else "?" for c in str(text))


def limits():
    """What this process itself may not pass (ulimit -v, RLIMIT_AS), in words that message.c reads."""
    import resource

    lines = []
    for name, limit in (("address space", resource.RLIMIT_AS), ("data", resource.RLIMIT_DATA)):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY:
            lines.append(f"the {name} of the process is limited to {most} bytes\n")
    return "".join(lines)


def on_exit():
    """The program ends by an exception about memory: its text and its lines are kept."""
    error = getattr(sys, "last_value", None)
    try:
        if isinstance(error, MemoryError):
            import traceback

            text = "".join(traceback.format_exception(type(error), error, error.__traceback__)) + limits()
            path = f"{os.path.dirname(os.environ[ENV_WATCH])}/{os.getpid()}{RUN_ERROR}"
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(fd, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
    except Exception as error:
        shim_log(f"on_exit: {error!r}")


def arm():
    import atexit

    atexit.register(on_exit)
    os.register_at_fork(after_in_child=shim_forked)
    return False


def source(frame):
    """The text of the line it is at, if it is the program's own and can be read."""
    path, line = frame.f_code.co_filename, frame.f_lineno  # a frame between two lines has none
    return word(shim_line(os.fsencode(path), line).decode("utf-8", "replace").strip())[:120] if line and is_own(path) else ""


def lines_of(frames, found):
    found = sorted(found, key=lambda f: f[0], reverse=True)[:SHOWN]
    return [f"{RUN_LINE_OBJECT}\t{size}\t{w.count}\t{word(name)[:60]}\t{word(where)[-150:]}\t{word(kind)[:60]}\t{word(w.of)[:60]}\t"
            f"{word(w.shape)[:60]}\t{size // max(1, w.count)}" for size, w, name, where, kind in found] + frames


class Answer:
    def __init__(self, held=0, lines=(), pid=0):
        self.held, self.lines, self.pid, self.time = held, lines, pid, time.monotonic()

    def keep(self, serial, whole):
        shim_keep("\n".join([f"{RUN_LINE_ASKED}\t{serial}\t{self.held}\t{int(whole)}", *self.lines, ""]).encode("utf-8", "replace"))


last = Answer()  # the last whole one; of its parent, in a child of fork
LATELY = 5  # seconds


def report():
    global last
    collecting = gc.isenabled()
    gc.disable()
    try:
        serial, held = shim_state()
        first, wrote = last.pid != os.getpid(), time.monotonic()
        main, others = threads()
        frames = [f"{RUN_LINE_FRAME}\t{word(f.f_code.co_filename)[-190:]}\t{f.f_lineno or 0}\t{word(f.f_code.co_name)[:60]}\t{source(f)}"
                  for f in itertools.islice(stack_of(main), 48)]
        found = []
        if first:
            Answer(held, frames).keep(serial, False)
        try:
            for one in largest(main, others, held):
                found.append(one)
                if first and time.monotonic() > wrote + STEP:
                    Answer(held, lines_of(frames, found)).keep(serial, False)
                    wrote = time.monotonic()
        finally:
            # What comes and goes is told as it was at its most.
            if first or held > last.held // 10 * 9 or wrote > last.time + LATELY:
                last = Answer(held, lines_of(frames, found), os.getpid())
            last.keep(serial, True)
    except Exception as error:
        shim_log(f"report: {error!r}")
    finally:
        if collecting:
            gc.enable()
    return False
