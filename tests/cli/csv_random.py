"""csv_random.py COMMAND COUNT SEED: random quoted tables, read by the command and by Python's csv module.

Every table is read with 1, 2, 3 and 8 threads, in windows of a few hundred bytes, so that a table of some KiB has many. Every
value of every column must be the one that Python's csv module finds.
"""

import csv
import io
import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from table_npz import read_columns  # noqa: E402

WORDS = ["K1A", "x", 'say "yes"', '""', '"', "two\nlines", "two\r\nlines", "two\rlines", "a,b", "a;b", "a\tb", "a|b", "é大", " spaced ", "27\" x", "\n", "007x"]


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


def field(rng, text, delimiter):
    """Quotes a field if it must be quoted, and sometimes if it need not be."""
    if any(c in text for c in '"\n\r,;\t|') or text.startswith(" ") or rng.random() < 0.2:
        return quoted(text)
    return text


def make_column(rng, rows):
    kind = rng.choice(["int", "float", "gaps", "text", "late", "very late", "distinct", "bool", "quoted numbers"])
    numbers = [str(rng.randrange(-500, 70000)) for _ in range(rows)]
    if kind == "float":
        return ["%.3f" % (rng.random() * 100) for _ in range(rows)]
    if kind == "gaps":
        return [n if rng.random() < 0.8 else "" for n in numbers]
    if kind == "text":
        return ["".join(rng.choice(WORDS) for _ in range(rng.randrange(0, 4))) for _ in range(rows)]
    if kind == "late":
        return [n if rng.random() < 0.97 else rng.choice(WORDS) for n in numbers]
    if kind == "very late":
        return numbers[:-1] + ["K1A"]
    if kind == "distinct":
        return ["row %d%s" % (i, rng.choice(WORDS)) for i in range(rows)]
    if kind == "bool":
        return [rng.choice(["true", "false"]) for _ in range(rows)]
    return numbers


def make_table(rng):
    rows, count = rng.choice([rng.randrange(1, 30), rng.randrange(30, 300)]), rng.randrange(2, 6)
    columns = [make_column(rng, rows) for _ in range(count)]
    delimiter, end = rng.choice([",", ",", ",", ";", "\t", "|"]), rng.choice(["\n", "\r\n", "\r"])
    lines = [delimiter.join("c%d" % i for i in range(count))]
    for row in zip(*columns):
        lines.append(delimiter.join(field(rng, text, delimiter) for text in row))
        if rng.random() < 0.02:
            lines.append("")
    text = end.join(lines)
    return text if rng.random() < 0.2 and lines[-1] else text + end


def as_numbers(texts):
    if {t for t in texts} <= {"true", "false"}:
        return [t == "true" for t in texts]
    try:
        return [float(t) if t else float("nan") for t in texts]
    except ValueError:
        return None


def same(found, expected):
    numbers = as_numbers(expected)
    if numbers is None:
        return list(found) == expected
    return len(found) == len(numbers) and all(a == b or (a != a and b != b) for a, b in zip(found, numbers))


def main():
    command, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for number in range(count):
        rng = random.Random(seed * 1_000_003 + number)
        text = make_table(rng)
        delimiter = text[2] if text[2] in ",;\t|" else ","
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]
        with open("t.csv", "w", newline="", encoding="utf-8") as file:
            file.write(text)
        window = str(rng.choice([64, 200, 700, 3000]))
        for threads in ("1", "2", "3", "8"):
            words = [command, "shrink", "--force", "--no-sync", "--json", "--memory", "64M", "--threads", threads, "t.csv", "-o", "t.npz"]
            done = subprocess.run(words, capture_output=True, text=True, env=dict(os.environ, STOWAGE_TEST_WINDOW=window), check=False)
            where = f"table {number} of seed {seed}, {threads} threads, windows of {window}"
            if done.returncode != 0:
                sys.exit(f"{where}: {done.stderr.strip()}\n{text[:2000]!r}")
            facts = json.loads(done.stdout)
            columns = read_columns("t.npz")
            if len(facts["columns"]) != len(rows[0]) or list(columns) != rows[0]:
                sys.exit(f"{where}: columns {list(columns)}, not {rows[0]}")
            for i, name in enumerate(rows[0]):
                expected = [row[i] for row in rows[1:]]
                if not same(columns[name], expected):
                    sys.exit(f"{where}: column {name} is {list(columns[name])[:20]!r}, not {expected[:20]!r}")
    print(f"{count} tables of seed {seed} agree, with 1, 2, 3 and 8 threads")


main()
