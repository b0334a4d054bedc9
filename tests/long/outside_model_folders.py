"""Folders of Hugging Face, as transformers writes and reads them."""

import functools
import json
import os
import subprocess
import sys

import torch
import transformers
from outside_model_base import Skipped, check, equal, families, floats, forward, fresh, llama, logits, relative, seeded, stowage
from safetensors.torch import load_file

NAMES = [(name, name) for name in families()]


def made(name, dtype=torch.float32, path="folder", **options):
    seeded(8)
    model = families()[name]().to(dtype)
    model.save_pretrained(fresh(path), **options)
    return model


def weights_of(path):
    have = {}
    for name in sorted(os.listdir(path)):
        if name.endswith(".safetensors"):
            have.update(load_file(f"{path}/{name}"))
    return have


@check()
def sharded_folder_with_tokenizer_and_generation_files():
    llama().save_pretrained(fresh("folder"), max_shard_size="50KB")
    for name, text in (("tokenizer.json", '{"a": 1}'), ("README.md", "a model"), ("special_tokens_map.json", "{}")):
        with open("folder/" + name, "w") as f:
            f.write(text)
    os.makedirs("folder/extra")
    open("folder/extra/notes.txt", "w").close()
    stowage("shrink", "folder", "-o", fresh("half"), "--dtype", "bf16", "--join")
    for name in ("tokenizer.json", "README.md", "special_tokens_map.json", "generation_config.json"):
        assert open("half/" + name).read() == open("folder/" + name).read(), name
    model = transformers.AutoModelForCausalLM.from_pretrained("half", dtype="auto")
    assert model.dtype == torch.bfloat16
    equal(model.state_dict(), floats(transformers.AutoModelForCausalLM.from_pretrained("folder").state_dict(), torch.bfloat16))


@check()
def index_json_as_input():
    llama().save_pretrained(fresh("folder"), max_shard_size="50KB")
    stowage("shrink", "folder/model.safetensors.index.json", "-o", fresh("out.safetensors"))
    equal(load_file("out.safetensors"), weights_of("folder"))


@check()
def tied_llama_folder():
    llama(tie_word_embeddings=True).save_pretrained(fresh("folder"))
    stowage("shrink", "folder", "-o", fresh("half"), "--dtype", "f16")
    a, b = (transformers.AutoModelForCausalLM.from_pretrained(p, dtype=torch.float32) for p in ("folder", "half"))
    assert b.lm_head.weight.data_ptr() == b.model.embed_tokens.weight.data_ptr()
    assert relative(logits(a), logits(b)) < 0.01


@check(*NAMES)
def cast(name):
    model = made(name)
    stowage("shrink", "folder", "-o", fresh("half"), "--dtype", "bf16", "--verify")
    loaded, info = type(model).from_pretrained("half", dtype="auto", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    assert loaded.dtype == torch.bfloat16, loaded.dtype
    want = type(model).from_pretrained("folder", dtype=torch.bfloat16)
    equal(weights_of("half"), floats(weights_of("folder"), torch.bfloat16))
    assert torch.equal(forward(loaded), forward(want))


@check(*NAMES)
def sharded_and_joined_again(name):
    model = made(name)
    plain = weights_of("folder")
    stowage("shrink", "folder", "-o", fresh("many"), "--shard", "10K")
    index = json.load(open("many/model.safetensors.index.json"))
    assert set(index["weight_map"]) == set(plain) and len(set(index["weight_map"].values())) > 2
    assert index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in plain.values())
    equal(weights_of("many"), plain)
    loaded = type(model).from_pretrained("many")
    assert torch.equal(forward(loaded), forward(type(model).from_pretrained("folder")))
    stowage("shrink", "many", "-o", fresh("one"), "--join")
    assert open("one/model.safetensors", "rb").read() == open("folder/model.safetensors", "rb").read()


def package_error(value, kind):
    """The error of compressed-tensors' own quantization by rows."""
    from compressed_tensors.quantization import QuantizationArgs, fake_quantize
    from compressed_tensors.quantization.utils import calculate_qparams

    arguments = QuantizationArgs(num_bits=8, type="int" if kind == "int8" else "float", strategy="channel", symmetric=True)
    scale, zero = calculate_qparams(value.amin(1, keepdim=True), value.amax(1, keepdim=True), arguments)
    return relative(value.float(), fake_quantize(value.float(), scale.float(), zero, arguments))


