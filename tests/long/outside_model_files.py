"""Single files: safetensors, torch.save, GGUF."""

import json
import os
import struct
import subprocess
import sys

import gguf
import numpy as np
import torch
import transformers
from outside_model_base import Skipped, check, equal, floats, fresh, inspected, llama, seeded, stowage
from safetensors import safe_open
from safetensors.torch import load_file, save_file, save_model

# ---- safetensors ----

KINDS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
         torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
         torch.float8_e5m2fnuz, torch.complex64]


def every_kind():
    seeded(1)
    made = {}
    for kind in KINDS:
        base = torch.randn(7, 11) * 3
        if kind in (torch.uint16, torch.uint32, torch.uint64):
            made[str(kind)] = base.abs().to(torch.int64).numpy().astype(str(kind)[6:])
            made[str(kind)] = torch.from_numpy(made[str(kind)])
        else:
            made[str(kind)] = (base > 0) if kind is torch.bool else base.to(kind)
    return made


@check()
def every_type_is_passed_on():
    tensors = every_kind()
    save_file(tensors, "kinds.safetensors")
    stowage("shrink", "kinds.safetensors", "-o", fresh("out.safetensors"), "--verify")
    equal(load_file("out.safetensors"), load_file("kinds.safetensors"))
    assert inspected("kinds.safetensors")["parameters"] == sum(t.numel() for t in tensors.values() if t.is_floating_point() or t.is_complex())


@check()
def floats_are_cast_and_others_are_not():
    tensors = every_kind()
    save_file(tensors, "kinds.safetensors")
    for word, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16), ("f32", torch.float32)):
        stowage("shrink", "kinds.safetensors", "-o", fresh("out.safetensors"), "--dtype", word)
        have, want = load_file("out.safetensors"), floats(tensors, dtype)
        for name in list(want):
            if "float8" in name:  # either stays, or becomes the wider type: both hold every value
                value = have.pop(name)
                assert torch.equal(value.float(), want.pop(name).float()), name
        want["torch.float64"] = have["torch.float64"]  # PyTorch rounds twice on the way from float64
        assert (have["torch.float64"].double() - tensors["torch.float64"]).abs().max() <= (floats(tensors, dtype)["torch.float64"].double() - tensors["torch.float64"]).abs().max()
        equal(have, want)


@check()
def empty_and_scalar_tensors():
    tensors = {"none": torch.zeros(0), "flat": torch.zeros(0, 5), "deep": torch.zeros(3, 0, 2), "scalar": torch.tensor(2.5),
               "one": torch.ones(1), "five": torch.randn(1, 2, 3, 2, 1), "half": torch.tensor(1.5).half()}
    save_file(tensors, "in.safetensors", {"format": "pt"})
    stowage("shrink", "in.safetensors", "-o", fresh("out.safetensors"), "--dtype", "bf16")
    equal(load_file("out.safetensors"), floats(tensors, torch.bfloat16))
    stowage("shrink", "in.safetensors", "-o", fresh("many"), "--shard", "20B")
    have = {}
    for name in sorted(os.listdir("many")):
        if name.endswith(".safetensors"):
            have.update(load_file("many/" + name))
    equal(have, tensors)


@check()
def only_empty_tensors():
    save_file({"a": torch.zeros(0, 4)}, "in.safetensors")
    stowage("shrink", "in.safetensors", "-o", fresh("out.safetensors"), "--dtype", "f16")
    equal(load_file("out.safetensors"), {"a": torch.zeros(0, 4).half()})


@check()
def names_of_all_kinds():
    tensors = {name: torch.randn(2, 3) for name in ("größe.weight", "层.0.权重", "with space", 'quo"te', "back\\slash", "a/b/c", "emoji 🦙.bias",
               "line\nbreak", "tab\there", "x" * 300, ".leading.dot", "trailing.", "model..double", "UPPER", "upper", "../up", "0")}
    save_file(tensors, "in.safetensors")
    stowage("shrink", "in.safetensors", "-o", fresh("out.safetensors"), "--dtype", "bf16")
    equal(load_file("out.safetensors"), floats(tensors, torch.bfloat16))
    assert inspected("in.safetensors")["parameters"] == 6 * len(tensors)


@check()
def metadata_survives():
    metadata = {"format": "pt", "note": 'a "quoted" line\nand another', "unicode": "日本語", "json": json.dumps({"a": [1, 2]}), "empty": ""}
    save_file({"w": torch.randn(8, 8)}, "in.safetensors", metadata)
    stowage("shrink", "in.safetensors", "-o", fresh("out.safetensors"), "--dtype", "bf16")
    with safe_open("out.safetensors", "pt") as f:
        assert f.metadata() == metadata, f.metadata()


