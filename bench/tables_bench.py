"""The comparison of tables_bench.sh, in the folder for the files."""

import importlib.util
import os
import subprocess
import sys
import time

from beside import in_turns, line

STOWAGE = os.environ["STOWAGE"]
ROWS, TURNS = int(os.environ.get("STOWAGE_BENCH_ROWS", "1000000")), int(os.environ.get("STOWAGE_BENCH_TURNS", "5"))
OUTPUT = "out"


def has(*modules):
    return all(importlib.util.find_spec(name) for name in modules)


# ---- the files ----


def apart(work, *arguments):
    """Runs `work` in a process of its own: the peak of a program that we start counts at least our own memory."""
    child = os.fork()
    if child == 0:
        import numpy as np

        work(np, np.random.default_rng(7), *arguments)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        raise SystemExit(f"tables_bench: {work.__name__} failed")


def write_mixed(np, rng, path, rows):
    """Twelve columns as exports have them: numbers of several kinds, booleans, texts, dates, gaps."""
    city = np.array([f"City of {i}" for i in range(2000)])[rng.integers(0, 2000, rows)]
    kind = np.array(["red", "green", "blue", "violet", "black"])[rng.integers(0, 5, rows)]
    day = np.datetime_as_string(np.datetime64("2020-01-01") + rng.integers(0, 1500, rows).astype("m8[D]"))
    columns = [
        range(rows), rng.integers(0, 500, rows).tolist(), rng.integers(1, 100, rows).tolist(), np.round(rng.gamma(2, 20, rows), 2).tolist(),
        rng.standard_normal(rows).tolist(), (rng.standard_normal(rows) * 1e3).tolist(), np.round(rng.uniform(-90, 90, rows), 6).tolist(),
        np.where(rng.random(rows) < 0.5, "true", "false").tolist(), city.tolist(), kind.tolist(), day.tolist(),
        [n if n >= 50 else "" for n in rng.integers(0, 1000, rows).tolist()],
    ]
    with open(path, "w") as out:
        out.write("id,store,quantity,price,x,y,latitude,flag,city,kind,day,score\n")
        out.writelines(",".join(map(str, row)) + "\n" for row in zip(*columns))


def write_quoted(np, rng, path, rows):
    """Texts in quotes, some with commas and doubled quotes, as R writes them."""
    notes = ['"5"" disk"', '"words, and a comma"', '"x"']
    with open(path, "w") as out:
        out.write('"id","name","city","value","note"\n')
        for i, value in enumerate(rng.random(rows).tolist()):
            out.write(f'{i},"user {i % 5000}","City of {i % 700}",{value:.6f},{notes[0 if i % 10 == 0 else 1 + i % 2]}\n')


def write_distinct(np, rng, path, rows, distinct):
    words = np.array([f"user_{n:010x}" for n in rng.choice(2**36, distinct, replace=False).tolist()])
    with open(path, "w") as out:
        out.write("id,name\n")
        out.writelines(f"{i},{word}\n" for i, word in enumerate(words[rng.integers(0, distinct, rows)].tolist()))


# ---- measuring ----


