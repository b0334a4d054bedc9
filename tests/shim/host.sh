#!/usr/bin/env bash
# Host memory: programs that really run out of it, each for one reason, under a limit; that reason must be named first. Also what
# a killed process leaves behind.
. "$(dirname "$0")/lib.bash"
. "$source_dir/tests/cli/numpy.bash"
export STOWAGE_LIBCUDA=/nonexistent # no driver is needed for this
require_numpy why_host_memory_ran_out
late=$programs/liblate.so
programs=$source_dir/tests/shim/python/programs
export PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1
# Sparse files, whose bytes are read like others. The last argument is set under `make test-long`.
"$python" - "$folder" "${STOWAGE_TEST_LONG:-}" << 'END'
import gzip, numpy, sys
folder = sys.argv[1]
numpy.lib.format.open_memmap(folder + "/data.npy", mode="w+", dtype="f8", shape=(90_000, 1000))
with open(folder + "/data.txt", "wb") as file:
    file.truncate(700_000_000)
if not sys.argv[2]:
    sys.exit()
with open(folder + "/data.csv", "w") as file:
    file.write(",".join("abcdefgh") + "\n")
    file.write((",".join(["0.123456789012"] * 8) + "\n") * 2_500_000)
with open(folder + "/short.csv", "w") as file:
    file.write("a,b,c,d\n")
    file.write("1,2,3,4\n" * 8_000_000)
with gzip.open(folder + "/data.txt.gz", "wb", 1) as file:
    for _ in range(500):
        file.write(b"words and words\n" * 65536)
END
# runs_out CAUSE PROGRAM WORDS…
runs_out() {
  local cause=$1 program=$2 code; shift 2
  { timeout -k 2 200 "$stowage" run --ram-limit "${limit:-250M}" -- "$python" "$programs/$program.py" "$@" > "$folder/out" 2> "$folder/err"; } 2> /dev/null; code=$?
  said=$("$stowage" explain --last --short)
  if [ $code = 137 ] && [[ $said = "$cause ("* ]] && grep -q "why: ${said#*: }"'\|why: ' "$folder/err"; then ok "$program: ${said:0:110}"; else cat "$folder/err"; "$stowage" explain --last; fail "$program: code $code, $said"; fi
}
# One program per cause, and those whose process answers late or through a child. tests/long/sweeps.sh runs all of them.
runs_out host_dataset_whole host_dataset_whole "$folder/data.npy"
runs_out host_leak host_leak_lock # it answers seconds after it was asked
runs_out host_leak host_leak_fork # the child answers
runs_out host_copies host_copies
runs_out host_objects host_objects
runs_out host_workers host_workers
runs_out host_limit host_limit
runs_out host_objects host_silent # it never answers: its line is read without the interpreter's lock
check the_line_of_a_call_that_does_not_return_is_named grep -q 'ine 5 of host_silent\.py makes numbers' <<< "$said"
# The same where our thread comes too late to set up the interpreter: short pauses take seconds.
LD_PRELOAD=$late runs_out host_objects host_silent
check its_line_is_named_before_the_interpreter_is_set_up grep -q 'ine 5 of host_silent\.py makes numbers' <<< "$said"
if [ -n "${STOWAGE_TEST_LONG:-}" ]; then
  runs_out host_dataset_whole host_dataset_lines "$folder/data.txt"
  if "$python" -c 'import pandas' 2> /dev/null; then
    limit=160M runs_out host_dataset_whole host_dataset_csv "$folder/data.csv"
    runs_out host_dataset_whole host_dataset_csv "$folder/short.csv"
    runs_out host_copies host_copies_concat
  else
    skip "host_dataset_csv, host_copies_concat: no pandas"
  fi
  runs_out host_dataset_whole host_dataset_packed "$folder/data.txt.gz"
  runs_out host_leak host_leak_cache
  runs_out host_leak host_leak_listeners
  runs_out host_leak host_leak_function
  runs_out host_leak host_leak_held
  limit=375M runs_out host_copies host_copies_line # the array alone is not yet the six tenths at which it is asked
  limit=280M runs_out host_copies host_copies_steps
  runs_out host_copies host_copies_joined "$folder/data.txt"
  runs_out host_objects host_objects_unnamed
  runs_out host_objects host_objects_text
  runs_out host_workers host_workers_list
  limit=200M runs_out host_workers host_workers_tasks
  runs_out host_limit host_limit_fields
  runs_out host_limit host_limit_product
