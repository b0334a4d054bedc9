#!/usr/bin/env bash
# Spilling: when the device or the limit is full, host pages replace device pages; a caller that retries after "out of memory" is
# refused first.
. "$(dirname "$0")/lib.bash"
says pages_past_the_limit_come_from_the_host 'page 0;page 0;touch 0;unpage 0;' --vram-limit 100M --spill 200M -- page:60M page:60M touch unpage
if grep -q '60.0 MiB in vram of 100.0 MiB allowed, 60.0 MiB in host memory' "$folder/err"; then ok and_the_last_words_say_where_it_lived; else cat "$folder/err"; fail and_the_last_words_say_where_it_lived; fi
says pages_past_the_device_come_from_the_host 'page 0;page 0;touch 0;' --spill 2000M -- page:1000M page:100M touch
says the_budget_of_the_host_is_kept 'page 0;page 0;page 2;unpage 0;page 0;' --vram-limit 100M --spill 100M -- page:100M page:100M page:2M unpage page:100M
says what_was_spilled_for_a_context_ends_with_it 'context 0;alloc 0;alloc 0;info 0 free 180 total 300;uncontext 0;info 0 free 300 total 300;' --vram-limit 100M --spill 200M -- context alloc:60M alloc:60M info uncontext info
says totals_hold_what_may_be_spilled 'total 0 free 0 total 300;info 0 free 300 total 300;page 0;page 0;info 0 free 140 total 300;' --vram-limit 100M --spill 200M -- total info page:80M page:80M info
# A framework takes all the memory that it sees in one request: one page in vram and on the host, to the last byte if necessary.
says a_page_larger_than_either_is_in_both 'info 0 free 1000 total 1000;page 0;info 0 free 200 total 1000;driver 0 used 350;touch 0;unpage 0;info 0 free 1000 total 1000;driver 0 used 0;' --vram-limit 400M --spill 600M -- info page:800M info driver touch unpage info driver
says and_past_the_device 'page 0;info 0 free 224 total 1624;driver 0 used 896;touch 0;unpage 0;info 0 free 1624 total 1624;driver 0 used 0;' --spill 600M -- page:1400M info driver touch unpage info driver
says with_all_of_both 'page 0;info 0 free 0 total 1000;touch 0;alloc 2;unpage 0;info 0 free 1000 total 1000;driver 0 used 0;' --vram-limit 400M --spill 600M -- page:1000M info touch alloc:20M unpage info driver
says and_no_more_than_that 'page 2;info 0 free 1000 total 1000;driver 0 used 0;' --vram-limit 400M --spill 600M -- page:1002M info driver
# One driver call fails once: it is reported and nothing breaks; if it was not reported, the next such page can be created.
swept=0 wrong=0
for call in cuMemCreate cuMemMap cuMemUnmap cuMemSetAccess cuMemRelease; do
  for turn in 1 2 3 4; do
    out=$(STANDIN_FAIL=$call:2:$turn:once stowage_run --vram-limit 400M --spill 600M -- "$holder" page:$((800 * M)) unpage page:$((800 * M)) 2> "$folder/err"); code=$?
    swept=$((swept + 1))
    # A release that fails keeps its bytes counted: the second page must not get them.
    if [ $code != 0 ] || [ "$(wc -l <<< "$out")" != 3 ] || { [ $call != cuMemRelease ] && ! grep -q ' [1-9]' <<< "$out" && [ "$(grep -c ' 0$' <<< "$out")" != 3 ]; }; then echo "$call $turn: $code"; echo "$out"; cat "$folder/err"; wrong=$((wrong + 1)); fi
  done
