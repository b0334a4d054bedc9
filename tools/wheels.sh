#!/usr/bin/env bash
# wheels.sh [x86_64|aarch64 …]: wheels that run on any Linux with glibc 2.28 or later and no compiler, into dist/.
#
# The compiler is zig's, from pip: it targets an old glibc on both architectures from any machine. zlib and zstd are built in
# from the sources the system's own package archive has (apt, where it may be used) or from $STOWAGE_SOURCES, a folder with
# zlib/ and zstd/ in it. auditwheel checks what came out. Nothing is installed outside build/.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$PWD/build/wheels
architectures=("$@")
[ $# -gt 0 ] || architectures=(x86_64 aarch64)
mkdir -p "$work" dist
say() { echo "wheels: $*"; }

# ---- tools ----
python=
for python in /usr/bin/python3 python3; do "$python" -c 'import venv, ensurepip' 2> /dev/null && break; python=; done
[ -n "$python" ] || { say "no python3 with venv; apt-get install python3-venv" >&2; exit 1; }
if [ ! -x "$work/venv/bin/auditwheel" ]; then
  "$python" -m venv "$work/venv"
  "$work/venv/bin/pip" install -q --require-hashes --no-deps --only-binary :all: -r packaging/requirements-build.txt ||
    { say "pip could not install packaging/requirements-build.txt; the pins need Python 3.11 or later and a package index" >&2; rm -rf "$work/venv"; exit 1; }
fi
export PATH=$work/venv/bin:$PATH
for architecture in "${architectures[@]}"; do
  for tool in cc ar ranlib; do
    target=; [ "$tool" != cc ] || target=" -target $architecture-linux-gnu.2.28"
    printf '#!/bin/sh\nexec "%s" -m ziglang %s%s "$@"\n' "$work/venv/bin/python" "$tool" "$target" > "$work/$architecture-$tool"
    chmod +x "$work/$architecture-$tool"
  done
done

# ---- sources ----
# unpack ARCHIVE FOLDER: without the archive's own folder. Python reads what tar would need bzip2 or xz for.
unpack() {
  "$python" - "$1" "$2" << 'end'
import os, sys, tarfile
with tarfile.open(sys.argv[1]) as archive:
    for member in archive:
        member.name = member.name.partition("/")[2]
        if member.isfile() or member.isdir():
            if member.name and not os.path.isabs(member.name) and ".." not in member.name.split("/"):
                archive.extract(member, sys.argv[2])
end
}
sources=${STOWAGE_SOURCES:-$work/sources}
if [ ! -f "$sources/zlib/deflate.c" ] || [ ! -f "$sources/zstd/lib/zstd.h" ]; then
  command -v apt-get > /dev/null || { say "no apt here: set STOWAGE_SOURCES to a folder with zlib/ and zstd/ in it" >&2; exit 1; }
  say "getting the sources of zlib and zstd"
  rm -rf "$work/apt"; mkdir -p "$work/apt/lists/partial" "$work/apt/parts" "$sources"
  # The system's own list of archives, asked for sources instead of packages.
  for list in /etc/apt/sources.list.d/*.sources; do
    [ ! -e "$list" ] || sed 's/^Types:.*/Types: deb-src/' "$list" > "$work/apt/parts/$(basename "$list")"
  done
  if [ -s /etc/apt/sources.list ]; then sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > "$work/apt/parts/system.list"; fi
  options=(-o "Dir::State::Lists=$work/apt/lists" -o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$work/apt/parts" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" -qq update
  (cd "$work/apt" && apt-get "${options[@]}" -qq source --download-only zlib libzstd)
  for name in zlib libzstd; do
    into=$sources/${name#lib}
    rm -rf "$into"; mkdir -p "$into"
    # Not the signature beside it, which ends in .asc.
    for archive in "$work"/apt/"$name"_*.orig.tar.*[!c]; do unpack "$archive" "$into"; break; done
  done
fi

# Completion files come out of the command, which a cross build cannot run: a native build writes them.
tools/build.sh release stowage_completions

# ---- wheels ----
# The same sources give the same wheel: no time of day in it.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || echo 315532800)}
export SOURCE_DATE_EPOCH
for architecture in "${architectures[@]}"; do
  say "building for $architecture"
  made=$work/$architecture
  rm -rf "$made-wheel"
  settings=(--config-settings=build-dir="$made" --config-settings=cmake.define.STOWAGE_BUNDLED="$sources"
    --config-settings=cmake.define.CMAKE_C_COMPILER="$work/$architecture-cc"
    --config-settings=cmake.define.CMAKE_AR="$work/$architecture-ar"
    --config-settings=cmake.define.CMAKE_RANLIB="$work/$architecture-ranlib"
    --config-settings=cmake.define.CMAKE_SHARED_LINKER_FLAGS=-s --config-settings=cmake.define.CMAKE_EXE_LINKER_FLAGS=-s
    --config-settings=cmake.define.STOWAGE_COMPLETIONS="$PWD/build/release/completions"
    --config-settings=cmake.define.CMAKE_SYSTEM_NAME=Linux
    --config-settings=cmake.define.CMAKE_SYSTEM_PROCESSOR="$architecture")
  _PYTHON_HOST_PLATFORM=linux-$architecture "$work/venv/bin/pip" wheel -q . --no-deps --no-build-isolation \
    --wheel-dir "$made-wheel" "${settings[@]}"
  # auditwheel finds the oldest system it runs on; the driver is the machine's own, and the shim stands before it.
  rm -rf "$made-audited"; rm -f dist/stowage_memory-*"$architecture".whl
  auditwheel repair --plat auto --exclude libcuda.so.1 --wheel-dir "$made-audited" "$made-wheel"/*.whl 2> "$work/audit.log" ||
    { cat "$work/audit.log" >&2; exit 1; }
  audited=$(ls "$made-audited")
  oldest=$(grep -o 'manylinux_2_[0-9]*' <<< "$audited" | sort -Vr | head -n 1)
  if [ "${oldest#manylinux_2_}" -gt 28 ]; then say "$audited needs a newer system than manylinux_2_28" >&2; exit 1; fi
  python -m wheel tags --platform-tag "manylinux_2_28_$architecture" "$made-audited"/*.whl > /dev/null
  mv "$made-audited"/*-py3-none-manylinux_2_28_"$architecture".whl dist/
  say "for $architecture: audited as $oldest"
done
ls -l dist/*.whl
