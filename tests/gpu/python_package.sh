#!/usr/bin/env bash
# The Python package on a GPU: release, limit, spilling, restart, explain, record, JAX, CuPy and Numba on our heap, notebooks;
# results equal to those without it.
. "$(dirname "$0")/run_lib.bash"
need torch python_package
export PYTHONPATH=$source_dir/python${PYTHONPATH:+:$PYTHONPATH} XDG_CACHE_HOME=$folder/cache
# parts NAME…: prints the result lines of some parts in one process.
parts() {
  timeout -k 5 120 "$python" "$here/python_package.py" "$@" > "$folder/out" 2>&1 < /dev/null || code=$?
  if [ "${code:-0}" != 0 ] || ! grep -qE '^ok |^\{' "$folder/out"; then
    grep -v '^ok ' "$folder/out" | tail -n 25
    grep -q '^FAIL ' "$folder/out" && failed=1 || fail "python_$1: code ${code:-0}"
  fi
  unset code
  grep -E '^ok ' "$folder/out"
  [ -z "${OUT:-}" ] || cp "$folder/out" "$OUT/python_$1${NUMBA_CUDA_MEMORY_MANAGER:+_environment}.txt"
}
module() { "$python" -c "import $1" > /dev/null 2>&1; }
# losses FILE: prints what the training of a part computed.
losses() { sed -n 's/.*"losses": \[\([^]]*\)\].*/\1/p' "$1"; }
plain() {
  parts bare info release record late restart
  grep '^{' "$folder/out" > "$folder/bare"
  for when in "" _late; do
    parts spill$when
    grep '^{' "$folder/out" > "$folder/spill"
    peak=$(field peak_mib < "$folder/bare") spilled=$(field spilled_mib < "$folder/spill")
    name=training_past_the_limit_spills_with_equal_losses${when:+_enabled_after_the_import}
    if [ -n "$(losses "$folder/bare")" ] && [ "$(losses "$folder/bare")" = "$(losses "$folder/spill")" ] && [ "${spilled:-0}" -gt 0 ]; then
      ok "$name: $peak MiB live at the peak, limit 5120 MiB, $spilled MiB on the host"
    else
      cat "$folder/bare" "$folder/spill"; fail "$name"
    fi
  done
  parts after_import
}
limits() { parts limit explain; }
others() {
  if module jax; then parts jax; else skip "python_jax: not installed"; fi
  if module cupy; then parts cupy; parts after_cupy; else skip "python_cupy: not installed"; fi
}
numba() {
  if ! module numba.cuda; then
    skip "python_numba: not installed"
  elif ! timeout -k 5 60 "$python" "$here/python_package.py" numba_bare > "$folder/out" 2>&1; then
    skip "python_numba: a kernel of Numba's does not run here without us: $(grep -v '^FAIL' "$folder/out" | tail -n 1)"
  else
    parts numba
    NUMBA_CUDA_MEMORY_MANAGER=stowage.numba parts numba
  fi
}
notebooks() {
  if ! module IPython; then skip "python_notebook: no IPython"; return; fi
  parts cell
  if ! module nbclient || ! module ipykernel; then skip "python_notebook: no nbclient or ipykernel"; return; fi
  # Real kernels: the example notebook from top to bottom, magics, a kernel that is killed, and one that restarts.
  timeout -k 5 150 "$python" "$source_dir/python/tests/run.py" notebook > "$folder/out" 2>&1 < /dev/null || code=$?
  if [ "${code:-0}" != 0 ]; then
    grep -vE '^(ok|skip) ' "$folder/out" | tail -n 60
    grep -q '^FAIL ' "$folder/out" && failed=1 || fail "python_notebook: code ${code:-0}"
  fi
  grep -E '^(ok|skip) ' "$folder/out"
  [ -z "${OUT:-}" ] || cp "$folder/out" "$OUT/python_notebook.txt"
}
# Runs the groups that are named, or all of them.
for group in "${@:-plain limits others numba notebooks}"; do for one in $group; do "$one"; done; done
finish
