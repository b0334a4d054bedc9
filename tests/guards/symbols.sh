#!/usr/bin/env bash
# What the libraries export is what the public headers declare, and the list of it that is kept.
. "$(dirname "$0")/lib.bash"
if ! has nm; then skip "exported_names_are_the_public_ones: no nm (binutils)"; finish; fi
check exported_names_are_the_public_ones "$source_dir/tools/symbols" "$build"
# A library that wants a fixed place for its thread-local variables cannot be opened by a process that runs already.
if has readelf; then
  opened_late() { for library in "$build"/libstowage.so "$build"/libstowage-shim.so; do ! readelf -dW "$library" | grep STATIC_TLS || return 1; done; }
  check libraries_can_be_opened_late opened_late
fi
finish
