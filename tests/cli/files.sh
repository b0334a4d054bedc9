#!/usr/bin/env bash
# Outputs: planted links are not followed, the input is never overwritten, a path of any length does no harm, modes stay.
. "$(dirname "$0")/../guards/lib.bash"
cd "$folder" || exit 1
# fails CODE COMMAND…: the command must end with that code; `said` gets its output.
fails() { local code=$1 got; shift; "$@" > said 2>&1; got=$?; [ "$got" = "$code" ] || { echo "exit $got: $*"; cat said; return 1; }; }
same() { cmp "$1" "$2" > /dev/null || { echo "$1 was changed"; return 1; }; }
# A CSV of numbers and an RMM log: inputs that need only this shell.
{ echo a,b; for i in $(seq 300); do echo "$i,$((i * i))"; done; } > in.csv
printf 'Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00:000001,allocate,0x7f0000000000,1024,0\n1,10:00:00:000002,free,0x7f0000000000,1024,0\n' > in.rmm
cp in.csv in.csv.was; cp in.rmm in.rmm.was
echo precious > victim; cp victim victim.was

planted_links_are_not_followed() {
  local ending
  for ending in partial scratch resume resume~; do
    rm -f out.npz*; ln -s victim "out.npz.$ending"
    STOWAGE_CHECKPOINT_MS=0 "$stowage" shrink in.csv -o out.npz --resume > said 2>&1
    same victim victim.was || return 1
    [ ! -e out.npz ] || [ ! -L out.npz ] || { echo "out.npz is a link"; return 1; }
  done
  rm -f out.npz*; ln -s victim out.npz.partial
  fails 1 "$stowage" shrink in.csv -o out.npz && grep -q 'out.npz.partial' said || return 1
  rm out.npz.partial; ln -s nowhere out.npz.partial
  fails 1 "$stowage" shrink in.csv -o out.npz && [ ! -e nowhere ] || return 1
  rm -f out.npz*; ln victim out.npz.partial # a second name
  fails 1 "$stowage" shrink in.csv -o out.npz && same victim victim.was
}
check planted_links_are_not_followed planted_links_are_not_followed
rm -f out.npz*

a_partial_of_another_user_is_refused() {
  rm -f out.npz*; echo theirs > out.npz.partial; chown 12345 out.npz.partial || return 1
  fails 1 "$stowage" shrink in.csv -o out.npz --resume && [ "$(cat out.npz.partial)" = theirs ]
}
if [ "$(id -u)" = 0 ]; then check a_partial_of_another_user_is_refused a_partial_of_another_user_is_refused
else skip "a_partial_of_another_user_is_refused: only root can make one"; fi
rm -f out.npz*

the_input_is_never_overwritten() {
  ln -sf in.rmm link.rmm; ln -f in.rmm hard.rmm
  local out
  for out in in.rmm ./in.rmm link.rmm hard.rmm; do
    fails 2 "$stowage" report in.rmm -o "$out" && fails 2 "$stowage" convert in.rmm "$out" --to csv && same in.rmm in.rmm.was || return 1
    fails 2 "$stowage" report --text in.rmm -o "$out" && same in.rmm in.rmm.was || return 1
    [ -L link.rmm ] || { echo "the link was replaced"; return 1; }
  done
  cp in.rmm report.html; fails 2 "$stowage" report report.html && same report.html in.rmm.was || return 1
  cp in.rmm second.rmm; fails 2 "$stowage" report in.rmm second.rmm -o second.rmm && same second.rmm in.rmm.was || return 1
  cp in.csv in.npy; fails 2 "$stowage" shrink in.npy -o ./in.npy; same in.npy in.csv.was
}
check the_input_is_never_overwritten the_input_is_never_overwritten

