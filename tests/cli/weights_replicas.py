"""weights_replicas.py STOWAGE: merges whose output has more tensors than the base: repeated layers, and an output layer that was tied to the
embedding. Run by weights.sh."""

import json
import os
import shutil
import subprocess
import sys

from files import matrix, near, read, write

WIDTH, WORDS, RANK = 8, 20, 2
Q = "model.layers.{}.self_attn.q_proj"


def stowage(*words, refused=None):
    done = subprocess.run([sys.argv[1], *words], capture_output=True, text=True)
    if refused is None:
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode in (1, 2) and refused in done.stderr, (refused, done.returncode, done.stderr)
        assert not os.path.exists(words[words.index("-o") + 1])


def base(config, folder="base3", lm_head=False, bias=None):
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    layers = {f"model.layers.{i}.{name}": value for i in range(3) for name, value in
              (("self_attn.q_proj.weight", matrix(WIDTH, WIDTH)), ("input_layernorm.weight", ([WIDTH], [1.0 + i] * WIDTH)))}
    if lm_head:
        layers["lm_head.weight"] = matrix(WORDS, WIDTH)
    if bias:
        layers[bias] = ([WORDS], [0.5] * WORDS)
    write(folder + "/model.safetensors", {"model.embed_tokens.weight": matrix(WORDS, WIDTH), **layers, "model.norm.weight": ([WIDTH], [1.0] * WIDTH)}, {"format": "pt"})
    with open(folder + "/config.json", "w") as f:
        f.write(config)
    return read(folder + "/model.safetensors")[1]


def adapter(modules, saved=(), **more):
    """Writes an adapter for modules of `name: (inputs, outputs)`; returns its tensors without PEFT's prefix."""
    shutil.rmtree("adapter3", ignore_errors=True)
    os.mkdir("adapter3")
    tensors = {}
    for name, (inputs, outputs) in modules.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = matrix(RANK, inputs)
        tensors[f"base_model.model.{name}.lora_B.weight"] = matrix(outputs, RANK)
    for name, rows in saved:
        tensors[f"base_model.model.{name}.weight"] = matrix(rows, WIDTH)
    write("adapter3/adapter_model.safetensors", tensors)
    with open("adapter3/adapter_config.json", "w") as f:
        json.dump({"peft_type": "LORA", "r": RANK, "lora_alpha": 6, **more}, f)
    return {name.removeprefix("base_model.model."): value for name, value in read("adapter3/adapter_model.safetensors")[1].items()}


def merge(**how):
    shutil.rmtree("more", ignore_errors=True)
    stowage("merge", "base3", "adapter3", "-o", "more", "--verify", **how)
    return None if how else (read("more/model.safetensors")[1], json.load(open("more/config.json")), open("more/config.json").read())


def same(have, before, tensors, module):
    """`have` is `before` with the module's adapter added in float64."""
    _, (rows, columns), values = before
    (_, _, a), (_, _, b) = tensors[module + ".lora_A.weight"], tensors[module + ".lora_B.weight"]
    for i, value in enumerate(values):
        row, column = divmod(i, columns)
        assert near(have[2][i], value + 6 / RANK * sum(b[row * RANK + k] * a[k * columns + column] for k in range(RANK))), (module, i)


