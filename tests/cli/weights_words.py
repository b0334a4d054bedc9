"""weights_words.py STOWAGE: what shrink and inspect say about models: reasons, causes, and the option that helps."""

import json
import os
import struct
import subprocess
import sys

from files import write

STOWAGE = sys.argv[1]
os.mkdir("words")
os.chdir("words")


def stowage(*words, code=0):
    done = subprocess.run([STOWAGE, *words], capture_output=True, text=True)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def says(text, *words, code=2):
    have = stowage(*words, code=code)
    assert text in have, (text, have)


def matrix(rows, columns):
    return [rows, columns], [float(i % 37 - 18) for i in range(rows * columns)]


def gguf(path, name, kind, columns, body):
    text = struct.pack("<Q", len(name)) + name.encode()
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text + struct.pack("<IQQIQ", 2, columns, 4, kind, 0)
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + body)


def tensors_that_stay_are_counted_by_reason():
    odd, even, norm = "layers.0.a.weight", "layers.0.b.weight", "layers.0.norm.weight"
    write("odd.safetensors", {odd: matrix(8, 98)})
    reason = "nothing to do: what was chosen stays as it is: 1 tensor with rows that are no multiple of 4 values"
    says(reason, "shrink", "odd.safetensors", "-o", "o.safetensors", "--quantize", "int8")
    says(reason, "shrink", "odd.safetensors", "-o", "o.safetensors", "--quantize", "int8", "--include", "*")
    says(reason, "shrink", "odd.safetensors", "-o", "o.safetensors", "--prune", "2:4")
    write("some.safetensors", {odd: matrix(8, 98), even: matrix(8, 96), norm: ([96], [1.0] * 96)})
    line = "left as they are: 1 tensor with rows that are no multiple of 4 values, 1 that are no matrices\n"
    says(line, "shrink", "some.safetensors", "--dry-run", "--quantize", "int8", "--include", "*", code=0)
    says("every tensor that --include", "shrink", "some.safetensors", "--dry-run", "--dtype", "f32", "--include", "*")
    says("choose tensors with --include", "shrink", "some.safetensors", "--dry-run", "--dtype", "f32")
    gguf("q8.gguf", "blk.0.attn_q.weight", 8, 64, bytes(34 * 8))
    says("stays as it is: 1 tensor already that small", "shrink", "q8.gguf", "-o", "o.gguf", "--quantize", "q8_0", "--include", "*attn_q*")
    gguf("rows.gguf", "blk.0.attn_q.weight", 0, 24, bytes(4 * 24 * 4))
    says("1 tensor with rows that are no multiple of 32 values", "shrink", "rows.gguf", "-o", "o.gguf", "--quantize", "q8_0")


def files_that_are_no_models_are_named():
    for name in ("a.safetensors", "a.gguf", "a.bin", "a.pt"):
        with open(name, "w") as file:
            file.write("version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12345\n")
        for words in (["inspect", name], ["shrink", name, "-o", "o.safetensors", "--dtype", "f16"]):
            says("a pointer of Git LFS, not the model itself; run git lfs pull", *words)
        with open(name, "w") as file:
            file.write("<!doctype HTML>\n<html><head></head></html>\n")
        for words in (["inspect", name], ["shrink", name, "-o", "o.safetensors", "--dtype", "f16"]):
            says("a web page, not a model; download the file itself", *words)


def an_index_names_the_tensor_that_no_file_has():
    os.mkdir("indexed")
    write("indexed/m.safetensors", {"w": ([1], [1.0])})
    with open("indexed/model.safetensors.index.json", "w") as file:
        json.dump({"weight_map": {"w": "m.safetensors", "lost.weight": "m.safetensors"}}, file)
    says("tensor lost.weight is not in m.safetensors", "inspect", "indexed")


