#!/usr/bin/env bash
# The Python package on a card: release, limit, spilling, restart, explain, record, CuPy and Numba on our heap; results equal
# to those without it.
. "$(dirname "$0")/run_lib.bash"
need torch python_package
export PYTHONPATH=$source_dir/python XDG_CACHE_HOME=$folder/cache
# part NAME WORDS…: the result lines of one part, or FAIL with its last words.
part() {
  local name=$1
  if ! timeout -k 5 90 "$python" "$here/python_package.py" "$@" > "$folder/out" 2>&1 < /dev/null || ! grep -q '^ok ' "$folder/out"; then
    tail -n 25 "$folder/out"; fail "python_$name"
  fi
  grep -E '^ok ' "$folder/out"
  [ -z "${OUT:-}" ] || cp "$folder/out" "$OUT/python_$name${2:+_${2//[^a-z]/}}.txt"
}
module() { "$python" -c "import $1" > /dev/null 2>&1; }
part info
part release
part limit
part late
part after_import
part restart
part explain
part record
if runs "$folder/bare" "$python" "$here/python_package.py" train bare && runs "$folder/spill" "$python" "$here/python_package.py" train spill; then
  bare=$(sed 's/.*"losses": \[\([^]]*\)\].*/\1/' "$folder/bare") spill=$(sed 's/.*"losses": \[\([^]]*\)\].*/\1/' "$folder/spill")
  peak=$(field peak_mib < "$folder/bare") spilled=$(field spilled_mib < "$folder/spill")
  if [ "$bare" = "$spill" ] && [ "${spilled:-0}" -gt 0 ]; then
    ok "training_past_the_limit_spills_with_equal_losses: $peak MiB live at the peak, limit 5120 MiB, $spilled MiB on the host"
  else
    cat "$folder/bare" "$folder/spill"; fail training_past_the_limit_spills_with_equal_losses
  fi
else
  fail "training_past_the_limit_spills_with_equal_losses: it does not run"
fi
if module cupy; then part cupy; else skip "python_cupy: not installed"; fi
if module numba.cuda; then part numba; NUMBA_CUDA_MEMORY_MANAGER=stowage.numba part numba --environment; else skip "python_numba: not installed"; fi
if module IPython; then part cell; part notebook "$source_dir/examples/colab.ipynb"; else skip "python_notebook: no IPython"; fi
finish
