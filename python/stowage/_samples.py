# mypy: ignore-errors
"""Samples of containers, the time that a search may take, what is known of an array at once, and Weight, which holds what was found.

A part of _holders.py, above _access.py; its rules hold here too: it imports only what every interpreter has loaded, allocates nothing
large and changes nothing.
"""
import gc
import itertools
import sys
import time

from ._access import *

SAMPLES = 64
DEEP = 5
LEAST = 1 << 20
GRAPHS = 4  # kept autograd graphs, from which on a small object is reported


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


def kind_name(kind):
    if is_foreign(kind):
        return "ctypes.Array" if issubclass(kind, sys.modules["_ctypes"].Array) else "ctypes.Structure"
    return qualified(kind) if module_of(kind) in ("builtins", "__main__") else f"{module_of(kind).split('.')[0]}.{qualified(kind)}"


def type_name(value):
    return kind_name(type(value))


def is_foreign(kind):
    """Returns whether it is a class of ctypes whose objects have a block of memory: an array, a structure or a union."""
    known = sys.modules.get("_ctypes")
    return known is not None and issubclass(kind, (known.Array, known.Structure, known.Union))


def sample(values):
    """Returns some of its elements from all over it, in one step that no other thread can interrupt."""
    return spread(elements_of(values), length(values), values)


def sample_pairs(table):
    """Returns some (key, value) of a dict, as sample() does."""
    count = length(table)
    return list(zip(spread(dict.__iter__(table), count), spread(iter(dict.values(table)), count)))  # items() makes a tuple for each


