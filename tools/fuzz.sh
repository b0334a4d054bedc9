#!/usr/bin/env bash
# fuzz.sh BUILD SECONDS: runs every fuzz target with libFuzzer for that long each, starting from tests/fuzz/corpus and from
# what earlier runs found (build/corpus). A crash is kept in build/crashes and fails the run.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 seconds=$2
mkdir -p build/crashes
count=0 failed=0
for program in "$build"/tests/fuzz/*_fuzz; do
  [ -x "$program" ] || continue
  name=$(basename "$program" _fuzz)
  mkdir -p "build/corpus/$name"
  log=build/crashes/$name.log
  count=$((count + 1))
  if "$program" -max_total_time="$seconds" -timeout=25 -rss_limit_mb=2048 -artifact_prefix="build/crashes/$name-" \
      "build/corpus/$name" "tests/fuzz/corpus/$name" > "$log" 2>&1; then
    echo "ok $name: $(grep -oE '^Done [0-9]+ runs' "$log" || true) in $seconds s, $(ls "build/corpus/$name" | wc -l) inputs kept"
    rm -f "$log"
  else
    tail -n 40 "$log"
    echo "FAIL $name: see $log"
    failed=1
  fi
done
[ "$count" -gt 0 ] || echo "fuzz: no fuzz target is here yet"
exit "$failed"
