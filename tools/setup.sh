#!/usr/bin/env bash
# setup.sh build|test|lint|fuzz|bench: installs what is missing for that, and only that.
# As root on Debian or Ubuntu it installs packages. Otherwise it continues if the installed packages are enough to build,
# or prints the one command to run. Takes milliseconds if nothing is missing.
set -euo pipefail
purpose=${1:-build}
cc=${CC:-cc}

has() { command -v "$1" > /dev/null 2>&1; }
# Headers the compiler itself finds, so that a cross or a local toolchain counts too.
header() { echo "#include <$1>" | "$cc" -E -x c - > /dev/null 2>&1; }
# Presets need CMake 3.21.
new_cmake() {
  local version
  version=$(cmake --version 2> /dev/null | sed -n '1s/[^0-9]*//p') && [ -n "$version" ] &&
    [ "$(printf '%s\n3.21\n' "$version" | sort -V | head -n 1)" = 3.21 ]
}
# Can COMPILER link with that sanitizer? gcc includes them; clang has a separate package.
sanitizer() { echo 'int main(void) { return 0; }' | "$1" "-fsanitize=$2" -x c - -o /dev/null > /dev/null 2>&1; }
# That package, by the version of clang that is here or that would be installed.
clang_runtime() {
  local major
  major=$(clang -dumpversion 2> /dev/null | cut -d. -f1)
  [ -n "$major" ] || major=$(apt-cache depends clang 2> /dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
  echo "libclang-rt-${major:-14}-dev"
}

must=() nice=()
need() { "${@:2}" || must+=("$1"); }
want() { "${@:2}" || nice+=("$1"); }

find_missing() {
  must=() nice=()
  case ${cc##*/} in
    clang*) need clang has "$cc" ;;
    *) need gcc has "$cc" ;;
  esac
  need libc6-dev header stdio.h
  need cmake new_cmake
  need zlib1g-dev header zlib.h
  need libzstd-dev header zstd.h
  has ninja || want make has make
  want ninja-build has ninja
  if [ "$purpose" = test ]; then
    modules=$(python_modules | tr '\n' ' ')
    need python3 has python3
    want binutils has nm
    want git has git
    want g++ has g++
    want pkg-config has pkg-config
    want groff-base has groff
    want clang-format has clang-format
    want chromium browser
    if [ "$(uname -m)" != aarch64 ]; then
      want gcc-aarch64-linux-gnu has aarch64-linux-gnu-gcc
      want libc6-dev-arm64-cross test -e /usr/aarch64-linux-gnu/include/stdio.h
    fi
    want tmux has tmux
    want zsh has zsh
    want fish has fish
    want libncursesw6 library libncursesw.so.6
    want python3-numpy python_has numpy
    want python3-pandas python_has pandas
    want libcurl4 library libcurl.so.4
    want openssl has openssl
    want bindfs has bindfs
    want python3-scipy python_has scipy
    want python3-venv python_has ensurepip
    want python3-pip python_has pip
    want python3-torch python_has torch
    want python3-nbclient python_has nbclient
    want python3-nbformat python_has nbformat
    want python3-ipykernel python_has ipykernel
    want python3-h5py python_has h5py
    want python3-fsspec python_has fsspec
    want python3-mypy python_has mypy
    want openmpi-bin has mpirun
    case ${cc##*/} in clang*) need "$(clang_runtime)" sanitizer "$cc" address ;; esac
  fi
  if [ "$purpose" = lint ]; then
    need git has git
    need clang-tidy has clang-tidy
    need cppcheck has cppcheck
    want shellcheck has shellcheck
  fi
  # The peers of heap_bench: without them only the comparison is missing.
  if [ "$purpose" = bench ]; then
    want libmimalloc2.0 library libmimalloc.so.2
    want git has git
  fi
  if [ "$purpose" = fuzz ]; then
    need clang has clang
    # Linking a target without its entry point fails too, so look for the runtime itself.
    need "$(clang_runtime)" fuzzer_runtime
  fi
}
# In the first python3 of the path, or in the system's own, where packages go. Modules are found, not imported: torch takes seconds.
python_has() { [[ " $modules " = *" $1 "* ]]; }
python_modules() {
  local python find='import importlib.util as i, sys; print(*[m for m in sys.argv[1:] if i.find_spec(m)])'
  for python in python3 /usr/bin/python3; do
    "$python" -c "$find" numpy pandas scipy ensurepip pip torch nbclient nbformat ipykernel h5py fsspec mypy 2> /dev/null || true
  done
}
# A shared library the dynamic linker finds.
library() { [ -n "$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2> /dev/null | grep -F "$1 ")" ]; }
# TLSF has no package: its two files are cloned and built in build/peers, tried once; you can also put the files there.
tlsf() {
  local peers
  peers=$(dirname "$0")/../build/peers
  [ ! -e "$peers/libtlsf.so" ] || return 0
  mkdir -p "$peers"
  if [ ! -e "$peers/tlsf/tlsf.c" ] && [ ! -e "$peers/tried" ] && has git; then
    touch "$peers/tried"
    GIT_TERMINAL_PROMPT=0 timeout 30 git clone -q --depth 1 https://github.com/mattconte/tlsf "$peers/tlsf" 2> /dev/null || true
  fi
  if [ -e "$peers/tlsf/tlsf.c" ]; then
    "$cc" -O2 -DNDEBUG -fPIC -shared -o "$peers/libtlsf.so" "$peers/tlsf/tlsf.c"
  else
    echo "setup: TLSF could not be fetched; put tlsf.c and tlsf.h (mattconte/tlsf) into build/peers/tlsf to compare with it" >&2
  fi
}
# Any of the names the page's tests look for.
browser() { has chromium || has chromium-browser || has google-chrome; }
fuzzer_runtime() {
  has clang && echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return d == 0 && n; }' |
    clang -fsanitize=fuzzer,address -x c - -o /dev/null > /dev/null 2>&1
}

