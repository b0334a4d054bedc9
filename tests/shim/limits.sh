#!/usr/bin/env bash
# Limits: every way to allocate memory counts, all processes of a run together obey the limit exactly, the figures that a program
# queries are the limited ones, and refusals are explained at the end.
. "$(dirname "$0")/lib.bash"
says without_a_limit_the_device_is_the_limit 'total 0 free 0 total 1024;info 0 free 1024 total 1024;alloc 0;info 0 free 964 total 1024;' -- total info alloc:60M info
says the_figures_tell_the_limited_truth 'total 0 free 0 total 100;info 0 free 100 total 100;alloc 0;info 0 free 40 total 100;' --vram-limit 100M -- total info alloc:60M info
says plain_memory_is_limited 'alloc 0;alloc 2;free 0;alloc 0;' --vram-limit 100M -- alloc:60M alloc:42M free alloc:100M
says pages_are_limited_to_the_page 'page 0;page 0;page 2;unpage 0;page 0;' --vram-limit 100M -- page:80M page:20M page:2M unpage page:20M
says a_page_counts_until_its_mapping_is_gone 'page 0;info 0 free 20 total 100;unpage 0;info 0 free 100 total 100;' --vram-limit 100M -- page:80M info unpage info
says rights_taken_away_can_be_given_again 'page 0;touch 0;access 0;access 0;touch 0;access 0;access 0;touch 0;' --vram-limit 100M -- page:20M touch access:1 access:3 touch access:0 access:3 touch
says a_second_mapping_keeps_a_page_too 'page 0;alias 0;unpage 0;info 0 free 20 total 100;unalias 0;info 0 free 100 total 100;driver 0 used 0;' --vram-limit 100M -- page:80M alias unpage info unalias info driver
says a_context_of_the_programs_own_takes_its_memory_with_it 'context 0;alloc 0;info 0 free 40 total 100;uncontext 0;info 0 free 100 total 100;' --vram-limit 100M -- context alloc:60M info uncontext info
HOLDER_NO_PRIMARY=1 says and_no_other_is_made_beside_it 'context 0;alloc 0;free 0;calls:cuDevicePrimaryCtxRetain 0;' --vram-limit 100M -- context alloc:60M free calls:cuDevicePrimaryCtxRetain
says pitched_memory_is_limited 'pitch 0;pitch 2;' --vram-limit 100M -- pitch:60M pitch:60M
says managed_memory_is_limited 'managed 0;alloc 2;' --vram-limit 100M -- managed:60M alloc:60M
says arrays_are_limited 'array 0;alloc 2;arrayfree 0;alloc 0;' --vram-limit 100M -- array:60M alloc:60M arrayfree alloc:60M
for form in 2x4:128 197x4:128 203x2:64 194x4:64 145x4:8 151x1:8 157x4:16 176x3:24 80x4:64; do # UNSIGNED_INT16, UNORM_INT16X4, SNORM_INT16X4, UNORM_INT8X4, BC1, BC4, BC7, NV12, 10:10:10:2
  STANDIN_VRAM=$((2048 * M)) says "an_array_counts_by_its_format: ${form%:*}" "texels 0;info 0 free $((1000 - ${form#*:})) total 1000;" --vram-limit 1000M -- "texels:${form%:*}" info
done
says pools_count_what_they_keep 'async 0;info 0 free 36 total 100;afree 0;info 0 free 36 total 100;async 0;async 2;' --vram-limit 100M -- async:60M info afree info async:40M async:60M
for options in "" "--vram-limit 100M"; do
  says "a_pools_figures_are_not_asked_in_a_capture $options" 'async 0;capture 0;async 0;endcapture 0;async 0;' $options -- async:20M capture async:20M endcapture async:20M
