#!/usr/bin/env bash
# Unmodified PyTorch beneath `stowage run`: graphs, cuDNN's search, memory shared with another process, pinned memory.
. "$(dirname "$0")/run_lib.bash"
need torch more_of_pytorch_beneath
torch="$python $here/run_torch.py"
unset PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF
equal torch_graphs $torch graphs
equal torch_cudnn_benchmark $torch cudnn
equal torch_ipc $torch ipc
equal torch_loader_pinned $torch loader
finish