def layers_are_repeated():
    text = '{\n  "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 3,\n  "layer_types": ["a", "b", "c"], "eos_token_id": [1, 2, 3], "x": {"num_hidden_layers": 3}\n}\n'
    before = base(text)
    order = [0, 1, 1, 2, 0]
    tensors = adapter({Q.format(i): (WIDTH, WIDTH) for i in (0, 2, 4)}, layer_replication=[[0, 2], [1, 3], [0, 1]])
    have, config, written = merge()
    assert written == text.replace('"num_hidden_layers": 3,\n', '"num_hidden_layers": 5,\n').replace('["a", "b", "c"]', '["a", "b", "b", "c", "a"]'), written
    assert len(have) == 2 + 2 * len(order) and have["model.norm.weight"] == before["model.norm.weight"]
    for now, then in enumerate(order):
        assert have[f"model.layers.{now}.input_layernorm.weight"] == before[f"model.layers.{then}.input_layernorm.weight"]
        one, other = have[Q.format(now) + ".weight"], before[Q.format(then) + ".weight"]
        same(one, other, tensors, Q.format(now)) if now in (0, 2, 4) else None
        assert now in (0, 2, 4) or one == other
    stowage("merge", "base3/model.safetensors", "adapter3", "-o", "more2", refused="config.json")
    stowage("merge", "base3", "adapter3", "-o", "more.safetensors", refused="a folder for the output")
    stowage("merge", "base3", "adapter3", "adapter3", "-o", "more2", refused="merged alone")
    adapter({Q.format(0): (WIDTH, WIDTH)}, layer_replication=[[0, 4]])
    merge(refused="the base has 3")
    adapter({Q.format(0): (WIDTH, WIDTH)}, layer_replication=[[0, 3]] * 2000)
    merge(refused="more layers than 4096")
    adapter({Q.format(0): (WIDTH, WIDTH)}, layer_replication=[[0, 3.5]])
    merge(refused="not a list of ranges")
    base('{"num_hidden_layers": 4}')
    adapter({Q.format(0): (WIDTH, WIDTH)}, layer_replication=[[0, 3]])
    merge(refused="does not say so")


def tied_layers_become_two():
    for config in ('{"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": true}', '{"architectures": ["GPT2LMHeadModel"]}'):
        before = base(config)
        embedding = before["model.embed_tokens.weight"]
        tensors = adapter({"lm_head": (WIDTH, WORDS)})
        have, now, _ = merge()
        assert now["tie_word_embeddings"] is False and now["architectures"] and have["model.embed_tokens.weight"] == embedding
        same(have["lm_head.weight"], embedding, tensors, "lm_head")
        tensors = adapter({Q.format(0): (WIDTH, WIDTH)}, [("lm_head", WORDS)])
        have, now, _ = merge()
        assert now["tie_word_embeddings"] is False and have["model.embed_tokens.weight"] == embedding and have["lm_head.weight"] == tensors["lm_head.weight"]
        tensors = adapter({Q.format(0): (WIDTH, WIDTH)}, [("model.embed_tokens", WORDS)])
        have, now, _ = merge()
        assert now["tie_word_embeddings"] is False and have["lm_head.weight"] == embedding and have["model.embed_tokens.weight"] == tensors["model.embed_tokens.weight"]
    # A base that has both tensors stays a model of two.
    have = base('{"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": true}', lm_head=True)
    tensors = adapter({"lm_head": (WIDTH, WORDS)})
    made, now, _ = merge()
    assert now["tie_word_embeddings"] is False
    same(made["lm_head.weight"], have["lm_head.weight"], tensors, "lm_head")
    base('{"architectures": ["GPT2LMHeadModel"]}')
    adapter({"lm_head": (WIDTH, WORDS)}, init_lora_weights="pissa")
    merge(refused="changed both")
    adapter({"lm_head": (WIDTH, WORDS)})
    base('{"architectures": ["T5ForConditionalGeneration"]}')
    merge(refused="not known for this architecture")
    base('{"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": false}')
    merge(refused="is not in the base")
    stowage("merge", "base3/model.safetensors", "adapter3", "-o", "more2", refused="config.json")


