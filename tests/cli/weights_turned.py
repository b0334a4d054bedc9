"""weights_turned.py STOWAGE: layers stored as inputs x outputs (the Conv1D of GPT-2) in merge and shrink. Run by weights.sh."""

import json
import math
import os
import random
import subprocess
import sys

from files import matrix, near, read, write

IN, OUT, RANK = 8, 24, 2


def stowage(*words):
    return subprocess.run([sys.argv[1], *words], capture_output=True, text=True)


def base():
    vector = lambda n: ([n], [random.gauss(0, 0.02) for _ in range(n)])  # noqa: E731
    return {"h.0.attn.c_attn.weight": matrix(IN, OUT), "h.0.attn.c_attn.bias": vector(OUT),
            "h.0.attn.c_proj.weight": matrix(IN, IN), "h.0.attn.c_proj.bias": vector(IN),
            "h.0.mlp.c_proj.weight": matrix(OUT, IN), "h.0.mlp.c_proj.bias": vector(IN),
            "lm_head.weight": matrix(40, IN)}


def adapter(folder, modules, magnitude=None, bias=False, **more):
    """Writes an adapter for modules of `name: (inputs, outputs)`; returns its tensors."""
    os.mkdir(folder)
    tensors = {}
    for name, (inputs, outputs) in modules.items():
        key = f"base_model.model.{name}."
        tensors[key + "lora_A.weight"] = matrix(RANK, inputs)
        tensors[key + "lora_B.weight"] = matrix(outputs, RANK)
        if magnitude:
            tensors[key + "lora_magnitude_vector"] = ([outputs], [magnitude + i for i in range(outputs)])
        if bias:
            tensors[key + "lora_B.bias"] = ([outputs], [random.gauss(0, 1) for _ in range(outputs)])
    write(folder + "/adapter_model.safetensors", tensors)
    with open(folder + "/adapter_config.json", "w") as f:
        json.dump({"peft_type": "LORA", "r": RANK, "lora_alpha": 6, **more}, f)
    return read(folder + "/adapter_model.safetensors")[1]


def merged(before, tensors, name, turned, dora=False):
    """The merge of one weight in float64."""
    key = f"base_model.model.{name}."
    (_, (_, inputs), a), (_, (outputs, _), b) = tensors[key + "lora_A.weight"], tensors[key + "lora_B.weight"]
    _, (rows, columns), values = before[name + ".weight"]
    assert (rows, columns) == ((inputs, outputs) if turned else (outputs, inputs))
    at = lambda o, i: i * columns + o if turned else o * columns + i  # noqa: E731
    new = list(values)
    for o in range(outputs):
        for i in range(inputs):
            new[at(o, i)] += 3 * sum(b[o * RANK + k] * a[k * inputs + i] for k in range(RANK))
        if dora:
            factor = tensors[key + "lora_magnitude_vector"][2][o] / math.sqrt(sum(new[at(o, i)] ** 2 for i in range(inputs)))
            for i in range(inputs):
                new[at(o, i)] *= factor
    return new


def same(out, name, want):
    have = read(out)[1][name][2]
    assert all(near(x, y) for x, y in zip(have, want, strict=True)), name


write("gpt2.safetensors", base())
before = read("gpt2.safetensors")[1]

# DoRA scales the columns of such a layer.
tensors = adapter("dora", {"h.0.attn.c_attn": (IN, OUT)}, magnitude=1, use_dora=True, fan_in_fan_out=True)
done = stowage("merge", "gpt2.safetensors", "dora", "-o", "dora.safetensors", "--memory", "32M")
assert done.returncode == 0, done.stderr
same("dora.safetensors", "h.0.attn.c_attn.weight", merged(before, tensors, "h.0.attn.c_attn", True, dora=True))

# One fan_in_fan_out for layers of both kinds: the biases show which is which, also for a square matrix.
for number, word in enumerate((False, True)):
    tensors = adapter(f"both{number}", {"h.0.attn.c_proj": (IN, IN), "lm_head": (IN, 40)}, fan_in_fan_out=word)
    done = stowage("merge", "gpt2.safetensors", f"both{number}", "-o", f"both{number}.safetensors")
    assert done.returncode == 0, done.stderr
    same(f"both{number}.safetensors", "h.0.attn.c_proj.weight", merged(before, tensors, "h.0.attn.c_proj", True))
    same(f"both{number}.safetensors", "lm_head.weight", merged(before, tensors, "lm_head", False))

# A model of both kinds (ViT + GPT-2), for which PEFT saves fan_in_fan_out: its Linear layers are never transposed, its Conv1D always.
def folder(name, tensors, config):
    os.mkdir(name)
    write(name + "/model.safetensors", tensors)
    if config:
        with open(name + "/config.json", "w") as f:
            json.dump(config, f)
    return read(name + "/model.safetensors")[1]