def requests_that_do_not_fit_exit_with_2():
    write("w.safetensors", {"layers.0.q_proj.weight": matrix(8, 64)})
    for kind in ("q4_k", "q5_k"):
        stowage("shrink", "w.safetensors", "-o", "o.safetensors", "--quantize", kind, code=2)
    says("convert_hf_to_gguf.py", "shrink", "w.safetensors", "-o", "o.gguf", "--dtype", "f16")
    says('"fp16" is not a type for weights; use f16, bf16 or f32', "shrink", "w.safetensors", "-o", "o.safetensors", "--dtype", "fp16")
    says("--shard 0: give the size of a file", "shrink", "w.safetensors", "-o", "o", "--shard", "0")
    says("--vram 0: give the memory of a device", "inspect", "w.safetensors", "--vram", "0")
    says("/dev/full is a device", "shrink", "w.safetensors", "-o", "/dev/full", "--dtype", "f16")
    with open("taken", "w") as file:
        file.write("x")
    says("taken: is a file; name a new folder", "shrink", "w.safetensors", "-o", "taken", "--dtype", "f16")
    for name in ("none/o.safetensors", "none/o"):
        says(f"{name}: the folder none/ does not exist; create it first", "shrink", "w.safetensors", "-o", name, "--dtype", "f16", code=1)


def a_dry_run_needs_no_output():
    for name in ("w.safetensors", "indexed-well", "f32.gguf"):
        if name == "indexed-well":
            os.mkdir(name)
            write(f"{name}/model.safetensors", {"layers.0.q_proj.weight": matrix(8, 64)})
        elif name == "f32.gguf":
            gguf(name, "blk.0.attn_q.weight", 0, 64, bytes(4 * 64 * 4))
        before = sorted(os.listdir())
        assert json.loads(stowage("shrink", name, "--dry-run", "--dtype", "f16", "--json"))["output"] is None
        stowage("shrink", name, "--dry-run", "--dtype", "f16")
        assert sorted(os.listdir()) == before
        says("no output given", "shrink", name, "--dtype", "f16")


def a_resume_without_a_checkpoint_says_so():
    says("started over: there is no checkpoint", "shrink", "w.safetensors", "-o", "r.safetensors", "--dtype", "f16", "--resume", code=0)


def the_bytes_that_would_fit_are_those_that_are_written():
    facts = json.loads(stowage("inspect", "indexed-well", "--vram", "16G", "--json"))
    for kind in ("int8", "fp8"):
        made = json.loads(stowage("shrink", "indexed-well", "--dry-run", "--quantize", kind, "--json"))
        planned = [one["weights_bytes"] for one in facts["fits"] if one["type"] == kind]
        assert planned == [made["bytes_after"]], (kind, planned, made["bytes_after"])


def small_questions_have_answers():
    # Outputs and inputs that cannot be.
    for name in ("z.pt", "z.bin", "z.npz", "z.safetensor"):
        says(f"{name}: a model is written as .safetensors or .gguf, or into a folder", "shrink", "indexed-well", "-o", name, "--dtype", "f16")
        assert not os.path.exists(name)
    for words in (("-o", "out", "--dtype", "f16"), ("-o", "o.safetensors"), ("-o", "o.npy", "--quantize", "int8")):
        says("nowhere: does not exist; check the path", "shrink", "nowhere", *words)
    # Rows that do not fill the blocks of 256 values.
    gguf("q4.gguf", "blk.0.attn_q.weight", 0, 288, bytes(4 * 288 * 4))
    line = "q8_0 instead of q4_k: 1 tensor with rows that are no multiple of 256 values\n"
    says(line, "shrink", "q4.gguf", "-o", "o.gguf", "--quantize", "q4_k", code=0)
    assert "instead of" not in stowage("shrink", "q4.gguf", "-o", "o.gguf", "--quantize", "q8_0")
    # One infinity is one value.
    shape, values = matrix(8, 64)
    write("inf.safetensors", {"q_proj.weight": (shape, values[:70] + [float("inf")] + values[71:])})
    for kind in ("int8", "fp8"):
        says("tensor q_proj.weight: 1 value is NaN or infinite", "shrink", "inf.safetensors", "-o", "o.safetensors", "--quantize", kind)
    say = json.loads(stowage("shrink", "inf.safetensors", "--dry-run", "--quantize", "int8", "--allow-nan", "--json"))
    assert (say["not_finite"], say["clipped"]) == (1, 0) and 0 < say["relative_rms_error"] < 0.01, say