def tied_layers_of_other_names_become_two():
    for architecture, head, bias in (("BertForMaskedLM", "cls.predictions.decoder", "cls.predictions.bias"), ("RobertaForMaskedLM", "lm_head.decoder", "lm_head.bias"),
                                     ("WhisperForConditionalGeneration", "proj_out", None), ("DistilBertForMaskedLM", "vocab_projector", None)):
        before = base(json.dumps({"architectures": [architecture]}), bias=bias)
        tensors = adapter({head: (WIDTH, WORDS)})
        have, now, _ = merge()
        assert now["tie_word_embeddings"] is False and have["model.embed_tokens.weight"] == before["model.embed_tokens.weight"]
        same(have[head + ".weight"], before["model.embed_tokens.weight"], tensors, head)
        assert not bias or have[head + ".bias"] == have[bias] == before[bias]
        tensors = adapter({Q.format(0): (WIDTH, WIDTH)}, [(head, WORDS)])
        have, now, _ = merge()
        assert now["tie_word_embeddings"] is False and have[head + ".weight"] == tensors[head + ".weight"]
    for modules, saved in (({"proj_out": (WIDTH, WORDS)}, ()), ({Q.format(0): (WIDTH, WIDTH)}, [("proj_out", WORDS)])):
        base('{"architectures": ["MoonshineForConditionalGeneration"]}')
        adapter(modules, saved)
        merge(refused="how to untie them is not known for this architecture")


def copies_of_tied_layers_are_no_changes():
    """PEFT saves the embedding and the output layer, or both biases, though the model has each of them once."""

    def save(tensors):
        adapter({Q.format(0): (WIDTH, WIDTH)})
        made = {name: (shape, values) for name, (_, shape, values) in read("adapter3/adapter_model.safetensors")[1].items()}
        write("adapter3/adapter_model.safetensors", made | {f"base_model.model.{name}": value for name, value in tensors.items()})
        return {name: values for name, (_, _, values) in read("adapter3/adapter_model.safetensors")[1].items()}

    def merged(name):
        return read("more/model.safetensors")[1][name][2]

    other, more = matrix(WORDS, WIDTH), matrix(WORDS, WIDTH)
    for architecture, head in (("LlamaForCausalLM", "lm_head"), ("T5ForConditionalGeneration", "lm_head"), ("MoonshineForConditionalGeneration", "proj_out")):
        before = base(json.dumps({"architectures": [architecture], "tie_word_embeddings": True}))["model.embed_tokens.weight"]
        for embedding in ((before[1], before[2]), other):
            want = save({"model.embed_tokens.weight": embedding, f"{head}.weight": embedding})
            have, now, _ = merge()
            assert now["tie_word_embeddings"] is True and f"{head}.weight" not in have, architecture
            assert merged("model.embed_tokens.weight") == want["base_model.model.model.embed_tokens.weight"], architecture
        save({f"{head}.weight": (before[1], before[2])})
        assert merge()[1]["tie_word_embeddings"] is True
    # The embedding has another name there, with the same values or with others.
    save({"encoder.embed_words.weight": (before[1], before[2])})
    assert merge()[0]["model.embed_tokens.weight"] == before
    save({"encoder.embed_words.weight": other, "decoder.embed_words.weight": other})
    merge(refused="is not in the base")
    # An output layer of its own.
    base('{"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": true}')
    want = save({"model.embed_tokens.weight": other, "lm_head.weight": more})
    assert merge()[1]["tie_word_embeddings"] is False
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        assert merged(name) == want[f"base_model.model.{name}"], name
    # Biases.
    base('{"architectures": ["BertForMaskedLM"]}', bias="cls.predictions.bias")
    bias = ([WORDS], [0.25] * WORDS)
    save({"cls.predictions.bias": bias, "cls.predictions.decoder.bias": bias})
    have, now, _ = merge()
    assert "tie_word_embeddings" not in now and have["cls.predictions.bias"][2] == bias[1] and "cls.predictions.decoder.bias" not in have
    save({"cls.predictions.bias": bias, "cls.predictions.decoder.bias": ([WORDS], [0.75] * WORDS)})
    merge(refused="is not in the base")


def a_renamed_embedding_is_the_tied_one():
    base('{"architectures": ["Gemma3ForConditionalGeneration"], "tie_word_embeddings": true}')
    adapter({Q.format(0): (WIDTH, WIDTH)}, [("model.language_model.embed_tokens", WORDS)])
    merge(refused="how to untie them is not known for this architecture")


for check in (copies_of_tied_layers_are_no_changes, a_renamed_embedding_is_the_tied_one, layers_are_repeated, tied_layers_become_two, tied_layers_of_other_names_become_two):
    check()
