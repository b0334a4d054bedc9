#!/usr/bin/env bash
# formats.sh: Parquet, Arrow and JSON lines in and out; each output is read back by a package other than the one that wrote it.
# STOWAGE_FORMATS_PYTHON names a Python that has pyarrow, polars, duckdb and pandas (2.2 or later).
. "$(dirname "$0")/../guards/lib.bash"
cd "$folder" || exit 1
python=${STOWAGE_FORMATS_PYTHON:-python3}
for package in numpy pyarrow polars duckdb pandas; do
  if ! "$python" -c "import $package" > /dev/null 2>&1; then
    skip "formats: $python has no $package; STOWAGE_FORMATS_PYTHON may name another"
    finish
    exit
  fi
done
mkdir work
PYTHONPATH=$source_dir/python STOWAGE_INTERPRETER=$python \
  "$python" -W ignore "$source_dir/tests/long/formats.py" "$stowage" "$folder/work" > result.log 2> errors.log
status=$?
grep -E '^(ok|FAIL)' result.log
if [ "$status" != 0 ] || grep -q '^FAIL' result.log || ! grep -q '^ok every_format_agrees' result.log; then
  tail -n 30 errors.log
  fail "formats"
else
  ok "formats"
fi
finish
