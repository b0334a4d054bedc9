#!/usr/bin/env bash
# Links lead somewhere and examples run: see documents.py.
. "$(dirname "$0")/lib.bash"
python=${STOWAGE_TEST_PYTHON:-/usr/bin/python3}
if ! has "$python"; then skip "documents: no python3"; finish; fi
"$python" "$source_dir/tests/guards/documents.py" "$source_dir" "$build" "$folder" || failed=1
finish
