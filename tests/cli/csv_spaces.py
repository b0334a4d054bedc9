"""csv_spaces.py STOWAGE TABLES SEED: tables aligned with runs of spaces give the same arrays as the same tables with commas."""

import json
import os
import random
import subprocess
import sys
import zipfile

COMMAND, TABLES, SEED = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
WORDS = ["Anna", "Bo", "valve", "x_1", "größe", "健太", "a-b", "NA", "Q1/2024", "true", "it's", 'say"so', "*"]


def value(r, kind):
    if kind == "int":
        return str(r.randint(-10**6, 10**6))
    if kind == "float":
        return r.choice([f"{r.gauss(0, 100):.3f}", f"{r.gauss(0, 1):.8e}", "nan", "NA", "inf"])
    if kind == "quoted":
        text = f"{r.choice(WORDS)} {r.choice(WORDS)}  {r.randint(0, 99)}"
        return '"' + text.replace('"', '""') + '"'
    return r.choice(WORDS)


def write(path, rows, join, end):
    with open(path, "w", encoding="utf-8", newline="") as f:
        f.write("".join(join(row) + end for row in rows))


def arrays(path, out, *words, **env):
    done = subprocess.run([COMMAND, "shrink", path, "-o", out, "--force", *words], capture_output=True, text=True, env=os.environ | env)
    assert done.returncode == 0, f"{path} {words}: {done.stderr}"
    with zipfile.ZipFile(out) as z:
        return {name: z.read(name) for name in z.namelist()}


def inspected(text, *words):
    with open("t.txt", "w", encoding="utf-8", newline="") as f:
        f.write(text)
    facts = json.loads(subprocess.run([COMMAND, "inspect", "--json", *words, "t.txt"], capture_output=True, check=True).stdout)
    return facts["rows"], [c["name"] for c in facts["columns"]]


r = random.Random(SEED)
for number in range(TABLES):
    columns, lines = r.randint(2, 9), r.choice([3, 10, 300])
    kinds = ["int"] + [r.choice(["int", "float", "word", "quoted"]) for _ in range(columns - 1)]
    rows = [[f"c{i}" for i in range(columns)]] + [[value(r, k) for k in kinds] for _ in range(lines)]
    widths = [max(len(row[i]) for row in rows) + r.randint(1, 3) for i in range(columns)]
    right, left, tail, end = r.random() < 0.6, r.randint(0, 4), r.randint(0, 3), r.choice(["\n", "\r\n"])
    pad = str.rjust if right else str.ljust
    blank = r.choice(["", "\t"])  # tabs in some lines: as many in each would be the delimiter
    write("spaces.txt", rows, lambda row: " " * left + (blank if len("".join(row)) % 2 else "").join(pad(x, w) + " " for x, w in zip(row, widths)) + " " * tail, end)
    # Where the field was not quoted, a quote in it would open one here.
    write("commas.csv", rows, lambda row: ",".join(x if x[0] == '"' or '"' not in x else '"' + x.replace('"', '""') + '"' for x in row), "\n")
    want = arrays("commas.csv", "b.npz", "--names", "yes", "--delimiter", ",")
    for words, env in ((["--threads", "1"], {}), (["--threads", "3"], {"STOWAGE_TEST_WINDOW": "512"}), (["--delimiter", "spaces"], {})):
        have = arrays("spaces.txt", "a.npz", "--names", "yes", *words, **env)
        assert have == want, f"table {number} of seed {SEED}, {words}: {sorted(k for k in have.keys() | want.keys() if have.get(k) != want.get(k))}"

# An index without a name, a header in a comment, one line, and lines between.
assert inspected("    x    y\n0   1   2.5\n1  10  -3.5\n") == (2, ["index", "x", "y"])
assert inspected("#  id  x\n  1   2\n  3   4\n") == (2, ["id", "x"]), inspected("#  id  x\n  1   2\n  3   4\n")
assert inspected("  1.5   2.5\n") == (1, ["0", "1"])
assert inspected("\n   a    b\n\n   1    2\n      \n   3    4\n") == (2, ["a", "b"])
assert inspected("a b\nx y\n", "--delimiter", "spaces", "--names", "yes") == (1, ["a", "b"])
# What programs print: a name of two words, rows that lack their last values, tabs between some columns, blanks at the ends of lines.
disks = "Filesystem  1K-blocks   Used Available Use% Mounted on\nudev          8123456      0   8123456   0% /dev\n/dev/sda2   479151816 301234 153502345  67% /\n"
assert inspected(disks) == (2, ["Filesystem", "1K-blocks", "Used", "Available", "Use%", "Mounted", "on"]), inspected(disks)
assert inspected("Filesystem      Size  Used Avail Use% Mounted on\nudev            7.8G     0  7.8G   0% /dev\n/dev/nvme0n1p2  457G  288G  147G  67% /\n")[1][4:] == ["Use%", "Mounted", "on"]
assert inspected("FAM1 IND1 0 0 1 -9\nFAM1 IND2 0 0 2 -9\n", "--names", "no") == (2, ["0", "1", "2", "3", "4", "5"])
assert inspected("        total   used   free  cache\nMem:    15923   8123   1234   6565\nSwap:    2047      0   2047\n") == (2, ["index", "total", "used", "free", "cache"])
assert inspected('18.0   8   307.0   3504.\t"chevrolet malibu"\n15.0   8   350.0   3693.\t"buick 320"\n', "--names", "no") == (2, ["0", "1", "2", "3", "4"])
assert inspected("a b c   \n1 2 3   \n4 5 6 \n") == (2, ["a", "b", "c"])
assert inspected("# time  volt\n0.5 1.5\n1.5 2.5\n") == (2, ["time", "volt"])
# Text that happens to have spaces, and tables with another delimiter, are not split.
assert inspected("John Smith\nJane Doe\nMax Roe\nAnn Poe\n", "--names", "no") == (4, ["0"])
assert inspected("One line.  And more\nof a text.  It has\nlines of words   and\nno columns at all\nor so it  seems\n", "--names", "no") == (5, ["0"])
assert inspected("name   city\nAnna   Rome\nBo     Oslo\nCarla  Lima\n", "--names", "yes") == (3, ["name", "city"])
assert len(inspected("a,   b\n1,   2\n")[1]) == 2
assert inspected("a\tb  c\n1\t2  3\n")[1] == ["a", "b  c"]
assert inspected("Room 12 \nRoom 13 \nRoom 14 \n", "--names", "no") == (3, ["0"])
assert inspected("12 Main St 10115\n14 High St 20095\n", "--names", "no") == (2, ["0"])
assert inspected("Chapter one begins  here\nIt was 1984\n", "--names", "no") == (2, ["0"])
