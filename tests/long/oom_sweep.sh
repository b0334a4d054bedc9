#!/usr/bin/env bash
# Runs every verb with every allocation failing, once alone and once with all later ones (tests/oom/sweep.py).
. "$(dirname "$0")/../guards/lib.bash"
library=$build/tests/oom/libfailing_malloc.so
if ! has python3; then skip "oom_sweep: python3 is not here"; finish; fi
if [ ! -e "$library" ]; then skip "oom_sweep: $library is not built"; finish; fi
python3 "$source_dir/tests/oom/sweep.py" "$stowage" "$library" "$source_dir/tests/samples" "$@"
