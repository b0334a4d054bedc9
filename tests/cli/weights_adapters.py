"""weights_adapters.py STOWAGE: adapters trained with transformers 5, and those that merge refuses or does not know."""

import json
import os
import subprocess
import sys

from files import read, write

STOWAGE = sys.argv[1]
os.mkdir("adapters")
os.chdir("adapters")


def stowage(*words, code=0):
    done = subprocess.run([STOWAGE, *words], capture_output=True, text=True)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def matrix(rows, columns, value=1.0):
    return [rows, columns], [value] * (rows * columns)


def base(name, *tensors):
    write(f"{name}.safetensors", {tensor: matrix(4, 8) for tensor in tensors})


def adapter(name, tensors, **config):
    os.mkdir(name)
    write(f"{name}/adapter_model.safetensors", {f"base_model.model.{tensor}": values for tensor, values in tensors.items()})
    with open(f"{name}/adapter_config.json", "w") as file:
        json.dump({"peft_type": "LORA", "r": 2, "lora_alpha": 2, **config}, file)


def lora(module, a=([2, 8], [0.5] * 16), b=([4, 2], [0.5] * 8)):
    return {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}


def parts_for_images_are_no_models_of_text():
    layer = "layers.0.self_attn.q_proj"
    write("text.safetensors", {f"{layer}.weight": matrix(4, 8), "embed_tokens.weight": matrix(20, 8)})
    write("image.safetensors", {f"{layer}.weight": matrix(4, 8), "embeddings.position_embedding.weight": matrix(20, 8)})
    for i, front in enumerate(("vision_tower.", "model.vision_tower.", "model.visual.", "audio_tower.encoder.", "image_encoder.vision_model.")):
        adapter(f"part{i}", lora(front + layer))
        if not front.endswith("encoder."):
            stowage("merge", "image.safetensors", f"part{i}", "-o", f"part{i}.safetensors")
        assert "is not in the base" in stowage("merge", "text.safetensors", f"part{i}", "-o", "none.safetensors", code=2), front
    for i, front in enumerate(("", "model.", "model.language_model.")):
        adapter(f"whole{i}", lora(front + layer))
        stowage("merge", "text.safetensors", f"whole{i}", "-o", f"whole{i}.safetensors")


def names_of_transformers_5_are_found():
    cases = (
        ("language_model.model.layers.0.q_proj", "model.language_model.layers.0.q_proj"),
        ("model.layers.0.q_proj", "model.language_model.layers.0.q_proj"),
        ("vision_tower.vision_model.layers.0.q_proj", "model.vision_tower.layers.0.q_proj"),
        ("vit.encoder.layer.0.attention.attention.key", "vit.layers.0.attention.k_proj"),
        ("vit.encoder.layer.0.output.dense", "vit.layers.0.mlp.fc2"),
        ("vision_model.encoder.layer.0.q_proj", "vision_model.encoder.layers.0.q_proj"),
    )
    for i, (old, new) in enumerate(cases):
        base(f"b{i}", f"{old}.weight", "other.weight")
        adapter(f"a{i}", lora(new))
        have = stowage("merge", f"b{i}.safetensors", f"a{i}", "-o", f"m{i}.safetensors")
        assert "1 tensor found under the name that transformers 5 gives it\n" in have, have
        made = read(f"m{i}.safetensors")[1]
        assert made[f"{old}.weight"][2] == [1.5] * 32 and made["other.weight"][2] == [1.0] * 32, made
    # Two that would get the name: neither is taken.
    base("two", "model.layers.0.q_proj.weight", "language_model.model.layers.0.q_proj.weight")
    assert "is this the model" in stowage("merge", "two.safetensors", "a0", "-o", "o.safetensors", code=2)


def refusals_name_the_reason():
    base("plain", "l.weight", "m.out_proj.weight")
    adapter("grouped", lora("l", ([2, 8, 1, 1], [0.5] * 16), ([4, 1, 1, 1], [0.5] * 4)))
    assert "module l is a convolution with groups" in stowage("merge", "plain.safetensors", "grouped", "-o", "o.safetensors", code=1)
    adapter("attention", lora("m.base_layer.out_proj"))
    assert "part of torch.nn.MultiheadAttention" in stowage("merge", "plain.safetensors", "attention", "-o", "o.safetensors", code=1)
    adapter("head", {**lora("l"), "score.weight": matrix(4, 8)}, task_type="SEQ_CLS", modules_to_save=["score"])
    assert "its tensor score.weight (modules_to_save) is not in the base: if it is a head" in stowage("merge", "plain.safetensors", "head", "-o", "o.safetensors", code=2)
    adapter("new", lora("l"), monteclora_config={"x": 1})
    assert "uses monteclora_config, which is not merged here" in stowage("merge", "plain.safetensors", "new", "-o", "o.safetensors", code=1)


def variants_that_peft_cannot_merge_have_another_next_step():
    adapter("alora", lora("l"), alora_invocation_tokens=[1, 2])
    have = stowage("merge", "plain.safetensors", "alora", "-o", "o.safetensors", code=1)
    assert "use the adapter beside the model" in have and "merge_and_unload" not in have, have
    adapter("biased", {**lora("l"), "l.lora_B.bias": ([4], [0.5] * 4)}, lora_bias=True)
    have = stowage("merge", "plain.safetensors", "biased", "-o", "o.safetensors", code=2)
    assert "adds l.bias (lora_bias), which is not in the base" in have and "use the adapter beside the model" in have, have


