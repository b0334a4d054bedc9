#!/usr/bin/env bash
# Step time beneath `stowage run` without options: bare and beneath in turn, twice. The steps are the same in every run, so of
# each step the faster of two is taken, and what disturbed one run does not count.
. "$(dirname "$0")/run_lib.bash"
need torch step_time
torch="$python $here/run_torch.py"
unset PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF
for turn in 1 2; do
  runs "$folder/bare$turn" $torch steps || { fail "step_time: does not run bare"; finish; }
  runs "$folder/beneath$turn" "$stowage" run -- $torch steps || { fail "step_time: does not run beneath"; finish; }
done
words=$("$python" - "$folder" << 'PYTHON'
import json, sys
def best(name):
    return [min(pair) for pair in zip(*(json.load(open(f"{sys.argv[1]}/{name}{turn}"))["steps_ms"] for turn in (1, 2)))]
bare, beneath = sum(best("bare")), sum(best("beneath"))
print(f"{bare:.1f} ms bare, {beneath:.1f} ms beneath for 100 steps: {beneath / bare:.4f}x")
sys.exit(beneath > 1.01 * bare)
PYTHON
)
code=$?
if [ $code = 0 ]; then ok "step_time_is_kept: $words"; else fail "step_time_is_kept: $words"; fi
finish
