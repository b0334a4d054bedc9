#!/usr/bin/env bash
# Runs programs larger than a limit (gpu_spill.py) bare and under `stowage run --spill`, on one GPU in one session. Prints per
# program case=spill_NAME ours=MS peer=floor:MS ratio=FLOOR/OURS unit=ms, and whether the results are equal. The floor is bare +
# crossings x (peak live + context - limit) / 55 GB/s, nothing overlapped; one crossing for data that is only read, and one for each of
# the eight tokens of a step. The figure is the median of the last half of the steps.
#   gpu_spill_bench.sh BUILD [NAME:LIMIT:STEPS:CROSSINGS[:SPILL]…]
build=$1; shift
here=$(dirname "${BASH_SOURCE[0]}")
python=${STOWAGE_PYTHON:-python3}
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
out=${OUT:-$folder}
[ $# -gt 0 ] || set -- token:10G:5:8 prompt:10G:12:1 finetune:10G:10:2 vit:20G:9:2 vit:12G:9:2 unet:12G:6:2 gan:9G:10:2 lora:4G:12:1 \
  lstm:4G:8:2 embedding:4G:6:1 cupy:6G:6:1:8G jax_mlp:5G:10:2:8G gpt_varlen:24G:20:2
for one; do
  IFS=: read -r name limit steps crossings spill <<< "$one"
  if [ ! -s "$folder/$name.bare" ]; then
    timeout 60 "$python" "$here/gpu_spill.py" "$name" "$steps" 2> "$folder/$name.err" | grep '^{' > "$folder/$name.bare" || {
      echo "case=spill_$name skipped: does not run bare: $(tail -n 1 "$folder/$name.err")"; continue; }
  fi
  STOWAGE_SHIM_LOG=$out/$name.$limit.log timeout 90 "$build/stowage" run --vram-limit "$limit" --spill "${spill:-auto}" -- \
    "$python" "$here/gpu_spill.py" "$name" "$steps" > "$folder/$name.spill" 2> "$out/$name.$limit.err"
  code=$?
  # Some programs differ from themselves in the last digits.
  if [ ! -s "$folder/$name.again" ] && ! cmp -s <(grep -o '"digest": "[0-9a-f]*"' "$folder/$name.bare") <(grep -o '"digest": "[0-9a-f]*"' "$folder/$name.spill"); then
    timeout 60 "$python" "$here/gpu_spill.py" "$name" "$steps" 2> /dev/null | grep '^{' > "$folder/$name.again"
  fi
  "$python" - "$folder/$name.bare" "$folder/$name.spill" "$name" "$limit" "$crossings" "$code" "$folder/$name.again" <<'P'
import json, statistics, sys
bare, spill, name, limit, crossings, code, again = sys.argv[1:]
bare = json.loads(open(bare).read())
lines = [line for line in open(spill) if line.startswith("{")]
if not lines:
    print(f"case=spill_{name}_{limit} failed: exit {code}")
    raise SystemExit
ours = json.loads(lines[-1])
def steady(times):
    return statistics.median(times[len(times) // 2:])
excess = max(0.0, bare["peak_gib"] + 0.5 - float(limit[:-1]))
floor = steady(bare["ms"]) + int(crossings) * excess * 2**30 / 55e9 * 1000
def apart(a, b):
    return max((abs(x - y) / max(abs(y), 1e-9) for x, y in zip(a["values"], b["values"])), default=0)
same = ours["values"][:len(bare["values"])] == bare["values"][:len(ours["values"])]
worst = apart(ours, bare)
try:
    itself = f"{apart(json.loads(open(again).read()), bare):.1e}"
except (OSError, ValueError):
    itself = "equal" if same else "?"
print(f"case=spill_{name}_{limit} ours={steady(ours['ms']):.0f} peer=floor:{floor:.0f} ratio={floor / steady(ours['ms']):.2f} unit=ms "
      f"bare={steady(bare['ms']):.0f} peak={bare['peak_gib']} equal={same} worst={worst:.1e} bare_again={itself} steps={ours['ms']}")
if worst > 1e-3:
    print(f"  values {ours['values'][:6]} bare {bare['values'][:6]}")
P
done
