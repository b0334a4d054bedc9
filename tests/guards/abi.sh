#!/usr/bin/env bash
# A program built with the frozen headers of edition 1 (tests/abi/include-1) runs with the current libraries; callers older and
# newer than the library work; and the current headers keep what the frozen ones promise (docs/ABI.md).
. "$(dirname "$0")/lib.bash"
cc=${CC:-cc}
abi=$source_dir/tests/abi
if ! has "$cc"; then skip "abi: no C compiler"; finish; fi
build_old() { # NAME
  "$cc" -std=gnu11 -I "$abi/include-1" "$abi/$1.c" -o "$folder/$1" -L "$build" -lstowage-analysis -lstowage-data -lstowage \
    -Wl,-rpath,"$build" -Wl,-z,now
}
check the_program_of_edition_1_links build_old program
mkdir "$folder/files"
(cd "$folder/files" && "$folder/program" "$source_dir/tests/samples/fragmentation.pickle.gz" "$folder/files") || failed=1
check the_callers_link build_old callers
(cd "$folder/files" && "$folder/callers" "$source_dir/tests/samples/fragmentation.pickle.gz" "$folder/files/raw.bin") || failed=1
if has python3; then check headers_keep_the_promises_of_edition_1 "$source_dir/tools/abi" "$abi/include-1" "$source_dir/include"; fi
# Programs that are already linked look up each name in its version node.
if has nm; then
  nodes() { for library in libstowage libstowage-analysis libstowage-data; do
    nm -D --defined-only "$build/$library.so" | awk -v library=$library '$3 ~ /^stow_.*@@STOWAGE.*_1$/ {sub("@@", " ", $3); print library, $3}'
  done | sort; }
  kept() { [ -s "$abi/symbols-1.txt" ] && ! comm -23 "$abi/symbols-1.txt" <(nodes) | grep .; }
  check names_stay_in_their_version_nodes kept
  soname() { for library in libstowage libstowage-analysis libstowage-data; do readelf -d "$build/$library.so" | grep_all "SONAME.*\[$library.so.1\]" || return 1; done; }
  if has readelf; then check the_soversion_is_1 soname; fi
fi
# tools/abi detects each kind of violation.
breach() { # NAME SED-SCRIPT FILE
  rm -rf "$folder/new"; cp -r "$source_dir/include" "$folder/new"
  sed -i "$2" "$folder/new/stowage/$3"
  if cmp -s "$folder/new/stowage/$3" "$source_dir/include/stowage/$3"; then fail "$1: nothing was changed"; return; fi
  if "$source_dir/tools/abi" "$abi/include-1" "$folder/new" > "$folder/log" 2>&1; then cat "$folder/log"; fail "$1"; else ok "$1"; fi
}
if has python3; then
  breach a_member_that_moved_is_caught 's/^  uint64_t device_bytes; .*replay.*/  uint64_t early;\n&/' replay.h
  breach a_member_that_is_gone_is_caught '/  uint64_t retries;/d' replay.h
  breach a_fixed_struct_that_grew_is_caught 's/^  uint64_t addr;$/&\n  uint64_t more;/' trace.h
  breach a_constant_that_changed_is_caught 's/STOW_ERR_BUDGET = -14/STOW_ERR_BUDGET = -24/' status.h
  breach a_function_that_changed_is_caught 's/stow_tag_push(const char \*name)/stow_tag_push(char *name)/' tag.h
  rm -rf "$folder/new"; cp -r "$source_dir/include" "$folder/new"
  sed -i 's/^} stow_replay_options;/  uint64_t added;\n&/' "$folder/new/stowage/replay.h"
  check a_struct_may_grow_at_its_end "$source_dir/tools/abi" "$abi/include-1" "$folder/new"
fi
finish
