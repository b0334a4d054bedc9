#!/usr/bin/env bash
# A part of the failed-allocation sweep (tests/oom/sweep.py): thirty allocations of every verb. STOWAGE_OOM_SEED chooses others;
# tests/long/oom_sweep.sh tries all of them.
. "$(dirname "$0")/../guards/lib.bash"
library=$build/tests/oom/libfailing_malloc.so
if ! has python3; then skip "oom_slice: python3 is not here"; finish; fi
if [ ! -e "$library" ] || nm -D "$stowage" 2> /dev/null | grep_all __asan_init; then
  skip "oom_slice: no failing malloc for this build"; finish
fi
python3 "$source_dir/tests/oom/sweep.py" "$stowage" "$library" "$source_dir/tests/samples" \
  --most 30 --seed "${STOWAGE_OOM_SEED:-0}"
