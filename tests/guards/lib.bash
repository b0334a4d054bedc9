# Sourced by the guards and by the tests of the command: prints result lines that tests/run.sh counts, and makes a
# temporary folder.
set -uo pipefail
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${STOWAGE_BUILD:-$source_dir/build/release}
stowage=$build/stowage
failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

ok() { echo "ok $*"; }
fail() { echo "FAIL $*"; failed=1; }
skip() { echo "skip $*"; }
has() { command -v "$1" > /dev/null 2>&1; }
# grep at the end of a pipe: reads all input; -q would exit early and sometimes fail the writer (pipefail).
grep_all() { grep "$@" > /dev/null; }
# check NAME COMMAND…: ok if the command succeeds, else its output and FAIL.
check() {
  local name=$1; shift
  if "$@" > "$folder/check.log" 2>&1; then ok "$name"; else cat "$folder/check.log"; fail "$name"; fi
}
finish() { exit "$failed"; }
