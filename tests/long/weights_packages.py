"""Reads what `stowage shrink` and `stowage merge` write with the packages that people use, and compares values.

Run by weights_packages.sh: weights_packages.py COMMAND FOLDER. Prints "ok NAME" or "FAIL NAME: why" for each check.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import traceback

import gguf
import numpy as np
import torch
import transformers
from compressed_tensors.compressors import BaseCompressor  # noqa: F401  (the package must be there)
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import safe_open
from safetensors.torch import load_file, save_file

command, folder = sys.argv[1], sys.argv[2]
os.chdir(folder)
torch.manual_seed(7)
failed = 0


def stowage(*words, refused=False):
    done = subprocess.run([command, *words], capture_output=True, text=True)
    assert (done.returncode != 0) == refused, done.stderr + done.stdout
    return done.stderr if refused else done.stdout


def fresh(path):
    shutil.rmtree(path, ignore_errors=True)
    if os.path.exists(path):
        os.unlink(path)
    return path


class Skipped(Exception):
    pass


def check(function):
    global failed
    try:
        function()
        print("ok", function.__name__)
    except Skipped as reason:
        print(f"skip {function.__name__}: {reason}")
    except Exception as error:
        failed += 1
        traceback.print_exc()
        print(f"FAIL {function.__name__}: {type(error).__name__}: {str(error)[:300]}")


def llama(dtype=torch.float32, tie=False):
    config = transformers.LlamaConfig(
        vocab_size=320, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=tie)
    return transformers.LlamaForCausalLM(config).to(dtype)


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=200, n_positions=32, n_embd=64, n_layer=2, n_head=4))


def logits(model):
    with torch.no_grad():
        return model.eval()(torch.arange(1, 17)[None]).logits.float()


# ---- types, shards, other formats ----


def transformers_loads_a_cast_and_sharded_folder():
    llama().save_pretrained("base")
    stowage("shrink", "base", "-o", fresh("half"), "--dtype", "bf16", "--shard", "100K", "--verify")
    assert os.path.exists("half/model.safetensors.index.json")
    model = transformers.LlamaForCausalLM.from_pretrained("half", dtype="auto")
    assert model.dtype == torch.bfloat16, model.dtype
    want = {k: v.bfloat16() for k, v in load_file("base/model.safetensors").items()}
    have = model.state_dict()
    for name, value in want.items():
        assert torch.equal(have[name], value), name
    stowage("shrink", "half", "-o", fresh("one.safetensors"))
    joined = load_file("one.safetensors")
    assert joined.keys() == want.keys() and all(torch.equal(joined[k], want[k]) for k in want)


def safetensors_writes_the_same_bytes():
    tensors = {"b": torch.randn(3, 5), "a": torch.randn(7), "n": torch.arange(4), "h": torch.randn(2, 2).half(),
               "z": torch.zeros(0, 3), "s": torch.tensor(2.0), "k": torch.ones(3, dtype=torch.uint8)}
    save_file(tensors, "in.safetensors", metadata={"format": "pt"})
    stowage("shrink", "in.safetensors", "-o", fresh("same.safetensors"))
    assert open("in.safetensors", "rb").read() == open("same.safetensors", "rb").read()


def torch_files_become_safetensors():
    model = llama()
    state = model.state_dict()
    torch.save(state, "model.bin")
    stowage("shrink", "model.bin", "-o", fresh("bin.safetensors"))
    read = load_file("bin.safetensors")
    assert read.keys() == state.keys() and all(torch.equal(read[k], state[k]) for k in state)
    torch.save({"model": state, "epoch": 3}, "checkpoint.pt")
    assert "state_dict" in stowage("shrink", "checkpoint.pt", "-o", "no.safetensors", refused=True)
    torch.save(model, "whole.pt")
    assert "refused" in stowage("shrink", "whole.pt", "-o", "no.safetensors", refused=True)


# ---- quantized and pruned ----


def relative(a, b):
    return ((a - b).norm() / a.norm()).item()


def compressed_tensors_reads(kind):
    llama(torch.bfloat16).save_pretrained("bf16")
    report = json.loads(stowage("shrink", "bf16", "-o", fresh(kind), "--quantize", kind, "--json"))
    plain = load_file("bf16/model.safetensors")
    quantization = transformers.CompressedTensorsConfig(run_compressed=False)
    model = transformers.LlamaForCausalLM.from_pretrained(kind, dtype="auto", quantization_config=quantization)
    have = model.state_dict()
    listed = {t["name"]: t for t in report["tensors"]}
    changed = 0
    for name, value in plain.items():
        error = relative(value.float(), have[name].float())
        if listed[name]["changed"]:
            changed += 1
            stated = listed[name]["relative_rms_error"]
            # The package multiplies in bfloat16, so its rounding adds to ours.
            assert stated < 0.04 and abs(error - stated) < 0.004, (name, error, stated)
        else:
            assert torch.equal(have[name], value), name
    assert changed == 14, changed
    assert relative(logits(transformers.LlamaForCausalLM.from_pretrained("bf16")), logits(model)) < 0.1


def compressed_tensors_reads_int8():
    compressed_tensors_reads("int8")


def compressed_tensors_reads_fp8():
    compressed_tensors_reads("fp8")


def pruning_zeroes_what_it_says():
    for words, part in [(["--prune", "50%"], 0.5), (["--prune", "30%", "--prune-by", "model"], None), (["--prune", "2:4"], 0.5)]:
        stowage("shrink", "bf16", "-o", fresh("pruned"), *words)
        before, after = load_file("bf16/model.safetensors"), load_file("pruned/model.safetensors")
        zeros = total = 0
        for name, value in after.items():
            if "proj" not in name:
                assert torch.equal(value, before[name])
                continue
            now, was = value.float(), before[name].float()
            zeros += (now == 0).sum().item()
            total += now.numel()
            assert ((now == 0) | (now == was)).all()
            if part is not None:
                assert abs((now == 0).float().mean().item() - part) < 0.002, name
            if words[-1] == "2:4":
                assert ((now.view(-1, 4) != 0).sum(1) <= 2).all()
                kept = now.view(-1, 4).abs().sum(1)
                assert torch.allclose(kept, was.view(-1, 4).abs().topk(2).values.sum(1))
            else:
                assert was[now == 0].abs().max() <= was[now != 0].abs().min() or part is None
        assert part is not None or abs(zeros / total - 0.3) < 0.002


SPARSE_READER = """
import json, sys, torch
from compressed_tensors.compressors.sparse_compressors import BitmaskCompressor, Sparse24BitMaskCompressor
from compressed_tensors.config import BitmaskConfig, Sparse24BitMaskConfig
from safetensors.torch import load_file
for sparse, dense in (("sparse", "dense"), ("sparse24", "dense24")):
    config = json.load(open(sparse + "/config.json"))["quantization_config"]["sparsity_config"]
    two = config["format"] == "sparse-24-bitmask"
    package = (Sparse24BitMaskCompressor if two else BitmaskCompressor)((Sparse24BitMaskConfig if two else BitmaskConfig)(**config))
    want, have = load_file(dense + "/model.safetensors"), dict(package.decompress(sparse))
    assert have.keys() == want.keys(), have.keys() ^ want.keys()
    assert all(torch.equal(have[k], want[k]) for k in want)
    ours, theirs = load_file(sparse + "/model.safetensors"), package.compress(want, {k[:-7] for k in want if "proj" in k})
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours), "other tensors than the package writes"
"""


def compressed_tensors_reads_sparse_layouts():
    """With compressed-tensors 0.9 to 0.14: 0.15 dropped the layouts. STOWAGE_SPARSE_PACKAGE is a folder that holds such a release."""
    environment = dict(os.environ)
    if "STOWAGE_SPARSE_PACKAGE" in os.environ:
        environment["PYTHONPATH"] = os.environ["STOWAGE_SPARSE_PACKAGE"]
    elif importlib.util.find_spec("compressed_tensors.compressors.sparse_compressors") is None:
        raise Skipped("this compressed-tensors has no sparse layouts; STOWAGE_SPARSE_PACKAGE names a folder with 0.9 to 0.14")
    for name, words in (("sparse", ["--prune", "60%", "--sparse"]), ("dense", ["--prune", "60%"]),
                        ("sparse24", ["--prune", "2:4", "--sparse"]), ("dense24", ["--prune", "2:4"])):
        stowage("shrink", "bf16", "-o", fresh(name), *words, "--verify")
    done = subprocess.run([sys.executable, "-c", SPARSE_READER], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-600:]
    sizes = [os.path.getsize(f"{name}/model.safetensors") for name in ("sparse", "sparse24", "dense")]
    assert sizes[0] < 0.75 * sizes[2] and sizes[1] < 0.75 * sizes[2], sizes


def gguf_reads_every_type():
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter("in.gguf", "llama")
    writer.add_block_count(1)
    writer.add_file_type(0)
    writer.add_array("tokenizer.ggml.tokens", ["a", "é"])
    writer.add_bool("test.flag", True)
    for name, shape in [("token_embd.weight", (64, 256)), ("blk.0.attn_q.weight", (512, 256)), ("blk.0.attn_norm.weight", (256,)),
                        ("blk.0.odd.weight", (8, 96)), ("output.weight", (64, 256))]:
        writer.add_tensor(name, (rng.standard_normal(shape) * 0.05).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    before = {t.name: t for t in gguf.GGUFReader("in.gguf").tensors}
    for kind, most in [("q8_0", 0.006), ("q6_k", 0.02), ("q4_k", 0.08), ("q4_0", 0.1)]:
        stowage("shrink", "in.gguf", "-o", fresh(kind + ".gguf"), "--quantize", kind, "--verify")
        reader = gguf.GGUFReader(kind + ".gguf")
        assert reader.fields["tokenizer.ggml.tokens"].contents() == ["a", "é"]
        assert reader.fields["test.flag"].contents() is True
        for t in reader.tensors:
            x = before[t.name].data
            y = gguf.quants.dequantize(t.data, t.tensor_type)
            assert list(t.shape) == list(before[t.name].shape)
            assert np.linalg.norm(x - y) <= most * np.linalg.norm(x), t.name
            if t.tensor_type.name in ("Q8_0", "Q4_0"):
                assert (gguf.quants.quantize(x, t.tensor_type) == t.data).all(), t.name


# ---- merging ----


def ulps(a, b):
    """Returns how many representable values lie between two tensors of one type."""
    bits = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}[a.dtype]

    def order(x):
        i = x.view(bits).to(torch.int64)
        low = -(2 ** (x.element_size() * 8 - 1))
        return torch.where(i < 0, low - i, i)

    return (order(a) - order(b)).abs().max().item()


def double_merge(base, adapters):
    """Computes the merge in float64 by PEFT's formulas, without rounding."""
    merged = {k: v.double() for k, v in base.items()}
    for path in adapters:
        config = json.load(open(path + "/adapter_config.json"))
        tensors = {k.removeprefix("base_model.model.").replace(".base_layer", ""): v.double() for k, v in load_file(path + "/adapter_model.safetensors").items()}
        merged.update({k: v for k, v in tensors.items() if "lora_" not in k})
        for name, a in tensors.items():
            if name.endswith(".lora_A.weight"):
                module = name.removesuffix(".lora_A.weight")
                b = tensors[module + ".lora_B.weight"]
                rank = a.shape[0]
                alpha = config["alpha_pattern"].get(module.split(".")[-1], config["lora_alpha"])
                scale = alpha / rank**0.5 if config["use_rslora"] else alpha / rank
                delta = (b @ a) * scale
                w = merged[module + ".weight"] + (delta.T if config["fan_in_fan_out"] else delta)
                if config["use_dora"]:
                    w = w * (tensors[module + ".lora_magnitude_vector"] / w.norm(dim=1))[:, None]
                merged[module + ".weight"] = w
            elif name.endswith(".lora_embedding_A"):
                module = name.removesuffix(".lora_embedding_A")
                scale = config["lora_alpha"] / a.shape[0]
                merged[module + ".weight"] += (tensors[module + ".lora_embedding_B"] @ a).T * scale
    return merged


