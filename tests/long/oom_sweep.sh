#!/usr/bin/env bash
# Every verb with every allocation failing, once alone and once with all later ones (tests/faults/sweep.py).
. "$(dirname "$0")/../guards/lib.bash"
faults=$build/tests/faults
if ! has python3; then skip "oom_sweep: python3 is not here"; finish; fi
if [ ! -e "$faults/libfailing_malloc.so" ]; then skip "oom_sweep: $faults/libfailing_malloc.so is not built"; finish; fi
python3 "$source_dir/tests/faults/sweep.py" "$stowage" "$faults" "$source_dir/tests/samples" "$@"
