#!/usr/bin/env bash
# Plain memory from the heap on a GPU: data that a stream still writes never reaches the next block, pairs are fast, NVML reports
# the limited figures, and starting is cheap.
. "$(dirname "$0")/run_lib.bash"
need ctypes plain_memory
bench=$build/bench/gpu_malloc_bench
holder=$build/tests/shim/holder
for options in --fast-malloc "--vram-limit 8G" "--vram-limit 8G --spill 4G --fast-malloc"; do
  out=$(timeout 60 "$stowage" run $options -- "$bench" check 2> /dev/null)
  if [ "$out" = "check 200 wrong 0" ]; then ok "freed_memory_in_use_is_not_given_out: $options"; else echo "$out"; fail "freed_memory_in_use_is_not_given_out: $options"; fi
done
out=$(timeout 120 "$bench"); echo "$out"
for bytes in 2097152 67108864; do
  ratio=$(sed -nE "s/^case=gpu_plain_pair_idle_$bytes .* ratio=([0-9.]+) .*/\\1/p" <<< "$out")
  if awk -v r="${ratio:-0}" 'BEGIN { exit !(r >= 50) }'; then ok "pairs_of_${bytes}_bytes: $ratio times as fast as bare"; else fail "pairs_of_${bytes}_bytes: $ratio times as fast as bare"; fi
done
out=$(timeout 60 "$stowage" run --vram-limit 8G --spill 4G -- "$holder" info nvml alloc:$((1 << 30)) page:$((1 << 30)) info nvml 2> /dev/null)
same=$(awk '/^info/ { free = $4; total = $6 } /^nvml/ { d = $12 - (total - free); good += $6 == total && $7 == total && $9 == free && $10 == free && d * d <= 1 } END { print good }' <<< "$out")
if [ "$same" = 2 ] && grep -q 'total 12288' <<< "$out"; then ok "nvml_reports_what_the_driver_reports"; else echo "$out"; fail nvml_reports_what_the_driver_reports; fi
# Host pages are not device memory: the driver's own figure does not change.
out=$(timeout 60 "$stowage" run --vram-limit 4G --spill 4G -- "$holder" alloc:$((3 << 30)) driver alloc:$((2 << 30)) driver 2> /dev/null | sed -nE 's/^driver 0 used //p' | tr '\n' ' ')
if awk '{ d = $2 - $1; exit !(NF == 2 && d < 64 && d > -64) }' <<< "$out"; then ok "spilled_blocks_take_no_vram: the driver says $out MiB"; else fail "spilled_blocks_take_no_vram: the driver says $out MiB"; fi
# Arrays of several formats: the count equals what the driver uses.
forms=(1x1 2x4 32x4 16x2 197x4 203x4 194x4 145x4 151x1 153x2 157x4 80x4) words=()
for form in "${forms[@]}"; do words+=(info driver "texels:$form" info driver arrayfree); done
out=$(timeout 60 "$stowage" run --vram-limit 8G -- "$holder" texels:1x1 arrayfree "${words[@]}" 2> /dev/null)
same=$(awk '/^info/ { counted[n % 2] = $6 - $4 } /^driver/ { used[n++ % 2] = $4 } /^arrayfree/ && n > 0 { d = counted[1] - counted[0] - (used[1] - used[0]); good += used[1] > used[0] && d * d <= 1 } END { print good }' <<< "$out")
if [ "$same" = "${#forms[@]}" ]; then ok "arrays_count_as_the_driver_takes_them: $same formats"; else echo "$out"; fail "arrays_count_as_the_driver_takes_them: $same of ${#forms[@]} formats"; fi
"$build/bench/start_bench" | tee "$folder/start"
added() { sed -nE "s/^case=$1 .* added_median=([-0-9.]+) .*/\\1/p" "$folder/start"; }
for pair in start_without_cuda:3 start_without_cuda_limited:3 start_with_cuda:30 start_with_cuda_limited:30; do
  ms=$(added "${pair%:*}")
  if awk -v m="${ms:-999}" -v most="${pair#*:}" 'BEGIN { exit !(m <= most) }'; then ok "${pair%:*}: $ms ms more"; else fail "${pair%:*}: $ms ms more, ${pair#*:} are allowed"; fi
done
finish
