# Sourced by the tests that need NumPy and SciPy: $python has both. STOWAGE_TEST_PYTHON names it if neither the first python3 on
# the path nor the system's own does.
has_numpy() { has "$1" && "$1" -c 'import numpy, scipy.sparse' 2> /dev/null; }
require_numpy() { # NAME: the test; ends it where there is none
  for python in "${STOWAGE_TEST_PYTHON:-python3}" /usr/bin/python3; do
    if has_numpy "$python"; then return; fi
  done
  # On a machine that only runs tests, a missing package would hide everything that the test checks.
  if [ "${CI:-}" = true ]; then fail "$1: no python3 with numpy and scipy"; else skip "$1: no python3 with numpy and scipy to compare with"; fi
  finish
}
# common_py: runs the program on standard input, after data_common.py, in this folder.
common_py() {
  { echo "from data_common import *"; cat; } | PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$source_dir/tests/cli "$python" -
}
# test_py NAME: runs the program on standard input, after data_common.py and the lines in $prelude, in its own folder. All
# programs of a script are forks of one Python (forks.py), which has imported both.
prelude=
test_py() {
  if [ -z "${forks_pid:-}" ]; then
    coproc forks { PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$source_dir/tests/cli:$folder" exec "$python" "$source_dir/tests/cli/forks.py" "$prelude"; }
    forks_pid=$forks_PID
  fi
  { echo "from data_common import *"; printf '%s\n' "$prelude"; cat; } > "$folder/test.py"
  local code=
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$source_dir/tests/cli:$folder" env -0 > "$folder/environment" # the script may have exported more since the first
  printf '%s\t%s\t%s\t%s\n' "$(mktemp -d -p "$folder")" "$folder/test.py" "$folder/check.log" "$folder/environment" >&"${forks[1]}"
  read -r code <&"${forks[0]}"
  if [ "$code" = 0 ]; then ok "$1"; else cat "$folder/check.log"; fail "$1${code:+: code $code}"; fi
}
# Waits for the forks, so that their CPU time counts as this script's (tests/run.sh --times).
finish() {
  if [ -n "${forks_pid:-}" ]; then
    eval "exec ${forks[1]}>&-"
    wait "$forks_pid"
  fi
  exit "$failed"
}
