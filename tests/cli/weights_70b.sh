#!/usr/bin/env bash
# A model with the tensor sizes of Llama 3 70B in sparse files: listed, planned and partly read in bounded memory.
# tests/long/weights_70b.sh reads all of it.
. "$(dirname "$0")/../guards/lib.bash"
cd "$folder" || exit 1
if ! python3 "$source_dir/tests/cli/weights_70b.py" model; then skip "weights_70b: this file system has no room for files of holes"; finish; fi
# The peak of a verb with a budget of 32 MiB: at most 64 MiB above it.
check a_model_of_70b_is_inspected_in_bounded_memory bash -c "$stowage inspect model --vram 80G --json --memory 32M > facts.json && python3 -c '
import json
r = json.load(open(\"facts.json\"))
assert r[\"parameters\"] == 70553706496, r[\"parameters\"]
assert r[\"peak_memory_bytes\"] <= (32 + 64) << 20, r[\"peak_memory_bytes\"]
'"
for words in "--dtype f16" "--quantize int8" "--quantize fp8" "--prune 50%" "--prune 2:4" "--prune 50% --sparse"; do
  check "a_dry_run_of_70b_stays_in_its_budget: $words" bash -c "$stowage shrink model -o out $words --include 'model.layers.7.self_attn.k_proj.weight' --include 'model.layers.79.self_attn.v_proj.weight' --dry-run --json --memory 32M > dry.json && python3 -c '
import json
r = json.load(open(\"dry.json\"))
assert len(r[\"tensors\"]) == 723 and r[\"peak_memory_bytes\"] <= (32 + 64) << 20, r[\"peak_memory_bytes\"]
assert r[\"bytes\"] == 141107412992
' && test ! -e out"
done
finish
