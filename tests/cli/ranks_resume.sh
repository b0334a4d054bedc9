#!/usr/bin/env bash
# Jobs with several ranks, killed at a checkpoint and resumed, give the same bytes as one process without interruption, and leave
# no other files. Checkpoints wait for the disk, which is not tested here, so the files are in memory if there is space.
if [ "$(df -m --output=avail /dev/shm 2> /dev/null | tail -n 1)" -gt 1024 ] 2> /dev/null; then export TMPDIR=/dev/shm; fi
. "$(dirname "$0")/../guards/lib.bash"
export LD_PRELOAD=$build/tests/cli/libkill_at_checkpoint.so # acts where STOWAGE_DIE_AT_CHECKPOINT is set
export STOWAGE=$stowage NO_COLOR=1
. "$source_dir/tests/cli/numpy.bash"
. "$source_dir/tests/cli/ranks.bash"
require_numpy ranks_resume
cd "$folder" || exit 1
common_py << 'END'
import random
rng, a = large_files()
random.seed(7)
quoted = ["Oslo", '"New, York"', "", '"two\nlines"', '"a ""q"""']
with open("long.csv", "w") as f:  # whole numbers for a while
    f.write("i,x,n\n" + "".join(f"{i},{i if i < 60_000 else i / 7!r},{'' if i == 70_000 else i % 9}\n" for i in range(90_000)))
with open("words.csv", "w") as f:  # text from the start, text that comes late, numbers before a text, line ends between quotes
    f.write("i,city,late,mixed,story\n")
    f.writelines(f'{i},"city, {i * i % 701}",{"" if i < 25_000 else i % 99 if i > 40_000 else f"w{i % 999}"},{i if i < 15_000 else "x"},{random.choice(quoted)}\n'
                 for i in range(50_000))
np.save("thin.npy", np.where(rng.random((1000, 300)) < 0.05, rng.integers(1, 9, (1000, 300)) / 4, 0))
END