a_path_of_4095_bytes_does_no_harm() {
  local deep=$folder part length path
  part=$(printf 'd%.0s' $(seq 200))
  (while [ $((${#deep} + 201)) -lt 3880 ]; do mkdir "$part" && cd "$part" && deep=$deep/$part || exit 1; done
   part=$(printf 'e%.0s' $(seq $((3880 - ${#deep} - 1)))); mkdir "$part" && echo "$deep/$part" > "$folder/deep") || return 1
  deep=$(cat "$folder/deep")
  for length in 4095 4090 4087 4080 4060 4048 4046; do
    # A path of `length` bytes that ends in .npz.
    path=$deep/$(printf 'x%.0s' $(seq $((length - ${#deep} - 5)))).npz
    [ "${#path}" = "$length" ] || { echo "the path has ${#path} bytes"; return 1; }
    echo old > "$path" || return 1
    "$stowage" shrink in.csv -o "$path" > said 2>&1
    local code=$?
    [ -s "$path" ] || { echo "$length: the old file is gone (exit $code)"; return 1; }
    [ "$code" = 0 ] || [ "$(cat "$path")" = old ] || { echo "$length: the old file was changed (exit $code)"; return 1; }
    "$stowage" convert in.rmm "$path" --to csv > said 2>&1; [ -s "$path" ] || { echo "$length: gone"; return 1; }
    "$stowage" report in.rmm -o "$path" > said 2>&1; [ -s "$path" ] || { echo "$length: gone"; return 1; }
    rm "$path"
  done
}
check a_path_of_4095_bytes_does_no_harm a_path_of_4095_bytes_does_no_harm

modes_are_kept() {
  cp in.rmm.was in.rmm
  local mode out group
  for mode in 600 640 444 664; do
    for out in o.npz o.csv o.html; do rm -f "$out"; echo old > "$out"; chmod $mode "$out"; done
    "$stowage" shrink in.csv -o o.npz > said 2>&1 && "$stowage" convert in.rmm o.csv > said 2>&1 && "$stowage" report in.rmm -o o.html > said 2>&1 || { cat said; return 1; }
    for out in o.npz o.csv o.html; do [ "$(stat -c %a $out)" = $mode ] || { echo "$out: $(stat -c %a $out), was $mode"; return 1; }; done
  done
  rm -f o.*
  # The group too: 640 for another group would be another permission.
  for group in $(id -G) 54321; do
    for out in o.npz o.csv o.html; do rm -f "$out"; echo old > "$out"; chgrp "$group" "$out" 2> /dev/null && chmod 640 "$out" || continue 2; done
    "$stowage" shrink in.csv -o o.npz > said 2>&1 && "$stowage" convert in.rmm o.csv > said 2>&1 && "$stowage" report in.rmm -o o.html > said 2>&1 || { cat said; return 1; }
    for out in o.npz o.csv o.html; do [ "$(stat -c %a:%g $out)" = "640:$group" ] || { echo "$out: $(stat -c %a:%g $out), was 640:$group"; return 1; }; done
  done
  rm -f o.*
  (umask 027; "$stowage" shrink in.csv -o o.npz && "$stowage" convert in.rmm o.csv && "$stowage" report in.rmm -o o.html) > said 2>&1 || { cat said; return 1; }
  for out in o.npz o.csv o.html; do [ "$(stat -c %a $out)" = 640 ] || { echo "$out: $(stat -c %a $out) with umask 027"; return 1; }; done
}
check modes_are_kept modes_are_kept

a_file_size_limit_is_an_error() {
  rm -f o.*; echo old > o.npz
  (ulimit -f 1; fails 1 "$stowage" shrink big.csv -o o.npz) || return 1
  [ "$(cat o.npz)" = old ] && [ ! -e o.npz.partial ] && grep -q 'o.npz' said || { ls; cat said; return 1; }
  # The command of a run finds the signal as it was.
  "$stowage" run --quiet -- sh -c "grep SigIgn: /proc/self/status > signals"; sh -c "grep SigIgn: /proc/self/status > signals.was"
  same signals signals.was
}
{ echo a,b; for i in $(seq 3000); do echo "$i,$((i * i))"; done; } > big.csv
check a_file_size_limit_is_an_error a_file_size_limit_is_an_error

# Verbs take more than a limit of 64 KB leaves them, so they bring a stack of their own. The command of a run keeps the limit.
a_small_stack_is_enough() {
  local samples=$source_dir/tests/samples
  (ulimit -s 64
    rm -f o.*
    "$stowage" explain "$samples/leak.pickle.gz" > o.explain && "$stowage" tune "$samples/weights_too_big.pickle.gz" > o.tune &&
      "$stowage" report "$samples/leak.pickle.gz" -o o.html && "$stowage" inspect big.csv > o.inspect &&
      "$stowage" shrink big.csv -o o.npz --threads 3 > o.shrink && [ -s o.npz ] && "$stowage" top --once > o.top &&
      [ "$("$stowage" run --quiet --vram-limit 1G -- sh -c 'ulimit -s')" = 64 ]) > said 2>&1 || { cat said; ls -l o.*; return 1; }
}
check a_small_stack_is_enough a_small_stack_is_enough

# Opening a pipe waits for a writer. In the folder of a run, which may come from elsewhere, none is opened.
pipes_in_the_folder_of_a_run_are_not_opened() {
  local name
  for name in end host ledger 4711.error 4711.pickle 4711.stow 4711.ring 4711.profile 4711.objects 4711.frames; do
    rm -rf pipes; mkdir pipes; printf 'code 1\nsignal 0\ncommand python train.py\nkernel 0\n' > pipes/end
    printf 'held\t1000\t1000\t0\nended\tlimit\nprocess\t4711\t1\t1000\t1000\t0\t0\t0\tpython\n' > pipes/host
    rm -f "pipes/$name"; mkfifo "pipes/$name"
    for verb in explain "report --json"; do
      # shellcheck disable=SC2086
      timeout -s KILL 120 "$stowage" $verb pipes > said 2>&1 < /dev/null
      case $? in 0 | 1 | 2) ;; *) echo "$verb waits for the pipe $name"; return 1 ;; esac
      [ -s said ] || { echo "$verb says nothing about the pipe $name"; return 1; }
    done
  done
}
check pipes_in_the_folder_of_a_run_are_not_opened pipes_in_the_folder_of_a_run_are_not_opened

# What was seen last is printed although the folder of the run takes no more, as on a full disk: here another thing has the name.
a_record_that_cannot_be_written_is_reported() {
  cat > takes.py << 'END'
import glob, os, time
held = [bytearray(100 << 20)]
time.sleep(0.5)
run, = glob.glob(os.environ["XDG_STATE_HOME"] + "/stowage/runs/2*")
while not os.path.isdir(run + "/host/taken"):
    try:
        if os.path.exists(run + "/host"):
            os.unlink(run + "/host")
        os.makedirs(run + "/host/taken")
    except OSError:  # it was written again meanwhile
        pass
while True:
    held.append(bytearray(8 << 20))
END
  XDG_STATE_HOME=$folder/taken fails 137 "$stowage" run --ram-limit 300M -- python3 takes.py || { cat said; return 1; }
  grep -q 'cannot write .*/host: Is a directory; stowage explain --last lacks' said && grep -qE 'at the peak (29|3[0-9])[0-9]\.[0-9] MiB of host memory' said ||
    { cat said; return 1; }
}
check a_record_that_cannot_be_written_is_reported a_record_that_cannot_be_written_is_reported

# Someone prepares the folder where files of runs go, for example in a shared XDG_STATE_HOME.
a_state_folder_of_another_user_is_refused() {
  local theirs
  for theirs in planted/stowage planted/stowage/runs; do
    rm -rf planted; mkdir -p -m 777 "$theirs"; chown 12345 "$theirs" || return 1
    XDG_STATE_HOME=$folder/planted fails 125 "$stowage" run --ram-limit 1G -- touch ran && grep -q 12345 said && [ ! -e ran ] || return 1
    [ -z "$(find planted -type f)" ] || { find planted; return 1; }
  done
  rm -rf planted; mkdir -p planted disk; ln -s ../disk planted/stowage # one's own link
  XDG_STATE_HOME=$folder/planted "$stowage" run --quiet --ram-limit 1G -- true && [ -d disk/runs ]
}
if [ "$(id -u)" = 0 ]; then check a_state_folder_of_another_user_is_refused a_state_folder_of_another_user_is_refused
else skip "a_state_folder_of_another_user_is_refused: only root can make one"; fi
finish
