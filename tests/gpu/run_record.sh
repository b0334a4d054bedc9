#!/usr/bin/env bash
# What a run of PyTorch leaves behind on a GPU: why it ran out of memory, with the program's lines; blocks, ranges and steps in
# its trace.
. "$(dirname "$0")/run_lib.bash"
need torch what_a_run_leaves
program=$here/run_record.py
# A sum of losses without any backward pass: both names of the cause are right.
for cause in graph_kept graph_unused leak batch_too_big; do
  timeout -k 5 100 "$stowage" run --vram-limit 4G -- "$python" "$program" $cause > /dev/null 2> "$folder/err"; code=$?
  said=$("$stowage" explain --last --short)
  if [ $code = 1 ] && [[ $said = "$cause ("* || $cause = graph_unused && $said =~ ^(graph_kept|no_grad_missing)' (' ]] && grep -q 'stowage run: why: .*run_record.py:' "$folder/err"; then ok "$cause: $said"; else tail -n 4 "$folder/err"; fail "$cause: code $code, $said"; fi
done
timeout -k 5 100 "$stowage" run --record "$folder/ranges.stow" -- "$python" "$program" ranges > "$folder/out" 2> "$folder/err"
"$stowage" convert "$folder/ranges.stow" "$folder/ranges.csv" > /dev/null
for word in my_forward my_range Optimizer.step#Adam.step; do
  count=$(cut -d, -f10 "$folder/ranges.csv" | grep -c "^$word$")
  if [ "$count" = 6 ]; then ok "${word}_is_marked"; else fail "${word}_is_marked: $count of 6"; fi
done
for kind in segment_alloc alloc; do
  lines=$(grep -c ",$kind,.*step@[^ ]*run_record.py:" "$folder/ranges.csv")
  if [ "$lines" -gt 0 ]; then ok "${kind}s_carry_the_programs_lines: $lines"; else head "$folder/ranges.csv"; fail "${kind}s_carry_the_programs_lines"; fi
done
# Every block that PyTorch counts is in the trace, allocated and freed (more are freed as the program ends).
said=$(sed -n 's/^blocks //p' "$folder/out") taken=$(grep -c ',alloc,' "$folder/ranges.csv") given=$(grep -c ',free_completed,' "$folder/ranges.csv")
if [ "$taken" = "${said% *}" ] && [ "$given" -ge "${said#* }" ]; then ok "every_block_is_recorded: $taken"; else fail "every_block_is_recorded: PyTorch counts $said, the trace has $taken $given"; fi
finish
