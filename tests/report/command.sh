#!/usr/bin/env bash
# stowage report as a command: what it prints, what it writes, what it refuses.
. "$(dirname "$0")/../guards/lib.bash"
data=$source_dir/tests/samples
cd "$folder" || exit 1

# The text of a recording in the repository. The table of policies is left out here, because the replay tests cover it.
"$stowage" report --text "$data/leak.pickle.gz" 2> err | sed '/The same requests through/,$d' > text
if diff -u "$source_dir/tests/golden/report_leak.txt" text; then ok text_is_as_it_was; else fail text_is_as_it_was; fi
check text_writes_no_page test ! -e report.html
"$stowage" report "$data/one_spike.pickle.gz" 2> err
check the_page_is_report_html_unless_named grep -q 'Content-Security-Policy' report.html
check the_size_and_next_step_are_reported grep -q 'report.html: .*open it in a browser' err
"$stowage" report -o - "$data/one_spike.pickle.gz" > out.html 2> err
check a_dash_writes_to_standard_output cmp report.html out.html
check the_command_is_quiet_then test ! -s err

"$stowage" report --json "$data/leak.pickle.gz" "$data/fragmentation.pickle.gz" > both.json
if has python3; then
  check json_has_both_runs_and_their_difference python3 - both.json << 'PY'
import json, sys
facts = json.load(open(sys.argv[1]))
a, b = facts["runs"]
assert a["peak_live_bytes"] == a["peak"]["live_bytes"] == sum(h["bytes"] for h in a["peak"]["holders"]), "holders do not add up"
assert a["iterations_from"] == "marks" and len(a["iterations"]) == 57 and a["growth_bytes"] > 30 << 20, "iterations"
assert a["failure_count"] == 1 and a["failures"][0]["asked_bytes"] == 134217728, "failure"
assert sum(d["second_bytes"] for d in facts["difference"]) == b["peak_live_bytes"], "difference"
assert a["passed_over"] == 0 and {p["policy"] for p in a["policies"]} >= {"torch_default", "torch_expandable"}, "policies"
PY
fi

# The folder of a run, as stowage run leaves it, and --last. Three ranks of a job are three runs of one report.
run=state/stowage/runs/20260101-000000-1
mkdir -p "$run"
"$stowage" convert "$data/leak.pickle.gz" "$run/4711.stow" > out
printf 'code 1\nsignal 0\ncommand python train.py\nkernel 0\n' > "$run/end"
printf 'started\t%s\nlimit\t4096\tgiven\nheld\t100\t3072\t0\nended\t\nsample\t0\t1024\nsample\t10\t3072\n' 1700000000000000000 > "$run/host"
ln -s 20260101-000000-1 state/stowage/runs/last
"$stowage" report --json "$run" > run.json
XDG_STATE_HOME=$PWD/state "$stowage" report --json --last > last.json
check last_is_the_last_run cmp <(sed 's/runs.*4711/4711/' run.json) <(sed 's/runs.*4711/4711/' last.json)
for rank in 0 1 2; do mkdir -p "job/rank$rank" && cp "$run/4711.stow" "$run/end" "job/rank$rank"; done
"$stowage" report --json job > job.json
"$stowage" report --text job > job.txt
check text_has_the_balance_of_ranks test "$(grep -c '+0.0%.*rank [012], device 0' job.txt)" = 3
mkdir -p bare && cp "$run/end" bare
# A command that ended before its first sample: the kernel's figure for its peak, and how it ended.
mkdir -p quick && printf 'code 3\nsignal 0\ncommand ls /none\nkernel 0\n' > quick/end
printf 'started\t%s\nlimit\t8589934592\tmachine\nheld\t0\t2097152\t0\nended\t\n' 1700000000000000000 > quick/host
check a_quick_run_has_a_report "$stowage" report --text quick
"$stowage" report --text quick > quick.txt
check a_quick_run_names_command_code_and_peak grep -Pzoq 'ls /none\n.*code 3(.|\n)*2\.0 MiB +at the peak, of 8\.0 GiB' quick.txt
check a_quick_run_has_a_page "$stowage" report quick -o quick.html
if has python3; then
  check a_run_folder_has_its_traces_and_why python3 - run.json job.json << 'PY'
import json, sys
run, job = (json.load(open(path))["runs"] for path in sys.argv[1:])
assert len(run) == 1 and run[0]["file"] == "python train.py (4711)" and run[0]["failure_count"] == 1, run[0]["file"]
assert run[0]["peak_host_bytes"] == 3072 and run[0]["host_limit_bytes"] == 4096, "host memory"
assert run[0]["why"]["causes"][0]["id"] == "leak" and run[0]["why"]["fixes"], "why"
assert [r["file"] for r in job] == ["rank 0", "rank 1", "rank 2"], [r["file"] for r in job]
PY
fi

# Refusals: the exit code, the message, and that no file was changed.
refuse() { # NAME CODE WORDS COMMAND…
  local name=$1 code=$2 words=$3; shift 3
  "$@" > out 2> err; local got=$?
  if [ $got -eq "$code" ] && grep -q "$words" err; then ok "$name"; else cat err; fail "$name: code $got"; fi
}
refuse a_file_that_is_not_there_is_named 2 'nowhere.pickle' "$stowage" report nowhere.pickle
head -c 3000 "$data/leak.pickle.gz" > cut.pickle.gz
echo old > kept.html
refuse a_cut_trace_is_refused 2 'cut.pickle.gz' "$stowage" report cut.pickle.gz -o kept.html
check and_the_old_page_is_kept grep -qx old kept.html
refuse a_page_that_cannot_be_written_is_reported 1 'nowhere/page.html' "$stowage" report "$data/one_spike.pickle.gz" -o nowhere/page.html
refuse a_run_without_a_trace_is_refused 2 'stowage run --record' "$stowage" report bare
refuse a_folder_of_no_run_is_refused 2 'not the folder of a' "$stowage" report state
mkdir -p own && "$stowage" convert "$data/leak.pickle.gz" own/rank0.stow > /dev/null && cp own/rank0.stow own/rank1.stow
refuse a_folder_of_recordings_says_how_to_name_them 2 '^stowage report: own: not the folder of .*: stowage report own/\*$' "$stowage" report own
check and_named_so_they_are_shown "$stowage" report own/* -o own.html
refuse two_forms_on_standard_output_are_refused 2 'choose one' "$stowage" report --text --json "$data/one_spike.pickle.gz"
refuse seventeen_traces_are_refused 2 'unexpected argument' "$stowage" report a b c d e f g h i j k l m n o p q
refuse no_trace_is_refused 2 'give a trace' "$stowage" report
refuse last_stands_alone 2 'not both' "$stowage" report --last a
check no_temporary_file_is_left test -z "$(find . -name '*.html.*')"
finish
