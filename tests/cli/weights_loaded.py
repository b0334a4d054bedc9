"""weights_loaded.py STOWAGE: adapters whose names are those of a kind of model after loading with transformers 5."""

import json
import os
import subprocess
import sys

from files import read, write

STOWAGE = sys.argv[1]
os.mkdir("loaded")
os.chdir("loaded")

ROWS, COLUMNS, RANK = 4, 8, 2


def stowage(*words, code=0):
    done = subprocess.run([STOWAGE, *words], capture_output=True, text=True)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def base(name, kind, tensors, **config):
    os.mkdir(name)
    write(f"{name}/model.safetensors", tensors)
    with open(f"{name}/config.json", "w") as file:
        json.dump({"model_type": kind, **config}, file)


def matrix(rows, value):
    return [rows, COLUMNS], [value] * (rows * COLUMNS)


def adapter(name, modules, rows=ROWS, **config):
    """Adds 1, 2, … to the modules in this order."""
    os.mkdir(name)
    tensors = {}
    for i, module in enumerate(modules):
        prefix = f"base_model.model.{module}"
        tensors[f"{prefix}.lora_A.weight"] = [RANK, COLUMNS], [0.5] * (RANK * COLUMNS)
        tensors[f"{prefix}.lora_B.weight"] = [rows, RANK], [float(i + 1)] * (rows * RANK)
        if config.get("use_dora"):
            tensors[f"{prefix}.lora_magnitude_vector"] = [rows], [10.0 * (i + 1)] * rows
    write(f"{name}/adapter_model.safetensors", tensors)
    with open(f"{name}/adapter_config.json", "w") as file:
        json.dump({"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, **config}, file)


# Kind, name in the file, name after loading. The last words are ".weight".
RENAMED = (
    ("axk2", "model.layers.0.input_layernorm.W_down", "model.layers.0.input_layernorm.mlp.fc1"),
    ("bailing_hybrid", "model.layers.0.attention.dense", "model.layers.0.self_attn.o_proj"),
    ("cohere_asr", "model.transf_decoder._decoder.layers.3.second_sub_layer.key_net", "model.decoder.layers.3.encoder_attn.k_proj"),
    ("colpali", "vlm.language_model.model.layers.0.mlp.up_proj", "vlm.language_model.layers.0.mlp.up_proj"),
    ("cosmos3_omni", "layers.0.self_attn.to_k", "model.language_model.layers.0.self_attn.k_proj"),
    ("deepseek_v4", "model.layers.0.attn.wq_b", "model.layers.0.self_attn.q_b_proj"),
    ("deepseek_v4", "model.layers.0.ffn.shared_experts.w2", "model.layers.0.mlp.shared_experts.down_proj"),
    ("gpt_neox", "embed_out", "lm_head"),
    ("segformer", "segformer.encoder.layer_norm.1", "segformer.stages.1.layer_norm"),
    ("segformer", "segformer.encoder.block.0.1.attention.self.layer_norm", "segformer.stages.0.blocks.1.attention.sequence_reduction.layer_norm"),
    ("gte", "new.encoder.layer.0.attention.o_proj", "gte.layers.0.self_attn.o_proj"),
    ("hunyuan_vl", "vit.layers.0.mlp.dense_h_to_4h", "model.vision_tower.layers.0.mlp.fc1"),
    ("hy_v4", "model.layers.0.mlp.linear_gate", "model.layers.0.mlp.gate_proj"),
    ("inkling2_text", "model.llm.layers.0.attn.wo_ud", "model.layers.0.self_attn.o_proj"),
    ("kimi_k25", "vision_tower.encoder.blocks.0.mlp.fc0", "model.vision_tower.layers.0.mlp.fc1"),
    ("kimi_k25", "vision_tower.encoder.blocks.0.mlp.fc1", "model.vision_tower.layers.0.mlp.fc2"),
    ("laguna", "model.layers.1.mlp.shared_expert.up_proj", "model.layers.1.mlp.shared_experts.up_proj"),
    ("mistral_large4_text", "layers.0.feed_forward.up_proj", "layers.0.mlp.up_proj"),
    ("nemotron_h_omni", "language_model.backbone.layers.0.mixer.in_proj", "language_model.model.layers.0.mixer.in_proj"),
    ("nomic_bert", "nomic_bert.encoder.layers.0.mlp.fc12", "nomic_bert.layers.0.mlp.gate_proj"),
    ("paddleocr_vl", "mlp_AR.linear_1", "model.projector.linear_1"),
    ("pi0", "paligemma_with_expert.gemma_expert.model.layers.0.mlp.up_proj", "model.dit.layers.0.mlp.up_proj"),
    ("rf_detr", "transformer.decoder.layers.0.linear2", "model.decoder.layers.0.mlp.fc2"),
    ("rt_detr", "model.encoder.encoder.0.layers.1.fc1", "model.encoder.aifi.0.layers.1.mlp.fc1"),
    ("sapiens2", "blocks.11.attn.wk", "model.layer.11.attention.k_proj"),
    ("segformer", "segformer.encoder.block.2.1.attention.self.key", "segformer.stages.2.blocks.1.attention.k_proj"),
    ("swin", "swin.encoder.layers.0.blocks.0.output.dense", "swin.encoder.layers.0.blocks.0.mlp.fc2"),
    ("t5gemma2", "model.encoder.layers.0.mlp.up_proj", "model.encoder.text_model.layers.0.mlp.up_proj"),
    ("timesfm2_5", "layers.0.mlp.ff1", "layers.0.mlp.fc2"),
    ("unlimited_ocr", "model.sam_model.blocks.0.attn.qkv", "model.vision_tower.sam_encoder.layers.0.attn.qkv"),
    ("vit_msn", "encoder.layer.0.intermediate.dense", "vit.layers.0.mlp.fc1"),
    ("zoedepth", "backbone.encoder.layer.0.attention.attention.key", "backbone.beit.layers.0.attention.k_proj"),
)


def names_of_each_kind_are_found():
    for i, (kind, old, new) in enumerate(RENAMED):
        base(f"b{i}", kind, {f"{old}.weight": matrix(ROWS, 1.0), "other.weight": matrix(ROWS, 1.0)})
        adapter(f"a{i}", [new])
        have = stowage("merge", f"b{i}", f"a{i}", "-o", f"m{i}")
        assert "1 tensor found under the name that transformers 5 gives it\n" in have, (kind, have)
        made = read(f"m{i}/model.safetensors")[1]
        assert made[f"{old}.weight"][2] == [2.0] * 32 and made["other.weight"][2] == [1.0] * 32, (kind, made)


def old_names_fit_a_base_with_new_ones():
    for i, (kind, old, new) in enumerate(RENAMED):
        base(f"n{i}", kind, {f"{new}.weight": matrix(ROWS, 1.0), "other.weight": matrix(ROWS, 1.0)})
        adapter(f"o{i}", [old])
        stowage("merge", f"n{i}", f"o{i}", "-o", f"p{i}")
        assert read(f"p{i}/model.safetensors")[1][f"{new}.weight"][2] == [2.0] * 32, kind


def old_names_of_any_kind_fit_a_base_with_new_ones():
    cases = ("vit.encoder.layer.0.attention.attention.key", "vit.layers.0.attention.k_proj"), \
        ("model.layers.0.block_sparse_moe.gate", "model.layers.0.mlp.gate"), ("language_model.lm_head", "lm_head")
    for i, (old, new) in enumerate(cases):
        write(f"later{i}.safetensors", {f"{new}.weight": matrix(ROWS, 1.0), "other.weight": matrix(ROWS, 1.0)})
        adapter(f"latera{i}", [old])
        stowage("merge", f"later{i}.safetensors", f"latera{i}", "-o", f"latero{i}.safetensors")
        assert read(f"latero{i}.safetensors")[1][f"{new}.weight"][2] == [2.0] * 32, old
    write("twolater.safetensors", {f"model.layers.0.mlp.{name}.weight": matrix(ROWS, 1.0) for name in ("gate", "router")})
    assert "fits several of the base" in stowage("merge", "twolater.safetensors", "latera1", "-o", "o.safetensors", code=2)


def a_kind_is_needed():
    base("nokind", "llama", {"model.layers.0.attn.wq_b.weight": matrix(ROWS, 1.0)})
    adapter("dsv4", ["model.layers.0.self_attn.q_b_proj"])
    assert "merge_and_unload" in stowage("merge", "nokind", "dsv4", "-o", "o", code=2)
    base("part", "colnomic", {"vlm.encoder.layers.0.attn.out_proj.weight": matrix(ROWS, 1.0)}, text_config={"model_type": "nomic_bert"})
    adapter("parta", ["vlm.layers.0.self_attn.o_proj"])
    stowage("merge", "part", "parta", "-o", "parto")
    assert read("parto/model.safetensors")[1]["vlm.encoder.layers.0.attn.out_proj.weight"][2] == [2.0] * 32


def two_tensors_of_one_name_are_refused():
    # Both would be fc1: the one of the file, and fc0 after loading.
    base("twice", "timesfm2_5", {"layers.0.mlp.ff0.weight": matrix(ROWS, 1.0), "layers.0.mlp.fc1.weight": matrix(ROWS, 1.0)})
    adapter("one", ["layers.0.mlp.fc1"])
    assert "fits several of the base" in stowage("merge", "twice", "one", "-o", "o", code=2)
    # Two modules that end alike, and a base without the words in front of them.
    base("short", "llama", {"layers.0.q_proj.weight": matrix(ROWS, 1.0)})
    adapter("both", ["text.layers.0.q_proj", "vision.layers.0.q_proj"])
    have = stowage("merge", "short", "both", "-o", "o", code=2)
    assert "both fit tensor layers.0.q_proj.weight" in have, have


def the_name_after_loading_is_preferred_to_an_end():
    tensors = {"layers.0.self_attn.k_proj.weight": matrix(ROWS, 1.0), "vision_model.transformer.layers.0.self_attn.qkv_proj.weight": matrix(3 * ROWS, 1.0)}
    base("ocr", "unlimited_ocr", tensors)
    adapter("ocra", ["vision_tower.vision_encoder.encoder.layers.0.self_attn.k_proj"])
    stowage("merge", "ocr", "ocra", "-o", "ocro")
    made = read("ocro/model.safetensors")[1]
    assert made["layers.0.self_attn.k_proj.weight"][2] == [1.0] * 32, made
    assert made["vision_model.transformer.layers.0.self_attn.qkv_proj.weight"][2] == [1.0] * 32 + [2.0] * 32 + [1.0] * 32, made


def parts_of_a_tensor_are_merged_in_their_rows():
    fused = {"encoder.layers.0.attn.Wqkv.weight": matrix(3 * ROWS, 1.0), "encoder.layers.0.attn.Wqkv.bias": ([3 * ROWS], [1.0] * 3 * ROWS)}
    modules = [f"layers.0.self_attn.{part}_proj" for part in "qkv"]
    base("nomic", "nomic_bert", fused)
    for name, some, want in (("all", modules, [2.0, 3.0, 4.0]), ("v", modules[2:], [1.0, 1.0, 2.0]), ("qv", modules[::2], [2.0, 1.0, 3.0])):
        adapter(f"qkv_{name}", some)
        stowage("merge", "nomic", f"qkv_{name}", "-o", f"nomic_{name}")
        made = read(f"nomic_{name}/model.safetensors")[1]
        assert made["encoder.layers.0.attn.Wqkv.weight"][2] == [value for value in want for _ in range(32)], (name, made)
        assert made["encoder.layers.0.attn.Wqkv.bias"][2] == [1.0] * 12
    # DoRA scales the rows of each part to their own lengths: 10, 20 and 30.
    adapter("qkv_dora", modules, use_dora=True)
    stowage("merge", "nomic", "qkv_dora", "-o", "nomic_dora")
    made = read("nomic_dora/model.safetensors")[1]["encoder.layers.0.attn.Wqkv.weight"][2]
    lengths = [sum(v * v for v in made[at:at + COLUMNS]) ** 0.5 for at in range(0, len(made), COLUMNS)]
    assert all(abs(have - want) < 1e-5 for have, want in zip(lengths, [10.0] * 4 + [20.0] * 4 + [30.0] * 4)), lengths
    # In the order of the rule, which is not that of the alphabet: up before gate.
    base("gte", "gte", {"gte.encoder.layer.0.mlp.up_gate_proj.weight": matrix(2 * ROWS, 1.0)})
    adapter("gate", ["gte.layers.0.mlp.gate_proj"])
    stowage("merge", "gte", "gate", "-o", "gte_out")
    assert read("gte_out/model.safetensors")[1]["gte.encoder.layer.0.mlp.up_gate_proj.weight"][2] == [1.0] * 32 + [2.0] * 32


def parts_that_do_not_fit_are_refused():
    base("odd", "nomic_bert", {"encoder.layers.0.attn.Wqkv.weight": matrix(3 * ROWS + 1, 1.0)})
    assert "is not 3 matrices of the same shape" in stowage("merge", "odd", "qkv_v", "-o", "o", code=1)
    adapter("wide", ["layers.0.self_attn.v_proj"], rows=2 * ROWS)
    assert "the base has 4 x 8, the adapter 8 x 8" in stowage("merge", "nomic", "wide", "-o", "o", code=2)
    os.mkdir("whole")
    write("whole/adapter_model.safetensors", {"base_model.model.layers.0.self_attn.q_proj.weight": matrix(ROWS, 3.0)})
    with open("whole/adapter_config.json", "w") as file:
        json.dump({"peft_type": "LORA", "r": 2, "lora_alpha": 2, "modules_to_save": ["q_proj"]}, file)
    have = stowage("merge", "nomic", "whole", "-o", "o", code=1)
    assert "is part 1 of 3 of encoder.layers.0.attn.Wqkv.weight" in have and "merge_and_unload" in have, have
    for init in ("olora", "pissa"):
        adapter(f"start_{init}", ["layers.0.self_attn.q_proj"], init_lora_weights=init)
        assert "cannot be repeated here" in stowage("merge", "nomic", f"start_{init}", "-o", "o", code=1)


def rows_that_change_places_are_refused():
    base("rope", "kimi_k25", {"vision_tower.encoder.blocks.0.wqkv.weight": matrix(3 * ROWS, 1.0)})
    adapter("ropea", ["model.vision_tower.layers.0.attn.q_proj"])
    assert "merge_and_unload" in stowage("merge", "rope", "ropea", "-o", "o", code=2)


def experts_share_a_matrix():
    """B has the columns of all experts. Whether it stays in memory between their tensors, and which are left, changes nothing."""
    experts, out, columns, rank = 200, 1024, 4, 4
    tensors = {f"l.experts.{e}.down_proj.weight": ([out, columns], [float(e)] * (out * columns)) for e in range(experts)}
    write("many.safetensors", tensors)
    os.mkdir("manya")
    b = [float(at % 7) for at in range(out * rank * experts)]
    write("manya/adapter_model.safetensors", {
        "base_model.model.l.experts.lora_A.weight": ([experts * rank, columns], [float(at % 5) for at in range(experts * rank * columns)]),
        "base_model.model.l.experts.lora_B.weight": ([out, experts * rank], b)})
    with open("manya/adapter_config.json", "w") as file:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_parameters": ["down_proj"]}, file)
    for memory in ("1G", "20M"):  # B takes 3.3 MB, and at most an eighth of the budget is for it
        stowage("merge", "many.safetensors", "manya", "-o", f"many{memory}.safetensors", "--memory", memory)
        made = read(f"many{memory}.safetensors")[1]
        for e in (0, 151, experts - 1):
            want = [e + sum(b[i * rank * experts + k * experts + e] * float((((e * rank + k) * columns) + c) % 5) for k in range(rank))
                    for i in range(out) for c in range(columns)]
            assert made[f"l.experts.{e}.down_proj.weight"][2] == want, (memory, e)


def normed_convolutions_have_their_names():
    old, new = ("conv.weight_g", "conv.weight_v"), ("conv.parametrizations.weight.original0", "conv.parametrizations.weight.original1")
    for i, (stored, named) in enumerate(((old, new), (new, old), (old, old), (new, new))):
        base(f"normed{i}", "wav2vec2", {f"encoder.{name}": matrix(ROWS, 1.0) for name in stored})
        adapter(f"norm{i}", [])
        write(f"norm{i}/adapter_model.safetensors", {f"base_model.model.encoder.{name}": matrix(ROWS, 2.0 + k) for k, name in enumerate(named)})
        stowage("merge", f"normed{i}", f"norm{i}", "-o", f"normal{i}")
        have = read(f"normal{i}/model.safetensors")[1]
        assert [have[f"encoder.{name}"][2][0] for name in stored] == [2.0, 3.0], i


for check in (
    normed_convolutions_have_their_names,
    experts_share_a_matrix,
    names_of_each_kind_are_found,
    old_names_fit_a_base_with_new_ones,
    old_names_of_any_kind_fit_a_base_with_new_ones,
    a_kind_is_needed,
    two_tensors_of_one_name_are_refused,
    the_name_after_loading_is_preferred_to_an_end,
    parts_of_a_tensor_are_merged_in_their_rows,
    parts_that_do_not_fit_are_refused,
    rows_that_change_places_are_refused,
):
    check()
