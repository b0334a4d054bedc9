#!/usr/bin/env bash
# outside.sh [SEED [WORD…]]: tables as other programs write them, compared value by value with pandas and polars, and the sizes that
# inspect promises with those of the files that shrink writes. A WORD selects cases by name.
. "$(dirname "$0")/../guards/lib.bash"
. "$(dirname "$0")/formats_python.bash"
cd "$folder" || exit 1
formats_python outside
export STOWAGE_LIBRARY=$build/libstowage.so STOWAGE_COMMAND=$stowage
mkdir work
if "$python" -W ignore "$source_dir/tests/long/outside.py" "$stowage" "$folder/work" "${@:-11}" > result.log 2> errors.log; then
  grep -E '^(ok|skip) ' result.log
else
  tail -n 20 errors.log
  grep '^FAIL' result.log | cut -c 1-400
  fail outside
fi
finish
