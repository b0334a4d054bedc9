"""A model file for the benchmarks: float32 matrices of 32 MiB with small random values."""

import json
import os
import struct

ROWS, COLUMNS = 2048, 4096  # 32 MiB for each tensor


def _block(count):
    """Returns the bytes of that many float32."""
    seed, values = 1, []
    for _ in range(count):
        seed = seed * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        values.append(((seed >> 40) / (1 << 24) - 0.5) * 0.1)
    return struct.pack(f"<{len(values)}f", *values)


def make_adapter(folder, megabytes, rank):
    """Writes a LoRA adapter for every tensor of make()."""
    os.mkdir(folder)
    header, at, body = {}, 0, b""
    for i in range(max(1, megabytes // 32)):
        for word, shape in (("A", [rank, COLUMNS]), ("B", [ROWS, rank])):
            data = _block(shape[0] * shape[1])
            header[f"base_model.model.model.layers.{i}.mlp.up_proj.lora_{word}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
            at, body = at + len(data), body + data
    text = json.dumps(header).encode()
    with open(folder + "/adapter_model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)
    with open(folder + "/adapter_config.json", "w") as file:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank}, file)


def make(path, megabytes):
    """Writes a safetensors file of about that many MB. Returns its size in bytes."""
    each, count = 4 * ROWS * COLUMNS, max(1, megabytes // 32)
    names = [f"model.layers.{i}.mlp.up_proj.weight" for i in range(count)]
    header = json.dumps(
        {n: {"dtype": "F32", "shape": [ROWS, COLUMNS], "data_offsets": [i * each, (i + 1) * each]} for i, n in enumerate(names)}
    ).encode()
    block = _block(1 << 16)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _ in range(count * each // len(block)):
            file.write(block)
    return os.path.getsize(path)
