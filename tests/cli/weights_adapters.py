"""weights_adapters.py STOWAGE: adapters trained with transformers 5, and those that merge refuses or does not know."""

import json
import os
import subprocess
import sys

from files import read, write

STOWAGE = sys.argv[1]
os.mkdir("adapters")
os.chdir("adapters")


def stowage(*words, code=0):
    done = subprocess.run([STOWAGE, *words], capture_output=True, text=True)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def matrix(rows, columns, value=1.0):
    return [rows, columns], [value] * (rows * columns)


def base(name, *tensors):
    write(f"{name}.safetensors", {tensor: matrix(4, 8) for tensor in tensors})


def adapter(name, tensors, **config):
    os.mkdir(name)
    write(f"{name}/adapter_model.safetensors", {f"base_model.model.{tensor}": values for tensor, values in tensors.items()})
    with open(f"{name}/adapter_config.json", "w") as file:
        json.dump({"peft_type": "LORA", "r": 2, "lora_alpha": 2, **config}, file)


def lora(module, a=([2, 8], [0.5] * 16), b=([4, 2], [0.5] * 8)):
    return {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}


def names_of_transformers_5_are_found():
    cases = (
        ("language_model.model.layers.0.q_proj", "model.language_model.layers.0.q_proj"),
        ("model.layers.0.q_proj", "model.language_model.layers.0.q_proj"),
        ("vision_tower.vision_model.layers.0.q_proj", "model.vision_tower.layers.0.q_proj"),
        ("vit.encoder.layer.0.attention.attention.key", "vit.layers.0.attention.k_proj"),
        ("vit.encoder.layer.0.output.dense", "vit.layers.0.mlp.fc2"),
    )
    for i, (old, new) in enumerate(cases):
        base(f"b{i}", f"{old}.weight", "other.weight")
        adapter(f"a{i}", lora(new))
        have = stowage("merge", f"b{i}.safetensors", f"a{i}", "-o", f"m{i}.safetensors")
        assert "1 tensor found under the name that transformers 5 gives it\n" in have, have
        made = read(f"m{i}.safetensors")[1]
        assert made[f"{old}.weight"][2] == [1.5] * 32 and made["other.weight"][2] == [1.0] * 32, made
    # Two that would get the name: neither is taken.
    base("two", "model.layers.0.q_proj.weight", "language_model.model.layers.0.q_proj.weight")
    assert "is this the model" in stowage("merge", "two.safetensors", "a0", "-o", "o.safetensors", code=2)


def refusals_name_the_reason():
    base("plain", "l.weight", "m.out_proj.weight")
    adapter("grouped", lora("l", ([2, 8, 1, 1], [0.5] * 16), ([4, 1, 1, 1], [0.5] * 4)))
    assert "module l is a convolution with groups" in stowage("merge", "plain.safetensors", "grouped", "-o", "o.safetensors", code=1)
    adapter("attention", lora("m.base_layer.out_proj"))
    assert "part of torch.nn.MultiheadAttention" in stowage("merge", "plain.safetensors", "attention", "-o", "o.safetensors", code=1)
    adapter("head", {**lora("l"), "score.weight": matrix(4, 8)}, task_type="SEQ_CLS", modules_to_save=["score"])
    assert "its tensor score.weight (modules_to_save) is not in the base: if it is a head" in stowage("merge", "plain.safetensors", "head", "-o", "o.safetensors", code=2)
    adapter("new", lora("l"), monteclora_config={"x": 1})
    assert "uses monteclora_config, which is not merged here" in stowage("merge", "plain.safetensors", "new", "-o", "o.safetensors", code=1)


def unknown_settings_are_named():
    adapter("unknown", lora("l"), use_quantum=True, later=None, also={}, off=False, revision="main")
    text = "adapter_config.json has settings that are not known here and were ignored: use_quantum; compare"
    assert f"warning: {text}" in stowage("merge", "plain.safetensors", "unknown", "-o", "u.safetensors")
    have = json.loads(stowage("merge", "plain.safetensors", "unknown", "-o", "u.safetensors", "--dry-run", "--json"))["warnings"]
    assert len(have) == 1 and have[0].startswith(text), have
    adapter("known", lora("l"), lora_dropout=0.1, bias="none", runtime_config={"x": 1}, megatron_core="megatron.core", qalora_group_size=16)
    assert "warning" not in stowage("merge", "plain.safetensors", "known", "-o", "k.safetensors")


for check in (names_of_transformers_5_are_found, refusals_name_the_reason, unknown_settings_are_named):
    check()
