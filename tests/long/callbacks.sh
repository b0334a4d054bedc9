#!/usr/bin/env bash
# The callbacks of stowage.lightning and stowage.transformers in real training loops. STOWAGE_TEST_TORCH names the Python that
# has PyTorch, Lightning and transformers; default python3.
. "$(dirname "$0")/../guards/lib.bash"
cd "$source_dir" || exit 1
python=${STOWAGE_TEST_TORCH:-python3}
if ! "$python" -c 'import torch' > /dev/null 2>&1; then
  skip "callbacks: $python has no PyTorch (set STOWAGE_TEST_TORCH)"
  finish
fi
export PYTHONPATH=$source_dir/python STOWAGE_LIBRARY=$build/libstowage.so CUDA_VISIBLE_DEVICES=
"$python" tests/long/callbacks.py > "$folder/log" 2>&1 || fail "callbacks: $(tail -n 1 "$folder/log")"
grep -E '^(ok|FAIL|skip) ' "$folder/log" || fail "callbacks: no test ran"
! grep -q '^FAIL' "$folder/log" || { grep -vE '^(ok|skip) ' "$folder/log" | tail -n 40; failed=1; }
finish
