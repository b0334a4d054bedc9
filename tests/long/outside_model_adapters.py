"""Adapters of PEFT, merged and compared with PEFT's own merge, in the model's type and in float64."""

import json
import os

import torch
import transformers
from outside_model_base import check, families, fresh, llama, seeded, stowage
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file


def trained(model, path, safe=True, seed=21, **options):
    """Saves an adapter whose tensors all differ from their initial values."""
    peft = get_peft_model(model, LoraConfig(**({"r": 8, "lora_alpha": 16} | options)))
    seeded(seed)
    with torch.no_grad():
        for name, value in peft.named_parameters():
            if "lora_magnitude" in name:
                value.mul_(1 + 0.1 * torch.rand_like(value))
            elif "lora_" in name or "modules_to_save" in name or "trainable_tokens" in name or (value.requires_grad and "bias" in name):
                value.add_(torch.randn_like(value) * 0.05)
    peft.save_pretrained(fresh(path), safe_serialization=safe)


def ordered(x):
    """Returns the tensor's values as integers that count the representable values."""
    bits = {2: torch.int16, 4: torch.int32}[x.element_size()]
    i = x.contiguous().view(bits).to(torch.int64)
    return torch.where(i < 0, -(2 ** (x.element_size() * 8 - 1)) - i, i)


def by_peft(kind, adapters, dtype):
    """PEFT's merge of the adapters, in this type."""
    model = kind.from_pretrained("base", dtype=torch.float64 if dtype == torch.float64 else dtype)
    peft = PeftModel.from_pretrained(model, adapters[0], adapter_name="a0", autocast_adapter_dtype=dtype != torch.float64)
    for i, path in enumerate(adapters[1:], 1):
        peft.load_adapter(path, adapter_name=f"a{i}", autocast_adapter_dtype=dtype != torch.float64)
    if dtype == torch.float64:
        peft = peft.double()
    return peft.merge_and_unload(adapter_names=[f"a{i}" for i in range(len(adapters))]).state_dict()


def compare(kind, adapters, dtype):
    """At most one value away from the float64 merge, and no further from it than PEFT."""
    stowage("merge", "base", *adapters, "-o", fresh("merged"), "--verify")
    exact, theirs = by_peft(kind, adapters, torch.float64), by_peft(kind, adapters, dtype)
    loaded, info = kind.from_pretrained("merged", dtype=dtype, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    ours, base, changed = loaded.state_dict(), kind.from_pretrained("base", dtype=dtype).state_dict(), 0
    assert ours.keys() == exact.keys(), sorted(ours.keys() ^ exact.keys())[:4]
    for name, value in exact.items():
        if not value.is_floating_point():
            continue
        away = (ordered(ours[name]) - ordered(value.to(dtype))).abs().max().item()
        assert away <= 1, f"{name}: {away} values from the float64 merge"
        mine, others = ((x[name].double() - value).norm().item() for x in (ours, theirs))
        assert mine <= others * (1 + 1e-9) + 1e-12, f"{name}: {mine} from the float64 merge, PEFT {others}"
        changed += not torch.equal(ours[name], base[name])
    assert changed


def merges(make, dtype=torch.float32, safe=True, **options):
    seeded(2)
    model = make().to(dtype)
    model.save_pretrained(fresh("base"))
    kind = type(model)
    trained(kind.from_pretrained("base", dtype=dtype), "adapter", safe, **options)
    compare(kind, ["adapter"], dtype)


Q, QV = ["q_proj"], ["q_proj", "v_proj"]
KINDS = [
    ("plain", dict(target_modules=QV)),
    ("rslora", dict(target_modules="all-linear", use_rslora=True)),
    ("dora", dict(target_modules=["o_proj", "gate_proj"], use_dora=True)),
    ("rslora dora ranks", dict(target_modules=Q, use_rslora=True, use_dora=True, rank_pattern={"layers.0.self_attn.q_proj": 4})),
    ("ranks and alphas", dict(target_modules=["q_proj", "up_proj"], rank_pattern={"up_proj": 3}, alpha_pattern={"q_proj": 5})),
    ("patterns are regular expressions", dict(target_modules=["q_proj", "k_proj"], rank_pattern={r"layers\.[1-9]\.self_attn\.(q|k)_proj": 2}, alpha_pattern={r"^model\.layers\.0\.self_attn\.k_proj": 40})),
    ("the first pattern wins", dict(target_modules=["q_proj", "k_proj"], alpha_pattern={".*q_proj": 3, "q_proj": 5, "self_attn.k_proj": 7})),
    ("expression", dict(target_modules=r".*layers\.1\.(self_attn|mlp)\.(q|down)_proj")),
    ("one layer", dict(target_modules=Q, layers_to_transform=[1])),
    ("saved head", dict(target_modules=Q, modules_to_save=["lm_head"])),
    ("saved head and embedding", dict(target_modules=Q, modules_to_save=["lm_head", "embed_tokens"])),
    ("saved norm", dict(target_modules=Q, modules_to_save=["input_layernorm"])),
    ("embedding", dict(target_modules=["q_proj", "embed_tokens"])),
    ("embedding dora", dict(target_modules=["embed_tokens"], use_dora=True)),
    ("embedding rslora", dict(target_modules=["embed_tokens"], use_rslora=True, r=3)),
    ("head", dict(target_modules=["q_proj", "lm_head"])),
    ("rank 1", dict(target_modules=Q, r=1, lora_alpha=1)),
    ("rank above the width", dict(target_modules=["k_proj"], r=40)),
    ("alpha is no whole number", dict(target_modules=Q, lora_alpha=3.3)),
    ("alpha 0", dict(target_modules=QV, alpha_pattern={"q_proj": 0})),
    ("excluded", dict(target_modules="all-linear", exclude_modules=["down_proj"])),
    ("dropout", dict(target_modules=QV, lora_dropout=0.3)),
    ("gaussian", dict(target_modules=QV, init_lora_weights="gaussian")),
    ("some tokens", dict(target_modules=Q, trainable_token_indices={"embed_tokens": [0, 3, 99]})),
    ("parameters", dict(target_modules=Q, target_parameters=["mlp.down_proj.weight", "layers.0.self_attn.v_proj.weight"])),
]
SMALL = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=128)
MIXTURES = [
    ("Mixtral", "mlp", dict(num_local_experts=4)),
    ("Qwen3Moe", "mlp", dict(num_experts=4, moe_intermediate_size=40, head_dim=16)),
    ("GptOss", "mlp", dict(num_local_experts=4, head_dim=16)),
    ("GptOss", "mlp", dict(num_local_experts=4, head_dim=16, intermediate_size=64)),
    ("Llama4", "feed_forward", dict(num_local_experts=4, head_dim=16, intermediate_size_mlp=96)),
]


