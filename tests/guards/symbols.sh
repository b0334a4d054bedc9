#!/usr/bin/env bash
# The libraries export exactly what the public headers declare and the symbol lists contain.
. "$(dirname "$0")/lib.bash"
if ! has nm; then skip "exported_names_are_the_public_ones: no nm (binutils)"; finish; fi
check exported_names_are_the_public_ones "$source_dir/tools/symbols" "$build"
# A library with static thread-local storage cannot be loaded by a running process.
if has readelf; then
  opened_late() { for library in "$build"/libstowage.so "$build"/libstowage-shim.so; do ! readelf -dW "$library" | grep STATIC_TLS || return 1; done; }
  check libraries_can_be_opened_late opened_late
fi
finish
