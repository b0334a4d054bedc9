"""How much GPU memory a Hugging Face model folder needs: from config.json and the headers of its safetensors files.

Nothing is loaded, and PyTorch is not needed. The weights are exact. KV cache, gradients and optimizer state follow from the sizes in
config.json. Activations are a formula for decoders with fused attention; `stowage estimate SCRIPT:FUNCTION` runs the real operators.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import _gpus, _model_count, _uncertainty
from ._estimate import Estimate
from ._library import Invalid, NotFound, Unreadable

_WIDTH = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1}
_TYPES = {"float32": 4, "bfloat16": 2, "float16": 2}
_HEADER_MAX = 100 << 20  #: the limit of the safetensors format
#: Share of the reserve that PyTorch's allocator leaves unused between blocks. Assumed: 1% to 5% in the programs of docs/MEASUREMENTS.md.
_SLACK = 0.04
#: Share by which what is not a weight may differ. Assumed.
_FORMULA_SHARE = 0.15


class _Shape(NamedTuple):
    """The sizes of a transformer, by the names that config.json may give them."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    inner: int
    vocab: int
    length: int
    gated: bool
    decoder: bool


def _first(config: "Dict[str, Any]", *names: str) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, list):
            value = max((one for one in value if isinstance(one, int)), default=None)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 40:
            return value
    return 0


def _shape(config: "Dict[str, Any]") -> "Optional[_Shape]":
    """Returns the sizes, or None for an architecture this file has no formula for."""
    layers = _first(config, "num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers")
    hidden = _first(config, "hidden_size", "n_embd", "n_embed", "d_model", "dim")
    heads = _first(config, "num_attention_heads", "n_head", "num_heads", "n_heads", "decoder_attention_heads")
    if not (layers and hidden and heads):
        return None
    kind, known = str(config.get("model_type", "")), _model_count.is_gated(config)
    encoder = kind in ("bert", "roberta", "xlm-roberta", "distilbert", "electra", "deberta", "deberta-v2", "vit", "clip", "wav2vec2")
    return _Shape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_model_count.kv_heads(config, heads),
        head=_first(config, "head_dim", "d_kv") or hidden // heads,
        inner=_first(config, "intermediate_size", "n_inner", "d_ff", "ffn_dim", "hidden_dim", "ffn_hidden_size") or 4 * hidden,
        vocab=_first(config, "vocab_size"),
        length=_first(config, "max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "max_seq_len"),
        gated=str(config.get("hidden_act", "")) in ("silu", "swish", "gelu_pytorch_tanh", "swiglu") if known is None else known,
        decoder=not encoder,
    )


def _header(path: str) -> "Dict[str, Any]":
    with open(path, "rb") as file:
        start = file.read(8)
        size = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= size <= _HEADER_MAX:
            raise Unreadable(f"{path}: not a safetensors file, or an incomplete one: download it again")
        try:
            header = json.loads(file.read(size))
        except ValueError:
            header = None
    if not isinstance(header, dict):
        raise Unreadable(f"{path}: the safetensors header is damaged: download it again")
    return header


def _weights(folder: str) -> "Tuple[int, int]":
    """Returns bytes and counts of all tensors in the folder's safetensors files; zeros if there are none."""
    total = numbers = 0
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".safetensors"):
            continue
        path = os.path.join(folder, name)
        for key, one in _header(path).items():
            if key == "__metadata__":
                continue
            try:
                begin, end = one["data_offsets"]
                count = 1
                for n in one["shape"]:
                    count *= n
                width = _WIDTH.get(one["dtype"], 0)
            except (TypeError, KeyError, ValueError):
                raise Unreadable(f'{path}: tensor "{key}" has no valid entry in the header') from None
            if not (isinstance(begin, int) and isinstance(end, int) and 0 <= begin <= end):
                raise Unreadable(f'{path}: tensor "{key}" has invalid offsets')
            total += end - begin
            numbers += count if width else end - begin
    return total, numbers


def _counted(shape: _Shape, config: "Dict[str, Any]") -> "Tuple[int, bool]":
    """Returns the number of parameters that the config describes, and whether its architecture is known. Others count as a Llama."""
    known = _model_count.parameters(config, shape)
    if known is not None:
        return known, True
    attention = shape.hidden * shape.head * (2 * shape.heads + 2 * shape.kv_heads)
    mlp = shape.hidden * shape.inner * (3 if shape.gated else 2)
    embeddings = shape.vocab * shape.hidden * (1 if config.get("tie_word_embeddings", not shape.gated) else 2)
    return shape.layers * (attention + mlp + 2 * shape.hidden) + embeddings, False


def _activation_bytes(shape: _Shape, tokens: int, width: int) -> int:
    """Bytes that the forward pass keeps for the backward pass, by a count of the tensors that each layer of a Llama saves."""
    norm = 2 * (4 + 4 + width) * shape.hidden
    attention = width * (2 * shape.heads * shape.head + 2 * 2 * shape.kv_heads * shape.head + shape.hidden) + 4 * shape.heads
    mlp = width * shape.inner * (4 if shape.gated else 2)
    return tokens * (shape.layers * (norm + attention + mlp + 2 * width * shape.hidden) + shape.vocab * (width + 4 + 4))


