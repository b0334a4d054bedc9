"""How many parameters a Hugging Face config.json describes, and how many numbers its cache has per token, by architecture.

The table says how an architecture differs from Llama: biases, norms, tied embeddings, experts. `tests/long/model_counts.py` compares it with
the classes of transformers, built without memory.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Optional

Config = Dict[str, Any]


class Family(NamedTuple):
    """How the layers of an architecture are built. A norm has `norm` numbers per column: 1 without a bias, 2 with one."""

    gated: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    norm: int = 1
    norms: int = 2  #: norms in each layer
    final: bool = True  #: a norm after the last layer
    tied: bool = False  #: the output uses the weights of the embedding, unless config.json says otherwise
    qk_norm: str = ""  #: "head": norms of query and key, one head wide; "all": all heads wide
    positions: int = -1  #: learned positions: this many more than the config's number; -1: none
    head_bias: bool = False


_BIASED = Family(gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, norm=2)
_FAMILIES: "Dict[str, Family]" = {
    "llama": Family(),
    "mistral": Family(),
    "mixtral": Family(),
    "granite": Family(),
    "phi3": Family(),
    "qwen2": Family(qkv_bias=True),
    "qwen2_moe": Family(qkv_bias=True),
    "qwen3": Family(qk_norm="head"),
    "qwen3_moe": Family(qk_norm="head"),
    "gemma": Family(tied=True),
    "gemma2": Family(tied=True, norms=4),
    "gemma3_text": Family(tied=True, norms=4, qk_norm="head"),
    "olmo": Family(norms=0, final=False),
    "olmo2": Family(qk_norm="all"),
    "cohere": Family(tied=True, norms=1),
    "stablelm": Family(norm=2),
    "phi": _BIASED._replace(norms=1, head_bias=True),
    "starcoder2": _BIASED._replace(tied=True),
    "gpt2": _BIASED._replace(tied=True, positions=0),
    "gpt_bigcode": _BIASED._replace(tied=True, positions=0),
    "gpt_neox": _BIASED,
    "gptj": Family(gated=False, mlp_bias=True, norm=2, norms=1, head_bias=True),
    "codegen": Family(gated=False, mlp_bias=True, norm=2, norms=1, head_bias=True),
    "gpt_neo": Family(gated=False, out_bias=True, mlp_bias=True, norm=2, tied=True, positions=0),
    "opt": _BIASED._replace(tied=True, positions=2),
    "bloom": _BIASED._replace(tied=True),
    "falcon": Family(gated=False, norm=2, tied=True),
    "mpt": Family(gated=False, tied=True),
}


def _flag(config: Config, name: str, otherwise: bool) -> bool:
    value = config.get(name)
    return value if isinstance(value, bool) else otherwise


def _whole(config: Config, *names: str, otherwise: int = 0) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return otherwise


def _linear(into: int, out: int, bias: bool) -> int:
    return into * out + (out if bias else 0)


def is_gated(config: Config) -> "Optional[bool]":
    """Returns whether the layers of an architecture in the table have gates; None for any other."""
    family = _FAMILIES.get(str(config.get("model_type", "")))
    return family.gated if family is not None else None


def kv_heads(config: Config, heads: int) -> int:
    """Returns the heads of keys and values."""
    kind = config.get("model_type")
    if kind == "gpt_bigcode":
        return 1 if _flag(config, "multi_query", True) else heads
    if kind == "falcon":
        if _flag(config, "new_decoder_architecture", False):
            return _whole(config, "num_kv_heads", otherwise=heads)
        return 1 if _flag(config, "multi_query", True) else heads
    return _whole(config, "num_key_value_heads", "num_kv_heads", "n_head_kv", otherwise=heads)


def _experts(config: Config, hidden: int, inner: int) -> int:
    """Returns the parameters of a layer of experts with its router; 0 if there is none."""
    count = _whole(config, "num_local_experts", "num_experts")
    if not count:
        return 0
    inner = _whole(config, "moe_intermediate_size", otherwise=inner)
    total = hidden * count + count * 3 * hidden * inner
    shared = _whole(config, "shared_expert_intermediate_size")
    return total + (3 * hidden * shared + hidden if shared else 0)


def decoder(config: Config, shape: Any) -> "Optional[int]":
    """Returns the parameters of a decoder; None for one that is not in the table."""
    kind = str(config.get("model_type", ""))
    family = _FAMILIES.get(kind)
    if family is None:
        return None
    if kind in ("llama", "granite", "qwen3", "qwen3_moe", "olmo", "olmo2", "cohere", "gemma", "gemma2", "gemma3_text") and _flag(config, "attention_bias", False):
        family = family._replace(qkv_bias=True, out_bias=True)
    if kind == "stablelm" and _flag(config, "use_qkv_bias", False):
        family = family._replace(qkv_bias=True)
    if _flag(config, "mlp_bias", False):
        family = family._replace(mlp_bias=True)
    if kind == "falcon":
        bias = _flag(config, "bias", False)
        one = _flag(config, "parallel_attn", True) and not _flag(config, "new_decoder_architecture", False)
        family = family._replace(qkv_bias=bias, out_bias=bias, mlp_bias=bias, norms=1 if one else 2)
    if kind == "starcoder2" and not _flag(config, "use_bias", True):
        family = family._replace(qkv_bias=False, out_bias=False, mlp_bias=False)
    hidden, heads, head = shape.hidden, shape.heads, shape.head
    keys = kv_heads(config, heads)
    attention = _linear(hidden, heads * head, family.qkv_bias) + 2 * _linear(hidden, keys * head, family.qkv_bias) + _linear(heads * head, hidden, family.out_bias)
    attention += {"head": 2 * head, "all": (heads + keys) * head}.get(family.qk_norm, 0)
    mlp = (2 if family.gated else 1) * _linear(hidden, shape.inner, family.mlp_bias) + _linear(shape.inner, hidden, family.mlp_bias)
    mlp = _experts(config, hidden, shape.inner) or mlp
    total = shape.layers * (attention + mlp + family.norms * family.norm * hidden) + (family.norm * hidden if family.final else 0)
    width = _whole(config, "word_embed_proj_dim", otherwise=hidden)
    if width != hidden:
        total += 2 * hidden * width  # projections to the layers and back
    if kind == "opt" and not _flag(config, "do_layer_norm_before", True):
        total -= family.norm * hidden
    total += shape.vocab * width
    if not _flag(config, "tie_word_embeddings", family.tied):
        total += shape.vocab * width
    if family.head_bias:
        total += shape.vocab
    if family.positions >= 0:
        total += (shape.length + family.positions) * hidden
    if kind == "bloom":
        total += family.norm * hidden  # a norm after the embedding
    return total


# ---- architectures of their own ----


def _layer(hidden: int, inner: int, attentions: int = 1) -> int:
    """A layer with biases everywhere and a norm with a bias before each part."""
    return attentions * (4 * _linear(hidden, hidden, True) + 2 * hidden) + _linear(hidden, inner, True) + _linear(inner, hidden, True) + 2 * hidden


def _architecture(config: Config) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def _encoder(config: Config, shape: Any) -> int:
    """BERT and RoBERTa, with the head that `architectures` names."""
    hidden, name, small = shape.hidden, _architecture(config), config.get("model_type") == "distilbert"
    types = 0 if small else _whole(config, "type_vocab_size", otherwise=2)
    total = (shape.vocab + shape.length + types + 2) * hidden + shape.layers * _layer(hidden, shape.inner)
    if "MaskedLM" in name or "PreTraining" in name:
        return total + _linear(hidden, hidden, True) + 2 * hidden + shape.vocab
    return total + (0 if small else _linear(hidden, hidden, True))


def _t5(config: Config, shape: Any) -> int:
    width, inside = shape.hidden, shape.heads * shape.head
    gated = str(config.get("feed_forward_proj", "relu")).startswith("gated")
    attention = 4 * width * inside + width
    mlp = (3 if gated else 2) * width * shape.inner + width
    later = _whole(config, "num_decoder_layers", otherwise=shape.layers)
    total = shape.vocab * width + shape.layers * (attention + mlp) + later * (2 * attention + mlp) + 2 * width
    total += 2 * _whole(config, "relative_attention_num_buckets", otherwise=32) * shape.heads
    return total + (0 if _flag(config, "tie_word_embeddings", True) else shape.vocab * width)


def _bart(config: Config, shape: Any) -> int:
    width = shape.hidden
    total = shape.vocab * width + 2 * (shape.length + 2) * width + 4 * width
    total += _whole(config, "encoder_layers", otherwise=12) * _layer(width, _whole(config, "encoder_ffn_dim", otherwise=4096))
    return total + _whole(config, "decoder_layers", otherwise=12) * _layer(width, _whole(config, "decoder_ffn_dim", otherwise=4096), 2)


def _whisper(config: Config, shape: Any) -> int:
    width = shape.hidden
    heard = _whole(config, "num_mel_bins", otherwise=80)
    total = _linear(3 * heard, width, True) + _linear(3 * width, width, True) + shape.vocab * width + 4 * width
    total += (_whole(config, "max_source_positions", otherwise=1500) + _whole(config, "max_target_positions", otherwise=448)) * width
    total += _whole(config, "encoder_layers", otherwise=4) * (_layer(width, _whole(config, "encoder_ffn_dim", otherwise=1536)) - width)  # keys have no bias
    return total + _whole(config, "decoder_layers", otherwise=4) * (_layer(width, _whole(config, "decoder_ffn_dim", otherwise=1536), 2) - 2 * width)


def _vit(config: Config, shape: Any) -> int:
    width, patch, side = shape.hidden, _whole(config, "patch_size", otherwise=16), _whole(config, "image_size", otherwise=224)
    total = _linear(_whole(config, "num_channels", otherwise=3) * patch * patch, width, True) + ((side // patch) ** 2 + 2) * width
    total += shape.layers * _layer(width, shape.inner) + 2 * width
    labels = config.get("id2label")
    count = len(labels) if isinstance(labels, dict) else _whole(config, "num_labels", otherwise=2)
    return total + (_linear(width, count, True) if "Classification" in _architecture(config) else _linear(width, width, True))


def _deepseek(config: Config, shape: Any) -> int:
    """Latent attention, and experts after the first dense layers."""
    hidden, heads = shape.hidden, shape.heads
    plain, turned, value = (_whole(config, name) for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    rank, query_rank = _whole(config, "kv_lora_rank"), _whole(config, "q_lora_rank")
    wide = heads * (plain + turned)
    query = hidden * query_rank + query_rank + query_rank * wide if query_rank else hidden * wide
    attention = query + hidden * (rank + turned) + rank + rank * heads * (plain + value) + heads * value * hidden
    experts, small = _whole(config, "n_routed_experts"), _whole(config, "moe_intermediate_size")
    dense = min(shape.layers, _whole(config, "first_k_dense_replace")) if experts else shape.layers
    routed = 3 * hidden * small * (experts + _whole(config, "n_shared_experts")) + hidden * experts
    total = shape.layers * (attention + 2 * hidden) + dense * 3 * hidden * shape.inner + (shape.layers - dense) * routed + hidden
    return total + shape.vocab * hidden * (1 if _flag(config, "tie_word_embeddings", False) else 2)


_OWN: "Dict[str, Callable[[Config, Any], int]]" = {
    "bert": _encoder,
    "roberta": _encoder,
    "xlm-roberta": _encoder,
    "distilbert": _encoder,
    "t5": _t5,
    "mt5": _t5,
    "bart": _bart,
    "whisper": _whisper,
    "vit": _vit,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
}


def parameters(config: Config, shape: Any) -> "Optional[int]":
    """Returns the number of parameters; None for an architecture that is not known."""
    own = _OWN.get(str(config.get("model_type", "")))
    return own(config, shape) if own is not None else decoder(config, shape)


def cache_numbers(config: Config, shape: Any) -> int:
    """Returns the numbers that the cache has for each token: keys and values of every layer."""
    kind = str(config.get("model_type", ""))
    if kind.startswith("deepseek"):  # the latent vector and the rotated part of the key
        return int(shape.layers * (_whole(config, "kv_lora_rank") + _whole(config, "qk_rope_head_dim")))
    layers = _whole(config, "num_decoder_layers", "decoder_layers", otherwise=shape.layers)
    heads = kv_heads(config, shape.heads)
    if kind == "falcon" and _flag(config, "new_decoder_architecture", False):
        heads = shape.heads  # transformers repeats keys and values for all heads before it keeps them
    return int(2 * layers * heads * shape.head)