@check(*KINDS)
def adapter_of_llama(options):
    merges(families()["llama"], **options)


@check(*((f"{name} {i}", case) for i, case in enumerate(MIXTURES) for name in case[:1]))
def adapter_of_experts(case):
    name, module, options = case
    config = getattr(transformers, "Llama4TextConfig" if name == "Llama4" else f"{name}Config")(**(SMALL | options))
    targets = [f"{module}.experts.gate_up_proj", "experts.down_proj"]
    merges(lambda: getattr(transformers, f"{name}ForCausalLM")(config), torch.bfloat16, target_modules=Q, target_parameters=targets, rank_pattern={"experts.down_proj": 3})


@check(("lora_only", "lora_only"), ("all", "all"))
def adapter_with_biases(kind):
    merges(lambda: llama(attention_bias=True), target_modules=QV, bias=kind)


@check(("base without bias", False), ("base with bias", True))
def adapter_with_lora_bias(bias):
    if bias:
        merges(lambda: llama(attention_bias=True), target_modules=QV, lora_bias=True)
        return
    llama().save_pretrained(fresh("base"))
    trained(llama(attention_bias=True), "adapter", target_modules=QV, lora_bias=True)
    stowage("merge", "base", "adapter", "-o", fresh("no"), refused="bias")


@check()
def adapter_saved_as_bin():
    merges(llama, safe=False, target_modules=QV)


@check(("bfloat16", torch.bfloat16), ("float16", torch.float16))
def adapter_in_half_precision(dtype):
    merges(llama, dtype, target_modules="all-linear")
    merges(llama, dtype, target_modules="all-linear", use_dora=True)


TARGETS = {
    "bert": ["query", "value", "dense"], "roberta": ["query", "word_embeddings"], "distilbert": ["q_lin", "lin1"], "gpt2": ["c_attn", "c_proj"],
    "gpt_neox": ["query_key_value"], "bloom": ["query_key_value", "dense_h_to_4h"], "falcon": ["query_key_value"], "opt": ["q_proj", "fc1"],
    "mistral": ["q_proj", "down_proj"], "qwen2": ["q_proj", "v_proj"], "gemma2": ["o_proj", "up_proj"], "phi3": ["qkv_proj", "gate_up_proj"],
    "mixtral": ["q_proj", "o_proj"], "mamba": ["in_proj", "x_proj"], "t5": ["q", "v", "wo"], "bart": ["q_proj", "fc2"], "whisper": ["q_proj", "k_proj"],
    "vit": ["projection"],
}