dies() { # AT WHO N COMMAND…: that rank, or all, killed at its AT-th checkpoint; with it, sooner or later, the others
  local at=$1 who=$2 n=$3; shift 3
  # shellcheck disable=SC2016 # the rank's own shell knows its number
  AT=$at WHO=$who STOWAGE_CHECKPOINT_MS=0 STOWAGE_CHECKPOINT_ITEMS=10000 ranks "$n" sh -c 'rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
    if [ "$WHO" = all ] || [ "$WHO" = "$rank" ]; then export STOWAGE_DIE_AT_CHECKPOINT=$AT; fi; exec "$0" "$@"' "$stowage" shrink --force "$@" > killed.log 2>&1
  died=$?
  [ "$died" != 124 ] || { echo "$n ranks hang: $*"; return 1; }
  [ "$(head -c 3 "${*: -1}" | tr -d '\0')" = old ] # the output is not touched
}
ended() { # OUT WHOLE: the same bytes, and nothing else is left
  cmp "$1" "$2" && [ "$(echo "$1"*)" = "$1" ]
}
resumed() { grep '^resumed: ' "$1" > /dev/null; }
begun() { grep '^started over: ' "$1" > /dev/null; }
goes_on() { # N "AT…" WHO EXT WORDS…: killed there, killed again once it went on (if that is not its end), and resumed
  local n=$1 points=$2 who=$3 ext=$4 at; shift 4
  "$stowage" shrink --force "$@" -o "whole.$ext" > /dev/null || return 1
  for at in $points; do
    rm -rf out.*
    echo old > "out.$ext"
    dies "$at" "$who" "$n" "$@" -o "out.$ext" || return 1
    if dies 3 "$who" "$n" "$@" --resume -o "out.$ext"; then
      ranks "$n" "$stowage" shrink --force "$@" --resume -o "out.$ext" > said.all 2>&1 && resumed said.all || { cat said.all; return 1; }
    else
      [ "$died" = 0 ] && resumed killed.log || { cat killed.log; return 1; }
    fi
    ended "out.$ext" "whole.$ext" || return 1
  done
}
reads() { # N FILE COMMAND…: how often all ranks read the file
  local n=$1 file=$2; shift 2
  rm -f trace.*
  # shellcheck disable=SC2016
  ranks "$n" sh -c 'exec strace -f -y -e trace=pread64,read -o trace.$OMPI_COMM_WORLD_RANK "$0" "$@"' "$@" > /dev/null 2>&1 || return 1
  cat trace.* | grep -c "/$file>"
}
reads_less() { # EXT FILE: resumed ranks do not read again what they had read
  local before after
  rm -rf out.*
  echo old > "out.$1"
  before=$(reads 3 "$2" "$stowage" shrink --force "$2" --memory 4M -o "whole.$1") || return 1
  dies 7 all 3 "$2" --memory 4M -o "out.$1" || return 1
  after=$(reads 3 "$2" "$stowage" shrink --force "$2" --memory 4M --resume -o "out.$1") || return 1
  echo "reads: $before in one go, $after resumed"
  [ "$after" -lt "$before" ] && ended "out.$1" "whole.$1"
}
not_believed() { # the notes are of three ranks, of that input and those options
  local job
  for job in "4 long.csv" "1 long.csv" "3 long.csv --tolerance abs:1" "3 other.csv"; do
    read -ra words <<< "$job"
    rm -rf out.*
    cp long.csv other.csv
    echo old > out.npy
    dies 3 all 3 "${words[1]}" -o out.npy || return 1
    echo "1,2,3" >> other.csv
    "$stowage" shrink --force "${words[@]:1}" -o whole.npy > /dev/null || return 1
    if [ "${words[0]}" = 1 ]; then "$stowage" shrink --force long.csv --resume -o out.npy > said.all || return 1
    else ranks "${words[0]}" "$stowage" shrink --force "${words[@]:1}" --resume -o out.npy > said.all || return 1; fi
    echo "$job:"; cat said.all
    begun said.all && ended out.npy whole.npy || return 1
  done
  rm -rf out.* # nor those of one process by ranks
  STOWAGE_CHECKPOINT_MS=0 STOWAGE_DIE_AT_CHECKPOINT=3 "$stowage" shrink --force long.csv -o out.npy > /dev/null 2>&1
  "$stowage" shrink --force long.csv -o whole.npy > /dev/null || return 1
  [ -e out.npy.resume ] && ranks 3 "$stowage" shrink --force long.csv --resume -o out.npy > said.all && begun said.all && ended out.npy whole.npy
}
some_are_gone() { # a rank whose notes, or whose values, are not there does its part again
  local job gone all
  for job in "npy c.npy --dtype f32 --tolerance 1e-3" "npy long.csv --memory 4M" "npz words.csv --memory 4M"; do
    read -ra words <<< "$job"
    "$stowage" shrink --force "${words[@]:1}" -o "whole.${words[0]}" > /dev/null || return 1
    for gone in 0.resume 2.resume 1.scratch; do
      rm -rf out.*
      echo old > "out.${words[0]}"
      dies 4 all 3 "${words[@]:1}" -o "out.${words[0]}" || return 1
      all=("out.${words[0]}.ranks"/*.resume) # a rank may be stopped before it has noted anything
      rm -f "out.${words[0]}.ranks/$gone"
      ranks 3 "$stowage" shrink --force "${words[@]:1}" --resume -o "out.${words[0]}" > said.all || return 1
      { resumed said.all || [ "${#all[@]}" -lt 3 ]; } && ended "out.${words[0]}" "whole.${words[0]}" || { cat said.all; return 1; }
    done
  done
}
begun_anew() { # a run without --resume takes the notes away before it writes: what it leaves, killed, is not mixed with them
  local n
  for n in 3 2; do
    rm -rf out.*
    echo old > out.npy
    dies 5 all 3 c.npy --dtype f32 --tolerance 1e-3 -o out.npy && dies 1 0 "$n" c.npy --dtype f32 --tolerance 1e-3 -o out.npy || return 1
    "$stowage" shrink --force c.npy --dtype f32 --tolerance 1e-3 -o whole.npy > /dev/null || return 1
    ranks 3 "$stowage" shrink --force c.npy --dtype f32 --tolerance 1e-3 --resume -o out.npy > said.all && ended out.npy whole.npy || return 1
    if [ "$n" = 2 ]; then begun said.all || return 1; fi
  done
}
by_the_first() { # what is the first rank's work alone goes on by any number of ranks
  "$stowage" shrink --force thin.npy -o whole.npz > /dev/null || return 1
  rm -rf out.*
  echo old > out.npz
  dies 6 all 3 thin.npy -o out.npz && [ -e out.npz.resume ] || return 1
  ranks 2 "$stowage" shrink --force thin.npy --resume -o out.npz > said.all && resumed said.all && ended out.npz whole.npz
}
no_notes() { # where they cannot be written: said, at once, by all
  rm -rf out.*
  echo old > out.npy
  echo kept > out.npy.ranks
  STOWAGE_CHECKPOINT_MS=0 STOWAGE_CHECKPOINT_ITEMS=10000 ranks 3 "$stowage" shrink --force c.npy -o out.npy > said.all 2>&1
  local got=$?
  cat said.all
  [ "$got" = 1 ] && grep -q "out.npy.ranks/.*resume: cannot write" said.all && [ "$(cat out.npy out.npy.ranks)" = "$(printf 'old\nkept')" ] || return 1
  rm -rf out.*
}
no_room() { # a disk that fills while they write, or while they go on: the old file, and what --resume needs or nothing else
  local job
  for job in "npz long.csv" "npy long.csv --memory 4M" "npy c.npy --tolerance 1"; do
    read -ra words <<< "$job"
    rm -rf room/*
    echo old > "room/out.${words[0]}"
    dies 3 all 3 "${words[@]:1}" -o "room/out.${words[0]}" || return 1
    dd if=/dev/zero of=room/filler bs=4096 > /dev/null 2>&1 # to the last byte
    ranks 3 "$stowage" shrink --force "${words[@]:1}" --resume -o "room/out.${words[0]}" > said.all 2>&1
    local got=$?
    cat said.all
    [ "$got" = 1 ] && grep -q "No space left\|needs .* the disk has" said.all && [ "$(cat "room/out.${words[0]}")" = old ] || return 1
    ls room
    if grep -q -- "--resume" said.all; then
      rm room/filler
      "$stowage" shrink --force "${words[@]:1}" -o "whole.${words[0]}" > /dev/null || return 1
      ranks 3 "$stowage" shrink --force "${words[@]:1}" --resume -o "room/out.${words[0]}" > said.all 2>&1 || { cat said.all; return 1; }
      resumed said.all && ended "room/out.${words[0]}" "whole.${words[0]}" || return 1
    else
      [ "$(echo room/*)" = "room/filler room/out.${words[0]}" ] || return 1
    fi
  done
}
resumes() { # "N…"
  local n
  for n in $1; do
    check "$n ranks of $launcher go on with an array" goes_on "$n" "1 6" all npy c.npy --tolerance 1e-3
    check "$n ranks of $launcher go on with a type by name" goes_on "$n" 3 1 npy b.npy --dtype f64
    check "$n ranks of $launcher go on with a table to npy" goes_on "$n" "2 4" 1 npy long.csv --memory 4M
    check "$n ranks of $launcher go on with a table to npz" goes_on "$n" "3 9" 0 npz words.csv --memory 4M
  done
}
stops() { # what does not depend on the launcher
  check notes_of_other_jobs_are_not_believed not_believed
  check a_rank_without_notes_does_its_part_again some_are_gone
  check a_run_from_the_start_takes_the_notes_away begun_anew
  check the_first_ranks_own_work_continues_by_any_number by_the_first
  check notes_that_cannot_be_written_are_reported no_notes
  mkdir room
  if unshare -rm mount -t tmpfs none room 2> /dev/null; then
    export -f no_room dies ranks resumed ended
    # shellcheck disable=SC2016
    check a_disk_that_fills_leaves_the_old_output unshare -rm bash -c 'mount -t tmpfs -o size=3m none room && stowage=$0 launcher=$1 no_room' "$stowage" "$launcher"
  else
    skip "a_disk_that_fills_leaves_the_old_output: no file system can be mounted here"
  fi
}

if ! has mpirun; then
  if [ "${CI:-}" = true ]; then fail "mpi: no mpirun"; else skip "mpi: no mpirun here (Debian: openmpi-bin)"; fi
else
  resumes 3
  has mpiexec.hydra || stops
  if has strace; then
    for job in "npy c.npy" "npy long.csv" "npz words.csv"; do read -ra words <<< "$job"; check "resumed ranks read less: $job" reads_less "${words[@]}"; done
  else
    skip "resumed ranks read less: no strace here"
  fi
fi
launcher=mpiexec.hydra
if ! has "$launcher"; then
  skip "mpich: no mpiexec.hydra here (Debian: mpich)"
else
  resumes "2 4"
  stops
fi
finish
