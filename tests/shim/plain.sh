#!/usr/bin/env bash
# Plain requests from the heap: freed memory is reused only after every stream has passed the free, attributes of addresses are
# those that the driver would return, and a process that shares memory with others gets the driver's own blocks.
. "$(dirname "$0")/lib.bash"
pairs() { local i out=(); for ((i = 0; i < $1; i++)); do out+=("alloc:$2" free); done; echo "${out[@]}"; }

says without_an_option_the_driver_serves 'alloc 0;free 0;calls:cuMemAlloc_v2 1;calls:cuMemCreate 0;' -- alloc:4M free calls:cuMemAlloc_v2 calls:cuMemCreate
says fast_malloc_is_the_heap 'alloc 0;free 0;calls:cuMemAlloc_v2 0;' --fast-malloc -- alloc:4M free calls:cuMemAlloc_v2
says so_is_a_limit 'alloc 0;free 0;calls:cuMemAlloc_v2 0;' --vram-limit 100M -- alloc:4M free calls:cuMemAlloc_v2
says and_spill 'alloc 0;free 0;calls:cuMemAlloc_v2 0;' --spill 100M -- alloc:4M free calls:cuMemAlloc_v2
export STOWAGE_RETRIES=1
says a_framework_with_a_cache_of_its_own_keeps_the_drivers_blocks 'alloc 0;calls:cuMemAlloc_v2 1;' --vram-limit 100M -- alloc:4M calls:cuMemAlloc_v2
says unless_fast_malloc_is_asked_for 'alloc 0;calls:cuMemAlloc_v2 0;' --vram-limit 100M --fast-malloc -- alloc:4M calls:cuMemAlloc_v2
unset STOWAGE_RETRIES

says a_freed_block_is_used_again 'alloc 0;free 0;again 0 same;' --vram-limit 100M -- alloc:4M free again:4M
says not_while_a_stream_may_use_it 'alloc 0;free 0;again 0 other;calls:cuMemCreate 4;free 0;alloc 0;alloc 0;calls:cuMemCreate 4;' --vram-limit 100M -- alloc:4M busy free again:4M calls:cuMemCreate idle free alloc:4M alloc:4M calls:cuMemCreate
says a_full_limit_waits_for_it 'alloc 0;free 0;again 0 same;' --vram-limit 100M -- alloc:100M free again:100M
says the_figures_count_it_as_free 'alloc 0;free 0;info 0 free 100 total 100;' --vram-limit 100M -- alloc:60M free info
says with_fast_malloc_too 'alloc 0;free 0;info 0 free 1024 total 1024;' --fast-malloc -- alloc:60M free info
says freed_twice_is_refused 'alloc 0;free 0;double 1;alloc 0;poke 0;free 0;' --fast-malloc -- alloc:4M free double alloc:4M poke:4M free
says pages_get_what_the_heap_holds_idle 'alloc 0;free 0;page 0;' --vram-limit 100M -- alloc:60M free page:100M
says and_past_a_full_device 'alloc 0;free 0;page 0;' --fast-malloc -- alloc:600M free page:1000M
says a_context_that_ends_takes_the_heap_with_it 'alloc 0;reset 0;info 0 free 1024 total 1024;alloc 0;' --fast-malloc -- alloc:60M reset info alloc:1000M
says pitched_rows_are_of_the_heap_too 'pitch 0;free 0;calls:cuMemAllocPitch_v2 0;' --fast-malloc -- pitch:4M free calls:cuMemAllocPitch_v2
says nothing_is_asked_while_a_graph_is_captured 'capture 0;alloc 0;free 0;alloc 0;free 0;calls:cuCtxRecordEvent 0;calls:cuEventQuery 0;endcapture 0;' --vram-limit 100M -- capture alloc:4M free alloc:4M free calls:cuCtxRecordEvent calls:cuEventQuery endcapture

# Many pairs create a few pages and query streams only from time to time.
out=$(stowage_run --fast-malloc -- "$holder" $(pairs 500 $((2 * M))) calls:cuMemCreate calls:cuCtxRecordEvent 2>&1 | without_peak | tail -n 2 | tr '\n' ' ')
if [[ $out =~ ^calls:cuMemCreate\ ([0-9]+)\ calls:cuCtxRecordEvent\ ([0-9]+)\ $ ]] && [ "${BASH_REMATCH[1]}" -le 40 ] && [ "${BASH_REMATCH[2]}" -le 40 ]; then
  ok "five_hundred_pairs_make_few_calls: $out"
else
  echo "$out"; fail five_hundred_pairs_make_few_calls
fi

# Several threads, with streams that are busy and idle in turn: no block is given to two, and none is lost.
for options in --fast-malloc "--vram-limit 200M" "--vram-limit 100M --spill 400M" "--vram-limit 64M --spill 64M --fast-malloc"; do
  out=$(stowage_run $options -- "$programs/churn" 4 1500 2> /dev/null)
  if [[ $out =~ ^[0-9]{4}\ taken,\ [0-9]+\ refused,\ 0\ wrong$ ]]; then ok "threads_at_once $options: $out"; else echo "$out"; fail "threads_at_once $options"; fi
done
# A device that has room for everything: streams that stay busy while this machine is loaded keep all that is freed.
out=$(STANDIN_DEVICES=2 STANDIN_VRAM=$((16384 * M)) stowage_run --fast-malloc -- "$programs/churn" 4 1500 ends 2> /dev/null)
if [[ $out =~ ^[0-9]{4}\ taken,\ 0\ refused,\ 0\ wrong$ ]]; then ok "while_another_devices_context_ends: $out"; else echo "$out"; fail while_another_devices_context_ends; fi

# Attributes of addresses.
says a_block_is_reported_as_the_drivers_would_be 'alloc 0;alloc 0;range 0 0 base 1 bytes 5242881 type 2 device 0 start 1 size 5242881 aligned 1;' --fast-malloc -- alloc:3M alloc:5242881 range:5242880
says on_the_host_too 'alloc 0;alloc 0;range 0 0 base 1 bytes 62914560 type 2 device 0 start 1 size 62914560 aligned 1;poke 0;' --vram-limit 100M --spill 200M -- alloc:80M alloc:60M range:1M poke:60M
says small_blocks_are_aligned_alike 'alloc 0;alloc 0;range 0 0 base 1 bytes 3 type 2 device 0 start 1 size 3 aligned 1;' --fast-malloc -- alloc:1 alloc:3 range:2

# Sharing memory.
says sharing_memory_ends_it 'alloc 0;ipc 1;alloc 0;ipc 0;calls:cuMemAlloc_v2 1;free 0;free 0;' --fast-malloc -- alloc:4M ipc alloc:4M ipc calls:cuMemAlloc_v2 free free
export WORLD_SIZE=2
says one_process_of_many_keeps_the_drivers_blocks 'alloc 0;ipc 0;calls:cuMemAlloc_v2 1;' --fast-malloc -- alloc:4M ipc calls:cuMemAlloc_v2
unset WORLD_SIZE

# Drivers without events on contexts, and without pages.
export STANDIN_VERSION=12040
says an_older_driver_is_waited_for 'alloc 0;free 0;again 0 same;' --vram-limit 100M -- alloc:4M free again:4M
unset STANDIN_VERSION
export STANDIN_NO_VMM=1
says a_driver_without_pages_serves_itself 'alloc 0;free 0;calls:cuMemAlloc_v2 1;' --fast-malloc -- alloc:4M free calls:cuMemAlloc_v2
unset STANDIN_NO_VMM
finish
