"""weights_readers.py STOWAGE: quantized models are written as their readers, transformers and vLLM, take them."""

import json
import os
import re
import subprocess
import sys

from files import read, write

STOWAGE = sys.argv[1]
os.mkdir("readers")
os.chdir("readers")


def stowage(*words, code=0):
    done = subprocess.run([STOWAGE, *words], capture_output=True, text=True)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def matrix(rows, columns):
    return [rows, columns], [float(i % 37 - 18) for i in range(rows * columns)]


def folder(name, tensors, **config):
    os.mkdir(name)
    write(f"{name}/model.safetensors", {tensor: matrix(8, 64) for tensor in tensors})
    if config:
        with open(f"{name}/config.json", "w") as file:
            json.dump(config, file)


def config_of(name):
    with open(f"{name}/config.json") as file:
        return json.load(file)


def ignores(out, module):
    """Returns whether compressed-tensors leaves the module of that name out."""
    listed = config_of(out)["quantization_config"]["ignore"]
    return any(re.match(one[3:], module) if one.startswith("re:") else one == module for one in listed)


def excluded_layers_are_ignored_under_their_later_names():
    folder("llava", ["vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight", "vision_tower.layers.0.q_proj.weight", "language_model.model.layers.0.q_proj.weight", "language_model.model.layers.1.q_proj.weight"], model_type="llava")
    stowage("shrink", "llava", "-o", "llava8", "--quantize", "int8", "--exclude", "vision_tower*", "--exclude", "*layers.1.*")
    for name in ("vision_tower.layers.0.q_proj", "model.vision_tower.layers.0.q_proj", "model.vision_tower.encoder.layers.0.mlp.fc1", "model.language_model.layers.1.q_proj"):
        assert ignores("llava8", name), (name, config_of("llava8"))
    for name in ("language_model.model.layers.0.q_proj", "model.language_model.layers.0.q_proj"):
        assert not ignores("llava8", name), (name, config_of("llava8"))

    inner = "vit.encoder.layer.0."
    folder("vit", [f"{inner}attention.attention.query.weight", f"{inner}attention.output.dense.weight", f"{inner}intermediate.dense.weight", f"{inner}output.dense.weight", "vit.other.weight"], model_type="vit")
    stowage("shrink", "vit", "-o", "vit8", "--quantize", "fp8", "--include", "vit.other*")
    for name in ("attention.q_proj", "attention.o_proj", "mlp.fc1", "mlp.fc2"):
        assert ignores("vit8", f"vit.layers.0.{name}"), (name, config_of("vit8"))
    assert ignores("vit8", f"{inner}output.dense") and not ignores("vit8", "vit.other")

    # A name that ends another one which is quantized: no pattern.
    folder("short", ["q.weight", "a.q.weight"], model_type="x")
    stowage("shrink", "short", "-o", "short8", "--quantize", "fp8", "--exclude", "q.weight")
    assert ignores("short8", "q") and not ignores("short8", "a.q") and not ignores("short8", "b.q")


def routers_are_ignored_under_their_later_names():
    folder("phimoe", ["model.layers.0.block_sparse_moe.gate.weight", "model.layers.0.block_sparse_moe.experts.0.w1.weight"], model_type="phimoe")
    stowage("shrink", "phimoe", "-o", "phimoe8", "--quantize", "fp8")
    assert ignores("phimoe8", "model.layers.0.mlp.router") and ignores("phimoe8", "model.layers.0.block_sparse_moe.gate")


def stacked_experts_of_llama_4_are_refused():
    os.mkdir("llama4")
    write("llama4/model.safetensors", {"model.layers.0.feed_forward.experts.gate_up_proj": ([2, 4, 4], [1.0] * 32), "model.layers.0.self_attn.q_proj.weight": matrix(8, 64)})
    for kind in ("int8", "fp8"):
        assert "the experts of Llama 4 are stacked in one tensor" in stowage("shrink", "llama4", "-o", "o", "--quantize", kind, code=1)
    stowage("shrink", "llama4", "-o", "llama4.half", "--dtype", "bf16")


def embeddings_and_routers_stay():
    folder("llama", ["model.embed_tokens.weight", "wte.weight", "layers.0.mlp.gate.weight", "layers.0.mlp.gate_proj.weight", "embed_out.weight"], model_type="llama", dtype="float32")
    for kind in ("int8", "fp8"):
        have = stowage("shrink", "llama", "-o", f"llama.{kind}", "--quantize", kind, "--include", "*")
        assert "left as they are: 3 tensors of embeddings or routers, which nothing reads in 8 bits\n" in have, have
        kept = {name for name, facts in read(f"llama.{kind}/model.safetensors")[1].items() if facts[0] == "F32" and name.endswith(".weight")}
        assert kept == {"model.embed_tokens.weight", "wte.weight", "layers.0.mlp.gate.weight"}, kept


def experts_of_a_layer_are_alike():
    names = [f"layers.{layer}.mlp.experts.{expert}.{leaf}.weight" for layer in range(2) for expert in range(3) for leaf in ("gate_proj", "up_proj", "down_proj")]
    folder("moe", names, model_type="qwen3_moe")
    for words in (("--exclude", "*experts.1.*"), ("--include", "*gate_proj*"), ("--include", "*.0.*down_proj*", "--exclude", "*experts.2.*")):
        assert "would differ: readers join the experts of a layer" in stowage("shrink", "moe", "-o", "moe8", "--quantize", "int8", *words, code=2), words
    for i, words in enumerate((("--exclude", "layers.0.*"), ("--include", "*down_proj*"), ("--exclude", "*down_proj*"))):
        stowage("shrink", "moe", "-o", f"moe8.{i}", "--quantize", "int8", *words)
    stowage("shrink", "moe", "-o", "moe.half", "--dtype", "f16", "--exclude", "*experts.1.*")


