#!/usr/bin/env bash
# stowage run ends as its command ends, forwards signals, and does not affect programs that do not use CUDA.
. "$(dirname "$0")/lib.bash"
code() { # NAME CODE COMMAND…
  local name=$1 want=$2 got; shift 2
  "$@" > "$folder/out" 2>&1 < /dev/null; got=$?
  if [ "$got" = "$want" ]; then ok "$name"; else cat "$folder/out"; fail "$name: code $got instead of $want"; fi
}
said() { # NAME WORDS: the last command said so
  if grep -q -- "$2" "$folder/out"; then ok "$1"; else cat "$folder/out"; fail "$1: no \"$2\""; fi
}
code the_exit_code_is_the_commands 7 stowage_run -- sh -c 'exit 7'
code a_command_not_found_is_127 127 stowage_run -- no-such-command-here
said and_is_reported 'no such command on PATH'
code a_file_that_cannot_be_executed_is_126 126 stowage_run -- /etc/passwd
code a_folder_is_126 126 stowage_run -- /
printf '#!/no/such/interpreter\n' > "$folder/orphan" && chmod +x "$folder/orphan"
code a_script_whose_interpreter_is_missing_is_126 126 stowage_run -- "$folder/orphan"
said and_says_that_it_is 'the interpreter in its first line'
code no_command_is_a_wrong_command_line 2 stowage_run
code an_unknown_option_is_a_wrong_command_line 2 stowage_run --no-such-option -- true
code an_option_where_a_value_should_be_is_a_wrong_command_line 2 stowage_run --vram-limit --spill auto -- true
code and_so_is_the_end_of_the_options 2 stowage_run --record -- true
said and_says_what_is_missing '--record needs a value'
code the_commands_own_options_are_its_own 0 stowage_run test -n x
code no_shim_is_125 125 env STOWAGE_SHIM=/nonexistent "$stowage" run -- true
said and_says_what_to_do 'STOWAGE_SHIM names'
code a_signal_that_kills_the_command_ends_us_alike 143 bash -c "'$stowage' run -- sh -c 'kill -TERM \$\$'; exit \$?"

# A signal to us reaches the command, which ends in its own way.
mkfifo "$folder/ready"
for signal in TERM INT HUP USR1 ALRM ABRT PIPE XCPU RTMIN+3; do
  # A background job of a script ignores INT unless it uses job control.
  set -m
  run_pid=
  "$stowage" run -- bash -c "trap 'exit 42' $signal; echo > '$folder/ready'; while kill -0 \$PPID; do read -t 1 < /dev/zero; done" 2> /dev/null &
  run_pid=$!
  set +m
  read -r < "$folder/ready"
  kill -s "$signal" "$run_pid"
  wait "$run_pid"; got=$?
  if [ $got = 42 ]; then ok "SIG${signal}_is_passed_on"; else fail "SIG${signal}_is_passed_on: code $got"; fi
done

# An alarm that was set before our start goes to the command.
if has perl; then
  code an_alarm_set_before_ends_the_command 142 perl -e 'alarm 1; exec @ARGV' "$stowage" run -- sh -c "echo \$\$ > '$folder/pid'; exec sleep 20"
  if ! kill -0 "$(cat "$folder/pid")" 2> /dev/null; then ok and_leaves_nothing_behind; else fail and_leaves_nothing_behind; fi
else
  skip "an_alarm_set_before_ends_the_command: no perl"
fi

# The reader of our output may have exited before the end: we still end as the command ends, and its record is complete.
mkfifo "$folder/gone"
(head -c 1 < "$folder/gone" > /dev/null; echo > "$folder/ready") &
"$stowage" run --vram-limit 64M --record "$folder/gone.stow" -- bash -c "echo said >&2; read -r < '$folder/ready'; '$holder' alloc:$M; exit 7" > /dev/null 2> "$folder/gone"; got=$?
if [ $got = 7 ] && [ -s "$folder/gone.stow" ]; then ok a_reader_that_has_gone_costs_neither_exit_code_nor_record; else fail "a_reader_that_has_gone_costs_neither_exit_code_nor_record: code $got"; fi
code a_limit_on_files_is_reported 125 bash -c "ulimit -f 1; '$stowage' run -- true 2>&1 | cat; exit \${PIPESTATUS[0]}"
said and_says_which 'File too large'

