#!/usr/bin/env bash
# gpu_batches_bench.sh BUILD: compares stowage.batches(device="cuda") with a torch DataLoader over a memmap with pinned memory: the
# same file, the same batches, each multiplied on the card and summed. Prints lines like batches_bench.sh.
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
python=${STOWAGE_BENCH_PYTHON:-python3}
export PYTHONPATH=$here/../python STOWAGE_LIBRARY=$build/libstowage.so
if ! "$python" -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then
  echo "case=batches_to_card peer=torch:not-found ($python has no torch that sees a card)"
  exit 0
fi
exec "$python" "$here/gpu_batches_bench.py"
