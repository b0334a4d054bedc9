"""Writes the shards of a model with the sizes of Llama 3 70B into the folder argv[1]: 141 GB of holes, with a few bytes at the start
of each tensor so that no two are equal. With argv[2], only so many layers."""

import json
import struct
import sys
from pathlib import Path

folder, layers = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 80
HIDDEN, FFN, KEYS, WORDS, SHARD = 8192, 28672, 1024, 128256, 5 * 10**9
tensors = {"model.embed_tokens.weight": [WORDS, HIDDEN]}
for i in range(layers):
    at = f"model.layers.{i}."
    tensors.update({at + "self_attn.q_proj.weight": [HIDDEN, HIDDEN], at + "self_attn.k_proj.weight": [KEYS, HIDDEN],
                    at + "self_attn.v_proj.weight": [KEYS, HIDDEN], at + "self_attn.o_proj.weight": [HIDDEN, HIDDEN],
                    at + "mlp.gate_proj.weight": [FFN, HIDDEN], at + "mlp.up_proj.weight": [FFN, HIDDEN],
                    at + "mlp.down_proj.weight": [HIDDEN, FFN], at + "input_layernorm.weight": [HIDDEN],
                    at + "post_attention_layernorm.weight": [HIDDEN]})
tensors.update({"model.norm.weight": [HIDDEN], "lm_head.weight": [WORDS, HIDDEN]})
files, used = [{}], 0
for name, shape in tensors.items():
    size = 2
    for n in shape:
        size *= n
    if files[-1] and used + size > SHARD:
        files.append({})
        used = 0
    files[-1][name] = {"dtype": "BF16", "shape": shape, "data_offsets": [used, used + size]}
    used += size
folder.mkdir()
where, mark = {}, 0
for i, header in enumerate(files):
    name = f"model-{i + 1:05}-of-{len(files):05}.safetensors"
    text = json.dumps(header).encode()
    with open(folder / name, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for key, facts in header.items():
            mark += 1
            where[key] = name
            file.seek(8 + len(text) + facts["data_offsets"][0])
            file.write(struct.pack("<4H", 0x3F80, mark, 0x3F80, 0x3F80))
        file.truncate(8 + len(text) + max(facts["data_offsets"][1] for facts in header.values()))
(folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
(folder / "config.json").write_text("{}")
