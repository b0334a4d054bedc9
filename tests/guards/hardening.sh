#!/usr/bin/env bash
# Every installed binary is hardened, as checksec would say: full RELRO, BIND_NOW, no executable stack, position independent,
# stack protector, FORTIFY_SOURCE, marked for shadow stacks (x86-64) or BTI (AArch64), no RPATH but the library's own folder, no text relocations.
. "$(dirname "$0")/lib.bash"
if ! has readelf || ! has nm; then skip "installed_binaries_are_hardened: no binutils"; finish; fi
DESTDIR=$folder/root cmake --install "$build" --prefix /usr > "$folder/log" 2>&1 || { cat "$folder/log"; fail installed_binaries_are_hardened; finish; }
machine=$(uname -m)
if grep -q '^STOWAGE_SANITIZE:STRING=.' "$build/CMakeCache.txt"; then skip "installed_binaries_are_hardened: a build with sanitizers"; finish; fi

# weak FILE: prints the missing features, one word each.
weak() {
  local file=$1 dynamic segments symbols
  dynamic=$(readelf -dW "$file") segments=$(readelf -lW "$file") symbols=$(nm -D --undefined-only "$file")
  grep -q GNU_RELRO <<< "$segments" || echo relro
  grep -qE '\(FLAGS(_1)?\).*NOW' <<< "$dynamic" || echo bind_now
  grep -E 'GNU_STACK' <<< "$segments" | grep -q 'RWE' && echo executable_stack
  grep -qE 'Type:.*DYN' <<< "$(readelf -hW "$file")" || echo position_independent
  grep -E '\((RPATH|RUNPATH)\)' <<< "$dynamic" | grep -qvF '[$ORIGIN]' && echo rpath
  grep -qE 'TEXTREL' <<< "$dynamic" && echo text_relocations
  # The alias contains no code.
  case $file in *-alias.so) ;; *)
    grep -q '__stack_chk_fail' <<< "$symbols" || echo stack_protector
    grep -qE '__[a-z]+_chk' <<< "$(grep -v stack_chk <<< "$symbols")" || echo fortify_source ;;
  esac
  case $machine in
    x86_64) readelf -nW "$file" | grep -q SHSTK || echo shadow_stack ;;
    aarch64) readelf -nW "$file" | grep -q 'BTI' || [ "$crt_marked" = no ] || echo bti ;;
  esac
}
crt=$("${CC:-cc}" -print-file-name=crti.o)
crt_marked=no
if readelf -nW "$crt" 2> /dev/null | grep -qE 'IBT|BTI'; then crt_marked=yes; fi

bad=0 count=0
while read -r file; do
  case $(head -c 4 "$file" | od -An -c | tr -d ' ') in 177ELF) ;; *) continue ;; esac
  count=$((count + 1))
  lacks=$(weak "$file" | tr '\n' ' ')
  [ -z "$lacks" ] || { echo "${file#"$folder"/root}: lacks $lacks"; bad=1; }
done < <(find "$folder/root" -type f)
if [ $bad = 0 ] && [ $count -ge 6 ]; then ok "installed_binaries_are_hardened: $count files"; else fail "installed_binaries_are_hardened: $count files"; fi

# Every object of ours is marked, also assembly; so the binary is marked if the C library's start files are.
objects=$(find "$build" -name '*.o' -path '*/CMakeFiles/stow*' ! -path '*/tests/*')
marks() {
  local object unmarked=0
  for object in $objects; do
    readelf -nW "$object" 2> /dev/null | grep -qE 'IBT, SHSTK|BTI' || { echo "${object#"$build"/}"; unmarked=1; }
  done
  [ -n "$objects" ] && return $unmarked
}
check "every_object_is_marked_for_branch_protection: $(wc -w <<< "$objects") objects, start files marked: $crt_marked" marks
finish
