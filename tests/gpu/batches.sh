#!/usr/bin/env bash
# Batches on a GPU, through pinned memory and our own copies: torch tensors and CuPy arrays.
. "$(dirname "$0")/run_lib.bash"
need torch batches
export PYTHONPATH=$source_dir/python${PYTHONPATH:+:$PYTHONPATH} XDG_CACHE_HOME=$folder/cache TMPDIR=$folder
part() {
  timeout -k 5 120 "$python" "$here/batches.py" "$1" > "$folder/out" 2>&1 < /dev/null || { tail -n 25 "$folder/out"; fail "batches_$1"; }
  grep -E '^ok ' "$folder/out"
}
part torch
if "$python" -c 'import cupy' > /dev/null 2>&1; then part cupy; else skip "batches_cupy: not installed"; fi
finish
