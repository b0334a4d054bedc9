#!/usr/bin/env bash
# Jobs split among the ranks of an MPI job give the same bytes, the same messages and the same exit code as one process.
. "$(dirname "$0")/../guards/lib.bash"
export STOWAGE=$stowage NO_COLOR=1
. "$source_dir/tests/cli/numpy.bash"
. "$source_dir/tests/cli/ranks.bash"
require_numpy ranks
cd "$folder" || exit 1
common_py << 'END'
import csv, random
rng, a = large_files()
a.astype("f4").tofile("r.bin")

random.seed(7)
def table(name, header, rows, end="\n"):
    with open(name, "w", newline="") as f:
        w = csv.writer(f, lineterminator=end)
        w.writerows(([header] if header else []) + list(rows))
n = 20_000
table("numbers.csv", ["i", "x", "n"], ([i, i if i < 13_000 else i / 7, "" if i == 15_000 else i % 9] for i in range(n)))
table("bare.csv", None, ([i % 77, -i] for i in range(n)))
table("crlf.csv", ["a", "b"], ([i, i * 0.5] for i in range(n)), "\r\n")
table("cr.csv", ["a", "b"], ([i, "two\rlines" if i % 3 else i] for i in range(n)), "\r")
words = ["Oslo", "Zürich", "New, York", "", "two\nlines", 'a "q"', "a\n\nb,c\n"]
table("text.csv", ["i", "city", "x"], ([i, random.choice(words) if i > 5 else "", random.random()] for i in range(n)))
table("times.csv", ["day", "at", "n"], ([f"2020-{i % 12 + 1:02d}-{i % 28 + 1:02d}", "NA" if i % 7 == 0 else f"2024-01-01T00:{i // 60 % 60:02d}:{i % 60:02d}Z", i] for i in range(n)))
# Rows of many lines, most with the right number of commas: the start of a row cannot be recognized.
table("lines.csv", ["i", "story"], ([i, "\n".join(f'{k}, of {i} "x"' for k in range(random.randint(1, 60)))] for i in range(1500)))
# Text that comes late, numbers after it, and words for missing values in a column of numbers.
table("mixed.csv", ["a", "b", "c", "d"], ([i, "" if i < n // 2 else f"w{i % 50}" if i < n * 3 // 4 else i % 7, "x" if i == n - 1 else i,
                                           "NA" if i % 3 else "z"] for i in range(n)))
