# mypy: ignore-errors
"""Weighs values of a Python process: the bytes of each with all it holds, and what it is made of. Samples the contents of containers.

A part of _holders.py, above _fields.py; its rules hold here too: it imports only what every interpreter has loaded, allocates nothing
large and changes nothing.
"""
import gc
import itertools
import sys

from ._access import *
from ._fields import *
from ._samples import *


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


def text_bytes(column):
    """Bytes of the Python objects of a column, estimated from samples all over it, and whether most are more than strings, such as lists
    of words. A string that cells share counts once."""
    count = len(column)
    values = list(column.array[::max(1, count // SAMPLES)][:SAMPLES]) if has(column, "array") else list(itertools.islice(column, SAMPLES))
    lists = 2 * sum(type(v) not in PLAIN_TEXT for v in values) > len(values)
    return int(sum(weigh(v, 2).size / n for v, n in zip(values, sharers(values))) * count / max(1, len(values))), lists


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


PROBES = 256  # ways from the root of such a container to a leaf that are followed


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
