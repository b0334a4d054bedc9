# Sourced by the benchmarks that need a Python whose torch sees a GPU: gpu_python BUILD CASE PEER sets $here, $python and the
# path of the package. If there is no such Python, it prints a line of the benchmark and exits.
gpu_python() {
  local build
  build=$(cd "$1" && pwd)
  here=$(cd "$(dirname "$0")" && pwd)
  python=${STOWAGE_BENCH_PYTHON:-python3}
  export PYTHONPATH=$here/../python STOWAGE_LIBRARY=$build/libstowage.so
  "$python" -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null && return
  echo "case=$2 peer=$3:not-found ($python has no torch that sees a device)"
  exit 0
}
