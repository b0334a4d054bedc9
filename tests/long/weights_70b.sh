#!/usr/bin/env bash
# Converts every value of a model with the tensor sizes of Llama 3 70B in a dry run (sparse files: 141 GB read, none stored). The
# peak of resident memory must stay within the budget of 64 MiB + 64 MiB. Takes some minutes. $STOWAGE_70B_LAYERS reads fewer
# layers.
. "$(dirname "$0")/../guards/lib.bash"
cd "$folder" || exit 1
if ! python3 "$source_dir/tests/cli/weights_70b.py" model "${STOWAGE_70B_LAYERS:-80}"; then
  skip "weights_70b: this file system has no room for files of holes"
  finish
fi
if "$stowage" shrink model -o out --dtype f16 --dry-run --json --memory 64M > dry.json 2> errors; then
  peak=$(python3 -c 'import json; print(json.load(open("dry.json"))["peak_memory_bytes"])')
  if [ "$peak" -le $((128 << 20)) ]; then ok "weights_70b: peak $((peak >> 20)) MiB"; else fail "weights_70b: peak $peak bytes"; fi
else
  cat errors
  fail weights_70b
fi
finish
