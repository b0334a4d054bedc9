#!/usr/bin/env bash
# Long jobs, killed at every checkpoint and resumed, give the same bytes as without interruption. Checkpoints wait for the disk,
# which is not tested here, so the files are in memory if there is space.
if [ "$(df -m --output=avail /dev/shm 2> /dev/null | tail -n 1)" -gt 1024 ] 2> /dev/null; then export TMPDIR=/dev/shm; fi
. "$(dirname "$0")/../guards/lib.bash"
export LD_PRELOAD=$build/tests/cli/libkill_at_checkpoint.so # acts where STOWAGE_DIE_AT_CHECKPOINT is set
export STOWAGE=$stowage
. "$source_dir/tests/cli/numpy.bash"
require_numpy resume
cd "$folder" || exit 1
common_py << 'END'
rng, a = large_files()
thin = np.where(rng.random((1000, 300)) < 0.05, rng.integers(1, 9, (1000, 300)) / 4, 0)
np.save("thin.npy", thin)
np.save("thin_f.npy", np.asfortranarray(thin))
thin[500:] = rng.random((500, 300))  # looks thin for a while
np.save("half.npy", thin)
for name, save in ("m.npz", np.savez), ("z.npz", np.savez_compressed):
    save(name, a=a, b=rng.standard_normal((400, 300)), t=np.array(["é", "bcd"] * 9000), e=np.zeros((0, 4)), c=rng.integers(0, 9, 200_000))
# More than two of the blocks of deflated members.
np.savez_compressed("blocks.npz", x=np.repeat(rng.integers(0, 30, 5_000) + 0.1, 1000))
m = sp.random(2000, 1500, 0.05, "csr", random_state=1)
sp.save_npz("s.npz", m, compressed=False)
sp.save_npz("sz.npz", m.tocsc(), compressed=True)
a.astype("f4").tofile("r.bin")
with open("t.csv", "w") as f:
    f.write("i,x,n\n")
    for i in range(60_000):
        f.write(f"{i},{i if i < 40_000 else i / 7!r},{'' if i == 50_000 else i % 9}\n")
with open("n.csv", "w") as f:
    f.writelines(f"{i % 77},{-i}\n" for i in range(120_000))
with open("w.csv", "w") as f:  # text from the start, text that comes late, numbers before a text
    f.write("i,city,late,mixed\n")
    f.writelines(f'{i},"city, {i * i % 701}",{"" if i < 30_000 else i % 99 if i > 50_000 else f"w{i}"},{i if i < 20_000 else "x"}\n' for i in range(60_000))
with open("d.csv", "w") as f:  # more distinct text than the budget holds, in two columns, beside one that it holds
    f.write("id,city,note\n")
    f.writelines(f'"id ""{i * 7919:060d}""",city {i % 701},{"" if i % 5 else "x" * (i % 90) + str(i)}\n' for i in range(60_000))
for part in range(2):  # one table in two files, with times
    with open(f"e{part}.csv", "w") as f:
        f.write("time,n\n")
        f.writelines(f"{np.datetime64('2024-01-01T00:00:00') + part * 30_000 + i},{i}\n" for i in range(30_000))
END
gzip -k t.csv w.csv

jobs=("npy a.npy" "npy b.npy" "npy a.npy --dtype u8" "npy c.npy --tolerance 1e-3" "npy c.npy --dtype f32 --tolerance 1e-5" "npy r.bin --from-dtype f32"
  "npy t.csv" "npy t.csv.gz" "npy n.csv"
  "npz thin.npy" "npz thin_f.npy --tolerance 1e-3" "npz half.npy" "npz c.npy --tolerance 1e-3" "npz r.bin --from-dtype f32" "npz m.npz" "npz m.npz --tolerance 1e-3"
  "npz z.npz" "npz blocks.npz" "npz s.npz" "npz sz.npz --tolerance abs:1e-2" "npz t.csv --tolerance abs:1e-3" "npz w.csv" "npz w.csv.gz" "npz d.csv --memory 4M" "npz d.csv --memory 24M"
  "npz e0.csv e1.csv --memory 4M")

# A file that exceeds the limit fails with EFBIG, as a full disk fails with ENOSPC.
full_disk() { # EXT KIB WORDS…: fails for want of room, keeps what is done, and goes on with it
  local out=out.$1 whole=whole.$1 kib=$2; shift 2
  "$stowage" shrink --force "$@" -o "$whole" > /dev/null || return 1
  rm -f "$out"*
  (
    ulimit -f "$kib"
    trap '' XFSZ
    STOWAGE_CHECKPOINT_MS=0 STOWAGE_CHECKPOINT_ITEMS=40000 "$stowage" shrink --force "$@" -o "$out" > /dev/null 2> said
  ) && return 1
  grep -q -- "--resume" said && [ -e "$out.partial" ] && [ -e "$out.resume" ] && [ ! -e "$out" ] || { cat said; return 1; }
  "$stowage" shrink --force "$@" -o "$out" --resume > said || return 1
  grep -q "^resumed" said && cmp "$whole" "$out" && [ ! -e "$out.partial" ] && [ ! -e "$out.resume" ]
}
check a_full_disk_keeps_what_resume_needs_npy full_disk npy 800 b.npy
check a_full_disk_keeps_what_resume_needs_npz full_disk npz 800 m.npz

