#!/usr/bin/env bash
# Every path from a program to the driver leads to the shim, and through it to the right function.
. "$(dirname "$0")/lib.bash"
reach=$programs/path
shim_name=libstowage-shim.so

# Functions that only return a number may be called with any arguments; the working ones of the stand-in are left out.
export STANDIN_NAMES=$source_dir/src/shim/driver-symbols.txt STANDIN_REAL
STANDIN_REAL=" $(sed -nE 's/^CALL (cu[A-Za-z0-9_]+)\(.*/\1/p' "$source_dir"/tests/standin/*.c | tr '\n' ' '; sed -nE 's/^DRIVER\(([A-Za-z0-9_]+),[^(]* HOOK,.*/\1/p' "$source_dir/src/device/driver.def" | tr '\n' ' ') "
for way in dlopen alias default; do
  out=$(stowage_run -- "$reach" "$way" names); code=$?
  arrived=$(sed -nE 's/^([0-9]+) arrived.*/\1/p' <<< "$out")
  if [ $code = 0 ] && [ "${arrived:-0}" -gt 400 ]; then ok "every_stub_carries_its_call_by_$way: $out"; else echo "$out"; fail "every_stub_carries_its_call_by_$way"; fi
done
# Also with a gate that all device work passes.
out=$(PATH_ASKS=1 stowage_run --spill 64M -- "$reach" dlopen names 2> /dev/null); code=$?
if [ $code = 0 ] && [ "$(sed -nE 's/^([0-9]+) arrived.*/\1/p' <<< "$out")" = "$arrived" ]; then ok "every_stub_carries_its_call_through_the_gate: $out"; else echo "$out"; fail every_stub_carries_its_call_through_the_gate; fi

for way in dlopen alias default next proc1 proc2; do
  same "the_resolver_is_ours_by_$way" "cuGetProcAddress_v2 $shim_name" stowage_run -- "$reach" "$way" where cuGetProcAddress_v2
done
same a_linked_program_is_reached "cuInit $shim_name
cuMemAlloc_v2 $shim_name" stowage_run -- "$programs/path_linked" linked where cuInit cuMemAlloc_v2
same a_function_without_a_hook_is_the_drivers_own "cuCtxSynchronize libcuda.so.1" stowage_run -- "$reach" proc2 where cuCtxSynchronize
same an_unknown_name_is_not_found "cuNoSuchThing none" stowage_run -- "$reach" proc2 where cuNoSuchThing

# The driver's path leads to the shim as well, under every name that the file may have; other libraries are not affected.
mkdir -p "$folder/driver/stubs" "$folder/deep"
ln -s "$standin" "$folder/driver/libcuda.so.580.95.05"; ln -s libcuda.so.580.95.05 "$folder/driver/libcuda.so.1"; ln -s libcuda.so.1 "$folder/driver/libcuda.so"
cp "$standin" "$folder/driver/stubs/libcuda.so"
for file in "$standin" "$folder"/driver/libcuda.so{,.1,.580.95.05} "$folder/driver/../driver/libcuda.so.1"; do
  same "the_driver_by_a_path_is_reached:${file##*/}" "cuInit $shim_name" stowage_run -- "$reach" "path:$file" where cuInit
done
same the_toolkits_stub_is_left_alone "cuInit libcuda.so" stowage_run -- "$reach" "path:$folder/driver/stubs/libcuda.so" where cuInit
same a_path_without_a_file_is_the_loaders_to_refuse "dlopen $folder/none/libcuda.so.1: $folder/none/libcuda.so.1: cannot open shared object file: No such file or directory" stowage_run -- "$reach" "path:$folder/none/libcuda.so.1" where cuInit
# (A sanitizer intercepts dlopen itself, so the loader then searches on behalf of the sanitizer.)
if [ -z "${SHIM_SANITIZED:-}" ]; then same a_librarys_own_search_path_is_kept found stowage_run -- "$reach" default runpath "$programs/libopener.so"; fi
if has python3; then
  # The library that watches host memory, built with a sanitizer, cannot be loaded late into a Python without one.
  plain=(); [ -z "${SHIM_SANITIZED:-}" ] || plain=(env LD_PRELOAD="$shim")
  same python_by_path_is_reached "$((100 * M))" stowage_run --quiet --vram-limit 100M -- "${plain[@]}" python3 -c "
