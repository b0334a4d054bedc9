#!/usr/bin/env bash
# Clocks that jump (tests/shim/clock_jump.c, preloaded): the wall clock is set an hour back or forth, or the machine is suspended,
# while a command runs, is recorded, watched, or read again. Nothing hangs, limits hold, and no time is negative.
. "$(dirname "$0")/lib.bash"
jumper=$programs/libclock_jump.so
if [ -n "${SHIM_SANITIZED:-}" ]; then skip "clocks: a sanitizer reads clocks before a preloaded library can"; finish; fi
if ! has python3; then skip "clocks: python3 is not here"; finish; fi
deadline=60

# times FILE…: every time in a report or a trace is a number at or above 0, and below the year 2200 in nanoseconds.
cat > "$folder/times.py" << 'END'
import json, sys
def walk(value, name=""):
    if isinstance(value, dict):
        for key, inner in value.items():
            walk(inner, key)
    elif isinstance(value, list):
        for inner in value:
            walk(inner, name)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        timed = name in ("ts", "dur", "seconds") or name.endswith(("_ns", "_us", "_ms", "_seconds"))
        assert not timed or 0 <= value < 7258118400 * 10**9, (name, value)
for path in sys.argv[1:]:
    walk(json.load(open(path)))
END
times() { python3 "$folder/times.py" "$@"; }

jumped() { # NAME VARIABLES…: a recorded run with a limit, and what is read from it
  local name=$1 code; shift
  env "$@" LD_PRELOAD="$jumper" timeout -k 2 $deadline "$stowage" run --vram-limit 100M --spill 50M --record "$folder/r.stow" -- \
    "$holder" alloc:$((80 * M)) alloc:$((80 * M)) page:$((2 * M)) unpage free > "$folder/out" 2> "$folder/err"; code=$?
  check "a_run_keeps_its_limit_$name" test "$code $(cut -d' ' -f2 "$folder/out" | tr '\n' ' ')" = '0 0 2 0 0 0 '
  check "its_recording_is_whole_$name" test "$("$stowage" convert --to csv "$folder/r.stow" - 2> /dev/null | grep -c alloc)" -ge 1
  "$stowage" convert --to perfetto "$folder/r.stow" "$folder/r.json" > /dev/null 2>&1
  "$stowage" report --json "$folder/r.stow" > "$folder/report.json" 2> /dev/null
  env "$@" LD_PRELOAD="$jumper" timeout -k 2 $deadline "$stowage" top --once --json > "$folder/top.json" 2> /dev/null
  check "no_time_is_negative_$name" times "$folder/r.json" "$folder/report.json" "$folder/top.json"
  env "$@" LD_PRELOAD="$jumper" timeout -k 2 $deadline "$stowage" explain --last > "$folder/said" 2>&1; code=$?
  check "the_run_is_explained_$name" test "$code" -le 1 -a -s "$folder/said"
}
for after in 0 2; do
  jumped "an_hour_back_after_$after" CLOCK_JUMP_S=-3600 CLOCK_JUMP_AFTER=$after
  jumped "an_hour_forth_after_$after" CLOCK_JUMP_S=3600 CLOCK_JUMP_AFTER=$after
  jumped "suspended_after_$after" CLOCK_SUSPEND_S=3600 CLOCK_JUMP_AFTER=$after
done

# The answer about the host tier is kept with a time: one from the future is asked for again, and replaced.
cache() { find "$XDG_CACHE_HOME" -type f | head -n 1; }
rm -rf "$XDG_CACHE_HOME"
STANDIN_HOST=refuse CLOCK_JUMP_S=3600 LD_PRELOAD=$jumper stowage_run --spill 50M -- "$holder" alloc:$M > /dev/null 2>&1
if [ -n "$(cache)" ]; then
  later=$(tail -n 1 "$(cache)" | tr ' ' '\n' | grep -E '^[0-9]{10}$' | head -n 1)
  check a_cache_from_the_future_was_written test "${later:-0}" -gt "$(($(date +%s) + 1800))"
  STANDIN_HOST=refuse stowage_run --spill 50M -- "$holder" alloc:$M > "$folder/out" 2>&1
  check and_does_no_harm grep -q "^alloc:$M 0" "$folder/out"
  now=$(tail -n 1 "$(cache)" | tr ' ' '\n' | grep -E '^[0-9]{10}$' | head -n 1)
  check and_is_replaced test "${now:-0}" -le "$(date +%s)"
else
  skip "a_cache_from_the_future_was_written: this stand-in's answer is not kept"
fi

# The watch over host memory ends a program at its limit. Its address space ends at 3 GB, so that a watch that fails does not take
# the host's memory: the program then ends with another code.
printf 'held = []\nwhile True:\n    held.append(bytearray(8 << 20))\n' > "$folder/grows.py"
for jump in CLOCK_JUMP_S=-3600 CLOCK_JUMP_S=3600 CLOCK_SUSPEND_S=3600; do
  for after in 20 $([ $jump != CLOCK_SUSPEND_S=3600 ] || seq 21 28); do # one of these readings is in the middle of a sample
    (ulimit -v 3000000; env $jump CLOCK_JUMP_AFTER=$after LD_PRELOAD="$jumper" STOWAGE_LIBCUDA=/nonexistent timeout -k 2 $deadline "$stowage" run --ram-limit 80M -- python3 "$folder/grows.py" > "$folder/out" 2>&1); code=$?
    check "the_watch_holds_its_limit_with_${jump}_after_$after" test "$code" -eq 137
  done
done

# Waits by the wall clock last as long as it is set back.
by_the_wall_clock() { ! grep -rnE 'sem_timedwait|pthread_mutex_timedlock|clock_gettime\(CLOCK_REALTIME' "$source_dir/src" --include=*.c | grep -v '/base/clock.h'; }
check nothing_waits_by_the_wall_clock by_the_wall_clock
finish
