#!/usr/bin/env bash
# corpus.sh [SEED]: tables as pandas, polars, DuckDB and other programs write them, compared value by value with the program that wrote
# them; outputs are read by NumPy, polars, pyarrow and DuckDB.
. "$(dirname "$0")/../guards/lib.bash"
. "$(dirname "$0")/formats_python.bash"
cd "$folder" || exit 1
formats_python corpus
if "$python" -W ignore "$source_dir/tests/long/corpus_long.py" "$stowage" "${1:-7}" > result.log 2>&1; then
  grep '^ok' result.log
  ok corpus
else
  tail -n 30 result.log
  fail "corpus: $(tail -n 1 result.log | cut -c 1-300)"
fi
finish
