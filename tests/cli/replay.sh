#!/usr/bin/env bash
# replay, tune, report and explain: figures of runs that fail are not compared, and a size that no device can hold is answered
# immediately.
. "$(dirname "$0")/../guards/lib.bash"
if ! has python3; then skip "replay: python3 is not here"; finish; fi
cd "$folder" || exit 1
data=$source_dir/tests/samples

# ---- tune under a limit that the plain settings do not fit ----
"$stowage" tune "$data/leak.pickle.gz" --vram-limit 3G --json > tune.json
"$stowage" tune "$data/leak.pickle.gz" --vram-limit 3G > tune.txt
"$stowage" replay "$data/leak.pickle.gz" --policy torch_default --json > plain.json
cat > tune.py << 'END'
import json, re
rows = json.load(open("tune.json"))
plain = next(r for r in rows if r["settings"] == "")
best = next(r for r in rows if r["best"])
live = json.load(open("plain.json"))[0]["peak_live_bytes"]
assert not plain["finishes"] and best["finishes"] and best["settings"] == "max_split_size_mb:32", (plain, best)
# The plain run failed, so what it had reserved by then is not comparable.
assert all(r["peak_reserved_saved_bytes"] is None for r in rows), rows
assert best["min_limit_saved_bytes"] == plain["min_limit_bytes"] - best["min_limit_bytes"] == 220 << 20
text = open("tune.txt").read()
shown = re.search(r"it runs in ([0-9.]+) GiB \(([0-9.]+) GiB live\)", text)
assert float(shown[1]) == round(best["min_limit_bytes"] / 2**30, 1), text
assert float(shown[2]) == round(live / 2**30, 1), (text, live)
END
check tune_does_not_compare_with_a_run_that_failed python3 tune.py

# ---- 2^60 bytes in a log of three lines ----
cat > huge.csv << 'END'
Thread,Time,Action,Pointer,Size,Stream
1,00:00:00:000001,allocate,0x7f0000000000,1152921504606846976,0x0
1,00:00:00:000002,free,0x7f0000000000,1152921504606846976,0x0
END
timeout 120 "$stowage" replay huge.csv --json > replay.json; replay=$?
timeout 120 "$stowage" replay huge.csv --min-limit > replay.txt; min_limit=$?
timeout 120 "$stowage" tune huge.csv --json > tune.json; tune=$?
timeout 120 "$stowage" report huge.csv --json > report.json; report=$?
timeout 120 "$stowage" report huge.csv -o report.html 2> /dev/null; page=$?
timeout 120 "$stowage" explain huge.csv > explain.txt; explain=$?
timeout 120 "$stowage" explain "$source_dir/tests/fuzz/corpus/explain/size_2_to_60" --json > failure.json; failure=$?
cat > huge.py << END
import json
assert ($replay, $min_limit, $tune, $report, $page, $explain, $failure) == (1, 1, 1, 0, 0, 0, 0)
rows = json.load(open("replay.json"))
assert len(rows) == 5 and not any(r["finishes"] for r in rows), rows
assert all((r["failed_at_event"], r["failed_bytes"]) == (0, 1 << 60) for r in rows), rows
assert open("replay.txt").read().count("more than any device") == 5
assert all(r["min_limit_bytes"] is None and r["min_limit_saved_bytes"] is None for r in json.load(open("tune.json")))
policies = json.load(open("report.json"))["runs"][0]["policies"]
assert [p["failed_bytes"] for p in policies] == [1 << 60] * 5, policies
assert json.load(open("failure.json"))["causes"][0]["id"] == "one_spike"
said = open("explain.txt").read()
assert "some entries of the file have impossible values and were skipped" in said and "began late" not in said, said
END
check a_size_that_no_device_can_hold_is_answered_at_once python3 huge.py
finish
