"""formats.py COMMAND FOLDER: passes tables of pandas, polars, pyarrow and DuckDB through stowage and back, and compares every value."""

import datetime
import json
import os
import subprocess
import sys

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import stowage

command, folder = sys.argv[1:]
os.chdir(folder)
failed = 0


def check(name, works):
    global failed
    try:
        print(f"ok {name}{works() or ''}", flush=True)
    except Exception as error:
        import traceback

        traceback.print_exc()
        failed += 1
        print(f"FAIL {name}: {type(error).__name__}: {error}", flush=True)


def same(a, b):
    """Compares rows; NaN equals NaN, and a number equals its value in another type."""
    assert len(a) == len(b), (len(a), len(b))
    for row, (x, y) in enumerate(zip(a, b)):
        assert x.keys() == y.keys(), (row, x.keys(), y.keys())
        for name in x:
            p, q = x[name], y[name]
            equal = p == q or (isinstance(p, float) and isinstance(q, float) and p != p and q != q)
            assert equal, (row, name, p, q)


def random_table(seed):
    """Makes a table of random types, nulls and sizes."""
    rng = np.random.default_rng(seed)
    rows = int(rng.choice([0, 1, 7, 8, 9, 1000, 5000]))
    columns = {}
    for number in range(rng.integers(1, 9)):
        kind = rng.choice("small big negative half real text words flag time date none list".split())
        values = {
            "small": lambda: rng.integers(0, 100, rows).tolist(),
            "big": lambda: rng.integers(-(2**62), 2**62, rows).tolist(),
            "negative": lambda: rng.integers(-40000, 40000, rows).tolist(),
            "half": lambda: (rng.integers(-50, 50, rows) * 0.5).tolist(),
            "real": lambda: rng.normal(size=rows).tolist(),
            "text": lambda: [f"tëxt {n} \N{SNOWMAN}\n\"" for n in rng.integers(0, 10**9, rows)],
            "words": lambda: [["", "Bern", "Zürich"][n] for n in rng.integers(0, 3, rows)],
            "flag": lambda: (rng.random(rows) < 0.5).tolist(),
            "time": lambda: [datetime.datetime(2020, 1, 1) + datetime.timedelta(microseconds=int(n)) for n in rng.integers(0, 10**15, rows)],
            "date": lambda: [datetime.date(1950, 1, 1) + datetime.timedelta(days=int(n)) for n in rng.integers(0, 50000, rows)],
            "none": lambda: [None] * rows,
            "list": lambda: [[int(n)] * (int(n) % 3) for n in rng.integers(0, 9, rows)],
        }[kind]()
        types = dict(small=pa.int64(), big=pa.int64(), negative=pa.int32(), half=pa.float64(), real=pa.float64(), text=pa.string())
        types.update(words=pa.large_string(), flag=pa.bool_(), time=pa.timestamp("us"), date=pa.date32(), none=pa.int16(), list=pa.list_(pa.int64()))
        if rng.random() < 0.5:
            values = [None if rng.random() < 0.2 else value for value in values]
        array = pa.array(values, types[kind])
        columns[f"{kind} {number}"] = array.dictionary_encode() if kind == "words" and rng.random() < 0.5 else array
    table = pa.table(columns)
    return table.slice(int(rng.integers(0, 3))) if rows > 9 and rng.random() < 0.5 else table


READERS = {"parquet": lambda path: duckdb.read_parquet(path).pl().to_dicts(), "feather": lambda path: pl.read_ipc(path).to_dicts()}


def every_format():
    count = 0
    for seed in range(60):
        table = random_table(seed)
        rows = table.to_pylist()
        same(stowage.shrink(table, quiet=True).to_pylist(), rows)
        same(stowage.shrink(pl.from_arrow(table), quiet=True).to_dicts(), rows)
        pq.write_table(table, "in.parquet", row_group_size=700)
        pyarrow.feather.write_feather(table, "in.feather", chunksize=900)
        for source in ("in.parquet", "in.feather"):
            for ending in READERS:
                stowage.shrink(source, f"out.{ending}", quiet=True)
                same(READERS[ending](f"out.{ending}"), rows)
                count += 1
        assert stowage.inspect("in.parquet").data["rows"] == table.num_rows
    return f": {count} files of 60 tables"


