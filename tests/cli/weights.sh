#!/usr/bin/env bash
# stowage shrink, merge and inspect on model files: what they write, refuse and leave behind. Needs only Python's standard
# library.
. "$(dirname "$0")/../guards/lib.bash"
cd "$folder" || exit 1
cat > files.py << 'END'
import json, random, struct, sys

def write(path, tensors, metadata=None):  # name -> (shape, floats)
    header, at, body = ({"__metadata__": metadata} if metadata else {}), 0, b""
    for name, (shape, values) in tensors.items():
        data = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
        at, body = at + len(data), body + data
    text = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)

def read(path):
    data = open(path, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    kinds = {"F32": "f", "F16": "e", "I64": "q", "I32": "i"}
    out = {}
    for name, facts in header.items():
        if name == "__metadata__":
            continue
        a, b = (8 + length + x for x in facts["data_offsets"])
        kind = kinds.get(facts["dtype"])
        size = struct.calcsize(kind) if kind else 1
        out[name] = (facts["dtype"], facts["shape"], list(struct.unpack(f"<{(b - a) // size}{kind}", data[a:b])) if kind else data[a:b])
    return header.get("__metadata__"), out

def near(have, want):  # at most one value of float32 between the two
    bits = lambda x: struct.unpack("<i", struct.pack("<f", x))[0]
    return abs(bits(have) - bits(want)) <= 1

random.seed(3)
def matrix(rows, columns):
    return [rows, columns], [random.gauss(0, 0.02) for _ in range(rows * columns)]

def model():
    return {"model.embed_tokens.weight": matrix(40, 64), "model.layers.0.self_attn.q_proj.weight": matrix(64, 64),
            "model.layers.0.input_layernorm.weight": ([64], [1.0] * 64)}
END
python3 -c 'from files import *; write("in.safetensors", model(), {"format": "pt", "by": "é"})'

check a_cast_keeps_names_shapes_and_metadata bash -c "$stowage shrink in.safetensors -o half.safetensors --dtype f16 --verify && python3 - << 'END'
from files import *
before, after = read('in.safetensors'), read('half.safetensors')
assert after[0] == {'format': 'pt', 'by': 'é'} and before[1].keys() == after[1].keys()
for name, (kind, shape, values) in after[1].items():
    was = before[1][name]
    assert kind == 'F16' and shape == was[1]
    assert values == list(struct.unpack(f'<{len(values)}e', struct.pack(f'<{len(values)}e', *was[2])))
END"
check a_pruned_folder_is_stored_without_zeros bash -c "mkdir in && cp in.safetensors in/model.safetensors && echo '{\"dtype\": \"float32\"}' > in/config.json &&
  $stowage shrink in -o sparse --prune 60% --sparse --verify && $stowage shrink in -o dense --prune 60% && python3 - << 'END'
from files import *
name = 'model.layers.0.self_attn.q_proj.'
dense, sparse = read('dense/model.safetensors')[1], read('sparse/model.safetensors')[1]
want, kept, at = dense[name + 'weight'][2], sparse[name + 'compressed'][2], 0
bits, rows = sparse[name + 'bitmask'][2], sparse[name + 'row_offsets'][2]
for i, value in enumerate(want):
    if i % 64 == 0:
        assert rows[i // 64] == at
    if bits[i // 8] >> i % 8 & 1:
        assert kept[at] == value != 0
        at += 1
    else:
        assert value == 0
assert at == len(kept) and sparse[name + 'shape'][2] == [64, 64] and name + 'weight' not in sparse
config = json.load(open('sparse/config.json'))['quantization_config']
assert config['sparsity_config']['format'] == 'sparse-bitmask' and 'model.embed_tokens' in config['sparsity_config']['ignore']
END"
python3 "$source_dir/tests/cli/old_torch.py" old.pt
check a_file_of_old_pytorch_is_read bash -c "$stowage shrink old.pt -o old.safetensors && python3 - << 'END'
from files import *
have = read('old.safetensors')[1]
assert have['w'] == ('F32', [2, 3], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]) and have['tied'][2] == [3.0, 4.0, 5.0] and have['n'] == ('I64', [2], [7, -8]), have
assert have['turned'] == ('F32', [3, 2], [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]), have
data = open('old.pt', 'rb').read()
open('cut.pt', 'wb').write(data[:-1])
open('big.pt', 'wb').write(data.replace(b'little_endianq\x02\x88', b'little_endianq\x02\x89'))
END"
every_protocol() { # that torch.save accepts
  local protocol
  for protocol in 3 4 5; do
    STOWAGE_TEST_PROTOCOL=$protocol python3 "$source_dir/tests/cli/old_torch.py" protocol.pt && "$stowage" shrink protocol.pt -o protocol.safetensors --force &&
      cmp protocol.safetensors old.safetensors || return 1
  done
}
check a_file_of_old_pytorch_is_read_in_every_protocol every_protocol
checkpoint() { # NAME…: what shrink makes of it is what it makes of the first entry alone
  python3 "$source_dir/tests/cli/old_torch.py" checkpoint.pt "$@" && "$stowage" shrink checkpoint.pt -o checkpoint.safetensors &&
    cmp checkpoint.safetensors old.safetensors
}
check a_checkpoint_of_lightning_is_read checkpoint state_dict ema
check a_checkpoint_with_one_dict_of_tensors_is_read checkpoint weights
for what in tensor list mixed; do python3 "$source_dir/tests/cli/old_torch.py" $what.pt $what; done
check one_tensor_and_a_list_of_tensors_are_read bash -c "$stowage shrink tensor.pt -o tensor.safetensors && $stowage shrink list.pt -o list.safetensors && $stowage inspect list.pt && python3 - << 'END'
from files import *
w, n = ('F32', [2, 3], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), ('I64', [2], [7, -8])
assert read('tensor.safetensors')[1] == {'tensor': w} and read('list.safetensors')[1] == {'0': w, '1': n}, read('list.safetensors')
END"
lazy_values() { # of a tensor that torch negates or conjugates when it reads it
  for what in neg conj kept; do python3 "$source_dir/tests/cli/old_torch.py" $what.pt $what || return 1; done
  ! "$stowage" shrink neg.pt -o neg.safetensors 2> neg.log && grep -q 'tensor w was saved as a lazy negation; save x.resolve_conj' neg.log &&
    ! "$stowage" inspect conj.pt 2> conj.log && grep -q 'tensor w was saved as a lazy conjugation' conj.log &&
    "$stowage" shrink kept.pt -o kept.safetensors && cmp kept.safetensors old.safetensors
}
complex_values() {
  python3 "$source_dir/tests/cli/old_torch.py" complex.pt complex && ! "$stowage" inspect complex.pt 2> complex.log &&
    grep -q 'has complex tensors (ComplexFloatStorage), which are not read; save torch.view_as_real' complex.log
}
check complex_tensors_of_a_torch_file_are_named complex_values
check a_torch_file_that_has_the_type_already_becomes_safetensors bash -c "$stowage shrink old.pt -o typed.safetensors --dtype f32 && cmp typed.safetensors old.safetensors"
check lazy_values_of_a_torch_file_are_refused lazy_values
check a_list_with_other_things_is_refused bash -c "! $stowage inspect mixed.pt 2> mixed.log && grep -q 'item 1 of its list is not a tensor; save the tensors alone' mixed.log"
check a_name_behind_a_torch_file_says_what_to_do bash -c "! $stowage inspect $source_dir/tests/fuzz/corpus/torch/state_dict:w 2> name.log && grep -q 'torch.save: all of its tensors are taken; omit the name' name.log"
python3 "$source_dir/tests/cli/old_torch.py" unclear.pt weights ema
check it_is_unclear_which_of_two_dicts_is_the_model bash -c "$stowage shrink unclear.pt -o unclear.safetensors 2>&1 | grep -q 'state_dict()' && test ! -e unclear.safetensors"
# Work that is the product of two counts in the files: modules with keys, targets and one another.
cat > many.py << 'END'
import json, os, struct, subprocess, sys
def file(path, names):
    head = json.dumps({name: {"dtype": "F32", "shape": [1, 1], "data_offsets": [4 * i, 4 * i + 4]} for i, name in enumerate(names)}).encode()
    open(path, "wb").write(struct.pack("<Q", len(head)) + head + struct.pack("<f", 1) * len(names))
modules = 20000
file("many.safetensors", [f"l{i}.q.weight" for i in range(modules)])
os.mkdir("many")
file("many/adapter_model.safetensors", [f"base_model.model.l{i}.q.lora_{ab}.weight" for i in range(modules) for ab in "AB"])
for more, code, text in (({}, 0, ""), ({"rank_pattern": {f"l{i}.q": 1 for i in range(3000)}, "alpha_pattern": {f"[l]{i}.q": 1 for i in range(100)}}, 0, ""),
                         ({"rank_pattern": {f"l{i}.q": 1 for i in range(60000)}}, 1, "rank_pattern has 60000 entries for 20000 modules"),
                         ({"alpha_pattern": {f"[l]{i}.q": 1 for i in range(101)}}, 1, "after 100 others"),
                         ({"target_parameters": [f"x{i}" for i in range(100)]}, 1, "more than 64 parameters"), ({"target_parameters": ["q.x"]}, 1, "20000 modules are not merged")):
    json.dump({"peft_type": "LORA", "r": 1, "lora_alpha": 4, **more}, open("many/adapter_config.json", "w"))
    done = subprocess.run(["bash", "-c", "ulimit -t 20; exec \"$@\"", "-", sys.argv[1], "merge", "many.safetensors", "many", "-o", "many.out.safetensors"], capture_output=True, text=True)
    assert done.returncode == code and text in done.stderr, (list(more), done.returncode, done.stderr)
    if code == 0:
        os.remove("many.out.safetensors")
END
check merging_many_modules_takes_time_in_their_number python3 many.py "$stowage"
python3 "$source_dir/tests/cli/old_torch.py" same.pt same
check a_dict_named_many_times_costs_no_time bash -c "! (ulimit -t 5; $stowage inspect same.pt) > same.log 2>&1 && grep -q 'state_dict()' same.log"
check one_is_singular bash -c "python3 -c '
import json, struct
head = json.dumps({\"w\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}).encode()
open(\"single.safetensors\", \"wb\").write(struct.pack(\"<Q\", len(head)) + head + struct.pack(\"<f\", 1))' && $stowage inspect single.safetensors | grep -q '; 1 tensor, 1 parameter$' && $stowage shrink single.safetensors -o single.half.safetensors --dtype f16 | grep -q '^1 tensor, 1 changed' && $stowage inspect --diff single.safetensors single.safetensors | grep -q '^1 tensor is the same'"
check exclude_leaves_tensors bash -c "$stowage shrink in.safetensors -o part.safetensors --dtype f16 --exclude '*norm*' && python3 -c '
from files import *
kinds = {k: v[0] for k, v in read(\"part.safetensors\")[1].items()}
assert sorted(kinds.values()) == [\"F16\", \"F16\", \"F32\"], kinds'"
check a_dry_run_writes_nothing bash -c "$stowage shrink in.safetensors -o dry.safetensors --quantize int8 --dry-run --json > dry.json && test ! -e dry.safetensors && python3 -c '
import json
r = json.load(open(\"dry.json\"))
t = {x[\"name\"]: x for x in r[\"tensors\"]}
q = t[\"model.layers.0.self_attn.q_proj.weight\"]
assert q[\"to_dtype\"] == \"int8\" and 0 < q[\"relative_rms_error\"] < 0.02 and r[\"dry_run\"] and r[\"file_bytes\"] == 0
assert not t[\"model.embed_tokens.weight\"][\"changed\"]'"
check shards_and_an_index bash -c "$stowage shrink in.safetensors -o cut --shard 12K && ls cut | grep -q model-00001-of-00003.safetensors && $stowage inspect --diff in.safetensors cut && $stowage shrink cut -o joined.safetensors && $stowage inspect --diff in.safetensors joined.safetensors"
check layers_of_inputs_x_outputs env PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 python3 "$source_dir/tests/cli/weights_turned.py" "$stowage"
check tensors_are_chosen_by_their_names env PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 python3 "$source_dir/tests/cli/weights_names.py" "$stowage"
check other_paths_forms_and_options_are_named env PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 python3 "$source_dir/tests/cli/weights_paths.py" "$stowage"
check repeated_and_tied_layers env PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 python3 "$source_dir/tests/cli/weights_replicas.py" "$stowage"
check parts_tied_layers_and_quantized_inputs env PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 python3 "$source_dir/tests/cli/weights_parts.py" "$stowage"
check reasons_and_causes_are_named env PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 python3 "$source_dir/tests/cli/weights_words.py" "$stowage"
check parameters_of_packed_layers env PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 python3 "$source_dir/tests/cli/weights_counts.py" "$stowage"
check readers_load_quantized_models env PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 python3 "$source_dir/tests/cli/weights_readers.py" "$stowage"
check adapters_of_other_names_and_kinds env PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 python3 "$source_dir/tests/cli/weights_adapters.py" "$stowage"
check adapters_of_names_after_loading env PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 python3 "$source_dir/tests/cli/weights_loaded.py" "$stowage"
check tied_output_layers_are_ignored bash -c "$stowage shrink in -o tied --quantize int8 && python3 - << 'END'
import json
ignored = json.load(open('tied/config.json'))['quantization_config']['ignore']
assert {'lm_head', 'cls.predictions.decoder', 'lm_head.decoder', 'vocab_projector', 'proj_out'} <= set(ignored), ignored
END"
check differences_exit_with_1 bash -c "! $stowage inspect --diff in.safetensors half.safetensors --json > diff.json && python3 -c 'import json; assert not json.load(open(\"diff.json\"))[\"equal\"]'"
check inspect_reports_what_fits bash -c "$stowage inspect in.safetensors --vram 20K --json > fit.json && python3 -c '
import json
r = json.load(open(\"fit.json\"))
assert r[\"parameters\"] == 40 * 64 + 64 * 64 + 64
assert [f[\"fits\"] for f in r[\"fits\"] if f[\"type\"] in (\"as it is\", \"bf16\")] == [False, True], r[\"fits\"]'"

refuses() { # NAME EXIT WORD ARGUMENTS…
  local name=$1 exit=$2 word=$3; shift 3
  "$stowage" "$@" > refused.log 2>&1
  local code=$?
  if [ "$code" = "$exit" ] && grep -q -- "$word" refused.log; then ok "$name"; else cat refused.log; fail "$name: exit $code"; fi
}
refuses gguf_of_safetensors_names_the_tool 2 convert_hf_to_gguf.py shrink in.safetensors -o x.gguf
refuses the_input_is_never_overwritten 2 'being read' shrink in.safetensors -o in.safetensors --dtype f16
refuses model_options_need_a_model 2 quantize shrink "$source_dir/tests/fuzz/corpus/npy/float64" -o x.npy --quantize q8_0
cp "$source_dir/tests/fuzz/corpus/torch/evil" evil.pt
refuses a_cut_file_of_old_pytorch 2 'ends before' shrink cut.pt -o x.safetensors
refuses an_old_file_of_a_big_endian_machine 1 big-endian shrink big.pt -o x.safetensors
refuses code_in_a_pickle 1 "could run code" shrink evil.pt -o x.safetensors
refuses an_adapter_without_config 2 'adapter_config' merge in.safetensors half.safetensors -o merged.safetensors
refuses diff_needs_two 2 'two models' inspect --diff in.safetensors

# A run that is killed leaves its partial file; --resume gives the same result as an uninterrupted run.
python3 - << 'END'
import json, os, struct
shape = [2048, 4096]
each = 4 * shape[0] * shape[1]
names = [f"layers.{i}.weight" for i in range(8)]
header = json.dumps({n: {"dtype": "F32", "shape": shape, "data_offsets": [i * each, (i + 1) * each]} for i, n in enumerate(names)}).encode()
block = struct.pack("<1024f", *[(i % 37 - 18) / 64 for i in range(1024)])
with open("large.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(header)) + header)
    for _ in range(8 * each // len(block)):
        f.write(block)
END
"$stowage" shrink large.safetensors -o whole.safetensors --dtype bf16 --no-sync > /dev/null
"$stowage" shrink large.safetensors -o killed.safetensors --dtype bf16 --no-sync --threads 1 > /dev/null 2>&1 &
pid=$!
for _ in $(seq 200); do [ -e killed.safetensors.partial ] && break; sleep 0.01; done
kill -9 "$pid" 2> /dev/null; wait "$pid" 2> /dev/null
check a_killed_run_is_resumed bash -c "$stowage shrink large.safetensors -o killed.safetensors --dtype bf16 --no-sync --resume > /dev/null && cmp whole.safetensors killed.safetensors && test ! -e killed.safetensors.resume -a ! -e killed.safetensors.partial"
check a_signal_says_what_is_kept env PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 python3 "$source_dir/tests/cli/weights_signals.py" "$stowage"
rm -f ./*.safetensors
finish
