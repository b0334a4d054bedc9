#!/usr/bin/env bash
# Compares tables with Python's csv module: a seeded part of random quoted tables. tests/long/csv_random.sh runs many more.
. "$(dirname "$0")/../guards/lib.bash"
cd "$folder" || exit 1
check random_quoted_tables_agree_with_the_csv_module python3 "$source_dir/tests/cli/csv_random.py" "$stowage" 150 1

cat > names.py << 'END'
import json, subprocess, sys
def inspect(text, *words):
    open("t.csv", "w").write(text)
    facts = json.loads(subprocess.run([sys.argv[1], "inspect", "--json", *words, "t.csv"], capture_output=True, check=True).stdout)
    return facts["header"], facts["rows"], [c["name"] for c in facts["columns"]], facts["pandas_index"]
frame = ",0,1,2,3\n0,0.5,1,2,3\n1,0.25,5,6,7\n"
assert inspect(frame) == (True, 2, ["index", "0", "1", "2", "3"], "index"), inspect(frame)
assert inspect(frame, "--names", "auto") == inspect(frame)
assert inspect(frame, "--names", "no") == (False, 3, ["0", "1", "2", "3", "4"], None)
assert inspect("country,2019,2020\nUS,1,2\n") == (True, 1, ["country", "2019", "2020"], None)
assert inspect("x,inf\n1,2\n") == (True, 1, ["x", "inf"], None)
assert inspect("1.0,2.0\n3.0,4.0\n") == (False, 2, ["0", "1"], None)
assert inspect("1.0,2.0\n3.0,4.0\n", "--names", "yes") == (True, 1, ["1.0", "2.0"], None)
done = subprocess.run([sys.argv[1], "shrink", "--json", "t.csv", "-o", "t.npz"], capture_output=True, check=True)
facts = json.loads(done.stdout)
assert (facts["header"], facts["rows"]) == (False, 2), facts
END
check the_first_row_is_names_or_data python3 names.py "$stowage"
check columns_aligned_with_spaces env PYTHONUTF8=1 python3 "$source_dir/tests/cli/csv_spaces.py" "$stowage" 12 3
finish
