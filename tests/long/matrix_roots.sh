#!/usr/bin/env bash
# The C library matrix: Debian 11 to 13 and Ubuntu 20.04 to 26.04, glibc 2.31 to the newest. In a clean root of each the wheel is
# installed and passes the five checks of install_roots.sh; where CMake is new enough (3.21), it is also built there by make install.
#
# Usage: matrix_roots.sh [SUITE…]. `make matrix` runs this and matrix_drivers.sh.
. "$(dirname "$0")/../guards/lib.bash"
suites=("$@")
[ $# -gt 0 ] || suites=(bullseye bookworm trixie focal jammy noble resolute)
# The wheel of a release: one that pip builds here needs the C library of this machine.
if [ -z "$(find "$source_dir/dist" -maxdepth 1 -name "stowage_memory-*$(uname -m).whl" 2> /dev/null)" ]; then
  (cd "$source_dir" && tools/wheels.sh "$(uname -m)") > "$folder/log" 2>&1 || { tail -n 5 "$folder/log"; skip "matrix_roots: tools/wheels.sh cannot build the wheel here"; finish; }
fi
for suite in "${suites[@]}"; do
  ways=(wheel make)
  case $suite in
    bullseye) ways=(wheel); skip "install_${suite}_make: its CMake, 3.18, is too old" ;;
    focal) ways=(wheel); skip "install_${suite}_make: its CMake, 3.16, is too old" ;;
  esac
  STOWAGE_SUITE=$suite bash "$source_dir/tests/long/install_roots.sh" "${ways[@]}" || failed=1
done
finish
