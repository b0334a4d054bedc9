#!/usr/bin/env bash
# The docs site builds without a warning and loads nothing from elsewhere, and its pictures can be taken from this build.
. "$(dirname "$0")/../guards/lib.bash"
cd "$source_dir" || exit 1
builds() {
  tools/site/build.sh || return 1
  [ "$(find build/site -name '*.html' | wc -l)" -gt 60 ] || { echo "only $(find build/site -name '*.html' | wc -l) pages"; return 1; }
  ! grep -rnoE '(src|href)="(https?:)?//[^"]*\.(js|css|woff2?)[^"]*"|<script[^>]+src="https?:[^"]*"' build/site --include='*.html'
}
tools/site/build.sh > "$folder/log" 2>&1
if grep -q 'mkdocs-material is not here' "$folder/log"; then
  skip "the_site_builds: no mkdocs-material (python3 -m venv build/site-venv && build/site-venv/bin/pip install mkdocs-material)"
else
  check the_site_builds_and_loads_nothing builds
fi
python=${STOWAGE_TEST_PYTHON:-/usr/bin/python3}
if ! has chromium && ! has google-chrome; then skip "pictures_are_taken: no Chromium"
elif ! has tmux; then skip "pictures_are_taken: no tmux"
elif ! "$python" -c 'import numpy, nbclient, nbformat, ipykernel' 2> /dev/null; then skip "pictures_are_taken: $python has no numpy, nbclient, nbformat or ipykernel"
else
  taken() {
    "$python" tools/site/screenshots.py "$build" "$folder/images" || return 1
    diff <(ls docs/images) <(ls "$folder/images")
  }
  check pictures_are_taken taken
fi
finish
