#!/usr/bin/env bash
# profile_bench.sh BUILD [ROUNDS [PROGRAM…]]: measures what `stowage run --profile` costs a Python program, and memray and scalene if the
# Python has them (STOWAGE_BENCH_PYTHON: a Python with numpy, memray and scalene).
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
. "$here/peer_python.bash"
no_device
if peer_python numpy; then "$python" "$here/profile_bench.py" "$build/stowage" "${2:-15}" "${@:3}"; else echo "profile_bench: no python3 with numpy"; fi