@check()
def no_tensors_at_all():
    save_file({}, "in.safetensors")
    stowage("shrink", "in.safetensors", "-o", fresh("out.safetensors"))
    assert load_file("out.safetensors") == {}


@check()
def padded_header_and_tensors_out_of_order():
    a, b = np.arange(6, dtype="<f4"), np.arange(4, dtype="<i8")
    header = json.dumps({"z": {"dtype": "F32", "shape": [2, 3], "data_offsets": [32, 56]}, "a": {"dtype": "I64", "shape": [4], "data_offsets": [0, 32]}})
    header = header.encode() + b" " * 77
    with open("in.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + b.tobytes() + a.tobytes())
    want = load_file("in.safetensors")
    stowage("shrink", "in.safetensors", "-o", fresh("out.safetensors"))
    equal(load_file("out.safetensors"), want)


@check()
def tied_weights_of_save_model():
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
                                          num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=True))
    save_model(model, "in.safetensors")
    stowage("shrink", "in.safetensors", "-o", fresh("out.safetensors"), "--dtype", "bf16")
    equal(load_file("out.safetensors"), floats(load_file("in.safetensors"), torch.bfloat16))


@check()
def equal_tensors_are_named_by_inspect():
    w = torch.randn(50, 60)
    save_file({"a": w.clone(), "b": w.clone(), "c": torch.randn(50, 60)}, "in.safetensors")
    text = stowage("inspect", "in.safetensors")
    assert "a" in text and "b" in text and any(word in text.lower() for word in ("tied", "same", "duplicate", "equal")), text


@check()
def five_thousand_small_tensors():
    seeded(3)
    tensors = {f"layers.{i}.bias": torch.randn(1 + i % 7) for i in range(5000)}
    save_file(tensors, "in.safetensors")
    stowage("shrink", "in.safetensors", "-o", fresh("out"), "--dtype", "f16", "--shard", "5K")
    have = {}
    index = json.load(open("out/model.safetensors.index.json"))
    for name in set(index["weight_map"].values()):
        have.update(load_file("out/" + name))
    equal(have, floats(tensors, torch.float16))
    assert set(index["weight_map"]) == set(tensors) and index["metadata"]["total_size"] == sum(2 * t.numel() for t in tensors.values())


@check()
def numbers_at_the_borders():
    values = torch.tensor([0.0, -0.0, 5e-324, 1e-45, 6e-8, 65504.0, 65519.9, -65504.0, 1e-40, 3.4e38, 1.0000001])
    save_file({"w": values}, "in.safetensors")
    stowage("shrink", "in.safetensors", "-o", fresh("out.safetensors"), "--dtype", "bf16", "--allow-nan")
    equal(load_file("out.safetensors"), {"w": values.bfloat16()})
    stowage("shrink", "in.safetensors", "-o", fresh("no.safetensors"), "--dtype", "f16", refused="w")
    stowage("shrink", "in.safetensors", "-o", fresh("out.safetensors"), "--dtype", "f16", "--allow-nan")
    equal(load_file("out.safetensors"), {"w": values.half()})


@check()
def nan_and_infinities():
    values = torch.tensor([1.0, float("nan"), float("inf"), -float("inf")])
    save_file({"good": torch.ones(3), "bad": values}, "in.safetensors")
    stowage("shrink", "in.safetensors", "-o", fresh("no.safetensors"), "--dtype", "bf16", refused="bad")
    stowage("shrink", "in.safetensors", "-o", fresh("out.safetensors"), "--dtype", "bf16", "--allow-nan")
    have = load_file("out.safetensors")["bad"]
    assert have[0] == 1 and have[1].isnan() and have[2] == float("inf") and have[3] == -float("inf"), have


@check()
def cut_and_wrong_files_are_refused():
    save_file({"w": torch.randn(100)}, "in.safetensors")
    data = open("in.safetensors", "rb").read()
    for name, bad in (("cut", data[:-7]), ("header", data[:20]), ("empty", b""), ("long", data + b"tail"), ("length", b"\xff" * 8 + data[8:])):
        with open(name + ".safetensors", "wb") as f:
            f.write(bad)
        stowage("shrink", name + ".safetensors", "-o", fresh("no.safetensors"), refused=name + ".safetensors")
        assert not os.path.exists("no.safetensors")


# ---- torch.save ----

