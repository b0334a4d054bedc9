#!/usr/bin/env bash
# Recording: the device memory requests of a command are in the file, even if it was killed.
. "$(dirname "$0")/lib.bash"
trace=$folder/a.stow
facts() { "$stowage" convert "$1" "$folder/out.csv" > /dev/null 2>&1 && cat "$folder/out.csv"; }
count() { facts "$1" | grep -c -- "$2"; } # FILE WORD: events with it
stowage_run --vram-limit 100M --spill 200M --record "$trace" -- "$holder" alloc:$((60 * M)) page:$((20 * M)) page:$((80 * M)) unpage free async:$((4 * M)) afree > /dev/null 2> "$folder/err"
if [ -s "$trace" ]; then ok a_file_is_written; else cat "$folder/err"; fail a_file_is_written; finish; fi
check it_can_be_read "$stowage" report "$trace" --text
for pair in "alloc 2" "segment_map 2" "segment_unmap 1" "spill 1"; do
  word=${pair% *} want=${pair#* } got=$(count "$trace" "[,\"]$word[,\"]\|^$word,")
  if [ "$got" = "$want" ]; then ok "${want}_events_of_$word"; else facts "$trace" | head -n 20; fail "${want}_events_of_$word: $got"; fi
done
rings=$(find "$XDG_STATE_HOME" -name '*.ring' | wc -l)
if [ "$rings" = 0 ]; then ok no_ring_is_left; else fail "no_ring_is_left: $rings"; fi

# Killed in the middle: everything up to the last event is in the file.
stowage_run --record "$folder/killed.stow" -- bash -c "
  coproc one { exec '$holder' alloc:$((1 * M)) alloc:$((2 * M)) alloc:$((3 * M)) say:now read; }
  while read -r word <&\"\${one[0]}\" && [ \"\$word\" != now ]; do :; done
  kill -KILL \$one_PID; wait \$one_PID" > /dev/null 2> "$folder/err"
file=$(ls "$folder"/killed*.stow 2> /dev/null | head -n 1)
if [ -n "$file" ] && [ "$(count "$file" alloc)" = 3 ]; then ok a_killed_process_leaves_its_record; else ls "$folder"; cat "$folder/err"; fail a_killed_process_leaves_its_record; fi

# A program that closes descriptors it did not open, as daemons do, then opens its own files: nothing of ours gets into them, and
# the recording continues.
if has python3; then
  cat > "$folder/closes.py" << 'EOF'
import ctypes, os, sys
cuda, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_ulonglong()
context = ctypes.c_void_p()
cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)
def churn(turns):
    for _ in range(turns):
        assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20)) == 0 and cuda.cuMemFree_v2(address) == 0
churn(1000)
numbers = [int(name) for name in os.listdir("/proc/self/fd")]
os.closerange(3, 4096)
own = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for number in numbers:
    if number > 2: os.dup2(own, number)
churn(200000)
EOF
  stowage_run --record "$folder/closes.stow" -- python3 "$folder/closes.py" "$folder/own" > "$folder/err" 2>&1; got=$?
  if [ $got = 0 ] && [ -e "$folder/own" ] && [ ! -s "$folder/own" ]; then ok a_program_that_closes_everything_has_its_files_to_itself; else cat "$folder/err"; ls -l "$folder/own"; fail "a_program_that_closes_everything_has_its_files_to_itself: code $got"; fi
  if [ "$(count "$folder/closes.stow" alloc)" = 201000 ]; then ok and_its_record_is_whole; else count "$folder/closes.stow" alloc; fail and_its_record_is_whole; fi
else
  skip "a_program_that_closes_everything_has_its_files_to_itself: no python3"
fi

# Several processes: one file each, the command's own under the requested name.
stowage_run --record "$folder/many.stow" -- bash -c "'$holder' alloc:1048576; '$holder' alloc:2097152; exec '$holder' alloc:3145728" > /dev/null 2>&1
files=$(ls "$folder"/many*.stow | wc -l)
if [ "$files" = 3 ] && facts "$folder/many.stow" | grep_all 3145728; then ok each_process_has_its_file; else ls "$folder"; fail "each_process_has_its_file: $files"; fi
RANK=3 stowage_run --record "$folder/job.stow" -- bash -c "'$holder' alloc:1048576; '$holder' alloc:2097152" > /dev/null 2>&1
if ls "$folder"/job-rank3-*.stow > /dev/null 2>&1; then ok ranks_are_in_the_name; else ls "$folder"; fail ranks_are_in_the_name; fi

# Ranks that a launcher started (here this script), each with its own `stowage run`: one folder, a file each; the rank that
# failed first is explained.
runs=$XDG_STATE_HOME/stowage/runs
before=$(ls "$runs" | wc -l)
for rank in 0 1 2; do
  RANK=$rank WORLD_SIZE=3 stowage_run --record "$folder/team.stow" --vram-limit 10M -- bash -c "'$holder' alloc:$M; [ $rank != 1 ] || '$holder' alloc:$((60 * M)); exit $((rank > 0))" > /dev/null 2>&1
