#!/usr/bin/env bash
# Every road a program takes to the driver leads to the shim, and through it to the right function.
. "$(dirname "$0")/lib.bash"
road=$programs/road
shim_name=libstowage-shim.so

# What only answers may be called with any words; the rest of the stand-in works, and is left out there.
export STANDIN_NAMES=$source_dir/src/shim/driver-symbols.txt STANDIN_REAL
STANDIN_REAL=" $(sed -nE 's/^CALL (cu[A-Za-z0-9_]+)\(.*/\1/p' "$source_dir"/tests/standin/*.c | tr '\n' ' '; sed -nE 's/^HOOK\(([A-Za-z0-9_]+),.*/\1/p' "$source_dir/src/shim/hooks.def" | tr '\n' ' ') "
for way in dlopen alias default; do
  out=$(beneath -- "$road" "$way" names); code=$?
  arrived=$(sed -nE 's/^([0-9]+) arrived.*/\1/p' <<< "$out")
  if [ $code = 0 ] && [ "${arrived:-0}" -gt 400 ]; then ok "every_stub_carries_its_call_by_$way: $out"; else echo "$out"; fail "every_stub_carries_its_call_by_$way"; fi
done

for way in dlopen alias default next proc1 proc2; do
  same "the_resolver_is_ours_by_$way" "cuGetProcAddress_v2 $shim_name" beneath -- "$road" "$way" where cuGetProcAddress_v2
done
same a_linked_program_is_reached "cuInit $shim_name
cuMemAlloc_v2 $shim_name" beneath -- "$programs/road_linked" linked where cuInit cuMemAlloc_v2
same a_function_without_a_hook_is_the_drivers_own "cuCtxSynchronize libcuda.so.1" beneath -- "$road" proc2 where cuCtxSynchronize
same the_driver_by_its_path_is_not_reached "cuInit libcuda.so.1" beneath -- "$road" path where cuInit
same an_unknown_name_is_not_found "cuNoSuchThing none" beneath -- "$road" proc2 where cuNoSuchThing

# A driver from before CUDA 12 has no second resolver; whoever finds ours must be served by the first.
old=$build/tests/standin/old/libcuda.so.1
same an_old_drivers_resolver_serves_the_new_form "cuCtxSynchronize libcuda.so.1" env STOWAGE_LIBCUDA="$old" "$stowage" run -- "$road" proc2 where cuCtxSynchronize
same a_working_driver_works_beneath "code 0 free 1069547520 total 1073741824" beneath -- "$road" dlopen alloc 4194304
same a_linked_program_works_beneath "code 0 free 1069547520 total 1073741824" beneath -- "$programs/road_linked" linked alloc 4194304
same an_old_driver_works_beneath "code 0 free 1069547520 total 1073741824" env STOWAGE_LIBCUDA="$old" "$stowage" run -- "$road" proc2 alloc 4194304

# The shim by itself, before a driver that is not there: the driver's own words for that.
same no_driver_is_told_as_no_device "code 100 free 0 total 0" env STOWAGE_LIBCUDA=/nonexistent LD_PRELOAD="$shim" "$road" dlopen alloc 4096
same where_there_is_no_driver_nothing_is_preloaded "" env STOWAGE_LIBCUDA=/nonexistent "$stowage" run -- printenv LD_PRELOAD

# Threads that all call first, and a fork among them: none waits for another for ever.
for turn in 1 2 3 4 5 6 7 8; do
  out=$(beneath -- "$road" default race 2>&1)
  [ "$out" = "16 threads, child 0" ] || break
done
if [ "$out" = "16 threads, child 0" ]; then ok threads_and_forks_at_the_first_call; else echo "$out"; fail threads_and_forks_at_the_first_call; fi

# Another interposer, in both orders: neither loses a call.
rival=$programs/librival.so
same a_rival_behind_us_works "code 0 free 1069547520 total 1073741824" env LD_PRELOAD="$rival" "$stowage" run -- "$road" default alloc 4194304
same a_rival_before_us_works "code 0 free 1069547520 total 1073741824" env LD_PRELOAD="$rival:$shim" "$road" default alloc 4194304
finish
