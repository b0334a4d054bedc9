# Sourced by the benchmarks whose peers are Python's: peer_python MODULES… sets $python to $STOWAGE_BENCH_PYTHON, python3 or the
# system's, the first that has all of these modules; false where none has.
peer_python() {
  local words=$*
  for python in "${STOWAGE_BENCH_PYTHON:-python3}" /usr/bin/python3; do
    if "$python" -c "import ${words// /, }" 2> /dev/null; then return 0; fi
  done
  return 1
}
# no_device: programs find no driver, and what `stowage run` keeps of them goes when the benchmark ends. Their cache is not shared with
# another build, which would compile its own script in between.
no_device() {
  export STOWAGE_LIBCUDA=/nonexistent
  XDG_STATE_HOME=$(mktemp -d)
  export XDG_STATE_HOME XDG_CACHE_HOME=$XDG_STATE_HOME/cache
  trap 'rm -rf "$XDG_STATE_HOME"' EXIT
}
