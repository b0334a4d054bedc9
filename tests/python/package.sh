#!/usr/bin/env bash
# The Python package: installs its wheel into a new virtual environment and tests it there, with the system's NumPy, SciPy, pandas
# and PyTorch. STOWAGE_TEST_WHEEL is a folder with the wheel, if `make test` has just built it; otherwise it is built here. Where pip
# reaches no package index (scikit-build-core comes from there), the tests run with the source tree and the build instead.
. "$(dirname "$0")/../guards/lib.bash"
cd "$source_dir" || exit 1
# A Python that sees the system's packages: the first on the path may be a private one.
python=
for python in /usr/bin/python3 python3; do
  "$python" -c 'import venv, ensurepip' > /dev/null 2>&1 && break
  python=
done
missing() { if [ "${CI:-}" = true ]; then fail "$1"; else skip "$1"; fi; }
run_tests() { # from another folder, so that only the package that is meant is imported
  local code=0
  cd "$folder" || exit 1
  JUPYTER_PREFER_ENV_PATH=1 timeout -k 5 1000 "$folder/venv/bin/python" "$source_dir/python/tests/run.py" > "$folder/tests" 2>&1 || code=$?
  grep -vE '^(ok|FAIL|skip) ' "$folder/tests" | tail -n 80
  grep -E '^(ok|FAIL|skip) ' "$folder/tests"
  if [ "$code" != 0 ]; then grep -q '^FAIL' "$folder/tests" && failed=1 || fail "the_tests_end: code $code"; fi
}
if [ -z "$python" ]; then missing "the_wheel_is_built: no python3 with venv (apt-get install python3-venv python3-pip)"; finish; fi
"$python" -m venv --system-site-packages "$folder/venv" > "$folder/log" 2>&1 || { cat "$folder/log"; fail the_wheel_is_built; finish; }
if [ -n "${STOWAGE_TEST_WHEEL:-}" ] && ls "$STOWAGE_TEST_WHEEL"/*.whl > /dev/null 2>&1; then
  cp -r "$STOWAGE_TEST_WHEEL" "$folder/dist"
  ok the_wheel_is_built
elif tools/wheel.sh "$folder/dist" > "$folder/log" 2>&1; then
  ok the_wheel_is_built
elif grep -qE 'No matching distribution|Could not find a version|Connection|Temporary failure' "$folder/log"; then
  skip "the_wheel_is_built: pip cannot get scikit-build-core, which builds it: give pip a package index, or put the wheels of packaging/requirements-build.txt where PIP_FIND_LINKS points"
  export PYTHONPATH=$source_dir/python STOWAGE_LIBRARY=$build/libstowage.so STOWAGE_COMMAND=$build/stowage PYTHONDONTWRITEBYTECODE=1
  run_tests
  finish
else
  cat "$folder/log"; fail the_wheel_is_built; finish
fi
check it_installs_into_a_fresh_environment "$folder/venv/bin/python" -m pip install -q --no-deps --no-index "$folder"/dist/*.whl
# The wheel holds what `cmake --install` installs: the prefix is stowage/_native, share/ is the environment's. A wheel has no
# symbolic links, so the library exists only under its SONAME; the name of the build type is that of the build.
cmake --install "$build" --prefix "$folder/prefix" > "$folder/log" 2>&1 || cat "$folder/log"
(cd "$folder/prefix" && find . -type f -o -type l) | sed -E 's#^\./##; s#^lib(64)?/([a-z0-9_]+-linux-gnu/)?#lib/#' |
  grep -vE '^lib/libstowage(-[a-z]+)?\.so\.[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+$' | sed -E 's#(stowage-targets)-[a-z]+\.cmake#\1-BUILD.cmake#' | sort > "$folder/installed"
"$python" -c 'import sys, zipfile; print("\n".join(zipfile.ZipFile(sys.argv[1]).namelist()))' "$folder"/dist/*.whl |
  sed -nE 's#^stowage/_native/##p; s#^stowage_memory-[^/]*\.data/data/##p' |
  sed -E 's#(stowage-targets)-[a-z]+\.cmake#\1-BUILD.cmake#' | sort > "$folder/in_wheel"
if [ -s "$folder/installed" ] && diff "$folder/installed" "$folder/in_wheel"; then
  ok "the_wheel_holds_what_make_install_installs: $(wc -l < "$folder/in_wheel") files"
else
  fail the_wheel_holds_what_make_install_installs
fi
name_is() { ls "$folder"/dist/stowage_memory-*.whl && "$folder/venv/bin/python" -m pip show -q stowage-memory; }
check the_distribution_is_stowage_memory name_is
# From another folder, so that the source tree is not imported.
cd "$folder" || exit 1
unset STOWAGE_LIBRARY STOWAGE_COMMAND STOWAGE_SHIM LD_PRELOAD PYTHONPATH
check the_command_is_on_the_path "$folder/venv/bin/stowage" --version
check doctor_finds_the_installation_complete bash -c "'$folder/venv/bin/stowage' doctor --device sim:1G | grep -E '^install +ok '"
# What does not work in an installation without libstowage-host.so.
cat > "$folder/grows.py" << 'END'
held = []
while True:
    held.append(bytearray(8 << 20))
END
explains() {
  XDG_STATE_HOME=$folder/state "$folder/venv/bin/stowage" run --ram-limit 300M -- "$folder/venv/bin/python" "$folder/grows.py" > "$folder/said" 2>&1
  grep -q 'why: held: a list of' "$folder/said" || { cat "$folder/said"; return 1; }
}
check a_ram_limit_explains_a_python_program explains
if has man; then
  check its_man_page_is_found env PATH="$folder/venv/bin:$PATH" MANPATH= bash -c "man -w stowage | grep '$folder/venv'"
else
  skip "its_man_page_is_found: no man"
fi
run_tests
finish
