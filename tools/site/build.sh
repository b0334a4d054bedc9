#!/usr/bin/env bash
# build.sh: builds the docs site from README.md, docs/ and man/ into build/site. Needs mkdocs-material, in build/site-venv, on the
# path or named by STOWAGE_MKDOCS.
set -euo pipefail
cd "$(dirname "$0")/../.."
for mkdocs in "${STOWAGE_MKDOCS:-}" build/site-venv/bin/mkdocs mkdocs; do
  [ -n "$mkdocs" ] && command -v "$mkdocs" > /dev/null && break
  mkdocs=
done
if [ -z "$mkdocs" ]; then
  cat >&2 << 'WORDS'
make site: mkdocs-material is not here. Install it with:
  python3 -m venv build/site-venv && build/site-venv/bin/pip install mkdocs-material
WORDS
  exit 1
fi
rm -rf build/site-src build/site
mkdir -p build/site-src
PYTHONDONTWRITEBYTECODE=1 python3 tools/site/sources.py . build/site-src
cp tools/site/site.css build/site-src/
# Material prints an advertisement for its successor unless this is set.
NO_MKDOCS_2_WARNING=1 "$mkdocs" build --quiet --strict --config-file tools/site/mkdocs.yml
echo "build/site: $(find build/site -name '*.html' | wc -l) pages; open build/site/index.html"
