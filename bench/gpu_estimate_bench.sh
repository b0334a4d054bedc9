#!/usr/bin/env bash
# gpu_estimate_bench.sh BUILD: compares stowage.estimate with measurements on the GPU, about 50 programs in under 8 minutes.
set -euo pipefail
. "$(dirname "$0")/gpu_python.bash"
gpu_python "$1" estimate torch
exec "$python" "$here/gpu_estimate_bench.py"
