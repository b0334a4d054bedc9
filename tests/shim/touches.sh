#!/usr/bin/env bash
# Launches in a recording: each with its function, its device time and what it names; and what `replay --spill` makes of it.
. "$(dirname "$0")/lib.bash"
trace=$folder/touches.stow
out=$(STANDIN_VRAM=8589934592 timeout -k 2 200 "$stowage" run --record "$trace" --touches -- "$programs/blocks" 6 192 12 2> "$folder/err")
same the_program_is_as_it_was "equal 12288 words" echo "$out"
"$stowage" convert "$trace" "$folder/touches.csv" > /dev/null 2> "$folder/err" || cat "$folder/err"
launches() { grep -c ",launch,.*,$1," "$folder/touches.csv"; }
# 6 blocks and one that is made again are filled at 4 places; all are mixed there in 12 steps.
same every_launch_is_there "28 288" echo "$(launches fill) $(launches mix)"
same a_launch_names_what_it_is_given 288 grep -c ',touch,.*,mix,' "$folder/touches.csv"
# launch: event, time, kind, device, stream, thread, address, nanoseconds
timed() { awk -F, '$3 == "launch" && $10 == "mix" && $8 > 0' "$folder/touches.csv" | wc -l; }
check most_launches_have_a_device_time test "$(timed)" -gt 200
"$stowage" replay "$trace" --vram 1200M --spill auto --json > "$folder/spill.json" 2> "$folder/err" || cat "$folder/err"
check replay_says_what_a_smaller_device_costs python3 -c '
import json, sys
spill = json.load(open(sys.argv[1]))
assert not spill["fits"] and spill["launches"] > 0 and 0 < spill["bare_ns"] < spill["floor_ns"] <= spill["step_ns"], spill' "$folder/spill.json"
# A pool such as JAX's: what is not used of it is not live. JAX runs without command buffers then.
mkdir -p "$folder/site/jaxlib" "$folder/site/jaxlib-0.6.0.dist-info"
cp "$programs/libc10_cuda.so" "$folder/site/jaxlib/xla_extension.so"
STANDIN_VRAM=8589934592 timeout -k 2 200 "$stowage" run --record "$folder/pool.stow" --touches -- "$programs/blocks" 6 192 12 large > "$folder/out" 2> "$folder/err"
"$stowage" replay "$folder/pool.stow" --vram 1200M --spill auto > "$folder/out" 2> "$folder/err" || cat "$folder/err"
check what_is_not_used_of_a_pool_is_left_out grep -q 'of its pools, 2.2 GiB is never used and was left out' "$folder/out"
MOVER_C10=$folder/site/jaxlib/xla_extension.so timeout -k 2 200 "$stowage" run --record "$folder/jax.stow" --touches -- "$programs/mover" 1 > /dev/null 2> "$folder/err"
check jax_runs_without_command_buffers grep -q -- '--touches: JAX ran without command buffers' "$folder/err"
code() { "$stowage" run "$@" -- true > /dev/null 2> "$folder/err"; echo $?; }
same touches_go_into_a_recording 2 code --touches
same not_of_a_program_that_spills 2 code --record "$folder/x.stow" --touches --spill 64M
check and_that_says_what_to_do grep -q 'stowage replay FILE' "$folder/err"
# Without the option nothing of this is recorded.
STANDIN_VRAM=8589934592 "$stowage" run --record "$folder/plain.stow" -- "$programs/blocks" 4 192 2 > /dev/null 2>&1
"$stowage" convert "$folder/plain.stow" "$folder/plain.csv" > /dev/null
same otherwise_nothing_is_recorded_of_launches 0 grep -c ',launch,' "$folder/plain.csv"
finish
