#!/usr/bin/env bash
# Step time under `stowage run`: bare, without options, recording, and recording without lines, in turn, twice. The steps are the
# same in every run, so for each step the faster of two counts, which removes disturbances. Small steps are limited by the host
# and show all overhead; they are reported, but not checked.
. "$(dirname "$0")/run_lib.bash"
need torch step_time
torch="$python $here/run_torch.py"
unset PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF
for turn in 1 2; do
  runs "$folder/bare$turn" $torch steps 100 || { fail "step_time: does not run bare"; finish; }
  runs "$folder/shimmed$turn" "$stowage" run -- $torch steps 100 || { fail "step_time: does not run under stowage run"; finish; }
  runs "$folder/recorded$turn" "$stowage" run --record "$folder/$turn.stow" -- $torch steps 100 || { fail "step_time: does not run recorded"; finish; }
  runs "$folder/lineless$turn" "$stowage" run --record "$folder/lineless$turn.stow" --stacks off -- $torch steps 100 || { fail "step_time: does not run recorded"; finish; }
done
# kept NAME HOW MOST: the sum of the steps may be at most MOST times the bare sum.
kept() {
  local words
  words=$("$python" - "$folder" "$2" "$3" << 'PYTHON'
import json, sys
folder, how, most = sys.argv[1], sys.argv[2], float(sys.argv[3])
def best(name, which):
    return sum(min(pair) for pair in zip(*(json.load(open(f"{folder}/{name}{turn}"))[which] for turn in (1, 2))))
bare, ours = best("bare", "steps_ms"), best(how, "steps_ms")
small, small_ours = best("bare", "small_ms"), best(how, "small_ms")
print(f"{bare:.1f} ms bare, {ours:.1f} ms for 100 steps: {ours / bare:.4f}x; 200 small ones {small:.1f}, {small_ours:.1f} ms: {small_ours / small:.4f}x")
sys.exit(ours > most * bare)
PYTHON
  ) && ok "$1: $words" || fail "$1: $words"
}
kept step_time_is_kept shimmed 1.01
kept recording_with_lines recorded 1.03
kept recording_without_lines lineless 1.01
finish
