"""A model file for the benchmarks: float32 matrices of 32 MiB with small random values."""

import json
import os
import struct

ROWS, COLUMNS = 2048, 4096  # 32 MiB for each tensor


def make(path, megabytes):
    """Writes a safetensors file of about that many MB. Returns its size in bytes."""
    each, count = 4 * ROWS * COLUMNS, max(1, megabytes // 32)
    names = [f"model.layers.{i}.mlp.up_proj.weight" for i in range(count)]
    header = json.dumps(
        {n: {"dtype": "F32", "shape": [ROWS, COLUMNS], "data_offsets": [i * each, (i + 1) * each]} for i, n in enumerate(names)}
    ).encode()
    seed, values = 1, []
    for _ in range(1 << 16):
        seed = seed * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        values.append(((seed >> 40) / (1 << 24) - 0.5) * 0.1)
    block = struct.pack(f"<{len(values)}f", *values)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _ in range(count * each // len(block)):
            file.write(block)
    return os.path.getsize(path)
