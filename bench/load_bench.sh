#!/usr/bin/env bash
# load_bench.sh BUILD: compares stowage.load into host memory with the safetensors package (safetensors.numpy.load_file) on the same
# warm file, every page touched: both run in turn, and the median of each counts. Prints lines like weights_bench.sh. The package
# comes from $STOWAGE_BENCH_PYTHON, or python3. $STOWAGE_BENCH_MB is the size of the file (1024).
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
. "$here/peer_python.bash"
peer_python numpy safetensors || python=python3
export PYTHONPATH=$here/../python STOWAGE_LIBRARY=$build/libstowage.so
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$python" "$here/load_bench.py"
