#!/usr/bin/env bash
# tools/setup.sh on a release of Debian or Ubuntu that lacks a package: it installs the others. apt-get and id are stand-ins here.
. "$(dirname "$0")/lib.bash"
mkdir -p "$folder/tree/tools" "$folder/bin"
cp "$source_dir/tools/setup.sh" "$folder/tree/tools/"
printf '#!/bin/sh\necho 0\n' > "$folder/bin/id"
# Installs nothing if it does not know one of the names, like apt-get; python3-torch and chromium are unknown.
cat > "$folder/bin/apt-get" << 'END'
#!/bin/sh
[ "$1" = install ] || exit 0
for word in "$@"; do case $word in python3-torch | chromium) exit 100 ;; esac; done
shift
for word in "$@"; do case $word in -*) ;; *) echo "$word" >> "$INSTALLED" ;; esac; done
END
# A python3 without any module; tmux, bindfs and Chromium are not on the path.
printf '#!/bin/sh\nexit 1\n' > "$folder/bin/python3"
chmod +x "$folder"/bin/*
for tool in bash sh cc gcc as ld cmake make ninja sed sort head tail tr dirname mktemp rm mkdir cat cut grep ldconfig touch env; do
  [ -e "$folder/bin/$tool" ] || ! has $tool || ln -s "$(command -v $tool)" "$folder/bin/$tool"
done
# gcc, cmake, zlib and zstd are here wherever the tests run: only packages that are nice to have are missing.
installs_the_rest() {
  INSTALLED=$folder/installed PATH=$folder/bin bash "$folder/tree/tools/setup.sh" test || return 1
  grep -x tmux "$folder/installed" && grep -x bindfs "$folder/installed" && ! grep -x chromium "$folder/installed"
}
check a_missing_package_does_not_prevent_the_others installs_the_rest
# The second time, nothing is tried again: the packages that are not to be had are known.
nothing_twice() {
  rm -f "$folder/installed"
  INSTALLED=$folder/installed PATH=$folder/bin bash "$folder/tree/tools/setup.sh" test && [ ! -e "$folder/installed" ]
}
check what_is_not_available_is_not_tried_again nothing_twice
finish
