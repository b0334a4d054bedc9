#!/usr/bin/env bash
# Unmodified PyTorch under `stowage run`: its allocators, graphs, memory shared with another process, pinned memory, cuDNN's
# search: equal results, and memory is counted correctly.
. "$(dirname "$0")/run_lib.bash"
need torch pytorch_with_the_shim
torch="$python $here/run_torch.py"
unset PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF
both torch_default $torch train
both torch_expandable env PYTORCH_ALLOC_CONF=expandable_segments:True PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True $torch train
both torch_cudaMallocAsync env PYTORCH_ALLOC_CONF=backend:cudaMallocAsync PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync $torch train
both torch_graphs $torch graphs
both torch_ipc $torch ipc
both torch_loader_pinned $torch loader
both_done
# cuDNN chooses by time, so nothing else runs.
both torch_cudnn_benchmark $torch cudnn
both_done
finish
