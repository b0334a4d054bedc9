#!/usr/bin/env bash
# gpu_estimate_bench.sh BUILD [OPTION…]: compares stowage.estimate and stowage.tune with a GPU: about 200 single operators, 80 programs,
# several at a time, and the times of 16 of them. Stops after 440 s; --seconds N for another limit. --state FILE goes on where a run stopped.
set -euo pipefail
. "$(dirname "$0")/gpu_python.bash"
gpu_python "$1" estimate torch
exec "$python" "$here/gpu_estimate_bench.py" "${@:2}"