vector = lambda n: ([n], [random.gauss(0, 0.02) for _ in range(n)])  # noqa: E731
query, cross = "encoder.encoder.layer.0.attention.attention.query", "decoder.transformer.h.0.crossattention.q_attn"
c_attn = "decoder.transformer.h.0.attn.c_attn"
tensors = {query + ".weight": matrix(IN, IN), query + ".bias": vector(IN), cross + ".weight": matrix(IN, IN), cross + ".bias": vector(IN),
           c_attn + ".weight": matrix(IN, OUT), c_attn + ".bias": vector(OUT)}
pair = {"model_type": "vision-encoder-decoder", "encoder": {"model_type": "vit"}, "decoder": {"model_type": "gpt2"}}
mixed = folder("mixed", tensors, pair)
modules = {query: (IN, IN), cross: (IN, IN), c_attn: (IN, OUT)}
for number, (word, dora) in enumerate(((True, False), (False, False), (True, True))):
    change = adapter(f"mixed{number}", modules, magnitude=1 if dora else None, bias=True, lora_bias=True, use_dora=dora, fan_in_fan_out=word)
    done = stowage("merge", "mixed", f"mixed{number}", "-o", f"mixed-out{number}")
    assert done.returncode == 0, done.stderr
    for name in modules:
        same(f"mixed-out{number}/model.safetensors", name + ".weight", merged(mixed, change, name, name != query, dora))

# One architecture without Conv1D; one whose part is not known; one that is not known.
q_proj = "model.layers.0.self_attn.q_proj"
llama = folder("llama", {q_proj + ".weight": matrix(IN, IN)}, {"model_type": "llama"})
change = adapter("square", {q_proj: (IN, IN)}, fan_in_fan_out=True)
done = stowage("merge", "llama", "square", "-o", "llama-out")
assert done.returncode == 0, done.stderr
same("llama-out/model.safetensors", q_proj + ".weight", merged(llama, change, q_proj, False))
folder("bare", {q_proj + ".weight": matrix(IN, IN)}, None)
folder("remote", {q_proj + ".weight": matrix(IN, IN)}, {"model_type": "mine", "auto_map": {"AutoModel": "mine.Mine"}})
for base_folder in ("bare", "remote"):
    done = stowage("merge", base_folder, "square", "-o", "no")
    assert done.returncode == 1 and "is square" in done.stderr and "fan_in_fan_out" in done.stderr, done.stderr
folder("unclear", {"tail.c_proj.weight": matrix(IN, IN)}, pair)
adapter("tail", {"tail.c_proj": (IN, IN)}, fan_in_fan_out=False)
done = stowage("merge", "unclear", "tail", "-o", "no")
assert done.returncode == 1 and "is square" in done.stderr, done.stderr

# The bias of lora_B is added to that of the layer.
tensors = adapter("bias", {"h.0.attn.c_attn": (IN, OUT)}, bias=True, lora_bias=True)
done = stowage("merge", "gpt2.safetensors", "bias", "-o", "bias.safetensors")
assert done.returncode == 0, done.stderr
same("bias.safetensors", "h.0.attn.c_attn.bias",
     [x + 3 * y for x, y in zip(before["h.0.attn.c_attn.bias"][2], tensors["base_model.model.h.0.attn.c_attn.lora_B.bias"][2])])
adapter("headless", {"lm_head": (IN, 40)}, bias=True, lora_bias=True)
done = stowage("merge", "gpt2.safetensors", "headless", "-o", "no.safetensors")
assert done.returncode == 2 and "lm_head.bias" in done.stderr, done.stderr

# compressed-tensors reads only linear layers.
for words in (["--quantize", "int8"], ["--quantize", "fp8", "--include", "*c_attn*"]):
    done = stowage("shrink", "gpt2.safetensors", "-o", "no.safetensors", *words)
    assert done.returncode == 2 and "Conv1D" in done.stderr, done.stderr
done = stowage("shrink", "gpt2.safetensors", "-o", "pruned.safetensors", "--prune", "2:4", "--sparse")
assert done.returncode == 0 and read("pruned.safetensors")[1].keys() == before.keys(), done.stderr

# A quantized base is named.
write("plain.safetensors", {"h.0.q_proj.weight": matrix(IN, 64)})
adapter("plain", {"h.0.q_proj": (64, IN)})
assert stowage("shrink", "plain.safetensors", "-o", "int8.safetensors", "--quantize", "int8").returncode == 0
done = stowage("merge", "int8.safetensors", "plain", "-o", "no.safetensors")
assert done.returncode == 1 and "quantized" in done.stderr, done.stderr
