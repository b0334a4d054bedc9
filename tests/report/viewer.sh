#!/usr/bin/env bash
# The page in a real browser: see viewer_test.py.
. "$(dirname "$0")/../guards/lib.bash"
if ! has python3; then skip "the_page_in_a_browser: no python3"; finish; fi
PYTHONDONTWRITEBYTECODE=1 python3 "$source_dir/tests/report/viewer_test.py" "$stowage" "$folder" "$@" || failed=1
finish