done
if [ $wrong = 0 ] && [ $swept = 20 ]; then ok "a_call_that_fails_breaks_no_page_in_both: $swept runs"; else fail "a_call_that_fails_breaks_no_page_in_both: $wrong of $swept"; fi
says spill_off_is_off 'page 0;page 2;' --vram-limit 100M --spill off -- page:80M page:80M
says plain_memory_continues_in_the_host 'alloc 0;alloc 0;info 0 free 140 total 300;free 0;free 0;info 0 free 300 total 300;' --vram-limit 100M --spill 200M -- alloc:80M alloc:80M info free free info
# A block larger than either tier, as a framework that takes its whole pool requests: what fits is in vram, except for an eighth
# that is left for requests that can be nowhere else, unless the host is full.
says a_block_larger_than_vram_and_the_budget_has_both 'alloc 0;info 0 free 80 total 200;alloc 0;info 0 free 0 total 200;free 0;free 0;info 0 free 200 total 200;alloc 0;alloc 2;' --vram-limit 100M --spill 100M -- alloc:120M info alloc:80M info free free info alloc:200M alloc:1M
says what_fits_in_neither_makes_no_pages 'alloc 2;calls:cuMemCreate 0;' --vram-limit 100M --spill 100M -- alloc:202M calls:cuMemCreate
says a_large_block_is_in_vram_as_far_as_it_fits 'alloc 0;driver 0 used 84;info 0 free 200 total 500;' --vram-limit 100M --spill 400M -- alloc:300M driver info
says and_gives_it_back_to_others 'alloc 0;free 0;array 0;info 0 free 405 total 500;' --vram-limit 100M --spill 400M -- alloc:300M free array:95M info
says stream_ordered_memory_continues_in_the_host 'async 0;async 0;afree 0;afree 0;' --vram-limit 100M --spill 200M -- async:60M async:80M afree afree
STOWAGE_RETRIES=1 says and_for_a_framework_that_does_not_ask_again_there 'async 0;async 0;afree 0;' --vram-limit 100M --spill 200M -- async:60M async:80M afree
export STANDIN_HOLES=1
says a_pool_that_grew_past_the_limit_shrinks_again 'async 0;async 0;async 0;async 0;info 0 free 66 total 100;async 2;' --vram-limit 100M -- async:20M async:10M async:2M async:2M info async:68M
says and_continues_in_the_host 'async 0;async 0;async 0;async 0;async 0;info 0 free 198 total 300;' --vram-limit 100M --spill 200M -- async:20M async:10M async:2M async:2M async:68M info
unset STANDIN_HOLES
stowage_run --vram-limit 100M --spill 200M -- sh -c "'$holder' xpool xasync:$((60 * M)) xasync:$((80 * M)); exit 1" > "$folder/out" 2> "$folder/err"
if [ "$(tr '\n' ';' < "$folder/out")" = "xpool 0;xasync:$((60 * M)) 0;xasync:$((80 * M)) 2;" ] && grep -q '; 64.0 MiB belongs to graphs and to pools made for sharing, ' "$folder/err"; then ok a_pool_made_for_sharing_is_not_spilled_and_this_is_reported; else cat "$folder/out" "$folder/err"; fail a_pool_made_for_sharing_is_not_spilled_and_this_is_reported; fi
stowage_run --vram-limit 10M --spill 200M -- sh -c "'$holder' array:$((20 * M)); exit 1" > "$folder/out" 2> "$folder/err"
if [ "$(cat "$folder/out")" = "array:$((20 * M)) 2" ] && grep -q '0 B of the 200.0 MiB that may be spilled; arrays and managed memory .*: raise --vram-limit' "$folder/err"; then ok an_array_is_not_spilled_and_this_is_reported; else cat "$folder/out" "$folder/err"; fail an_array_is_not_spilled_and_this_is_reported; fi
says auto_takes_what_the_host_has 'page 0;page 0;touch 0;' --vram-limit 100M --spill auto -- page:80M page:80M touch

# If the driver cannot put pages on the host, everything works as without spilling, and totals do not promise more.
export STANDIN_HOST=refuse,no-pinned XDG_CACHE_HOME=$folder/cache-none
says no_path_to_the_host_is_no_spill 'total 0 free 0 total 100;page 0;page 2;' --vram-limit 100M --spill 200M -- total page:80M page:80M
stowage_run --vram-limit 100M --spill 200M -- sh -c "'$holder' page:$((80 * M)) page:$((80 * M)); exit 1" > /dev/null 2> "$folder/err"
if grep -q -- '--spill: spilling does not work here: .' "$folder/err" && grep -q 'this driver cannot put pages on the host' "$folder/err"; then ok and_this_is_reported; else cat "$folder/err"; fail and_this_is_reported; fi
export STANDIN_HOST=no-numa XDG_CACHE_HOME=$folder/cache-host
says the_other_path_is_taken 'page 0;page 0;touch 0;' --vram-limit 100M --spill 200M -- page:80M page:80M touch
# Drivers before CUDA 12.2 crash on host pages: with them, whole allocations are pinned memory.
export XDG_CACHE_HOME=$folder/cache-old STANDIN_VERSION=12010; unset STANDIN_HOST
says an_old_driver_spills_whole_allocations 'alloc 0;alloc 0;info 0 free 140 total 300;free 0;free 0;info 0 free 300 total 300;' --vram-limit 100M --spill 200M -- alloc:80M alloc:80M info free free info
if grep -q -- '--spill: only whole allocations' "$folder/err"; then ok and_that_is_reported; else cat "$folder/err"; fail and_that_is_reported; fi
says but_no_pages 'page 0;page 2;' --vram-limit 100M --spill 200M -- page:80M page:80M
export XDG_CACHE_HOME=$folder/cache; unset STANDIN_VERSION