find_missing
[ "$purpose" != bench ] || trap tlsf EXIT
[ ${#must[@]} -eq 0 ] && [ ${#nice[@]} -eq 0 ] && exit 0
# Do not retry optional packages at every run.
tried=$(dirname "$0")/../build/setup.$purpose
if [ ${#must[@]} -eq 0 ] && [ "$(cat "$tried" 2> /dev/null)" = "${nice[*]}" ]; then exit 0; fi
if [ "$(id -u)" = 0 ] && has apt-get; then
  log=$(mktemp)
  trap 'rm -f "$log"; [ "$purpose" != bench ] || tlsf' EXIT
  export DEBIAN_FRONTEND=noninteractive
  # Package lists of a fresh machine are empty or old: update them first. Twice, because the packages for clang are known
  # only once clang is installed.
  apt-get update > "$log" 2>&1 || true
  for turn in 1 2; do
    find_missing
    all=("${must[@]}" "${nice[@]}")
    [ ${#all[@]} -gt 0 ] || exit 0
    echo "setup: installing ${all[*]}"
    if ! apt-get install -y --no-install-recommends "${all[@]}" >> "$log" 2>&1 && [ "$turn" = 1 ]; then
      # A package that this release does not have must not prevent the installation of the rest: Ubuntu has no chromium
      # package, and Ubuntu 24.04 no python3-torch.
      for package in "${all[@]}"; do apt-get install -y --no-install-recommends "$package" >> "$log" 2>&1 || true; done
    fi
  done
  find_missing
  [ ${#must[@]} -eq 0 ] || tail -n 20 "$log" >&2
fi
if [ ${#must[@]} -eq 0 ]; then # the rest is only nice to have
  mkdir -p "$(dirname "$tried")"
  echo "${nice[*]}" > "$tried"
  exit 0
fi
echo "setup: missing: ${must[*]}. Run this once, then make again:" >&2
echo "  sudo apt-get update && sudo apt-get install -y ${must[*]} ${nice[*]}" >&2
exit 1