def rounded(exact, dtype):
    """Rounds float64 to a narrower type in one step; torch rounds twice."""
    if dtype == torch.float32:
        return exact.float()
    near = exact.to(dtype)
    best = near.clone()
    bits = near.view(torch.int16)
    for step in (-1, 1):
        other = (bits + step).view(dtype)
        closer = (other.double() - exact).abs() < (best.double() - exact).abs()
        best = torch.where(closer, other, best)
    return best


def train(model, path, **options):
    peft = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, **options))
    with torch.no_grad():
        for name, value in peft.named_parameters():
            if "lora_" in name and "magnitude" not in name:
                value.copy_(torch.randn_like(value) * 0.05)
            elif "lora_magnitude" in name:
                value.mul_(1 + 0.1 * torch.rand_like(value))
            elif "modules_to_save" in name:
                value.add_(torch.randn_like(value) * 0.01)
    peft.save_pretrained(path)
    return peft


def merged_like(make, dtype, kind, **options):
    def load(path):
        return type(make()).from_pretrained(path, dtype=dtype)

    model = make().to(dtype)
    model.save_pretrained(fresh("base"))
    train(load("base"), fresh("adapter"), **options)
    stowage("merge", "base", "adapter", "-o", fresh("merged"), "--verify")
    base, ours = load_file("base/model.safetensors"), load_file("merged/model.safetensors")
    want = double_merge(base, ["adapter"])
    assert ours.keys() == want.keys()
    for name in want:
        assert ulps(ours[name], rounded(want[name], ours[name].dtype)) <= 1, name
    theirs = PeftModel.from_pretrained(load("base"), "adapter").merge_and_unload().state_dict()
    changed = 0
    for name in ours:
        exact = want[name]
        changed += not torch.equal(ours[name], base[name])
        if name in theirs:
            assert (ours[name].double() - exact).norm() <= (theirs[name].double() - exact).norm() + 1e-12, name
    assert changed > 0
    if kind != "tied":
        assert relative(logits(type(make()).from_pretrained("merged", dtype=dtype)),
                        logits(PeftModel.from_pretrained(load("base"), "adapter"))) < (0.05 if dtype != torch.float32 else 1e-4)


