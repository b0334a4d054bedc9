#!/usr/bin/env bash
# gpu_load_bench.sh BUILD: compares stowage.load(device="cuda") with safetensors.torch.load_file to the card, every byte touched there,
# and with what several plain readers get from the page cache. Prints lines like weights_bench.sh. $STOWAGE_BENCH_MB is the size of
# the file (8192); it should fit the page cache twice.
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
python=${STOWAGE_BENCH_PYTHON:-python3}
export PYTHONPATH=$here/../python STOWAGE_LIBRARY=$build/libstowage.so
if ! "$python" -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then
  echo "case=load_to_card peer=safetensors:not-found ($python has no torch that sees a card)"
  exit 0
fi
exec "$python" "$here/gpu_load_bench.py"
