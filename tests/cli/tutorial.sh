#!/usr/bin/env bash
# docs/tutorial.md, followed as written: its files, its commands, what they print. STOWAGE_TEST_TORCH names the Python that has PyTorch;
# python3 unless given. The figures on the page are compared with one version of PyTorch, the words with any.
. "$(dirname "$0")/../guards/lib.bash"
python=${STOWAGE_TEST_TORCH:-/usr/bin/python3}
if ! "$python" -c 'import torch' > /dev/null 2>&1; then
  skip "tutorial: $python has no PyTorch (set STOWAGE_TEST_TORCH)"
  finish
fi
mkdir "$folder/bin" "$folder/tutorial"
ln -s "$(command -v "$python")" "$folder/bin/python"
ln -s "$(command -v "$python")" "$folder/bin/python3" # what `stowage estimate` starts
real=$(dirname "$("$python" -c 'import torch; print(torch.__path__[0])')")
export PATH=$folder/bin:$build:$PATH PYTHONPATH=$source_dir/python:$real STOWAGE_LIBRARY=$build/libstowage.so CUDA_VISIBLE_DEVICES=
export XDG_STATE_HOME=$folder/state XDG_CACHE_HOME=$folder/cache LC_ALL=C.UTF-8 PYTHONWARNINGS=ignore
unset LD_PRELOAD STOWAGE_SHIM
python "$source_dir/tests/cli/tutorial.py" "$source_dir/docs/tutorial.md" "$folder/tutorial" > "$folder/log" 2>&1 || failed=1
cat "$folder/log"
grep -qE '^ok tutorial' "$folder/log" || fail "tutorial: no command ran"
finish
