# mypy: ignore-errors
"""Access: reads types, attributes, lengths and elements of any object without running code of the program.

The lowest part of _holders.py, whose rules hold here too, and of _program.py. The program's classes may define properties, __getattr__, __len__, __iter__,
__class__, __sizeof__ and metaclasses, and libraries have objects that pass all of these on (proxies). So only classes of known
libraries are asked in the usual way; of others, what is stored in the object and in its classes is read.
"""
import os
import sys
from _collections import deque

LIBRARY = os.path.dirname(os.__file__)  # sys.path does not have all of its folders yet when this is loaded
ABSENT = object()

bases_of = type.__dict__["__mro__"].__get__  # a metaclass may define __mro__, __name__ and __getattribute__
names_of = type.__dict__["__dict__"].__get__
flags_of = type.__dict__["__flags__"].__get__
module_names = type(sys).__dict__["__dict__"].__get__


def module_of(kind):
    """Returns the name of the module of a class."""
    try:
        name = type.__dict__["__module__"].__get__(kind)
    except Exception:
        return ""
    return name if type(name) is str else ""


def class_name(value):
    """Returns the name of an object's class, without its module."""
    return type.__dict__["__name__"].__get__(type(value))


def qualified(kind):
    return type.__dict__["__qualname__"].__get__(kind)


def is_a(value, kinds):
    """isinstance() for classes of C code and of libraries, by the object's type alone."""
    return issubclass(type(value), kinds)


def is_own(path):
    """Returns true for a file of the program, false for a library's."""
    if type(path) is not str or not path or path.startswith("<"):
        return type(path) is str and path.startswith("<ipython-input")
    return not path.startswith(LIBRARY) and "/site-packages/" not in path and "/dist-packages/" not in path


def is_own_module(name):
    if type(name) is not str:
        return False
    return name == "__main__" or (is_own(get(sys.modules.get(name), "__file__")) and not name.startswith("stowage"))


# Modules whose classes run no code of the program when they are asked. Not unittest.mock, nor weakref, whose proxies pass on everything.
KNOWN = frozenset((
    "builtins", "types", "abc", "_abc", "typing", "numbers", "contextlib", "enum", "collections", "_collections", "functools", "itertools",
    "queue", "_queue", "asyncio", "_asyncio", "concurrent", "multiprocessing", "threading", "_thread", "logging", "io", "_io", "mmap",
    "array", "datetime", "decimal", "fractions", "random", "re", "sqlite3", "ctypes", "_ctypes", "cffi", "_cffi_backend", "numpy", "scipy",
    "pandas", "polars", "pyarrow", "PIL", "torch", "jax", "jaxlib", "cupy", "numba", "tensorflow", "matplotlib", "networkx", "duckdb",
    "_duckdb", "h5py", "zarr", "mlx", "sklearn", "lightgbm", "xgboost", "xml", "_elementtree", "geopandas", "shapely", "xarray",
    "torchvision", "torchaudio", "transformers", "stowage"))
PROXIES = ("weakproxy", "weakcallableproxy", "ProxyType", "CallableProxyType")
known_kinds = {}  # by id; emptied before each search, because a class may end


def is_known(kind):
    """Returns whether a class, its bases and its metaclass are of KNOWN and run no code of the program."""
    found = known_kinds.get(id(kind))
    if found is None:
        found = known_kinds[id(kind)] = kind is type or is_known(type(kind)) and type.__dict__["__name__"].__get__(kind) not in PROXIES and all(
            module_of(base).partition(".")[0] in KNOWN and not runs_program(base) for base in bases_of(kind))
    return found


def runs_program(kind):
    """Returns whether a class that says it is a library's has special methods, properties or descriptors of the program."""
    for name, held in list(names_of(kind).items()) if flags_of(kind) & HEAP_TYPE else ():
        getter = held.fget if type(held) is property else in_class(type(held), "__get__") if id(type(held)) not in HARMLESS else None
        method = held.__func__ if type(held) is staticmethod or type(held) is classmethod else held if name[:2] == "__" else None
        if is_programs(getter) or is_programs(method):
            return True
    return False


