# mypy: ignore-errors
"""Weighs values of a Python process: the bytes of each with all it holds, and what it is made of. Samples the contents of containers.

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


def weigh_array(value):
    """NumPy's, and anything else with nbytes, dtype and shape. A view counts as the array it is a view of."""
    owner = value
    while True:
        base = get(owner, "base", None)
        base = get(base, "base", None) if class_name(base) == "DummyArray" else base  # of stride_tricks: its rows overlap
        if base is None or not has(base, "nbytes"):
            break
        owner = base
    size, kind, shape = int(get(owner, "nbytes", 0)), type_of(value), shape_of(value)
    rows = value_rows(value)
    below = class_name(get(owner, "base", None))
    if class_name(owner) in ("memmap", "mmap") or "mmap" in below:
        file = "multiprocessing.shared_memory" not in sys.modules  # of a block of shared memory, the SharedMemory is reported
        return Weight(0, mark="mapped" if size >= LEAST and file else "", of=kind, shape=shape)
    numpy = sys.modules.get("numpy")
    if kind == "object" and numpy is not None and is_a(value, numpy.ndarray):
        value = numpy.asarray(value)  # without the program's class
        some = list(value.flat[::max(1, value.size // SAMPLES)][:SAMPLES])
        size += int(sum(weigh(v, 1).size / n for v, n in zip(some, sharers(some))) / max(1, len(some)) * value.size)
        if len(some) and all(is_a(v, str) for v in some):
            return Weight(size, rows, "object", shape, id(owner), "text", 0, size)
    own = get(value, "nbytes", 0)
    mark = "shared" if below in ("memoryview", "SharedMemory") and size >= LEAST else "view" if size >= 4 * max(1, own) else ""
    return Weight(size, rows, kind, shape, id(owner), mark)


def value_rows(value):
    shape = get(value, "shape", None)
    return int(shape[0]) if type(shape) is tuple and shape and is_a(shape[0], int) else 1


def is_text(dtype):
    """Returns whether a column keeps one Python string per cell. pandas 3 keeps text in the buffers of Arrow, which memory_usage()
    counts, if pyarrow is installed."""
    return str(dtype) in ("object", "str", "string") and get(dtype, "storage", "python") == "python"


def text_bytes(column):
    """Bytes of the Python objects of a column, estimated from samples all over it, and whether most are more than strings, such as lists
    of words. A string that cells share counts once."""
    count = len(column)
    values = list(column.array[::max(1, count // SAMPLES)][:SAMPLES]) if has(column, "array") else list(itertools.islice(column, SAMPLES))
    lists = 2 * sum(type(v) not in PLAIN_TEXT for v in values) > len(values)
    return int(sum(weigh(v, 2).size / n for v, n in zip(values, sharers(values))) * count / max(1, len(values))), lists


def plain_word(label):
    """Returns the text of a label; of one of the program's class, the name of the class."""
    return str(label) if type(label) in PLAIN_TEXT else type_name(label)


def weigh_frame(value):
    """A table of pandas. Columns of text hold one Python object per row, which memory_usage(deep=False) leaves out."""
    if not all(is_known(type(dtype)) for dtype in value.dtypes):  # columns of the program's own type
        return weigh_instance(value, DEEP)
    size = int(value.memory_usage(index=True, deep=False).sum())
    kinds = {str(t) for t in value.dtypes}
    texts, large = 0, []
    for at, dtype in enumerate(value.dtypes):
        if is_text(dtype) and at < SAMPLES:
            held, lists = text_bytes(value.iloc[:, at])
            held += 8 * len(value)
            texts += held
            large.append((held, plain_word(value.columns[at]), lists))
            size += held - 8 * len(value)
    large.sort(reverse=True)
    words = ", ".join(name for _, name, _ in large[:4])
    mark = "" if not texts else "cells" if large[0][2] else "text"
    return Weight(size, len(value), " ".join(sorted(kinds))[:60], str(tuple(value.shape)), None, mark, 0, texts, words)


def weigh_series(value):
    if not is_known(type(value.dtype)):
        return weigh_instance(value, DEEP)
    size = int(value.memory_usage(index=True, deep=False))
    texts, lists = text_bytes(value) if is_text(value.dtype) else (0, False)
    return Weight(size + texts, len(value), str(value.dtype), f"({len(value)},)", None, "cells" if lists else "text" if texts else "", 0,
                  texts + 8 * len(value), plain_word(value.name))


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


def weigh_tensor(value):
    if value.device.type != "cpu":
        return Weight(0, mark="", graphs=0)
    storage = value.untyped_storage() if has(value, "untyped_storage") else value.storage()
    torch = sys.modules["torch"]
    mark = "shared" if value.is_shared() else "pinned" if torch.cuda.is_initialized() and value.is_pinned() else ""
    graphs = graphs_of(value)
    return Weight(storage.nbytes(), int(value.shape[0]) if value.shape else 1, str(value.dtype), str(tuple(value.shape)),
                  storage.data_ptr(), "graph" if graphs >= GRAPHS else mark, graphs)


def is_own_tensor(kind):
    """Returns whether it is the program's own class of tensors, without operations of its own below autograd."""
    base = get(sys.modules.get("torch"), "Tensor", None)
    return is_a(base, type) and issubclass(kind, base) and get(base, "__torch_dispatch__") is in_class(kind, "__torch_dispatch__")


def weigh_own_tensor(value):
    torch = sys.modules["torch"]
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        return weigh_tensor(torch.Tensor.as_subclass(value, torch.Tensor))


def weigh_storage(value):
    """What the elements of tensors are in. PyTorch warns of each attribute of a TypedStorage, its size included: not of what is in it."""
    inner = object.__getattribute__(value, "__dict__").get("_untyped_storage") if class_name(value) == "TypedStorage" else value
    if inner is None or inner.device.type != "cpu":
        return Weight(0)
    return Weight(inner.nbytes(), owner=inner.data_ptr(), mark="shared" if inner.is_shared() else "")


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


def weigh_container(value, depth):
    size, count = sized(value), length(value)
    if count == 0 or depth == 0:
        return Weight(size, count)
    if is_a(value, dict):
        pairs = sample_pairs(value)
        keys, parts = [k for k, _ in pairs], [v for _, v in pairs]
        del pairs  # sharers() counts references
        if not parts:  # the program has emptied it meanwhile
            return Weight(size, count)
        # The field names of many records may be the same few strings; json.loads makes them again for each text.
        shared = depth < DEEP and type(keys[0]) is str and sharers(keys[:1])[0] > SHARED  # in two lists
        names = [] if shared else sharers(keys)
        extra = sum([(sized(k) if type(k) in PLAIN_TEXT else weigh(k, depth - 1).size) / n for k, n in zip(keys, names)]) if names else 0
    else:
        parts, names, extra = sample(value), [], 0
        # The same small object repeated (0, True, an interned name) counts once.
        if len(parts) > 1 and len(set(map(id, parts))) == 1:
            return Weight(size + weigh(parts[0], depth - 1).size, count, type_name(parts[0]))
        if not parts:
            return Weight(size, count)
    if PLAIN_TEXT.issuperset(map(type, parts)) and (not is_a(value, dict) or type(keys[0]) in PLAIN_TEXT):
        return weigh_plain(size, count, parts, names, extra)
    if any(type(v) is type(value) and length(v) > 0 for v in parts) and is_nested(value):
        return weigh_nested(value, depth)
    shares = sharers(parts)
    each = [weigh(v, depth - 1) for v in parts]
    kinds = [type_name(v) for v in parts]
    heavy = heaviest(kinds, each)
    graphs = sum(w.graphs for w in each) * count // max(1, len(each))
    # Parts of one array keep it alive together, so it counts once.
    owners = [w.owner for w in each]
    joint = {w.owner: w.size for w in each if w.owner is not None and owners.count(w.owner) > 1}
    marks = [w.mark for w in each if w.mark in ("pinned", "shared") or (w.mark == "view" and w.owner not in joint)]
    mark = "graph" if graphs >= GRAPHS else marks[0] if len(marks) * 2 > len(each) else ""
    texts = sum(w.text_bytes for w in each) * count // max(1, len(each))
    at = max(range(len(each)), key=lambda i: each[i].size, default=0)
    if is_a(value, dict) and extra > sum(w.size for w in each) and type(keys[0]) not in PLAIN_TEXT:
        kinds, heavy = [type_name(k) for k in keys], ""  # such as futures, each with its result
        mark = mark or "keys"
    alone = sum(w.size / n for w, n in zip(each, shares) if w.owner not in joint)
    size += sum(joint.values()) + int((alone + extra) * count / max(1, len(each)))
    return Weight(size, count, heavy or (max(set(kinds), key=kinds.count) if kinds else ""), "", None, mark, graphs, texts,
                  next((w.words for w in each if w.words), "") or numbers_of(each, parts),
                  1 + int((sum(w.objects / n for w, n in zip(each, shares)) + sum(1 / n for n in names)) * count / max(1, len(each))),
                  (each[at].chief or each[at].owner or id(parts[at])) if each and 10 * each[at].size >= 8 * size else None)


NESTED = 4  # levels of containers of one type in each other, from which on a search that opens all of them would take too long
PROBES = 256  # ways from the root of such a container to a leaf that are followed


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


def weigh_nested(value, depth=DEEP):
    """Weighs a container of containers of its type without opening all of them. Follows some ways from the root to a leaf, and counts
    what is on a way as often as there are ways like it (Knuth's estimate of the size of a tree). Two searches give the same answer.

    >>> leaves = lambda depth: {i: leaves(depth - 1) for i in range(8)} if depth else {}
    >>> weigh_nested(leaves(5)).objects   # dicts
    37449
    """
    size, objects, graphs, at = 0.0, 0.0, 0.0, 1
    probes = max(4, PROBES >> 2 * (DEEP - depth))
    for _ in range(probes):
        node, ways = value, 1.0
        while node is not None:
            count = length(node)
            parts, inner = inner_ones(node) if count else ((), ())
            plain = [one for one in parts if type(one) is not type(node)]
            each = [weigh(one, 1) for one in plain]
            empty = len(parts) - len(inner) - len(plain)
            scale = count / max(1, len(parts))
            keys = spread(dict.__iter__(node), count) if is_a(node, dict) and count else ()
            own = sum(sized(k) / n for k, n in zip(keys, sharers(keys)) if n < SHARED) if keys else 0
            size += ways * (sized(node) + scale * (own + sum(w.size for w in each) + empty * sized({} if is_a(node, dict) else [])))
            graphs += ways * scale * sum(w.graphs for w in each)
            objects += ways * (1 + scale * (sum(w.objects for w in each) + empty + sum(n < SHARED for n in sharers(keys))))
            at = (at * 1103515245 + 12345) % (1 << 31)
            # One with many entries rather than one with few, because there is more below it.
            lengths = list(itertools.accumulate(map(length, inner)))
            node = inner[bisect(lengths, (at >> 8) % lengths[-1])] if inner else None
            ways *= scale * lengths[-1] / length(node) if inner else 0
    return Weight(int(size / probes), length(value), type_name(value), mark="graph" if graphs / probes >= GRAPHS else "nested",
                  graphs=int(graphs / probes), objects=int(objects / probes))


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


def weigh_instance(value, depth):
    """An object of a class written in Python. Of other objects of the same class, if it is the program's, only the references count:
    each is counted where it is listed, or all at once (linked() in _holders.py)."""
    held, table = attributes(value)
    kind, links = type(value), 0
    peers = [one for one in few(held) if is_peer(one, kind)] if is_own_module(module_of(kind)) else ()
    if peers:
        links = sum(sized(one) for one in peers if type(one) is not kind)
        held = [one for one in few(held) if not is_peer(one, kind)]
    weight = weigh_container(held, depth - 1)
    size = sized(value) + table + links + weight.size - sized(held)
    return Weight(size, weight.count, type_name(value), graphs=weight.graphs, objects=1 + weight.objects, chief=weight.chief)


def weigh_table(value):
    """Tables of other libraries, and pictures."""
    if callable(get(value, "estimated_size", None)):  # polars
        return Weight(int(value.estimated_size()), len(value), "", str(tuple(value.shape)))
    if callable(get(value, "getbands", None)):  # PIL
        wide, high = value.size
        return Weight(wide * high * len(value.getbands()), high, value.mode, str((high, wide)))
    return Weight(int(value.nbytes), len(value), "", str(tuple(get(value, "shape", (len(value),)))))  # pyarrow


def weigh_view(value):
    """A memoryview keeps all of the object that it shows a part of."""
    owner = value.obj
    size = sized(owner) if is_a(owner, (bytes, bytearray)) else weigh(owner, 1).size if owner is not None else 0
    return Weight(max(size, value.nbytes), len(value) if value.ndim else 1, owner=id(owner), mark="view" if size >= 4 * max(1, value.nbytes) else "")


def weigh_mapping(value):
    """An mmap. Only a mapping without a file takes memory; such a one has no file whose size it could return."""
    try:
        value.size()
    except OSError:
        return Weight(len(value), len(value), mark="shared")
    return Weight(0, mark="mapped" if len(value) >= LEAST else "")


LINKS = 100_000  # blocks of a tee that are counted; each has 57 values


OWNS = "_b_needsfree_"  # of an object of ctypes: whether its block is its own, and not a part of another object


def weigh_foreign(value):
    """An array or a structure of ctypes. Asks its class and the base class: the program's own class may define any attribute."""
    known = sys.modules["_ctypes"]
    base = next((kind for kind in known.Array.__mro__ if OWNS in kind.__dict__), None)
    owns = base is None or base.__dict__[OWNS].__get__(value)
    return Weight(sized(value) + (known.sizeof(type(value)) if owns else 0), known.Array.__len__(value) if is_a(value, known.Array) else 1)


def weigh_tee(value):
    """An iterator of itertools.tee: what another one has read, and this one has not."""
    block = next((one for one in gc.get_referents(value) if class_name(one) == "_tee_dataobject"), None)
    size, count, links, some = sized(value), 0, 0, 0
    while block is not None and links < LINKS:
        held, block = gc.get_referents(block), None
        parts = [one for one in held if not is_a(one, (type, type(sys)))]
        for at in (0, -1):  # the source comes first, and the next block last
            if parts and class_name(parts[at]) == "_tee_dataobject":
                block = parts.pop(at)
        count, links = count + len(parts), links + 1
        if links % 1024 == 1 and parts:
            some = weigh(parts[-1], 2).size
        size += 512 + some * len(parts)
    return Weight(size, count, objects=count)


def weigh_suspended(value, depth):
    """What the variables of a function that waits hold, without what others refer to as well; and the result of a task."""
    values = [v for frame in suspended(value) for v in locals_of(frame).values()]
    own = [v for v, n in zip(values, references(values)) if type(v) not in PLAIN and n - ALONE < SHARED]
    own += [v for v in [get(value, "_result", None)] if v is not None]
    each = [weigh(v, depth - 1) for v in own]
    size = sized(value) + sum(w.size for w in each)
    at = max(range(len(each)), key=lambda i: each[i].size, default=0)
    chief = (each[at].chief or each[at].owner or id(own[at])) if each and 10 * each[at].size >= 8 * size else None
    return Weight(size, max(1, len(own)), chief=chief)


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


def weigh(value, depth):
    kind = type(value)
    if kind in PLAIN:
        return Weight(sized(value))
    if kind is dict or kind is list or kind is tuple:  # most of what is not plain
        return weigh_container(value, depth)
    if kind not in PLAIN_TEXT and is_foreign(kind):
        return weigh_foreign(value)
    if is_a(value, (bytes, bytearray, str)):
        return Weight(sized(value), length(value))
    if is_library(value):
        return Weight(sized(value), mark="library")
    base = file_class(kind)
    if base is not None:
        return Weight(max(sized(value), base.tell(value)))
    inside = queued(value)
    if inside is not None:
        return weigh_container(inside, depth)
    if is_a(value, CONTAINED):
        return weigh_container(value, depth)
    module = module_of(type(value)).split(".")[0]
    if module == "pandas" and has(value, "memory_usage") and has(value, "dtypes"):
        return weigh_frame(value) if has(value, "columns") else weigh_series(value)
    if module == "torch" and has(value, "data_ptr") and has(value, "storage"):
        return weigh_tensor(value)
    if is_own_tensor(kind):
        return weigh_own_tensor(value)
    if module == "torch" and class_name(value) in ("TypedStorage", "UntypedStorage"):
        return weigh_storage(value)
    if module in ("polars", "PIL", "pyarrow") and not is_a(value, type):
        return weigh_table(value)
    if class_name(value) == "SharedMemory" and is_a(get(value, "size", None), int):
        return Weight(get(value, "size"), 1, "", "", None, "shared")
    if is_a(get(value, "nbytes", None), int) and has(value, "dtype") and has(value, "shape"):
        return Weight(0) if is_on_device(value) else weigh_array(value)
    if is_database(value):
        return Weight(sized(value), mark="database")
    if type(value) is memoryview:
        return weigh_view(value)
    if module == "mmap" and has(value, "size"):
        return weigh_mapping(value)
    if module == "itertools" and class_name(value) == "_tee":
        return weigh_tee(value)
    if module == "multiprocessing" and class_name(value) in ("Pool", "ThreadPool"):
        return Weight(sized(value))  # results that arrive are what the line that waits for them makes
    if depth > 0 and is_suspended(value):
        return weigh_suspended(value, depth)
    if callable(value) and not is_a(value, type):
        return Weight(sized(value) + sum(weigh(v, depth - 1).size for v in parts_of(value) if depth > 0))
    if depth > 0 and not is_a(value, (type, type(sys))) and (has(type(value), "__slots__") or has(type(value), "__dict__")):
        return weigh_instance(value, depth)
    return Weight(sized(value))
