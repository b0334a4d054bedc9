#!/usr/bin/env bash
# batches_bench.sh BUILD: stowage.batches beside a NumPy memmap loop and a torch DataLoader over a memmap: the same file, the
# same batches, every value summed. Prints
#   case=NAME ours=N peer=NAME:N ratio=N unit=GB/s        (ratio: ours over the peer's; higher is better)
# "limited": each runs in a control group with less memory than the file has (as root; else the lines say that they are
# left out). $STOWAGE_BENCH_MB sizes the file (512), $STOWAGE_BENCH_FOLDER says where it stands, $STOWAGE_BENCH_PYTHON which Python.
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$here/../python STOWAGE_LIBRARY=$build/libstowage.so OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
for wanted in 'numpy, torch' numpy; do
  for python in "${STOWAGE_BENCH_PYTHON:-python3}" /usr/bin/python3; do
    if "$python" -c "import $wanted" 2> /dev/null; then exec "$python" "$here/batches_bench.py"; fi
  done
done
echo "batches_bench: no python3 with numpy to compare with"
