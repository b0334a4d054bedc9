#!/usr/bin/env bash
# gpu_load_bench.sh BUILD: compares stowage.load(device="cuda") with safetensors.torch.load_file to the device, every byte touched there,
# and with what several plain readers get from the page cache and from the disk. Prints lines like weights_bench.sh. $STOWAGE_BENCH_MB is the size of
# the file (4096); it should fit the page cache twice. Takes 30 to 60 s on a device: $STOWAGE_BENCH_SECONDS (40) is when the last
# comparison may begin, $STOWAGE_BENCH_TIMES (3) how often each runs.
set -euo pipefail
. "$(dirname "$0")/gpu_python.bash"
gpu_python "$1" load_to_device safetensors
exec "$python" "$here/gpu_load_bench.py"
