#!/usr/bin/env bash
# A slice of the sweep over failed system calls (tests/faults/sweep.py --kind io): some opens, reads, writes, syncs, closes, stats,
# maps and new processes of every sixth verb; of what failed once, one is tried in full. STOWAGE_TEST_SEED chooses others; `make torture`
# tries them all, and STOWAGE_TEST_LONG all that failed once.
. "$(dirname "$0")/../guards/lib.bash"
faults=$build/tests/faults
if ! has python3; then skip "io_slice: python3 is not here"; finish; fi
if [ ! -e "$faults/failing_io" ] || nm -D "$stowage" 2> /dev/null | grep_all __asan_init; then
  skip "io_slice: no failing I/O for this build"; finish
fi
sweep() { python3 "$source_dir/tests/faults/sweep.py" "$stowage" "$faults" "$source_dir/tests/samples" "$@" || failed=1; }
seed=${STOWAGE_TEST_SEED:-0}
sweep --kind io --most 1 --seed "$seed" --verbs "$((seed % 6))/6"
# A file of a run that could not be read gave another cause; a failed stat gave a size of 0 and lost a model's other files; a short read
# of the kernel's file lost the peak of memory.
number=0
for verb in inspect_csv:read explain_run:read report_run:open,read convert_stow:stat shrink_model:stat; do
  number=$((number + 1))
  if [ -z "${STOWAGE_TEST_LONG:-}" ] && [ $(((number + seed) % 5)) != 0 ]; then continue; fi
  sweep --kind io --only "${verb%:*}" --calls "${verb#*:}" > "$folder/log"
  sed -E 's/^(ok|FAIL) /\1 every_call_/' "$folder/log"
done
# A failed allocation left points out of a TensorBoard file.
sweep --kind alloc --only convert_tensorboard
finish
