# mypy: ignore-errors
"""What an object refers to: its attributes, what a function, a queue or a generator that waits keeps, and containers in containers.

A part of _holders.py, above _samples.py; its rules hold here too: it imports only what every interpreter has loaded, allocates nothing
large and changes nothing.
"""
import gc
import itertools
import sys

from ._access import *
from ._samples import *

NESTED = 4  # levels of containers of one type in each other, from which on a search that opens all of them would take too long


def inner_ones(value):
    """Returns a sample of what a container holds: its values, and those of them that are containers of its type and not empty."""
    parts = sample(value)
    return parts, [one for one in parts if type(one) is type(value) and length(one) > 0]


def bisect(ends, number):
    """Returns the index of the first of some ascending numbers that is above a number.

    >>> bisect([2, 3, 7], 2)
    1
    """
    return next(at for at, end in enumerate(ends) if number < end)


def is_nested(value):
    """Returns whether it holds containers of its type, which hold such ones, and so on: a trie of dicts, a tree of lists.

    >>> is_nested({"a": {"b": {"c": {"d": {}, "e": 1}}}}), is_nested({"a": {"b": 1}})
    (True, False)
    """
    for _ in range(NESTED - 1):
        inner = inner_ones(value)[1] if length(value) > 0 else []
        if not inner:
            return False
        value = inner[len(inner) // 2]
    return True


def parts_of(value):
    """What a bound method, a partial or a closure holds: a list of listeners holds all that listen."""
    if has(value, "__self__") and has(value, "__func__"):
        return [value.__self__]
    if has(value, "func") and has(value, "keywords"):
        return [get(value, name) for name in ("func", "args", "keywords")]
    return [cell.cell_contents for cell in get(value, "__closure__", None) or ()]


def slots_of(value):
    given = [names_of(kind).get("__slots__", ()) for kind in bases_of(type(value))]
    names = [name for one in given for name in ([one] if type(one) is str else one if type(one) in (list, tuple, dict) else ())]
    return {name: get(value, name) for name in names if type(name) is str and has(value, name)}


INLINE = 1 << 4 if sys.version_info >= (3, 11) else 0  # Py_TPFLAGS_MANAGED_DICT: attributes are in a block of their own, not in a dict
HEAD = 24 if sys.version_info >= (3, 13) else 16  # bytes of such a block without its references


def attributes(value):
    """Returns what an object's attributes refer to, as its dict or as a list, and the bytes of the table that refers to them. Does not
    read __dict__ of an object that has no dict yet: that would make one."""
    inline = flags_of(type(value)) & INLINE
    inner = None if inline or has(type(value), "__slots__") else get(value, "__dict__", None)
    if is_a(inner, dict):
        return inner, sized(inner)
    held = [one for one in gc.get_referents(value) if not is_a(one, (type, type(sys)))]
    last = held[-1] if held and type(held[-1]) is dict else None
    if last is not None and len(held) == 1:
        return last, sized(last)
    if last is not None and len(last) == len(held) - 1 and all(a is b for a, b in zip(last.values(), held)):
        held.pop()  # Python 3.13 has both the dict and what it refers to
    return held, HEAD + 8 * len(held) + 8 & -16 if inline else 0


def own_value(value, name):
    """Returns an attribute of the object itself; ABSENT if it has none. Calls no code of the program."""
    try:
        if in_class(type(in_class(type(value), name)), "__get__", ABSENT) is not ABSENT:
            return ABSENT
        return object.__getattribute__(value, name)
    except Exception:
        return ABSENT


def names_in(kind):
    """Returns the names of attributes that the code of a class uses."""
    names = set()
    for base in bases_of(kind):
        known = names_of(base).get("__annotations__")
        names.update(known if type(known) is dict else ())
        for one in list(names_of(base).values()):
            names.update(get(get(get(one, "__func__", one), "__code__"), "co_names", ()))
    return names


LAZY = (3, 11) <= sys.version_info < (3, 13)  # __dict__ is made when it is first read, and takes the attributes


def fields_of(value):
    """Returns the attributes of an object by name. Reads __dict__ only if it exists or if there is no other way: Python's collector would
    find a new one after all that the attributes lead to, and put all of that into another order, in which every later collection of a
    large tree takes several times as long.

    >>> class Node:
    ...     def __init__(self):
    ...         self.children = {}
    >>> one = Node()
    >>> list(fields_of(one)), fields_of(one)["children"] is one.children
    (['children'], True)
    """
    if LAZY and flags_of(type(value)) & INLINE:
        if base_of(value) is not None:  # what it refers to are its elements, millions perhaps
            return fields_beside(value)
        held = [id(one) for one in gc.get_referents(value)]
        found = {name: one for name in names_in(type(value)) for one in [own_value(value, name)] if one is not ABSENT and id(one) in held}
        known = {id(one) for one in found.values()}
        if not any(gc.is_tracked(one) and id(one) not in known and one is not type(value) for one in gc.get_referents(value)):
            return found
    inner = get(value, "__dict__", None)
    return inner if is_a(inner, dict) else {}


def fields_beside(value):
    """Returns the attributes of a container of the program's class, beside its elements: those that its methods use."""
    kind = type(value)
    names = () if is_known(kind) else [name for name in names_in(kind) if in_class(kind, name, ABSENT) is ABSENT]
    return {name: one for name in names for one in [own_value(value, name)] if one is not ABSENT}


def is_dict_of(holder, value):
    """Returns whether a dict is the __dict__ of an object. Makes none, as fields_of()."""
    if not (LAZY and flags_of(type(value)) & INLINE):
        return get(value, "__dict__", None) is holder
    return type(holder) is dict and len(holder) > 0 and any(one is holder for one in gc.get_referents(value)) and all(
        type(name) is str and own_value(value, name) is one for name, one in list(itertools.islice(holder.items(), 4)))


def few(held):
    """Returns a list of attributes; an empty one if they are so many that they are not attributes of a record."""
    return [] if len(held) > SAMPLES else list(elements_of(held))


def is_peer(value, kind):
    """Returns whether it is an object of that class, or a container of them: the nodes of a tree refer to each other."""
    if is_a(value, (list, tuple, set, dict)) and length(value) > 0:
        value = first_of(value)
    return type(value) is kind


def kept_by(value):
    """Returns what a generator or a coroutine refers to: its variables, then what it is working with."""
    found = gc.get_referents(value)
    if sys.version_info < (3, 11):  # a frame object keeps them
        found += [one for frame in found if class_name(frame) == "frame" for one in gc.get_referents(frame)]
    return found


def awaited(value):
    """Returns the generator or coroutine that another one waits for, or None.

    Its attributes gi_yieldfrom and cr_await are not read. Until Python 3.13 they return the top of a stack that does not exist while
    another thread runs it: the process crashes. The garbage collector sees no stack then."""
    found = [one for one in kept_by(value) if class_name(one) in ("generator", "coroutine") and one is not value]
    return found[-1] if found else None


def waiting(value):
    """Yields a generator, a coroutine or the coroutine of a task of asyncio, and what it waits for, eight at most."""
    if is_task(value):
        value = value.get_coro()
    for _ in range(8):
        if value is None:
            return
        yield value
        value = awaited(value)


def suspended(value):
    """Returns the frames of a generator, a coroutine or a task of asyncio that waits, and of what it waits for."""
    frames = (get(one, "gi_frame", None) or get(one, "cr_frame", None) or get(one, "ag_frame", None) for one in waiting(value))
    return [frame for frame in frames if frame is not None]


def is_suspended(value):
    """Returns whether it is a generator, a coroutine, or a task of asyncio."""
    return class_name(value) in ("generator", "coroutine", "async_generator") or is_task(value)


def is_task(value):
    return is_known(type(value)) and callable(get(type(value), "get_coro", None))


def is_database(value):
    """Returns whether it is a connection whose database may be in the memory of this process. Its size is not known: a query would wait
    for the program's own."""
    kind = type(value)
    return (qualified(kind), module_of(kind).split(".")[0]) in (("Connection", "sqlite3"), ("DuckDBPyConnection", "duckdb"),
                                                              ("DuckDBPyConnection", "_duckdb"))


def is_library(value):
    """Returns whether it is a C library that the program calls through ctypes or cffi. An attribute that is read is searched in it."""
    return any((qualified(kind), module_of(kind)) in (("CDLL", "ctypes"), ("Lib", "_cffi_backend"), ("FFILibrary", "cffi.api"))
               for kind in bases_of(type(value)))


def queued(value):
    """Returns the container in which a queue keeps what was put; None for anything else."""
    if module_of(type(value)) not in ("queue", "asyncio.queues", "multiprocessing.queues"):
        return None
    held = [get(value, name, None) for name in ("queue", "_queue", "_buffer")]
    return next((each for each in held if has(each, "__len__")), None)


def file_class(kind):
    """Returns the class of files in memory that a class is or is derived from, None if it is no such class."""
    return next((base for base in bases_of(kind) if module_of(base) == "_io" and qualified(base) in ("BytesIO", "StringIO")), None)
