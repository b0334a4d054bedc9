#!/usr/bin/env bash
# What depends on the machine also compiles for AArch64, without a warning: each source file that names a machine or its vector
# instructions, and each that includes such a file. tests/long/aarch64.sh builds everything and runs it under emulation.
. "$(dirname "$0")/lib.bash"
compiler=aarch64-linux-gnu-gcc
if [ "$(uname -m)" = aarch64 ]; then skip "aarch64: the build is for it"; finish; fi
echo '#include <stdio.h>' | $compiler -fsyntax-only -x c - > /dev/null 2>&1 || { skip "aarch64: no $compiler (Debian, Ubuntu: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross)"; finish; }
cd "$source_dir/src" || exit 1
found=$(grep -rlE '__(aarch64|x86_64|i386|SSE|AVX|ARM)|[ei]mmintrin|arm_neon' . | sed 's|^\./||')
while :; do # those that include them, until there are no more
  more=$(for file in $found; do echo "$file"; grep -rlF "#include \"$file\"" . | sed 's|^\./||'; done | sort -u)
  [ "$more" != "$found" ] || break
  found=$more
done
count=0 bad=0
for file in $found; do
  case $file in *.c | *.S) ;; *) continue ;; esac
  count=$((count + 1))
  # The headers of zlib and zstd are those of this machine; they do not depend on it.
  $compiler -std=gnu17 -D_GNU_SOURCE -DSHIM_GATE -O1 -Wall -Wextra -Werror -I../include -I. -I"$build/src/shim" -idirafter /usr/include -c -o "$folder/object" "$file" > "$folder/log" 2>&1 ||
    { head -n 5 "$folder/log"; bad=$((bad + 1)); }
done
if [ $bad = 0 ] && [ $count -ge 20 ]; then ok "what_depends_on_the_machine_compiles_for_aarch64: $count files"; else fail "what_depends_on_the_machine_compiles_for_aarch64: $bad of $count files"; fi
finish
