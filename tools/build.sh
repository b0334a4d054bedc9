#!/usr/bin/env bash
# build.sh PRESET [TARGET]: configure once, then build everything or one target. Prints nothing if there is nothing to do.
# Uses Ninja if it is installed, else Makefiles. A configured folder keeps its generator, so that installing Ninja later
# rebuilds nothing. CC selects the compiler; a different one than last time configures the folder again.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1 dir=build/$1
has() { command -v "$1" > /dev/null 2>&1; }

if [ -f "$dir/CMakeCache.txt" ]; then
  # A folder that can no longer be built: its generator's tool is gone, or it was moved here from elsewhere.
  if grep -q '^CMAKE_GENERATOR:INTERNAL=Ninja' "$dir/CMakeCache.txt" && ! has ninja; then rm -rf "$dir"; fi
  if ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$dir/CMakeCache.txt" 2> /dev/null; then rm -rf "$dir"; fi
  if [ "$(cat "$dir/compiler" 2> /dev/null)" != "${CC:-cc}" ]; then rm -rf "$dir"; fi
fi
if [ ! -f "$dir/CMakeCache.txt" ]; then
  mkdir -p "$dir"
  if has ninja; then generator=Ninja; else generator="Unix Makefiles"; fi
  if ! cmake --preset "$preset" -G "$generator" > "$dir.configure.log" 2>&1; then
    cat "$dir.configure.log" >&2
    rm -rf "$dir" "$dir.configure.log"
    exit 1
  fi
  rm -f "$dir.configure.log"
  echo "${CC:-cc}" > "$dir/compiler"
fi
log=$dir/build.log
if cmake --build "$dir" ${2:+--target "$2"} > "$log" 2>&1; then
  grep -E 'warning:' "$log" || true
else
  cat "$log" >&2
  exit 1
fi
