#!/usr/bin/env bash
# Limits and spilling on a GPU, with PyTorch.
. "$(dirname "$0")/run_lib.bash"
need torch limits_and_spill
torch="$python $here/run_torch.py"
unset PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF

for conf in expandable_segments:False expandable_segments:True backend:cudaMallocAsync; do
  export PYTORCH_ALLOC_CONF=$conf PYTORCH_CUDA_ALLOC_CONF=$conf
  timeout -k 5 100 "$stowage" run --vram-limit 4G -- $torch oom > "$folder/out" 2> "$folder/err"; code=$?
  held=$(field held_mib < "$folder/out") used=$(field used_mib < "$folder/out")
  # The use that the driver reports, including its own, stays within the limit; and most of the limit can be used.
  if [ $code = 1 ] && [ "${held:-0}" -gt 2800 ] && [ "${used:-9999}" -le 4160 ] && grep -q 'stowage run: out of memory' "$folder/err"; then
    ok "the_limit_is_kept_with_$conf: $held MiB of tensors, the driver says $used of 4096 MiB"
  else
    cat "$folder/out"; tail -n 5 "$folder/err"; fail "the_limit_is_kept_with_$conf: code $code, $held MiB held, $used MiB used"
  fi
done
unset PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF

# The references for the other runs, started in parallel.
for case in "hold 6" train uneven; do { runs "$folder/bare.${case% *}" $torch $case; } & done
wait

# Six GiB of live tensors in four: bare and spilled, with PyTorch's own settings and with those of --spill.
if [ -s "$folder/bare.hold" ]; then
  bare=$(field digest < "$folder/bare.hold")
  for conf in "" expandable_segments:False backend:cudaMallocAsync; do
    if [ -n "$conf" ]; then export PYTORCH_ALLOC_CONF=$conf PYTORCH_CUDA_ALLOC_CONF=$conf; else unset PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF; fi
    name=spill_past_the_limit_with_${conf:-what_spill_sets}
    if runs "$folder/shimmed" "$stowage" run --vram-limit 4G --spill 8G -- $torch hold 6 && [ "$(field digest < "$folder/shimmed")" = "$bare" ]; then
      ok "$name: $(grep 'at the peak' "$folder/shimmed.err" | sed 's/^stowage run: //')"
    else
      cat "$folder/shimmed" "$folder/shimmed.err" | tail -n 5; fail "$name"
    fi
  done
  unset PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF
else
  fail "spill: does not run bare"
fi

# Training with a limit below what it needs.
if [ -s "$folder/bare.train" ] && runs "$folder/shimmed" "$stowage" run --vram-limit 1200M --spill auto -- $torch train &&
  [ "$(field digest < "$folder/bare.train")" = "$(field digest < "$folder/shimmed")" ]; then
  ok "training_spills_and_finishes_alike: $(grep 'at the peak' "$folder/shimmed.err" | sed 's/^stowage run: //')"
else
  fail training_spills_and_finishes_alike
fi

# Steps that are too large, between smaller ones: what they wrote first moves out and back, and nothing else is on the host.
if [ -s "$folder/bare.uneven" ] && runs "$folder/shimmed" "$stowage" run --vram-limit 5G --spill auto -- $torch uneven &&
  [ "$(field digest < "$folder/bare.uneven")" = "$(field digest < "$folder/shimmed")" ] &&
  grep -qE 'moved .*[1-9][0-9.]* [MG]iB out, [1-9][0-9.]* [MG]iB back' "$folder/shimmed.err"; then
  ok "a_large_step_moves_out_and_home: $(grep -E 'moved|spilled' "$folder/shimmed.err" | sed 's/^stowage run: //' | tr '\n' ' ')"
else
  tail -n 5 "$folder/shimmed.err"; fail a_large_step_moves_out_and_home
fi
finish
