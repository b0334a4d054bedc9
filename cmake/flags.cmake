# Flags of our own code: one interface target, so that every folder is compiled with the same flags.
add_library(stow_flags INTERFACE)
target_compile_definitions(stow_flags INTERFACE _GNU_SOURCE)
target_compile_options(stow_flags INTERFACE -Wall -Wextra -Wshadow -Wstrict-prototypes
  -Wmissing-prototypes -Wold-style-definition -Wvla -Wformat=2 -Wundef -Wpointer-arith
  -Wwrite-strings -Wno-format-nonliteral -fno-strict-aliasing -fno-common)
# Hardening for every object and every link (checked by tests/guards/hardening.sh), also for zlib and zstd of a wheel.
include(CheckCCompilerFlag)
include(CheckLinkerFlag)
include(CheckPIESupported)
check_pie_supported()
add_library(stow_hardening INTERFACE)
target_compile_options(stow_hardening INTERFACE -fstack-protector-strong)
target_link_options(stow_hardening INTERFACE -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(branch_flag -fcf-protection=full) # indirect branch tracking and shadow stacks
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(branch_flag -mbranch-protection=standard) # BTI and pointer authentication
endif()
if(branch_flag)
  check_c_compiler_flag(${branch_flag} STOW_HAS_BRANCH_FLAG)
  if(STOW_HAS_BRANCH_FLAG)
    target_compile_options(stow_hardening INTERFACE ${branch_flag})
  endif()
  # The C library's own start files may not be marked, and one unmarked file unmarks the whole. They use no call or return
  # out of order, so shadow stacks are safe. Not -z ibt: their _init has no endbr64 on such a system.
  check_linker_flag(C -Wl,-z,shstk STOW_HAS_SHSTK)
  if(STOW_HAS_SHSTK AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    target_link_options(stow_hardening INTERFACE -Wl,-z,shstk)
  endif()
endif()
if(NOT STOWAGE_SANITIZE AND NOT STOWAGE_FUZZ)
  # Only where the compiler optimises: it warns elsewhere, and sanitizers make the same checks.
  target_compile_options(stow_hardening INTERFACE
    $<$<AND:$<NOT:$<CONFIG:Debug>>,$<COMPILE_LANGUAGE:C>>:-U_FORTIFY_SOURCE>
    $<$<AND:$<NOT:$<CONFIG:Debug>>,$<COMPILE_LANGUAGE:C>>:-D_FORTIFY_SOURCE=3>)
endif()
target_link_libraries(stow_flags INTERFACE $<BUILD_INTERFACE:stow_hardening>)
if(STOWAGE_BUNDLED)
  target_link_libraries(bundled_zlib PRIVATE $<BUILD_INTERFACE:stow_hardening>)
  target_link_libraries(bundled_zstd PRIVATE $<BUILD_INTERFACE:stow_hardening>)
endif()
# Another compiler than those of the tests may find more to warn about, as GCC 11 and GCC 14 do. That must not stop a user's build.
if((CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_C_COMPILER_VERSION VERSION_GREATER_EQUAL 12 AND CMAKE_C_COMPILER_VERSION VERSION_LESS 14) OR
   (CMAKE_C_COMPILER_ID STREQUAL Clang AND CMAKE_C_COMPILER_VERSION VERSION_LESS 15))
  set(tested_compiler ON)
endif()
if(STOWAGE_WERROR AND tested_compiler)
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
  # Without a call for each comparison, seven targets made 1.3 to 1.8 times as many runs in the same time and reached more code.
  target_compile_options(stow_flags INTERFACE -fsanitize=fuzzer-no-link -fno-sanitize-coverage=trace-cmp)
endif()
