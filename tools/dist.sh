#!/usr/bin/env bash
# dist.sh [FOLDER]: the release archive of the commit that is checked out, its SBOM and their checksums, into FOLDER (dist/).
#
# The same commit gives the same bytes, whoever runs this and when: times are the commit's, owners and modes are git's, and
# gzip writes neither name nor time.
set -euo pipefail
cd "$(dirname "$0")/.."
into=${1:-dist}
git rev-parse --verify -q HEAD > /dev/null || { echo "dist: not a git checkout; release archives are made from a commit" >&2; exit 1; }
git diff-index --quiet HEAD -- || echo "dist: uncommitted changes are not in the archive" >&2
version=$(sed -nE 's/.*STOW_VERSION_TEXT +"([^"]+)".*/\1/p' include/stowage/version.h)
name=stowage-$version
mkdir -p "$into"
git -c tar.umask=0022 archive --format=tar --prefix="$name/" HEAD | gzip -n -9 > "$into/$name.tar.gz"
tools/sbom "$into/$name.tar.gz" "$(git log -1 --format=%ct)" > "$into/$name.spdx.json"
(cd "$into" && sha256sum "$name.tar.gz" "$name.spdx.json" > "$name.sha256")
ls -l "$into/$name".*
