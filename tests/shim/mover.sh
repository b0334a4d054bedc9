#!/usr/bin/env bash
# Moving pages: programs drawn from seeds (mover.c) on a stand-in whose streams run beside each other and whose every wrong
# access ends the program. Every word is compared with a model. `make test` runs a slice that STOWAGE_TEST_SEED chooses;
# STOWAGE_TEST_LONG runs thousands.
. "$(dirname "$0")/lib.bash"
mover=$programs/mover pager=$programs/pager
export MOVER_C10=$programs/libc10_cuda.so
long=${STOWAGE_TEST_LONG:-}
# moved SEED: what it prints is in $out, the rest in $folder/err, and its code is the answer.
moved() { out=$(STANDIN_ASYNC=$1 timeout -k 2 300 "$stowage" run --vram-limit 160M --spill 600M -- "$mover" "$1" 2> "$folder/err"); }
show_failure() { echo "$1"; echo "$out"; grep -av '^stowage run' "$folder/err" | head -n 20; }

count=10
[ -n "$long" ] && count=4000
first=$((1 + (${STOWAGE_TEST_SEED:-0} % 400) * count)) # a run in full begins at 1
[ -n "$long" ] && first=1
last=$((first + count - 1))
wrong=0 moving=0
for ((seed = first; seed <= last; seed++)); do
  moved $seed; code=$?
  if [ $code != 0 ] || ! grep -q '^equal ' <<< "$out"; then show_failure "seed $seed: code $code"; wrong=$((wrong + 1)); fi
  grep -qE 'moved .* out, 0 B back' "$folder/err" || moving=$((moving + 1))
done
if [ $wrong = 0 ]; then ok "programs_keep_every_byte: $count programs from seed $first"; else fail "programs_keep_every_byte: $wrong of $count"; fi
if [ $((moving * 10)) -gt $((count * 7)) ]; then ok "most_of_them_move_pages: $moving of $count"; else fail "most_of_them_move_pages: $moving of $count"; fi
[ -n "${SHIM_SANITIZED:-}" ] && finish

# A host that is full: what comes in frees the host pages of what leaves, so an exchange still moves about a page (8 MiB).
tight() {
  local seed few=0
  for seed in 1 3; do
    out=$(STANDIN_ASYNC=$seed timeout -k 2 300 "$stowage" run --vram-limit 160M --spill 160M -- "$mover" $seed 2> "$folder/err") || return
    grep -q '^equal ' <<< "$out" || return
    sed -nE 's/.*host: ([0-9]+)\.[0-9]+ MiB out, .* back in ([0-9]+) exchanges.*/\1 \2/p' "$folder/err" | {
      read -r mib exchanges && echo "seed $seed: $mib MiB in $exchanges exchanges" && [ "$mib" -gt $((exchanges * 4)) ]; } || few=1
  done
  [ $few = 0 ]
}
check a_full_host_does_not_stop_exchanges tight

# A graph names what its nodes do, so none of these programs has work that may touch anything.
STOWAGE_SHIM_LOG=$folder/graphs moved 3
check graphs_name_what_they_touch test "$(grep -c 'cuGraphLaunch may touch anything' "$folder/graphs")" = 0
# A framework releases what it does not use before pages go to the host for it.
moved scattered
check a_framework_that_holds_more_than_it_uses_is_refused_once test "$out" = 'served 0, refused 2, then 0 new pages'
# JAX would run graphs of its own, between whose kernels nothing can be moved.
mkdir -p "$folder/site/jaxlib" "$folder/site/jaxlib-0.6.0.dist-info"
cp "$MOVER_C10" "$folder/site/jaxlib/xla_extension.so"
MOVER_C10=$folder/site/jaxlib/xla_extension.so moved 1
check a_jax_that_spills_runs_without_them grep -q 'JAX runs without command buffers' "$folder/err"
check and_recomputes grep -q 'JAX recomputes what vram cannot keep' "$folder/err"
XLA_FLAGS=--xla_gpu_enable_command_buffer=FUSION MOVER_C10=$folder/site/jaxlib/xla_extension.so moved 1
check a_jax_with_graphs_recomputes_too grep -q 'JAX recomputes what vram cannot keep' "$folder/err"
check and_keeps_its_graphs eval '! grep -q "JAX runs without command buffers" "$folder/err"'

