"""stage.py: the folder that examples of the documents run in: small files under the names that the examples use.

Written with the standard library only. `stage(folder, root, stowage)` makes it.
"""
import array
import gzip
import json
import os
import random
import shutil
import struct
import subprocess
import sys


SNAPSHOT = "oom_gpt_15gib_stacks.pickle.gz"  # small, so that examples are quick


def npy(path, kind, shape, values):
    """An .npy file; kind: 'f4', 'f8' or 'i8'."""
    head = repr({"descr": "<" + kind, "fortran_order": False, "shape": tuple(shape)})
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        file.write(array.array({"f4": "f", "f8": "d", "i8": "q"}[kind], values).tobytes())


def numbers(count, seed=1):
    made = random.Random(seed)
    return [made.gauss(0, 0.02) for _ in range(count)]


def safetensors(path, tensors):
    """tensors: {name: shape}, float32."""
    head, data = {}, b""
    for seed, (name, shape) in enumerate(tensors.items()):
        count = 1
        for extent in shape:
            count *= extent
        piece = array.array("f", numbers(count, seed)).tobytes()
        head[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def gguf(path, tensors):
    """tensors: {name: shape}, float16, rows last."""
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()
    infos, data = b"", b""
    for seed, (name, shape) in enumerate(tensors.items()):
        count = 1
        for extent in shape:
            count *= extent
        data += b"\0" * (-len(data) % 32)
        infos += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", extent) for extent in reversed(shape))
        infos += struct.pack("<IQ", 1, len(data))
        data += b"".join(struct.pack("<e", value) for value in numbers(count, seed))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 1) + text("general.architecture") + struct.pack("<I", 8) + text("llama") + infos
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + data)


LAYER = {"self_attn.q_proj": (64, 64), "self_attn.k_proj": (64, 64), "self_attn.v_proj": (64, 64), "self_attn.o_proj": (64, 64),
         "mlp.gate_proj": (128, 64), "mlp.up_proj": (128, 64), "mlp.down_proj": (64, 128)}
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
          "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256, "max_position_embeddings": 4096, "torch_dtype": "float32"}


def models():
    weights = {"model.embed_tokens.weight": (256, 64), "model.norm.weight": (64,), "lm_head.weight": (256, 64)}
    weights.update({f"model.layers.0.{name}.weight": shape for name, shape in LAYER.items()})
    weights.update({"model.layers.0.input_layernorm.weight": (64,), "model.layers.0.post_attention_layernorm.weight": (64,)})
    safetensors("Llama-3-8B/model.safetensors", weights)
    with open("Llama-3-8B/config.json", "w") as file:
        json.dump(CONFIG, file)
    safetensors("base.safetensors", weights)
    safetensors("model.safetensors", {"weight": (4, 8), "bias": (4,)})
    for folder in ("adapter", "style", "task"):
        name = "base_model.model.model.layers.0.self_attn.q_proj"
        safetensors(f"{folder}/adapter_model.safetensors", {f"{name}.lora_A.weight": (4, 64), f"{name}.lora_B.weight": (64, 4)})
        with open(f"{folder}/adapter_config.json", "w") as file:
            json.dump({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}, file)
    gguf("model-f16.gguf", {"token_embd.weight": (1024, 256), "blk.0.attn_q.weight": (256, 256), "blk.0.attn_norm.weight": (256,)})
    shutil.copy("model-f16.gguf", "model.gguf")
    shutil.copy("model-f16.gguf", "model-q8.gguf")


def tables():
    made = random.Random(7)
    with open("train.csv", "w") as file:
        file.write(",".join([f"x{i}" for i in range(20)] + ["label"]) + "\n")
        for _ in range(1500):
            row = [made.uniform(-1, 1) for _ in range(20)]
            file.write(",".join(f"{x:.4f}" for x in row) + f",{int(row[0] + row[1] > 0)}\n")
    with open("table.csv", "w") as file:
        file.write("a,b,city\n" + "".join(f"{i % 100},{i * 3},{'north' if i % 3 else 'south'}\n" for i in range(600)))
    for copy in "file.csv", "part-1.csv", "part-2.csv":
        shutil.copy("table.csv", copy)
    with open("reviews.csv", "w") as file:
        file.write("review,uuid,city\n" + "".join(f"{'good ' * (i % 9)}number {i},{i:08x}-0000-4000-8000-{i * 7:012x},{'Oslo' if i % 2 else 'Lima'}\n" for i in range(1200)))
    with open("log.jsonl", "w") as file:
        file.write("".join(json.dumps({"step": i, "loss": 1 / (i + 1)}) + "\n" for i in range(100)))
    with open("table.csv", "rb") as plain, gzip.open("table.csv.gz", "wb") as file:
        file.write(plain.read())
    npy("train.npy", "f8", (2000, 21), [made.random() for _ in range(2000 * 21)])
    npy("features.npy", "f4", (2000, 8), [i % 64 for i in range(16000)])
    npy("labels.npy", "i8", (2000,), [i % 10 for i in range(2000)])
    npy("x.npy", "f8", (100,), [float(i) for i in range(100)])
    with open("weights.bin", "wb") as file:
        file.write(array.array("f", numbers(64000)).tobytes())
    import zipfile
    with zipfile.ZipFile("train.npz", "w") as file:
        file.write("features.npy")
        file.write("labels.npy")


def traces(root, stowage):
    samples = os.path.join(root, "tests", "samples")
    with gzip.open(os.path.join(samples, SNAPSHOT)) as source, open("snapshot.pickle", "wb") as file:
        file.write(source.read())
    for name in ("before.pickle", "after.pickle"):
        shutil.copy("snapshot.pickle", name)
    shutil.copy(os.path.join(samples, SNAPSHOT), "snapshot.pickle.gz")
    subprocess.run([stowage, "convert", "snapshot.pickle.gz", "trace.stow"], check=True, capture_output=True)
    shutil.copy(os.path.join(samples, "touches", "token.stow"), "run.stow")
    with open(os.path.join(root, "tests", "fuzz", "corpus", "rmm", "times"), "rb") as plain, gzip.open("log.csv.gz", "wb") as file:
        file.write(plain.read())
    message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB of which 1.12 GiB is free."
    with open("error.txt", "w") as file:
        file.write(message + "\n")
    output = {"output_type": "error", "ename": "OutOfMemoryError", "evalue": message, "traceback": [message]}
    cell = {"cell_type": "code", "metadata": {}, "execution_count": 1, "source": "train()", "outputs": [output]}
    with open("notebook.ipynb", "w") as file:
        json.dump({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, file)


def programs():
    with open("train.py", "w") as file:
        file.write("""import os, time
rows = bytearray(30 << 20)
time.sleep(0.4)  # long enough to be sampled
if os.environ.get("TRAIN_FAILS"):
    raise MemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
def make():
    import torch
    return torch.nn.Linear(64, 64), lambda: torch.randn(8, 64)
""")
    shutil.copy("train.py", "program.py")
    with open("program", "w") as file:
        file.write("#!/bin/sh\nexit 0\n")
    os.chmod("program", 0o755)
    os.makedirs("bin")
    for name in ("bin/python", "bin/python3"):  # not links: a virtual environment is found by the path of its Python
        with open(name, "w") as file:
            file.write(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        os.chmod(name, 0o755)


def stage(folder, root, stowage):
    os.makedirs(folder)
    os.chdir(folder)
    tables()
    models()
    traces(root, stowage)
    programs()
