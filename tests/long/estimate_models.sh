#!/usr/bin/env bash
# stowage.estimate for programs that were written without looking at it, beside the same programs on the CPU (estimate_models.py).
# STOWAGE_TEST_TORCH names the Python that has PyTorch; default python3.
. "$(dirname "$0")/../guards/lib.bash"
cd "$source_dir" || exit 1
python=${STOWAGE_TEST_TORCH:-python3}
if ! "$python" -c 'import torch; assert tuple(int(p) for p in torch.__version__.split(".")[:2]) >= (2, 5)' > /dev/null 2>&1; then
  skip "estimate_models: $python has no PyTorch 2.5 or newer (set STOWAGE_TEST_TORCH)"
  finish
fi
export PYTHONPATH=$source_dir/python STOWAGE_LIBRARY=$build/libstowage.so CUDA_VISIBLE_DEVICES=
"$python" tests/long/estimate_models.py > "$folder/log" 2>&1 || failed=1
grep -E '^(ok|FAIL|skip) |^  ' "$folder/log" || { tail -n 20 "$folder/log"; fail "estimate_models: no program ran"; }
finish