# However it was started, the command behaves as without us, and its end is reported.
code the_exit_code_is_reported_where_ended_children_are_ignored 7 bash -c "trap '' CHLD; '$stowage' run -- sh -c 'exit 7'"
if has python3; then
  code ignored_children_are_ignored_by_the_command_too 0 bash -c "trap '' CHLD; '$stowage' run -- grep -q 'SigIgn:.*1....$' /proc/self/status"
  # Only the leader of a session learns that its terminal is gone.
  code a_terminal_that_goes_ends_the_command_of_a_session_leader 0 timeout 120 python3 -c '
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0: os.execv(sys.argv[1], [sys.argv[1], "run", "--", "bash", "-c", "trap \"exit 42\" HUP; echo > " + sys.argv[2] + "; while :; do read -t 1 < /dev/zero; done"])
open(sys.argv[2]).read()
os.close(terminal)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 42)' "$stowage" "$folder/ready"
else
  skip "a_terminal_that_goes_ends_the_command_of_a_session_leader: no python3"
fi
# A closed stream is not reused for one of our files, which would then receive our messages.
"$stowage" run -- bash -c "readlink /proc/\$PPID/fd/2; [ -e /proc/\$\$/fd/2 ] || echo closed" > "$folder/out" 2>&-
if [ "$(cat "$folder/out")" = $'/dev/null\nclosed' ]; then ok a_closed_stream_stays_closed; else cat "$folder/out"; fail a_closed_stream_stays_closed; fi
if "$stowage" info >&- 2> /dev/null; then fail an_answer_nobody_can_read_is_a_failure; else ok an_answer_nobody_can_read_is_a_failure; fi
code a_folder_that_cannot_be_made_is_125 125 env XDG_STATE_HOME=/dev/null/state "$stowage" run -- true
said and_says_which_can 'set XDG_STATE_HOME'

# Programs that never call CUDA run as without it: the driver is not even opened.
export STOWAGE_SHIM_LOG=$folder/shim.log
same bash_is_unharmed "hello 3" stowage_run -- bash -c 'x=$(echo hello); echo "$x $((1 + 2))"'
same a_pipeline_is_unharmed 1000 stowage_run -- sh -c 'seq 1000 | sort -n | tail -n 1'
echo 'int main(void) { return 0; }' > "$folder/a.c"
code a_compiler_is_unharmed 0 stowage_run -- "${CC:-cc}" -o "$folder/a.out" "$folder/a.c"
if has python3; then
  same python_with_subprocesses_and_forks_is_unharmed 'ok 6' stowage_run --quiet -- python3 -c '
import subprocess, multiprocessing, os
def f(i): return i
if __name__ == "__main__":
    assert subprocess.run(["true"]).returncode == 0
    with multiprocessing.get_context("fork").Pool(2) as pool: n = sum(pool.map(f, [1, 2, 3]))
    pid = os.fork()
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0)
    print("ok", n)'
else
  skip "python_with_subprocesses_and_forks_is_unharmed: no python3"
fi
with_numpy=
for python in python3 /usr/bin/python3; do
  if has "$python" && "$python" -c 'import numpy' 2> /dev/null; then with_numpy=$python; break; fi
done
if [ -n "$with_numpy" ]; then
  same python_with_numpy_is_unharmed '333283335000' stowage_run --quiet -- "$with_numpy" -c 'import numpy; print(int((numpy.arange(10000, dtype="int64") ** 2).sum()))'
else
  skip "python_with_numpy_is_unharmed: no python3 with numpy"
fi
# (The library that watches host memory logs the version of Python and what it knows of its frames.)
if [ ! -e "$folder/shim.log" ] || ! grep -qvE ' (python: [0-9]+|peek: frames (not )?known)$' "$folder/shim.log"; then ok none_of_them_opened_the_driver; else cat "$folder/shim.log"; fail none_of_them_opened_the_driver; fi
unset STOWAGE_SHIM_LOG

# Another library that intercepts the driver, known by its name: it is reported, and both work.
cp "$programs/librival.so" "$folder/libvgpu.so"
same two_shims_are_reported "stowage run: libvgpu.so is also preloaded and also intercepts the driver: the lower limit of the two applies, and memory that it allocates is not counted here
alloc:4194304 0" env LD_PRELOAD="$folder/libvgpu.so" "$stowage" run --quiet -- "$holder" alloc:4194304

# A program that cannot be preloaded is reported, and runs anyway.
if "${CC:-cc}" -static -o "$folder/static" "$folder/a.c" 2> /dev/null; then
  code a_static_program_runs 0 stowage_run --quiet -- "$folder/static"
  said and_is_reported_as_out_of_reach 'is linked statically'
else
  skip "a_static_program_runs: no static libc"
fi
loader=$(readelf -l "$folder/a.out" 2> /dev/null | sed -nE 's/.*interpreter: (.*)\]/\1/p')
if [ -x "$loader" ]; then
  same a_program_that_its_loader_starts_is_reached "cuInit libstowage-shim.so" stowage_run -- "$loader" "$programs/path" dlopen where cuInit
