"""old_torch.py FILE [NAME…]: writes a file as torch.save did before PyTorch 1.6, without PyTorch. Run by weights.sh.

With the NAME "tensor", "list" or "mixed" it is one tensor, a list of two, or one with a number. With the NAME "same" it names one dict of 100,000 tensors 100,000 times. With "complex" its matrix is complex. With "neg" or "conj" its matrix is marked so, and with "kept" it is marked as neither. With another NAME it is a checkpoint: the tensors are the entry of that name, beside numbers and the state of an optimizer. Each further NAME is
another dict of tensors. STOWAGE_TEST_PROTOCOL is the protocol of the pickles.
"""

import collections
import os
import pickle
import struct
import sys
import types

torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
sys.modules["torch"], sys.modules["torch._utils"] = torch, utils


class FloatStorage:
    pass


class ComplexFloatStorage:
    pass


class LongStorage:
    pass


def _rebuild_tensor_v2(*_):
    pass


for owner, one in ((torch, FloatStorage), (torch, ComplexFloatStorage), (torch, LongStorage), (utils, _rebuild_tensor_v2)):
    one.__module__ = owner.__name__
    setattr(owner, one.__name__, one)


class Tensor:
    def __init__(self, storage, offset, shape, strides, *metadata):
        self.arguments = storage, offset, shape, strides, False, collections.OrderedDict(), *metadata

    def __reduce__(self):
        return _rebuild_tensor_v2, self.arguments


class Pickler(pickle.Pickler):
    def persistent_id(self, value):
        return value if isinstance(value, tuple) and value and value[0] == "storage" else None


floats, longs = ("storage", FloatStorage, "94", "cpu", 6, None), ("storage", LongStorage, "107", "cpu", 2, None)
protocol = int(os.environ.get("STOWAGE_TEST_PROTOCOL", "2"))
with open(sys.argv[1], "wb") as out:
    pickle.dump(0x1950A86A20F9469CFC6C, out, protocol)
    pickle.dump(1001, out, protocol)
    pickle.dump({"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}, out, protocol)
    made = collections.OrderedDict(w=Tensor(floats, 0, (2, 3), (3, 1)), tied=Tensor(floats, 3, (3,), (1,)), n=Tensor(longs, 0, (2,), (1,)), turned=Tensor(floats, 0, (3, 2), (1, 3)))
    if sys.argv[2:] == ["same"]:
        many = {**made, **{f"t{i}": made["w"] for i in range(100_000)}}
        made = {"epoch": 3, **{f"d{i}": many for i in range(100_000)}}
    elif sys.argv[2:] in (["neg"], ["conj"], ["kept"]):
        made["w"] = Tensor(floats, 0, (2, 3), (3, 1), {sys.argv[2]: True, "neg" if sys.argv[2] == "kept" else "other": False})
    elif sys.argv[2:] == ["complex"]:
        made["w"] = Tensor(("storage", ComplexFloatStorage, "95", "cpu", 3, None), 0, (3,), (1,))
    elif sys.argv[2:] in (["tensor"], ["list"], ["mixed"]):
        made = {"tensor": made["w"], "list": [made["w"], made["n"]], "mixed": (made["w"], 3)}[sys.argv[2]]
    elif len(sys.argv) > 2:
        adam = {"state": {0: {"step": 7, "exp_avg": Tensor(floats, 0, (6,), (1,))}}, "param_groups": [{"lr": 0.5, "betas": (0.9, 0.99), "params": [0]}]}
        others = {name: {"average": Tensor(floats, 0, (6,), (1,))} for name in sys.argv[3:]}
        made = {"epoch": 3, "best": None, "optimizer": adam, **others, sys.argv[2]: made}
    Pickler(out, protocol).dump(made)
    one = sys.argv[2:] in (["tensor"], ["mixed"])  # of the storages
    pickle.dump(["94"] if one else ["107", "94"], out, protocol)
    out.write((b"" if one else struct.pack("<q2q", 2, 7, -8)) + struct.pack("<q6f", 6, *range(6)))
