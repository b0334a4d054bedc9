"""corpus.sh's program: corpus_long.py COMMAND SEED.

The corpus of tests/cli/corpus.py with several threads and windows of a few bytes; tables that polars and DuckDB write, read back and
compared with them; and every table of the corpus as Parquet, read by polars, pyarrow and DuckDB. Needs numpy, pandas, polars, duckdb,
pyarrow.
"""
import datetime
import io
import os
import subprocess
import sys

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq

import corpus

command = sys.argv[1]
rng = np.random.default_rng(int(sys.argv[2]))
bad = 0


def report(name, why):
    global bad
    bad += 1
    print(f"FAIL {name}: {why}", flush=True)


def again(fold, **variables):
    """The whole corpus in another way of reading."""
    os.makedirs(fold, exist_ok=True)
    os.chdir(fold)
    os.environ.update(variables)
    code = corpus.main(command, [])
    for name in variables:
        del os.environ[name]
    os.chdir("..")
    if code:
        report(fold, "see above")
    else:
        print(f"ok {fold}", flush=True)


# ---- polars and DuckDB as writers ----


def frame(rows):
    return pl.DataFrame(
        {
            "id": np.arange(rows),
            "i": rng.integers(-(2**40), 2**40, rows),
            "f": rng.normal(0, 1e6, rows),
            "small": rng.random(rows).round(3),
            "flag": rng.random(rows) < 0.3,
            "word": rng.choice(["", "plain", 'quo"te', "com,ma", "li\nne", "ünï"], rows),
            "day": [datetime.date(2000, 1, 1) + datetime.timedelta(days=int(n)) for n in rng.integers(0, 9000, rows)],
            "at": [datetime.datetime(2024, 1, 1) + datetime.timedelta(microseconds=int(n)) for n in rng.integers(0, 10**12, rows)],
        }
    )


def with_gaps(table):
    return table.with_columns(
        [pl.when(pl.Series(rng.random(len(table)) > 0.1)).then(pl.col(name)).otherwise(None).alias(name) for name in ("i", "f", "day", "at")]
    )


