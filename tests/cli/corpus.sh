#!/usr/bin/env bash
# A corpus of tables as other programs write them, against pandas, value by value; the npz is read by NumPy. Those that polars and
# DuckDB write, and Parquet, are in tests/long/corpus.sh.
. "$(dirname "$0")/../guards/lib.bash"
. "$(dirname "$0")/numpy.bash"
cd "$folder" || exit 1
require_numpy corpus
if ! "$python" -c 'import pandas' 2> /dev/null; then skip "corpus: $python has no pandas"; finish; fi
PYTHONDONTWRITEBYTECODE=1 "$python" -W ignore "$source_dir/tests/cli/corpus.py" "$stowage" > result 2>&1 || { cat result; fail corpus; finish; }
ok "corpus: $(tail -n 1 result)"
finish
