#!/usr/bin/env bash
# Each example in C runs, and together they call a function of every public header.
. "$(dirname "$0")/lib.bash"
examples=$build/examples
if [ ! -x "$examples/analyse" ]; then skip "examples_run: not built in $build"; finish; fi
check example_spill "$examples/spill"
check example_record "$examples/record" "$folder/trace.stow"
check example_analyse "$examples/analyse" "$source_dir/tests/samples/fragmentation.pickle.gz" "$folder/report.html"
check example_analyse_reads_what_record_wrote "$examples/analyse" "$folder/trace.stow" "$folder/report.html"
check example_data "$examples/data" "$folder"
check example_model "$examples/model" "$folder"
unused=
for header in "$source_dir"/include/stowage/*.h "$source_dir"/include/stowage/sys/*.h; do
  functions=$(grep -oE '\bSTOW_API\b.*' "$header" | grep -oE 'stow_[a-z0-9_]+\(' | tr -d '(' | sort -u)
  [ -z "$functions" ] || grep -qwF "$functions" "$source_dir"/examples/*.c || unused="$unused ${header##*/}"
done
if [ -z "$unused" ]; then ok every_public_header_has_an_example; else fail "every_public_header_has_an_example: none calls a function of$unused"; fi
finish
