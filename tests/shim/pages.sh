#!/usr/bin/env bash
# Pages with a limit or with spilling: pages that a program releases are kept for it and reused without the driver, the limit
# stays exact, and what does not fit is on the host (mover.sh: how it moves).
. "$(dirname "$0")/lib.bash"
pager=$programs/pager
# paged NAME OUTPUT OPTIONS… -- WORDS…: compares the results of pager, each without the part after its colon.
paged() {
  local name=$1 expected=$2 options=() out; shift 2
  while [ "$1" != -- ]; do options+=("$1"); shift; done; shift
  out=$(stowage_run "${options[@]}" -- "$pager" "$@" 2> "$folder/err" | sed -E 's/^([a-z0-9]+):[^ ]+ /\1 /' | tr '\n' ';')
  if [ "$out" = "$expected" ]; then ok "$name"; else printf 'expected: %s\nis:       %s\n' "$expected" "$out"; cat "$folder/err"; fail "$name"; fi
}
limit=(--vram-limit 40M) # ten pages
spill=(--vram-limit 40M --spill 80M)

# Without a limit and without spilling every call goes to the driver.
paged without_a_limit_the_driver_does_it_all 'take 0;give 0;take 0;calls 6;calls 6;calls 2;calls 3;calls 3;' -- take:0+3 give:0+3 take:0+3 calls:cuMemCreate calls:cuMemMap calls:cuMemSetAccess calls:cuMemUnmap calls:cuMemRelease
# Without it, a program's handles are the driver's; here they are not: both work.
paged a_page_is_taken_again_without_the_driver 'take 0;fill 0;give 0;take 0;see 7 7;calls 3;calls 3;calls 1;calls 0;calls 0;' "${limit[@]}" -- take:0+3 fill:1=7 give:0+3 take:0+3 see:1 calls:cuMemCreate calls:cuMemMap calls:cuMemSetAccess calls:cuMemUnmap calls:cuMemRelease
paged what_is_kept_serves_other_addresses 'take 0;give 0;take 0;calls 10;calls 20;calls 10;where vram;where nothing;' "${limit[@]}" -- take:0+10 give:0+10 take:20+10 calls:cuMemCreate calls:cuMemMap calls:cuMemUnmap where:29 where:0
paged the_limit_is_kept_to_the_page 'take 0;take 2;give 0;take 0;take 2;info 0 free 0 total 40;' "${limit[@]}" -- take:0+10 take:10+1 give:3+1 take:10+1 take:11+1 info
paged a_refused_request_leaves_nothing 'take 0;take 2;take 0;info 0 free 0 total 40;' "${limit[@]}" -- take:0+6 take:10+5 take:10+4 info
paged what_is_kept_is_told_as_free 'take 0;info 0 free 0 total 40;give 0;info 0 free 40 total 40;' "${limit[@]}" -- take:0+10 info give:0+10 info
paged plain_memory_takes_what_is_kept 'take 0;give 0;plain 0;info 0 free 0 total 40;take 2;' "${limit[@]}" -- take:0+10 give:0+10 plain:41943040 info take:0+1
PAGER_BYTES=8388608 paged pages_of_another_size 'take 0;info 0 free 8 total 40;' "${limit[@]}" -- take:0+4 info
STANDIN_VRAM=67108864 paged what_is_kept_goes_to_a_device_that_is_full 'take 0;trim 0;give 0;trim 0;plain 0;' --spill 80M -- take:0+15 trim:1 give:0+15 trim:2 plain:33554432
if grep -q ', 0 B in host memory' "$folder/err"; then ok and_nothing_went_to_the_host; else cat "$folder/err"; fail and_nothing_went_to_the_host; fi

