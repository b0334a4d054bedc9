"""What the checks of outside_models.py share: the command, models to try, and comparisons."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import torch
import transformers

COMMAND, FOLDER = sys.argv[1], sys.argv[2]
CHECKS = []


class Skipped(Exception):
    pass


def check(*cases):
    """Registers a check; with cases, one check for each of them: a tuple of the case's name and the arguments."""

    def register(function):
        for name, *arguments in cases or [("",)]:
            CHECKS.append((f"{function.__name__}{name and ' ' + name}", function, arguments))
        return function

    return register


def stowage(*words, refused=None, code=0):
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True)
    if refused is not None:
        assert done.returncode in (1, 2), f"{words}: exit {done.returncode}, not refused: {done.stderr[-300:]}{done.stdout[-200:]}"
        assert refused in done.stderr, f"{words}: {done.stderr[-300:]}"
        return done.stderr
    assert done.returncode == code, f"{words}: {done.stderr[-400:]}"
    return done.stdout


def fresh(path):
    shutil.rmtree(path, ignore_errors=True)
    if os.path.exists(path):
        os.unlink(path)
    return path


def equal(have, want):
    assert have.keys() == want.keys(), f"names differ: {sorted(have.keys() ^ want.keys())[:6]}"
    for name, value in want.items():
        assert have[name].dtype == value.dtype and have[name].shape == value.shape, f"{name}: {have[name].dtype} {tuple(have[name].shape)}"
        a, b = (x.contiguous().flatten().view(torch.uint8) for x in (have[name], value)) if value.numel() else (value, value)
        assert torch.equal(a, b), f"{name}: values differ"


def floats(tensors, dtype):
    """What --dtype makes of a model, by PyTorch."""
    wide = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    return {k: v.to(dtype) if v.dtype in wide else v for k, v in tensors.items()}


def seeded(seed):
    torch.manual_seed(seed)
    return np.random.default_rng(seed)


def inspected(path):
    return json.loads(stowage("inspect", "--json", path))


def llama(dtype=torch.float32, seed=5, **more):
    seeded(seed)
    options = dict(vocab_size=160, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**(options | more))).to(dtype)


def logits(model):
    with torch.no_grad():
        return model.eval()(torch.arange(1, 17)[None]).logits.float()


def relative(a, b):
    return ((a - b).norm() / a.norm()).item()


def families():
    """Small models with random weights, one for each architecture, by name."""
    t = transformers
    small = dict(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
    grouped = dict(small, num_key_value_heads=2)
    return {
        "bert": lambda: t.BertForMaskedLM(t.BertConfig(**small)),
        "roberta": lambda: t.RobertaForMaskedLM(t.RobertaConfig(**small, pad_token_id=1)),
        "distilbert": lambda: t.DistilBertForMaskedLM(t.DistilBertConfig(vocab_size=100, dim=32, n_layers=2, n_heads=4, hidden_dim=48)),
        "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(vocab_size=100, n_positions=32, n_embd=32, n_layer=2, n_head=4)),
        "gpt_neox": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**small)),
        "bloom": lambda: t.BloomForCausalLM(t.BloomConfig(vocab_size=100, hidden_size=32, n_layer=2, n_head=4)),
        "falcon": lambda: t.FalconForCausalLM(t.FalconConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)),
        "opt": lambda: t.OPTForCausalLM(t.OPTConfig(vocab_size=100, hidden_size=32, ffn_dim=64, num_hidden_layers=2,
                                        num_attention_heads=4, word_embed_proj_dim=32, max_position_embeddings=64)),
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**grouped)),
        "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(**grouped)),
        "qwen2": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**grouped)),
        "gemma2": lambda: t.Gemma2ForCausalLM(t.Gemma2Config(**grouped, head_dim=8)),
        "phi3": lambda: t.Phi3ForCausalLM(t.Phi3Config(**grouped, pad_token_id=0)),
        "mixtral": lambda: t.MixtralForCausalLM(t.MixtralConfig(**grouped, num_local_experts=4)),
        "mamba": lambda: t.MambaForCausalLM(t.MambaConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, state_size=8)),
        "t5": lambda: t.T5ForConditionalGeneration(t.T5Config(vocab_size=100, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)),
        "bart": lambda: t.BartForConditionalGeneration(t.BartConfig(vocab_size=100, d_model=32, encoder_layers=2, decoder_layers=2,
                        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
                        max_position_embeddings=40)),
        "whisper": lambda: t.WhisperForConditionalGeneration(t.WhisperConfig(vocab_size=100, d_model=32, encoder_layers=2,
                           decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
                           decoder_ffn_dim=48, num_mel_bins=8, max_source_positions=20, max_target_positions=20, pad_token_id=0,
                           bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, begin_suppress_tokens=None)),
        "vit": lambda: t.ViTForImageClassification(t.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                       intermediate_size=48, image_size=32, patch_size=8)),
    }


def forward(model):
    """What a model of families() computes for a fixed input, as float32."""
    g = torch.Generator().manual_seed(3)
    kind, ids = model.config.model_type, torch.arange(4, 20)[None]
    if kind == "vit":
        inputs = {"pixel_values": torch.randn(1, 3, 32, 32, generator=g).to(model.dtype)}
    elif kind == "whisper":
        inputs = {"input_features": torch.randn(1, 8, 40, generator=g).to(model.dtype), "decoder_input_ids": ids}
    elif kind in ("t5", "bart"):
        inputs = {"input_ids": ids, "decoder_input_ids": ids}
    else:
        inputs = {"input_ids": ids}
    with torch.no_grad():
        return model.eval()(**inputs).logits.float()
