#!/usr/bin/env bash
# Unmodified PyTorch beneath `stowage run`: equal results, memory counted rightly, step time kept.
. "$(dirname "$0")/run_lib.bash"
need torch pytorch_beneath
torch="$python $here/run_torch.py"
unset PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF
equal torch_default $torch train
PYTORCH_ALLOC_CONF=expandable_segments:True PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True equal torch_expandable $torch train
PYTORCH_ALLOC_CONF=backend:cudaMallocAsync PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync equal torch_cudaMallocAsync $torch train
equal torch_graphs $torch graphs
equal torch_cudnn_benchmark $torch cudnn
equal torch_ipc $torch ipc
equal torch_loader_pinned $torch loader
equal torch_compile $torch compile
equal torch_compile_reduce_overhead $torch reduce

# Step time: bare, beneath, bare in turn.
if runs "$folder/a" $torch steps && runs "$folder/b" "$stowage" run -- $torch steps && runs "$folder/c" $torch steps; then
  a=$(field steps_ms < "$folder/a") b=$(field steps_ms < "$folder/b") c=$(field steps_ms < "$folder/c")
  words=$(awk -v a="$a" -v b="$b" -v c="$c" 'BEGIN { m = (a + c) / 2; s = a > c ? a - c : c - a; printf "%.1f, %.1f, %.1f ms for 50 steps: %.4fx", a, b, c, b / m; exit !(b <= 1.01 * m + s) }') &&
    ok "step_time_is_kept: $words" || fail "step_time_is_kept: $words"
else
  fail step_time_is_kept
fi
finish