def lora_merges_in_every_type():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        merged_like(llama, dtype, "", target_modules=["q_proj", "up_proj", "down_proj"], alpha_pattern={"up_proj": 4})


def rank_stabilised_lora_merges():
    merged_like(llama, torch.bfloat16, "", target_modules="all-linear", use_rslora=True)


def dora_merges():
    merged_like(llama, torch.float32, "", target_modules=["q_proj", "v_proj"], use_dora=True)
    merged_like(llama, torch.bfloat16, "", target_modules=["q_proj", "v_proj"], use_dora=True)


def transposed_layers_merge():
    merged_like(gpt2, torch.float32, "", target_modules=["c_attn", "c_fc"], fan_in_fan_out=True)


def saved_modules_and_embeddings_merge():
    merged_like(llama, torch.float32, "", target_modules=["q_proj"], modules_to_save=["lm_head"])
    merged_like(llama, torch.float32, "tied", target_modules=["q_proj", "embed_tokens"])


def several_adapters_merge():
    llama(torch.bfloat16).save_pretrained(fresh("base"), max_shard_size="60KB")
    for path in ("one", "two"):
        train(transformers.LlamaForCausalLM.from_pretrained("base", dtype=torch.bfloat16), fresh(path), target_modules=["q_proj", "o_proj"])
    stowage("merge", "base", "one", "two", "-o", fresh("merged"), "--join")
    model = transformers.LlamaForCausalLM.from_pretrained("base", dtype=torch.bfloat16).state_dict()
    want, ours = double_merge(model, ["one", "two"]), load_file("merged/model.safetensors")
    assert all(ulps(ours[k], rounded(want[k], torch.bfloat16)) <= 1 for k in want)
    transformers.LlamaForCausalLM.from_pretrained("merged")


for test in [
    transformers_loads_a_cast_and_sharded_folder,
    safetensors_writes_the_same_bytes,
    torch_files_become_safetensors,
    compressed_tensors_reads_int8,
    compressed_tensors_reads_fp8,
    pruning_zeroes_what_it_says,
    compressed_tensors_reads_sparse_layouts,
    gguf_reads_every_type,
    lora_merges_in_every_type,
    rank_stabilised_lora_merges,
    dora_merges,
    transposed_layers_merge,
    saved_modules_and_embeddings_merge,
    several_adapters_merge,
]:
    check(test)
sys.exit(1 if failed else 0)
