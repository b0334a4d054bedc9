#!/usr/bin/env bash
# Runs across users, with reused process numbers, and with different clocks, in their own namespaces. Each part is skipped, with
# the reason, if the machine does not allow it.
. "$(dirname "$0")/lib.bash"

# ---- two users ----
if [ "$(id -u)" = 0 ] && setpriv --reuid=65534 --regid=65534 --clear-groups true 2> /dev/null; then
  other() { setpriv --reuid=65534 --regid=65534 --clear-groups env XDG_STATE_HOME="$folder/other" XDG_CACHE_HOME="$folder/other" "$@"; }
  mkdir -m 777 "$folder/other" "$folder/shared"
  chmod 755 "$folder"
  chmod +t "$folder/shared"
  # The other user knows the path of our ledger, but must not be able to count or to allocate in our name.
  stowage_run --vram-limit 100M -- sh -c '"$1" alloc:'$M' > "$2/mine"; echo "$STOWAGE_LEDGER" > "$2/ledger"
    setpriv --reuid=65534 --regid=65534 --clear-groups sh -c "cat \"\$STOWAGE_LEDGER\" > /dev/null 2>&1 && echo read; echo x 2> /dev/null > \"\$STOWAGE_LEDGER\" && echo written" > "$2/theirs"' \
    sh "$holder" "$folder" 2> "$folder/err"
  same another_user_can_neither_read_nor_write_a_ledger '' cat "$folder/theirs"
  if other test -x "$stowage" && other "$stowage" --version > /dev/null 2>&1; then
    other "$stowage" run --vram-limit 100M -- "$holder" alloc:$((80 * M)) > "$folder/out" 2> "$folder/err" &
    first=$!
    out=$(stowage_run --vram-limit 100M -- "$holder" alloc:$((80 * M)) 2> "$folder/err")
    wait "$first"
    check each_user_has_a_limit_of_their_own test "${out##* } $(cut -d' ' -f2 "$folder/out")" = '0 0'
    # A file that the other user planted in a shared folder is not written to.
    printf 'a,b\n1,2\n' > "$folder/t.csv"
    other sh -c "echo theirs > '$folder/shared/out.npz.partial'; chmod 666 '$folder/shared/out.npz.partial'"
    "$stowage" shrink --force "$folder/t.csv" -o "$folder/shared/out.npz" > /dev/null 2> "$folder/err"; code=$?
    check a_partial_output_of_another_user_is_refused test "$code $(cat "$folder/shared/out.npz.partial")" = '1 theirs'
    check and_named grep -q 'out.npz.partial' "$folder/err"
  else
    skip "each_user_has_a_limit_of_their_own: another user cannot reach $stowage"
  fi
else
  skip "two users: needs root and setpriv"
fi

# ---- a process number that is reused ----
reuse() {
  stowage_run --vram-limit 100M -- bash -c 'mkfifo "$2/hold"
    "$1" alloc:'$((80 * M))' read < "$2/hold" > "$2/first" & pid=$!
    exec 3> "$2/hold"
    while ! grep -q alloc "$2/first"; do :; done
    sleep 0.05 # Linux counts start times in hundredths of a second
    kill -9 $pid; wait $pid 2> /dev/null
    echo $((pid - 1)) > /proc/sys/kernel/ns_last_pid
    sleep 1000 & new=$!
    echo "$pid $new" > "$2/pids"
    "$1" alloc:'$((80 * M))' > "$2/second"
    kill $new' bash "$holder" "$folder" 2> "$folder/err"
}
export -f reuse stowage_run
export folder stowage holder M
if unshare -pf --mount-proc bash -c 'echo 100 > /proc/sys/kernel/ns_last_pid' 2> /dev/null; then
  unshare -pf --mount-proc bash -c reuse
  read -r pid new < "$folder/pids"
  if [ "$pid" = "$new" ]; then
    same a_process_with_the_number_of_a_dead_one_does_not_hold_its_bytes "alloc:$((80 * M)) 0" cat "$folder/second"
  else
    skip "a_process_with_the_number_of_a_dead_one_does_not_hold_its_bytes: the number $pid was not given again"
  fi
else
  skip "a process number used again: no pid namespace here"
fi

# ---- different clocks ----
if unshare -Tf --boottime 1000000 --monotonic 1000000 true 2> /dev/null; then
  # The whole run with other clocks: days before and after the machine's.
  out=$(timeout -k 2 200 unshare -Tf --boottime 8640000 --monotonic 8640000 "$stowage" run --vram-limit 100M -- "$holder" alloc:$((80 * M)) alloc:$((80 * M)) 2> "$folder/err" | cut -d' ' -f2 | tr '\n' ' ')
  check a_run_with_a_clock_of_its_own_keeps_its_limit test "$out" = '0 2 '
  # One process of a run has another clock: its start time reads differently inside and outside.
  jump() {
    stowage_run --vram-limit 100M -- bash -c 'mkfifo "$2/jump"
      unshare -Tf --boottime 1000000 --monotonic 1000000 "$1" alloc:'$((80 * M))' read < "$2/jump" > "$2/inside" &
      exec 3> "$2/jump"
      while ! grep -q alloc "$2/inside"; do :; done
      "$1" alloc:'$((80 * M))' > "$2/outside"; echo on >&3; wait' bash "$holder" "$folder" 2> "$folder/err"
  }
  jump; code=$?
  check a_process_with_another_clock_is_counted test "$code $(grep -c '^alloc.* 0$' "$folder/inside") $(cut -d' ' -f2 "$folder/outside")" = '0 1 2'
else
  skip "clocks that differ: no time namespace here"
fi
finish
