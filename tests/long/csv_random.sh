#!/usr/bin/env bash
# csv_random.sh [COUNT [SEED]]: compares random quoted tables with Python's csv module, with 1, 2, 3 and 8 threads.
. "$(dirname "$0")/../guards/lib.bash"
cd "$folder" || exit 1
count=${1:-10000} seed=${2:-2}
if python3 "$source_dir/tests/cli/csv_random.py" "$stowage" "$count" "$seed" > result.log 2>&1; then
  cat result.log
  ok csv_random
else
  tail -n 20 result.log
  fail "csv_random: $(tail -n 1 result.log | cut -c 1-300)"
fi
finish
