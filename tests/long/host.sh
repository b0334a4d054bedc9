#!/usr/bin/env bash
# host.sh [NAME…]: programs written like typical user scripts run out of host memory; the first cause in the answer must be
# right. Line 1 of a program in tests/host: "# expect: CAUSE[,CAUSE…] | WORDS | WORDS…": the cause that must be first, and words
# that the answer must contain. Line 2: "# limit: SIZE".
. "$(dirname "$0")/../guards/lib.bash"
. "$source_dir/tests/cli/numpy.bash"
require_numpy why_host_memory_ran_out
export STOWAGE_LIBCUDA=/nonexistent XDG_STATE_HOME=$folder/state PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export TMPDIR=$folder
imports() { "$python" -c "import $1" 2> /dev/null; }
imports torch && torch=1
imports pandas && pandas=1
right=0 all=0
for program in "${STOWAGE_HOST_PROGRAMS:-$source_dir/tests/host}"/*.py; do
  name=$(basename "$program" .py)
  [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
  if grep -q '^import torch\|^from torch' "$program" && [ -z "${torch:-}" ]; then skip "$name: no torch"; continue; fi
  if grep -q '^import pandas' "$program" && [ -z "${pandas:-}" ]; then skip "$name: no pandas"; continue; fi
  if grep -q '^# needs: device' "$program"; then
    if [ -z "${STOWAGE_HOST_DEVICE:-}" ]; then skip "$name: needs a device (STOWAGE_HOST_DEVICE=1)"; continue; fi
    unset STOWAGE_LIBCUDA
  else
    export STOWAGE_LIBCUDA=/nonexistent
  fi
  expect=$(sed -n 's/^# expect: //p' "$program") limit=$(sed -n 's/^# limit: //p' "$program")
  timeout -k 2 120 "$stowage" run --ram-limit "$limit" -- "$python" "$program" > "$folder/out" 2> "$folder/err"
  short=$("$stowage" explain --last --short) said=$("$stowage" explain --last)
  IFS='|' read -r causes words <<< "$expect"
  why=
  [[ ,${causes// /}, == *",${short%% (*},"* ]] || why="cause ${short%% (*}"
  while [ -n "$words" ]; do
    word=${words%%|*} words=${words#"$word"} words=${words#|}
    word=${word# } word=${word% }
    [[ $said == *"$word"* ]] || why="$why, no word of \"$word\""
  done
  rm -f /dev/shm/stowage-test-*
  all=$((all + 1))
  if [ -z "$why" ]; then right=$((right + 1)); ok "$name: ${short:0:140}"; else echo "$said" | head -n 40; fail "$name: $why: ${short:0:200}"; fi
done
echo "right at first sight: $right of $all"
finish
