#!/usr/bin/env bash
# formats.sh: Parquet, Arrow and JSON lines in and out; each output is read back by a package other than the one that wrote it.
. "$(dirname "$0")/../guards/lib.bash"
. "$(dirname "$0")/formats_python.bash"
cd "$folder" || exit 1
formats_python formats
mkdir work
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
