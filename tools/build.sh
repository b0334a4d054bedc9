#!/usr/bin/env bash
# build.sh PRESET GENERATOR: configure once, then build. Says nothing when there is nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1 generator=$2 dir=build/$1
if [ -f "$dir/CMakeCache.txt" ] && ! grep -q "CMAKE_GENERATOR:INTERNAL=$generator" "$dir/CMakeCache.txt"; then
  rm -rf "$dir"
fi
if [ ! -f "$dir/CMakeCache.txt" ]; then
  mkdir -p build
  cmake --preset "$preset" -G "$generator" > "$dir.configure.log" 2>&1 || {
    cat "$dir.configure.log" >&2
    rm -rf "$dir" "$dir.configure.log"
    exit 1
  }
  rm -f "$dir.configure.log"
fi
log=$dir/build.log
if cmake --build "$dir" > "$log" 2>&1; then
  grep -E 'warning:' "$log" || true
else
  cat "$log" >&2
  exit 1
fi
