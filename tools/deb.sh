#!/usr/bin/env bash
# deb.sh: a Debian package of everything `make install` installs, below /usr, into dist/. Run it on the oldest release the
# package is for: it needs the C library of the machine it was built on, or a newer one.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=build/deb
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || echo 315532800)}
export SOURCE_DATE_EPOCH
generator="Unix Makefiles"
if command -v ninja > /dev/null; then generator=Ninja; fi
[ -f $dir/CMakeCache.txt ] || cmake -S . -B $dir -G "$generator" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr \
  -DSTOWAGE_TESTS=OFF > /dev/null
cmake --build $dir --target stowage_parts > $dir/build.log || { cat $dir/build.log >&2; exit 1; }
# The newest symbol version of the C library that a binary asks for is the oldest C library it runs with.
glibc=$(find $dir -maxdepth 1 -type f \( -name '*.so*' -o -name stowage \) -exec objdump -T {} + |
  grep -oE 'GLIBC_[0-9]+\.[0-9]+' | sed 's/GLIBC_//' | sort -V | tail -n 1)
cmake -B $dir -DSTOWAGE_DEB_DEPENDS="libc6 (>= $glibc), zlib1g (>= 1:1.2.11), libzstd1 (>= 1.4.0)" > /dev/null
mkdir -p dist
rm -f dist/stowage_*_"$(dpkg --print-architecture)".deb
(cd $dir && cpack -G DEB > cpack.log) || { cat $dir/cpack.log >&2; exit 1; }
mv $dir/stowage_*.deb dist/
ls -l dist/stowage_*.deb
