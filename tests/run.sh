#!/usr/bin/env bash
# run BUILD [--guards] [--asan DIR] [--tsan DIR] [--gpu] [--long] [--shard I/N] [--only WORDS] [--times]: runs every test and counts
# the lines "ok …", "FAIL …" and "skip …" that they print. Ends with "N passed, N failed, N skipped"; each skip says why. It runs one
# more at a time than there are cores (at most four), because some wait. --long runs tests/long/*.sh instead; --only runs the tests
# whose name contains WORDS; --times prints the CPU and the elapsed seconds of each program, the heaviest first, and their sums.
#
# Slices: one run takes a part of what a sanitizer's build repeats, of tests that draw their cases, and of the longest scripts.
# STOWAGE_TEST_SEED chooses the part; by default it is the number of commits, so that successive commits take all parts in turn.
# The last lines name the seed and what was left to other seeds. STOWAGE_TEST_LONG (make test-long) and --only take all parts.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
build=${1:-}
if [ ! -d "$build" ]; then echo "run: ${build:-no folder} is not a build folder: tests/run.sh build/release [--only WORDS]…" >&2; exit 2; fi
shift
guards= asan= tsan= gpu= shard= long= only= times=
while [ $# -gt 0 ]; do
  case $1 in
    --guards) guards=1 ;;
    --asan) asan=$2; shift ;;
    --tsan) tsan=$2; shift ;;
    --gpu) gpu=1 ;;
    --long) long=1 ;;
    --only) only=$2; shift ;;
    --times) times=1 ;;
    --shard) shard=$2; shift ;;
    *) echo "run: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
log=$(mktemp) spent=$(mktemp)
trap 'rm -f "$log" "$spent" "$spent".*' EXIT
export STOWAGE_BUILD=$PWD/$build STOWAGE_COMMAND=$PWD/$build/stowage
[ -n "${STOWAGE_TEST_SEED:-}$only" ] || STOWAGE_TEST_SEED=$(git rev-list --count HEAD 2> /dev/null || echo 0)
export STOWAGE_TEST_SEED=${STOWAGE_TEST_SEED:-}
unset STOWAGE_DEVICE
# python3 may be a wrapper (pyenv), which starts several programs before Python: the tests start it hundreds of times.
python=$(python3 -c 'import sys; print(sys.executable)' 2> /dev/null) && [ -x "$python" ] && PATH=$(dirname "$python"):$PATH

left_out=0
# Returns whether this run's slice has a test: one of every PARTS seeds in a row takes it. Tests with different NUMBERs, below PARTS,
# are in different runs; by default the name decides.
in_slice() { # NAME PARTS [NUMBER]
  local number=${3:-}
  [ -z "${STOWAGE_TEST_LONG:-}" ] && [ -z "$only" ] || return 0
  [ -n "$number" ] || number=$(cksum <<< "$1") number=${number%% *}
  [ $(((number + STOWAGE_TEST_SEED) % $2)) != 0 ] || return 0
  left_out=$((left_out + 1))
  return 1
}

# Sets cpu to the CPU milliseconds of all programs run so far: the second line of `times`, user and system, as 1m2.345s.
# (No pipe: a subshell has its own times.)
cpu_now() {
  [ -n "$times" ] || return 0
  times > "$spent.now"
  cpu=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); ms += t[1] * 60000 + t[2] * 1000 }; printf "%d", ms }' "$spent.now")
}

# Runs one program under a deadline. One that prints no result line, or fails without a FAIL line, is itself a failure.
run_one() { # LABEL SECONDS COMMAND…
  local label=$1 seconds=$2; shift 2
  local out code before=0
  [[ $label == *"$only"* ]] || return 0
  local cpu=0 began=${EPOCHREALTIME/[.,]/}
  cpu_now; before=$cpu
  out=$(timeout -k 5 "$seconds" "$@" 2>&1); code=$?
  cpu_now; [ -z "$times" ] || echo "$((cpu - before)) $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) $label" >> "$spent"
  local lines
  lines=$(grep -E '^(ok|FAIL|skip) ' <<< "$out" | sed -E "s#^(ok|FAIL|skip) #\1 $label/#")
  if [ -z "$lines" ] || { [ $code -ne 0 ] && ! grep -q '^FAIL ' <<< "$lines"; }; then
    lines="${lines:+$lines$'\n'}FAIL $label/: ended with code $code and no reason"
  fi
  if grep -q '^FAIL' <<< "$lines"; then
    # The reason is often at the beginning, the state at the end.
    grep -vE '^(ok|FAIL|skip) ' <<< "$out" | awk '{ line[NR] = $0 } END { for (i = 1; i <= NR; i++) if (NR <= 100 || i <= 50 || i > NR - 50) print line[i]; else if (i == 51) print "…" }'
  fi
  echo "$lines" >> "$log"
  grep -E '^(FAIL|skip) ' <<< "$lines"
  echo "  $label: $(grep -c '^ok ' <<< "$lines") ok"
}