MAKE_TORCH = """
import collections, torch
torch.manual_seed(4)
def module():
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Embedding(4, 3))
base = torch.randn(12, 10)
files = {
    "state": module().state_dict(),
    "rows": {"rows": base[2:5], "all": base, "last": base[11]},
    "ordered": collections.OrderedDict(a=torch.randn(3), b=torch.randn(2, 2).half()),
    "views": {"rows": base[2:5], "columns": base[:, 3:7], "turned": base.t(), "strided": base[::2, ::3], "wide": torch.ones(1, 4).expand(3, 4), "all": base},
    "kinds": {str(k)[6:]: torch.randn(4, 3).mul(5).to(k) for k in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)},
    "odd": {"scalar": torch.tensor(1.5), "none": torch.zeros(0, 3), "größe": torch.ones(2)},
    "parameters": {"w": torch.nn.Parameter(torch.randn(3, 3)), "b": torch.nn.Parameter(torch.randn(3), requires_grad=False)},
}
"""
SAVE_TORCH = MAKE_TORCH + """
import sys
for name, value in files.items():
    for kind, options in (("zip", {}), ("legacy", {"_use_new_zipfile_serialization": False}), ("p4", {"pickle_protocol": 4}), ("legacy4", {"_use_new_zipfile_serialization": False, "pickle_protocol": 4})):
        torch.save(value, f"{sys.argv[1]}/{name}.{kind}.pt", **options)
"""


