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


WIDTHS = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E8M0": 1, "U8": 1, "I8": 1, "I16": 2, "I32": 4, "I64": 8, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1}


def typed(path, tensors, **config):
    """Writes a folder: name -> (type, shape). Every byte is 0x38."""
    os.mkdir(path)
    header, at = {}, 0
    for name, (kind, *shape) in tensors.items():
        count = WIDTHS[kind]
        for n in shape:
            count *= n
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + count]}
        at += count
    head = json.dumps(header).encode()
    with open(f"{path}/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + b"\x38" * at)
    with open(f"{path}/config.json", "w") as file:
        json.dump(config, file)


def types_in(path):
    with open(f"{path}/model.safetensors", "rb") as file:
        head = file.read(struct.unpack("<Q", file.read(8))[0])
    return {name: facts["dtype"] for name, facts in json.loads(head).items() if name != "__metadata__"}


def layers_of_every_method_keep_their_parts():
    layers = {
        "fp8": {"weight": ("F8_E4M3", 8, 8), "scale": ("F8_E8M0", 1, 1)},
        "modelopt": {"weight": ("U8", 8, 4), "weight_scale": ("F8_E4M3", 8, 1), "weight_scale_2": ("F32",), "input_scale": ("F32",)},
        "hqq": {"W_q": ("U8", 4, 8), "scale": ("F32", 8, 1), "zero": ("F32", 8, 1)},
        "quanto": {"weight._data": ("I8", 8, 8), "weight._scale": ("F32", 8, 1), "input_scale": ("F32",), "output_scale": ("F32",)},
        "torchao": {"weight_qdata": ("I8", 8, 8), "weight_scale": ("F32", 8, 1), "weight_zero_point": ("F32", 8, 1)},
        "eetq": {"weight": ("I8", 8, 8), "weight_scales": ("F32", 8)},
        "aqlm": {"codes": ("I16", 8, 2), "codebooks": ("F32", 1, 4), "scales": ("F32", 8)},
        "higgs": {"weight": ("U8", 4, 8), "tables": ("F32", 4, 2), "tables2": ("F32", 4, 2)},
        "exl2": {"q_weight": ("I32", 1, 8), "q_scale_max": ("F32", 1)},
        "vptq": {"indices": ("I32", 1, 8), "centroids.weight": ("F32", 8, 8), "weight_bias": ("F32", 8)},
        "gptq": {"qweight": ("I32", 1, 8), "scales": ("F32", 1, 8), "g_idx": ("I32", 8)},
    }
    for method, parts in layers.items():
        layer = {f"layers.0.q_proj.{name}": kind for name, kind in parts.items()}
        rest = {"layers.0.down_proj.weight": ("F32", 8, 8), "norm.weight": ("F32", 8), "layers.0.q_proj.bias": ("F32", 8)}
        typed(f"q-{method}", {**layer, **rest}, quantization_config={"quant_method": method})
        stowage("shrink", f"q-{method}", "-o", f"{method}.half", "--dtype", "bf16")
        have = types_in(f"{method}.half")
        assert have == {**{name: kind[0] for name, kind in layer.items()}, **{name: "BF16" for name in rest}}, (method, have)
        for kind in ("int8", "fp8"):
            have = stowage("shrink", f"q-{method}", "-o", "no", "--quantize", kind, code=1)
            assert f"already quantized, at least in part ({method})" in have and "before quantizing" in have, have
        assert not os.path.exists("no")
        os.mkdir(f"{method}.lora")
        write(f"{method}.lora/adapter_model.safetensors", {"base_model.model.layers.0.q_proj.lora_A.weight": ([1, 8], [1.0] * 8), "base_model.model.layers.0.q_proj.lora_B.weight": ([8, 1], [1.0] * 8)})
        with open(f"{method}.lora/adapter_config.json", "w") as file:
            json.dump({"peft_type": "LORA", "r": 1, "lora_alpha": 1}, file)
        assert "quantized" in stowage("merge", f"q-{method}", f"{method}.lora", "-o", "no", code=1), method
    # What the config says of a model without such layers is out of date.
    typed("dense", {"layers.0.q_proj.weight": ("F32", 8, 8), "position_ids": ("I64", 8)}, quantization_config={"quant_method": "awq"})
    stowage("shrink", "dense", "-o", "dense8", "--quantize", "fp8")


def other_float8_is_converted():
    typed("fnuz", {"a.weight": ("F8_E4M3FNUZ", 2, 2), "b.weight": ("F8_E5M2FNUZ", 2, 2)})
    stowage("shrink", "fnuz", "-o", "plain32", "--dtype", "f32")
    made = read("plain32/model.safetensors")[1]
    assert made["a.weight"][2] == [0.5] * 4 and made["b.weight"][2] == [0.25] * 4, made


def an_infinite_limit_is_no_damage():
    write("limit.safetensors", {"input_max": ([], [float("inf")]), "w": ([2], [1.0, 2.0])})
    stowage("shrink", "limit.safetensors", "-o", "limit16.safetensors", "--dtype", "f16")
    assert read("limit16.safetensors")[1]["input_max"][2] == [float("inf")]


def modules_of_sentence_transformers_are_carried_over():
    os.makedirs("st/2_Dense"), os.makedirs("st/original")
    layer = {"linear.weight": ([4, 4], [1.0] * 16)}
    for path in ("st", "st/2_Dense", "st/original"):
        write(f"{path}/model.safetensors", layer)
    with open("st/modules.json", "w") as file:
        json.dump([{"idx": 0, "path": ""}, {"idx": 1, "path": "2_Dense"}], file)
    have = stowage("shrink", "st", "-o", "st16", "--dtype", "f16")
    assert read("st16/2_Dense/model.safetensors")[1]["linear.weight"][0] == "F32" and not os.path.exists("st16/original/model.safetensors")
    assert "left out: 1 other file with weights\n" in have, have


def parts_of_pipelines_keep_their_names():
    stem = "diffusion_pytorch_model"
    os.mkdir("part")
    write(f"part/{stem}.safetensors", {f"l.{i}.weight": ([64, 64], [1.0] * 4096) for i in range(3)})
    with open("part/config.json", "w") as file:
        file.write('{"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.30"}')
    stowage("shrink", "part", "-o", "part.cut", "--shard", "20K")
    names = [f"{stem}-0000{i}-of-00003.safetensors" for i in (1, 2, 3)] + [f"{stem}.safetensors.index.json"]
    assert set(names) < set(os.listdir("part.cut")), os.listdir("part.cut")
    stowage("shrink", "part.cut", "-o", "part.half", "--dtype", "bf16")
    assert sorted(os.listdir("part.half")) == sorted(os.listdir("part.cut")), os.listdir("part.half")
    stowage("shrink", "part.cut", "-o", "part.one", "--join")
    assert sorted(os.listdir("part.one")) == sorted(os.listdir("part")), os.listdir("part.one")


def a_long_list_of_tensors_says_how_much_it_needs():
    write("many.safetensors", {f"layer.{i}.w": ([1], [1.0]) for i in range(20000)})
    have = stowage("shrink", "many.safetensors", "-o", "many16.safetensors", "--dtype", "f16", "--memory", "16M", code=1)
    times = int(have.split("raise --memory ")[1].split()[0])
    stowage("shrink", "many.safetensors", "-o", "many16.safetensors", "--dtype", "f16", "--memory", f"{16 * times}M")


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
    layers_of_every_method_keep_their_parts,
    other_float8_is_converted,
    an_infinite_limit_is_no_damage,
    modules_of_sentence_transformers_are_carried_over,
    parts_of_pipelines_keep_their_names,
    a_long_list_of_tensors_says_how_much_it_needs,
    a_folder_of_several_models_is_named,
):
    check()
