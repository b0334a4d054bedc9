"""outside.py STOWAGE FOLDER [SEED [WORD…]]: tables as other programs and people write them, each read by stowage and by pandas or polars.

A case writes one file and names the reference: how pandas reads the file, or the frame that the writer held. Each file is inspected and
shrunk to npz, Parquet and Feather; the outputs are read by NumPy, polars, DuckDB and pandas and compared value by value. The sizes that
inspect promises are compared with the files that shrink writes: within 5% uncompressed, within 20% compressed.
"""

import contextlib
import datetime
import decimal
import io
import json
import math
import os
import random
import shutil
import subprocess
import sys

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
from outside_cases import CASES, FOLDER, at

from stowage._data_command import main as data_command

COMMAND = sys.argv[1]
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 11
WORDS = sys.argv[4:]

# What is compared.


def kind_of(values):
    """`number`, `text`, `time`, or `empty` where every value is missing."""
    for v in values:
        if v is None:
            continue
        if isinstance(v, str):
            return "text"
        if isinstance(v, datetime.date | np.datetime64 | pd.Timestamp):
            return "time"
        return "number"
    return "empty"


def plain(v):
    """A value as Python has it: None if it is missing, times as nanoseconds in a tuple (any year)."""
    if v is None or v is pd.NaT or v is pd.NA:
        return None
    if isinstance(v, np.datetime64):
        if np.isnat(v):
            return None
        unit = np.datetime_data(v.dtype)
        scale = {"D": 86_400 * 10**9, "h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit[0]]
        return Moment(int(v.astype("int64")) * scale * unit[1])
    if isinstance(v, pd.Timestamp):
        return plain((v.tz_convert(None) if v.tzinfo else v).to_datetime64())
    if isinstance(v, datetime.datetime):
        if v.tzinfo:
            v = v.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        return plain(np.datetime64(v, "us"))
    if isinstance(v, datetime.date):
        return plain(np.datetime64(v, "D"))
    if isinstance(v, decimal.Decimal):
        return float(v)
    if isinstance(v, np.generic):
        v = v.item()
    if isinstance(v, bool):
        return int(v)
    if isinstance(v, float) and math.isnan(v):
        return None
    return v


class Moment(datetime.date):
    """Nanoseconds since 1970, in a type that kind_of calls a time."""

    def __new__(cls, ns):
        self = super().__new__(cls, 1970, 1, 1)
        self.ns = ns
        return self

    def __eq__(self, other):
        return isinstance(other, Moment) and self.ns == other.ns

    __hash__ = None

    def __repr__(self):
        return f"Moment({self.ns})"


def same(ours, theirs):
    if isinstance(ours, float) and isinstance(theirs, float) and ours == 0 and theirs == 0:
        return math.copysign(1, ours) == math.copysign(1, theirs)
    return type(ours) in (int, float) and type(theirs) in (int, float) and ours == theirs or type(ours) is type(theirs) and ours == theirs


def from_npz(path):
    """The columns as docs/formats.md describes them, read by NumPy alone."""
    columns = {}
    with np.load(path, allow_pickle=False) as t:
        members = list(t.files)
        for name in members:
            if name.endswith(".words.offsets") or name.endswith(".words.bytes"):
                continue
            if name.endswith(".codes"):
                base = name[: -len(".codes")]
                words = texts(t, base + ".words")
                columns[base] = [words[c] for c in t[name]]
            elif name.endswith(".offsets"):
                continue
            elif name.endswith(".bytes"):
                base = name[: -len(".bytes")]
                columns[base] = texts(t, base)
            else:
                columns[name] = [plain(v) for v in t[name]] if t[name].dtype.kind == "M" else [plain(v) for v in t[name].tolist()]
    return columns


def texts(t, base):
    data = t[base + ".bytes"]
    if data.ndim == 2:
        return [row.tobytes().decode() for row in data]
    raw, ends = data.tobytes(), t[base + ".offsets"].tolist()
    return [raw[a:b].decode() for a, b in zip(ends, ends[1:], strict=False)]


def from_polars(frame):
    out = {}
    for name in frame.columns:
        column = frame[name]
        if column.dtype.is_temporal() and not isinstance(column.dtype, pl.Date):
            unit = column.dtype.time_unit
            out[name] = [None if v is None else plain(np.datetime64(v, unit)) for v in column.to_physical().to_list()]
        elif isinstance(column.dtype, pl.Categorical | pl.Enum):
            out[name] = column.cast(pl.String).to_list()
        else:
            out[name] = [plain(v) for v in column.to_list()]
    return out


def from_duckdb(path):
    return from_polars(duckdb.connect().sql(f"from read_parquet('{path}')").pl())


def from_pandas(frame):
    return {str(name): [plain(v) for v in frame.iloc[:, i].tolist()] for i, name in enumerate(frame.columns)}


class References:
    """The reference of a case: as values, and as the text of each field where pandas read the file."""

    def __init__(self, c):
        self.raw = None
        if isinstance(c.reference, pl.DataFrame):
            self.values = from_polars(c.reference)
        elif isinstance(c.reference, pd.DataFrame):
            self.values = from_pandas(c.reference)
        else:
            options = {"float_precision": "round_trip", "low_memory": False} | c.reference
            if options.get("sep") == r"\s+":
                options["engine"] = "c"
            frame = pd.read_csv(c.path, **options)
            options = {k: v for k, v in options.items() if k not in ("parse_dates", "date_format")}
            raw = pd.read_csv(c.path, **(options | {"dtype": str, "keep_default_na": False, "na_values": options.get("na_values", [])}))
            if "" in (c.names or {}):  # pandas took the first column for the index
                frame, raw = frame.reset_index(names=""), raw.reset_index(names="")
            self.values = from_pandas(frame)
            self.raw = {name: ["" if v is None else v for v in values] for name, values in from_pandas(raw).items()}
        renamed = {str(k): v for k, v in (c.names or {}).items()}
        self.values = {renamed.get(k, k): v for k, v in self.values.items()}
        if self.raw:
            self.raw = {renamed.get(k, k): v for k, v in self.raw.items()}


def compare(c, reference, columns, where):
    """A list of what differs between the columns that were written and the reference."""
    wrong = []
    if list(columns) != list(reference.values):
        return [f"{where}: columns {list(columns)[:8]} for {list(reference.values)[:8]}"]
    for name, theirs in reference.values.items():
        ours = columns[name]
        kind, wanted = kind_of(ours), c.kinds.get(name) or kind_of(theirs)
        if kind == "text" and not any(ours):
            kind = "empty"
        if wanted == "text" and not any(theirs):
            wanted = "empty"
        if kind != wanted:
            wrong.append(f"{where}: {name} is {kind} and not {wanted}: {ours[:3]} for {theirs[:3]}")
            continue
        if len(ours) != len(theirs):
            wrong.append(f"{where}: {name} has {len(ours)} rows of {len(theirs)}")
            continue
        if kind == "text":
            theirs = reference.raw[name] if reference.raw else ["" if v is None else v for v in theirs]
            ours = ["" if v is None else v for v in ours]
        if kind == "empty":
            continue
        for row, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if not same(a, b):
                wrong.append(f"{where}: {name}[{row}] is {a!r:.80} and not {b!r:.80}")
                break
    return wrong


def command(*arguments):
    """Runs the command, or in this process what it starts for Parquet, Arrow and JSON lines: imports take longer than most cases."""
    if not any(word.endswith((".parquet", ".feather", ".arrow", ".jsonl")) for word in arguments):
        done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, errors="replace")
        return done.returncode, done.stdout, done.stderr.strip()
    out, error, code = io.StringIO(), io.StringIO(), 0
    words = ["--output" if word == "-o" else word for word in arguments[1:]]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            data_command(words)
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), error.getvalue().strip()