def the_type_of_the_config_is_that_of_most_weights():
    stowage("shrink", "llama", "-o", "few", "--dtype", "bf16", "--include", "wte.weight")
    stowage("shrink", "llama", "-o", "most", "--dtype", "bf16", "--exclude", "wte.weight")
    stowage("shrink", "llama", "-o", "both", "--dtype", "bf16", "--quantize", "int8", "--include", "layers*")
    assert [config_of(name)["dtype"] for name in ("few", "most", "both")] == ["float32", "bfloat16", "bfloat16"]


def models_that_no_reader_loads_get_a_warning():
    layer = ["layers.0.q_proj.weight"]
    folder("falcon", layer, model_type="falcon")
    folder("dinov2", layer, model_type="dinov2")
    folder("plain", layer)
    folder("unet", layer, _class_name="UNet2DConditionModel", _diffusers_version="0.30")
    for name, kind, text in (
        ("falcon", "int8", "transformers 5.23 does not load int8 of this kind of model (falcon); use --quantize fp8"),
        ("falcon", "fp8", None),
        ("dinov2", "fp8", "transformers 5.23 does not load fp8 of this kind of model (dinov2); use --dtype bf16"),
        ("plain", "int8", "the folder has no config.json"),
        ("unet", "fp8", "diffusers does not read the layouts of compressed-tensors"),
        ("llama", "int8", None),
    ):
        have = json.loads(stowage("shrink", name, "--dry-run", "--quantize", kind, "--json"))["warnings"]
        assert (len(have) == 1 and text in have[0]) if text else have == [], (name, kind, have)


def only_linear_layers_are_quantized():
    # An embedding, parameters and a codebook by their names in CTRL, Granite Speech, LW-DETR, Kosmos-2.5 and DAC.
    others = ["transformer.w", "encoder.layers.0.attn.rel_pos_emb", "query_feat", "image_to_text_projection.segment_emb", "quantizer.quantizers.0.codebook"]
    linear = ["layers.0.self_attn.q_proj", "layers.0.mlp.fc1", "layers.0.attention.self.query", "layers.0.attention.output.dense", "merger.mlp.0", "layers.0.DenseReluDense.wi_0"]
    folder("kinds", [f"{name}.weight" for name in others + linear], model_type="x")
    for kind in ("int8", "fp8"):
        have = stowage("shrink", "kinds", "-o", f"kinds.{kind}", "--quantize", kind)
        made = read(f"kinds.{kind}/model.safetensors")[1]
        assert {name for name in others + linear if f"{name}.weight_scale" in made} == set(linear), made.keys()
        assert "not known to be linear layers: " in have and "encoder.layers.*.attn.rel_pos_emb.weight" in have and "--include" in have, have
        for name in others:
            assert ignores(f"kinds.{kind}", name) and ignores(f"kinds.{kind}", f"model.{name}") and ignores(f"kinds.{kind}", name.replace("0", "1")), name
        for name in linear:
            assert not ignores(f"kinds.{kind}", name) and not ignores(f"kinds.{kind}", f"model.{name}"), name
    # --include takes them, and layers of an architecture's own class are left.
    stowage("shrink", "kinds", "-o", "asked", "--quantize", "fp8", "--include", "transformer.w.weight")
    assert "transformer.w.weight_scale" in read("asked/model.safetensors")[1]
    folder("ibert", ["ibert.encoder.layer.0.attention.self.query.weight"], model_type="ibert")
    assert "1 tensor not known to be linear layers" in stowage("shrink", "ibert", "-o", "no", "--quantize", "int8", code=2)


def output_layers_stay():
    for i, name in enumerate(("head", "lm_head", "log_softmax.mlp.layer0", "output", "proj_out", "text_decoder.lm_head")):
        folder(f"head{i}", [f"{name}.weight", "layers.0.self_attn.q_proj.weight"], model_type="x")
        stowage("shrink", f"head{i}", "-o", f"head{i}.fp8", "--quantize", "fp8")
        assert f"{name}.weight_scale" not in read(f"head{i}.fp8/model.safetensors")[1] and ignores(f"head{i}.fp8", name), name
        # Tied ones have no tensor: those of a part of the model are ignored as well.
        for tied in ("language_model.lm_head", "text_decoder.cls.predictions.decoder", "model.decoder.proj_out", "lm_heads.3"):
            assert ignores(f"head{i}.fp8", tied), tied


def nobody_has_tried_other_kinds():
    folder("new", ["layers.0.self_attn.q_proj.weight"], model_type="brand_new")
    for kind in ("int8", "fp8"):
        have = json.loads(stowage("shrink", "new", "--dry-run", "--quantize", kind, "--json"))["warnings"]
        assert len(have) == 1 and f"whether transformers loads {kind} of this kind of model (brand_new)" in have[0], have
    folder("clip8", ["layers.0.self_attn.q_proj.weight"], model_type="owlvit")
    assert "does not load int8" in stowage("shrink", "clip8", "--dry-run", "--quantize", "int8")


for check in (
    only_linear_layers_are_quantized,
    output_layers_stay,
    nobody_has_tried_other_kinds,
    excluded_layers_are_ignored_under_their_later_names,
    routers_are_ignored_under_their_later_names,
    stacked_experts_of_llama_4_are_refused,
    embeddings_and_routers_stay,
    experts_of_a_layer_are_alike,
    the_type_of_the_config_is_that_of_most_weights,
    models_that_no_reader_loads_get_a_warning,
):
    check()
