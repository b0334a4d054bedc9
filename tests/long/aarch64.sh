#!/usr/bin/env bash
# Builds everything for AArch64 with the cross compiler, and runs the test programs under QEMU's user emulation.
#
# Needs gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user-static and binfmt-support. zlib and zstd are built in, from the sources
# that tools/wheels.sh fetched, or from $STOWAGE_SOURCES. The build stays in build/aarch64.
# Usage: aarch64.sh [WORD…]: only the test programs whose names contain a word.
. "$(dirname "$0")/../guards/lib.bash"
cd "$source_dir" || exit 1
compiler=aarch64-linux-gnu-gcc made=build/aarch64
if [ "$(uname -m)" = aarch64 ]; then skip "aarch64: make test runs on it"; finish; fi
for need in $compiler qemu-aarch64-static; do has $need || { skip "aarch64: no $need (Debian, Ubuntu: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static binfmt-support)"; finish; }; done
if [ ! -f $made/CMakeCache.txt ]; then
  sources=${STOWAGE_SOURCES:-$PWD/build/wheels/sources}
  [ -f "$sources/zstd/lib/zstd.h" ] || { skip "aarch64: no sources of zlib and zstd; run make wheels, or set STOWAGE_SOURCES"; finish; }
  cmake -S . -B $made -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSTOWAGE_WERROR=ON -DSTOWAGE_BUNDLED="$sources" -DCMAKE_SYSTEM_NAME=Linux \
    -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=$compiler -DCMAKE_CROSSCOMPILING_EMULATOR="qemu-aarch64-static;-L;/usr/aarch64-linux-gnu" > "$folder/log" 2>&1 ||
    { tail -n 20 "$folder/log"; rm -rf $made; fail "aarch64: it cannot be configured"; finish; }
fi
if ! cmake --build $made > "$folder/log" 2>&1; then grep -A 5 'FAILED\|error' "$folder/log" | head -n 40; fail "aarch64: it does not build"; finish; fi
ok "aarch64_builds: $(find $made -name '*_test' -type f | wc -l) test programs"

export QEMU_LD_PREFIX=${QEMU_LD_PREFIX:-/usr/aarch64-linux-gnu}
$made/stowage --version > /dev/null 2>&1 || { skip "aarch64: its programs do not start here (binfmt_misc is not mounted, or qemu-aarch64 not enabled: update-binfmts --enable qemu-aarch64)"; finish; }
# These measure the process's memory, to which the emulator adds its own tables.
emulator='FAIL (a_16_gib_device_that_is_only_mapped_costs_no_ram|released_pages_give_their_ram_back_to_the_system)'
for program in $(find $made/tests -type f -perm -u+x -name '*_test' ! -path '*/gpu/*' | sort); do
  name=${program#"$made"/tests/}
  wanted=$((1 - ($# > 0)))
  for word in "$@"; do [[ $name != *$word* ]] || wanted=1; done
  [ $wanted = 1 ] || continue
  timeout -k 5 1800 "$program" > "$folder/log" 2>&1; code=$?
  if [ $code = 1 ] && grep -qE "^$emulator" "$folder/log" && ! grep '^FAIL' "$folder/log" | grep -qvE "^$emulator"; then code=0; fi
  if [ $code = 0 ] && grep -q '^ok ' "$folder/log"; then
    ok "aarch64_$name: $(grep -c '^ok ' "$folder/log")"
  else
    grep -v '^ok ' "$folder/log" | tail -n 20
    fail "aarch64_$name"
  fi
done
finish
