#!/usr/bin/env bash
# batches_bench.sh BUILD: compares stowage.batches with a NumPy memmap loop and a torch DataLoader over a memmap: the same file,
# the same batches, every value summed, in turn, the median of several. Prints
#   case=NAME ours=N peer=NAME:N ratio=N unit=GB/s        (ratio: ours over the peer's; higher is better)
# "cached": the file is in the page cache before, for all; "from_disk" and "limited": it is not. "limited": each runs in a control
# group with less memory than the file (as root; otherwise a line says that these cases are skipped). "disk_direct" is the disk
# itself: plain reads that bypass the page cache, without processing. "shuffled_on_disk" compares the CPU time with reading in order
# (unit=cpu_s; lower is better).
# $STOWAGE_BENCH_MB is the size of the file (512), $STOWAGE_BENCH_FOLDER its folder, $STOWAGE_BENCH_PYTHON the Python to use.
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
. "$here/peer_python.bash"
export PYTHONPATH=$here/../python STOWAGE_LIBRARY=$build/libstowage.so OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
if peer_python numpy torch || peer_python numpy; then exec "$python" "$here/batches_bench.py"; fi
echo "batches_bench: no python3 with numpy to compare with"
