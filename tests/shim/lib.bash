# Sourced by the tests of the shim: the stand-in driver, and running programs beneath the shim under a deadline.
. "$(dirname "${BASH_SOURCE[0]}")/../guards/lib.bash"
standin=$build/tests/standin/libcuda.so.1
programs=$build/tests/shim
shim=$build/libstowage-shim.so
export STOWAGE_LIBCUDA=$standin STANDIN_PATH=$standin XDG_STATE_HOME=$folder/state XDG_CACHE_HOME=$folder/cache
export STOWAGE_COMMAND=$stowage
unset STOWAGE_SHIM STOWAGE_SHIM_LOG LD_PRELOAD
beneath() { timeout -k 2 30 "$stowage" run "$@"; }
# same NAME EXPECTED COMMAND…: its output, errors too, is exactly that.
same() {
  local name=$1 expected=$2 out; shift 2
  out=$("$@" 2>&1)
  if [ "$out" = "$expected" ]; then ok "$name"; else printf 'expected: %s\nis:       %s\n' "$expected" "$out"; fail "$name"; fi
}