def unpacked(plain, changed):
    """Unpacks the layers with compressed-tensors, without a model around them."""
    from compressed_tensors.compressors import unpack_from_int32

    stored = load_file("small/model.safetensors")
    for key in changed:
        module = key.removesuffix("weight")
        values = unpack_from_int32(stored[module + "weight_packed"], 8, torch.Size(stored[module + "weight_shape"].tolist()))
        assert relative(plain[key].float(), values.float() * stored[module + "weight_scale"].float()) < 0.01, key


@check(*[(f"{name} {kind}", name, kind) for name in families() if name != "gpt2" for kind in ("int8", "fp8")])
def quantized_by_rows(name, kind):
    model = made(name, torch.bfloat16)
    report = json.loads(stowage("shrink", "folder", "-o", fresh("small"), "--quantize", kind, "--json"))
    plain, changed = load_file("folder/model.safetensors"), {t["name"]: t for t in report["tensors"] if t["changed"]}
    assert changed
    for key, stated in changed.items():
        theirs = package_error(plain[key], kind)
        assert stated["relative_rms_error"] <= theirs * 1.0001 + 1e-7, (key, stated["relative_rms_error"], theirs)
    if kind == "int8" and name in ("falcon", "mamba", "t5"):
        # transformers 5 initializes layers of these models by their weight, which packed layers do not have until they are unpacked.
        return unpacked(plain, changed)
    config = transformers.CompressedTensorsConfig(run_compressed=False)
    loaded, info = type(model).from_pretrained("small", dtype=torch.bfloat16, quantization_config=config, output_loading_info=True)
    missing = [key for key in info["missing_keys"] if not key.endswith(("_zero_point", "_shape"))]
    assert not missing, missing[:5]
    have, compared = loaded.state_dict(), 0
    want = type(model).from_pretrained("folder", dtype=torch.bfloat16).state_dict()
    for key, value in want.items():
        if key not in have or value.dtype != torch.bfloat16:
            continue
        error = relative(value.float(), have[key].float()) if value.float().norm() else have[key].float().norm().item()
        assert error < 0.04, (key, error)
        compared += 1
    assert compared >= len(changed) // 4, (compared, len(changed))
    assert relative(forward(type(model).from_pretrained("folder", dtype=torch.bfloat16)), forward(loaded)) < 0.12


@check(("int8", ["--quantize", "int8"]), ("sparse", ["--prune", "2:4", "--sparse"]))
def layers_that_compressed_tensors_cannot_read(words):
    """The Conv1D of GPT-2 is no linear layer: quantizing is refused, pruning stays dense."""
    made("gpt2", torch.bfloat16)
    if "--quantize" in words:
        stowage("shrink", "folder", "-o", fresh("no"), *words, refused="Conv1D")
        return
    stowage("shrink", "folder", "-o", fresh("pruned"), *words)
    assert weights_of("pruned").keys() == weights_of("folder").keys()
    assert "quantization_config" not in json.load(open("pruned/config.json"))