# Any call of the driver fails once: the results stay the same. It and the next fail: the same, or the program ends with a line
# that says which address is lost, and code 70.
calls=(cuStreamWaitEvent cuStreamSynchronize cuMemMap cuMemUnmap cuMemSetAccess cuMemCreate cuMemRelease cuMemAddressReserve cuMemcpyAsync cuLaunchKernel cuEventRecord cuEventQuery cuEventSynchronize cuEventCreate cuCtxPushCurrent_v2 cuCtxGetCurrent cuCtxRecordEvent)
each=2 swept=0 wrong=0 lost=0 twice_wrong=0
[ -n "$long" ] && each=120
for seed in 1 ${long:+7 11 14}; do
  MOVER_CALLS=$(IFS=,; echo "${calls[*]}") moved "$seed"; counts=$out
  for call in "${calls[@]}"; do
    count=$(sed -nE "s/^calls $call ([0-9]+)$/\1/p" <<< "$counts")
    [ "${count:-0}" -gt 0 ] || continue
    for ((k = 0; k < each && k < count; k++)); do
      turn=$((1 + k * count / (each < count ? each : count)))
      MOVER_FAIL=$call:999:$turn:1 moved "$seed"; code=$?
      swept=$((swept + 1))
      if [ $code != 0 ] || ! grep -q '^equal ' <<< "$out"; then show_failure "seed $seed, $call $turn fails once: code $code"; wrong=$((wrong + 1)); fi
      case $call in cuMemMap | cuMemSetAccess | cuMemUnmap) ;; *) continue ;; esac
      for times in 2 1000000; do
        MOVER_FAIL=$call:999:$turn:$times moved "$seed"; code=$?
        if [ $code = 70 ] && grep -q 'refused to map a page again' "$folder/err"; then lost=$((lost + 1)); continue; fi
        # With every call failing, the program's own do too.
        if [ $times != 2 ] && [ $code = 3 ] && grep -q 'answers 999$' <<< "$out"; then continue; fi
        if [ $code != 0 ] || ! grep -q '^equal ' <<< "$out"; then show_failure "seed $seed, $call $turn fails $times times: code $code"; twice_wrong=$((twice_wrong + 1)); fi
      done
    done
  done
done
if [ $wrong = 0 ] && [ $swept -gt $((each * 10)) ]; then ok "a_call_that_fails_in_a_move_costs_nothing: $swept runs"; else fail "a_call_that_fails_in_a_move_costs_nothing: $wrong of $swept"; fi
if [ $twice_wrong = 0 ] && [ $lost -gt 0 ]; then ok "two_that_fail_end_it_with_a_line_or_cost_nothing: $lost ended"; else fail "two_that_fail_end_it_with_a_line_or_cost_nothing: $twice_wrong wrong, $lost ended"; fi

