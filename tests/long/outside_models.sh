#!/usr/bin/env bash
# outside_models.sh [WORD…]: model files as other programs write them; safetensors, gguf, compressed-tensors, peft and transformers read
# every output and agree. A WORD selects checks by name.
# STOWAGE_WEIGHTS_PYTHON names a Python that has these packages (transformers 5 needs compressed-tensors 0.15 or later) and PyTorch,
# STOWAGE_OLD_TORCH one that has PyTorch 1.13, and STOWAGE_SPARSE_PACKAGE a folder with compressed-tensors 0.9 and transformers 4.49,
# which read the sparse layouts.
. "$(dirname "$0")/../guards/lib.bash"
cd "$folder" || exit 1
python=${STOWAGE_WEIGHTS_PYTHON:-python3}
for package in torch safetensors gguf compressed_tensors peft transformers; do
  if ! "$python" -c "import $package" > /dev/null 2>&1; then
    skip "outside_models: $python has no $package; STOWAGE_WEIGHTS_PYTHON may name another"
    finish
    exit
  fi
done
mkdir work
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$source_dir/python${PYTHONPATH:+:$PYTHONPATH} STOWAGE_LIBRARY=$build/libstowage.so
"$python" -W ignore "$source_dir/tests/long/outside_models.py" "$stowage" "$folder/work" "$@" > result.log 2> errors.log || failed=1
grep -E '^(ok|FAIL|skip) ' result.log || { tail -n 30 errors.log; fail "outside_models: no check ran"; }
[ "${failed:-0}" = 0 ] || tail -n 30 errors.log
finish
