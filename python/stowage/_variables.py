# mypy: ignore-errors
"""Variables: everything that a variable of the program names, with its name and place: in frames, modules, objects, tasks and caches.

A part of _holders.py, above _frames.py; its rules hold here too.
"""
import gc
import itertools
import os
import sys

from ._access import *
from ._fields import *
from ._frames import *
from ._samples import *
from ._weighing import *


def cached(function):
    """Returns what functools.lru_cache keeps for a function: the results by their keys, or a list of them if their number is limited, in
    which case the keys of the table lead to links."""
    held = [h for h in gc.get_referents(function) if h is not get(function, "__dict__")]
    tables = [h for h in held if is_a(h, dict)]
    links = next((h for h in tables if class_name(first_of(h)) == "_lru_list_elem"), None)
    if links is None:
        return tables[0] if tables else {}
    keys = set(map(id, links))
    return [h for h in held if h is not links and id(h) not in keys and type(h) is not object and not is_a(h, type) and not callable(h)]


def behind(value, name, depth):
    """Yields (value, name) of what a function or a class of the program keeps."""
    if callable(get(value, "cache_info", None)):
        yield cached(value), f"the cache of {name}"
    elif is_a(value, type):
        for n, v in list(names_of(value).items()):
            if not n.startswith("__"):
                v = v.__func__ if type(v) in (staticmethod, classmethod) else v
                if callable(get(v, "cache_info", None)):
                    yield from behind(v, f"{name}.{n}", depth)
                elif is_a(v, (dict, list, tuple)):
                    yield from opened(v, f"{name}.{n}", depth - 1)
                else:
                    yield v, f"{name}.{n}"
    elif type(value) is type(is_own):
        code = value.__code__
        given = value.__defaults__ or ()
        yield from ((v, f"{n} of {name}") for n, v in zip(code.co_varnames[code.co_argcount - len(given):], given))
        yield from ((get(c, "cell_contents"), f"{n} of {name}") for n, c in zip(code.co_freevars, value.__closure__ or ()))


FEW = 16  # elements of a record or a bundle rather than a collection: each is looked at by itself
HOLDERS = ("queue", "collections", "asyncio", "multiprocessing", "logging")  # modules whose objects only hold others


def opened(value, name, depth=2):
    """Yields (value, name) of a variable, of the attributes of the program's own objects, and of the few things in a bundle."""
    yield value, name
    if queued(value) is not None or class_name(value) in ("Pool", "ThreadPool", "SharedMemory") and not is_own_module(module_of(type(value))):
        return
    if depth > 0 and module_of(type(value)) in ("builtins", "collections") and is_a(value, (dict, list, tuple)) and 0 < length(value) <= FEW:
        for key, v in pairs_of(value) if is_a(value, dict) else list(enumerate(elements_of(value))):
            if is_a(v, (dict, list, tuple, set)) or (is_a(value, dict) and has(v, "nbytes")):
                yield from opened(v, item_name(name, key), depth - 1)
    if not is_library(value) and is_own_module(module_of(value) if is_a(value, type) else get(value, "__module__")) or module_of(type(value)).split(".")[0] in HOLDERS:
        if is_a(value, type) or callable(value):
            yield from behind(value, name, depth)
        if depth > 0 and not is_a(value, type):
            for n, v in list(fields_of(value).items()):
                yield from opened(v, f"{name}.{n}", depth - 1)


def is_result(name):
    """Returns true for the names under which a notebook keeps inputs and results."""
    return name in ("In", "Out", "_oh", "_ih", "_dh") or name.strip("_") == "" or (name[0] == "_" and name[1:].lstrip("i").isdigit())


def is_imported(value, module):
    """Returns whether a class or function is a variable of another module of the program too, the one that defines it: it is listed there,
    with its own file. What a function of that module returned (a decorated function, a class made by a factory) is only here."""
    if not is_a(value, (type, type(is_own))):
        return False
    own = module_of(value) if is_a(value, type) else value.__module__
    if own == module or not is_own_module(own):
        return False
    return get(sys.modules.get(own), qualified(value) if is_a(value, type) else value.__name__) is value


def named(values, where, shell):
    """Yields (value, name, where) of module variables. A notebook's results come last: they are often a second name of a variable."""
    for variable, value in values:
        if type(variable) is str and not variable.startswith("__") and not (shell and is_result(variable)):
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