@check(*[(f"{name}{' dora' * dora}", name, targets, dora) for name, targets in TARGETS.items() for dora in (False, True)])
def adapter_of(name, targets, dora):
    more = {"fan_in_fan_out": True} if name == "gpt2" else {}
    merges(families()[name], target_modules=targets, use_dora=dora, **more)


@check()
def adapter_of_layers_of_both_kinds():
    """PEFT keeps one fan_in_fan_out for the Conv1D of GPT-2 and the linear output layer."""
    make = families()["gpt2"]
    for targets in (["attn.c_proj", "lm_head"], ["c_attn", "lm_head"], ["lm_head", "mlp.c_proj"]):
        merges(lambda: type(make())(make().config.__class__(**make().config.to_dict() | {"tie_word_embeddings": False})), target_modules=targets)


@check(("two", [dict(target_modules=QV), dict(target_modules=["q_proj", "up_proj"], r=3)]),
       ("three", [dict(target_modules=QV, use_rslora=True), dict(target_modules="all-linear", r=2), dict(target_modules=["k_proj"], lora_alpha=1)]),
       ("dora second", [dict(target_modules=QV), dict(target_modules=Q, use_dora=True)]))
def several_adapters(options):
    seeded(2)
    model = families()["llama"]()
    model.save_pretrained(fresh("base"))
    paths = []
    for i, one in enumerate(options):
        trained(type(model).from_pretrained("base"), f"adapter{i}", seed=30 + i, **one)
        paths.append(f"adapter{i}")
    if any(one.get("use_dora") for one in options):
        # PEFT measures each row before the other adapters change it, so there is one sequence that both can do: one after the other.
        compare_in_turn(type(model), paths)
    else:
        compare(type(model), paths, torch.float32)


def compare_in_turn(kind, paths):
    stowage("merge", "base", *paths, "-o", fresh("merged"))
    model = kind.from_pretrained("base", dtype=torch.float64)
    for path in paths:
        model = PeftModel.from_pretrained(model, path, autocast_adapter_dtype=False).double().merge_and_unload()
    ours = kind.from_pretrained("merged").state_dict()
    for name, value in model.state_dict().items():
        assert (ordered(ours[name]) - ordered(value.float())).abs().max().item() <= 1, name


@check()
def base_in_shards_and_as_one_file():
    llama().save_pretrained(fresh("base"), max_shard_size="60KB")
    trained(llama(), "adapter", target_modules=QV)
    stowage("merge", "base", "adapter", "-o", fresh("merged"))
    assert os.path.exists("merged/model.safetensors.index.json")
    stowage("merge", "base/model.safetensors.index.json", "adapter", "-o", fresh("merged.safetensors"))
    stowage("shrink", "merged", "-o", fresh("joined.safetensors"))
    assert open("merged.safetensors", "rb").read() == open("joined.safetensors", "rb").read()


def float64_merge(base, path, residual=None):
    """The merge in float64, tensor by tensor, of an adapter of plain LoRA; `residual` changes a weight before."""
    config, tensors = json.load(open(f"{path}/adapter_config.json")), load_file(f"{path}/adapter_model.safetensors")
    tensors = {name.removeprefix("base_model.model."): value.double() for name, value in tensors.items()}
    merged = {name: value.double() for name, value in base.items()}
    for name in tensors:
        if name.endswith(".lora_A.weight"):
            module, a, b = name.removesuffix(".lora_A.weight"), tensors[name], tensors[name.replace("lora_A", "lora_B")]
            scale = config["lora_alpha"] / (a.shape[0] ** 0.5 if config["use_rslora"] else a.shape[0])
            delta = (b @ a) * scale
            weight = merged[module + ".weight"]
            if residual:
                weight = residual(weight, a.shape[0])
            weight = weight + (delta.T if config["fan_in_fan_out"] else delta)
            if config["use_dora"]:
                weight = weight * (tensors[module + ".lora_magnitude_vector"] / weight.norm(dim=1))[:, None]
            merged[module + ".weight"] = weight
        elif name.endswith(".lora_embedding_A"):
            module = name.removesuffix(".lora_embedding_A")
            merged[module + ".weight"] = merged[module + ".weight"] + (tensors[module + ".lora_embedding_B"] @ tensors[name]).T * (config["lora_alpha"] / tensors[name].shape[0])
    return merged