import ctypes
c = ctypes.CDLL('$folder/driver/libcuda.so.1'); n = ctypes.c_size_t()
assert c.cuInit(0) == 0 and c.cuDeviceTotalMem_v2(ctypes.byref(n), 0) == 0
print(n.value)" 2> /dev/null
fi

# Every path, for the legacy default stream and for per-thread streams, with drivers of three ages. Sixty of a hundred MiB are
# allocated in both ways, and counted.
left=$((40 * M)) left_async=$((36 * M)) total=$((100 * M))
for version in 11.8 12.4 13.0; do
  driver=$build/tests/standin/$version/libcuda.so.1
  [ $version = 13.0 ] && driver=$standin
  export STOWAGE_LIBCUDA=$driver
  for way in dlopen alias default next "path:$driver" proc1 proc2; do
    for streams in "" +pt; do
      out=$(stowage_run --vram-limit 100M -- "$reach" "$way$streams" alloc $((60 * M)) 2> /dev/null; stowage_run --vram-limit 100M -- "$reach" "$way$streams" async $((60 * M)) 2> /dev/null)
      name="CUDA_${version}_by_${way%%:*}$streams"
      if [ "$out" = "code 0 free $left total $total
code 0 free $left_async total $total" ]; then ok "$name"; else echo "$out"; fail "$name"; fi
    done
  done
  # Of the forms of a function, the resolver returns the hook of exactly the right one.
  for way in proc1 proc2; do
    same "CUDA_${version}_${way}_answers_for_legacy_streams" "cuMemAllocAsync $shim_name
cuStreamBeginCapture_v2 $shim_name" stowage_run -- "$reach" "$way" which cuMemAllocAsync cuStreamBeginCapture
    same "CUDA_${version}_${way}_answers_for_per_thread_streams" "cuMemAllocAsync_ptsz $shim_name
cuStreamBeginCapture_v2_ptsz $shim_name" stowage_run -- "$reach" "$way+pt" which cuMemAllocAsync cuStreamBeginCapture
  done
done
# STOWAGE_DRIVER_LEVEL hides functions from Stowage's own calls, never from the program.
export STOWAGE_DRIVER_LEVEL=11.0
same a_hidden_function_is_still_the_programs "cuDeviceGetMemPool libcuda.so.1" stowage_run -- "$reach" proc2 where cuDeviceGetMemPool
same a_hook_of_a_hidden_function_still_answers "cuMemAllocAsync $shim_name" stowage_run -- "$reach" proc2 which cuMemAllocAsync
unset STOWAGE_DRIVER_LEVEL
same a_form_that_is_newer_than_ours_is_the_drivers "cuMemRelease_v9 libcuda.so.1" stowage_run -- "$reach" proc-new which cuMemRelease
old=$build/tests/standin/11.8/libcuda.so.1
# A driver from before CUDA 12 has no second resolver; callers that find ours must be served by the first.
export STOWAGE_LIBCUDA=$old
same an_old_drivers_resolver_serves_the_new_form "cuCtxSynchronize libcuda.so.1" stowage_run -- "$reach" proc2 where cuCtxSynchronize
same what_an_old_driver_lacks_is_not_found "cuLibraryLoadData none" stowage_run -- "$reach" proc2 where cuLibraryLoadData
export STOWAGE_LIBCUDA=$standin
same a_linked_program_works_under_the_shim "code 0 free 1069547520 total 1073741824" stowage_run -- "$programs/path_linked" linked alloc 4194304

# The shim alone, without a driver: returns the driver's own error for that.
same no_driver_is_reported_as_no_device "code 100 free 0 total 0" env STOWAGE_LIBCUDA=/nonexistent LD_PRELOAD="$shim" "$reach" dlopen alloc 4096
same where_there_is_no_driver_only_host_memory_is_watched "$build/libstowage-host.so" env STOWAGE_LIBCUDA=/nonexistent "$stowage" run -- printenv LD_PRELOAD

# Threads that all make the first call, and a fork among them: no deadlock. A sanitizer takes its own lock in dlopen, which the
# child of a fork may find taken: with a sanitizer the threads run without a fork.
if [ -z "${SHIM_SANITIZED:-}" ]; then word=race expected="16 threads, child 0"; else word=together expected="16 threads"; fi
for turn in 1 2 3 4 5 6 7 8; do
  out=$(stowage_run --quiet -- "$reach" default "$word" 2>&1)
  [ "$out" = "$expected" ] || break
done
if [ "$out" = "$expected" ]; then ok "threads_and_forks_at_the_first_call:$word"; else echo "$out"; fail "threads_and_forks_at_the_first_call:$word"; fi

# A library that is being loaded holds the loader's lock while it starts, and may call us while another thread does so too.
for call in init resolve alloc; do
  same "a_library_that_calls_as_it_is_loaded:$call" "2 of 2" stowage_run -- "$programs/loading" "$programs/libloaded.so" $call
done
same threads_that_start_while_others_look_up 'code 0, 5344 found' stowage_run -- "$reach" default storm
same closing_the_library_as_often_as_opening_it 100 stowage_run -- "$reach" dlopen close
same vfork_and_exec "code 0 free 1069547520 total 1073741824
code 0 free 1069547520 total 1073741824
code 0 free 1069547520 total 1073741824" stowage_run -- "$reach" default vfork 4194304

# Killed inside any driver call: what the process held or was about to allocate stops counting. (The last request is for pages of
# another size: earlier kept pages are released for it.) A free waits for an event of the context; drivers before CUDA 12.5 have
# none, so there the free waits for the whole context.
for driver in "$standin" "$build/tests/standin/12.4/libcuda.so.1"; do
  waits=(cuEventQuery cuCtxRecordEvent) of=
  nm -D --defined-only "$driver" | grep_all ' cuCtxRecordEvent$' || waits=(cuCtxSynchronize)
  [ "$driver" = "$standin" ] || of=_of_CUDA_12.4
  for call in cuMemAlloc_v2 cuMemFree_v2 cuMemCreate:2 cuMemMap cuMemSetAccess cuMemUnmap cuMemRelease cuMemGetInfo_v2 "${waits[@]}" cuMemAddressReserve cuDevicePrimaryCtxRetain:2; do
    name=${call%:*} nth=1; [ "$name" = "$call" ] || nth=${call#*:}
    out=$(STOWAGE_LIBCUDA=$driver stowage_run --vram-limit 100M -- bash -c "
      STANDIN_FAIL=$name:-9:$nth '$holder' alloc:$((20 * M)) page:$((60 * M)) info free unpage page:$((100 * M)) > /dev/null 2>&1
      how=\$?
      '$holder' alloc:$((100 * M)); echo \$how" 2> /dev/null)
    case $name in cuMemAlloc_v2 | cuMemFree_v2) want=0 ;; *) want=137 ;; esac # the heap serves plain requests
    if [ "$out" = "alloc:$((100 * M)) 0
$want" ]; then ok "killed_in_$name$of"; else echo "$out"; fail "killed_in_$name$of"; fi
  done
done

# Another interposer, in both orders: neither misses a call.
rival=$programs/librival.so
same a_rival_behind_us_works "code 0 free 1069547520 total 1073741824" env LD_PRELOAD="$rival" "$stowage" run -- "$reach" default alloc 4194304
same a_rival_before_us_works "code 0 free 1069547520 total 1073741824" env LD_PRELOAD="$rival:$shim" "$reach" default alloc 4194304
finish
