# Sourced by the tests of the shim: the stand-in driver, and running programs under the shim with a deadline.
. "$(dirname "${BASH_SOURCE[0]}")/../guards/lib.bash"
standin=${STOWAGE_TEST_STANDIN:-$build/tests/standin/libcuda.so.1} # tests/long/matrix_drivers.sh names others
programs=$build/tests/shim
shim=$build/libstowage-shim.so
export STOWAGE_LIBCUDA=$standin STANDIN_PATH=$standin XDG_STATE_HOME=$folder/state XDG_CACHE_HOME=$folder/cache
export STOWAGE_COMMAND=$stowage
unset STOWAGE_SHIM STOWAGE_SHIM_LOG LD_PRELOAD
# The deadline only ends a hang; ${deadline} sets another one, in seconds.
stowage_run() { timeout -k 2 "${deadline:-200}" "$stowage" run "$@"; }
# without_peak: prints standard input without the final line of a run.
without_peak() { sed '/^stowage run: at the peak /d'; }
# same NAME EXPECTED COMMAND…: its output, including errors, is exactly that, except for the final line of a run.
same() {
  local name=$1 expected=$2 out; shift 2
  out=$("$@" 2>&1 | without_peak)
  if [ "$out" = "$expected" ]; then ok "$name"; else printf 'expected: %s\nis:       %s\n' "$expected" "$out"; fail "$name"; fi
}
holder=$programs/holder
M=1048576
# says NAME OUTPUT OPTIONS… -- WORDS…: compares the results of holder under the shim; words may end in M, and figures are in MiB.
# Our own final messages are in $folder/err.
says() {
  local name=$1 expected=$2 options=() words=() out; shift 2
  while [ "$1" != -- ]; do options+=("$1"); shift; done; shift
  local word
  for word in "$@"; do
    if [[ $word =~ ^(.*[:x])([0-9]+)M$ ]]; then word=${BASH_REMATCH[1]}$((BASH_REMATCH[2] * M)); fi
    words+=("$word")
  done
  out=$(stowage_run "${options[@]}" -- "$holder" "${words[@]}" 2> "$folder/err" | sed -E "s/^([a-z]+):[0-9x]+ /\1 /" | tr '\n' ';')
  if [ "$out" = "$expected" ]; then ok "$name"; else printf 'expected: %s\nis:       %s\n' "$expected" "$out"; cat "$folder/err"; fail "$name"; fi
}
