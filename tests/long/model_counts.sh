#!/usr/bin/env bash
# The parameters that `stowage estimate MODEL_FOLDER` counts for 41 models are those of the classes of transformers.
# STOWAGE_TEST_TORCH names the Python that has PyTorch and transformers; default python3.
. "$(dirname "$0")/../guards/lib.bash"
cd "$source_dir" || exit 1
python=${STOWAGE_TEST_TORCH:-python3}
if ! "$python" -c 'import torch, transformers' > /dev/null 2>&1; then
  skip "model_counts: $python has no PyTorch or no transformers (set STOWAGE_TEST_TORCH)"
  finish
fi
CUDA_VISIBLE_DEVICES='' "$python" tests/long/model_counts.py > "$folder/log" 2>&1 || failed=1
grep -E '^(ok|FAIL) ' "$folder/log" || { tail -n 20 "$folder/log"; fail "model_counts: no model was counted"; }
finish
