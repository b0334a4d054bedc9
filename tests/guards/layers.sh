#!/usr/bin/env bash
# The folders keep their ranks and the Python files import only those below them; and the checker finds each kind of
# violation.
. "$(dirname "$0")/lib.bash"

check folders_and_files_know_only_what_is_below_them "$source_dir/tools/layers" "$source_dir"

# A small correct tree, then one violation at a time.
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
caught() { # NAME WORDS: the tree now has a violation, reported with these words
  local out
  if out=$("$source_dir/tools/layers" "$tree"); then fail "$1: passed"; return; fi
  if grep -q -- "$2" <<< "$out"; then ok "$1"; else echo "$out"; fail "$1: not reported as \"$2\""; fi
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
finish
