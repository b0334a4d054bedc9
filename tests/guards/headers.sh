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
# A member added later must not occupy bytes that are padding today: an older library would ignore it.
unpadded() {
  local header
  for header in $headers; do
    printf '#include <%s>\n' "$header" > "$folder/alone.c"
    "$cc" -std=c11 -Wpadded -Werror -fsyntax-only -I "$source_dir/include" "$folder/alone.c" || { echo "in $header"; return 1; }
  done
}
check public_structs_have_no_padding unpadded
# STOW_X_INIT initialises every member of stow_x, in C and in C++.
initialised() { # COMPILER…
  { printf '#include <stowage/stowage.h>\n#include <stowage/sys/device.h>\n'
    grep -rhoE '#define STOW_[A-Z_]+_INIT' "$source_dir/include" | sort -u | while read -r _ macro; do
      type=${macro%_INIT}; type=${type,,}
      printf 'extern void use(void *);\nvoid with_%s(void);\nvoid with_%s(void) { %s x = %s; use(&x); }\n' "$type" "$type" "$type" "$macro"
    done; } > "$folder/init.c"
  "$@" $warnings -fsyntax-only -I "$source_dir/include" "$folder/init.c"
}
check init_macros_cover_every_member initialised "$cc" -std=c11 -x c
if [ -n "$cxx" ]; then check init_macros_work_in_cxx17 initialised "$cxx" -std=c++17 -x c++; fi
finish
