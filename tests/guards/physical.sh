#!/usr/bin/env bash
# Only src/device/physical.c creates and releases device memory: no other file calls those driver functions. The hooks in
# src/shim forward a program's own calls, and the probe only names the step that failed.
. "$(dirname "$0")/lib.bash"
cd "$source_dir" || exit 1
functions='cuMemCreate|cuMemRelease|cuMemAlloc_v2|cuMemAllocPitch_v2|cuMemAllocManaged|cuMemFree_v2|cuMemHostAlloc|cuMemAllocHost_v2|cuMemFreeHost'
makers() { # ROOT
  (cd "$1" && grep -rnE "(->|[.])($functions)\b|\bREAL\(($functions)\)|\bSYMBOL_($functions)\b" src --include='*.c' --include='*.h' |
    grep -vE '^src/device/physical\.c:|^src/shim/hooks_(plain|page)\.c:.*REAL\(|^src/device/cuda_probe_child\.c:.*(cuMemHostAlloc|cuMemFreeHost)')
}
name=physical_memory_has_one_maker
out=$(makers "$source_dir")
if [ -z "$out" ]; then ok "$name"; else echo "$out"; fail "$name"; fi

mkdir -p "$folder/tree/src/shim"
echo 'cu_result code = shim_driver()->cuMemCreate(&handle, bytes, &prop, 0);' > "$folder/tree/src/shim/page.c"
if [ -n "$(makers "$folder/tree")" ]; then ok a_second_maker_is_caught; else fail a_second_maker_is_caught; fi
echo 'cu_result code = REAL(cuMemFree_v2)(addr);' > "$folder/tree/src/shim/page.c"
if [ -n "$(makers "$folder/tree")" ]; then ok a_second_maker_by_a_hook_is_caught; else fail a_second_maker_by_a_hook_is_caught; fi
finish
