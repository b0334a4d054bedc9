"""weights_counts.py STOWAGE: inspect counts the parameters of the original model, whatever packs them."""

import json
import os
import struct
import subprocess
import sys

from files import write

STOWAGE = sys.argv[1]
os.mkdir("counts")
os.chdir("counts")
WIDTHS = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E8M0": 1, "U8": 1, "I8": 1, "I16": 2, "I32": 4, "U32": 4, "I64": 8}
ROWS, COLUMNS = 64, 128


def stowage(*words):
    done = subprocess.run([STOWAGE, *words], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def save(path, tensors, config):
    """Writes a folder: name -> (type, *shape), or (type, *shape, bytes)."""
    os.mkdir(path)
    header, body = {}, b""
    for name, (kind, *shape) in tensors.items():
        data = shape.pop() if shape and isinstance(shape[-1], bytes) else None
        size = WIDTHS[kind]
        for side in shape:
            size *= side
        data = b"\x38" * size if data is None else data
        assert len(data) == size, name
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + size]}
        body += data
    head = json.dumps(header).encode()
    with open(f"{path}/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + body)
    with open(f"{path}/config.json", "w") as file:
        json.dump(config, file)


def shape_of(*sides):
    return ("I64", len(sides), struct.pack(f"<{len(sides)}q", *sides))


R, C, N = ROWS, COLUMNS, ROWS * COLUMNS
STATE = json.dumps({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [R, C]}).encode()
# Each layer was ROWS x COLUMNS; "" before a name that is no part of a layer's.
LAYERS = {
    "ct-int8": ({".weight_packed": ("I32", R, C // 4), ".weight_scale": ("F32", R, 1), ".weight_shape": shape_of(R, C)}, {}),
    "ct-int4": ({".weight_packed": ("I32", R, C // 8), ".weight_scale": ("BF16", R, 4), ".weight_zero_point": ("I32", R // 8, 4), ".weight_shape": shape_of(R, C), ".weight_g_idx": ("I32", C)}, {}),
    "ct-3bit": ({".weight_packed": ("I32", R, 12), ".weight_scale": ("BF16", R, 1), ".weight_shape": shape_of(R, C)}, {}),
    "ct-naive": ({".weight": ("I8", R, C), ".weight_scale": ("BF16", R, 1), ".input_scale": ("BF16", 1)}, {}),
    "ct-fp8": ({".weight": ("F8_E4M3", R, C), ".weight_scale": ("BF16", R, 1)}, {}),
    "ct-nvfp4": ({".weight_packed": ("U8", R, C // 2), ".weight_scale": ("F8_E4M3", R, C // 16), ".weight_global_scale": ("F32", 1), ".input_global_scale": ("F32", 1)}, {}),
    "ct-mxfp4": ({".weight_packed": ("U8", R, C // 2), ".weight_scale": ("U8", R, C // 32)}, {}),
    "ct-mxfp6": ({".weight_packed": ("U8", R, C * 3 // 4), ".weight_scale": ("U8", R, C // 32)}, {}),
    "mxfp8": ({".weight": ("F8_E4M3", R, C), ".weight_scale": ("U8", R, C // 32)}, {}),
    "modelopt-nvfp4": ({".weight": ("U8", R, C // 2), ".weight_scale": ("F8_E4M3", R, C // 16), ".weight_scale_2": ("F32",), ".input_scale": ("F32",)}, {}),
    "modelopt-w4a16": ({".weight": ("U8", R // 2, C), ".weight_scale": ("BF16", R, 1), ".pre_quant_scale": ("BF16", C)}, {}),
    "deepseek-fp8": ({".weight": ("F8_E4M3", R, C), ".weight_scale_inv": ("F32", 1, 1)}, {"quant_method": "fp8"}),
    "fp4-in-int8": ({".weight": ("I8", R, C // 2), ".scale": ("F8_E8M0", R, C // 32)}, {"quant_method": "fp8"}),
    "gpt-oss": ({"_blocks": ("U8", 2, R // 2, C // 32, 16), "_scales": ("U8", 2, R // 2, C // 32)}, {"quant_method": "mxfp4"}),
    "stacked-nvfp4": ({"": ("U8", 2, R // 2, C // 2), "_weight_scale": ("F8_E4M3", 2, R // 2, C // 16), "_weight_scale_2": ("F32", 2), "_input_scale": ("F32", 2)}, {}),
    "stacked-int8": ({"": ("I8", 2, R // 2, C), "_scale": ("F32", 2, R // 2, 1)}, {}),
    "stacked-fp8": ({"": ("F8_E4M3", 2, R // 2, C), "_scale_inv": ("F32", 2, 1, 1)}, {"quant_method": "fp8"}),
    "gptq": ({".qweight": ("I32", C // 8, R), ".qzeros": ("I32", 1, R // 8), ".scales": ("F16", 1, R), ".g_idx": ("I32", C)}, {"quant_method": "gptq", "bits": 4}),
    "gptq-3": ({".qweight": ("I32", C * 3 // 32, R), ".qzeros": ("I32", 2, R * 3 // 32), ".scales": ("F16", 2, R), ".g_idx": ("I32", C)}, {"quant_method": "gptq", "bits": 4}),
    "gptq-8-no-zeros": ({".qweight": ("I32", C // 4, R), ".scales": ("F16", 1, R)}, {"quant_method": "gptq", "bits": 8}),
    "awq": ({".qweight": ("I32", C, R // 8), ".qzeros": ("I32", 2, R // 8), ".scales": ("F16", 2, R)}, {"quant_method": "awq", "bits": 4}),
    "bnb-nf4": ({".weight": ("U8", N // 2, 1), ".weight.absmax": ("U8", N // 64), ".weight.quant_map": ("F32", 16), ".weight.nested_absmax": ("F32", 1), ".weight.nested_quant_map": ("F32", 256), ".weight.quant_state.bitsandbytes__nf4": ("U8", len(STATE), STATE)}, {"quant_method": "bitsandbytes"}),
    "bnb-int8": ({".weight": ("I8", R, C), ".SCB": ("F32", R), ".weight_format": ("U8",)}, {"quant_method": "bitsandbytes"}),
    "hqq": ({".W_q": ("U8", N // 2, 1), ".scale": ("F16", N // 64, 1), ".zero": ("F16", N // 64, 1), ".shape": shape_of(R, C), ".nbits": ("I32", 1), ".group_size": ("I32", 1)}, {"quant_method": "hqq"}),
    "hqq-3": ({".W_q": ("I32", 820, 1), ".scale": ("F16", N // 64, 1), ".zero": ("F16", N // 64, 1), ".shape": shape_of(R, C)}, {"quant_method": "hqq"}),
    "mlx-4": ({".weight": ("U32", R, C // 8), ".scales": ("BF16", R, 2), ".biases": ("BF16", R, 2)}, {"bits": 4, "group_size": 64}),
    "mlx-8": ({".weight": ("U32", R, C // 4), ".scales": ("BF16", R, 2), ".biases": ("BF16", R, 2)}, {"bits": 4, "group_size": 32, "layers.0.q": {"bits": 8, "group_size": 64}}),
    "mlx-mxfp4": ({".weight": ("U32", R, C // 8), ".scales": ("U8", R, 4)}, None),
    "mlx-no-config": ({".weight": ("U32", R, C // 8), ".scales": ("F16", R, 2), ".biases": ("F16", R, 2)}, None),
    "quanto-8": ({".weight._data": ("I8", R, C), ".weight._scale": ("F32", R, 1), ".input_scale": ("F32",), ".output_scale": ("F32",)}, {"quant_method": "quanto"}),
    "quanto-4": ({".weight._data._data": ("U8", R // 2, C), ".weight._scale": ("F32", R, 1), ".weight._shift": ("F32", R, 1)}, {"quant_method": "quanto", "weights": "int4"}),
    "torchao-8": ({"._weight_qdata": ("I8", R, C), "._weight_scale": ("BF16", R, 1), "._weight_zero_point": ("I8", R, 1)}, {"quant_method": "torchao"}),
    "torchao-4": ({"._weight_qdata": ("I8", R, C // 2), "._weight_scale": ("BF16", 1, R), "._weight_zero_point": ("BF16", 1, R)}, {"quant_method": "torchao"}),
    "torchao-tiles": ({"._weight_qdata": ("I32", R // 8, C // 128, 32, 4), "._weight_scale_and_zero": ("BF16", 2, R, 2)}, {"quant_method": "torchao"}),
    "torchao-fp8": ({"._weight_qdata": ("F8_E4M3", R, C), "._weight_scale": ("F32", R, 1)}, {"quant_method": "torchao"}),
    "eetq": ({".weight": ("I8", C, R), ".weight_scales": ("F16", R)}, {"quant_method": "eetq"}),
    "aqlm": ({".codes": ("I16", R, C // 8, 1), ".codebooks": ("F16", 1, 65536, 1, 8), ".scales": ("F16", R, 1, 1, 1)}, {"quant_method": "aqlm"}),
    "vptq": ({".indices": ("I32", 1, R // 8, 48), ".centroids.weight": ("BF16", 1, 2048), ".res_centroids.weight": ("BF16", 1, 2048), ".weight_scale": ("BF16", C), ".weight_bias": ("BF16", C), ".perm": ("I16", C)}, {"quant_method": "vptq", "config_for_layers": {"layers.0.q": {"in_features": C, "out_features": R}}}),
    "exl2": ({".q_weight": ("I32", C // 8, R), ".q_invperm": ("I16", C), ".q_scale": ("I32", 4, R // 8), ".q_scale_max": ("F16", 4), ".q_groups": ("I16", 8)}, {"quant_method": "exl2"}),
    "exl3": ({".trellis": ("I16", C // 16, R // 16, 64), ".suh": ("F16", C), ".svh": ("F16", R)}, {"quant_method": "exl3"}),
    "spqr": ({".dense_weights": ("I64", N // 16), ".row_offsets": ("I32", R + 1), ".col_vals": ("I32", 8), ".in_perm": ("I16", C)}, {"quant_method": "spqr"}),
    "bitnet": ({".weight": ("U8", R // 4, C), ".weight_scale": ("BF16", 1)}, {"quant_method": "bitnet"}),
    "higgs": ({".weight": ("I16", R // 4, C), ".scales": ("F16", R, 1), ".tables": ("F16", 16, 2), ".tables2": ("F32", 16, 16, 2)}, {"quant_method": "higgs", "bits": 4}),
    "fp-quant": ({".qweight": ("U8", R, C // 2), ".scales": ("U8", R, C // 32), ".weight_global_scale": ("F32", 1), ".forward_hadamard_matrix": ("BF16", 32, 32)}, {"quant_method": "fp_quant"}),
    "comfy-fp8": ({".weight": ("F8_E4M3", R, C), ".scale_weight": ("F32",), ".scale_input": ("F32",)}, {}),
    "plain-fp8": ({".weight": ("F8_E4M3", R, C)}, {}),
}
# What is beside them in every model, and counts: a scale that is a parameter, too. Integers that are none.
REST = {"layers.0.q.bias": ("F32", R), "layers.0.norm.weight": ("BF16", C), "logit_scale": ("F32",), "layers.0.ls1.scale": ("F32", C), "position_ids": ("I64", 1, 64), "index": ("I32", 8, 8), "embed.weight": ("BF16", 16, C)}


def packed_layers_count_as_what_they_hold():
    for name, (parts, method) in LAYERS.items():
        stacked = "" in parts or "_blocks" in parts
        layer = "layers.0.experts.gate_up_proj" if stacked else "layers.0.q"
        rest = {**REST, **({"layers.0.experts.gate_up_proj_bias": ("F32", 2, R)} if stacked else {})}
        key = "quantization" if name.startswith("mlx") else "quantization_config"
        save(name, {layer + part: facts for part, facts in parts.items()} | rest, {key: method} if method else {})
        want = N + R + C + 1 + C + 16 * C + (2 * R if stacked else 0)
        have = json.loads(stowage("inspect", name, "--json"))
        assert have["parameters"] == want, (name, have["parameters"], want)
        assert sum(one["parameters"] for one in have["layers"]) == want, name


def what_shrink_writes_counts_as_before():
    count = 64 * 64 * 2 + 64
    tensors = {f"layers.{i}.q_proj.weight": ([64, 64], [(k % 7 - 3) / 8 for k in range(4096)]) for i in range(2)} | {"norm.weight": ([64], [1.0] * 64)}
    os.mkdir("plain")
    write("plain/model.safetensors", tensors)
    with open("plain/config.json", "w") as file:
        file.write("{}")
    for i, words in enumerate((["--quantize", "int8"], ["--quantize", "fp8"], ["--prune", "50%", "--sparse"], ["--prune", "2:4", "--sparse"])):
        stowage("shrink", "plain", "-o", f"small{i}", *words)
        assert json.loads(stowage("inspect", f"small{i}", "--json"))["parameters"] == count, words


def impossible_shapes_are_not_believed():
    for i, sides in enumerate(((2**31, 2**31), (-1, -1), (2**62, 4), (0, 8))):
        save(f"wrong{i}", {"q.weight_packed": ("I32", R, C // 4), "q.weight_shape": shape_of(*sides), "q.weight_scale": ("F32", R, 1)}, {"quantization_config": {"config_groups": {"group_0": {"input_activations": {"num_bits": 4}, "weights": {"num_bits": 8}}}}})
        assert json.loads(stowage("inspect", f"wrong{i}", "--json"))["parameters"] == N, sides


for check in (packed_layers_count_as_what_they_hold, what_shrink_writes_counts_as_before, impossible_shapes_are_not_believed):
    check()