def a_merge_can_be_tried_without_a_name():
    os.mkdir("lora")
    write("lora/adapter_model.safetensors", {f"layers.0.q_proj.lora_{name}.weight": (shape, [1.0] * 64) for name, shape in (("A", [1, 64]), ("B", [8, 1]))} | {"layers.0.q_proj.lora_B.weight": ([8, 1], [1.0] * 8)})
    with open("lora/adapter_config.json", "w") as file:
        json.dump({"peft_type": "LORA", "r": 1, "lora_alpha": 1}, file)
    for base in ("w.safetensors", "indexed-well"):
        before = sorted(os.listdir())
        assert "merged 1 adapter into 1 tensor" in stowage("merge", base, "lora", "--dry-run")
        assert json.loads(stowage("merge", base, "lora", "--dry-run", "--json"))["output"] is None
        assert sorted(os.listdir()) == before
        says("no output given", "merge", base, "lora")


def folder(name, tensors, **config):
    """Makes a model's folder."""
    os.mkdir(name)
    write(f"{name}/model.safetensors", tensors)
    with open(f"{name}/config.json", "w") as file:
        json.dump(config, file)


def linked_folders_are_not_followed():
    folder("links", {"layers.0.q_proj.weight": matrix(8, 64)}, dtype="float32")
    os.mkdir("elsewhere")
    for name in ("elsewhere/key", "cached"):
        with open(name, "w") as file:
            file.write("x")
    os.mkdir("links/assets")
    os.symlink("../elsewhere", "links/extra")
    os.symlink("../../cached", "links/assets/vocab.txt")
    os.symlink(".", "links/loop")
    have = stowage("shrink", "links", "-o", "unlinked", "--dtype", "f16")
    assert "other files: 2 carried over\nleft out: 2 linked folders\n" in have, have
    assert sorted(os.listdir("unlinked")) == ["assets", "config.json", "model.safetensors"]
    assert os.path.isfile("unlinked/assets/vocab.txt") and not os.path.islink("unlinked/assets/vocab.txt")


def files_of_others_in_a_partial_folder_stay():
    os.mkdir("small.partial")
    with open("small.partial/notes", "w") as file:
        file.write("x")
    for more in ((), ("--resume",)):
        says("small.partial: the folder already exists, and no run that was stopped left it", "shrink", "links", "-o", "small/", "--dtype", "f16", *more)
    assert os.listdir("small.partial") == ["notes"] and not os.path.exists("small")
    with open("small.resume", "wb") as file:  # what a run that was killed leaves
        file.write(b"STOWWGT1" + bytes(8))
    stowage("shrink", "links", "-o", "small", "--dtype", "f16")
    assert os.path.isdir("small") and not os.path.exists("small.partial") and not os.path.exists("small.resume")


def a_private_model_stays_private():
    folder("private", {f"layers.{i}.w.weight": matrix(8, 64) for i in range(2)}, dtype="float32")
    os.mkdir("private/more")
    with open("private/more/notes", "w") as file:
        file.write("x")
    kept = {"private": 0o700, "private/model.safetensors": 0o600, "private/config.json": 0o640, "private/more": 0o750, "private/more/notes": 0o400}
    for name, mode in kept.items():
        os.chmod(name, mode)
    old = os.umask(0o022)
    stowage("shrink", "private", "-o", "public", "--dtype", "f16", "--shard", "1K")
    stowage("shrink", "private/model.safetensors", "-o", "public.safetensors", "--dtype", "f16")
    os.umask(old)
    modes = {name: os.stat(name).st_mode & 0o777 for name in ("public", "public.safetensors", *(f"public/{name}" for name in os.listdir("public")), "public/more/notes")}
    shards = {f"public/model-0000{i}-of-00002.safetensors": 0o600 for i in (1, 2)}
    assert modes == {"public": 0o700, "public.safetensors": 0o600, **shards, "public/model.safetensors.index.json": 0o600, "public/config.json": 0o640, "public/more": 0o750, "public/more/notes": 0o600}, modes


for check in (
    tensors_that_stay_are_counted_by_reason,
    files_that_are_no_models_are_named,
    an_index_names_the_tensor_that_no_file_has,
    requests_that_do_not_fit_exit_with_2,
    a_dry_run_needs_no_output,
    a_resume_without_a_checkpoint_says_so,
    the_bytes_that_would_fit_are_those_that_are_written,
    small_questions_have_answers,
    a_merge_can_be_tried_without_a_name,
    linked_folders_are_not_followed,
    files_of_others_in_a_partial_folder_stay,
    a_private_model_stays_private,
):
    check()
