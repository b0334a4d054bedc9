#!/usr/bin/env bash
# batches_bench.sh BUILD: stowage.batches beside a NumPy memmap loop and a torch DataLoader over a memmap: the same file, the
# same batches, every value summed, in turns, the middle of several. Prints
#   case=NAME ours=N peer=NAME:N ratio=N unit=GB/s        (ratio: ours over the peer's; higher is better)
# "cached": the file is in the page cache before, for all; "from_disk" and "limited": it is not, for any. "limited": each runs in a
# control group with less memory than the file has (as root; else a line says that they are left out). "disk_direct" is no peer
# but the disk: what plain reads past the page cache bring, with nothing done to them.
# $STOWAGE_BENCH_MB sizes the file (512), $STOWAGE_BENCH_FOLDER says where it stands, $STOWAGE_BENCH_PYTHON which Python.
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
. "$here/peer_python.bash"
export PYTHONPATH=$here/../python STOWAGE_LIBRARY=$build/libstowage.so OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
if peer_python numpy torch || peer_python numpy; then exec "$python" "$here/batches_bench.py"; fi
echo "batches_bench: no python3 with numpy to compare with"
