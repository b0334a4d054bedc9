#!/usr/bin/env bash
# The result of `make install` is complete: a program finds the library through pkg-config and through CMake, shared and
# static, builds and runs; the command, its pages and completions are installed.
. "$(dirname "$0")/lib.bash"
cc=${CC:-cc}
prefix=$folder/prefix
if ! cmake --install "$build" --prefix "$prefix" > "$folder/log" 2>&1; then cat "$folder/log"; fail installs; finish; fi

missing=
for file in bin/stowage include/stowage/stowage.h include/stowage/sys/device.h share/man/man1/stowage.1 \
    share/man/man1/stowage-info.1 share/man/man7/stowage-devices.7 share/bash-completion/completions/stowage \
    share/zsh/site-functions/_stowage share/fish/vendor_completions.d/stowage.fish; do
  [ -s "$prefix/$file" ] || missing="$missing $file"
done
for file in libstowage.so libstowage.a libstowage-analysis.so libstowage-analysis.a libstowage-data.so libstowage-data.a \
    libstowage-shim.so libstowage-shim-alias.so libstowage-shim-nvml.so libstowage-host.so libstowage-profile.so pkgconfig/stowage.pc pkgconfig/stowage-analysis.pc pkgconfig/stowage-data.pc \
    cmake/stowage/stowage-config.cmake; do
  [ -n "$(find "$prefix" -path "*/$file")" ] || missing="$missing lib/$file"
done
if [ -z "$missing" ]; then ok everything_is_installed; else fail "everything_is_installed: no$missing"; fi
# `make install` in a fresh clone builds only the target stowage_parts: it must make every library that is installed.
if grep -q '^CMAKE_GENERATOR:INTERNAL=Ninja' "$build/CMakeCache.txt"; then
  ninja -C "$build" -t commands stowage_parts > "$folder/commands"
  unmade=
  for file in $(grep -oE "\"$build/[^\" ]+\.(a|so[.0-9]*)\"" "$build/cmake_install.cmake" | tr -d '"' | sort -u); do
    grep -qF "${file##*/}" "$folder/commands" || unmade="$unmade ${file##*/}"
  done
  if [ -z "$unmade" ]; then ok everything_installed_is_built_by_make_install; else fail "everything_installed_is_built_by_make_install: not$unmade"; fi
else
  skip "everything_installed_is_built_by_make_install: the build does not use Ninja"
fi
check the_installed_command_runs "$prefix/bin/stowage" info

# Uses all three libraries, and shows that they share one thread message.
cat > "$folder/consumer.c" << 'C'
#include <stdio.h>
#include <string.h>
#include <stowage/stowage.h>
int main(void) {
  uint64_t bytes = 0;
  if (stow_size_parse(&bytes, "1.5GiB") != STOW_OK || bytes != 1610612736u) return 1;
  stow_recording *recording;
  if (stow_recording_open(&recording, "/nowhere.stow", NULL) == STOW_OK) return 2;
  if (strstr(stow_status_message(), "nowhere.stow") == NULL) return 3;
  stow_array_options options = STOW_ARRAY_OPTIONS_INIT;
  options.path = "/nowhere.npy";
  stow_array *array;
  if (stow_array_open(&array, &options) == STOW_OK) return 4;
  if (strstr(stow_status_message(), "nowhere.npy") == NULL) return 5;
  printf("%s\n", stow_version());
  return strcmp(stow_version(), STOW_VERSION_TEXT);
}
C
# Defines every name that is global inside: none of them may clash with a program's own.
nm -g --defined-only "$build/libstowage_inside.a" | awk 'NF == 3 && $2 == "T" && $3 !~ /^stow_/ {print $3}' | sort -u |
  awk '{print "int " $1 "(void); int " $1 "(void) { return 1; }"}' > "$folder/clash.c"
clashes=$(wc -l < "$folder/clash.c")
library=$(dirname "$(find "$prefix" -name libstowage.so)")
runs() { # PROGRAM: prints the version compiled against
  [ "$(LD_LIBRARY_PATH=$library "$1")" = "$("$stowage" --version | cut -d' ' -f2)" ]
}
if has pkg-config; then
  export PKG_CONFIG_PATH=$library/pkgconfig
  by_pkg_config() {
    [ "$clashes" -gt 500 ] && "$cc" -fno-builtin -w "$folder/consumer.c" "$folder/clash.c" -rdynamic \
      $(pkg-config --cflags --libs stowage-analysis stowage-data) -o "$folder/shared" && runs "$folder/shared" &&
      "$cc" -fno-builtin -w "$folder/consumer.c" "$folder/clash.c" $(pkg-config --cflags stowage) -Wl,-Bstatic \
        -L"$library" -lstowage-analysis -lstowage-data -lstowage -Wl,-Bdynamic -lz -lzstd -lm -ldl -pthread \
        -o "$folder/static" && runs "$folder/static"
  }
  check a_program_that_defines_every_inner_name_builds_through_pkg_config by_pkg_config
else
  skip "a_program_that_defines_every_inner_name_builds_through_pkg_config: no pkg-config"
fi

mkdir -p "$folder/consumer"
cat > "$folder/consumer/CMakeLists.txt" << 'CMAKE'
cmake_minimum_required(VERSION 3.21)
project(consumer C)
find_package(stowage 0.1 REQUIRED)
add_executable(shared ../consumer.c)
target_link_libraries(shared PRIVATE stowage::stowage-analysis stowage::stowage-data)
add_executable(static ../consumer.c)
target_link_libraries(static PRIVATE stowage::stowage-analysis-static stowage::stowage-data-static)
CMAKE
by_cmake() {
  cmake -S "$folder/consumer" -B "$folder/consumer/build" -G "Unix Makefiles" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_COMPILER="$cc" && cmake --build "$folder/consumer/build" &&
    runs "$folder/consumer/build/shared" && runs "$folder/consumer/build/static"
}
check a_program_builds_through_cmake by_cmake

# The installed library starts the installed command to read HDF5: lib/stowage beside it is a folder, not the command.
python=/usr/bin/python3
if "$python" -c 'import h5py, numpy' 2> /dev/null; then
  hdf5() {
    env -u STOWAGE_COMMAND PATH=/usr/bin:/bin PYTHONPATH="$source_dir/python" STOWAGE_LIBRARY="$library/libstowage.so.1" "$python" -c '
import sys, h5py, stowage
with h5py.File(sys.argv[1], "w") as f: f["x"] = [1, 2, 3]
assert list(stowage.open(sys.argv[1] + ":x")[:]) == [1, 2, 3]' "$folder/a.h5"
  }
  check an_installed_library_reads_hdf5 hdf5
else
  skip "an_installed_library_reads_hdf5: no python3 with h5py"
fi
finish
