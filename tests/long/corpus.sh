#!/usr/bin/env bash
# corpus.sh [SEED]: tables as pandas, polars, DuckDB and other programs write them, compared value by value with the program that wrote
# them; outputs are read by NumPy, polars, pyarrow and DuckDB. STOWAGE_FORMATS_PYTHON names a Python that has them.
. "$(dirname "$0")/../guards/lib.bash"
cd "$folder" || exit 1
python=${STOWAGE_FORMATS_PYTHON:-python3}
for package in numpy pandas polars duckdb pyarrow; do
  if ! "$python" -c "import $package" > /dev/null 2>&1; then
    skip "corpus: $python has no $package; STOWAGE_FORMATS_PYTHON may name another"
    finish
    exit
  fi
done
export PYTHONDONTWRITEBYTECODE=1 STOWAGE_INTERPRETER=$python PYTHONPATH=$source_dir/tests/cli:$source_dir/python
if "$python" -W ignore "$source_dir/tests/long/corpus_long.py" "$stowage" "${1:-7}" > result.log 2>&1; then
  grep '^ok' result.log
  ok corpus
else
  tail -n 30 result.log
  fail "corpus: $(tail -n 1 result.log | cut -c 1-300)"
fi
finish
