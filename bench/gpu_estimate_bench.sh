#!/usr/bin/env bash
# gpu_estimate_bench.sh BUILD: stowage.estimate against the card, about 50 programs in under 8 minutes.
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
python=${STOWAGE_BENCH_PYTHON:-python3}
export PYTHONPATH=$here/../python STOWAGE_LIBRARY=$build/libstowage.so
if ! "$python" -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then
  echo "case=estimate peer=torch:not-found ($python has no torch that sees a card)"
  exit 0
fi
exec "$python" "$here/gpu_estimate_bench.py"
