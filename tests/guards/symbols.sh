#!/usr/bin/env bash
# What the libraries export is what the public headers declare, and the list of it that is kept.
. "$(dirname "$0")/lib.bash"
if ! has nm; then skip "exported_names_are_the_public_ones: no nm (binutils)"; finish; fi
check exported_names_are_the_public_ones "$source_dir/tools/symbols" "$build"
finish