def growing():
    values = np.round(np.random.default_rng(3).normal(size=100000), 2)  # a dictionary makes it small
    pq.write_table(pa.table({"x": values, "t": [f"w{n % 50}" for n in range(100000)]}), "g.parquet")
    stowage.shrink("g.parquet", "g2.parquet", quiet=True)
    assert os.path.getsize("g2.parquet") <= os.path.getsize("g.parquet") + 512
    table = pa.table({"x": np.random.default_rng(4).integers(0, 2**56, 300000)})  # smaller than ours, as its bytes are split
    packed = dict(compression="brotli", use_dictionary=False, column_encoding="BYTE_STREAM_SPLIT")
    pq.write_table(table, "h.parquet", **packed)
    try:
        stowage.shrink("h.parquet", "h2.parquet", quiet=True)
        raise AssertionError(f"{os.path.getsize('h.parquet')} bytes grew to {os.path.getsize('h2.parquet')}")
    except stowage.Invalid as error:
        assert "force" in str(error) and not os.path.exists("h2.parquet")
    stowage.shrink("h.parquet", "h2.parquet", quiet=True, force=True)
    assert pq.read_table("h2.parquet").column("x").to_pylist() == table.column("x").to_pylist()


def npz():
    for seed in range(60):
        table = random_table(seed)
        table = table.select([n for n in table.column_names if not n.startswith("list") and not (n.startswith("big") and table[n].null_count)])
        if table.num_columns == 0:
            continue
        pq.write_table(table, "in.parquet")
        stowage.shrink("in.parquet", "out.npz", quiet=True)
        loaded = np.load("out.npz")
        for name in table.column_names:
            wanted = table[name].to_pylist()
            if name.startswith(("text", "words")):
                found = list(stowage.open(f"out.npz:{name}")[:]) if table.num_rows else []
                assert found == [value or "" for value in wanted], (seed, name)
            elif name.startswith(("time", "date")):
                assert loaded[name].tolist() == wanted, (seed, name)
            else:
                found = [None if value != value else value for value in loaded[name].tolist()]
                assert found == wanted, (seed, name)
        if table.num_rows:
            stowage.shrink("out.npz", "again.parquet", quiet=True)
            assert pq.read_table("again.parquet").num_rows == table.num_rows


