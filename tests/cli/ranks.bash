# Sourced by the tests of jobs with several ranks: starts the ranks.
launcher=mpirun
ranks() { # N COMMAND…
  local n=$1; shift
  local -x ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # MPI's own
  local -x RES_OPTIONS="timeout:1 attempts:1" # mpirun asks for localhost's address; a machine may not know it
  if [ "$launcher" = mpiexec.hydra ]; then timeout 200 mpiexec.hydra -n "$n" "$@"; return; fi
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_base_warn_component_unused=0 \
    timeout 200 mpirun --oversubscribe -n "$n" "$@"
}
