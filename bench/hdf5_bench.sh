#!/usr/bin/env bash
# hdf5_bench.sh BUILD: compares reading HDF5 through the worker process with h5py, which comes from $STOWAGE_BENCH_PYTHON, or python3.
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
. "$here/peer_python.bash"
export PYTHONPATH=$here/../python STOWAGE_LIBRARY=$build/libstowage.so
if peer_python numpy h5py; then "$python" "$here/hdf5_bench.py"; else echo "hdf5_bench: no python3 with h5py"; fi
