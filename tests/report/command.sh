#!/usr/bin/env bash
# stowage report as a command: what it prints, what it writes, what it refuses.
. "$(dirname "$0")/../guards/lib.bash"
data=$source_dir/tests/samples
cd "$folder" || exit 1

# The text of a recording the project carries. The policies are replay's to test; their table is left out here.
"$stowage" report --text "$data/leak.pickle.gz" 2> err | sed '/The same requests through/,$d' > text
if diff -u "$source_dir/tests/golden/report_leak.txt" text; then ok text_is_as_it_was; else fail text_is_as_it_was; fi
check text_writes_no_page test ! -e report.html
"$stowage" report "$data/one_spike.pickle.gz" 2> err
check the_page_is_report_html_unless_named grep -q 'Content-Security-Policy' report.html
check the_size_and_next_step_are_told grep -q 'report.html: .*open it in a browser' err
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

# Refusals: the exit code, the words, and that nothing was touched.
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
refuse a_page_that_cannot_be_written_is_said 1 'nowhere/page.html' "$stowage" report "$data/one_spike.pickle.gz" -o nowhere/page.html
refuse two_forms_on_standard_output_are_refused 2 'choose one' "$stowage" report --text --json "$data/one_spike.pickle.gz"
refuse three_traces_are_refused 2 'one word too many' "$stowage" report a b c
check no_temporary_file_is_left test -z "$(find . -name '*.html.*')"
finish