# A framework that retries. A request of five pages, of which the third does not fit: refused once as a whole, then served,
# two of its pages in vram and three on the host.
export STOWAGE_RETRIES=1
says a_retry_is_asked_for_first_then_served 'page 0;pages 2;pages 0;info 0 free 140 total 300;' --vram-limit 100M --spill 200M -- page:60M pages:5x20M pages:5x20M info
# Dropping the cache helped: nothing is spilled.
says a_retry_that_helps_spills_nothing 'page 0;pages 2;unpage 0;pages 0;info 0 free 200 total 300;' --vram-limit 100M --spill 200M -- page:60M pages:5x20M unpage pages:5x20M info
# It did not help: the next request is not refused again; later ones are, at growing intervals.
says a_refusal_in_vain_is_not_repeated_at_once 'page 0;page 2;page 0;page 0;page 2;page 0;page 0;page 0;page 2;' --vram-limit 100M --spill 900M -- page:90M page:20M page:20M page:20M page:20M page:20M page:20M page:20M page:20M
says nothing_is_refused_while_a_graph_is_captured 'page 0;capture 0;page 0;endcapture 0;page 2;' --vram-limit 100M --spill 200M -- page:90M capture page:20M endcapture page:20M
unset STOWAGE_RETRIES
# Only the framework's own requests are refused: another library that requests once is served at once.
export HOLDER_FRAMEWORK=$programs/libc10_cuda.so
says who_asks_once_is_never_refused_beside_a_framework 'falloc 0;falloc 2;alloc 0;falloc 0;' --vram-limit 100M --spill 200M -- falloc:90M falloc:20M alloc:20M falloc:20M
# With a limit of some size, pages leave a little vram to libraries that request plain memory, and to pages that are too small to move.
export STANDIN_VRAM=$((4096 * M))
says pages_leave_room_for_plain_memory 'page 0;page 0;alloc 0;info 0 free 984 total 3048;' --vram-limit 2048M --spill 1000M -- page:1900M page:100M alloc:64M info
if grep -q '1.9 GiB in vram of 2.0 GiB allowed, 112.0 MiB in host memory' "$folder/err"; then ok and_plain_memory_is_not_on_the_host; else cat "$folder/err"; fail and_plain_memory_is_not_on_the_host; fi
unset HOLDER_FRAMEWORK STANDIN_VRAM

# PyTorch's settings are merged, in both names, and what the user chose stays.
conf() { stowage_run --spill auto -- sh -c 'echo "$PYTORCH_ALLOC_CONF|$PYTORCH_CUDA_ALLOC_CONF"'; }
unset PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF
same expandable_segments_are_set 'expandable_segments:True|expandable_segments:True' conf
same settings_of_the_old_name_are_kept 'max_split_size_mb:64,expandable_segments:True|max_split_size_mb:64,expandable_segments:True' env PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64 "$stowage" run --spill auto -- sh -c 'echo "$PYTORCH_ALLOC_CONF|$PYTORCH_CUDA_ALLOC_CONF"'
same a_choice_against_them_is_kept 'expandable_segments:False|' env PYTORCH_ALLOC_CONF=expandable_segments:False "$stowage" run --spill auto -- sh -c 'echo "$PYTORCH_ALLOC_CONF|$PYTORCH_CUDA_ALLOC_CONF"'
same another_allocator_is_kept '|backend:cudaMallocAsync' env PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync "$stowage" run --spill auto -- sh -c 'echo "$PYTORCH_ALLOC_CONF|$PYTORCH_CUDA_ALLOC_CONF"'
same without_spill_they_are_left_alone '|' stowage_run --vram-limit 8G -- sh -c 'echo "$PYTORCH_ALLOC_CONF|$PYTORCH_CUDA_ALLOC_CONF"'
# Refused first, served then: a later failure is not about memory.
STOWAGE_RETRIES=1 stowage_run --vram-limit 100M --spill 200M -- sh -c "'$holder' page:$((80 * M)) page:$((80 * M)) page:$((80 * M)); exit 3" > "$folder/out" 2> "$folder/err"; code=$?
if [ $code = 3 ] && [ "$(grep -c ' 2$' "$folder/out")" = 1 ] && ! grep -q 'out of memory\|why:' "$folder/err"; then ok a_failure_after_all_was_served_is_not_one_of_memory; else cat "$folder/out" "$folder/err"; fail "a_failure_after_all_was_served_is_not_one_of_memory: code $code"; fi
if "$stowage" explain --last 2>&1 | grep -q 'ended with code 3; there is no sign that memory ran out'; then ok nor_is_it_explained_as_one; else "$stowage" explain --last; fail nor_is_it_explained_as_one; fi
STOWAGE_RETRIES=1 stowage_run --vram-limit 100M --spill 20M -- sh -c "'$holder' page:$((80 * M)) page:$((80 * M)) page:$((80 * M)); exit 3" > "$folder/out" 2> "$folder/err"
if grep -q 'out of memory' "$folder/err"; then ok and_one_that_was_never_served_is; else cat "$folder/out" "$folder/err"; fail and_one_that_was_never_served_is; fi

finish