def loops_of(frames):
    """Returns the event loops of asyncio that these frames run. Between two rounds a loop is in run_forever alone."""
    if "asyncio" not in sys.modules:
        return []
    own = [locals_of(frame).get("self") for frame in frames if frame.f_code.co_name in ("_run_once", "run_forever")]
    return list({id(loop): loop for loop in own if loop is not None}.values())


def tasks_of(frames):
    """Returns the frames of the tasks of asyncio that wait, for the loops that these frames run."""
    known, found = sys.modules.get("asyncio"), []
    for loop in loops_of(frames):
        for task in itertools.islice(known.all_tasks(loop), SAMPLES):
            found.extend(frame for frame in suspended(task) if frame not in frames)
    return found


made_texts = {}  # the statements that make values without a name, by their places, as they were when the search began


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
    for loop in loops_of(frames):
        for task in itertools.islice(known.all_tasks(loop), REACH):
            own, last = next((f for f in reversed(suspended(task)) if is_own_frame(f)), None), list(waiting(task))[-1:]
            found = kept_by(last[0]) if own is not None and last else []
            found += gc.get_referents(*(one for one in found if class_name(one) == "FutureIter"))  # what `await future` makes
            for future in found:
                tasks = get(future, "_children", None)
                if is_a(tasks, list):
                    yield (tasks, *made_by(own))


def is_given(frame, name):
    """Returns whether a variable of a frame was made elsewhere: an argument, but not self, or what a comprehension goes through."""
    code = frame.f_code
    return code.co_name.startswith("<") and code.co_name != "<module>" or (
        name not in ("self", "cls") and name in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount])


CALLS = 8  # frames of one function whose variables are read: a recursion has thousands


def innermost(frames):
    """Returns the frames without those of a deep recursion: the innermost ones of each function."""
    calls, found = {}, []
    for frame in frames:
        calls[frame.f_code] = calls.get(frame.f_code, 0) + 1
        if calls[frame.f_code] <= CALLS:
            found.append(frame)
    return found


def outermost(own, modules):
    """Returns by id the outermost frame with a variable of its own for a value that several variables name, None for a module: `node`, with
    which a function goes through a tree, is the root at first. own: (frame, variables), the innermost frames first; modules: (name, module)
    of the program's own."""
    found = {id(value): None for _, module in modules for value in list(get(module, "__dict__", {}).values())}
    for frame, values in reversed(own):
        for name, value in values.items():
            if not is_given(frame, name):
                found.setdefault(id(value), frame)
    return found


def variables(main, others):
    """Yields (value, name, where) of everything a variable names. The program's own names come first: a thing is reported once."""
    frames = innermost(frame for top in [main, *others] for frame in stack_of(top) if frame.f_code.co_name != "<module>")
    # People know the line that called a library. It is read first: the program goes on while the rest is.
    callers = [(frame, next((f for f in stack_of(frame) if is_own_frame(f)), frame)) for frame in frames
               if not is_own(frame.f_code.co_filename) and not is_own_frame(frame)]
    callers = [(frame, own, made_by(own)) for frame, own in callers]
    yield from gathered(frames)
    frames += tasks_of(frames)
    given, own = [], [(frame, locals_of(frame)) for frame in frames if is_own_frame(frame)]
    modules = [(name, module) for name, module in list(sys.modules.items()) if is_own_module(name)]
    outer = outermost(own, modules)
    for frame, values in own:
        where = f"{frame.f_code.co_name} at {frame.f_code.co_filename}:{frame.f_lineno}"
        for name, value in values.items():
            if is_given(frame, name) or outer.get(id(value), frame) is not frame:
                given.append((value, name, where))
            else:
                yield from ((v, n, where) for v, n in opened(value, name))
    own.clear()
    for name, module in modules:
        where = "module " + (file_of(module) or name)
        values = [(n, v) for n, v in list(get(module, "__dict__", {}).items()) if not is_imported(v, name)]
        yield from named(values, where, name == "__main__" and has(module, "get_ipython"))
    yield from failed(main, (frame for top in [main, *others] for frame in stack_of(top)))
    for value, name, where in given:
        yield from ((v, n, where) for v, n in opened(value, name))
    for frame, own, (name, where) in callers:
        yield from ((v, name if own is not frame else n, where) for n, v in locals_of(frame).items() if is_array(v) or file_class(type(v)) is not None)