done
says a_figure_that_is_not_wanted 'half 0 free 0 total 100;info 0 free 100 total 100;' --vram-limit 100M -- half info
says idle_pools_make_room_for_their_own 'async 0;afree 0;async 0;alloc 2;' --vram-limit 100M -- async:60M afree async:90M alloc:10M
STANDIN_DEVICES=2 says a_pool_counts_on_the_device_it_is_of 'pool 0;xasync 2;xasync 0;info 0 free 100 total 100;' --vram-limit 0=100M,1=40M -- pool:1 xasync:60M xasync:20M info
words=() answers=
for ((i = 0; i < 150; i++)); do words+=(pool:0 xasync:1M); answers+='pool 0;xasync 0;'; done
STANDIN_VRAM=$((8000 * M)) says every_pool_counts_however_many "${answers}info 0 free 2200 total 7000;driver 0 used 4800;" --vram-limit 7000M -- "${words[@]}" info driver
says a_pool_counts_until_its_last_block_is_freed 'pool 0;xasync 0;xasync 0;unpool 0;info 0 free 40 total 200;alloc 2;afree 0;info 0 free 104 total 200;afree 0;info 0 free 200 total 200;' --vram-limit 200M -- pool:0 xasync:70M xasync:70M unpool info alloc:60M afree info afree info
says a_pool_of_the_host_is_not_device_memory 'hostpool 0;xasync 0;info 0 free 100 total 100;' --vram-limit 100M -- hostpool xasync:300M info
STANDIN_MEET=2 says pools_that_grow_at_once_keep_the_limit 'both served 1;info 0 free 36 total 100;' --vram-limit 100M -- both:60M info
if grep -q 'at the peak 64.0 MiB in vram of 100.0 MiB allowed$' "$folder/err"; then ok and_were_at_no_time_past_it; else cat "$folder/err"; fail and_were_at_no_time_past_it; fi
two_at_once() { # NAME MIB OPTIONS…: each of two processes asks for so much at the same moment; both do not fit
  local name=$1 bytes=$(($2 * M)) served; shift 2
  printf '\0\0\0\0' > "$folder/turns"
  served=$(STANDIN_TURNS=$folder/turns stowage_run "$@" -- sh -c '"$0" "$1" & "$0" "$1" & wait' "$holder" "alloc:$bytes" 2> "$folder/err" | grep '^alloc' | cut -d' ' -f2 | sort | tr '\n' ' ')
  if [[ $served == 0* ]]; then ok "$name"; else echo "$served"; cat "$folder/err"; fail "$name"; fi
}
two_at_once of_two_processes_that_ask_at_once_one_is_served 60 --vram-limit 100M
two_at_once and_of_two_that_need_both_tiers 70 --vram-limit 20M --spill 60M
says pinned_host_memory_is_not_device_memory 'pin 0;alloc 0;unpin 0;' --vram-limit 100M -- pin:300M alloc:100M unpin
says a_limit_for_another_device_is_none_here 'alloc 0;' --vram-limit 1=100M -- alloc:300M
says a_limit_for_each_device 'alloc 2;' --vram-limit 0=100M,1=4G -- alloc:300M

# Variables of other tools, used if our option is not given.
for variable in CUDA_DEVICE_MEMORY_LIMIT=100m CUDA_DEVICE_MEMORY_LIMIT_0=100m NVIDIA_GPU_MEMORY_LIMIT=100M CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=100M; do
  export "${variable?}"
  says "${variable%%=*}_is_honoured" 'total 0 free 0 total 100;' -- total
  unset "${variable%%=*}"
done
export CUDA_DEVICE_MEMORY_LIMIT=50M
says our_option_goes_before_a_variable 'total 0 free 0 total 100;' --vram-limit 100M -- total
unset CUDA_DEVICE_MEMORY_LIMIT
# A child that sees fewer devices: its first is the run's second.
export CUDA_VISIBLE_DEVICES=0,1 STANDIN_DEVICES=2
same a_childs_own_numbering_is_seen_through "total 0 free 0 total 200" stowage_run --vram-limit 0=100M,1=200M -- env CUDA_VISIBLE_DEVICES=1 "$holder" total 2> /dev/null
unset CUDA_VISIBLE_DEVICES STANDIN_DEVICES

# A run within a run: at most what the outer one may hold.
same an_inner_run_has_the_outer_ones_limit "total 0 free 0 total 100" stowage_run --vram-limit 100M -- "$stowage" run -- "$holder" total 2> /dev/null
same an_inner_run_may_have_less "total 0 free 0 total 50" stowage_run --vram-limit 100M -- "$stowage" run --vram-limit 50M -- "$holder" total 2> /dev/null
same an_inner_run_has_no_more "stowage run: --vram-limit: this command runs inside another run with a limit of 100.0 MiB, which applies here too
total 0 free 0 total 100" stowage_run --vram-limit 100M -- "$stowage" run --vram-limit 200M -- "$holder" total