fi
runs_out host_leak host_leak

# The complete output for one program, numbers masked.
{
  cat "$folder/err"
  "$stowage" explain --last
} | sed -E "s#$programs/##g; s/process [0-9]+/process N/g; s/[0-9.]+ (B|KiB|MiB|GiB)/SIZE/g; s/ +SIZE/ SIZE/; s/a list of [0-9]+/a list of N/; s/line [0-9]+/line LINE/; s/py:[0-9]+/py:LINE/" > "$folder/all"
if [ -n "${STOWAGE_GOLDEN_WRITE:-}" ]; then cp "$folder/all" "$source_dir/tests/shim/host.txt"; fi
check all_that_is_reported_of_one diff -u "$source_dir/tests/shim/host.txt" "$folder/all"

# Processes whose parent has ended become children of the run, which reaps them: no zombie is left.
left=$("$stowage" run --ram-limit auto -- bash -c '
  for i in 1 2 3; do (: & echo $! >> "$1"); done
  for turn in $(seq 600); do
    left=0; for pid in $(cat "$1"); do [ -e "/proc/$pid" ] && left=1; done
    [ $left = 0 ] && break; read -r -t 0.05 <> <(:)
  done; echo $left' - "$folder/orphans" 2> /dev/null)
if [ "$left" = 0 ]; then ok those_that_come_to_the_run_are_let_go; else fail "those_that_come_to_the_run_are_let_go: $left"; fi

# The kernel's own kill, in a control group of ours: --ram-limit auto recorded the approach, and the record stays.
group=
for root in /sys/fs/cgroup/memory /sys/fs/cgroup; do
  [ -e "$root/cgroup.procs" ] && mkdir "$root/stowage-test-$$" 2> /dev/null && group=$root/stowage-test-$$ && break
done
for bound in memory.limit_in_bytes memory.max; do
  [ -n "$group" ] && [ -e "$group/$bound" ] && echo $((200 << 20)) > "$group/$bound" 2> /dev/null && bounded=1
done
# in_group NAME OPTIONS… -- COMMAND…: runs the command in that group; fails if there can be none. Rarely the kernel takes `stowage run` as
# well, while the command still ends: again then.
in_group() {
  local name=$1 turn; shift
  if [ -z "${bounded:-}" ] || ! (echo $BASHPID > "$group/cgroup.procs") 2> /dev/null; then
    skip "$name: control groups of memory cannot be made here"
    return 1
  fi
  for turn in 1 2 3; do
    { bash -c 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"' - "$group" timeout -k 2 200 "$stowage" run "$@" > "$folder/out" 2> "$folder/err"; } 2> /dev/null; code=$?
    said=$("$stowage" explain --last)
    grep -q 'The end of the run was not recorded' <<< "$said" || break
  done
}
# killed NAME COMMAND…: runs it, and checks what it leaves.
killed() {
  local name=$1; shift
  in_group "$name" --ram-limit auto -- "$@" || return
  if [ $code = 137 ] && grep -q 'killed by SIGKILL, by the kernel, because host memory ran out ' "$folder/err" && grep -q '200.0 MiB  of the control group' <<< "$said" && grep -q 'host_leak, confidence' <<< "$said"; then ok "$name"; else cat "$folder/err"; echo "$said"; fail "$name: code $code"; fi
}
# Only a worker of it is killed, which the command reports in its own way; and a run without options.
worker='import subprocess, sys; sys.exit(3 if subprocess.run(sys.argv[1:]).returncode else 0)'
if in_group a_worker_killed_by_the_kernel_is_reported --ram-limit auto -- "$python" -c "$worker" "$python" "$programs/host_leak.py"; then
  who='a process of it was '
  [ $code = 137 ] && who= # the kernel may take the one that started it as well
  if [[ $code = 3 || $code = 137 ]] && grep -q "run: ${who}killed by SIGKILL, by the kernel, because host memory ran out " "$folder/err" && grep -q 'host_leak, confidence' <<< "$said"; then ok a_worker_killed_by_the_kernel_is_reported; else cat "$folder/err"; echo "$said"; fail "a_worker_killed_by_the_kernel_is_reported: code $code"; fi
fi
if in_group a_kill_by_the_kernel_is_explained_without_options -- "$python" "$programs/host_leak.py"; then
  if [ $code = 137 ] && grep -q 'killed by SIGKILL, by the kernel, because host memory ran out ' "$folder/err" && grep -q 'host_leak, confidence' <<< "$said"; then ok a_kill_by_the_kernel_is_explained_without_options; else cat "$folder/err"; echo "$said"; fail "a_kill_by_the_kernel_is_explained_without_options: code $code"; fi
fi
if in_group a_kill_by_somebody_else_is_not_the_kernels -- sh -c 'kill -KILL $$'; then
  if [ $code = 137 ] && ! grep -q kernel "$folder/err" && grep -q 'there is no sign that memory ran out' <<< "$said"; then ok a_kill_by_somebody_else_is_not_the_kernels; else cat "$folder/err"; echo "$said"; fail "a_kill_by_somebody_else_is_not_the_kernels: code $code"; fi
fi
# The kernel counts kills per group: another process of the group is killed while a command fails for another reason.
if [ -n "${bounded:-}" ]; then
  mkfifo "$folder/started" "$folder/go"
  { read -r _ < "$folder/started"; bash -c 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"' - "$group" "$python" "$programs/host_leak.py"; echo > "$folder/go"; } > /dev/null 2>&1 &
  other=$!
  if in_group another_ones_kill_is_not_the_commands --ram-limit auto -- sh -c 'echo > "$1/started"; read -r _ < "$1/go"; exit 1' - "$folder"; then
    if [ $code = 1 ] && ! grep -q kernel "$folder/err" && grep -q 'there is no sign that memory ran out' <<< "$said"; then ok another_ones_kill_is_not_the_commands; else cat "$folder/err"; echo "$said"; fail "another_ones_kill_is_not_the_commands: code $code"; fi
    wait "$other"
  else
    kill "$other"
  fi
fi
killed a_kill_by_the_kernel_leaves_its_record "$python" "$programs/host_leak.py"
killed a_kill_that_a_shell_reports_counts sh -c '"$@"; exit $?' - "$python" "$programs/host_leak.py"
for turn in $(seq 300); do [ -z "$group" ] || rmdir "$group" 2> /dev/null && break; read -r -t 0.1 <> <(:); done

# There is no record of the end: the run was killed with all the others.
cut=$(ls -d "$XDG_STATE_HOME"/stowage/runs/*/ | tail -n 1)
[ -z "${bounded:-}" ] || rm -f "$cut/end"
[ -z "${bounded:-}" ] || sed -i 's/^ended.*/ended\t/' "$cut/host"
if [ -z "${bounded:-}" ]; then skip "a_run_cut_off_is_explained: no record of a kill"; elif [[ $("$stowage" explain --last --short) = "host_leak ("* ]]; then ok a_run_cut_off_is_explained; else fail "a_run_cut_off_is_explained: $("$stowage" explain --last --short)"; fi

# An exception about host memory, in a program without CUDA.
timeout -k 2 200 "$stowage" run --ram-limit 8G -- "$python" -c 'import numpy; numpy.ones(1 << 50)' > "$folder/out" 2> "$folder/err"; code=$?
if [ $code = 1 ] && grep -q 'why: One request for 8.0 PiB is larger than all host memory, ' "$folder/err"; then ok an_exception_about_memory_is_explained; else cat "$folder/err"; fail "an_exception_about_memory_is_explained: $code"; fi
# A limit of the process itself.
timeout -k 2 200 "$stowage" run --ram-limit 8G -- "$python" -c '
import numpy, resource
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
numpy.ones(1 << 28)' > "$folder/out" 2> "$folder/err"; code=$?
said=$("$stowage" explain --last --short)
if [ $code = 1 ] && [[ $said = "host_limit (0.80): The process has its own limit of 2.0 GiB, and requested 2.0 GiB more; raise it"* ]]; then ok a_limit_of_the_process_is_named; else cat "$folder/err"; fail "a_limit_of_the_process_is_named: $code, $said"; fi
# The program catches the error and ends by itself.
cat > "$folder/catches.py" << 'END'
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
rows = []
try:
    while True:
        rows.append(b"x" * (1 << 20))
except MemoryError:
    raise SystemExit(4)
END
timeout -k 2 200 "$stowage" run -- "$python" "$folder/catches.py" > "$folder/out" 2> "$folder/err"; code=$?
if [ $code = 4 ] && grep -qE '^stowage run: the process used [0-9.]+ (MiB|GiB) of its own limit of 1.0 GiB on address space' "$folder/err" && grep -q 'rows: a list of .* at line 6 of catches.py$' "$folder/err"; then ok a_limit_that_the_program_survives_is_named; else cat "$folder/err"; fail "a_limit_that_the_program_survives_is_named: $code"; fi
# A command that ends before the watch sees that it is above the limit, or at once after that.
cat > "$folder/jumps.py" << 'END'
import mmap
mmap.mmap(-1, 600 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000).close()  # MAP_POPULATE
END
timeout -k 2 200 "$stowage" run --ram-limit 300M -- "$python" "$folder/jumps.py" > "$folder/out" 2> "$folder/err"; code=$?
if grep -q '^stowage run: the command exceeded the 300.0 MiB of --ram-limit' "$folder/err"; then ok a_limit_exceeded_for_a_moment_is_reported; else cat "$folder/err"; fail "a_limit_exceeded_for_a_moment_is_reported: $code"; fi
# A run without anything to report still becomes the last run.
timeout -k 2 200 "$stowage" run -- sh -c 'exit 5' > "$folder/out" 2> "$folder/err"
said=$("$stowage" explain --last)
if [[ $said = "The run (sh -c exit 5) ended with code 5; there is no sign that memory ran out."* ]]; then ok the_last_run_is_the_last_one; else fail "the_last_run_is_the_last_one: $said"; fi
# C code fills a tuple while the process is asked: a second reference to it would make the program fail.
cat > "$folder/fills.py" << 'END'
def part(count):
    data = bytearray(8 << 20)
    for at in range(0, len(data), 4096):
        data[at] = 1
    return data, [str(k) for k in range(count)]
parts = tuple(part(20000) for _ in range(24))
print(len(parts))
END
timeout 100 "$stowage" run -- "$python" "$folder/fills.py" > "$folder/out" 2> "$folder/err"; code=$?
if [ $code = 0 ] && [ "$(cat "$folder/out")" = 24 ] && grep -q 'at the peak' "$folder/err"; then ok a_tuple_that_is_being_filled_is_left_alone; else cat "$folder/err"; fail "a_tuple_that_is_being_filled_is_left_alone: $code"; fi
# Without options: the peak, the largest holder and its line; one line if all is well.
cat > "$folder/keeps.py" << 'END'
import numpy
rows = []
for turn in range(40):
    rows.append(numpy.ones(1 << 19))
END
timeout -k 2 200 "$stowage" run -- "$python" "$folder/keeps.py" > "$folder/out" 2> "$folder/err"; code=$?
if [ $code = 0 ] && [ ! -s "$folder/out" ] && [ "$(wc -l < "$folder/err")" = 1 ] && grep -qE '^stowage run: at the peak 1[6-9][0-9]\.[0-9] MiB of host memory; largest: rows: a list of [0-9]+ arrays, .* at line 4 of keeps.py$' "$folder/err"; then ok without_options_the_largest_holder_is_named; else cat "$folder/err"; fail "without_options_the_largest_holder_is_named: $code"; fi
# An exception keeps the variables of its functions; a program of -c has lines too.
cat > "$folder/fails.py" << 'END'
import numpy
def load():
    parts = {}
    for turn in range(40):
        parts[turn] = numpy.ones(1 << 19)
    raise ValueError("no column 'price'")
load()
END
timeout -k 2 200 "$stowage" run -- "$python" "$folder/fails.py" > "$folder/out" 2> "$folder/err"; code=$?
if [ $code = 1 ] && grep -qE '^stowage run: .*; largest: parts: a dict of 40 arrays, 160.0 MiB, .* line 5 of fails.py$' "$folder/err"; then ok after_an_exception_the_largest_holder_is_named; else cat "$folder/err"; fail "after_an_exception_the_largest_holder_is_named: $code"; fi
timeout -k 2 200 "$stowage" run -- "$python" -c $'def load():\n    parts = [bytearray(4 << 20) for turn in range(40)]\n    raise ValueError\nload()' > "$folder/out" 2> "$folder/err"; code=$?
if [ $code = 1 ] && grep -qE '^stowage run: .*; largest: parts: a list of 40 bytearray objects, 160.0 MiB, in load' "$folder/err"; then ok in_a_program_of_c_the_largest_holder_is_named; else cat "$folder/err"; fail "in_a_program_of_c_the_largest_holder_is_named: $code"; fi
# Memory held for a moment, a second after the start, when samples are rare: it is named, or the line says that it was not seen.
cat > "$folder/moment.py" << 'END'
import time
keep = bytearray(200 << 20)
time.sleep(1.3)
def burst():
    text = b"x" * (400 << 20)
    return len(text)
burst()
time.sleep(0.3)
END
timeout -k 2 200 "$stowage" run -- "$python" "$folder/moment.py" > "$folder/out" 2> "$folder/err"; code=$?
if [ $code = 0 ] && grep -qE '^stowage run: at the peak 6[0-9][0-9]\.[0-9] MiB of host memory(; largest: text: a bytes, 400.0 MiB, made at line 5 of moment.py| for a moment \(stowage run --profile names the line\); 2[0-9.]+ MiB when the process was asked, largest then: keep: .*)$' "$folder/err"; then ok a_moment_is_named_or_said_to_be_missed; else cat "$folder/err"; fail "a_moment_is_named_or_said_to_be_missed: $code"; fi
# Much memory, then for longer less, which is reported too: the peak's holder is named.
if [ -n "${STOWAGE_TEST_LONG:-}" ]; then
  cat > "$folder/earlier.py" << 'END'
import time
much = bytearray(300 << 20)
time.sleep(2)
del much
time.sleep(4)
less = bytearray(150 << 20)
time.sleep(4)
END
  timeout -k 2 200 "$stowage" run -- "$python" "$folder/earlier.py" > "$folder/out" 2> "$folder/err"; code=$?
  if [ $code = 0 ] && grep -qE 'largest: much: a bytearray, 300.0 MiB, made at line 2 of earlier.py' "$folder/err"; then ok the_holder_of_the_peak_is_named; else cat "$folder/err"; fail "the_holder_of_the_peak_is_named: $code"; fi
fi
# The script that answers is compiled once. A file in its place that is damaged, or not the user's alone, is ignored and replaced.
code_file() { local found; found=("$XDG_CACHE_HOME"/stowage/python-report-*); [ ${#found[@]} = 1 ] && [ -f "${found[0]}" ] && echo "${found[0]}"; }
compiled() { # NUMBER: how often the next run compiles the script; its answer is the same
  rm -f "$folder/shim.log"
  STOWAGE_SHIM_LOG=$folder/shim.log timeout -k 2 200 "$stowage" run -- "$python" "$folder/keeps.py" > "$folder/out" 2> "$folder/err"
  [ "$(grep -c 'compiled <stowage report.py>' "$folder/shim.log")" = "$1" ] && grep -q 'at line 4 of keeps.py$' "$folder/err" || { cat "$folder/shim.log" "$folder/err"; return 1; }
}
the_script_is_compiled_once() {
  local file; file=$(code_file) || { ls -l "$XDG_CACHE_HOME/stowage"; return 1; }
  [ "$(stat -c %a "$file")" = 600 ] && compiled 0 || return 1
  truncate -s -1 "$file"; compiled 1 && compiled 0 || return 1
  printf x | dd of="$file" bs=1 seek=500 conv=notrunc status=none; compiled 1 && compiled 0 || return 1
  chmod 620 "$file"; compiled 1 && compiled 0 || return 1
  mv "$file" "$folder/code"; ln -s "$folder/code" "$file"; compiled 1 && [ ! -L "$file" ] && compiled 0 || return 1
  rm "$file"; mkdir "$file"; compiled 1 && compiled 1 && rmdir "$file" || return 1
  if [ "$(id -u)" = 0 ]; then cp "$folder/code" "$file"; chown 12345 "$file"; compiled 1 && [ "$(stat -c %u "$file")" = 0 ]; fi
}
check the_script_is_compiled_once the_script_is_compiled_once

# The interpreter ends while our thread looks at an object that lets other threads run. The thread must be out of it by then.
mkdir -p "$folder/site-packages"
cat > "$folder/site-packages/h5py.py" << 'END'
import os, threading, time
class Slow: # of a known library: code of the program is not called
    dtype, shape = "float32", (1,)
    @property
    def nbytes(self):
        if threading.current_thread() is threading.main_thread(): return 4
        open(os.environ["SEEN"] + ".in", "w").close()
        time.sleep(0.3)
        open(os.environ["SEEN"] + ".out", "w").close()
        return 4
END
cat > "$folder/slow.py" << 'END'
import os, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))
from h5py import Slow
slow, kept, end = Slow(), [], time.monotonic() + 30
while time.monotonic() < end and not os.path.exists(os.environ["SEEN"] + ".in"):
    if len(kept) < 12: kept.append(bytearray(b"x" * (32 << 20)))
    time.sleep(0.05)
END
SEEN=$folder/slow timeout -k 2 200 "$stowage" run -- "$python" "$folder/slow.py" > "$folder/out" 2> "$folder/err"; code=$?
if [ ! -e "$folder/slow.in" ]; then fail "a_report_ends_before_the_interpreter: no report: $(cat "$folder/err")"
elif [ $code = 0 ] && [ -e "$folder/slow.out" ]; then ok a_report_ends_before_the_interpreter; else cat "$folder/err"; fail "a_report_ends_before_the_interpreter: $code"; fi

# A child that is not Python, and one that is, between two samples of a second and more.
cat > "$folder/brief.py" << 'END'
import subprocess, sys, time
time.sleep(2)
if sys.argv[1] == "tail":
    subprocess.run("head -c 190000000 /dev/zero | tail -c 180000000 > /dev/null", shell=True)
else:
    subprocess.run([sys.executable, "-c", "kept = bytearray(200 << 20)"])
time.sleep(1)
END
for child in tail python; do
  "$stowage" run -- "$python" "$folder/brief.py" $child > "$folder/out" 2> "$folder/err"; code=$?
  case $child in tail) holder='tail, a process that the command started, 1[0-9.]+ MiB' ;; *) holder='kept: a bytearray, 200.0 MiB' ;; esac
  if [ $code = 0 ] && grep -qE "largest: $holder" "$folder/err"; then ok "a child that ends at once is named: $child"; else cat "$folder/err"; fail "a child that ends at once is named: $child: $code"; fi
done
# Workers that have ended before the command does are what held the memory at the peak. They wait until a sample has seen them.
cat > "$folder/pool.py" << 'END'
import multiprocessing, os, time
def work(barrier):
    mine = bytearray(b"x" * (24 << 20))
    barrier.wait()
    end = time.monotonic() + 20
    while time.monotonic() < end and not os.path.exists(os.environ["SEEN"]):
        time.sleep(0.05)
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(5)
    workers = [context.Process(target=work, args=(barrier,)) for _ in range(4)]
    for one in workers: one.start()
    barrier.wait()
    time.sleep(1.5)
    open(os.environ["SEEN"], "w").close()
    for one in workers: one.join()
    time.sleep(0.6)
END
SEEN=$folder/seen timeout -k 2 200 "$stowage" run -- "$python" "$folder/pool.py" > "$folder/out" 2> "$folder/err"; code=$?
if [ $code = 0 ] && grep -q '4 worker processes' "$folder/err"; then ok workers_that_have_ended_are_named; else cat "$folder/err"; fail "workers_that_have_ended_are_named: $code"; fi
timeout -k 2 200 "$stowage" run --quiet -- "$python" "$folder/keeps.py" > "$folder/out" 2> "$folder/err"
if [ ! -s "$folder/err" ]; then ok quiet_says_nothing; else cat "$folder/err"; fail quiet_says_nothing; fi
timeout -k 2 200 "$stowage" run -- true 2> "$folder/err"
if [ ! -s "$folder/err" ]; then ok a_small_command_says_nothing; else cat "$folder/err"; fail a_small_command_says_nothing; fi
printf 'rows = []\nfor i in range(1200000):\n    rows.append({"a": i, "b": i * 0.5})\n' > "$folder/objects.py"
timeout -k 2 200 "$stowage" run -- "$python" "$folder/objects.py" 2> "$folder/err"
if [ "$(wc -l < "$folder/err")" = 3 ] && grep -qE '^stowage run: wasted: about [0-9.]+ MiB: made of small Python objects$' "$folder/err" && grep -q '^stowage run: hint: keep rows as arrays' "$folder/err"; then ok what_is_clearly_wrong_is_a_hint; else cat "$folder/err"; fail what_is_clearly_wrong_is_a_hint; fi

# Objects in a cycle that nothing uses, which Python frees late: an error that a function keeps. The answer says "up to" if the collector
# ran between the first search, at 90% of the limit, and the one at the limit.
cat > "$folder/cycles.py" << 'END'
def fetch():
    page, kept = bytearray(b"x") * (1 << 21), None
    try:
        raise ValueError("bad page")
    except ValueError as error:
        kept = error
    return str(kept)
for turn in range(600):
    fetch()
END
timeout -k 2 200 "$stowage" run --ram-limit 200M -- "$python" "$folder/cycles.py" > /dev/null 2> "$folder/err"; code=$?
if [ $code != 0 ] && grep -qE '^stowage run: why: ([0-9.]+ MiB that nothing uses any more is not freed|Up to [0-9.]+ MiB that nothing uses any more waits to be freed): fetch\(\) objects that refer to each other \(kept in fetch\(\)\), made at line [26] of cycles.py$' "$folder/err" && grep -q '^stowage run: fix: collect at the end of each iteration: import gc; gc.collect()' "$folder/err"; then ok garbage_in_cycles_is_named; else cat "$folder/err"; fail "garbage_in_cycles_is_named: $code"; fi

# A search refers to what it looks at. The program stands still meanwhile, so what it lets go of ends as without us.
cat > "$folder/sessions.py" << 'END'
class Session:
    def __del__(self):
        print("closed")
def work():
    s = Session()
    s.rows = {i: [i] for i in range(700000)}
    return len(s.rows)
for turn in range(4):
    print(turn, work())
END
"$python" "$folder/sessions.py" > "$folder/alone"
timeout -k 2 200 "$stowage" run -- "$python" "$folder/sessions.py" > "$folder/out" 2> "$folder/err"; code=$?
if [ $code = 0 ] && cmp -s "$folder/alone" "$folder/out" && grep -q 's.rows' "$folder/err"; then ok what_a_program_lets_go_of_ends_at_once; else cat "$folder/out" "$folder/err"; fail "what_a_program_lets_go_of_ends_at_once: $code"; fi

# Without a GPU, --record records host memory.
printf 'import numpy, time\nrows = []\nfor turn in range(40):\n    rows.append(numpy.ones(1 << 19))\n    time.sleep(0.01)\n' > "$folder/keeps.py"
timeout -k 2 200 "$stowage" run --record "$folder/host.stow" -- "$python" "$folder/keeps.py" 2> "$folder/err"; code=$?
said=$("$stowage" explain "$folder/host.stow")
if [ $code = 0 ] && grep -qE '^Host memory: at most 1[4-9][0-9]\.[0-9] MiB ' <<< "$said" && grep -qE '^  rows +[0-9.]+ MiB  line 4 of keeps.py$' <<< "$said"; then ok host_memory_is_recorded_without_a_device; else cat "$folder/err"; echo "$said"; fail "host_memory_is_recorded_without_a_device: $code"; fi

# A process that is asked continues, with its threads and children.
timeout -k 2 200 "$stowage" run --ram-limit 300M -- "$python" "$programs/host_asked.py" > "$folder/out" 2> "$folder/err"; code=$?
if [ $code = 0 ] && [ "$(cat "$folder/out")" = well ]; then ok one_that_is_asked_continues; else cat "$folder/err"; fail "one_that_is_asked_continues: code $code"; fi
# A process that succeeds prints only its peak; its threads and forks behave as without us.
timeout -k 2 200 "$stowage" run --ram-limit 8G -- "$python" -c '
import os, threading
assert threading.active_count() == 1 and threading.main_thread() is threading.current_thread()
pid = os.fork()
if pid == 0: os._exit(0)
assert os.waitpid(pid, 0)[1] == 0' > "$folder/out" 2> "$folder/err"; code=$?
if [ $code = 0 ] && [ ! -s "$folder/out" ] && [ "$(wc -l < "$folder/err")" = 1 ] && grep -q 'at the peak' "$folder/err"; then ok one_that_ends_well_is_left_alone; else cat "$folder/err"; fail one_that_ends_well_is_left_alone; fi
finish
