#!/usr/bin/env bash
# The programs of examples/seeds that need no GPU, run as described under `stowage run`, and what Stowage reports about them
# (tests/shim/seeds.txt; the recordings of those that need one are in tests/golden/seeds.txt). 02 and 04 also with
# stowage.batches: the same result from a tenth of the memory. 01 and 08 run if TensorFlow is installed.
. "$(dirname "$0")/lib.bash"
. "$source_dir/tests/cli/numpy.bash"
export STOWAGE_LIBCUDA=/nonexistent # no driver is needed for this
require_numpy what_stowage_says_of_the_seeds
export PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1 PYTHONPATH=$source_dir/python STOWAGE_LIBRARY=$build/libstowage.so
export TF_CPP_MIN_LOG_LEVEL=3
[ -z "${STOWAGE_GOLDEN_WRITE:-}" ] || STOWAGE_TEST_LONG=1 # the golden file has all of them
seeds=$source_dir/examples/seeds
cd "$folder" || exit 1

# said PROGRAM WORDS…: prints its output and what is reported about it, with numbers of this machine masked; peak.PROGRAM… gets
# its own peak in MiB.
said() {
  local program=$1; shift
  echo "\$ stowage run --ram-limit ${limit:-8G} -- python $program $*" | sed 's/ $//'
  timeout -k 2 "${seconds:-200}" "$stowage" run --ram-limit "${limit:-8G}" -- "${with:-$python}" "$seeds/$program" "$@" > "$folder/out" 2>&1
  sed -n 's/^peak memory \([0-9]*\) MiB/\1/p' "$folder/out" > "$folder/peak.$program$*"
  grep -vE 'absl|oneDNN' "$folder/out" | sed -E 's/(peak memory|at the peak) [0-9.]+ .iB/\1 SIZE/'
  "$stowage" explain --last | sed -E "s#\($(printf %s "${with:-$python}" | sed 's/[.]/\\./g') $seeds/#(python #"
}
{
  said 02_generator.py
  said 02_generator.py --stowage
  said 04_batch_statistics.py
  said 04_batch_statistics.py --stowage
  said 05_smaller_types.py
  "$python" "$seeds/05_smaller_types.py" --save "$folder"
  echo '$ stowage inspect wide.npy counts.npy'; "$stowage" inspect wide.npy counts.npy
  if [ -n "${STOWAGE_TEST_LONG:-}" ]; then # it reads 8 GB
    said 06_sparse.py
    "$python" "$seeds/06_sparse.py" --save "$folder"
    echo '$ stowage inspect dense.npy'; timeout -k 2 200 "$stowage" inspect dense.npy
  fi
} 2>&1 | sed -E 's/^peak memory [0-9.]+ .iB.*/peak memory SIZE/' > "$folder/all"
if [ -n "${STOWAGE_GOLDEN_WRITE:-}" ]; then cp "$folder/all" "$source_dir/tests/shim/seeds.txt"; fi
cp "$source_dir/tests/shim/seeds.txt" "$folder/expected"
[ -n "${STOWAGE_TEST_LONG:-}" ] || sed -i '/06_sparse/,$d' "$folder/expected"
check what_stowage_says_of_the_seeds diff -u "$folder/expected" "$folder/all"

# Resident memory at the peak, as written and with stowage.batches.
for program in 02_generator.py 04_batch_statistics.py; do
  whole=$(cat "$folder/peak.$program") parts=$(cat "$folder/peak.$program--stowage")
  if [ "${whole:-0}" -ge 763 ] && [ "${parts:-9999}" -le 120 ]; then ok "$program: $whole MiB as written, $parts MiB with stowage.batches"; else fail "$program: ${whole:-nothing} MiB as written, ${parts:-nothing} MiB with stowage.batches"; fi
done

with=${STOWAGE_TEST_TENSORFLOW:-python3}
if ! "$with" -c 'import tensorflow' > /dev/null 2>&1; then
  skip "what_stowage_says_of_tensorflow: no python3 with tensorflow (STOWAGE_TEST_TENSORFLOW names one)"
else
  said 08_keras_step.py > "$folder/tensorflow"
  limit=16G seconds=200 said 01_tensorflow_sum.py | sed -E 's/^-?[0-9]+\.[0-9]+$/SUM/' >> "$folder/tensorflow"
  if [ -n "${STOWAGE_GOLDEN_WRITE:-}" ]; then cp "$folder/tensorflow" "$source_dir/tests/shim/seeds_tensorflow.txt"; fi
  check what_stowage_says_of_tensorflow diff -u "$source_dir/tests/shim/seeds_tensorflow.txt" "$folder/tensorflow"
fi
finish
