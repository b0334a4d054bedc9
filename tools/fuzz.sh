#!/usr/bin/env bash
# fuzz.sh BUILD SECONDS [--seed N] [TARGET…]: runs fuzz targets (all by default) with libFuzzer for that long each, starting from
# tests/fuzz/corpus and from what earlier runs found (build/corpus). A crash is kept in build/crashes and fails the run.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 seconds=$2; shift 2
seed=0
if [ "${1:-}" = --seed ]; then seed=$2; shift 2; fi
mkdir -p build/crashes
# Inputs, stacks, the quarantine and the readers' windows are small: measured, they are most of the cost of a run. Small windows
# also make readers cross from one to the next.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}malloc_context_size=2:quarantine_size_mb=4 STOWAGE_TEST_WINDOW=512
longest() { # TARGET: the longest input, in bytes
  case $1 in *_shape) echo 128 ;; snapshot | explain) echo 1024 ;; *) echo 4096 ;; esac
}
count=0 failed=0
for program in "$build"/tests/fuzz/*_fuzz; do
  [ -x "$program" ] || continue
  name=$(basename "$program" _fuzz)
  case " $* " in "  " | *" $name "*) ;; *) continue ;; esac
  mkdir -p "build/corpus/$name"
  log=build/crashes/$name.log
  count=$((count + 1))
  if "$program" -max_total_time="$seconds" -seed="$seed" -timeout=25 -rss_limit_mb=2048 -max_len="$(longest "$name")" -entropic=0 \
      -artifact_prefix="build/crashes/$name-" "build/corpus/$name" "tests/fuzz/corpus/$name" > "$log" 2>&1; then
    echo "ok $name: $(grep -oE '^Done [0-9]+ runs' "$log" || true) in $seconds s, $(ls "build/corpus/$name" | wc -l) inputs kept"
    rm -f "$log"
  else
    tail -n 40 "$log"
    echo "FAIL $name: see $log"
    failed=1
  fi
done
[ "$count" -gt 0 ] || { echo "fuzz: no such fuzz target is built"; exit 1; }
exit "$failed"