def last_errors():
    """Returns the errors that the interpreter or the notebook keeps for a debugger."""
    shell = get(sys.modules.get("__main__"), "get_ipython", None)
    shell = shell() if callable(shell) else None
    found = [get(sys, "last_exc", None), get(sys, "last_value", None), get(get(shell, "last_execution_result", None), "error_in_exec", None)]
    return [one for one in found if is_a(one, BaseException)]


def frames_of(error):
    """Returns the frames of the functions that an error has ended."""
    frames, trace = [], BaseException.__dict__["__traceback__"].__get__(error)
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    return frames


def failed(main, known):
    """Yields (value, name, where) of the variables of the program's functions that an earlier error has ended, not the one that ended
    `main`. known: frames that run."""
    seen = {id(frame) for frame in known}
    for error in last_errors():
        frames = frames_of(error)
        for frame in frames if not any(frame is main for frame in frames) else ():
            if id(frame) not in seen and is_own_frame(frame) and frame.f_code.co_name != "<module>":
                seen.add(id(frame))
                where = f"{frame.f_code.co_name} at {frame.f_code.co_filename}:{frame.f_lineno}"
                yield from ((value, f"{name} of an earlier error", where) for name, value in locals_of(frame).items())


REACH = 20_000  # objects that a search from the program's variables opens
LONG = 1000  # elements of a container that is weighed, and not searched


def reached(main, others, until):
    """Yields (value, name, where) of long containers that a chain of objects leads to from the program's variables, as a handler of
    logging keeps records."""
    seen, waiting = set(), list(variables(main, others))
    for name, module in list(sys.modules.items()):
        if is_own_module(name):
            where = "module " + (file_of(module) or name)
            waiting.extend((v, n, where) for n, v in list(get(module, "__dict__", {}).items()) if type(n) is str and not n.startswith("__"))
    for value, name, where in itertools.islice(chained(waiting, seen, until), REACH):
        yield value, name, where


def chained(waiting, seen, until):
    at = 0
    while at < len(waiting) and len(waiting) < REACH and (at % 64 or not until.is_over()):
        value, name, where = waiting[at]
        at += 1
        if id(value) in seen or is_a(value, (str, bytes, int, float, type, type(sys))):
            continue
        seen.add(id(value))
        if is_a(value, (list, tuple, dict, set)) or class_name(value) == "deque":
            if length(value) >= LONG:
                yield value, name, where
            elif is_a(value, dict):
                waiting.extend((v, item_name(name, k), where) for k, v in pairs_of(value))
            else:
                waiting.extend((v, f"{name}[{i}]"[:60], where) for i, v in enumerate(list(elements_of(value))))
            continue
        inner = fields_of(value)
        if inner:
            kind = type(value)
            ours = is_own_module(module_of(kind))
            module = sys.modules.get(module_of(kind))
            waiting.extend((v, f"{qualified(kind) if ours else name}.{n}", "module " + (file_of(module) or module_of(kind)) if ours else where)
                           for n, v in list(inner.items()))


COLLECTING = ("map(", ".apply(", ".applymap(", ".transform(", ".agg(", ".starmap(", "gather(")


def collects(frame):
    """Returns whether the line of a frame keeps what each of many calls returns: a comprehension, map, apply."""
    text = source(frame)
    return frame.f_code.co_name in ("<listcomp>", "<dictcomp>", "<setcomp>") or any(call in text for call in COLLECTING) or (
        " for " in text and " in " in text and any(sign in text.split(" for ")[0] for sign in "[{("))


def collecting(frame):
    """Returns whether a frame, or the one that called it, is at a comprehension."""
    return any(each is not None and (each.f_code.co_name in ("<listcomp>", "<dictcomp>", "<setcomp>") or collects(each))
               for each in (frame, frame.f_back))


def maker_of(main):
    """Returns the frame of the program that makes something: not a constructor, not a generator, which another line consumes, and not a
    function that another line calls for each of many elements."""
    own = [frame for frame in itertools.islice(stack_of(main), 64) if is_own_frame(frame) and not frame.f_code.co_flags & 0x20  # CO_GENERATOR
           and frame.f_code.co_name not in ("__init__", "__new__", "<genexpr>")]
    return next((frame for frame in own[1:4] if collects(frame)), own[0]) if own else None