# The shim inside programs, under a sanitizer. The scripts compare what programs print, so reports go to files of their own: one
# report is a failure. Programs that are not built with the sanitizer (sh, python3) get its runtime with the shim, late.
# A fault that a test expects is the program's own (handle_segv=0).
run_shim() { # LABEL BUILD OPTIONS SCRIPT…
  local label=$1 dir=$2 options=$3 script found; shift 3
  local reports
  reports=$(mktemp -d)
  for script in "$@"; do
    ASAN_OPTIONS=$options:log_path=$reports/$script TSAN_OPTIONS=$options:log_path=$reports/$script \
      SHIM_SANITIZED=$label STOWAGE_BUILD=$PWD/$dir STOWAGE_COMMAND=$PWD/$dir/stowage run_one "$label/shim/$script" 600 bash "tests/shim/$script.sh"
    found=$(find "$reports" -name "$script.*" | head -n 1)
    if [ -n "$found" ]; then
      head -n 60 "$found"
      echo "FAIL $label/shim/$script: a report of the sanitizer" | tee -a "$log"
    else
      echo "ok $label/shim/$script: no report" >> "$log"
    fi
  done
  rm -rf "$reports"
}

programs() { # BUILD: every test program of the suite
  find "$1/tests" -type f -perm -u+x -name '*_test' ! -path '*/gpu/*' | sort
}

fuzzers() { # BUILD
  find "$1/tests/fuzz" -type f -perm -u+x -name '*_fuzz' 2> /dev/null | sort
}

# ---- the suite: a list of jobs, and as many workers as there are cores ----

jobs_list=()
job() { jobs_list+=("$(printf '%q ' "$@")"); } # a function and its words

asan_one() { # LABEL COMMAND…
  local label=$1; shift
  ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 run_one "asan/$label" 600 "$@"
}
asan_golden() { GOLDEN_SESSIONS_ONLY=1 STOWAGE_BUILD=$PWD/$asan STOWAGE_COMMAND=$PWD/$asan/stowage asan_one cli/golden bash tests/cli/golden.sh; }
asan_shim() { run_shim asan "$asan" detect_leaks=0:verify_asan_link_order=0:allocator_may_return_null=1:handle_segv=0 "$1"; }
tsan_one() { # LABEL COMMAND…
  local label=$1; shift
  TSAN_OPTIONS=allocator_may_return_null=1 run_one "tsan/$label" 600 "$@"
}
tsan_shim() {
  run_shim tsan "$tsan" "allocator_may_return_null=1:report_thread_leaks=0:handle_segv=0:suppressions=$PWD/tests/shim/tsan.supp" "$1"
}
fuzz_one() { # FUNCTION PROGRAM
  local name
  name=$(basename "$2")
  if [ "$1" = asan_one ]; then asan_one fuzz "$2" "tests/fuzz/corpus/${name%_fuzz}"; else run_one fuzz 600 "$2" "tests/fuzz/corpus/${name%_fuzz}"; fi
}

