#!/usr/bin/env bash
# What verbs print on terminals of several widths: see screen.py.
. "$(dirname "$0")/../guards/lib.bash"
if ! has python3; then skip "screen: no python3"; finish; fi
PYTHONDONTWRITEBYTECODE=1 python3 "$source_dir/tests/cli/screen.py" "$stowage" "$source_dir/tests/samples" || failed=1
finish
