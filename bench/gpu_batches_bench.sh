#!/usr/bin/env bash
# gpu_batches_bench.sh BUILD: compares stowage.batches(device="cuda") with a torch DataLoader over a memmap with pinned memory: the
# same file, the same batches, each multiplied on the device and summed. Prints lines like batches_bench.sh.
set -euo pipefail
. "$(dirname "$0")/gpu_python.bash"
gpu_python "$1" batches_to_device torch
exec "$python" "$here/gpu_batches_bench.py"