else
  skip "a_program_that_its_loader_starts_is_reached: its loader is not known"
fi
cp "$folder/a.out" "$folder/setuid" && chmod u+s "$folder/setuid"
if [ "$(id -u)" = 0 ] && chown nobody "$folder/setuid" 2> /dev/null && chmod u+s "$folder/setuid"; then
  code a_setuid_program_runs 0 stowage_run -- "$folder/setuid"
  said and_is_reported_too 'with more privileges'
else
  skip "a_setuid_program_runs: needs root to make one"
fi
# Capabilities do not affect root's programs, so another user has to start it.
cp "$folder/a.out" "$folder/capable"
if [ "$(id -u)" = 0 ] && has setpriv && has setcap && setcap cap_net_raw+ep "$folder/capable" 2> /dev/null && chmod 755 "$folder" && mkdir -m 777 "$folder/theirs" &&
    setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$stowage"; then
  code a_program_with_capabilities_runs 0 setpriv --reuid=65534 --regid=65534 --clear-groups env XDG_STATE_HOME="$folder/theirs" "$stowage" run -- "$folder/capable"
  said and_is_reported_like_the_others 'with more privileges'
else
  skip "a_program_with_capabilities_runs: needs root, setcap and setpriv to make one"
fi
printf '#!/usr/bin/env bash\nexit 5\n' > "$folder/script" && chmod +x "$folder/script"
code a_script_runs 5 stowage_run -- "$folder/script"
if [ ! -s "$folder/out" ]; then ok and_nothing_is_reported; else cat "$folder/out"; fail and_nothing_is_reported; fi

# Host memory: watched, reported at the end, and explained if the command was killed. The first look into a program takes 7 MiB there,
# for code that is compiled once.
if has python3; then
  mkfifo "$folder/grown"
  set -m
  "$stowage" run --ram-limit 236M -- python3 -c "
import resource
_, held, shared = map(int, open('/proc/self/statm').read().split()[:3])
x = bytearray((222 << 20) - (held - shared) * resource.getpagesize())
open('$folder/grown', 'w').write('grown')
import signal; signal.pause()" 2> "$folder/err" &
  pid=$!
  set +m
  read -r < "$folder/grown"
  # It samples twice a second: wait for the message, at most ten seconds.
  for turn in $(seq 600); do grep -q ': 90% of ' "$folder/err" && break; read -r -t 0.1 <> "$folder/grown"; done
  pkill_pid=$(cat "/proc/$pid/task/$pid/children" 2> /dev/null); kill -KILL ${pkill_pid:-$pid}
  wait "$pid" 2> /dev/null; got=$?
  if grep -q '90% of the 236.0 MiB of host memory is used; the command holds [0-9.]* MiB.*python3.* holds most' "$folder/err"; then ok host_memory_running_out_is_reported; else cat "$folder/err"; fail host_memory_running_out_is_reported; fi
  if [ $got = 137 ] && grep -q 'killed by SIGKILL with .* left; when last seen the command holds ' "$folder/err"; then ok a_kill_is_explained; else cat "$folder/err"; fail "a_kill_is_explained: code $got"; fi
else
  skip "host_memory_running_out_is_reported: no python3"
fi
code a_ram_limit_that_is_no_size 2 stowage_run --ram-limit lots -- true

# The children of a command are under the shim too.
same children_inherit_it "cuInit libstowage-shim.so" stowage_run -- bash -c "'$programs/path' dlopen where cuInit"
same preloaded_libraries_of_others_stay "$shim:$build/libstowage-shim-alias.so:$programs/librival.so:$build/libstowage-host.so" env LD_PRELOAD="$programs/librival.so" "$stowage" run -- printenv LD_PRELOAD
code the_environment_alone_starts_nothing 0 "$stowage" run --vram-limit 8M --environment
if (set -a; . "$folder/out"; "$programs/path" dlopen where cuInit) > "$folder/out2" 2>&1 && grep -q 'libstowage-shim.so' "$folder/out2"; then ok and_is_enough_to_be_under_a_program; else cat "$folder/out" "$folder/out2"; fail and_is_enough_to_be_under_a_program; fi
code the_environment_and_a_command_are_one_too_many 2 "$stowage" run --environment -- true
mkdir "$folder/a b" && cp "$shim" "$folder/a b/"
code a_path_that_cannot_be_preloaded_is_125 125 env STOWAGE_SHIM="$folder/a b/libstowage-shim.so" "$stowage" run -- true
said and_reports_why 'a space or a colon'
finish
