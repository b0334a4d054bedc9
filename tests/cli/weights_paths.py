"""weights_paths.py STOWAGE: what is named instead of a model, files of a model that are missing or in another form, and options that do not apply."""

import json
import os
import pickle
import resource
import subprocess
import sys
import zipfile

from files import write

STOWAGE = sys.argv[1]
LAYER = "layers.0.w.weight"
os.mkdir("paths")


def stowage(*words, code=0, **how):
    done = subprocess.run([STOWAGE, *words], capture_output=True, text=True, **how)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def says(text, *words, code=2, **how):
    have = stowage(*words, code=code, **how)
    assert text in have, (text, have)


def matrix():
    return [8, 64], [float(i % 37 - 18) for i in range(512)]


def sharded(folder):
    """A model in two files, with its index and its config."""
    os.mkdir(folder)
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for i, name in enumerate(names):
        write(f"{folder}/{name}", {f"layers.{i}.w.weight": matrix()})
    with open(f"{folder}/model.safetensors.index.json", "w") as file:
        json.dump({"metadata": {}, "weight_map": {f"layers.{i}.w.weight": name for i, name in enumerate(names)}}, file)
    for name in ("config.json", "tokenizer.json"):
        with open(f"{folder}/{name}", "w") as file:
            json.dump({"model_type": "llama", "dtype": "float32"}, file)
    return names


def one_file_of_several_is_refused():
    first, second = sharded("two")
    says(f"two/{second}: file 2 of 2 of a model; name its folder, two/", "shrink", f"two/{second}", "-o", "o.safetensors", "--dtype", "f16")
    says("file 1 of 2", "merge", f"two/{first}", "two", "-o", "o.safetensors")
    stowage("inspect", f"two/{first}")
    assert not os.path.exists("o.safetensors")


def an_index_stands_for_its_folder():
    stowage("shrink", "two/model.safetensors.index.json", "-o", "indexed", "--dtype", "f16")
    stowage("shrink", "two", "-o", "named", "--dtype", "f16")
    assert sorted(os.listdir("indexed")) == sorted(os.listdir("named")), os.listdir("indexed")
    for name in os.listdir("named"):
        with open(f"named/{name}", "rb") as one, open(f"indexed/{name}", "rb") as other:
            assert one.read() == other.read(), name
    stowage("shrink", "model.safetensors.index.json", "-o", "../here", "--dtype", "f16", cwd="two")
    assert sorted(os.listdir("here")) == sorted(os.listdir("named"))


def a_missing_file_of_an_index_is_named():
    first, second = sharded("lost")
    os.remove(f"lost/{second}")
    have = stowage("shrink", "lost", "-o", "o", "--dtype", "f16", code=2)
    assert f"lost/{second}: is missing: model.safetensors.index.json lists it; download this file again" in have and "did you mean" not in have, have


def files_beside_a_model_name_its_folder():
    for verb, *more in (("shrink", "-o", "o", "--dtype", "f16"), ("inspect",), ("merge", "two", "-o", "o")):
        for name in ("config.json", "tokenizer.json"):
            says(f"two/{name}: a file beside a model, not the model; name its folder: two/", verb, f"two/{name}", *more)
    os.mkdir("data")
    with open("data/config.json", "w") as file:
        file.write("not json")
    assert "beside a model" not in stowage("inspect", "data/config.json", code=2)


def names_of_a_hub_say_to_download():
    text = "meta-llama/Llama-3.1-8B: does not exist; if it is a model on a hub, download it first: hf download meta-llama/Llama-3.1-8B --local-dir Llama-3.1-8B"
    for verb, *more in (("shrink", "-o", "o", "--dtype", "f16"), ("shrink", "-o", "o.safetensors"), ("inspect",), ("merge", "two", "-o", "o")):
        says(text, verb, "meta-llama/Llama-3.1-8B", *more)
    for path in ("nowhere/a.npy", "nowhere/a.safetensors", "two/llama", "./two/x"):
        assert "hub" not in stowage("inspect", path, code=2), path


def other_forms_of_torch_files_are_named():
    with zipfile.ZipFile("deflated.pt", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/data.pkl", pickle.dumps({}, 2))
        file.writestr("a/byteorder", "little")
    says("its member a/byteorder is compressed", "inspect", "deflated.pt", code=1)
    with open("raw.bin", "wb") as file:
        pickle.dump({"w": [1.0, 2.0]}, file)
    for words in (["-o", "o.safetensors", "--dtype", "f16"], ["-o", "o", "--quantize", "int8"]):
        says("raw.bin: a pickle that torch.save did not write", "shrink", "raw.bin", *words, code=1)


def a_limit_of_the_file_size_is_named():
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    write("big.safetensors", {LAYER: matrix()})
    says("larger than `ulimit -f`", "shrink", "big.safetensors", "-o", "o.safetensors", "--dtype", "f16", "--no-sync", code=1, preexec_fn=limit)
    assert not os.path.exists("o.safetensors")


def options_without_effect_are_refused():
    model = ("shrink", "big.safetensors", "-o", "o.safetensors")
    says("--prune-by has no effect without --prune", *model, "--prune-by", "model")
    says("--prune 2:4 has no threshold", *model, "--prune", "2:4", "--prune-by", "model")
    says("--include has no effect without --quantize or --dtype", *model, "--include", "*")
    says("--join and --shard exclude each other", "shrink", "two", "-o", "o", "--join", "--shard", "1K")
    for words in (["--for", "storage"], ["--names", "yes"], ["--skip", "1"], ["--na", "x"]):
        says(f"{words[0]} is for arrays and tables", *model, *words)
    assert not os.path.exists("o.safetensors")


def words_of_other_options_are_understood():
    for word, meant in (("int8", "int8"), ("float8", "fp8"), ("q4_k", "q4_k")):
        says(f"or stowage shrink --quantize {meant}", "shrink", "big.safetensors", "-o", "o.safetensors", "--dtype", word)
    says('no verb "quantize"; use stowage shrink --quantize TYPE', "quantize", "big.safetensors")


os.chdir("paths")
for check in (
    one_file_of_several_is_refused,
    an_index_stands_for_its_folder,
    a_missing_file_of_an_index_is_named,
    files_beside_a_model_name_its_folder,
    names_of_a_hub_say_to_download,
    other_forms_of_torch_files_are_named,
    a_limit_of_the_file_size_is_named,
    options_without_effect_are_refused,
    words_of_other_options_are_understood,
):
    check()