# Killed in a move: what it held is free for the next process of the run.
killed=0 left=0
for turn in 1 2 5 9; do
  out=$(STANDIN_ASYNC=$turn PAGER_BYTES=8388608 timeout -k 2 300 "$stowage" run --vram-limit 160M --spill 600M -- bash -c "
    MOVER_FAIL=cuMemMap:-9:$turn:1 '$mover' 1 > /dev/null 2>&1; echo \"code \$?\"
    unset STANDIN_ASYNC; '$pager' take:0+16 where:15" 2> "$folder/err" | sed -E 's/^(take|where):[^ ]+ /\1 /' | tr '\n' ';')
  grep -q '^code 137;' <<< "$out" && killed=$((killed + 1))
  [ "$out" = "code 137;take 0;where vram;" ] || { echo "$out"; left=$((left + 1)); }
done
if [ $killed = 4 ] && [ $left = 0 ]; then ok killed_in_a_move_it_leaves_nothing; else fail "killed_in_a_move_it_leaves_nothing: $killed of 4 killed"; fi
# Large plain blocks are made of pages that move; one that is made while pages move already too.
out=$(STANDIN_VRAM=8589934592 timeout -k 2 300 "$stowage" run --vram-limit 1100M --spill 4G -- "$programs/blocks" 7 192 4 2> "$folder/err")
if [ "$out" = "equal 14336 words" ] && grep -qE 'moved .*[MG]iB out' "$folder/err"; then ok large_plain_blocks_move_with_their_bytes; else echo "$out"; cat "$folder/err"; fail large_plain_blocks_move_with_their_bytes; fi
out=$(STANDIN_VRAM=8589934592 timeout -k 2 300 "$stowage" run --vram-limit 1100M --spill 4G -- "$programs/blocks" 7 192 4 pool 2> "$folder/err")
if [ "$out" = "equal 14336 words" ] && grep -qE 'moved .*[MG]iB out' "$folder/err"; then ok a_pool_that_is_one_page_moves_in_parts; else echo "$out"; cat "$folder/err"; fail a_pool_that_is_one_page_moves_in_parts; fi
# What is not used of a pool needs no vram.
out=$(STANDIN_VRAM=8589934592 timeout -k 2 300 "$stowage" run --vram-limit 1100M --spill 4G -- "$programs/blocks" 4 192 200 large 2> "$folder/err")
if [ "$out" = "equal 8192 words" ] && grep -qE 'GiB is on the host, but what is used at once \(.*MiB\) fits in vram' "$folder/err"; then ok an_unused_part_of_a_pool_needs_no_vram; else echo "$out"; cat "$folder/err"; fail an_unused_part_of_a_pool_needs_no_vram; fi
# A pool's pages come in while others leave. A call that fails then costs nothing.
pool() { out=$(STANDIN_ASYNC=$1 STANDIN_VRAM=8589934592 timeout -k 2 300 "$stowage" run --vram-limit 1100M --spill 4G -- "$programs/blocks" 14 192 8 pool 2> "$folder/err"); }
wrong=0 swept=0
for call in cuStreamWaitEvent cuStreamSynchronize cuMemcpyAsync cuMemMap cuMemUnmap cuMemSetAccess cuMemCreate cuEventRecord cuEventSynchronize cuLaunchKernel; do
  for turn in 1 2 3 8 40 120; do
    # The program's own calls come first: those that fail for it end it with their code.
    STANDIN_FAIL=$call:999:$turn:once pool 5
    swept=$((swept + 1))
    case $out in "equal 28672 words" | *": 999") ;; *) wrong=$((wrong + 1)); show_failure "$call $turn fails" ;; esac
  done
done
if [ $wrong = 0 ]; then ok "a_call_that_fails_while_pages_cross: $swept runs"; else fail "a_call_that_fails_while_pages_cross: $wrong of $swept"; fi
early=0
for seed in 5 6 7 8 9 10; do
  STOWAGE_SHIM_LOG=$folder/early.$seed pool $seed
  [ "$out" = "equal 28672 words" ] || show_failure "pool, seed $seed"
  grep -qE 'copied, [1-9][0-9]* early' "$folder/early.$seed" && [ "$out" = "equal 28672 words" ] && early=$((early + 1))
