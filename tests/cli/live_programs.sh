#!/usr/bin/env bash
# The programs of tests/gpu/oom_live need a GPU to run; their headers, variables and syntax are checked everywhere.
. "$(dirname "$0")/../guards/lib.bash"
if ! has python3; then skip "the_live_programs_are_well_formed: no python3"; finish; fi
check the_live_programs_are_well_formed python3 "$source_dir/tests/gpu/oom_live/run.py" "$stowage" --dry
finish
