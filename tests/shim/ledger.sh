#!/usr/bin/env bash
# What a run reports if its ledger, its disk or its loader has a problem: a truncated ledger, more processes than it can count,
# no space for a recording, a program with AddressSanitizer.
. "$(dirname "$0")/lib.bash"

# ---- the ledger's file is truncated while the command runs ----
stowage_run --vram-limit 100M -- sh -c 'truncate -s 0 "$STOWAGE_LEDGER"; exit 3' 2> "$folder/err"; code=$?
check a_ledger_cut_short_does_not_end_the_run test "$code" -eq 3
check and_this_is_reported_too grep -q 'ledger was truncated' "$folder/err"

# ---- a process that starts afterwards ----
out=$(stowage_run --vram-limit 100M -- sh -c 'truncate -s 0 "$STOWAGE_LEDGER"; "$0" alloc:'$M "$holder" 2> "$folder/err")
check a_process_without_its_ledger_runs test "${out##* }" = 0
check and_says_that_it_has_no_limit grep -q '^stowage: process [0-9]*: the ledger .* is damaged: Stowage cannot count, limit' "$folder/err"

# ---- and in a process that uses the device ----
cut_under() { # OPTIONS…: a process allocates, the ledger is cut short, and it allocates again
  rm -f "$folder/in" "$folder/out"; mkfifo "$folder/in"
  stowage_run "$@" -- sh -c '"$1" alloc:'$M' read alloc:'$((64 * M))' free info < "$2/in" > "$2/out" & exec 3> "$2/in"
    while ! grep -q alloc "$2/out"; do :; done
    truncate -s 0 "$STOWAGE_LEDGER"; echo on >&3; exec 3>&-; wait $!' sh "$holder" "$folder" 2> "$folder/err"
}
cut_under --vram-limit 100M; code=$?
check a_process_survives_a_ledger_cut_short test "$code" -eq 0
check and_gets_nothing_more_under_a_limit test "$(grep -c '^alloc:[0-9]* 2' "$folder/out")" -eq 1
cut_under; code=$?
check without_a_limit_it_continues test "$code $(grep -c '^alloc:[0-9]* 0' "$folder/out")" = '0 2'

# ---- one process more than the ledger can count ----
out=$(stowage_run --vram-limit 100M -- "$programs/filler" "$holder" alloc:$M 2> "$folder/err")
check a_process_that_cannot_be_counted_gets_nothing_under_a_limit test "${out##* }" = 2
check and_says_so_itself grep -q '^stowage: process [0-9]*: 1024 processes' "$folder/err"
check and_the_run_says_how_many grep -q '^stowage run: 1 process found all 1024 places' "$folder/err"
out=$(stowage_run -- "$programs/filler" "$holder" alloc:$M 2> "$folder/err")
check without_a_limit_it_is_served test "${out##* }" = 0
check and_reported_not_to_be_counted grep -q 'not counted' "$folder/err"

# ---- a run of many processes ----
many() { # 30 after one that was refused memory; prints which of the first, the others and the last have a ring
  stowage_run --vram-limit 100M -- sh -c '"$0" alloc:'$((200 * M))' >&2 & refused=$!; wait
    for i in $(seq 30); do "$0" alloc:'$M' >&2 & last=$!; wait; done
    cd "$STOWAGE_RUN"; ls "$refused.ring" "$last.ring"; ls | grep -c "\.ring$"' "$holder" 2> "$folder/err"
}
rings=$(many | tr '\n' ' ')
# The run keeps 16 rings of processes that ended and the refused one. The newest was alive when the last one looked.
if [[ $rings =~ ^[0-9]+\.ring\ [0-9]+\.ring\ 18\ $ ]]; then ok rings_of_ended_processes_are_bounded; else echo "$rings"; cat "$folder/err"; fail rings_of_ended_processes_are_bounded; fi

# ---- a state folder that is full ----
record_full() { # PROCESSES: how many start in one run
  mkdir -p "$folder/full"
  mount -t tmpfs -o size=50m none "$folder/full" || exit 77
  XDG_STATE_HOME=$folder/full timeout -k 2 200 "$stowage" run --record "$folder/r.stow" --vram-limit 100M -- \
    sh -c "for i in \$(seq $1); do '$holder' alloc:$M & done; wait" 2> "$folder/err"
}
export -f record_full
export folder stowage holder M
if unshare -rm true 2> /dev/null; then
  unshare -rm bash -c 'record_full 6'
  written=$(find "$folder" -maxdepth 1 -name 'r*.stow' | wc -l)
  said=$(sed -nE 's/^stowage run: --record: of ([0-9]+) processes that used the device, ([0-9]+) were recorded completely and ([0-9]+) were not$/\1 \2 \3/p' "$folder/err")
  if [ "$said" = "6 $written $((6 - written))" ] && [ "$written" -lt 6 ]; then
    ok recordings_lost_to_a_full_disk_are_counted
  else
    cat "$folder/err"; echo "written: $written, said: $said"; fail recordings_lost_to_a_full_disk_are_counted
  fi
  check and_named_with_the_reason grep -qE 'nothing of process [0-9, ]+ was recorded: .*No space left.*choose another folder or a smaller ring: /' "$folder/err"
else
  skip "recordings_lost_to_a_full_disk_are_counted: no mount namespaces here"
fi

# ---- AddressSanitizer by gcc: it refuses to run if a library comes before its runtime ----
echo 'int main(void) { return 7; }' > "$folder/asan.c"
ends_with_7() { local name=$1; shift; "$@" 2> "$folder/err"; if [ $? -eq 7 ]; then ok "$name"; else cat "$folder/err"; fail "$name"; fi; }
if gcc -fsanitize=address -o "$folder/asan" "$folder/asan.c" 2> /dev/null && { "$folder/asan"; [ $? -eq 7 ]; }; then
  export ASAN_OPTIONS=detect_leaks=0
  ends_with_7 a_program_of_address_sanitizer_starts stowage_run --vram-limit 100M -- "$folder/asan"
  ends_with_7 and_below_a_shell stowage_run --vram-limit 100M -- sh -c "'$folder/asan'; exit \$?"
  STOWAGE_LIBCUDA=/nonexistent ends_with_7 and_without_a_driver stowage_run -- "$folder/asan"
  ends_with_7 and_with_a_profile stowage_run --profile -- "$folder/asan"
  check the_users_options_come_last test "$(stowage_run --quiet -- printenv ASAN_OPTIONS)" = verify_asan_link_order=0:detect_leaks=0
else
  skip "a_program_of_address_sanitizer_starts: gcc has no libasan here"
fi
finish
