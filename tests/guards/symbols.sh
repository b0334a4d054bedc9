#!/usr/bin/env bash
# The libraries export exactly what the public headers declare and the symbol lists contain.
. "$(dirname "$0")/lib.bash"
if ! has nm; then skip "exported_names_are_the_public_ones: no nm (binutils)"; finish; fi
check exported_names_are_the_public_ones "$source_dir/tools/symbols" "$build"
# A library with static thread-local storage cannot be loaded by a running process.
if has readelf; then
  opened_late() { for library in "$build"/libstowage.so "$build"/libstowage-shim.so; do ! readelf -dW "$library" | grep STATIC_TLS || return 1; done; }
  check libraries_can_be_opened_late opened_late
fi
# The sections that collect functions from several files survive a linker that drops what nothing refers to (lld, for the wheels).
if has readelf && echo 'int one __attribute__((used, retain, section("kept")));' | "${CC:-cc}" -Werror -x c -c -o "$folder/kept.o" - 2> /dev/null &&
  readelf -SW "$folder/kept.o" | grep_all -E ' kept .* [A-Z]*R[A-Z]* '; then
  retained() {
    local object plain=0 count=0
    while read -r object; do
      readelf -SW "$object" | grep -E '\] shim_forked ' > "$folder/sections" || continue
      count=$((count + 1))
      grep -qE ' shim_forked .* [A-Z]*R[A-Z]* ' "$folder/sections" || { echo "${object##*/}: not retained"; plain=1; }
    done < <(find "$build/src/shim" -path '*stowage_shim.dir*' -name '*.o')
    [ $count -gt 0 ] && return $plain
  }
  check collected_functions_are_retained retained
fi
# Names that glibc keeps for itself change without notice: none is linked to, and none is looked up by name.
private() { # FILE…: prints the private names that the files use
  local file
  for file in "$@"; do
    nm -D --undefined-only "$file" | awk -v file="${file##*/}" '
      { name = $NF; version = ""; if (split(name, part, "@+") > 1) { name = part[1]; version = part[2] } }
      version == "GLIBC_PRIVATE" { print file ": " name "@" version; next }
      name ~ /^(_dl_|_rtld_|__rtld|_IO_|__libc_|__GI_|__pthread_)/ && name !~ /^__libc_(start_main|current_sigrt(min|max))$/ { print file ": " name }'
    strings -a "$file" | grep -E '^(_dl_[a-z_]+|_rtld_global(_ro)?|__libc_(malloc|calloc|realloc|free|memalign|dlopen_mode|dlsym)|__GI_[a-z]+)$' | sed "s#^#${file##*/}: looks up #"
  done
}
if has strings; then
  no_private_names() { local found; found=$(private "$build/stowage" "$build"/libstowage*.so); [ -z "$found" ] || { echo "$found"; return 1; }; }
  check no_private_names_of_glibc_are_used no_private_names
  # The check itself: a library that uses one is found.
  if printf 'extern void *__libc_malloc(unsigned long); void *f(void) { return __libc_malloc(1); }\n' > "$folder/uses.c" &&
    "${CC:-cc}" -shared -fPIC -o "$folder/uses.so" "$folder/uses.c" 2> /dev/null; then
    finds_it() { private "$folder/uses.so" | grep 'uses.so: __libc_malloc'; }
    check and_one_that_is_used_is_found finds_it
  fi
fi
finish