def away(promised, real):
    return abs(promised - real) / real


def promise(c, report, extension):
    """The size that inspect promises; for text tables it promises only the npz, so a dry run is asked for the other two."""
    for key in (f"{extension}_bytes", f"{extension}_bytes_estimate"):
        if key in report:
            return report[key]
    code, out, _ = command("shrink", "--json", "--dry-run", *c.options, c.path, "-o", at("dry." + extension))
    return json.loads(out).get("file_bytes_after") if code == 0 else None


def check(name, make, results):
    shutil.rmtree(FOLDER)
    os.mkdir(FOLDER)
    c = make(random.Random(f"{SEED} {name}"))
    reference, wrong = References(c), []
    code, out, error = command("inspect", "--json", *c.options, c.path)
    if c.refused is not None:
        return [] if code == 2 and c.refused in error else [f"inspect: exit {code}, not refused: {error[:200]}"]
    report = json.loads(out) if code == 0 else {}
    if code:
        wrong.append(f"inspect: {error[:200]}")
    rows = len(next(iter(reference.values.values())))
    if code == 0 and report.get("rows") != rows:
        wrong.append(f"inspect: {report.get('rows')} rows of {rows}")
    for extension in ("npz", "parquet", "feather"):
        path = at("out." + extension)
        code, out, error = command("shrink", "--json", "--force", "--no-sync", *c.options, c.path, "-o", path)
        if code:
            wrong.append(f"shrink to {extension}: {error[:200]}")
            continue
        if extension == "npz":
            readers = {"numpy": lambda: from_npz(path)}
        elif extension == "parquet":
            readers = {"polars": lambda: from_polars(pl.read_parquet(path)), "duckdb": lambda: from_duckdb(path)}
        else:
            readers = {"pandas": lambda: from_pandas(pa.feather.read_table(path).to_pandas(ignore_metadata=True)), "polars": lambda: from_polars(pl.read_ipc(path))}
        for reader, read in readers.items():
            wrong += compare(c, reference, read(), f"{extension} by {reader}")
        promised, real = promise(c, report, extension), os.path.getsize(path)
        bound = 0.05 if extension == "npz" else 0.20
        results.append((name, extension, promised, real))
        if promised is None:
            wrong.append(f"{extension}: inspect promises no size")
        elif away(promised, real) > bound:
            wrong.append(f"{extension}: {real} bytes, {promised} promised ({100 * (promised - real) / real:+.0f}%)")
    return wrong


def main():
    failed, results = 0, []
    chosen = [(n, f) for n, f in CASES if not WORDS or any(w in n for w in WORDS)]
    for name, make in chosen:
        try:
            wrong = check(name, make, results)
        except Exception as e:
            if os.environ.get("STOWAGE_TEST_TRACE"):
                raise
            wrong = [f"{type(e).__name__}: {str(e)[:300]}"]
        for line in wrong:
            print(f"FAIL {name}: {line}", flush=True)
        failed += bool(wrong)
    for extension in ("npz", "parquet", "feather"):
        off = sorted(away(p, real) for _, e, p, real in results if e == extension and p)
        if off:
            print(f"ok size_of_{extension}: {len(off)} files, median {100 * off[len(off) // 2]:.1f}% off, at most {100 * off[-1]:.1f}%")
    print(f"{'FAIL' if failed else 'ok'} outside_tables: {len(chosen) - failed} of {len(chosen)} agree")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