done
# The first process of each has the requested name, with its rank.
files=$(cd "$folder" && ls team*.stow | grep -c '^team-rank[012]\.stow$\|^team-rank1-rank1-[0-9]*\.stow$\|^team-rank1-[0-9]*\.stow$')
if [ "$files" = 4 ] && [ ! -e "$folder/team.stow" ]; then ok ranks_do_not_write_over_each_other; else ls "$folder"; fail "ranks_do_not_write_over_each_other: $files"; fi
if [ "$(ls "$runs" | wc -l)" = $((before + 1)) ] && [ "$(ls "$runs/last" | tr '\n' ' ')" = "rank0 rank1 rank2 " ]; then ok ranks_have_one_folder; else ls -R "$runs"; fail ranks_have_one_folder; fi
if "$stowage" explain --last | grep_all 'this is rank 1 of the run'; then ok the_rank_that_failed_first_is_explained; else "$stowage" explain --last; fail the_rank_that_failed_first_is_explained; fi
RANK=0 WORLD_SIZE=3 stowage_run -- true > /dev/null 2>&1
if [ "$(ls "$runs/last" | tr '\n' ' ')" = "rank0 " ]; then ok the_next_command_of_a_rank_has_the_next_folder; else ls -R "$runs"; fail the_next_command_of_a_rank_has_the_next_folder; fi
SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=4 OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 stowage_run --record "$folder/both.stow" -- "$holder" alloc:$M > /dev/null 2>&1
if [ -e "$folder/both-rank2.stow" ]; then ok under_mpirun_in_a_slurm_job_the_rank_is_mpis; else ls "$folder"; fail under_mpirun_in_a_slurm_job_the_rank_is_mpis; fi

# A file that cannot be written is reported before the command runs, not after.
mkfifo "$folder/pipe"
for path in "$folder/nowhere/a.stow" "$folder" "$folder/pipe" ""; do
  stowage_run --record "$path" -- touch "$folder/ran" 2> "$folder/err"; code=$?
  if [ $code = 125 ] && [ ! -e "$folder/ran" ] && grep -q -- '--record.*: \(the folder .* does not exist\|.* is a folder\|.* is a pipe\|an output file needs a name\)' "$folder/err"; then ok "a_place_that_cannot_be_written_is_reported_first: $(basename "$path")"; else cat "$folder/err"; fail "a_place_that_cannot_be_written_is_reported_first: code $code"; fi
done
if [ -p "$folder/pipe" ]; then ok what_is_no_file_is_not_replaced_by_one; else fail what_is_no_file_is_not_replaced_by_one; fi

# If that fails only at the end, the recording is not lost, and its location is printed.
long=$(printf 'n%.0s' {1..250})
stowage_run --record "$folder/$long.stow" -- "$holder" alloc:$M > /dev/null 2> "$folder/err"
kept=$(sed -nE 's/.*; what was recorded is in (.*)/\1/p' "$folder/err")
if [ -n "$kept" ] && [ "$(count "$(ls "$kept"/*.stow)" alloc)" = 1 ]; then ok a_record_that_could_not_be_written_is_kept; else cat "$folder/err"; ls "$kept"; fail a_record_that_could_not_be_written_is_kept; fi

# A failed command leaves its last events in the folder of the run; one that succeeded leaves none.
stowage_run --vram-limit 10M -- sh -c "'$holder' alloc:$((60 * M)); exit 1" > /dev/null 2>&1
if ls "$XDG_STATE_HOME"/stowage/runs/last/*.stow > /dev/null 2>&1; then ok a_failed_command_leaves_its_last_events; else ls "$XDG_STATE_HOME"/stowage/runs/last/; fail a_failed_command_leaves_its_last_events; fi
stowage_run -- "$holder" alloc:$((6 * M)) > /dev/null 2>&1
if [ "$(ls "$XDG_STATE_HOME"/stowage/runs/last/ | tr '\n' ' ')" = "end host ledger watch " ]; then ok one_that_worked_leaves_none; else ls "$XDG_STATE_HOME"/stowage/runs/last/; fail one_that_worked_leaves_none; fi
if stowage_run --record "$folder/none.stow" -- true 2>&1 | grep_all 'used no device memory'; then ok nothing_to_record_is_reported; else fail nothing_to_record_is_reported; fi
# The recording replaces the file atomically. On a slow machine the host memory of `true` may be recorded; try until it is not.
for turn in $(seq 50); do
  echo old > "$folder/old.stow"
  stowage_run --record "$folder/old.stow" -- true 2>&1 | grep_all 'nothing was recorded' && break
done
if [ "$(cat "$folder/old.stow")" = old ]; then ok an_old_file_stays_where_nothing_was_recorded; else fail an_old_file_stays_where_nothing_was_recorded; fi
finish
