#!/usr/bin/env bash
# Tables as people have them: leading zeros, whole floats, outputs that grow, compressed files, options, dates, several files as one.
. "$(dirname "$0")/../guards/lib.bash"
. "$(dirname "$0")/numpy.bash"
cd "$folder" || exit 1
require_numpy tables
export STOWAGE=$stowage
export PYTHONPATH=$source_dir/tests/cli PYTHONDONTWRITEBYTECODE=1
"$python" "$source_dir/tests/cli/tables.py" || failed=1
finish