# Every way to allocate memory, mixed at random, with pages mapped twice and contexts that end: the count equals what is held.
mixed() { # NAME LIMIT_MIB DEVICE_MIB OPTIONS…
  local name=$1 limit=$2 device=$3 seed; shift 3
  for seed in 1 2 3; do
    STANDIN_VRAM=$((device * M)) stowage_run "$@" -- "$programs/mixer" $seed "$limit" > "$folder/out" 2>&1 || { cat "$folder/out"; fail "$name: seed $seed"; return; }
  done
  ok "$name"
}
mixed what_is_counted_is_what_is_held 0 4096
mixed and_within_a_limit 400 4096 --vram-limit 400M
mixed and_with_a_spill 300 4096 --vram-limit 300M --spill 2G
mixed and_with_a_device_that_is_full 0 300 --spill 2G
mixed and_with_the_heap 0 4096 --fast-malloc

# All processes of a run together. What a process held is free for the next once it has ended.
same what_an_ended_program_held_is_free $'alloc:62914560 0\ninfo 0 free 100 total 100\nstowage run: device 0: at the peak 60.0 MiB in vram of 100.0 MiB allowed' stowage_run --vram-limit 100M -- sh -c "'$holder' alloc:$((60 * M)); '$holder' info"
out=$(stowage_run --vram-limit 100M -- bash -c "
  coproc one { exec '$holder' alloc:$((60 * M)) say:held read; }
  read -r a <&\"\${one[0]}\"; read -r b <&\"\${one[0]}\"
  '$holder' alloc:$((60 * M)) alloc:$((40 * M)) info
  kill -KILL \$one_PID; wait \$one_PID 2> /dev/null
  '$holder' alloc:$((100 * M))" 2> "$folder/err" | tr '\n' ';')
expected="alloc:62914560 2;alloc:41943040 0;info 0 free 0 total 100;alloc:104857600 0;"
if [ "$out" = "$expected" ]; then ok processes_share_the_limit_and_the_killed_leave_nothing; else echo "$out"; cat "$folder/err"; fail processes_share_the_limit_and_the_killed_leave_nothing; fi

# The final report: where memory was, and why it ran out, only if the command failed.
stowage_run --vram-limit 100M -- sh -c "'$holder' alloc:$((60 * M)) alloc:$((60 * M)); exit 1" > /dev/null 2> "$folder/err"
if grep -q 'at the peak 60.0 MiB in vram of 100.0 MiB allowed' "$folder/err"; then ok the_peak_is_reported; else cat "$folder/err"; fail the_peak_is_reported; fi
if grep -q 'out of memory: process [0-9]* requested 60.0 MiB on device 0 while 60.0 MiB of the 100.0 MiB limit .*; raise --vram-limit, or add --spill' "$folder/err"; then ok what_ran_out_is_explained; else cat "$folder/err"; fail what_ran_out_is_explained; fi
# What the device itself refused was never allocated.
for way in page alloc managed pitch array; do
  stowage_run --spill 10M -- "$holder" $way:$((60 * M)) $way:$((5000 * M)) > "$folder/out" 2> "$folder/err"
  if grep -q " 2$" "$folder/out" && grep -q 'at the peak 6[0-9][.][0-9] MiB in vram, 0 B in host memory' "$folder/err"; then ok "what_the_device_refused_is_no_peak: $way"; else cat "$folder/out" "$folder/err"; fail "what_the_device_refused_is_no_peak: $way"; fi
done
stowage_run --vram-limit 100M -- "$holder" alloc:$((60 * M)) alloc:$((60 * M)) > /dev/null 2> "$folder/err"
if grep -q 'out of memory' "$folder/err"; then fail a_command_that_coped_is_not_lectured; else ok a_command_that_coped_is_not_lectured; fi
stowage_run -- "$holder" alloc:$((60 * M)) > /dev/null 2> "$folder/err"
if [ "$(wc -l < "$folder/err")" = 1 ] && grep -q '^stowage run: at the peak .* of host memory, 60.0 MiB on device 0$' "$folder/err"; then ok without_options_the_peak_is_one_line; else cat "$folder/err"; fail without_options_the_peak_is_one_line; fi
for options in "" "--vram-limit 100M" "--vram-limit 50M --spill 100M"; do
  stowage_run --quiet $options -- "$holder" alloc:$((60 * M)) > /dev/null 2> "$folder/err"
  if [ -s "$folder/err" ]; then cat "$folder/err"; fail "quiet_says_nothing: $options"; else ok "quiet_says_nothing: $options"; fi
done

# Another user cannot open the ledger, so the limit does not apply to that user's program, which reports this.
if [ "$(id -u)" = 0 ] && has setpriv && chmod 755 "$folder" && setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$holder" -a -r "$shim"; then
  stowage_run --vram-limit 10M -- setpriv --reuid=65534 --regid=65534 --clear-groups "$holder" alloc:$M alloc:$M > "$folder/out" 2> "$folder/err"
  if [ "$(grep -c 'stowage: process [0-9]* runs as a user who may not open .*/ledger: Stowage cannot count, limit' "$folder/err")" = 1 ]; then ok a_limit_that_does_not_hold_for_another_user_is_reported; else cat "$folder/out" "$folder/err"; fail a_limit_that_does_not_hold_for_another_user_is_reported; fi
else
  skip "a_limit_that_does_not_hold_for_another_user_is_reported: needs root and setpriv"
fi

# What a limit cannot do. NVML reports devices of 16 GiB that are empty.
(
  export STOWAGE_LIBNVML=$build/tests/standin/libnvidia-ml.so.1 CUDA_DEVICE_ORDER=PCI_BUS_ID STANDIN_NVML_USED=0
  stowage_run --vram-limit 20G -- "$holder" alloc:$M > /dev/null 2> "$folder/err"; code=$?
  if [ $code = 0 ] && grep -q -- '--vram-limit: device 0 has only 16.0 GiB, so its limit of 20.0 GiB has no effect' "$folder/err"; then ok a_limit_larger_than_the_device_is_noted; else cat "$folder/err"; fail "a_limit_larger_than_the_device_is_noted: code $code"; fi
  stowage_run --vram-limit 0=1G,7=4G -- "$holder" alloc:$M > /dev/null 2> "$folder/err"
  if grep -q -- '--vram-limit: there is no device 7,' "$folder/err" && ! grep -q 'no device 0' "$folder/err"; then ok a_limit_of_a_device_that_is_not_there_is_noted; else cat "$folder/err"; fail a_limit_of_a_device_that_is_not_there_is_noted; fi
  STANDIN_CONTEXT=$((200 * M)) stowage_run --vram-limit 100M -- sh -c "'$holder' alloc:$M; exit 1" > "$folder/out" 2> "$folder/err"
  if grep -q "^alloc:$M 2" "$folder/out" && grep -q 'the limit of 100.0 MiB is less than the 200.0 MiB the driver itself holds for the command' "$folder/err"; then ok a_limit_smaller_than_the_context_is_refused; else cat "$folder/out" "$folder/err"; fail a_limit_smaller_than_the_context_is_refused; fi
  STANDIN_CONTEXT=$((200 * M)) says the_drivers_own_share_counts 'info 0 free 100 total 300;alloc 2;alloc 0;' --vram-limit 300M -- info alloc:110M alloc:98M
  STANDIN_CONTEXT=$((200 * M)) stowage_run --vram-limit 300M -- "$holder" info alloc:$((98 * M)) others:$((50 * M)) info > /dev/null 2> "$folder/err"
  if grep -q 'at the peak 348.0 MiB in vram of 300.0 MiB allowed (48.0 MiB more by the driver itself' "$folder/err"; then ok what_the_driver_takes_past_the_limit_is_reported; else cat "$folder/err"; fail what_the_driver_takes_past_the_limit_is_reported; fi
  STANDIN_CONTEXT=$((400 * M)) STANDIN_VRAM=$((4096 * M)) says every_context_counts 'info 0 free 1600 total 2000;context 0;info 0 free 1200 total 2000;uncontext 0;info 0 free 1600 total 2000;' --vram-limit 2000M -- info context info uncontext info
  # The used figure covers the whole device: memory of programs outside the run does not count against it.
  STANDIN_CONTEXT=$((200 * M)) says others_growth_does_not_eat_the_limit 'info 0 free 200 total 400;others 0;info 0 free 200 total 400;alloc 0;alloc 2;' --vram-limit 400M -- info others:600M info alloc:190M alloc:30M
  # Nor does memory that they allocated since the run began, before the run had a context: 600 MiB of the 800 that the driver
  # reports are theirs.
  echo 0 > "$folder/used"
  out=$(STANDIN_VRAM=$((4096 * M)) STANDIN_NVML_USED=$folder/used STANDIN_CONTEXT=$((800 * M)) stowage_run --vram-limit 1000M -- bash -c '"$1" info; echo 629145600 > "$2/now"; mv "$2/now" "$2/used"; for ((i = 0; i < 100; i++)); do read -r -t 0.2 <> <(:); said=$("$1" info); case $said in *"free 800"*) echo "$said"; break ;; esac; done' - "$holder" "$folder" 2> "$folder/err" | tr '\n' ';')
  if [ "$out" = 'info 0 free 200 total 1000;info 0 free 800 total 1000;' ]; then ok what_others_took_before_a_context_is_not_its_own; else echo "$out"; cat "$folder/err"; fail what_others_took_before_a_context_is_not_its_own; fi
  # Nor what they take while the context is made, if NVML lists the process: 500 of these 700 MiB are theirs.
  STANDIN_NVML_OWN=$((200 * M)) STANDIN_CONTEXT=$((700 * M)) says what_others_take_beside_it_is_not_its_own 'info 0 free 200 total 400;alloc 0;alloc 2;info 0 free 10 total 400;' --vram-limit 400M -- info alloc:190M alloc:30M info
  # A figure that cannot be a context's (a PID of another namespace) is not used.
  STANDIN_NVML_OWN=$((9000 * M)) STANDIN_CONTEXT=$((200 * M)) says a_figure_of_another_process_is_not_used 'info 0 free 200 total 400;' --vram-limit 400M -- info
  STANDIN_CONTEXT=$((200 * M)) says code_loaded_later_still_counts 'info 0 free 200 total 400;others 0;info 0 free 150 total 400;alloc 2;alloc 0;' --vram-limit 400M -- info others:50M info alloc:160M alloc:140M
  # Nor is that affected by a process that created a context and ended before it requested anything.
  out=$(STANDIN_CONTEXT=$((200 * M)) stowage_run --vram-limit 400M -- sh -c "'$holder' say:gone; '$holder' info others:$((50 * M)) info" 2> "$folder/err" | tr '\n' ';')
  if [ "$out" = "gone;info 0 free 200 total 400;others:$((50 * M)) 0;info 0 free 150 total 400;" ]; then ok a_context_that_was_never_measured_ends_with_its_process; else echo "$out"; cat "$folder/err"; fail a_context_that_was_never_measured_ends_with_its_process; fi
  exit $failed
) || failed=1

# Invalid arguments.
wrong() { # NAME WORDS OPTIONS…
  local name=$1 words=$2; shift 2
  stowage_run "$@" -- true > "$folder/out" 2>&1; local code=$?
  if [ $code = 2 ] && grep -q -- "$words" "$folder/out"; then ok "$name"; else cat "$folder/out"; fail "$name: code $code"; fi
}
wrong a_limit_that_is_no_size '--vram-limit: ' --vram-limit lots
wrong a_limit_of_nothing 'leaves no memory' --vram-limit 0
wrong a_device_that_is_no_number 'must be a device number' --vram-limit x=8G
wrong two_limits_of_one_device 'already has a limit' --vram-limit 0=8G,0=4G
wrong a_device_past_the_last 'device number from 0 to 15' --vram-limit 16=8G
wrong a_spill_that_is_no_size 'or auto, or off' --spill lots
wrong no_threads 'whole number from 1' --threads 0

# The files of a run: one folder, `last` points to it, and old ones are removed; but never its own, whatever the order of the
# names, nor that of a run in progress.
runs=$XDG_STATE_HOME/stowage/runs nobody=99999999 # no process has that number
mkdir -p "$runs/19990101-000000-$nobody" "$runs/19990102-000000-$$" "$runs/keep-me"
for i in 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 19 20 21; do mkdir -p "$runs/20000101-0000$i-$nobody" "$runs/29990101-0000$i-$nobody"; done
same a_run_whose_name_sorts_before_others_keeps_its_folder "info 0 free 100 total 100" stowage_run --vram-limit 100M -- "$holder" info
if [ -f "$runs/last/ledger" ] && [ ! -e "$runs/19990101-000000-$nobody" ] && [ -d "$runs/19990102-000000-$$" ] && [ -d "$runs/keep-me" ]; then ok runs_have_folders_and_old_ones_go; else ls "$runs"; fail runs_have_folders_and_old_ones_go; fi
same threads_are_limited_by_the_usual_variables "3 3 3 3" stowage_run --threads 3 -- sh -c 'echo $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS $NUMBA_NUM_THREADS $TF_NUM_INTRAOP_THREADS'
finish
