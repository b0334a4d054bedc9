#!/usr/bin/env bash
# weights_packages.sh: reads what shrink and merge write with safetensors, gguf, compressed-tensors, peft and transformers.
# STOWAGE_WEIGHTS_PYTHON names a Python that has them and PyTorch.
. "$(dirname "$0")/../guards/lib.bash"
cd "$folder" || exit 1
python=${STOWAGE_WEIGHTS_PYTHON:-python3}
for package in torch safetensors gguf compressed_tensors peft transformers; do
  if ! "$python" -c "import $package" > /dev/null 2>&1; then
    skip "weights_packages: $python has no $package; STOWAGE_WEIGHTS_PYTHON may name another"
    finish
    exit
  fi
done
mkdir work
"$python" -W ignore "$source_dir/tests/long/weights_packages.py" "$stowage" "$folder/work" > result.log 2> errors.log
if grep -q '^FAIL' result.log || ! grep -q '^ok several_adapters_merge' result.log; then
  tail -n 30 errors.log
  grep '^FAIL' result.log
  fail "weights_packages: $(grep -c '^FAIL' result.log) checks"
else
  grep "^skip" result.log
  ok "weights_packages"
fi
finish
