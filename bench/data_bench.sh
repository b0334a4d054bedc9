#!/usr/bin/env bash
# data_bench.sh BUILD: compares inspect and shrink with NumPy, SciPy, pandas and cp on the same warm file: ours and the peer run
# in turn, and the best of each counts. Prints
#   case=NAME ours=N peer=NAME:N ratio=N unit=UNIT        (ratio: ours over the peer's; of speeds, higher is better)
# One thread on one core each, except for the cases _2_threads, where the peer is our own single thread (busy: cores used by
# each), and csv_to_npy_all_cores. cp and NumPy do not wait until their outputs are on disk, so ours use --no-sync; in the lines
# called _synced both sides wait.
# Peers come from $STOWAGE_BENCH_PYTHON, or python3; a line without its peer says so. $STOWAGE_BENCH_MB is the size of the files
# (256), $STOWAGE_BENCH_BUDGET_GB that of the memory cases (1; 0: none).
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
. "$here/peer_python.bash"
export STOWAGE=$build/stowage CAST_BENCH=$build/bench/cast_bench OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
if ! peer_python numpy; then echo "data_bench: no python3 with numpy to make the files and to compare with"; exit 0; fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$python" "$here/data_bench.py"