def spread(elements, count, values=None):
    if count <= SAMPLES:
        return list(itertools.islice(elements, SAMPLES))
    if is_a(values, (list, tuple)):
        return base_of(values).__getitem__(values, slice(None, None, stride(count // SAMPLES)))[:SAMPLES]
    return list(itertools.islice(elements, 0, REACHED, stride(min(count, REACHED) // SAMPLES)))[:SAMPLES]


def stride(step):
    """Returns a step that is no multiple of 2 and 3: elements may alternate, as the two entries that a function adds at each call do.

    >>> [stride(step) for step in (1, 2, 6, 7, 3000)]
    [1, 5, 7, 7, 3001]
    """
    while step % 2 == 0 or step % 3 == 0:
        step += 1
    return step


REACHED = 1_000_000  # elements of a dict or a set that a sample goes through, which takes 5 ms
PLAIN = frozenset((int, float, bool, complex, type(None)))  # most values of most containers
PLAIN_TEXT = PLAIN | {str, bytes}


def item_name(name, key):
    """Returns the name of what a container holds under a key. Only plain keys are written out: repr() of another one runs code of the
    program. An optimizer's state has tensors as keys, and the repr() of a tensor on a device starts kernels and waits for them."""
    plain = type(key) in PLAIN_TEXT or (type(key) is tuple and all(type(part) in PLAIN_TEXT for part in key))
    return f"{name}[{key!r}]"[:60] if plain else f"{name}[{type_name(key)}]"[:60]


def references(values):
    return list(map(sys.getrefcount, values))


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


def sized(value):
    """Returns the bytes that Python's allocator takes for an object: a multiple of 16. A float has 24 bytes and takes 32."""
    return byte_size(value) + 15 & -16


def weigh_plain(size, count, values, names, extra):
    """Weighs a container of numbers and short texts, as most records are: the same as weigh_container(), for a third of the time. size:
    its own bytes; values: a sample of what it holds, with as many `names` of keys, which take `extra` bytes."""
    sizes = [n + 15 & -16 for n in map(sys.getsizeof, values)]
    kinds = [qualified(kind) for kind in map(type, values)]
    kind = max(set(kinds), key=kinds.count)
    shares = sharers(values)
    if max(shares) == 1 and not names:
        alone, objects = sum(sizes), len(values)
    else:
        alone, objects = sum(n / share for n, share in zip(sizes, shares)), sum(1 / n for n in itertools.chain(shares, names))
    size += int((alone + extra) * count / len(values))
    largest = max(sizes)
    return Weight(size, count, kind, objects=1 + int(objects * count / len(values)),
                  chief=id(values[sizes.index(largest)]) if 10 * largest >= 8 * size else None)


SECONDS = 0.5
LISTING = 120e-9  # seconds for each object of a list of all of them, and of what is read of it


class Deadline:
    """Some seconds of this thread's own time. A program that computes lets the thread run for a part of the time only, so up to four
    times as long by the clock, and at least SECONDS: on a busy machine a thread may wait that long for a CPU."""

    def __init__(self, seconds=SECONDS):
        self._own, self._clock = time.thread_time() + seconds, time.monotonic() + max(4 * seconds, SECONDS)

    def is_over(self):
        return time.thread_time() > self._own or time.monotonic() > self._clock

    def has_time_for(self, blocks):
        """Returns whether so many objects can be listed: a list of all is one step."""
        return time.thread_time() + LISTING * blocks < self._own


counted_blocks = []  # what blocks_held() returned in this search, at most one


def blocks_held():
    """Returns how many blocks Python's allocator has given out. Counting reads a part of each page of its heap, so a search does it once."""
    if not counted_blocks:
        counted_blocks.append(get(sys, "getallocatedblocks", int)())
    return counted_blocks[0]


class Weight:
    """Bytes of a value with all it holds, and what it is made of.

    mark: "graph" (graphs: kept autograd graphs), "pinned", "shared", "mapped" (a file, which takes no memory), "text" (text_bytes: in
    columns of Python strings, words: their names), "cells" (of lists and other objects), "keys" (`of` is the type of a dict's keys), or "nested" (containers of one type in each other). objects: Python objects in it. owner: id of what holds the bytes, if that is another
    object. chief: that of the one part that is most of it. values: summary() of an array."""

    def __init__(self, size, count=1, of="", shape="", owner=None, mark="", graphs=0, text_bytes=0, words="", objects=1, chief=None):
        self.size, self.count, self.of, self.shape, self.owner = size, count, of, shape, owner
        self.mark, self.graphs, self.text_bytes, self.words, self.objects = mark, graphs, text_bytes, words, objects
        self.chief, self.values = chief, ""


COMPARED = 16  # elements of an array


def summary(value):
    """Returns some numbers of an array, the same for an equal array of another type; "-" if they are all the same, "" if it has none."""
    if module_of(type(value)) != "numpy" or value.dtype.kind not in "biuf" or value.size < COMPARED:
        return ""
    some = [value.flat[(at + 1) * 2654435761 % value.size] for at in range(COMPARED)]  # no regular steps: values may repeat in such ones
    texts = [f"{float(one):.3g}" for one in some]
    return f"{hash(tuple(texts)) & (1 << 64) - 1:x}" if len(set(texts)) > 1 else "-"


def shape_of(value):
    shape = get(value, "shape", None)
    return str(tuple(shape)) if type(shape) is tuple else ""


def type_of(value):
    """Returns the text of an array's type; "" if only code of the program can write it."""
    dtype = get(value, "dtype", None)
    return str(dtype) if type(dtype) is str or is_known(type(dtype)) else ""


def value_rows(value):
    shape = get(value, "shape", None)
    return int(shape[0]) if type(shape) is tuple and shape and is_a(shape[0], int) else 1


def is_text(dtype):
    """Returns whether a column keeps one Python string per cell. pandas 3 keeps text in the buffers of Arrow, which memory_usage()
    counts, if pyarrow is installed."""
    return str(dtype) in ("object", "str", "string") and get(dtype, "storage", "python") == "python"


def plain_word(label):
    """Returns the text of a label; of one of the program's class, the name of the class."""
    return str(label) if type(label) in PLAIN_TEXT else type_name(label)


def is_array(value):
    """Returns whether its size is known at once. Asks the class: an object may answer any name."""
    return has(type(value), "nbytes") or has(type(value), "memory_usage")


def graphs_of(value):
    """Number of autograd graphs a tensor keeps: 1 if it has one; if it is a sum of losses (`total += loss`), the terms of the sum."""
    node = value.grad_fn
    if node is None:
        return 0
    count = 1
    while class_name(node) == "AddBackward0" and value.dim() == 0 and count < 1_000_000:
        inputs = node.next_functions
        node = inputs[0][0] if inputs else None
        if node is None:  # 0 + loss, the first of them
            break
        count += 1
    return count if count > 2 else 1


HOST_PLATFORMS = ("cpu", "host")


def place_of_array(value):
    """Returns the platform of an array of JAX, "cpu" for one that is offloaded to pinned host memory; "" for one that was deleted. Reads
    attributes only: this starts no work on a device and waits for none."""
    if get(value, "is_deleted", bool)():
        return ""
    if "host" in str(get(get(value, "sharding"), "memory_kind", "")):
        return "cpu"
    return next((str(get(device, "platform", "")) for device in get(value, "devices", tuple)()), "")


def is_on_device(value):
    """Returns whether an array is in the memory of a device, and takes none of the host: of JAX, CuPy, Numba, TensorFlow and others."""
    kind = type(value)
    module = module_of(kind).split(".")[0]
    try:
        if module in ("jax", "jaxlib"):
            return place_of_array(value) not in HOST_PLATFORMS
        if module == "cupy" or (module != "torch" and has(kind, "__cuda_array_interface__")):
            return True
        device = get(value, "device")
        device = get(device, "type", device)  # of PyTorch and its like; TensorFlow has "/job:localhost/…/device:GPU:0"
        return is_a(device, str) and device != "" and not device.rpartition("device:")[2].lower().startswith(HOST_PLATFORMS)
    except Exception:
        return False  # a tracer, or an array of several processes


def heaviest(kinds, each):
    """Returns the type of the elements that hold nine tenths of the bytes, "" if no type does: a dict of results and of lists holds lists.

    >>> heaviest(["bool", "list", "bool"], [Weight(28), Weight(900), Weight(28)])
    'list'
    """
    sizes = {}
    for kind, weight in zip(kinds, each):
        sizes[kind] = sizes.get(kind, 0) + weight.size
    most = max(sizes, key=sizes.get, default="")
    return most if most and 10 * sizes[most] >= 9 * sum(sizes.values()) else ""


SMALL_ARRAY = 1 << 12  # bytes
SCANNED = 4 << 20  # bytes of an array whose numbers are read
SMALLER = (("uint8", 0, 255), ("int8", -128, 127), ("uint16", 0, 65535), ("int16", -32768, 32767), ("int32", -(1 << 31), (1 << 31) - 1))


def exact(parts):
    """Returns the smallest type that holds the integers of some arrays exactly; "" if their own is that, or if they are all the same.

    >>> exact([1, 2])
    ''
    """
    ends, array = [], get(sys.modules.get("numpy"), "ndarray")
    for one in parts:
        if type(one) is not array or one.dtype.kind not in "iu" or one.size == 0 or one.ndim == 0:
            return ""
        some = one[::one.nbytes // SCANNED + 1]  # a view
        ends += [int(some.min()), int(some.max())]
    low, high = min(ends, default=0), max(ends, default=0)
    kind = next((kind for kind, least, most in SMALLER if low < high and least <= low and high <= most), "")
    return kind if kind and sys.modules["numpy"].dtype(kind).itemsize < parts[0].itemsize else ""


def numbers_of(each, parts):
    """Returns the type and the shape of the arrays that are most of some elements, and the smallest type that holds their numbers:
    "float64 (480, 640)", "int64 (480, 640) as uint8"; "" if there are none."""
    largest = max(each, key=lambda weight: weight.size, default=None)
    if largest is None or not largest.shape or " " in largest.of or largest.text_bytes:
        return ""
    small = exact([parts[0], parts[len(parts) // 2], parts[-1]]) if largest.size >= SMALL_ARRAY else ""
    return f"{largest.of} {largest.shape}{' as ' * bool(small)}{small}"