def settings_of_another_kind_are_refused():
    cases = ("use_rslora", 1, '"use_rslora" is 1; it must be true or false'), ("use_rslora", "yes", '"use_rslora" is "yes", a text'), \
        ("use_dora", 0, '"use_dora" is 0'), ("fan_in_fan_out", "true", '"fan_in_fan_out" is "true", a text'), \
        ("lora_alpha", "16", '"lora_alpha" is "16", a text; it must be a number, without quotes'), ("r", True, '"r" is true'), \
        ("alpha_pattern", {"l": "8"}, '"l" is "8"'), ("rank_pattern", {"l": [1]}, '"l" is [1]'), ("layer_replication", "all", "layer_replication"), \
        ("lora_alpha", None, 'no numbers "r"')
    for i, (key, value, text) in enumerate(cases):
        adapter(f"kind{i}", lora("l"), **{key: value})
        assert text in stowage("merge", "plain.safetensors", f"kind{i}", "-o", "o.safetensors", code=2), (key, value)


def swapped_arguments_are_named():
    adapter("right", lora("l"))
    have = stowage("merge", "right", "plain.safetensors", "-o", "o.safetensors", code=2)
    assert "plain.safetensors is not a PEFT adapter" in have and "are BASE and ADAPTER swapped?" in have, have
    have = stowage("merge", "plain.safetensors", "u.safetensors", "-o", "o.safetensors", code=2)
    assert "u.safetensors is not a PEFT adapter" in have and "swapped" not in have, have
    assert "right is an adapter, not a model" in stowage("merge", "right", "right", "-o", "o.safetensors", code=2)


def a_later_adapter_may_replace_what_an_earlier_one_changed():
    base("seq", "l.weight")
    adapter("first", lora("l"))
    adapter("second", {"l.base_layer.weight": matrix(4, 8, 3.0), **lora("l")})
    adapter("third", {"l.modules_to_save.weight": matrix(4, 8, 7.0)})
    for names, want in ((["first", "second"], 3.5), (["first", "third"], 7.0), (["third", "first"], 7.5), (["first", "third", "first"], 7.5)):
        stowage("merge", "seq.safetensors", *names, "-o", "seq.out.safetensors")
        assert read("seq.out.safetensors")[1]["l.weight"][2] == [want] * 32, (names, want)
        os.remove("seq.out.safetensors")


def the_type_of_an_adapter_comes_before_its_tensors():
    write("ints.safetensors", {})
    adapter("frod", {"x.frod_indices": matrix(2, 2)}, peft_type="FROD")
    with open("frod/adapter_model.safetensors", "r+b") as file:
        data = file.read()
        file.seek(0)
        file.write(data.replace(b'"F32"', b'"I32"'))
    assert "peft_type is FROD" in stowage("merge", "b0.safetensors", "frod", "-o", "o.safetensors", code=1)


def a_tensor_that_is_not_found_has_a_next_step():
    adapter("lost", lora("encoder.x"))
    assert "PEFT's merge_and_unload" in stowage("merge", "b0.safetensors", "lost", "-o", "o.safetensors", code=2)


def a_row_without_length_is_the_cause_of_nan():
    write("zero.safetensors", {"l.weight": ([4, 8], [1.0] * 16 + [0.0] * 8 + [1.0] * 8)})
    adapter("dora", {**lora("l", b=([4, 2], [0.0] * 8)), "l.lora_magnitude_vector": ([4], [1.0] * 4)}, use_dora=True)
    have = stowage("merge", "zero.safetensors", "dora", "-o", "o.safetensors", code=2)
    assert "tensor l.weight: row 2 is zero" in have and "DoRA divides by its length" in have, have
    stowage("merge", "zero.safetensors", "dora", "-o", "nan.safetensors", "--allow-nan")
    write("turned.safetensors", {"l.weight": ([8, 4], [0.0, 1.0, 1.0, 1.0] * 8)})
    assert "tensor l.weight: column 0 is zero" in stowage("merge", "turned.safetensors", "dora", "-o", "o.safetensors", code=2)


def unknown_settings_are_named():
    adapter("unknown", lora("l"), use_quantum=True, later=None, also={}, off=False, revision="main")
    text = "adapter_config.json has settings that are not known here and were ignored: use_quantum; compare"
    assert f"warning: {text}" in stowage("merge", "plain.safetensors", "unknown", "-o", "u.safetensors")
    have = json.loads(stowage("merge", "plain.safetensors", "unknown", "-o", "u.safetensors", "--dry-run", "--json"))["warnings"]
    assert len(have) == 1 and have[0].startswith(text), have
    adapter("known", lora("l"), lora_dropout=0.1, bias="none", runtime_config={"x": 1}, megatron_core="megatron.core", qalora_group_size=16)
    assert "warning" not in stowage("merge", "plain.safetensors", "known", "-o", "k.safetensors")


for check in (
    parts_for_images_are_no_models_of_text,
    names_of_transformers_5_are_found,
    refusals_name_the_reason,
    variants_that_peft_cannot_merge_have_another_next_step,
    settings_of_another_kind_are_refused,
    unknown_settings_are_named,
    swapped_arguments_are_named,
    a_later_adapter_may_replace_what_an_earlier_one_changed,
    the_type_of_an_adapter_comes_before_its_tensors,
    a_tensor_that_is_not_found_has_a_next_step,
    a_row_without_length_is_the_cause_of_nan,
):
    check()