# Handles and mappings, in both orders.
paged a_handle_outlives_its_mapping 'make 0;map 0;grant 0;fill 0;unmap 0;map 0;grant 0;see 5 5;unmap 0;drop 0;' "${limit[@]}" -- make:0 map:0@0 grant:0+1 fill:0=5 unmap:0+1 map:0@7 grant:7+1 see:7 unmap:7+1 drop:0
paged a_mapping_outlives_its_handle 'make 0;map 0;grant 0;drop 0;fill 0;see 6 6;unmap 0;info 0 free 40 total 40;' "${limit[@]}" -- make:0 map:0@0 grant:0+1 drop:0 fill:0=6 see:0 unmap:0+1 info
paged several_pages_are_unmapped_at_once 'take 0;unmap 0;unmap 1;unmap 0;see 0 0;' "${limit[@]}" -- take:0+4 unmap:0+2 unmap:1+1 unmap:2+1 see:3
paged another_handle_of_what_is_mapped 'take 0;fill 0;retain 0;give 0;map 0;grant 0;see 8 8;' "${limit[@]}" -- take:0+2 fill:1=8 retain:1\>9 give:0+2 map:9@5 grant:5+1 see:5
paged one_page_at_two_addresses 'make 0;map 0;map 0;grant 0;grant 0;fill 0;see 9 9;unmap 0;unmap 0;drop 0;calls 1;' "${limit[@]}" -- make:0 map:0@0 map:0@1 grant:0+1 grant:1+1 fill:0=9 see:1 unmap:0+1 unmap:1+1 drop:0 calls:cuMemRelease
PAGER_EXPORTS=1 paged an_exported_page_is_the_drivers_and_is_not_kept 'make 0;export 0;map 0;grant 0;unmap 0;drop 0;calls 1;' "${limit[@]}" -- make:0 export:0 map:0@0 grant:0+1 unmap:0+1 drop:0 calls:cuMemRelease
STANDIN_DEVICES=2 paged a_page_granted_to_another_device_is_not_kept 'make 0;map 0;grant 0;grant2 0;unmap 0;drop 0;calls 1;' "${limit[@]}" -- make:0 map:0@0 grant:0+1 grant2:0+1 unmap:0+1 drop:0 calls:cuMemRelease
paged a_range_that_is_none_is_the_drivers_to_refuse 'take 0;grant 1;see 0 0;' "${limit[@]}" -- take:0+1 grant:0+4398046511103 see:0
paged its_properties_are_what_was_asked_for 'make 0;prop 0;drop 0;prop 1;drop 1;map 1;' "${limit[@]}" -- make:0 prop:0 drop:0 prop:0 drop:0 map:0@0
paged a_range_is_given_up_with_all_that_is_kept_there 'take 0;give 0;leave 0;calls 3;' "${limit[@]}" -- take:0+3 give:0+3 leave calls:cuMemUnmap
paged a_child_of_fork_starts_anew 'take 0;take 0;fill 0;see 3 3;give 0;' "${limit[@]}" -- take:0+3 fork take:0+3 fill:0=3 see:0 give:0+3

# Spilling: what does not fit is on the host; what was released because of that comes back to vram.
paged what_is_too_much_is_on_the_host 'take 0;take 0;where vram;where host;fill 0;see 4 4;' "${spill[@]}" -- take:0+10 take:10+5 where:9 where:10 fill:10=4 see:10
paged and_is_told_as_the_devices 'take 0;take 0;type 2 -2 2 -2;type 2 0 2 0;' "${spill[@]}" -- take:0+10 take:10+5 type:9 type:10
paged the_next_step_has_vram_first 'take 0;trim 1;trim 0;give 0;trim 0;take 0;where vram;where vram;trim 0;' "${spill[@]}" -- take:0+15 trim:0 trim:1 give:0+15 trim:2 take:8+10 where:8 where:17 trim:0
paged without_the_gate_it_does_too 'take 0;take 0;trim 0;give 0;trim 0;take 0;where vram;' "${spill[@]}" -- take:0+10 take:10+5 trim:1 give:0+15 trim:2 take:8+10 where:17
paged without_a_limit_only_what_was_asked_back_is_kept 'take 0;give 0;calls 3;take 0;trim 0;give 0;trim 0;calls 0;' --spill 80M -- take:0+3 give:0+3 calls:cuMemRelease take:0+3 trim:1 give:0+3 trim:2 calls:cuMemRelease
paged nothing_is_asked_back_while_a_graph_is_captured 'take 0;trim 1;capture 0;trim 0;endother 401;trim 0;endcapture 0;trim 1;' "${spill[@]}" -- take:0+15 trim:0 capture trim:0 endother trim:0 endcapture trim:0

