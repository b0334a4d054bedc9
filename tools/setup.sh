#!/usr/bin/env bash
# setup.sh build|test|lint|fuzz: installs what is missing for that, and only that.
#
# Where it may (root on a Debian or Ubuntu system) it installs; where it may not, it goes on with what is there if that is
# enough to build, and otherwise prints the one command to run. Costs milliseconds when nothing is missing.
set -euo pipefail
purpose=${1:-build}

has() { command -v "$1" > /dev/null 2>&1; }
# A header the compiler itself finds, so that a cross or a local toolchain counts too.
header() { echo "#include <$1>" | "${CC:-cc}" -E -x c - > /dev/null 2>&1; }

must=() nice=()
need() { "${@:2}" || must+=("$1"); }
want() { "${@:2}" || nice+=("$1"); }

need gcc has "${CC:-cc}"
need libc6-dev header stdio.h
need cmake has cmake
need zlib1g-dev header zlib.h
need libzstd-dev header zstd.h
want ninja-build has ninja
if [ "$purpose" != build ]; then
  need python3 has python3
  want clang-format has clang-format
  want binutils has nm
  want git has git
  want g++ has g++
  want pkg-config has pkg-config
  want groff-base has groff
fi
case $purpose in
  lint) need clang-tidy has clang-tidy; need cppcheck has cppcheck ;;
  fuzz) need clang has clang; need libclang-rt-14-dev test -n "$(clang -print-file-name=libclang_rt.fuzzer-x86_64.a 2> /dev/null || true)" ;;
esac

[ ${#must[@]} -eq 0 ] && [ ${#nice[@]} -eq 0 ] && exit 0
all="${must[*]} ${nice[*]}"
if [ "$(id -u)" = 0 ] && has apt-get; then
  echo "setup: installing$(printf ' %s' $all)"
  export DEBIAN_FRONTEND=noninteractive
  log=$(mktemp)
  # Package lists of a fresh machine are empty or old: bring them up to date first.
  if apt-get update > "$log" 2>&1 && apt-get install -y --no-install-recommends $all >> "$log" 2>&1; then
    rm -f "$log"
    exit 0
  fi
  tail -n 20 "$log" >&2
  rm -f "$log"
fi
[ ${#must[@]} -eq 0 ] && exit 0 # the rest is only nice to have
echo "setup: missing:$(printf ' %s' "${must[@]}"). Run this once, then make again:" >&2
echo "  sudo apt-get update && sudo apt-get install -y$(printf ' %s' $all)" >&2
exit 1