class Used:
    """Runs a program and returns its CPU time; remembers the least wall time and the peak of resident memory."""

    def __init__(self, words):
        self.words, self.wall, self.peak = words, 1e9, 0

    def __call__(self):
        for name in os.listdir("."):
            if name.startswith(OUTPUT):
                os.unlink(name)
        start = time.perf_counter()
        process = subprocess.Popen(self.words, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        if status != 0:
            raise SystemExit(f"tables_bench: {self.words} failed")
        self.wall = min(self.wall, time.perf_counter() - start)
        self.peak = max(self.peak, usage.ru_maxrss / 1024)
        return usage.ru_utime + usage.ru_stime


def ours(*words):
    return Used([STOWAGE, *words, "--no-sync"])


def python(code):
    return Used([sys.executable, "-c", code])


def least(*runs):
    return [min(values) for values in in_turns(runs, TURNS)]


def beside(case, mine, name, code, imports, own_imports=""):
    """Compares ours with a peer's program. The time of the imports is not part of the peer's figure."""
    peer, start = python(f"{imports}\n{code}"), python(imports)
    runs = [mine, peer, start] + ([python(own_imports)] if own_imports else [])
    used = least(*runs)
    own = used[0] - (used[3] if own_imports else 0)
    line(case, own, name, used[1] - used[2], "cpu_s", f" {name}_import={used[2]:.3g}")
    line(f"{case}_memory", mine.peak, name, peer.peak, "MiB")


def scaling(case, *words):
    """Two threads beside one. On a busy machine the wall times say little: `cpu` is what two threads use of one's CPU time."""
    one, two = ours(*words, "--threads", "1"), ours(*words, "--threads", "2")
    first, second = least(one, two)
    line(f"{case}_2_threads", one.wall / two.wall, "one_thread", 1, "times", f" cpu={second / first:.3g}")


apart(write_mixed, "mixed.csv", ROWS)
apart(write_quoted, "quoted.csv", ROWS)
apart(write_distinct, "distinct.csv", ROWS * 4, ROWS // 5)
to_npz = [(name, ("shrink", f"{name}.csv", "-o", OUTPUT + ".npz")) for name in ("mixed", "quoted", "distinct")]
POLARS, DUCKDB, PYARROW = "import polars", "import duckdb; duckdb.connect().execute('select 1')", "import pyarrow.parquet, pyarrow.csv"
for name, words in to_npz:
    if has("polars"):
        beside(f"csv_{name}_to_npz", ours(*words, "--threads", "1"), "polars_read_csv", f"polars.read_csv('{name}.csv')", POLARS)
    scaling(f"csv_{name}_to_npz", *words)
if has("polars"):
    code = "polars.read_csv('distinct.csv', schema_overrides={'name': polars.Categorical})"
    beside("distinct_texts", ours(*to_npz[2][1], "--threads", "1"), "polars_categorical", code, POLARS)
if has("duckdb"):
    code = f"duckdb.execute(\"copy (from 'mixed.csv') to '{OUTPUT}.parquet'\")"
    beside("csv_mixed_to_npz", ours(*to_npz[0][1], "--threads", "1"), "duckdb_copy", code, DUCKDB)
if has("pyarrow"):
    own = "import stowage, numpy, pyarrow.parquet"
    if has("polars"):
        code = f"polars.scan_csv('mixed.csv').sink_parquet('{OUTPUT}.parquet')"
        beside("csv_to_parquet", ours("shrink", "mixed.csv", "-o", OUTPUT + ".parquet"), "polars_sink", code, POLARS, own)
    subprocess.run([sys.executable, "-c", f"{PYARROW}\npyarrow.parquet.write_table(pyarrow.csv.read_csv('mixed.csv'), 'mixed.parquet')"], check=True)
    table = "pyarrow.parquet.read_table('mixed.parquet')"
    beside("inspect_parquet", Used([STOWAGE, "inspect", "mixed.parquet"]), "pyarrow_read", table, PYARROW, own)
    code = f"pyarrow.parquet.write_table({table}, '{OUTPUT}.parquet', compression='zstd')"
    beside("parquet_to_parquet", ours("shrink", "mixed.parquet", "-o", OUTPUT + ".parquet"), "pyarrow", code, PYARROW, own)
    code = f"import numpy\nt = {table}\nnumpy.savez('{OUTPUT}.npz', **{{n: c.to_numpy() for n, c in zip(t.column_names, t.columns)}})"
    beside("parquet_to_npz", ours("shrink", "mixed.parquet", "-o", OUTPUT + ".npz"), "pyarrow_numpy", code, PYARROW, own)
for name in ("polars", "duckdb", "pyarrow"):
    if not has(name):
        print(f"case=tables peer={name}:missing")

# ---- one row at a time ----


def row_by_row(np, rng):
    import stowage

    np.save("rows.npy", rng.standard_normal((200_000, 64)).astype("f4"))
    numbers = rng.integers(0, 200_000, 20_000).tolist()

    def each_row(of, take):
        start = time.process_time()
        for number in numbers:
            take(of[number])
        return (time.process_time() - start) / len(numbers) * 1e6

    mapped, opened = np.load("rows.npy", mmap_mode="r"), stowage.open("rows.npy")
    mine, theirs = least(lambda: each_row(opened, lambda row: row), lambda: each_row(mapped, np.array))
    line("one_random_row", mine, "memmap_copy", theirs, "cpu_us")


apart(row_by_row)