def estimate_folder(
    folder: str,
    *,
    gpu: "Optional[str]" = None,
    vram: "str | int | None" = None,
    batch: "Optional[int]" = None,
    length: "Optional[int]" = None,
    train: "Optional[str]" = None,
    dtype: "Optional[str]" = None,
) -> Estimate:
    """Whether the model in a folder fits on a GPU, for generation or for training ("adamw", "sgd", "adamw8bit", "lora")."""
    target = _gpus.find(gpu, vram)
    path = os.path.join(folder, "config.json")
    if not os.path.isfile(path):
        raise NotFound(f"{folder}: has no config.json; give the folder of a Hugging Face model, or SCRIPT.py:FUNCTION")
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except (ValueError, OSError) as reason:
        raise Unreadable(f"{path}: cannot be read: {reason}") from None
    if not isinstance(config, dict):
        raise Unreadable(f"{path}: is not a JSON object")
    text = config.get("text_config")
    if isinstance(text, dict):  # a model of texts and images: the part that generates
        config = {**config, **text}
    shape, notes = _shape(config), []
    total, numbers = _weights(folder)
    kind = str(config.get("torch_dtype") or config.get("dtype") or "float32")
    if not total:
        if shape is None:
            raise Invalid(f"{folder}: no safetensors files, and config.json does not have the sizes of a transformer")
        numbers, known = _counted(shape, config)
        total = numbers * _TYPES.get(kind, 4)
        notes.append("no safetensors files: the weights were counted from config.json" + ("" if known else f', as a Llama, because model_type "{config.get("model_type", "")}" is not known'))
    width = _TYPES.get(dtype or kind, 4)
    if dtype is not None:
        total = numbers * _TYPES[dtype]
    parts: "List[Tuple[str, int]]" = [("weights", total)]
    sequences = batch or 1
    tokens_each = length or min(2048, (shape.length if shape is not None else 0) or 2048)
    if shape is None:
        notes.append(f'model_type "{config.get("model_type", "")}": no formula for its cache and activations; only what is listed was counted')
    elif shape.length and length is not None and length > shape.length:
        notes.append(f"--length {length} is more than the {shape.length} positions of the model")
    if train is not None:
        parts += _training(shape, train, numbers, total, width, sequences * tokens_each)
    elif shape is not None:
        if shape.decoder:
            cache = _model_count.cache_numbers(config, shape) * tokens_each * sequences * width
            parts.append(("KV cache", cache))
            parts.append(("KV cache of one layer, copied while it grows", 2 * cache // max(1, shape.layers)))
        tokens = sequences * tokens_each
        parts.append(("activations", tokens * width * (4 * shape.hidden + (3 if shape.gated else 2) * shape.inner) + sequences * shape.vocab * 8))
    parts.append(("cuBLAS workspace", target.cublas_bytes * (2 if train else 1)))
    live = sum(size for _, size in parts)
    needs = int(live + _SLACK * (live - total))
    needs += -needs % (2 << 20)
    holders = [{"label": label, "bytes": size, "count": 1} for label, size in sorted(parts, key=lambda one: -one[1])]
    notes.append(
        f"{numbers / 1e9:.2f} billion parameters; {sequences} x {tokens_each} tokens"
        + (f", training with {train}" if train else ", generation")
        + "; activations and cache by formula, with fused attention"
    )
    bounds = _uncertainty.shares(needs, target.measured)
    formulas = int(_FORMULA_SHARE * (live - total))
    bounds.reasons.append({"kind": "formulas", "what": "cache and activations by formula", "low_bytes": -formulas, "high_bytes": formulas})
    bounds = bounds._replace(low=max(0, bounds.low - formulas), high=bounds.high + formulas)
    verdict = _uncertainty.verdict(bounds, target.available_bytes)
    return Estimate(
        {
            "fits": verdict == "yes",
            "verdict": verdict,
            "needs_low_bytes": bounds.low,
            "needs_high_bytes": bounds.high,
            "uncertainty": bounds.reasons,
            "margin_bytes": target.available_bytes - needs,
            "needs_bytes": needs,
            "peak_live_bytes": live,
            "peak_reserved_bytes": needs,
            "gpu": _gpus.as_json(target),
            "kind": "training" if train else "generation",
            "steps": 1,
            "policy": None,
            "holders": holders,
            "beside": [],
            "notes": notes,
            "trace": None,
            "events": 0,
            "torch": None,
            "seconds": 0.0,
        }
    )


def _training(shape: "Optional[_Shape]", train: str, numbers: int, total: int, width: int, tokens: int) -> "List[Tuple[str, int]]":
    trained = numbers
    parts: "List[Tuple[str, int]]" = []
    if train == "lora":
        if shape is None:
            raise Invalid("--train lora: config.json does not have the sizes of a transformer")
        rank = 16
        trained = shape.layers * rank * (2 * shape.hidden + (shape.heads + shape.kv_heads) * shape.head)
        parts.append((f"LoRA weights (rank {rank}, query and value)", trained * width))
    state = {"adamw": 2 * width, "lora": 2 * width, "sgd": width, "adamw8bit": 2}.get(train)
    if state is None:
        raise Invalid(f'--train: "{train}": write adamw, sgd, adamw8bit or lora')
    parts += [("gradients", trained * width), ("optimizer state", trained * state)]
    if shape is not None:
        parts.append(("activations", _activation_bytes(shape, tokens, width)))
    return parts


