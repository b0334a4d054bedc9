#!/usr/bin/env bash
# A slice of the failed-allocation sweep (tests/faults/sweep.py): six allocations of every verb. STOWAGE_TEST_SEED chooses
# others; tests/long/oom_sweep.sh tries them all.
. "$(dirname "$0")/../guards/lib.bash"
faults=$build/tests/faults
if ! has python3; then skip "oom_slice: python3 is not here"; finish; fi
if [ ! -e "$faults/libfailing_malloc.so" ] || nm -D "$stowage" 2> /dev/null | grep_all __asan_init; then
  skip "oom_slice: no failing malloc for this build"; finish
fi
python3 "$source_dir/tests/faults/sweep.py" "$stowage" "$faults" "$source_dir/tests/samples" \
  --most 6 --seed "${STOWAGE_TEST_SEED:-0}"