@check(("float32", torch.float32, {}), ("bfloat16", torch.bfloat16, {}), ("rslora", torch.float32, dict(use_rslora=True, r=5)), ("dora", torch.float32, dict(use_dora=True)),
       ("rank of the width", torch.float32, dict(target_modules=["k_proj"], r=32)), ("gpt2", torch.float32, dict(target_modules=["c_attn", "mlp.c_proj"], fan_in_fan_out=True)),
       ("with embedding", torch.float32, dict(target_modules=["q_proj", "embed_tokens"])))
def pissa_is_repeated(dtype, options):
    seeded(2)
    model = (families()["gpt2"]() if "fan_in_fan_out" in options else llama()).to(dtype)
    model.save_pretrained(fresh("base"))
    kind = type(model)
    trained(kind.from_pretrained("base", dtype=dtype), "adapter", init_lora_weights="pissa", **({"target_modules": QV} | options))
    stowage("merge", "base", "adapter", "-o", fresh("merged"), "--verify")
    theirs = by_peft(kind, ["adapter"], dtype)
    loaded, info = kind.from_pretrained("merged", dtype=dtype, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    ours, base = loaded.state_dict(), kind.from_pretrained("base", dtype=dtype).state_dict()

    def residual(weight, rank):
        u, s, v = torch.linalg.svd(weight, full_matrices=False)
        return (weight - (u[:, :rank] * s[:rank]) @ v[:rank]).to(dtype).double()

    changed = 0
    for name, value in float64_merge(base, "adapter", residual).items():
        # Where a residual lies between two values of its type, the last bits of the decomposition decide, and the merge may be a unit of it away.
        away = (ours[name].double() - value).abs() - 2 ** -(23 if dtype == torch.float32 else 7) * torch.maximum(value.abs(), base[name].double().abs())
        assert away.max() <= 0, f"{name}: {away.max()}"
        mine, others = ((x[name].double() - value).norm().item() for x in (ours, theirs))
        assert mine <= others * (1 + 1e-9) + 1e-12, f"{name}: {mine} from the float64 merge, PEFT {others}"
        changed += not torch.equal(ours[name], base[name])
    assert changed >= 2


@check()
def pissa_converted_is_plain():
    llama().save_pretrained(fresh("base"))
    model = get_peft_model(llama(), LoraConfig(r=4, lora_alpha=8, target_modules=QV, init_lora_weights="pissa"))
    model.peft_config["default"].init_lora_weights = True  # the adapter before the training, as PEFT's guide saves it
    model.save_pretrained(fresh("initial"))
    model.peft_config["default"].init_lora_weights = "pissa"
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "lora_" in name:
                value.add_(torch.randn_like(value) * 0.05)
    model.save_pretrained(fresh("adapter"), path_initial_model_for_weight_conversion="initial")
    compare(transformers.LlamaForCausalLM, ["adapter"], torch.float32)


@check(("pissa from random numbers", dict(init_lora_weights="pissa_niter_4"), "random"))
def adapters_with_other_changes_are_refused(options, word):
    llama().save_pretrained(fresh("base"))
    trained(llama(), "adapter", target_modules=QV, **options)
    stowage("merge", "base", "adapter", "-o", fresh("no"), refused=word)
    assert not os.path.exists("no")


def tokens_like(model):
    return torch.arange(1, 17)[None] % model.config.vocab_size


def computes(kind, dtype=torch.float32):
    """The merged model computes what the base with its adapter computes."""
    with torch.no_grad():
        theirs = PeftModel.from_pretrained(kind.from_pretrained("base", dtype=dtype), "adapter").eval()
        ours = kind.from_pretrained("merged", dtype=dtype).eval()
        if hasattr(ours.config, "layer_types"):
            theirs.config.layer_types = ours.config.layer_types  # PEFT leaves those of the base, and the model fails
        a, b = theirs(tokens_like(ours)).logits, ours(tokens_like(ours)).logits
    assert ((a - b).norm() / a.norm()).item() < 1e-5
    return ours


@check(*((f"{name} {i}", name, options) for name in ("llama", "mistral", "qwen2", "bert") for i, options in enumerate((
    dict(layer_replication=[[0, 2], [1, 2]]), dict(layer_replication=[[0, 1], [0, 2], [0, 2]], use_rslora=True), dict(layer_replication=[[1, 2], [0, 1]], use_dora=True)))))
def repeated_layers(name, options):
    """PEFT cannot merge these: the copies share their weights, and each would take the changes of all."""
    model = families()[name]()
    model.save_pretrained(fresh("base"))
    kind = type(model)
    trained(kind.from_pretrained("base"), "adapter", target_modules=["query", "output.dense"] if name == "bert" else ["q_proj", "down_proj"], **options)
    stowage("merge", "base", "adapter", "-o", fresh("merged"), "--verify")
    ours, order = computes(kind), [i for start, end in options["layer_replication"] for i in range(start, end)]
    assert ours.config.num_hidden_layers == len(order)
    stem, base = "bert.encoder.layer." if name == "bert" else "model.layers.", load_file("base/model.safetensors")
    repeated = {k: v for k, v in base.items() if not k.startswith(stem)}
    for now, before in enumerate(order):
        repeated |= {k.replace(f"{stem}{before}.", f"{stem}{now}."): v for k, v in base.items() if k.startswith(f"{stem}{before}.")}
    have = load_file("merged/model.safetensors")
    want = float64_merge(repeated, "adapter")
    assert have.keys() == want.keys(), sorted(have.keys() ^ want.keys())
    for k, v in want.items():
        assert (ordered(have[k]) - ordered(v.float())).abs().max().item() <= 1, k


def tied(name):
    if name == "gpt2":
        return families()["gpt2"]()
    return llama(tie_word_embeddings=True)


@check(*((f"{name} {kind}", name, options) for name, embedding in (("llama", "embed_tokens"), ("gpt2", "wte")) for kind, options in ({
    "head": dict(target_modules=["lm_head"]), "head dora": dict(target_modules=["lm_head"], use_dora=True), "both": dict(target_modules=["lm_head", embedding])
    } | ({"both together": dict(target_modules=[embedding], ensure_weight_tying=True)} if name == "llama" else {})).items()))
def tied_layers_become_two(name, options):
    """PEFT merges such an adapter into both layers, and the result computes something else. Each layer takes its own change here."""
    model = tied(name)
    model.save_pretrained(fresh("base"))
    kind = type(model)
    trained(kind.from_pretrained("base"), "adapter", **options)
    stowage("merge", "base", "adapter", "-o", fresh("merged"), "--verify")
    ours = computes(kind)
    assert ours.config.tie_word_embeddings is False and ours.get_input_embeddings().weight.data_ptr() != ours.get_output_embeddings().weight.data_ptr()
    base = load_file("base/model.safetensors")
    embedding = next(k for k in base if k.endswith(("embed_tokens.weight", "wte.weight")))
    want, have = float64_merge(base | {"lm_head.weight": base[embedding]}, "adapter"), ours.state_dict()
    for k, v in want.items():
        assert (ordered(have[k]) - ordered(v.float())).abs().max().item() <= 1, k


@check(("head", ["lm_head"]), ("embedding", ["embed_tokens"]), ("both", ["embed_tokens", "lm_head"]))
def saved_tied_layers(modules):
    """PEFT unties them too."""
    llama(tie_word_embeddings=True).save_pretrained(fresh("base"))
    trained(llama(tie_word_embeddings=True), "adapter", target_modules=Q, modules_to_save=modules)
    compare(transformers.LlamaForCausalLM, ["adapter"], torch.float32)
    assert json.load(open("merged/config.json"))["tie_word_embeddings"] is False
    computes(transformers.LlamaForCausalLM)


@check()
def adapter_that_does_not_fit_is_refused():
    llama().save_pretrained(fresh("base"))
    trained(llama(hidden_size=32, intermediate_size=64), "adapter", target_modules=Q)
    stowage("merge", "base", "adapter", "-o", fresh("no"), refused="q_proj")
    assert not os.path.exists("no")


@check()
def adapter_of_another_method_is_refused():
    from peft import IA3Config

    llama().save_pretrained(fresh("base"))
    get_peft_model(llama(), IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"])).save_pretrained(fresh("adapter"))
    stowage("merge", "base", "adapter", "-o", fresh("no"), refused="IA3")


@check()
def quantized_base_is_refused():
    llama().save_pretrained(fresh("base"))
    trained(llama(), "adapter", target_modules=Q)
    stowage("shrink", "base", "-o", fresh("small"), "--quantize", "int8")
    stowage("merge", "small", "adapter", "-o", fresh("no"), refused="quantized")
    assert json.load(open("small/config.json"))["quantization_config"]