def shrink(path, out, *words):
    done = subprocess.run([command, "shrink", path, "-o", out, "--force", *words], capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise corpus.Differs(done.stderr.strip())


def compare(name, found, table):
    """Column by column: polars' frame of what was written, and of what was read."""
    for column in table.columns:
        a, b = found[column].to_list(), table[column].to_list()
        if table[column].dtype == pl.String:
            b = [text or "" for text in b]
            a = [text or "" for text in a]
        if table[column].dtype.is_float() or found[column].dtype.is_float():
            a = [None if x is None or x != x else x for x in a]
            b = [None if x is None or x != x else float(x) for x in b]
        if table[column].dtype == pl.Date and a and isinstance(next((x for x in a if x is not None), None), datetime.datetime):
            a = [None if x is None else x.date() for x in a]
        for row, (x, y) in enumerate(zip(a, b)):
            if x != y:
                raise corpus.Differs(f"{name}: {column}, row {row}: {x!r}, written {y!r}")
        if len(a) != len(b):
            raise corpus.Differs(f"{name}: {column}: {len(a)} rows of {len(b)}")


def read_npz(path):
    """By NumPy and docs/formats.md alone."""
    out = {}
    with np.load(path) as npz:
        names = dict.fromkeys(name.split(".")[0] for name in npz.files)
        for name in names:
            out[name] = pl.Series(name, corpus.texts_of(npz, name)) if name not in npz.files else npz[name]
    return pl.DataFrame(out)


def writers():
    for number in range(6):
        table = frame(2000 if number < 3 else 50)
        if number % 2:
            table = with_gaps(table)
        written = table  # DuckDB finds it by its name
        made = {}
        made["polars"] = (table.write_csv().encode(), ".csv", ())
        made["polars_tab"] = (table.write_csv(separator="\t").encode(), ".tsv", ())
        made["polars_null"] = (table.write_csv(null_value="NULL").encode(), ".csv", ())
        made["polars_always_quoted"] = (table.write_csv(quote_style="always").encode(), ".csv", ())
        made["polars_crlf"] = (table.write_csv(line_terminator="\r\n").encode(), ".csv", ())
        made["polars_mark"] = (table.write_csv(include_bom=True).encode(), ".csv", ())
        made["polars_iso"] = (table.write_csv(datetime_format="%Y-%m-%dT%H:%M:%S%.6f").encode(), ".csv", ())
        for kind, options in (("duckdb", ""), ("duckdb_gzip", ", COMPRESSION gzip"), ("duckdb_zstd", ", COMPRESSION zstd"), ("duckdb_bar", ", DELIMITER '|'")):
            ending = {"duckdb_gzip": ".csv.gz", "duckdb_zstd": ".csv.zst"}.get(kind, ".csv")
            duckdb.sql(f"COPY (SELECT * FROM written) TO 'w{ending}' (HEADER{options})")
            made[kind] = (open(f"w{ending}", "rb").read(), ending, ())
        for kind, (data, ending, words) in made.items():
            path = f"t{ending}"
            with open(path, "wb") as out:
                out.write(data)
            try:
                shrink(path, "out.npz", *words)
                compare(f"{kind} {number}", read_npz("out.npz"), table)
                if number < 2:
                    shrink(path, "out.parquet", *words)
                    compare(f"{kind} {number} as Parquet", pl.read_parquet("out.parquet"), table)
                    if duckdb.sql("SELECT count(*) FROM 'out.parquet'").fetchall()[0][0] != len(table):
                        raise corpus.Differs("DuckDB counts other rows")
            except corpus.Differs as why:
                report(f"{kind}_{number}", why)
        print(f"ok writers {number}: {len(made)} tables", flush=True)


# ---- the corpus as Parquet ----


def as_parquet():
    count = 0
    for name, make in corpus.TABLES.items():
        made = make()
        os.makedirs(f"pq-{name}", exist_ok=True)
        os.chdir(f"pq-{name}")
        for file, data in made.files.items():
            with open(file, "wb") as out:
                out.write(data)
        given = ["part-*"] if len(made.files) > 1 else sorted(made.files)
        try:
            done = subprocess.run([command, "shrink", *given, "-o", "out.parquet", *made.words], capture_output=True, text=True, timeout=300)
            if done.returncode:
                raise corpus.Differs(done.stderr.strip())
            shrink(given[0], "out.npz", *made.words)
            arrow = pq.read_table("out.parquet")
            polars = pl.read_parquet("out.parquet")
            with np.load("out.npz") as npz:
                for column in arrow.column_names:
                    values = arrow[column].to_pylist()
                    if str(arrow[column].type) == "timestamp[ns]":  # polars' Python objects end at microseconds
                        if arrow[column].cast("int64").to_pylist() != polars[column].to_physical().to_list():
                            raise corpus.Differs(f"{column}: pyarrow and polars differ")
                        continue
                    if values != polars[column].to_list() and not any(x != x for x in values):
                        raise corpus.Differs(f"{column}: pyarrow and polars differ")
                    if column in npz.files and npz[column].dtype.kind in "iuf":
                        a = np.array([np.nan if x is None else x for x in values], dtype="f8")
                        b = npz[column].astype("f8")
                        if not ((a == b) | (np.isnan(a) & np.isnan(b))).all():
                            raise corpus.Differs(f"{column}: Parquet and npz differ")
                    elif column not in npz.files and f"{column}.bytes" in npz.files or f"{column}.codes" in npz.files:
                        if [x or "" for x in values] != corpus.texts_of(npz, column):
                            raise corpus.Differs(f"{column}: texts in Parquet and npz differ")
            count += 1
        except corpus.Differs as why:
            report(f"parquet {name}", why)
        os.chdir("..")
    print(f"ok as_parquet: {count} tables", flush=True)


if __name__ == "__main__":
    again("corpus_here")
    again("corpus_small_windows", STOWAGE_TEST_WINDOW="8192")
    writers()
    as_parquet()
    print(f"{bad} failed")
    sys.exit(1 if bad else 0)