@check(*NAMES)
def pruned(name):
    model = made(name, torch.bfloat16)
    before = weights_of("folder")
    for words in (["--prune", "50%"], ["--prune", "2:4"]):
        report = json.loads(stowage("shrink", "folder", "-o", fresh("pruned"), *words, "--json"))
        changed = {t["name"] for t in report["tensors"] if t["changed"]}
        after = weights_of("pruned")
        assert changed and after.keys() == before.keys()
        for key, value in after.items():
            now, was = value.float(), before[key].float()
            if key not in changed:
                assert torch.equal(now, was), key
                continue
            assert ((now == 0) | (now == was)).all(), key
            if words[1] == "2:4":
                kept = now.reshape(-1, 4).abs().sum(1)
                assert torch.equal(kept, was.reshape(-1, 4).abs().topk(2, dim=1).values.sum(1)), key
            else:
                assert abs((now == 0).sum().item() - now.numel() / 2) <= 0.002 * now.numel() + 1, key  # equal values are shared out by blocks
                assert was[now == 0].abs().max() <= was[now != 0].abs().min(), key
        loaded, info = type(model).from_pretrained("pruned", dtype="auto", output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"], info
        assert forward(loaded).isfinite().all()


# transformers with a compressed-tensors that has the sparse layouts; prints one line of JSON for each folder.
SPARSE_READER = """
import json, os, sys
sys.argv = ["-", "-", "-"]
import torch, transformers
from outside_model_base import families, forward
from safetensors.torch import load_file
for name in families():
    for layout in ("bitmask", "24"):
        sparse, dense = f"sparse {name} {layout}", f"dense {name} {layout}"
        try:
            kind = type(families()[name]())
            made = open(sparse + "/made").read()
            assert made == "", made
            stored = json.load(open(sparse + "/config.json"))["quantization_config"]["sparsity_config"]["format"]
            want = kind.from_pretrained(dense, torch_dtype=torch.bfloat16)
            have = kind.from_pretrained(sparse, torch_dtype=torch.bfloat16)  # it calls packed layers missing, then unpacks them
            a, b = have.state_dict(), want.state_dict()
            for key in b:
                assert torch.equal(a[key], b[key]), key
            assert torch.equal(forward(have), forward(want)), "the forward pass differs"
            print(json.dumps([name, layout, "", stored]), flush=True)
        except Exception as error:
            print(json.dumps([name, layout, f"{type(error).__name__}: {error}"[:600], ""]), flush=True)
"""


@functools.cache
def read_sparse():
    """Writes every family pruned, dense and sparse, and returns what transformers says to each: an error, or "" and the layout."""
    if "STOWAGE_SPARSE_PACKAGE" not in os.environ:
        raise Skipped("STOWAGE_SPARSE_PACKAGE names no folder with compressed-tensors 0.9 to 0.14 and a transformers that takes it")
    for name in families():
        made(name, torch.bfloat16)
        for layout, words in (("bitmask", ["--prune", "75%"]), ("24", ["--prune", "2:4"])):
            sparse, dense, note = fresh(f"sparse {name} {layout}"), fresh(f"dense {name} {layout}"), ""
            try:
                stowage("shrink", "folder", "-o", dense, *words)
                stowage("shrink", "folder", "-o", sparse, *words, "--sparse", "--verify")
            except AssertionError as error:
                note = str(error)
            os.makedirs(sparse, exist_ok=True)
            with open(sparse + "/made", "w") as f:
                f.write(note)
    path = os.pathsep.join([os.environ["STOWAGE_SPARSE_PACKAGE"], os.path.dirname(__file__)])
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", SPARSE_READER], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-600:]
    return {(name, layout): (error, stored) for name, layout, error, stored in map(json.loads, done.stdout.splitlines())}


# compressed-tensors 0.9 fails at a tensor whose name has no dot, as BART's final_logits_bias, and leaves the attention of RoBERTa empty,
# although its layers are stored like those of BERT. GPT-2 has no linear layers.
@check(*[(f"{name} {layout}", name, layout) for name in families() if name not in ("gpt2", "bart", "roberta") for layout in ("bitmask", "24")])
def sparse_layouts_through_transformers(name, layout):
    error, stored = read_sparse()[name, layout]
    assert not error, error
    assert stored == {"bitmask": "sparse-bitmask", "24": "sparse-24-bitmask"}[layout], stored


@check()
def folder_with_pytorch_bin_shards():
    state = llama().state_dict()
    names = list(state)
    os.makedirs(fresh("folder"))
    llama().config.save_pretrained("folder")
    parts = {"pytorch_model-00001-of-00002.bin": names[: len(names) // 2], "pytorch_model-00002-of-00002.bin": names[len(names) // 2 :]}
    for file, part in parts.items():
        torch.save({k: state[k].clone() for k in part}, "folder/" + file)
    with open("folder/pytorch_model.bin.index.json", "w") as f:
        json.dump({"metadata": {}, "weight_map": {k: file for file, part in parts.items() for k in part}}, f)
    stowage("shrink", "folder", "-o", fresh("out"), "--dtype", "bf16", "--join")
    model = transformers.AutoModelForCausalLM.from_pretrained("out", dtype="auto")
    equal(model.state_dict(), floats(state, torch.bfloat16))


@check()
def inspect_counts_what_transformers_counts():
    for name in families():
        model = made(name)
        counted = json.loads(stowage("inspect", "--json", "folder"))["parameters"]
        assert counted == sum(t.numel() for t in weights_of("folder").values()), name
        assert abs(counted - model.num_parameters()) <= 0.1 * counted, (name, counted, model.num_parameters())


@check()
def inspect_finds_what_a_cast_changed():
    made("llama")
    stowage("shrink", "folder", "-o", fresh("half"), "--dtype", "bf16")
    stowage("inspect", "--diff", "folder", "folder")
    text = stowage("inspect", "--diff", "folder", "half", code=1)
    assert "bfloat16" in text or "bf16" in text, text
