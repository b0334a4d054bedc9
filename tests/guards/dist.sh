#!/usr/bin/env bash
# The release archive: two runs give equal bytes, whatever the time zone, the umask and the locale; its SBOM names every file
# with the right checksum; what wheels are built with is pinned by hash.
. "$(dirname "$0")/lib.bash"
cd "$source_dir" || exit 1
pinned() {
  sed -e ':a' -e '/\\$/N; s/\\\n//; ta' packaging/requirements-build.txt | grep -vE '^(#|$)' > "$folder/pins"
  [ -s "$folder/pins" ] && ! grep -vE '^[a-z0-9.-]+==[0-9][0-9.]*( +--hash=sha256:[0-9a-f]{64})+ *$' "$folder/pins" &&
    grep -q -e '--require-hashes' tools/wheels.sh
}
check build_requirements_are_pinned_by_hash pinned
if ! has git || ! git rev-parse -q --verify HEAD > /dev/null 2>&1; then skip "release_archives_are_reproducible: not a git checkout"; finish; fi
twice() {
  (umask 022; TZ=UTC tools/dist.sh "$folder/one") && (umask 077; TZ=Pacific/Apia LC_ALL=C tools/dist.sh "$folder/two") &&
    diff -r "$folder/one" "$folder/two" && (cd "$folder/one" && sha256sum -c ./*.sha256)
}
check release_archives_are_reproducible twice
listed() {
  python3 - "$folder"/one/*.spdx.json "$folder"/one/*.tar.gz << 'END'
import hashlib, json, sys, tarfile
document = json.load(open(sys.argv[1]))
assert document["spdxVersion"] == "SPDX-2.3" and document["dataLicense"] == "CC0-1.0" and document["documentNamespace"]
names = {package["name"] for package in document["packages"]}
assert {"stowage", "zlib", "zstd", "glibc", "scikit-build-core"} <= names, names
known = {file["fileName"]: {sum["algorithm"]: sum["checksumValue"] for sum in file["checksums"]} for file in document["files"]}
with tarfile.open(sys.argv[2]) as archive:
    members = [member for member in archive if member.isfile()]
    assert len(members) == len(known), (len(members), len(known))
    for member in members:
        data = archive.extractfile(member).read()
        assert known["./" + member.name.partition("/")[2]]["SHA256"] == hashlib.sha256(data).hexdigest(), member.name
ids = [thing["SPDXID"] for thing in document["packages"] + document["files"]] + ["SPDXRef-DOCUMENT"]
assert len(ids) == len(set(ids))
for relation in document["relationships"]:
    assert relation["spdxElementId"] in ids and relation["relatedSpdxElement"] in ids, relation
END
}
check the_sbom_lists_every_file listed
finish
