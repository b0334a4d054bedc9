#!/usr/bin/env bash
# torch.compile under `stowage run`, default and reduce-overhead (with its own CUDA graphs and pools): equal results. Both runs
# of a pair use the same compiled code, because compiling again may choose other kernels.
. "$(dirname "$0")/run_lib.bash"
need torch compile_with_the_shim
torch="$python $here/run_torch.py"
unset PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF
export TORCHINDUCTOR_CACHE_DIR=$folder/inductor TRITON_CACHE_DIR=$folder/triton TORCHINDUCTOR_FX_GRAPH_CACHE=1
both torch_compile $torch compile
both torch_compile_reduce_overhead $torch reduce
both_done
finish
