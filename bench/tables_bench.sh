#!/usr/bin/env bash
# tables_bench.sh BUILD: tables as text and Parquet, side by side with polars, DuckDB and pyarrow, by CPU time (user and system,
# of all threads), in turn, the least of several. Prints
#   case=NAME ours=N peer=NAME:N ratio=N unit=cpu_s        (ratio: ours divided by the peer's; lower is better)
# and lines with unit=MiB: the peak of resident memory. `_import` is the time that the peer's Python takes to start and import the
# package; the peers' figures are without it, because a program pays it once. Ours are with the start of the command. Parquet is
# written and read by the Python package, so for these cases both sides are without their imports.
# $STOWAGE_BENCH_ROWS is the number of rows (1000000), $STOWAGE_BENCH_TURNS the number of turns (5), $STOWAGE_BENCH_PYTHON the Python.
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
. "$here/peer_python.bash"
if ! peer_python numpy; then echo "tables_bench: no python3 with numpy to make the files"; exit 0; fi
export STOWAGE=$build/stowage STOWAGE_COMMAND=$build/stowage STOWAGE_LIBRARY=$build/libstowage.so STOWAGE_INTERPRETER=$python
export PYTHONPATH=$here/../python
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$python" "$here/tables_bench.py"
