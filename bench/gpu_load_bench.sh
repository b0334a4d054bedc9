#!/usr/bin/env bash
# gpu_load_bench.sh BUILD: compares stowage.load(device="cuda") with safetensors.torch.load_file to the card, every byte touched there,
# and with what several plain readers get from the page cache. Prints lines like weights_bench.sh. $STOWAGE_BENCH_MB is the size of
# the file (8192); it should fit the page cache twice.
set -euo pipefail
. "$(dirname "$0")/gpu_python.bash"
gpu_python "$1" load_to_card safetensors
exec "$python" "$here/gpu_load_bench.py"
