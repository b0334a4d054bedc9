#!/usr/bin/env bash
# gpu_torch_bench.sh BUILD: compares our heap with PyTorch's own allocator on the same GPU in one run. PyTorch's is called from
# C++ (compiled by torch itself at the start), so that neither side pays for Python.
set -euo pipefail
build=$1
python=${STOWAGE_BENCH_PYTHON:-python3}
if ! "$python" -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then
  echo "case=gpu_torch_pairs peer=torch:not-found ($python has no torch that sees a device)"
  exit 0
fi
"$python" "$(dirname "$0")/torch_pairs.py" "$build/bench/gpu_heap_bench"