def _torch_files(python):
    os.makedirs(fresh("torch"))
    done = subprocess.run([python, "-W", "ignore", "-c", SAVE_TORCH, "torch"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-400:]
    wrong = []
    for path in sorted(os.listdir("torch")):
        want = {k: v.detach() for k, v in torch.load("torch/" + path, weights_only=False).items()}
        try:
            stowage("shrink", "torch/" + path, "-o", fresh("out.safetensors"))
            equal(load_file("out.safetensors"), want)
        except AssertionError as reason:
            wrong.append(f"{path}: {reason}")
    assert not wrong, "; ".join(wrong)


@check()
def files_of_this_torch():
    _torch_files(sys.executable)


@check()
def files_of_an_old_torch():
    if "STOWAGE_OLD_TORCH" not in os.environ:
        raise Skipped("STOWAGE_OLD_TORCH names no Python")
    _torch_files(os.environ["STOWAGE_OLD_TORCH"])


@check()
def pickles_that_call_something_are_refused():
    class Evil:
        def __reduce__(self):
            return os.system, ("touch executed",)

    torch.save({"w": torch.ones(2), "x": Evil()}, "evil.pt")
    stowage("shrink", "evil.pt", "-o", fresh("no.safetensors"), refused="evil.pt")
    assert not os.path.exists("executed") and not os.path.exists("no.safetensors")


# ---- GGUF ----


def write_gguf(path, tensors, alignment=None, endian=gguf.GGUFEndian.LITTLE):
    writer = gguf.GGUFWriter(path, "llama", endianess=endian)
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_name("größe 🦙")
    writer.add_block_count(2)
    writer.add_context_length(128)
    writer.add_array("tokenizer.ggml.tokens", [f"token{i}" for i in range(200)])
    writer.add_array("tokenizer.ggml.scores", [float(i) for i in range(200)])
    writer.add_array("some.empty.ints", [1, 2, 3])
    writer.add_float64("some.double", 1 / 3)
    writer.add_uint64("some.big", 2**63 + 5)
    writer.add_bool("some.flag", False)
    for name, (data, kind) in tensors.items():
        if kind is None:
            writer.add_tensor(name, data)
        else:
            writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_tensors(kind=None, rows=32, width=512):
    g = seeded(11)
    plain = lambda *shape: (g.standard_normal(shape) * 0.05).astype("f4")  # noqa: E731
    return {"token_embd.weight": (plain(64, width), kind), "blk.0.attn_q.weight": (plain(rows, width), kind), "blk.0.attn_norm.weight": (plain(width), None),
            "blk.0.ffn_down.weight": (plain(rows, width), kind), "output_norm.weight": (plain(width), None), "output.weight": (plain(64, width), kind)}


def fields_of(reader):
    return {k: f.contents() for k, f in reader.fields.items() if k not in ("general.file_type", "general.quantization_version", "GGUF.kv_count")}


@check()
def gguf_of_every_type_to_every_type():
    q = gguf.GGMLQuantizationType
    for kind in (None, q.F16, q.BF16, q.Q8_0, q.Q4_0, q.Q4_1, q.Q5_0, q.Q5_1):
        write_gguf("in.gguf", gguf_tensors(kind))
        before = gguf.GGUFReader("in.gguf")
        same = stowage("shrink", "in.gguf", "-o", fresh("same.gguf"))
        assert same is not None
        after = gguf.GGUFReader("same.gguf")
        assert fields_of(before) == fields_of(after)
        for a, b in zip(before.tensors, after.tensors, strict=True):
            assert a.name == b.name and a.tensor_type == b.tensor_type and (a.data == b.data).all(), (kind, a.name)
        for target, most in (("q8_0", 0.01), ("q6_k", 0.03), ("q4_k", 0.09), ("q4_0", 0.11)):
            if kind in (q.Q4_0, q.Q4_1, q.Q5_0, q.Q5_1) or (kind is q.Q8_0 and target == "q8_0"):
                continue  # already as small, or of a type that is only passed on
            stowage("shrink", "in.gguf", "-o", fresh("out.gguf"), "--quantize", target)
            reader = gguf.GGUFReader("out.gguf")
            assert {k: v for k, v in fields_of(reader).items()} == fields_of(before), (kind, target)
            for a, b in zip(before.tensors, reader.tensors, strict=True):
                x, y = (gguf.quants.dequantize(t.data, t.tensor_type).astype("f8") for t in (a, b))
                assert np.linalg.norm(x - y) <= most * np.linalg.norm(x), (kind, target, a.name)


@check()
def gguf_with_alignment_64():
    write_gguf("in.gguf", gguf_tensors(), alignment=64)
    stowage("shrink", "in.gguf", "-o", fresh("out.gguf"), "--quantize", "q8_0", "--verify")
    reader = gguf.GGUFReader("out.gguf")
    assert reader.alignment == 64 and all(t.data_offset % 64 == 0 for t in reader.tensors)


@check()
def gguf_without_tensors():
    write_gguf("in.gguf", {})
    stowage("shrink", "in.gguf", "-o", fresh("out.gguf"))
    assert fields_of(gguf.GGUFReader("out.gguf")) == fields_of(gguf.GGUFReader("in.gguf"))


@check()
def gguf_of_big_endian_machines_is_refused():
    write_gguf("in.gguf", gguf_tensors(), endian=gguf.GGUFEndian.BIG)
    assert "endian" in stowage("shrink", "in.gguf", "-o", fresh("no.gguf"), refused="in.gguf")


def raw_gguf(path, kind, rows=6, width=512):
    """A file with one tensor of any type, of random blocks whose scales are small numbers."""
    g = seeded(int(kind) + 40)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    data = g.integers(0, 256, (rows, width // block * size), dtype=np.uint8)
    if kind.name.startswith(("Q", "IQ", "TQ")):  # float16 fields must not be NaN: clear an exponent bit of each byte
        data &= 0xBF
    if kind.name in ("F16", "BF16", "F32", "F64"):
        plain = g.standard_normal((rows, width)).astype({"F64": "f8", "F16": "f2"}.get(kind.name, "f4"))
        data = gguf.quants.quantize(plain, kind) if kind.name == "BF16" else plain.view(np.uint8).reshape(rows, -1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_tensor("token_embd.weight", data, raw_shape=data.shape, raw_dtype=kind)
    writer.add_tensor("output_norm.weight", np.ones(width, "f4"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# gguf counts 40 bytes for a block of Q8_1, ggml 36; no file has such a tensor.
@check(*[(kind.name, kind) for kind in gguf.GGMLQuantizationType if kind.name != "Q8_1"])
def gguf_type_is_inspected_and_passed_on(kind):
    raw_gguf("in.gguf", kind)
    want = gguf.GGUFReader("in.gguf").tensors[0]
    assert inspected("in.gguf")["parameters"] == (int(np.prod(want.shape)) if kind.name not in ("I8", "I16", "I32", "I64") else 0) + 512
    stowage("shrink", "in.gguf", "-o", fresh("out.gguf"))
    have = gguf.GGUFReader("out.gguf").tensors[0]
    assert have.tensor_type == kind and list(have.shape) == list(want.shape) and (have.data == want.data).all() or have.data.tobytes() == want.data.tobytes()


@check(*[(kind.name, kind) for kind in gguf.GGMLQuantizationType if kind.name in ("F32", "F16", "BF16", "F64", "Q8_0", "Q4_0", "Q4_K", "Q6_K", "I8", "I16", "I32", "I64")])
def gguf_type_is_loaded(kind):
    import stowage as package

    raw_gguf("in.gguf", kind)
    want = gguf.GGUFReader("in.gguf").tensors[0]
    plain = want.data if kind.name[0] in "IF" else gguf.quants.dequantize(want.data, kind)
    have = package.load("in.gguf", framework="numpy")["token_embd.weight"]
    assert have.shape == plain.shape and np.array_equal(have.astype("f8"), plain.astype("f8")), kind
    raw = package.load("in.gguf", framework="numpy", raw=True)["token_embd.weight"]
    assert raw.tobytes() == want.data.tobytes()


@check(*[(f"{source.name} to {target}", source, target) for source in (gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.BF16, gguf.GGMLQuantizationType.Q8_0) for target in ("q8_0", "q4_0")])
def gguf_quantized_as_gguf_does(source, target):
    """The package's own quantization, which is that of ggml, bit by bit."""
    write_gguf("in.gguf", gguf_tensors(source))
    if source.name.lower() == target:
        stowage("shrink", "in.gguf", "-o", fresh("no.gguf"), "--quantize", target, refused="nothing to do")
        return
    stowage("shrink", "in.gguf", "-o", fresh("out.gguf"), "--quantize", target)
    compared = 0
    for a, b in zip(gguf.GGUFReader("in.gguf").tensors, gguf.GGUFReader("out.gguf").tensors, strict=True):
        if b.tensor_type.name.lower() == target:
            values = gguf.quants.dequantize(a.data, a.tensor_type)
            assert (gguf.quants.quantize(values, b.tensor_type) == b.data).all(), b.name
            compared += 1
    assert compared >= 2


@check()
def gguf_with_experts_in_three_dimensions():
    g = seeded(12)
    write_gguf("in.gguf", {"blk.0.ffn_down_exps.weight": ((g.standard_normal((4, 16, 512)) * 0.1).astype("f4"), None)})
    stowage("shrink", "in.gguf", "-o", fresh("out.gguf"), "--quantize", "q4_k", "--verify")
    (a,), (b,) = gguf.GGUFReader("in.gguf").tensors, gguf.GGUFReader("out.gguf").tensors
    assert b.tensor_type.name == "Q4_K" and list(a.shape) == list(b.shape)
    x, y = a.data, gguf.quants.dequantize(b.data, b.tensor_type)
    assert np.linalg.norm(x - y.reshape(x.shape)) < 0.09 * np.linalg.norm(x)


# ---- loading and saving in Python ----


@check(("every type", "kinds"), ("empty and scalar", "odd"), ("a model", "llama"))
def loaded_and_saved(name):
    import stowage as package

    if name == "kinds":
        tensors = every_kind()
    elif name == "odd":
        tensors = {"none": torch.zeros(0, 5), "scalar": torch.tensor(2.5), "flag": torch.tensor(True), "half": torch.zeros(0).half()}
    else:
        tensors = {k: v.clone() for k, v in llama().state_dict().items()}
    save_file(tensors, "in.safetensors")
    equal(package.load("in.safetensors"), tensors)
    package.save(tensors, fresh("out.safetensors"))
    equal(load_file("out.safetensors"), tensors)
    package.save(package.load("in.safetensors", lazy=True), fresh("lazy.safetensors"))
    equal(load_file("lazy.safetensors"), tensors)
    for word, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16), ("f32", torch.float32)):
        have, want = package.load("in.safetensors", dtype=word), floats(tensors, dtype)
        for key in [k for k in want if k in ("torch.float64",) or "float8" in k]:
            have.pop(key), want.pop(key)  # one rounding instead of two; a float8 may become wider
        equal(have, want)
        package.save(tensors, fresh("out.safetensors"), dtype=word)
        written = load_file("out.safetensors")
        equal({k: written[k] for k in want}, want)


@check()
def lazy_slices():
    import stowage as package

    seeded(9)
    tensors = {"w": torch.randn(20, 30, 4), "b": torch.randn(50).bfloat16()}
    save_file(tensors, "in.safetensors")
    with package.load("in.safetensors", lazy=True) as model:
        view = model.view("w")
        for key in (0, -1, slice(3, 9), slice(None, None, 3), (slice(2, 5), 7), (..., 2), (3, slice(5, 6), -1), slice(30, 40)):
            assert torch.equal(view[key], tensors["w"][key]), key
        assert torch.equal(model.view("b")[10:20], tensors["b"][10:20])


@check()
def torch_files_are_loaded():
    import stowage as package

    base = torch.randn(12, 10)
    tensors = {"rows": base[2:5], "all": base, "half": base.half()}
    for options in ({}, {"_use_new_zipfile_serialization": False}):
        torch.save(tensors, "in.pt", **options)
        equal(package.load("in.pt"), tensors)
