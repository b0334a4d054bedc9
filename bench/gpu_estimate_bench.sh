#!/usr/bin/env bash
# gpu_estimate_bench.sh BUILD [OPTION…]: compares stowage.estimate and stowage.tune with a GPU: about 80 programs, several at a time, and
# the times of 16 of them. Takes about 150 s on an H200 with 16 cores.
set -euo pipefail
. "$(dirname "$0")/gpu_python.bash"
gpu_python "$1" estimate torch
exec "$python" "$here/gpu_estimate_bench.py" "${@:2}"
