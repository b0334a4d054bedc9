#!/usr/bin/env bash
# Every public header compiles alone and included twice, as strict C11 and as C++17.
. "$(dirname "$0")/lib.bash"
cc=${CC:-cc}
warnings="-pedantic-errors -Wall -Wextra -Wundef -Werror"
headers=$(cd "$source_dir/include" && find . -name '*.h' | sed 's#^\./##' | sort)
compiles() { # COMPILER… : reads the language flags, tries every header
  local header
  for header in $headers; do
    printf '#include <%s>\n#include <%s>\n' "$header" "$header" > "$folder/alone.c"
    "$@" $warnings -fsyntax-only -I "$source_dir/include" "$folder/alone.c" || { echo "in $header"; return 1; }
  done
}
check public_headers_are_strict_c11 compiles "$cc" -std=c11 -Wstrict-prototypes -x c
for cxx in "${CXX:-}" g++ clang++; do has "$cxx" && break; cxx=; done
if [ -n "$cxx" ]; then
  check public_headers_are_cxx17 compiles "$cxx" -std=c++17 -x c++
else
  skip "public_headers_are_cxx17: no C++ compiler (apt-get install g++)"
fi
finish