def is_programs(function):
    """Returns whether it is a Python function that the program defines."""
    if type(function) is not type(is_a):
        return False
    module = dict.get(function.__globals__, "__name__")  # a library may be the program's checkout of it
    return module == "__main__" or type(module) is str and module.partition(".")[0] not in KNOWN and is_own(function.__code__.co_filename)


HEAP_TYPE = 1 << 9  # of a class's flags: made by a class statement or the like
# Descriptors of C code, and functions, of which only a bound method is made.
# The sets of classes have their ids: a metaclass may define __hash__ and __eq__.
HARMLESS = frozenset(map(id, (type(type(is_a).__dict__["__globals__"]), type(type(is_a).__dict__["__code__"]), type(str.join), type(object.__init__),
                              type(dict.__dict__["fromkeys"]), type(is_a), type(len), staticmethod)))


def in_class(kind, name, default=None):
    """Returns what a class or one of its bases stores under a name, as it is stored."""
    for base in bases_of(kind):
        found = names_of(base).get(name, ABSENT)
        if found is not ABSENT:
            return found
    return default


def get(value, name, default=None):
    """getattr that runs no code of the program; what only such code could return counts as absent.

    >>> class Closed:
    ...     size = property(lambda self: 1 / 0)
    ...     def __getattr__(self, name):
    ...         raise OSError(name)
    >>> one = Closed()
    >>> one.kept = 3
    >>> get(one, "nbytes"), get(one, "size"), get(one, "kept"), has(one, "nbytes")
    (None, None, 3, False)
    """
    kind = type(value)
    try:
        if issubclass(kind, type(sys)):
            return module_names(value) if name == "__dict__" else module_names(value).get(name, default)
        if issubclass(kind, type):
            if name == "__dict__":
                return names_of(value)
            return getattr(value, name, default) if is_known(value) else in_class(value, name, default)
        if is_known(kind):
            return default if kind.__name__ == "TypedStorage" else getattr(value, name, default)  # of PyTorch: prints a warning
        held = in_class(kind, name, ABSENT)
        if has(kind, "__torch_function__"):  # the program's tensors pass all attributes to it
            return default
        if held is not ABSENT and id(type(held)) not in HARMLESS and in_class(type(held), "__get__", ABSENT) is not ABSENT:
            return default
        return object.__getattribute__(value, name)
    except Exception:
        return default


def has(value, name):
    return get(value, name, ABSENT) is not ABSENT


# ---- lengths and elements ----

CONTAINED = (list, dict, tuple, set, frozenset, deque, str, bytes, bytearray)
EXACT = frozenset(map(id, CONTAINED))


def base_of(value):
    """Returns the class of C code among CONTAINED that an object is of, or None."""
    kind = type(value)
    return kind if id(kind) in EXACT else next((base for base in CONTAINED if issubclass(kind, base)), None)


def is_sized(value):
    """Returns whether length() counts elements."""
    return base_of(value) is not None or has(type(value), "__len__") and is_known(type(value))


def length(value):
    """len() of a container, also if the program's class counts otherwise; 0 for an object that only the program can count."""
    if id(type(value)) in EXACT:
        return len(value)
    base = base_of(value)
    if base is not None:
        return base.__len__(value)
    return len(value) if is_known(type(value)) and has(type(value), "__len__") else 0


def elements_of(value):
    """iter() of a container; of a dict its values."""
    base = base_of(value)
    return iter(()) if base is None else iter(dict.values(value)) if base is dict else base.__iter__(value)


def first_of(value):
    """Returns the first of elements_of(), None if there is none."""
    return next(elements_of(value), None)


def pairs_of(value):
    return list(dict.items(value))


def byte_size(value):
    """sys.getsizeof() without a __sizeof__ of the program."""
    kind = type(value)
    if is_known(kind):
        return sys.getsizeof(value, 0) if kind.__name__ != "TypedStorage" else object.__sizeof__(value)
    base = next((base for base in bases_of(kind) if is_known(base) and "__sizeof__" in names_of(base)), object)
    head = 16 * bool(flags_of(kind) & 1 << 14) + 16 * bool(sys.version_info >= (3, 11) and flags_of(kind) & 3 << 3)  # for the collector; of a dict
    return base.__sizeof__(value) + head
