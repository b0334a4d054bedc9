#!/usr/bin/env bash
# Device memory has one maker, src/device/physical.c: only it calls the driver functions that create or release physical memory.
# The hooks in src/shim pass a program's own calls on, and the probe names the step it fails at.
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
