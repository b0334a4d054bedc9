#!/usr/bin/env bash
# weights_bench.sh BUILD: compares shrink of a model with cp and with the safetensors package (load_file, convert, save_file) on the
# same warm file, and merge with a copy that waits for the disk: ours and the peer run in turn, and the best of each counts. Prints
#   case=NAME ours=N peer=NAME:N ratio=N unit=UNIT        (of speeds higher is better; of memory lower)
# cp and safetensors do not wait until their outputs are on disk, so ours use --no-sync. All cores each. The package comes from
# $STOWAGE_BENCH_PYTHON, or python3; a line without its peer says so. $STOWAGE_BENCH_MB is the size of the file (1024).
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
. "$here/peer_python.bash"
export STOWAGE=$build/stowage
peer_python torch safetensors || python=python3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$python" "$here/weights_bench.py"
