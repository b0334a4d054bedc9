#!/usr/bin/env bash
# wheel.sh FOLDER: builds the Python package's wheel for this machine into FOLDER, with the compiled parts in build/wheel, which
# are kept between calls. `make test` calls it before the tests, and tests/python/package.sh tests the wheel. tools/wheels.sh makes
# those for other machines.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
# A Python that sees the system's packages: the first on the path may be a private one.
for python in /usr/bin/python3 python3; do
  "$python" -c 'import venv, ensurepip' > /dev/null 2>&1 && break
  python=
done
if [ -z "$python" ]; then echo "no python3 with venv (apt-get install python3-venv python3-pip)" >&2; exit 3; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv --system-site-packages "$work/venv"
rm -rf "$folder"
"$work/venv/bin/python" -m pip wheel -q . --no-deps --wheel-dir "$folder" --config-settings=build-dir=build/wheel
