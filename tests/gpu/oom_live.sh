#!/usr/bin/env bash
# Programs that run out of memory on the GPU: checks the first cause, and whether the first fix makes them finish
# (oom_live/run.py).
. "$(dirname "$0")/run_lib.bash"
check the_programs_are_well_formed "$python" "$here/oom_live/run.py" "$stowage" --dry
need torch out_of_memory_live
unset PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF
if "$python" "$here/oom_live/run.py" "$stowage" > "$folder/live"; then ok "causes_and_fixes_of_live_programs: $(tail -n 1 "$folder/live")"; else
  cat "$folder/live"; fail "causes_and_fixes_of_live_programs: $(tail -n 1 "$folder/live")"
fi
finish
