#!/usr/bin/env bash
# The Python package: its wheel is built, installed into a fresh virtual environment and tested there, against the NumPy,
# SciPy, pandas and PyTorch that the system has.
. "$(dirname "$0")/../guards/lib.bash"
cd "$source_dir" || exit 1
# One that sees the system's packages: the first of the path may be somebody's own.
python=
for python in /usr/bin/python3 python3; do
  "$python" -c 'import venv, ensurepip' > /dev/null 2>&1 && break
  python=
done
missing() { if [ "${CI:-}" = true ]; then fail "$1"; else skip "$1"; fi; }
if [ -z "$python" ]; then missing "the_wheel_is_built: no python3 with venv (apt-get install python3-venv python3-pip)"; finish; fi
"$python" -m venv --system-site-packages "$folder/venv" > "$folder/log" 2>&1 || { cat "$folder/log"; fail the_wheel_is_built; finish; }
# Compiled once and kept between runs; the tests are not part of it.
if "$folder/venv/bin/python" -m pip wheel -q . --no-deps --wheel-dir "$folder/dist" --config-settings=build-dir=build/wheel > "$folder/log" 2>&1; then
  ok the_wheel_is_built
elif grep -qE 'No matching distribution|Could not find a version|Connection|Temporary failure' "$folder/log"; then
  missing "the_wheel_is_built: pip cannot get scikit-build-core, which builds it (no network here? put its wheel where PIP_FIND_LINKS points)"
  finish
else
  cat "$folder/log"; fail the_wheel_is_built; finish
fi
check it_installs_into_a_fresh_environment "$folder/venv/bin/python" -m pip install -q --no-deps --no-index "$folder"/dist/*.whl
inside=$(unzip -Z1 "$folder"/dist/*.whl 2> /dev/null || "$python" -m zipfile -l "$folder"/dist/*.whl)
complete=1
for part in bin/stowage lib/libstowage.so.1 lib/libstowage-analysis.so.1 lib/libstowage-data.so.1 lib/stowage/libstowage-shim.so lib/stowage/libstowage-shim-alias.so py.typed; do
  grep -q "$part" <<< "$inside" || { echo "$part is not in the wheel"; complete=0; }
done
if [ $complete = 1 ]; then ok library_shim_and_command_are_in_it; else fail library_shim_and_command_are_in_it; fi
# From another folder, so that the source tree is not what is imported.
cd "$folder" || exit 1
unset STOWAGE_LIBRARY STOWAGE_COMMAND STOWAGE_SHIM LD_PRELOAD PYTHONPATH
check the_command_is_on_the_path "$folder/venv/bin/stowage" --version
JUPYTER_PREFER_ENV_PATH=1 timeout -k 5 450 "$folder/venv/bin/python" "$source_dir/python/tests/run.py" > "$folder/tests" 2>&1 || code=$?
grep -vE '^(ok|skip) ' "$folder/tests" | tail -n 80
grep -E '^(ok|FAIL|skip) ' "$folder/tests"
if [ "${code:-0}" != 0 ]; then grep -q '^FAIL' "$folder/tests" && failed=1 || fail "the_tests_end: code $code"; fi
finish
