#!/usr/bin/env bash
# stowage.estimate with a recent PyTorch on the CPU: the tests of the package, every program of the GPU benchmark, and a model
# with 7 billion parameters within its time and memory. STOWAGE_TEST_TORCH names the Python that has PyTorch; default python3.
. "$(dirname "$0")/../guards/lib.bash"
cd "$source_dir" || exit 1
python=${STOWAGE_TEST_TORCH:-python3}
if ! "$python" -c 'import torch; assert tuple(int(p) for p in torch.__version__.split(".")[:2]) >= (2, 4)' > /dev/null 2>&1; then
  skip "estimate: $python has no PyTorch 2.4 or newer (set STOWAGE_TEST_TORCH)"
  finish
fi
export PYTHONPATH=$source_dir/python STOWAGE_LIBRARY=$build/libstowage.so OUT=$folder
"$python" python/tests/run.py estimate > "$folder/tests" 2>&1 || true
"$python" python/tests/run.py tune >> "$folder/tests" 2>&1 || true
grep -vE '^(ok|skip) ' "$folder/tests" | tail -n 60
grep -E '^(ok|FAIL|skip) ' "$folder/tests" || fail "estimate_tests: no test ran"
! grep -q '^FAIL' "$folder/tests" || failed=1
"$python" bench/gpu_estimate_bench.py --estimate-only --parts memory --workers 1 --steps 1 --seconds 3000 > "$folder/programs" 2>&1 || true
if grep -qE '^gpt_fp32_sgd est [0-9]+ live' "$folder/programs" && ! grep -qE ' ERROR |out of time' "$folder/programs"; then
  ok "every_program_of_the_benchmark_is_estimated: $(grep -cE '^[a-z0-9_]+ est [0-9]+' "$folder/programs") programs"
else
  grep -E ' ERROR |out of time|Error' "$folder/programs" | tail -n 10
  fail every_program_of_the_benchmark_is_estimated
fi
cat > "$folder/large.py" << 'END'
import resource
import sys
import time

import torch

import stowage

sys.path.insert(0, "bench")
import estimate_programs as programs


def model():
    return programs.Llama(layers=32, width=4096, heads=32, kv=32, hidden=11008).to(torch.bfloat16)


def loss(output, batch):
    return torch.nn.functional.cross_entropy(output.flatten(0, 1).float(), batch[0].flatten())


began = time.process_time()
found = stowage.estimate(model, lambda: (torch.randint(0, 30000, (1, 2048)),), optimizer="adamw", loss=loss, gpu="A100-80G")
# CPU time, so that other work on the machine does not matter.
print(f"{time.process_time() - began:.0f} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} {found.peak_live >> 30}")
END
read -r seconds mib gib <<< "$("$python" "$folder/large.py" 2> "$folder/log" | tail -n 1)"
# Weights, gradients and two states of 6.7 billion numbers in 16 bits are 50 GiB.
if [ "${seconds:-99}" -lt 60 ] && [ "${mib:-9999}" -lt 2048 ] && [ "${gib:-0}" -ge 50 ]; then
  ok "seven_billion_parameters: $seconds s of CPU, $mib MiB of host memory, $gib GiB live"
else
  cat "$folder/log"
  fail "seven_billion_parameters: ${seconds:-no} s of CPU (60), ${mib:-no} MiB (2048), ${gib:-no} GiB live"
fi
finish
