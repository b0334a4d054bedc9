"""weights_parts.py STOWAGE: a GGUF model in several files, as llama.cpp splits it; output layers tied to an embedding; quantized inputs."""

import json
import os
import struct
import subprocess
import sys

from files import read, write

STOWAGE = sys.argv[1]
os.mkdir("parts")
os.chdir("parts")


def stowage(*words, code=0):
    done = subprocess.run([STOWAGE, *words], capture_output=True, text=True)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def part(path, number, count, tensors, key="split.count"):
    """Writes a part: tensors are (name, rows) of 256 floats."""
    keys = [text("general.architecture") + struct.pack("<I", 8) + text("llama")] if number == 0 else []
    keys += [text(name) + struct.pack("<IH", 2, value) for name, value in (("split.no", number), (key, count))]
    keys += [text("split.tensors.count") + struct.pack("<Ii", 5, 5)]
    listed, body = b"", b""
    for name, rows in tensors:
        listed += text(name) + struct.pack("<IQQIQ", 2, 256, rows, 0, len(body))
        body += struct.pack(f"<{256 * rows}f", *[(i % 91 + rows) / 64 for i in range(256 * rows)])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + listed
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + body)


def parts_are_one_model():
    os.mkdir("split")
    names = [f"split/m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    tensors = [("token_embd.weight", 3), ("blk.0.attn_q.weight", 2)], [("blk.1.attn_q.weight", 4)], [("output.weight", 5)]
    for number, name in enumerate(names):
        part(name, number, 3, tensors[number])
    part("whole.gguf", 0, 0, [one for some in tensors for one in some])
    for given in (names[0], "split"):
        facts = json.loads(stowage("inspect", given, "--json"))
        assert facts["parameters"] == 256 * 14, facts
        assert stowage("inspect", "--diff", given, "whole.gguf")
    for words in (["--quantize", "q8_0"], ["--dtype", "f16"], []):
        stowage("shrink", names[0], "-o", "joined.gguf", "--verify", *words)
        stowage("shrink", "whole.gguf", "-o", "same.gguf", *words)
        with open("joined.gguf", "rb") as joined, open("same.gguf", "rb") as same:
            assert joined.read() == same.read(), words  # split.count is 0 in both
    assert "name the first one" in stowage("inspect", names[1], code=2)
    os.rename(names[2], "split/away")
    assert "00003-of-00003" in stowage("inspect", names[0], code=2)
    part(names[2], 1, 3, tensors[2])
    assert "part 2 of 3, not 3 of 3" in stowage("shrink", names[0], "-o", "wrong.gguf", code=2)
    assert not os.path.exists("wrong.gguf")
    part("alone.gguf", 0, 3, tensors[0])
    assert "00001-of-00003.gguf" in stowage("inspect", "alone.gguf", code=2)


def a_layer_with_only_a_bias_is_tied():
    os.mkdir("bert")
    layer, bias = ([64, 64], [0.5] * 4096), ([64], [1.0] * 64)
    tensors = {"embeddings.weight": layer, "layers.0.weight": layer, "layers.0.bias": bias, "decoder.bias": bias, "lm_head.bias": bias}
    write("bert/model.safetensors", tensors)
    with open("bert/config.json", "w") as file:
        file.write("{}")
    for kind in ("int8", "fp8"):
        stowage("shrink", "bert", "-o", kind, "--quantize", kind)
        with open(f"{kind}/config.json") as file:
            ignored = json.load(file)["quantization_config"]["ignore"]
        assert "decoder" in ignored and ignored.count("lm_head") == 1 and "layers.0" not in ignored, ignored


def scales_of_a_quantized_model_keep_their_type():
    layer = ([64, 64], [0.3] * 4096)
    os.mkdir("plain")
    write("plain/model.safetensors", {"layers.0.weight": layer, "norm.weight": ([64], [1.1] * 64)})
    with open("plain/config.json", "w") as file:
        file.write("{}")
    for kind in ("int8", "fp8"):
        stowage("shrink", "plain", "-o", f"small-{kind}", "--quantize", kind)
        stowage("shrink", f"small-{kind}", "-o", f"half-{kind}", "--dtype", "bf16")
        kinds = {name: facts[0] for name, facts in read(f"half-{kind}/model.safetensors")[1].items()}
        assert kinds["layers.0.weight_scale"] == "F32" and kinds["norm.weight"] == "BF16", kinds
        assert "already quantized" in stowage("shrink", f"half-{kind}", "-o", "again", "--dtype", "bf16", code=2)


def float8_is_converted_unless_it_has_scales():
    def file(path, more):
        tensors = {"l.weight": ("F8_E4M3", [2, 2], b"\x38\xc0\x01\x7e"), "n": ("F32", [1], b"\0\0\0\0"), **more}
        header, at = {}, 0
        for name, (kind, shape, data) in tensors.items():
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
            at += len(data)
        with open(path, "wb") as to:
            line = json.dumps(header).encode()
            to.write(struct.pack("<Q", len(line)) + line + b"".join(data for _, _, data in tensors.values()))

    file("eight.safetensors", {})
    stowage("shrink", "eight.safetensors", "-o", "sixteen.safetensors", "--dtype", "f16")
    have = read("sixteen.safetensors")[1]
    assert have["l.weight"] == ("F16", [2, 2], [1.0, -2.0, 2.0**-9, 448.0]), have
    for scale in ("l.weight_scale", "l.weight_scale_inv", "l.scale_weight"):
        file("scaled.safetensors", {scale: ("F32", [1], struct.pack("<f", 0.1))})
        stowage("shrink", "scaled.safetensors", "-o", "still.safetensors", "--dtype", "f16")
        kinds = {name: facts[0] for name, facts in read("still.safetensors")[1].items()}
        assert kinds == {"l.weight": "F8_E4M3", "n": "F16", scale: "F32"}, kinds
        os.remove("still.safetensors")


def a_folder_of_several_models_is_named():
    os.makedirs("pipeline/unet")
    write("pipeline/unet/diffusion_pytorch_model.safetensors", {"a.weight": ([2, 2], [1.0] * 4)})
    with open("pipeline/model_index.json", "w") as file:
        file.write("{}")
    assert "pipeline/unet" in stowage("inspect", "pipeline", code=2)
    stowage("inspect", "pipeline/unet")


for check in (
    parts_are_one_model,
    a_layer_with_only_a_bias_is_tied,
    scales_of_a_quantized_model_keep_their_type,
    float8_is_converted_unless_it_has_scales,
    a_folder_of_several_models_is_named,
):
    check()