done
if [ $early -gt 0 ]; then ok "pages_come_in_while_others_leave: $early of 6"; else fail "pages_come_in_while_others_leave: 0 of 6"; fi
# Pages that are too small to move get vram that pages which move give up.
out=$(STANDIN_VRAM=8589934592 timeout -k 2 300 "$stowage" run --vram-limit 1100M --spill 4G -- "$programs/blocks" 7 192 4 small 2> "$folder/err")
if [ "$out" = $'0 of 64 small pages on the host\nequal 14336 words' ]; then ok small_pages_stay_in_vram; else echo "$out"; cat "$folder/err"; fail small_pages_stay_in_vram; fi
# Many at once end up on the host first, and come back.
out=$(STOWAGE_SHIM_LOG=$folder/burst STANDIN_VRAM=8589934592 timeout -k 2 300 "$stowage" run --vram-limit 1100M --spill 4G -- "$programs/blocks" 7 192 4 burst 2> "$folder/err")
if [ "$out" = $'0 of 192 small pages on the host\nequal 14336 words' ] && grep -q 'small pages came home, 0 KiB are on the host' "$folder/burst"; then ok small_pages_come_home; else echo "$out"; cat "$folder/err"; fail small_pages_come_home; fi
# What one kernel uses is larger than the limit: the rest is read on the host. What did not fit is what the program has there at
# once, without the copies that are kept of pages in vram.
out=$(STANDIN_VRAM=8589934592 timeout -k 2 300 "$stowage" run --vram-limit 1100M --spill 4G -- "$programs/blocks" 2 640 3 2> "$folder/err")
if [ "$out" = "equal 4096 words" ] && grep -qE 'run: 352.0 MiB did not fit in vram.*; 352.0 MiB more vram would avoid it' "$folder/err"; then ok a_kernel_that_uses_more_than_the_limit; else echo "$out"; cat "$folder/err"; fail a_kernel_that_uses_more_than_the_limit; fi
# Two processes share the limit and the spill budget.
out=$(STANDIN_VRAM=8589934592 timeout -k 2 300 "$stowage" run --vram-limit 1100M --spill 4G -- bash -c "'$programs/blocks' 7 192 2 & '$programs/blocks' 5 192 2; wait" 2> "$folder/err" | sort)
if [ "$out" = $'equal 10240 words\nequal 14336 words' ]; then ok a_second_process_that_takes_the_vram; else echo "$out"; cat "$folder/err"; fail a_second_process_that_takes_the_vram; fi
# Pages in vram keep host pages for their return; a new block gets them where no others may be made.
out=$(STANDIN_VRAM=8589934592 timeout -k 2 300 "$stowage" run --vram-limit 1100M --spill 448M -- "$programs/blocks" 7 192 6 2> "$folder/err")
if [ "$out" = "equal 14336 words" ] && grep -qE 'moved .*[MG]iB out' "$folder/err"; then ok kept_host_pages_are_given_up; else echo "$out"; cat "$folder/err"; fail kept_host_pages_are_given_up; fi
# Host memory runs short while pages move: the program is refused, and the summary says what ran out.
out=$(STANDIN_VRAM=8589934592 timeout -k 2 300 "$stowage" run --vram-limit 1100M --spill 256M -- "$programs/blocks" 7 192 4 2> "$folder/err")
if [ "$out" = "alloc: 2" ] && grep -q '256.0 MiB of the 256.0 MiB that may be spilled; raise --spill or --vram-limit' "$folder/err"; then ok a_spill_budget_that_runs_out; else echo "$out"; cat "$folder/err"; fail a_spill_budget_that_runs_out; fi
# The device may wait for the very thread that moves pages: the wait ends, and is not repeated at once.
out=$(STOWAGE_SHIM_LOG=$folder/hold STANDIN_VRAM=8589934592 timeout -k 2 300 "$stowage" run --vram-limit 1100M --spill 4G -- "$programs/blocks" 7 192 2 hold 2> "$folder/err")
if [ "$out" = "equal 14336 words" ] && [ "$(grep -c 'does not become idle' "$folder/hold")" = 1 ]; then ok a_device_that_does_not_rest_holds_nobody_up; else echo "$out"; cat "$folder/err" "$folder/hold"; fail a_device_that_does_not_rest_holds_nobody_up; fi
# Before CUDA 12.4 launches name nothing, and moving can be switched off: then everything stays where it was made.
while read -r name moves setting; do
  out=$(env "$setting" STANDIN_VRAM=8589934592 timeout -k 2 300 "$stowage" run --vram-limit 1100M --spill 4G -- "$programs/blocks" 7 192 2 2> "$folder/err")
  if [ "$out" = "equal 14336 words" ] && [ "$(grep -cE 'moved .*[MG]iB out' "$folder/err")" = "$moves" ]; then ok "$name"; else echo "$out"; cat "$folder/err"; fail "$name"; fi
done << 'CASES'
a_driver_that_reports_parameters 1 STOWAGE_DRIVER_LEVEL=12.4
a_driver_that_does_not 0 STOWAGE_DRIVER_LEVEL=12.3
moving_can_be_switched_off 0 STOWAGE_MOVE=off
CASES
finish
