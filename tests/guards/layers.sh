#!/usr/bin/env bash
# The folders keep their ranks, and neither the files of src/ nor those of python/stowage depend on each other in a circle. The
# checks catch each kind of breach.
. "$(dirname "$0")/lib.bash"

check folders_and_files_know_only_what_is_below_them "$source_dir/tools/layers" "$source_dir"

# A small tree that is right, then one breach at a time.
tree=$folder/tree
fresh() {
  rm -rf "$tree"
  mkdir -p "$tree"/{tools,include/stowage,python/stowage} "$tree"/src/{base,device,files,memory,cli}
  cp "$source_dir/tools/ranks" "$tree/tools/ranks"
  echo '/* base */' > "$tree/src/base/status.h"
  echo '#include "base/status.h"' > "$tree/src/device/device.h"
  echo '#include "device/device.h"' > "$tree/src/memory/pool.c"
  echo '#include "base/status.h"' > "$tree/src/files/zip.c"
  echo '#include <stdint.h>' > "$tree/include/stowage/status.h"
  echo 'def heap(): from . import _heap' > "$tree/python/stowage/__init__.py"
  echo 'size = 1' > "$tree/python/stowage/_library.py"
  echo 'from ._library import size' > "$tree/python/stowage/_heap.py"
}
caught() { # NAME WORDS: the tree now has a breach, told with these words
  local out
  if out=$("$source_dir/tools/layers" "$tree"); then fail "$1: passed"; return; fi
  if grep -q -- "$2" <<< "$out"; then ok "$1"; else echo "$out"; fail "$1: not told as \"$2\""; fi
}

fresh; check a_right_tree_passes "$source_dir/tools/layers" "$tree"
fresh; echo '#include "memory/pool.c"' > "$tree/src/base/bad.h"
caught a_lower_folder_including_a_higher_is_caught 'base (rank 0) includes memory/pool.c (rank 2)'
fresh; echo '#include "device/device.h"' > "$tree/src/files/bad.c"
caught a_folder_of_equal_rank_is_caught 'files (rank 1) includes device/device.h (rank 1)'
fresh; sed -i 's/^1 device/0 device/' "$tree/tools/ranks"; echo '#include "device/device.h"' > "$tree/src/files/bad.c"
caught files_knowing_a_runtime_is_caught 'files may include only base'
fresh; mkdir "$tree/src/misc"; echo > "$tree/src/misc/a.c"
caught a_folder_without_a_rank_is_caught 'folder misc has no rank'
fresh; echo '#include "status.h"' > "$tree/src/base/bad.c"
caught an_include_not_written_from_src_is_caught 'is no file below src/'
fresh; echo '#include "base/status.h"' > "$tree/include/stowage/bad.h"
caught a_public_header_including_the_inside_is_caught 'a public header includes'
fresh; echo 'from . import _heap' >> "$tree/python/stowage/_library.py"
caught files_that_import_each_other_are_caught 'imports go round in a circle: _heap -> _library -> _heap'
fresh; echo 'from stowage import heap' >> "$tree/python/stowage/_library.py"
caught a_file_that_needs_the_whole_package_is_caught 'imports go round in a circle: __init__ -> _heap -> _library -> __init__'
fresh; echo 'def late(): from ._heap import size' > "$tree/python/stowage/_late.py"
caught an_import_inside_a_function_is_caught '_late.py:1: _late imports _heap inside a function'
fresh; echo 'import sys; heap = sys.modules.get(f"{__package__}._heap")' > "$tree/python/stowage/_late.py"
caught a_file_named_by_a_text_is_caught '_late.py:1: _late names _heap by a text'

# Circles between the files of src/, found in the object files.
if ! has nm || ! has cc; then skip "files_of_src_form_no_circle: no nm (binutils) or no cc"; finish; fi
check files_of_src_form_no_circle "$source_dir/tools/circles" "$build" "$source_dir"
grep '^known circle' "$folder/check.log"
compiled() { # compiles every .c of the tree, and lists it as CMake would
  rm -f "$tree"/*.o
  local path lines=()
  for path in "$tree"/src/*/*.c; do
    local object=${path//\//_}; object=$tree/${object#_}.o
    cc -I"$tree/src" -c "$path" -o "$object" || return 1
    lines+=("{\"directory\": \"$tree\", \"file\": \"$path\", \"command\": \"cc -c -o $object $path\"}")
  done
  (IFS=,; echo "[${lines[*]}]") > "$tree/compile_commands.json"
}
turned() { # NAME WORDS: the tree now has a circle, printed with these words
  compiled || { fail "$1: the tree does not compile"; return; }
  local out
  if out=$("$folder/circles" "$tree" "$tree"); then echo "$out"; fail "$1: passed"; return; fi
  if grep -q -- "$2" <<< "$out"; then ok "$1"; else echo "$out"; fail "$1: not printed as \"$2\""; fi
}
round() { # a tree of four files without a circle
  rm -rf "$tree"; mkdir -p "$tree"/src/{base,device}
  echo 'int low(void); int low(void) { return 1; }' > "$tree/src/base/low.c"
  echo 'int low(void);' > "$tree/src/base/low.h"
  printf '#include "base/low.h"\nint high(void);\n' > "$tree/src/device/high.h"
  printf '#include "device/high.h"\nint high(void) { return low(); }\n' > "$tree/src/device/high.c"
}
sed "/^KNOWN = /,/^\"\"\"/c KNOWN = ''" "$source_dir/tools/circles" > "$folder/circles"; chmod +x "$folder/circles"
round; compiled; check files_without_a_circle_pass "$folder/circles" "$tree" "$tree"
round; echo 'int high(void); int low(void); int low(void) { return high(); }' > "$tree/src/base/low.c"
turned a_circle_across_folders_is_caught 'base/low -> device/high: high'
round; echo 'int side(void); int high(void); int side(void) { return high(); }' > "$tree/src/device/side.c"
echo 'int side(void); int high(void); int high(void) { return side(); }' > "$tree/src/device/high.c"
turned a_circle_inside_a_folder_is_caught 'circle of 2 files: device/high device/side'
round; echo 'int high(void); int side(void); int side(void) { return high(); }' > "$tree/src/device/side.c"
echo '#include "device/side.h"' >> "$tree/src/device/high.h"; echo 'int side(void);' > "$tree/src/device/side.h"
turned a_circle_of_a_call_and_an_include_is_caught 'device/high -> device/side: #include "device/side.h"'
finish
