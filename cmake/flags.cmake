# Flags of our own code: one interface target, so that every room is compiled alike.
add_library(stow_flags INTERFACE)
target_compile_definitions(stow_flags INTERFACE _GNU_SOURCE)
target_compile_options(stow_flags INTERFACE -Wall -Wextra -Wshadow -Wstrict-prototypes
  -Wmissing-prototypes -Wold-style-definition -Wvla -Wformat=2 -Wundef -Wpointer-arith
  -Wwrite-strings -Wno-format-nonliteral -fno-strict-aliasing -fno-common)
if(STOWAGE_WERROR)
  target_compile_options(stow_flags INTERFACE -Werror)
endif()
if(STOWAGE_CHECKS)
  target_compile_definitions(stow_flags INTERFACE STOWAGE_CHECKS)
endif()
if(STOWAGE_SANITIZE)
  target_compile_options(stow_flags INTERFACE -fsanitize=${STOWAGE_SANITIZE}
    -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # gcc cannot see through its own instrumentation; the plain builds keep this warning.
    target_compile_options(stow_flags INTERFACE -Wno-maybe-uninitialized)
  endif()
  target_link_options(stow_flags INTERFACE -fsanitize=${STOWAGE_SANITIZE})
endif()
if(STOWAGE_FUZZ)
  target_compile_options(stow_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
