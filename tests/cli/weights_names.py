"""weights_names.py STOWAGE: which tensors --quantize takes by default, and what general.file_type of a GGUF file becomes."""

import json
import os
import struct
import subprocess
import sys

from files import write

STOWAGE = sys.argv[1]
os.mkdir("names")
os.chdir("names")
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7, "Q4_K": 14, "Q6_K": 18, "BF16": 32}


def stowage(*words, code=0):
    done = subprocess.run([STOWAGE, *words], capture_output=True, text=True)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(path, tensors, file_type=0, value=None):
    """Writes float32 tensors: name -> (rows, columns). The first value is `value`."""
    keys = text("general.architecture") + struct.pack("<I", 8) + text("llama") + text("general.file_type") + struct.pack("<II", 4, file_type)
    listed, body = b"", b""
    for name, (rows, columns) in tensors.items():
        listed += text(name) + struct.pack("<IQQIQ", 2, columns, rows, 0, len(body))
        values = [(i % 91 - 45) / 64 for i in range(rows * columns)]
        body += struct.pack(f"<{rows * columns}f", *([value] if value else values[:1]), *values[1:])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 2) + keys + listed
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + body)


def became(path, *words):
    facts = json.loads(stowage("shrink", path, "--dry-run", "--json", *words))
    return {one["name"]: one["to_dtype"] for one in facts["tensors"]}


def the_choice_in_gguf_is_that_of_llama_cpp():
    # llama-quant.cpp, tensor_allows_quantization
    kept = ["v.patch_embd", "mm.patch_merger", "blk.0.indexer.k_proj", "blk.0.indexer.q_proj", "blk.0.ffn_gate_tid2eid", "sam.pos_embd", "sam.neck.0",
            "sam.net_2", "v.blk.0.attn.rel_pos_h", "v.blk.0.x.rel_pos_w", "a.rvq.codebook", "mm.a.code_embd", "blk.0.attn_rel_b", "position_embd",
            "v.position_embd", "token_types", "blk.0.ssm_conv1d", "blk.0.shortconv.conv", "blk.0.ffn_gate_inp", "blk.0.altup_correct_coef", "blk.0.laurel_l",
            "per_layer_model_proj", "blk.0.ffn_norm"]
    small = "first w0 w1 w2 v0 v1 v2 a0 a1 a2 g1 g2 decay_w1 decay_w2 lerp_fused"
    kept += [f"blk.0.time_mix_{word}" for word in small.split()]
    taken = ["token_embd", "output", "blk.0.attn_q", "blk.0.time_mix_key", "blk.0.time_mix_receptance", "blk.0.shortconv.in_proj", "blk.0.ssm_in", "mm.1"]
    gguf("choice.gguf", {name + ".weight": (2, 256) for name in kept + taken})
    have = became("choice.gguf", "--quantize", "q8_0")
    assert {name for name, kind in have.items() if kind == "Q8_0"} == {name + ".weight" for name in taken}, have


def the_file_type_is_that_of_most_bytes():
    def file_type(path):
        with open(path, "rb") as file:
            data = file.read()
        at = data.index(b"general.file_type") + len("general.file_type")
        return struct.unpack("<II", data[at:at + 8])[1]

    gguf("wide.gguf", {"blk.0.attn_q.weight": (8, 256), "blk.0.attn_k.weight": (2, 288)})
    gguf("narrow.gguf", {"blk.0.attn_q.weight": (2, 256), "blk.0.attn_k.weight": (8, 288)})
    for path, kind, want in (("wide", "q4_k", "Q4_K"), ("narrow", "q4_k", "Q8_0"), ("narrow", "q6_k", "Q8_0"), ("wide", "q4_0", "Q4_0")):
        stowage("shrink", path + ".gguf", "-o", "typed.gguf", "--quantize", kind)
        assert file_type("typed.gguf") == FILE_TYPES[want], (path, kind, file_type("typed.gguf"))
    stowage("shrink", "wide.gguf", "-o", "typed.gguf", "--dtype", "bf16")
    assert file_type("typed.gguf") == FILE_TYPES["BF16"]
    # Another variant of the same type (Q4_K_M) stays.
    gguf("same.gguf", {"blk.0.attn_q.weight": (8, 256), "blk.0.attn_k.weight": (2, 256)}, file_type=15)
    stowage("shrink", "same.gguf", "-o", "typed.gguf", "--quantize", "q8_0", "--include", "*attn_k*")
    assert file_type("typed.gguf") == 15


def values_too_large_for_a_block_are_refused():
    for kind in ("q8_0", "q4_0", "q4_k", "q6_k"):
        for value in (1e30, 3e38, 1e15):
            gguf("large.gguf", {"blk.0.attn_q.weight": (2, 256)}, value=value)
            have = stowage("shrink", "large.gguf", "-o", "lost.gguf", "--quantize", kind, code=2)
            assert "too large for" in have and "be lost" in have and not os.path.exists("lost.gguf"), (kind, value, have)
        gguf("fits.gguf", {"blk.0.attn_q.weight": (2, 256)}, value=60000.0)
        stowage("shrink", "fits.gguf", "-o", "kept.gguf", "--quantize", kind)


def matrices_named_conv_are_linear_layers():
    linear = ["convnext.stages.0.layers.0.pwconv1.weight", "model.layers.0.conv.in_proj.weight", "model.layers.0.self_attn.q_proj.weight"]
    vector = ([8], [1.0] * 8)
    tensors = {name: ([4, 8], [0.5] * 32) for name in [*linear, "lm_head.weight"]} | {"model.layers.0.conv.conv.weight": ([8, 1, 4], [0.5] * 32), "a.bias": vector}
    write("conv.safetensors", tensors)
    for kind in ("int8", "fp8"):
        have = became("conv.safetensors", "--quantize", kind)
        assert [name for name in have if have[name] == kind] == sorted(linear), have


def nothing_to_do_says_what_was_left_out():
    write("cnn.safetensors", {"conv1.weight": ([2, 2, 3, 3], [0.5] * 36), "conv2.weight": ([2, 2, 1, 1], [0.5] * 4), "bn.weight": ([2], [1.0] * 2), "classifier.1.weight": ([4, 4], [0.5] * 16)})
    for words in (["--quantize", "int8"], ["--prune", "50%"]):
        have = stowage("shrink", "cnn.safetensors", "-o", "no.safetensors", *words, code=2)
        for part in ("1 of one dimension", "2 tensors with more than two dimensions (convolutions)", "1 of output layers and classifiers", "--include PATTERN"):
            assert part in have, (part, have)


for check in (
    the_choice_in_gguf_is_that_of_llama_cpp,
    the_file_type_is_that_of_most_bytes,
    values_too_large_for_a_block_are_refused,
    matrices_named_conv_are_linear_layers,
    nothing_to_do_says_what_was_left_out,
):
    check()
