#!/usr/bin/env bash
# A command that runs out of memory is explained when it ends, and again by `explain --last`, however it ended; a command that
# did not run out is reported as such. All output is compared with tests/shim/explain.txt, with process numbers and folders
# masked.
. "$(dirname "$0")/lib.bash"
if ! has python3; then skip "what_a_run_says: no python3"; finish; fi
export PYTHONPATH=$source_dir/tests/shim/python PYTHONDONTWRITEBYTECODE=1
cp "$source_dir"/tests/shim/python/programs/*.py "$folder"
cd "$folder" || exit 1
# session WORDS…: prints the command and its output, as a terminal shows it, without Python's traceback.
session() {
  echo "\$ stowage $*"
  timeout -k 2 200 "$stowage" "$@" 2>&1 < /dev/null | sed -E '/^Traceback/,/^[A-Za-z.]+(Error|Interrupt)/{/^[A-Za-z.]+(Error|Interrupt)/!d}'
  echo "(exit ${PIPESTATUS[0]})"
}
# Whether such a short program is seen with more than 16 MiB depends on the moment.
mask() { sed -E "/^stowage run: at the peak [0-9.]+ MiB of host memory\$/d; s#$source_dir/##g; s#$folder/##g; s/process [0-9]+/process N/g; s/[0-9]{8}-[0-9]{6}-[0-9]+/RUN/g"; }
{
  session explain --last
  session run --vram-limit 100M -- python3 torch_leak.py
  session explain --last
  STANDIN_TORCH=$programs/libc10_cuda.so session run --vram-limit 100M -- python3 torch_blocks.py
  session explain --last
  STANDIN_TORCH=$programs/libc10_cuda.so session run --vram-limit 100M -- python3 torch_cache_then_other.py
  session explain --last
  session run --vram-limit 100M -- python3 plain_leak.py
  session explain --last
  session run --vram-limit 100M -- python3 caught.py
  session explain --last
  session run -- sh -c 'exit 3'
  session explain --last
  session run -- sh -c 'kill -TERM $$'
  session explain --last --short
  session run --vram-limit 100M --record leak.stow -- python3 plain_leak.py
  session explain --last --short
  session explain --last leak.stow
  session explain .
} | mask > "$folder/out"
if [ -n "${STOWAGE_GOLDEN_WRITE:-}" ]; then cp "$folder/out" "$source_dir/tests/shim/explain.txt"; fi
check what_a_run_says diff -u "$source_dir/tests/shim/explain.txt" "$folder/out"

# The purpose of a plain program's memory is unknown, and not guessed.
timeout -k 2 200 "$stowage" run --vram-limit 100M -- sh -c "'$holder' alloc:$((60 * M)) alloc:$((60 * M)); exit 1" > /dev/null 2> "$folder/err" < /dev/null
"$stowage" explain --last >> "$folder/err" 2>&1
if grep -q 'why: What was allocated before the first free does not fit: 60.0 MiB, of 100.0 MiB' "$folder/err" && ! grep -qi 'model\|the weights\|torch' "$folder/err"; then ok a_plain_program_is_not_taken_for_a_model; else cat "$folder/err"; fail a_plain_program_is_not_taken_for_a_model; fi

# One array that is larger than the machine's memory, which the run knows and the error does not.
"$stowage" run -- python3 -c 'raise MemoryError("Unable to allocate 20.0 TiB for an array with shape (2000, 2000, 687200) and data type float64")' \
  > /dev/null 2> "$folder/err"
if grep -q 'why: One request for 20.0 TiB is larger than all host memory, ' "$folder/err" && grep -q 'fix: do not make it as a whole' "$folder/err"; then
  ok an_array_larger_than_the_machine_is_named_as_that; else cat "$folder/err"; fail an_array_larger_than_the_machine_is_named_as_that; fi

# The error of a request does not name what the program holds; the run does. These programs take 50 ms: on a busy machine they could
# end before the thread that asks for their exit has run. So they wait for it.
cat > armed.py <<'P'
import atexit, time
while not atexit._ncallbacks():
    time.sleep(0.001)
P
cat > holds.py <<'P'
import sys, armed
rows = []
for _ in range(80):
    rows.append(bytearray(1 << 20))
if len(sys.argv) > 1:
    raise MemoryError()
P
"$stowage" run -- python3 holds.py fail > /dev/null 2> "$folder/err"
"$stowage" explain --last > "$folder/said"
"$stowage" run -- python3 holds.py 2> /dev/null
"$stowage" explain --last >> "$folder/said"
line='at the peak [0-9.]+ MiB of host memory; largest: rows: a list of 80 bytearray objects, 80\.0 MiB, .*line 4 of holds\.py$'
if grep -q '^stowage run: why: ' "$folder/err" && grep -qE "^stowage run: $line" "$folder/err" && [ "$(grep -cE "^  $line" "$folder/said")" = 2 ]; then
  ok the_largest_holder_is_named_with_an_error_and_without_one; else cat "$folder/err" "$folder/said"; fail the_largest_holder_is_named_with_an_error_and_without_one; fi

# A machine so busy that `stowage run` itself gets no turn until the program has ended: no sample saw the process.
cat > unseen.py <<'P'
import os, signal, time, armed
parent = os.getppid()
os.kill(parent, signal.SIGSTOP)
rows = []
for _ in range(80):
    rows.append(bytearray(1 << 20))
if os.fork() == 0:
    while os.getppid() not in (1, parent):
        time.sleep(0.01)
    time.sleep(1)
    os.kill(parent, signal.SIGCONT)
    os._exit(0)
P
"$stowage" run -- /usr/bin/python3 unseen.py > /dev/null 2> "$folder/err"
"$stowage" explain --last > "$folder/said"
line='at the peak [0-9.]+ MiB of host memory; largest: rows: a list of 80 bytearray objects, 80\.0 MiB, .*line 6 of unseen\.py$'
if grep -qE "^stowage run: $line" "$folder/err" && grep -qE "^  $line" "$folder/said"; then
  ok a_process_that_no_sample_saw_is_explained; else cat "$folder/err" "$folder/said"; fail a_process_that_no_sample_saw_is_explained; fi

# A run that was interrupted itself: its ring has the events.
set -m
"$stowage" run --vram-limit 100M -- python3 plain_leak.py wait > "$folder/said" 2> /dev/null &
pid=$!
set +m
for turn in $(seq 600); do grep -q waits "$folder/said" && break; read -r -t 0.1 <> <(:); done
child=$(cat "/proc/$pid/task/$pid/children")
kill -KILL "$pid" $child; wait "$pid" 2> /dev/null
if "$stowage" explain --last --short | grep_all '^leak'; then ok a_run_that_was_killed_is_explained_from_its_ring; else "$stowage" explain --last; fail a_run_that_was_killed_is_explained_from_its_ring; fi

# Ranks of a launcher: each has its own files in one folder, and the one that failed is explained.
cat > launch.sh << 'END'
run() { RANK=$1 LOCAL_RANK=$1 WORLD_SIZE=3 python3 torch_leak.py "$2"; }
run 0 2 & run 2 2 & wait
run 1 40
END
"$stowage" run --vram-limit 100M -- bash launch.sh > /dev/null 2> err
names=$(ls "$XDG_STATE_HOME/stowage/runs/last" | sed -E 's/-[0-9]+\././' | tr '\n' ' ')
if [ "$names" = "end host ledger rank0.stow rank1.error rank1.pickle rank1.stow rank2.stow watch " ]; then ok ranks_have_files_of_their_own; else cat err; fail "ranks_have_files_of_their_own: $names"; fi
if grep -q 'why: Live memory grows by' err; then ok and_the_one_that_failed_is_explained; else cat err; fail and_the_one_that_failed_is_explained; fi
finish