table("late.csv", ["a", "b"], [["", i] for i in range(n // 3)] + [[f"t{i % 300}", i] for i in range(n // 3)] + [[i, i + 0.5] for i in range(n // 3)])
table("few.csv", ["a", "b"], [[1, 2.5], [3, 4]])
table("one.csv", None, [[1, 2, 3]])
table("names.csv", ["a", "b"], [])
table("many.csv", ["a"], ([f"word number {i} of so many"] for i in range(60_000)))
with open("latin.csv", "wb") as f:  # one text that is not UTF-8, in the last range
    f.write(b"i,note\n" + b"".join(b"%d,a note of its own %d\n" % (i, i) for i in range(9000)) + b"9000,caf\xe9\n")
with open("inch.csv", "w") as f:  # a quote inside a field is a letter
    f.write("a,b\n" + "".join(f'{i},5" pipe {i % 40}\n' for i in range(9000)))
with open("blank.csv", "w") as f:
    f.write("a,b\n\n" + "".join(f"{i},{i % 40}\n" + ("\n" if i % 5 == 0 else "\r\n" if i % 7 == 0 else "") for i in range(9000)) + "1,2")
numbers = open("numbers.csv").read()
lines = numbers.split("\n")
open("ragged.csv", "w").write(numbers + "1," * 99 + "1\n")
open("short.csv", "w").write(numbers + "1\n" + numbers)
open("open.csv", "w").write("\n".join(lines[:15_000] + ['1,"2,3'] + lines[15_000:]))
open("word.csv", "w").write("\n".join(lines[:9000] + ["1,word,3"] + lines[9000:9100] + ["1,2,3,4"] + lines[9100:]))
open("nul.csv", "wb").write(numbers.encode() + b"1,\0x,3\n")
END
gzip -k numbers.csv

said() { grep -v '^peak memory' "$1"; } # a terminal is what mpirun gives its ranks: lines end with \r there
alone() { # EXT WORDS…: what one process does
  local ext=$1; shift
  echo old > "out.$ext"
  "$stowage" shrink --force "$@" -o "out.$ext" > said.one 2> wrong.one
  code=$?
  mv "out.$ext" "one.$ext"
}
same() { # N EXT WORDS…: does this number of ranks what was done alone?
  local n=$1 ext=$2 got; shift 2
  rm -f out.*
  echo old > "out.$ext"
  ranks "$n" "$stowage" shrink --force "$@" -o "out.$ext" > said.all 2> wrong.all
  got=$?
  echo "exit code $got, alone $code"
  cat wrong.all
  [ "$got" = "$code" ] && cmp "one.$ext" "out.$ext" && cmp <(said said.one) <(said said.all | tr -d '\r') || return 1
  cmp <(grep '^stowage' wrong.one) <(grep '^stowage' wrong.all | tr -d '\r') || return 1
  [ "$(echo out.*)" = "out.$ext" ] # and nothing half written beside it
}
jobs=0
agree() { # "N…" "EXT WORDS…": half of these jobs, which STOWAGE_TEST_SEED chooses, with every second of these numbers of ranks; in `make test-long` all
  local n words every=0
  read -ra words <<< "$2"
  jobs=$((jobs + 1))
  if [ -z "${STOWAGE_TEST_LONG:-}" ] && [ $(((jobs + ${STOWAGE_TEST_SEED:-0}) % 2)) = 1 ]; then return; fi
  alone "${words[@]}"
  for n in $1; do
    every=$((every + 1))
    if [ -z "${STOWAGE_TEST_LONG:-}" ] && [ "$1" != "$n" ] && [ $(((every + jobs / 2) % 2)) = 1 ]; then continue; fi
    check "$n ranks of $launcher do as one process: $2" same "$n" "${words[@]}"
  done
}

all_write() { # every rank puts its rows into the output: nobody does it all
  local job=$1 rank
  rm -f trace.* out.*
  # shellcheck disable=SC2016 # the rank's own shell knows its number
  ranks 3 sh -c 'strace -f -y -e trace=pwrite64,pwritev -o trace.$OMPI_COMM_WORLD_RANK "$0" shrink --force $1' "$stowage" "$job" > /dev/null || return 1
  for rank in 0 1 2; do
    echo "rank $rank: $(grep -c partial "trace.$rank") writes"
    grep -q partial "trace.$rank" || return 1
  done
}

in_budget() { # each rank holds the budget, MPI and the program itself beside it
  ranks 3 "$stowage" shrink --force text.csv -o out.npz --memory 4M --json > said.all || return 1
  "$python" -c 'import json; peak = json.load(open("said.all"))["peak_memory_bytes"]; print(peak); assert 0 < peak < (4 + 16) << 20'
}

if ! has mpirun; then
  if [ "${CI:-}" = true ]; then fail "mpi: no mpirun"; else skip "mpi: no mpirun here (Debian: openmpi-bin)"; fi
else
  for job in "npy a.npy" "npy b.npy" "npy c.npy --tolerance 1e-3" "npy a.npy --dtype u8" "npy r.bin --from-dtype f32"; do agree "2 5" "$job"; done
  for job in "npy numbers.csv" "npz text.csv" "npz lines.csv" "npz mixed.csv" "npz times.csv"; do agree "1 2 3 5" "$job"; done
  for job in "npz numbers.csv --tolerance 1e-3" "npy numbers.csv --tolerance abs:1e-3" "npy bare.csv" "npz crlf.csv" "npz late.csv" "npz inch.csv" \
    "npy blank.csv" "npz latin.csv" "npz many.csv" "npz mixed.csv --dry-run" "npz text.csv --memory 4M --threads 2"; do agree "2 5" "$job"; done
  for job in "npy few.csv" "npz short.csv" "npz one.csv" "npz names.csv" "npz c.npy" "npz numbers.csv.gz" "npz cr.csv"; do agree 5 "$job"; done
  # The error is in the last range, in the middle, or in two places; texts, types and numbers that do not fit.
  for job in "npz ragged.csv" "npz open.csv" "npy word.csv" "npz word.csv" "npz nul.csv" "npy text.csv" "npy c.npy --dtype f16" \
    "npy numbers.csv --dtype u8" "npz numbers.csv --dtype f16 --tolerance 1e-9" "npz many.csv --memory 4M" "npy nowhere.csv"; do agree 3 "$job"; done
  check ranks_stay_in_their_budget in_budget
  if has strace; then
    for job in "numbers.csv -o out.npy" "text.csv -o out.npz" "mixed.csv -o out.npz"; do check "every rank writes its rows: $job" all_write "$job"; done
  else
    skip "every rank writes its rows: no strace here"
  fi
fi
launcher=mpiexec.hydra # MPICH's, whose handles are numbers where Open MPI's are addresses
if ! has "$launcher"; then
  skip "mpich: no mpiexec.hydra here (Debian: mpich)"
else
  for job in "npy b.npy" "npy c.npy --tolerance 1e-3" "npy numbers.csv" "npz text.csv" "npz ragged.csv" "npy c.npy --dtype f16"; do agree 3 "$job"; done
fi
finish
