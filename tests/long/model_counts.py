"""The parameters and the cache of python/tests/model_configs.json, counted by the classes of transformers, built without memory.

usage: model_counts.py [NAME…]
"""

import json
import sys
import warnings
from pathlib import Path

import torch
import transformers

TABLE = Path(__file__).resolve().parents[2] / "python" / "tests" / "model_configs.json"


def counted(one):
    """Returns the parameters of a model, and the numbers of its cache per token, or None if it has no cache."""
    config = transformers.AutoConfig.for_model(**one["config"])
    with torch.device("meta"):
        model = getattr(transformers, one["config"]["architectures"][0])(config).to(torch.bfloat16).eval()  # experts run in 16 bits only
    model.tie_weights()
    total = sum(p.numel() for p in model.parameters())
    if one["cache_numbers"] is None:
        return total, None
    ids = torch.zeros(1, 2, dtype=torch.long, device="meta")
    named = {"input_ids": ids}
    if config.is_encoder_decoder:
        named = {"decoder_input_ids": ids, "encoder_outputs": (torch.zeros(1, 3, config.d_model, dtype=torch.bfloat16, device="meta"),)}
    cache = model(**named, use_cache=True).past_key_values
    cache = getattr(cache, "self_attention_cache", cache)
    return total, sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers) // 2


def main():
    warnings.simplefilter("ignore")
    table, failed = json.loads(TABLE.read_text()), False
    for one in table:
        if sys.argv[1:] and one["name"] not in sys.argv[1:]:
            continue
        try:
            found = counted(one)
        except Exception as reason:
            print(f"FAIL model_counts_{one['name']}: {type(reason).__name__}: {' '.join(str(reason).split())[:300]}", flush=True)
            failed = True
            continue
        same = (one["parameters"], one["cache_numbers"]) == found
        failed = failed or not same
        print(f"{'ok' if same else 'FAIL'} model_counts_{one['name']}: {found[0]:,} parameters, {found[1]} numbers of cache per token", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
