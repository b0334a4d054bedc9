#!/usr/bin/env bash
# Unmodified PyTorch beneath `stowage run`, its allocators: equal results, memory counted rightly.
. "$(dirname "$0")/run_lib.bash"
need torch pytorch_beneath
torch="$python $here/run_torch.py"
unset PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF
equal torch_default $torch train
PYTORCH_ALLOC_CONF=expandable_segments:True PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True equal torch_expandable $torch train
PYTORCH_ALLOC_CONF=backend:cudaMallocAsync PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync equal torch_cudaMallocAsync $torch train
finish