def jsonl():
    rows = [{"a": i, "b": i / 4 if i > 50000 else i, "s": f"é{i}", "n": None if i % 3 else i} for i in range(60000)]
    with open("in.jsonl", "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
        file.write(json.dumps({"a": 1, "late": True}) + "\n")
    stowage.shrink("in.jsonl", "out.parquet", quiet=True, memory="8M")
    found = pl.read_parquet("out.parquet").to_dicts()
    assert found[-1] == {"a": 1, "b": None, "s": None, "n": None, "late": True}, found[-1]
    same([{k: v for k, v in row.items() if k != "late"} for row in found[:-1]], rows)
    stowage.shrink("out.parquet", "back.jsonl", quiet=True)
    same(pl.read_ndjson("back.jsonl", infer_schema_length=None).to_dicts(), found)


def many_files():
    rows = [{"a": i, "s": f"r{i}"} for i in range(3000)]
    for part in range(3):
        table = pa.Table.from_pylist(rows[part * 1000 : part * 1000 + 1000])
        table = table.set_column(0, "a", table["a"].cast([pa.int16(), pa.int64(), pa.int32()][part]))
        pq.write_table(table.select(["s", "a"]) if part == 1 else table, f"part-{part}.parquet")
    stowage.shrink("part-*.parquet", "whole.parquet", quiet=True)
    same(pl.read_parquet("whole.parquet").select("a", "s").to_dicts(), rows)
    stowage.shrink(["part-2.parquet", "part-0.parquet"], "two.feather", quiet=True, columns=["a"])
    assert pl.read_ipc("two.feather").to_dicts() == [{"a": row["a"]} for row in rows[2000:] + rows[:1000]]
    assert stowage.inspect("part-*.parquet").data["rows"] == 3000
    done = subprocess.run([command, "shrink", "part-*.parquet", "-o", "said.npz"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert np.load("said.npz")["a"].tolist() == list(range(3000))
    pq.write_table(pa.table({"other": [1]}), "part-3.parquet")
    try:
        stowage.inspect("part-*.parquet")
        raise AssertionError("files of different columns are one table")
    except stowage.Invalid as error:
        assert "part-3.parquet" in str(error)


def text_tables():
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"i": rng.integers(0, 1000, 5000), "x": rng.normal(size=5000), "w": rng.choice(["a", "b", "ü"], 5000)})
    frame.to_csv("in.csv", index=False)
    for ending in READERS:
        stowage.shrink("in.csv", f"out.{ending}", quiet=True)
        same(READERS[ending](f"out.{ending}"), frame.to_dict("records"))


def objects():
    frame = pd.DataFrame({"a": np.arange(300), "b": np.arange(300) / 2, "s": ["x"] * 300})
    relation = duckdb.sql("select range as a, range / 2 as b from range(5000)")
    assert stowage.inspect(relation).data["columns"][0]["smallest"] == "int16"
    small = stowage.shrink(relation, quiet=True)
    assert pa.table(small).schema.field("a").type == pa.int16() and pl.DataFrame(small).height == 5000
    assert stowage.inspect(frame).data["rows"] == 300
    series = stowage.shrink(pl.Series("n", [1, 2, None]), quiet=True)
    assert series.dtype == pl.Int8 and series.to_list() == [1, 2, None]
    table = pa.table({"keep": ["a"] * 1000, "shrink": range(1000)})
    made = stowage.shrink(table, quiet=True)
    before, after = table["keep"].chunk(0).buffers()[2].address, made["keep"].chunk(0).buffers()[2].address
    assert before == after, "a column whose type stays was copied"


def from_the_command():
    pq.write_table(random_table(3), "c.parquet")
    for words in (["inspect", "c.parquet", "--json"], ["shrink", "c.parquet", "-o", "c.feather", "--json"]):
        done = subprocess.run([command, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["rows"] == pq.read_table("c.parquet").num_rows
    assert len(pl.read_ipc("c.feather")) == pq.read_table("c.parquet").num_rows


def other_packages():
    """Tests without pyarrow: polars, then DuckDB."""
    table = pl.DataFrame({"a": range(1000), "s": ["x"] * 1000})
    table.write_parquet("o.parquet")
    for hidden in (["pyarrow"], ["pyarrow", "polars"]):
        code = f"import sys\nfor name in {hidden}: sys.modules[name] = None\nimport stowage\nstowage.shrink('o.parquet', 'p.parquet', quiet=True)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = pq.read_table("p.parquet")
        assert found["a"].to_pylist() == list(range(1000)) and found.schema.field("a").type == pa.int16(), found.schema


def budget():
    rows = 4_000_000
    writer = None
    for part in range(8):
        values = np.random.default_rng(part).normal(size=(rows // 8, 6))
        table = pa.table({f"c{i}": values[:, i] for i in range(6)})
        writer = writer or pq.ParquetWriter("big.parquet", table.schema)
        writer.write_table(table, row_group_size=rows // 8)
    writer.close()
    # VmHWM begins with the process; ru_maxrss is inherited from the parent and would hide the growth.
    code = """
import pyarrow.parquet, numpy, stowage
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
stowage.shrink("little.parquet", "warm.parquet", quiet=True)
before = peak()
stowage.shrink("big.parquet", "small.parquet", quiet=True, memory="96M")
print(peak() - before)
"""
    pq.write_table(pa.table({"c0": [0.1]}), "little.parquet")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown = int(done.stdout) / 1024
    assert 0 < grown < 96, f"{grown:.0f} MiB more than before, the budget is 96 MiB"
    return f": {os.path.getsize('big.parquet') >> 20} MiB in {grown:.0f} MiB"


check("every_format_agrees", every_format)
check("npz_agrees", npz)
check("a_file_grows_only_if_requested", growing)
check("json_lines_agree", jsonl)
check("many_files_are_one_table", many_files)
check("text_tables_become_parquet", text_tables)
check("objects_are_exchanged", objects)
check("the_command_hands_over", from_the_command)
check("polars_or_duckdb_alone", other_packages)
check("the_budget_is_kept", budget)
sys.exit(failed > 0)
