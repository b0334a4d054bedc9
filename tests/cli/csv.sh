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
assert inspect("0,1\nTrue,False\nFalse,True\n") == (True, 2, ["0", "1"], None)
assert inspect("inf,2021\n01067,ab\n99999,cd\n") == (True, 2, ["inf", "2021"], None)
assert inspect("1,0\nTrue,1\nFalse,0\n1,1\n") == (False, 4, ["0", "1"], None)
assert inspect("1.0,2.0\n3.0,4.0\n") == (False, 2, ["0", "1"], None)
assert inspect("1.0,2.0\n3.0,4.0\n", "--names", "yes") == (True, 1, ["1.0", "2.0"], None)
# A date, or another text of digits, above others of its form is not their name. A line of blanks is not a row.
for first in ("2024-01-01 10:00:00", "01/31/2024", "10:15", "192.168.0.1"):
    assert inspect(f"{first}\n{first[:-1]}2\n{first[:-1]}3\n") == (False, 3, ["0"], None), first
    assert inspect(f"{first},5\n{first[:-1]}2,6\n") == (False, 2, ["0", "1"], None), first
assert inspect("id,2024-01-01,2024-02-01\na,1,2\nb,3,4\n") == (True, 2, ["id", "2024-01-01", "2024-02-01"], None)
assert inspect("date,2024-01-01\n2024-05-05,2\n") == (True, 1, ["date", "2024-01-01"], None)
assert inspect("a,b\n\n1,2\n  \t\n3,4\n") == (True, 2, ["a", "b"], None)
assert inspect("x\n1\n\n2\n \t \n  3\n") == (True, 3, ["x"], None)
assert inspect("x1,x2,y10\na1,b2,c10\n") == (True, 1, ["x1", "x2", "y10"], None)
assert inspect("1.0,2.0\n3.0,4.0\n")[1] == 2
done = subprocess.run([sys.argv[1], "shrink", "--json", "t.csv", "-o", "t.npz"], capture_output=True, check=True)
facts = json.loads(done.stdout)
assert (facts["header"], facts["rows"]) == (False, 2), facts
END
check the_first_row_is_names_or_data python3 names.py "$stowage"
check columns_aligned_with_spaces env PYTHONUTF8=1 python3 "$source_dir/tests/cli/csv_spaces.py" "$stowage" 12 3
finish
