#!/usr/bin/env bash
# host_watch_bench.sh BUILD [ROUNDS]: measures what watching host memory costs a Python program under `stowage run` without options.
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
. "$here/peer_python.bash"
no_device
if peer_python numpy; then "$python" "$here/host_watch_bench.py" "$build/stowage" "${2:-15}"; else echo "host_watch_bench: no python3 with numpy"; fi