# The longest jobs come first, so that the workers end together.
list_jobs() {
  local script program name number
  for script in tests/python/*.sh; do job run_one "python/$(basename "$script" .sh)" 1200 bash "$script"; done
  if [ -n "$asan" ]; then
    number=0
    for name in pages spill record plain; do if in_slice "asan/shim/$name" 2 $((number++)); then job asan_shim "$name"; fi; done
    job asan_golden
  fi
  if [ -n "$tsan" ]; then
    number=0
    for name in plain paths; do if in_slice "tsan/shim/$name" 2 $((number++)); then job tsan_shim "$name"; fi; done
    # Where threads meet: tests whose file speaks of threads, and of the device contract those whose name does.
    for program in $(programs "$tsan"); do
      name=${program#"$tsan"/tests/}
      grep -q 'pthread_create' "tests/$name.c" || [[ $name == *contract_test ]] || continue
      in_slice "tsan/$name" 3 $((number++)) || continue
      case $name in
        *contract_test) job tsan_one "$name" "$program" thread ;;
        *) job tsan_one "$name" "$program" ;;
      esac
    done
  fi
  for script in tests/shim/*.sh tests/cli/*.sh tests/report/*.sh; do
    name=$(basename "$(dirname "$script")")/$(basename "$script" .sh)
    case $name in # 5 to 25 s each; tests/long runs them in full
      cli/tutorial | shim/seeds) in_slice "$name" 4 0 || continue ;;
      cli/ranks_resume | cli/torture) in_slice "$name" 4 1 || continue ;;
      report/viewer | shim/host) in_slice "$name" 4 2 || continue ;;
      cli/io | cli/ranks) in_slice "$name" 4 3 || continue ;;
      cli/hdf5 | shim/python | cli/corpus) in_slice "$name" 2 0 || continue ;;
      cli/convert | shim/clocks | cli/tables) in_slice "$name" 2 1 || continue ;;
    esac
    job run_one "$name" 600 bash "$script"
  done
  if [ -n "$asan" ]; then
    number=0
    for program in $(programs "$asan"); do
      name=${program#"$asan"/tests/}
      if in_slice "asan/$name" 5 $((number++)); then job asan_one "$name" "$program"; fi
    done
    for program in $(fuzzers "$asan"); do
      if in_slice "asan/fuzz" 2 $((number++)); then job fuzz_one asan_one "$program"; fi
    done
  fi
  if [ -n "$guards" ]; then
    for script in tests/guards/*.sh; do
      [[ $script != */dist.sh ]] || in_slice guard/dist 3 1 || continue
      job run_one "guard/$(basename "$script" .sh)" 600 bash "$script"
    done
  fi
  for program in $(programs "$build"); do job run_one "${program#"$build"/tests/}" 600 "$program"; done
  # With ASan the same inputs find more.
  if [ -z "$asan" ]; then for program in $(fuzzers "$build"); do job fuzz_one run_one "$program"; done; fi
}

# Takes jobs until there are none; what a job prints comes whole, when it has ended.
worker() { # NUMBER
  local next text
  log=$log.$1 spent=$spent.$1
  : > "$log"
  while next=$(flock "$counter" bash -c 'read -r n < "$0"; echo $((n + 1)) > "$0"; echo "$n"' "$counter") && [ "$next" -lt ${#jobs_list[@]} ]; do
    text=$(eval "${jobs_list[next]}")
    [ -z "$text" ] || printf '%s\n' "$text"
  done
}

if [ -n "$long" ]; then
  for script in tests/long/*.sh; do
    [ -e "$script" ] && run_one "long/$(basename "$script" .sh)" 3600 bash "$script"
  done
elif [ -n "$gpu" ]; then
  i=0 index=${shard%/*} count=${shard#*/}
  for program in $(find "$build/tests/gpu" -type f -perm -u+x -name '*_test' | sort) tests/gpu/*.sh; do
    [ -e "$program" ] || continue
    if [ -z "$shard" ] || [ $((i % count + 1)) -eq "$index" ]; then
      run_one "gpu/$(basename "$program")" 460 "$program"
    fi
    i=$((i + 1))
  done
else
  list_jobs
  counter=$log.next
  echo 0 > "$counter"
  trap 'kill $(jobs -p) 2> /dev/null; rm -f "$log" "$log".* "$spent" "$spent".*' EXIT
  for ((i = 1; i <= $(nproc) && i < 4; i++)); do worker "$i" & done
  (worker 0)
  wait
  cat "$log".[0-3] >> "$log"
  cat "$spent".[0-3] >> "$spent" 2> /dev/null
fi

if [ -n "$times" ]; then
  echo "CPU seconds, elapsed seconds:"
  sort -rn "$spent" | awk '{ cpu += $1; elapsed += $2; if (NR <= 60) printf "%9.1f %9.1f  %s\n", $1 / 1000, $2 / 1000, $3 }
    END { printf "%9.1f %9.1f  in all, %d programs\n", cpu / 1000, elapsed / 1000, NR }'
fi
passed=$(grep -c '^ok ' "$log") failed=$(grep -c '^FAIL ' "$log") skipped=$(grep -c '^skip ' "$log")
if [ "$skipped" -gt 0 ]; then echo "skipped, and why:"; grep '^skip ' "$log" | sed 's/^skip /  /'; fi
if [ "$failed" -gt 0 ]; then echo "failed:"; grep '^FAIL ' "$log" | sed 's/^FAIL /  /'; fi
if [ $left_out -gt 0 ]; then echo "seed $STOWAGE_TEST_SEED: $left_out programs are left to other seeds (STOWAGE_TEST_SEED) and to make test-long"; fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