resumes() { # POINTS EXT WORDS…: killed at checkpoint 1, 2, … until it ends by itself; every time the output is old, then resumed
  local kills=0 at points=$1 out=out.$2 whole=whole.$2; shift 2
  "$stowage" shrink --force "$@" -o "$whole" > /dev/null || return 1
  for at in $points; do
    rm -f "$out"*
    echo old > "$out"
    # Twice in a row: a resumed run is killed and resumed again.
    for _ in 1 2; do
      if STOWAGE_CHECKPOINT_MS=0 STOWAGE_CHECKPOINT_ITEMS=40000 STOWAGE_DIE_AT_CHECKPOINT=$at \
        "$stowage" shrink --force "$@" -o "$out" --resume > /dev/null 2>&1; then break; fi
      kills=$((kills + 1))
      [ "$(cat "$out")" = old ] || return 1
    done
    "$stowage" shrink --force "$@" -o "$out" --resume > /dev/null || return 1
    cmp "$whole" "$out" || return 1
    [ "$(echo "$out"*)" = "$out" ] || return 1
  done
  echo "$kills kills"
  [ "$kills" -ge 2 ]
}
# Another number of ranks or threads changes nothing, so a job may also be resumed with others. `make test-long` kills each job at all
# six places, alone and with three threads; `make test` kills every second one (the seed chooses) at two of them, and half of these with
# three threads.
number=0 sets=("1 20" "2 9" "1 4" "2 33")
for job in "${jobs[@]}"; do
  read -ra words <<< "$job"
  points=${sets[number % 4]}
  if [ -n "${STOWAGE_TEST_LONG:-}" ]; then points="1 2 4 9 20 33"; fi
  number=$((number + 1))
  if [ -z "${STOWAGE_TEST_LONG:-}" ] && [ $(((number + ${STOWAGE_TEST_SEED:-0}) % 2)) = 1 ]; then continue; fi
  check "resumed_after_kills_it_is_the_same: $job" resumes "$points" "${words[@]}"
  if [ -n "${STOWAGE_TEST_LONG:-}" ] || [ $((number / 2 % 2)) = 0 ]; then
    check "and_with_three_threads: $job" resumes "3 11" "${words[@]}" --threads 3
  fi
done

goes_on() { # the second run does not read again what the first had done
  rm -f out.npy*
  STOWAGE_CHECKPOINT_MS=0 STOWAGE_CHECKPOINT_ITEMS=40000 STOWAGE_DIE_AT_CHECKPOINT=6 "$stowage" shrink --force b.npy -o out.npy > /dev/null 2>&1
  [ -e out.npy.resume ] && [ -e out.npy.partial ] || [ -e out.npy.resume ] || return 1
  local before after
  before=$(strace -f -e trace=pread64 "$stowage" shrink --force b.npy -o full.npy 2>&1 > /dev/null | grep -c pread64)
  after=$(strace -f -e trace=pread64 "$stowage" shrink --force b.npy -o out.npy --resume 2>&1 > said | grep -c pread64)
  echo "reads: $before in one go, $after resumed"
  [ "$after" -lt "$before" ] && cmp full.npy out.npy && grep "^resumed" said
}
if has strace; then check a_resumed_run_reads_less goes_on; else skip "a_resumed_run_reads_less: no strace here"; fi

other_input() { # a checkpoint of another input, or of other options, is not believed
  rm -f out.npy*
  STOWAGE_CHECKPOINT_MS=0 STOWAGE_CHECKPOINT_ITEMS=40000 STOWAGE_DIE_AT_CHECKPOINT=6 "$stowage" shrink --force b.npy -o out.npy > /dev/null 2>&1
  "$stowage" shrink --force b.npy -o out.npy --dtype f64 --resume > said && grep "^started over" said || return 1
  "$stowage" shrink --force b.npy -o whole.npy --dtype f64 > /dev/null && cmp whole.npy out.npy || return 1
  STOWAGE_CHECKPOINT_MS=0 STOWAGE_CHECKPOINT_ITEMS=40000 STOWAGE_DIE_AT_CHECKPOINT=6 "$stowage" shrink --force b.npy -o out.npy > /dev/null 2>&1
  cp a.npy b.npy
  "$stowage" shrink --force b.npy -o out.npy --resume > /dev/null && "$stowage" shrink a.npy -o whole.npy > /dev/null && cmp whole.npy out.npy
}
check a_checkpoint_of_another_job_is_not_believed other_input

