#!/usr/bin/env bash
# Long jobs, killed at every checkpoint and resumed: the same bytes as in one go.
. "$(dirname "$0")/../guards/lib.bash"
export STOWAGE=$stowage
. "$source_dir/tests/cli/numpy.bash"
require_numpy resume
cd "$folder" || exit 1
"$python" - << 'END'
import numpy as np
rng = np.random.default_rng(3)
a = rng.integers(0, 200, 300_000).astype("f8")
np.save("a.npy", a)
a[-1] = 0.1
np.save("b.npy", a)
np.save("c.npy", rng.standard_normal((1000, 300)).astype(">f8"))
a.astype("f4").tofile("r.bin")
with open("t.csv", "w") as f:
    f.write("i,x,n\n")
    for i in range(60_000):
        f.write(f"{i},{i if i < 40_000 else i / 7!r},{'' if i == 50_000 else i % 9}\n")
with open("n.csv", "w") as f:
    f.writelines(f"{i % 77},{-i}\n" for i in range(120_000))
END
gzip -k t.csv

jobs=("a.npy" "b.npy" "a.npy --dtype u8" "c.npy --tolerance 1e-3" "c.npy --dtype f32 --tolerance 1e-5" "r.bin --from-dtype f32" "t.csv" "t.csv.gz" "n.csv")

resumes() { # WORDS…: killed at checkpoint 1, 2, … until it ends by itself; every time the output is old, then resumed
  local kills=0 at
  "$stowage" shrink "$@" -o whole.npy > /dev/null || return 1
  for at in 1 2 3 5 8 1; do
    rm -f out.npy*
    echo old > out.npy
    # Twice in a row: a resumed run is killed and resumed again.
    for _ in 1 2; do
      if STOWAGE_CHECKPOINT_MS=0 STOWAGE_CHECKPOINT_ITEMS=40000 STOWAGE_DIE_AT_CHECKPOINT=$at \
        "$stowage" shrink "$@" -o out.npy --resume > /dev/null 2>&1; then break; fi
      kills=$((kills + 1))
      [ "$(cat out.npy)" = old ] || return 1
    done
    "$stowage" shrink "$@" -o out.npy --resume > /dev/null || return 1
    cmp whole.npy out.npy || return 1
    [ ! -e out.npy.resume ] && [ ! -e out.npy.partial ] || return 1
  done
  echo "$kills kills"
  [ "$kills" -ge 4 ]
}
# A rank or a thread more changes nothing, so it may also be resumed with others.
for job in "${jobs[@]}"; do
  read -ra words <<< "$job"
  check "resumed_after_kills_it_is_the_same: $job" resumes "${words[@]}"
  check "and_with_three_threads: $job" resumes "${words[@]}" --threads 3
done

goes_on() { # the second run does not read again what the first had done
  rm -f out.npy*
  STOWAGE_CHECKPOINT_MS=0 STOWAGE_CHECKPOINT_ITEMS=40000 STOWAGE_DIE_AT_CHECKPOINT=6 "$stowage" shrink b.npy -o out.npy > /dev/null 2>&1
  [ -e out.npy.resume ] && [ -e out.npy.partial ] || [ -e out.npy.resume ] || return 1
  local before after
  before=$(strace -f -e trace=pread64 "$stowage" shrink b.npy -o full.npy 2>&1 > /dev/null | grep -c pread64)
  after=$(strace -f -e trace=pread64 "$stowage" shrink b.npy -o out.npy --resume 2>&1 > /dev/null | grep -c pread64)
  echo "reads: $before in one go, $after resumed"
  [ "$after" -lt "$before" ] && cmp full.npy out.npy
}
if has strace; then check a_resumed_run_reads_less goes_on; else skip "a_resumed_run_reads_less: no strace here"; fi

other_input() { # a checkpoint of another input, or of other options, is not believed
  rm -f out.npy*
  STOWAGE_CHECKPOINT_MS=0 STOWAGE_CHECKPOINT_ITEMS=40000 STOWAGE_DIE_AT_CHECKPOINT=6 "$stowage" shrink b.npy -o out.npy > /dev/null 2>&1
  "$stowage" shrink b.npy -o out.npy --dtype f64 --resume > /dev/null || return 1
  "$stowage" shrink b.npy -o whole.npy --dtype f64 > /dev/null && cmp whole.npy out.npy || return 1
  STOWAGE_CHECKPOINT_MS=0 STOWAGE_CHECKPOINT_ITEMS=40000 STOWAGE_DIE_AT_CHECKPOINT=6 "$stowage" shrink b.npy -o out.npy > /dev/null 2>&1
  cp a.npy b.npy
  "$stowage" shrink b.npy -o out.npy --resume > /dev/null && "$stowage" shrink a.npy -o whole.npy > /dev/null && cmp whole.npy out.npy
}
check a_checkpoint_of_another_job_is_not_believed other_input

locked() { # two runs to one output: the second is told
  rm -f out.npy*
  exec 8> out.npy.partial
  flock 8 || return 1
  local said
  said=$("$stowage" shrink a.npy -o out.npy 2>&1) && return 1
  exec 8>&-
  grep -q "another run is writing it" <<< "$said" && "$stowage" shrink a.npy -o out.npy > /dev/null
}
check two_runs_do_not_write_one_output locked

archive() { # an archive is begun anew, and says so
  "$stowage" shrink t.csv -o whole.npz > /dev/null || return 1
  "$stowage" shrink t.csv -o out.npz --resume | grep -q "begun from the start" && cmp whole.npz out.npz
}
check an_archive_is_begun_from_the_start_and_says_so archive
finish