# More page sizes than classes, one after another: the last can go to the host like the first.
sizes=(); for i in {1..150}; do sizes+=("page:$((2 * i * M))" unpage); done
served=$(stowage_run --vram-limit 300M --spill 400M -- "$holder" "${sizes[@]}" "page:$((298 * M))" "page:$((88 * M))" 2> "$folder/err" | grep -c '^page.* 0$')
if [ "$served" = 152 ]; then ok pages_of_many_sizes; else echo "$served of 152"; cat "$folder/err"; fail pages_of_many_sizes; fi

# Each driver call fails once, at each turn: the program gets an error or success, and never sees wrong bytes. A third of these
# programs run under a sanitizer.
share=1 least=70
[ -z "${SHIM_SANITIZED:-}" ] || share=3 least=25
words=(take:0+2 fill:0=1 fill:1=2 trim:1 trim:2 take:2+8 fill:2=3 fill:3=4 fill:9=5 take:10+3 where:0 where:2 where:12 see:0 see:2 see:3 see:9)
drawn=0
want=$'see:0 1 1\nsee:2 3 3\nsee:3 4 4\nsee:9 5 5' swept=0 wrong=0
for call in cuMemCreate cuMemMap cuMemUnmap cuMemSetAccess cuMemRelease cuMemAddressReserve; do
  for turn in 2 3 4 5 8 11 12 13 14 15 16 18 21; do
    drawn=$((drawn + 1))
    [ $((drawn % share)) = 0 ] || continue
    out=$(STANDIN_FAIL=$call:2:$turn:once timeout -k 2 200 "$stowage" run "${spill[@]}" -- "$pager" "${words[@]}" give:10+3 trim:1 give:2+8 trim:2 take:2+8 2> "$folder/err"); code=$?
    # A request that failed leaves its pages unmapped, and they cannot be read: only successful ones are checked.
    failed=$(grep -cE '^(take|fill)[^ ]* [1-9]' <<< "$out")
    swept=$((swept + 1))
    if [ "$failed" = 0 ] && { [ $code != 0 ] || [ "$(grep '^see' <<< "$out")" != "$want" ]; }; then echo "$call $turn: code $code"; echo "$out"; cat "$folder/err"; wrong=$((wrong + 1)); fi
    if [ $code = 124 ] || [ $code = 137 ]; then echo "$call $turn hangs"; wrong=$((wrong + 1)); fi
  done
done
if [ $wrong = 0 ] && [ $swept -gt $least ]; then ok "a_call_that_fails_costs_no_bytes: $swept runs"; else fail "a_call_that_fails_costs_no_bytes: $wrong of $swept"; fi

# Two processes: what one keeps is available to the other, and killed processes leave nothing.
out=$(stowage_run "${limit[@]}" -- bash -c "
  coproc one { exec '$holder' page:$((20 * M)) say:held read; }
  read -r a <&\"\${one[0]}\"; read -r b <&\"\${one[0]}\"
  '$pager' take:0+5 take:5+1 give:0+5 calls:cuMemRelease
  kill -KILL \$one_PID; wait \$one_PID 2> /dev/null
  '$pager' take:0+10" 2> "$folder/err" | tr '\n' ';')
expected="take:0+5 0;take:5+1 2;give:0+5 0;calls:cuMemRelease 5;take:0+10 0;"
if [ "$out" = "$expected" ]; then ok nothing_is_kept_from_others_of_a_run; else echo "$out"; cat "$folder/err"; fail nothing_is_kept_from_others_of_a_run; fi
finish