locked() { # two runs to one output: the second is refused
  rm -f out.npy*
  exec 8> out.npy.partial
  flock 8 || return 1
  local said
  said=$("$stowage" shrink --force a.npy -o out.npy 2>&1) && return 1
  exec 8>&-
  grep -q "another run is writing to it" <<< "$said" && "$stowage" shrink --force a.npy -o out.npy > /dev/null
}
check two_runs_do_not_write_one_output locked

reads_of() { # FILE COMMAND…: how often it reads the file
  strace -f -y -e trace=pread64,read "${@:2}" 2>&1 > /dev/null | grep -c "/$1>"
}
archive_continues() { # an archive too
  local before after
  rm -f out.npz*
  STOWAGE_CHECKPOINT_MS=0 STOWAGE_CHECKPOINT_ITEMS=4000 STOWAGE_DIE_AT_CHECKPOINT=12 "$stowage" shrink --force "$1" -o out.npz > /dev/null 2>&1
  before=$(reads_of "$1" "$stowage" shrink --force "$1" -o full.npz)
  after=$(reads_of "$1" "$stowage" shrink --force "$1" -o out.npz --resume)
  echo "reads: $before in one go, $after resumed"
  [ "$after" -lt "$before" ] && cmp full.npz out.npz
}
if has strace; then
  for job in "m.npz" "s.npz" "w.csv" "thin.npy"; do check "a_resumed_archive_reads_less: $job" archive_continues "$job"; done
fi

noted() { # what the report says about texts does not depend on where the run was killed
  local at
  "$python" -c 'open("latin.csv", "wb").write(b"note,i\n" + b"".join(b"caf\xe9 number %d,%d\n" % (i, i) for i in range(9000)))'
  for at in 2 5 6 7; do
    rm -f out.npz*
    if STOWAGE_CHECKPOINT_MS=0 STOWAGE_CHECKPOINT_ITEMS=4000 STOWAGE_DIE_AT_CHECKPOINT=$at \
      "$stowage" shrink --force latin.csv -o out.npz > /dev/null 2>&1; then echo "not killed at $at"; return 1; fi
    "$stowage" shrink --force latin.csv -o out.npz --resume > said && grep "^resumed" said || return 1
    grep "column note: some text is not UTF-8" said || return 1
  done
}
check a_resumed_run_also_notes_texts_that_are_not_utf8 noted

gone() { # what the notes speak of is gone: the run begins at the start
  local ending
  "$stowage" shrink --force w.csv -o whole.npz > /dev/null || return 1
  for ending in partial scratch; do
    rm -f out.npz*
    STOWAGE_CHECKPOINT_MS=0 STOWAGE_DIE_AT_CHECKPOINT=30 "$stowage" shrink --force w.csv -o out.npz > /dev/null 2>&1
    [ -e out.npz.resume ] && [ -e "out.npz.$ending" ] || return 1
    rm "out.npz.$ending"
    touch out.npz.resume~ # as a run leaves it that was killed while it wrote its notes
    "$stowage" shrink --force w.csv -o out.npz --resume > /dev/null && cmp whole.npz out.npz || return 1
    if ls out.npz.* 2> /dev/null; then echo "left behind"; return 1; fi
  done
}
check notes_of_files_that_are_gone_are_not_believed gone
# Ctrl-C mentions --resume, ends as the signal does, and the resumed run gives the same bytes.
cat > interrupt.py << 'END'
import os, signal, subprocess, sys, time
import numpy as np
np.save("slow.npy", np.arange(12_000_000) % 77 + 0.0)  # long enough to be interrupted after its first checkpoint
stowage, environment = sys.argv[1], dict(os.environ, STOWAGE_CHECKPOINT_MS="0", STOWAGE_CHECKPOINT_ITEMS="500")
words = [stowage, "shrink", "slow.npy", "-o", "interrupted.npy"]
for _ in range(10):  # on a busy machine the job may end before this process runs again
    job = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    end = time.monotonic() + 20
    while not os.path.exists("interrupted.npy.resume") and job.poll() is None and time.monotonic() < end:
        pass
    job.send_signal(signal.SIGINT)
    said = job.communicate()[1]
    if job.returncode != 0:
        break
    os.remove("interrupted.npy")
assert job.returncode == -signal.SIGINT and "--resume" in said and "last checkpoint" in said, (job.returncode, said)
subprocess.run(words + ["--resume"], check=True, stdout=subprocess.DEVNULL)
subprocess.run([stowage, "shrink", "slow.npy", "-o", "straight.npy"], check=True, stdout=subprocess.DEVNULL)
assert open("interrupted.npy", "rb").read() == open("straight.npy", "rb").read()
END
check an_interrupted_run_names_resume "$python" interrupt.py "$stowage"
finish
