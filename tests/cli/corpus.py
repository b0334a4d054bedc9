"""A corpus of tables as people's programs write them, made here, and compared with pandas value by value.

corpus.py COMMAND [NAME...] compares all, or those whose name contains one of the words. Each table is inspected and shrunk; every
column of the npz, read by NumPy, must hold what pandas reads from the same text: numbers and booleans equal to the bit, text equal,
times equal. The report's size must be within 5% of the file. Prints one line per table that differs.
"""
import csv
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd

from npz_texts import texts

rng = np.random.default_rng(5)
ROWS = 400
WORDS = "red green blue black white grey orange purple".split()
TABLES = {}


class Made:
    """One table: its bytes by file, and the options with which the command and pandas read it."""

    def __init__(self, data, words=(), ending=".csv", text=(), kinds=None, frame=None, **read):
        self.files = data if isinstance(data, dict) else {"t" + ending: utf8(data)}
        self.words, self.read, self.frame = list(words), read, frame
        self.text = set(text)  # columns that the command must keep as text though pandas makes them numbers: leading zeros
        self.kinds = kinds or {}  # what the command must say of a column


def table(function):
    TABLES[function.__name__] = function
    return function


def utf8(text):
    return text.encode() if isinstance(text, str) else text


def frame_of(rows=ROWS):
    return pd.DataFrame(
        {
            "id": np.arange(rows),
            "count": rng.integers(-500, 500, rows),
            "price": rng.normal(0, 100, rows).round(2),
            "ratio": rng.random(rows),
            "flag": rng.random(rows) < 0.5,
            "color": rng.choice(WORDS, rows),
            "note": [f"row {n} of {rows}" for n in range(rows)],
            "when": pd.date_range("2019-11-30", periods=rows, freq="17h"),
        }
    )


def to_csv(frame, **options):
    return frame.to_csv(**options)


# ---- pandas ----


@table
def pandas_plain():
    return Made(utf8(to_csv(frame_of(), index=False)))


@table
def pandas_with_index():
    return Made(utf8(to_csv(frame_of())), frame=lambda f: f.rename(columns={f.columns[0]: "index"}))


@table
def pandas_named_index():
    return Made(utf8(to_csv(frame_of().set_index("id"))))


@table
def pandas_multi_index():
    return Made(utf8(to_csv(frame_of().groupby(["color", "flag"])[["price", "count"]].sum())))


@table
def pandas_numbered_columns():
    return Made(utf8(to_csv(pd.DataFrame(rng.random((ROWS, 6))))), frame=lambda f: f.rename(columns={f.columns[0]: "index"}))


@table
def pandas_no_header():
    return Made(utf8(to_csv(pd.DataFrame(rng.random((ROWS, 5))), index=False, header=False)), header=None)


@table
def pandas_missing_everywhere():
    frame = frame_of()
    for name in ("count", "price", "flag", "color", "note", "when"):
        frame[name] = frame[name].astype(object).where(rng.random(len(frame)) > 0.2, None)
    return Made(utf8(to_csv(frame, index=False)))


@table
def pandas_missing_as_na():
    frame = frame_of()[["id", "price", "color", "when"]]
    frame = frame.astype(object).where(rng.random(frame.shape) > 0.1, None)
    return Made(utf8(to_csv(frame, index=False, na_rep="NA")))


@table
def pandas_missing_as_null():
    frame = frame_of()[["id", "price", "count"]].astype(object).where(rng.random((ROWS, 3)) > 0.1, None)
    return Made(utf8(to_csv(frame, index=False, na_rep="NULL")))


@table
def pandas_float_format():
    return Made(utf8(to_csv(frame_of()[["price", "ratio"]], index=False, float_format="%.3e")))


@table
def pandas_tab():
    return Made(utf8(to_csv(frame_of(), index=False, sep="\t")), ending=".tsv", sep="\t")


@table
def pandas_bar():
    return Made(utf8(to_csv(frame_of(), index=False, sep="|")), ending=".txt", sep="|")


@table
def pandas_all_quoted():
    return Made(utf8(to_csv(frame_of(), index=False, quoting=csv.QUOTE_ALL)))


@table
def pandas_gzip():
    return Made(gzip.compress(utf8(to_csv(frame_of(), index=False))), ending=".csv.gz")


@table
def pandas_xz():
    return Made(lzma.compress(utf8(to_csv(frame_of(), index=False))), ending=".csv.xz")


@table
def pandas_zip():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("frame.csv", to_csv(frame_of(), index=False))
    return Made(out.getvalue(), ending=".zip")


@table
def pandas_large_integers():
    frame = pd.DataFrame({"i64": rng.integers(-(2**62), 2**62, ROWS), "u64": rng.integers(2**63, 2**64 - 1, ROWS, dtype="u8"), "small": 1})
    return Made(utf8(to_csv(frame, index=False)))


@table
def pandas_large_integers_with_gaps():
    body = "a,b\n" + "".join(f"{2**60 + n},{'' if n % 9 == 0 else n}\n" for n in range(ROWS))
    return Made(utf8(body))


@table
def pandas_times_with_zone():
    frame = pd.DataFrame({"t": pd.date_range("2024-03-30", periods=ROWS, freq="37min", tz="UTC"), "x": rng.random(ROWS)})
    return Made(utf8(to_csv(frame, index=False)), kinds={"t": "datetime64[s]"})


@table
def pandas_times_of_nanoseconds():
    base = pd.Timestamp("2024-01-01")
    frame = pd.DataFrame({"t": [base + pd.Timedelta(int(n), "ns") for n in rng.integers(0, 10**15, ROWS)]})
    return Made(utf8(to_csv(frame, index=False)), kinds={"t": "datetime64[ns]"})


@table
def pandas_dates():
    frame = pd.DataFrame({"d": pd.date_range("1960-01-01", periods=ROWS, freq="61D").date, "v": np.arange(ROWS)})
    return Made(utf8(to_csv(frame, index=False)), kinds={"d": "datetime64[D]"})


@table
def pandas_periods_and_intervals():
    frame = pd.DataFrame({"m": pd.period_range("2000-01", periods=ROWS, freq="M"), "i": pd.cut(rng.random(ROWS), 5)})
    return Made(utf8(to_csv(frame, index=False)))


@table
def pandas_lists_in_fields():
    frame = pd.DataFrame({"list": [[n, n + 1] for n in range(ROWS)], "dict": [{"a": n} for n in range(ROWS)]})
    return Made(utf8(to_csv(frame, index=False)))


# ---- R ----


def r_style(frame, row_names=True, na="NA"):
    out = io.StringIO()
    quote = lambda value: '"' + str(value).replace('"', '""') + '"'
    out.write(",".join(([quote("")] if row_names else []) + [quote(name) for name in frame.columns]) + "\n")
    for number, row in enumerate(frame.itertuples(index=False), 1):
        fields = [quote(number)] if row_names else []
        for value in row:
            if value is None or value != value:
                fields.append(na)
            elif isinstance(value, (bool, np.bool_)):
                fields.append("TRUE" if value else "FALSE")
            elif isinstance(value, (int, float, np.integer, np.floating)):
                fields.append(repr(value.item() if isinstance(value, np.generic) else value))
            else:
                fields.append(quote(value))
        out.write(",".join(fields) + "\n")
    return out.getvalue()


@table
def r_write_csv():
    return Made(utf8(r_style(frame_of()[["id", "price", "flag", "color"]])), frame=lambda f: f.rename(columns={f.columns[0]: "index"}))


@table
def r_without_row_names():
    return Made(utf8(r_style(frame_of()[["id", "price", "flag", "color", "note"]], row_names=False)))


@table
def r_missing():
    frame = frame_of()[["count", "ratio", "color"]].astype(object).where(rng.random((ROWS, 3)) > 0.15, None)
    return Made(utf8(r_style(frame)), frame=lambda f: f.rename(columns={f.columns[0]: "index"}))


@table
def r_dates_with_na():
    body = '"","day","n"\n' + "".join(f'"{n}",{"NA" if n % 5 == 0 else f"2020-{n % 12 + 1:02d}-{n % 28 + 1:02d}"},{n}\n' for n in range(1, ROWS))
    return Made(utf8(body), frame=lambda f: f.rename(columns={f.columns[0]: "index"}), kinds={"day": "datetime64[D]"})


@table
def r_factors():
    frame = pd.DataFrame({"f": rng.choice(["low", "mid", "high"], ROWS), "x": rng.normal(size=ROWS)})
    return Made(utf8(r_style(frame, row_names=False)))


# ---- spreadsheets ----


def german(value):
    return f"{value:.4f}".replace(".", ",")


@table
def excel_semicolons_decimal_commas():
    body = "Datum;Betrag;Anzahl;Name\r\n" + "".join(
        f"{n % 28 + 1:02d}.03.2024;{german(x)};{n};{WORDS[n % 8]}\r\n" for n, x in enumerate(rng.normal(0, 1000, ROWS)))
    return Made(utf8(body), ["--decimal", ","], sep=";", decimal=",")


@table
def excel_cp1252():
    body = "Größe;Straße\r\n" + "".join(f"{german(n / 7)};Königsallee {n}\r\n" for n in range(ROWS))
    return Made(body.encode("cp1252"), ["--decimal", ",", "--encoding", "cp1252"], sep=";", decimal=",", encoding="cp1252")


@table
def excel_utf8_mark():
    return Made(("\ufeff" + to_csv(frame_of(), index=False)).replace("\n", "\r\n").encode(), encoding="utf-8-sig")


@table
def excel_unicode_text():
    return Made(to_csv(frame_of(), index=False, sep="\t").encode("utf-16"), ending=".txt", sep="\t", encoding="utf-16")


@table
def excel_sep_line():
    body = to_csv(frame_of()[["id", "color"]], index=False, sep=";")
    return Made(utf8("sep=;\r\n" + body.replace("\n", "\r\n")), sep=";", skiprows=1)


@table
def excel_zip_codes():
    body = "zip,name\n" + "".join(f"{n * 37 % 100000:05d},n{n}\n" for n in range(ROWS))
    return Made(utf8(body), text=["zip"])


@table
def excel_thousands():
    body = "amount,n\n" + "".join(f'"{1000 * n + 1234:,}",{n}\n' for n in range(ROWS))
    return Made(utf8(body))


@table
def excel_currency_and_percent():
    body = "price,share\n" + "".join(f"${n}.50,{n % 100}%\n" for n in range(ROWS))
    return Made(utf8(body))


@table
def excel_empty_columns():
    body = "a,b,,\n" + "".join(f"{n},{n / 2},,\n" for n in range(ROWS))
    return Made(utf8(body), frame=lambda f: f.set_axis(["a", "b", "2", "3"], axis=1))


@table
def excel_errors():
    body = "a,b\n" + "".join(f"{'#N/A' if n % 6 == 0 else n},{'#DIV/0!' if n % 7 == 0 else n}\n" for n in range(ROWS))
    return Made(utf8(body))


@table
def libreoffice_quoted_text():
    return Made(utf8(to_csv(frame_of(), index=False, quoting=csv.QUOTE_NONNUMERIC)))


# ---- databases and logs ----


@table
def postgres_copy():
    frame = frame_of()[["id", "price", "note"]]
    body = to_csv(frame, index=False) + "".join(f"{n},,\n" for n in range(9))
    return Made(utf8(body))


@table
def postgres_booleans():
    body = "id,ok\n" + "".join(f"{n},{'t' if n % 3 else 'f'}\n" for n in range(ROWS))
    return Made(utf8(body))


@table
def mysql_escaped_null():
    body = "id\tname\n" + "".join(f"{n}\t{WORDS[n % 8] if n % 4 else chr(92) + 'N'}\n" for n in range(ROWS))
    return Made(utf8(body), ["--na", "\\N"], ending=".tsv", sep="\t", na_values=["\\N"], keep_default_na=False)


@table
def sqlite_pipes():
    body = "".join(f"{n}|{n * 1.5}|{WORDS[n % 8]}\n" for n in range(ROWS))
    return Made(utf8("id|x|c\n" + body), ending=".txt", sep="|")


@table
def sensor_log_minus_999():
    body = "# station 7\n# degrees\ntime,temp,wind\n" + "".join(
        f"2024-01-{n % 28 + 1:02d}T{n % 24:02d}:00,{-999 if n % 10 == 0 else n / 10},{n % 17}\n" for n in range(ROWS))
    return Made(utf8(body), ["--comment", "#", "--na", "-999"], comment="#", na_values=["-999"], keep_default_na=False, kinds={"time": "datetime64[s]"})


@table
def instrument_with_preamble():
    body = "Instrument X\nSerial 12\n\nt,v\n" + "".join(f"{n / 100},{np.sin(n)!r}\n" for n in range(ROWS))
    return Made(utf8(body), ["--skip", "3"], skiprows=3)


@table
def web_log():
    body = "ip,time,status,bytes,agent\n" + "".join(
        f'10.0.{n % 256}.{n % 7},2024-05-01T12:{n % 60:02d}:{n % 59:02d}Z,{200 if n % 9 else 404},{n * 37},"Mozilla/5.0 (X11; ""Linux"")"\n' for n in range(ROWS))
    return Made(utf8(body), kinds={"time": "datetime64[s]"})


@table
def uuids_and_hashes():
    body = "uuid,sha\n" + "".join(f"{n:08x}-0000-4000-8000-{n * 7919:012x},{n * 2654435761 % 2**64:016x}a\n" for n in range(ROWS))
    return Made(utf8(body))


@table
def phone_numbers():
    body = "phone,n\n" + "".join(f"+49 170 {n:07d},{n}\n" for n in range(ROWS))
    return Made(utf8(body))


@table
def ids_beyond_64_bits():
    return Made(utf8("id,n\n" + "".join(f"{10**25 + n},{n}\n" for n in range(ROWS))))


# ---- numpy and science ----


@table
def numpy_savetxt():
    out = io.StringIO()
    np.savetxt(out, rng.normal(size=(ROWS, 4)))
    return Made(utf8(out.getvalue()), ending=".txt", sep=" ", header=None)


@table
def numpy_savetxt_header():
    out = io.StringIO()
    np.savetxt(out, rng.normal(size=(ROWS, 3)), header="alpha beta gamma")
    return Made(utf8(out.getvalue()), ending=".txt", sep=" ", frame=lambda f: f.set_axis(["alpha", "beta", "gamma"], axis=1), header=None, comment="#")


@table
def numpy_savetxt_commas():
    out = io.StringIO()
    np.savetxt(out, rng.integers(0, 100, (ROWS, 3)), fmt="%d", delimiter=",")
    return Made(utf8(out.getvalue()), header=None)


@table
def exponents():
    values = [repr(x) for x in 10.0 ** rng.uniform(-300, 300, ROWS)]
    return Made(utf8("x,y\n" + "".join(f"{v},{v.replace('e', 'E')}\n" for v in values)))


@table
def infinities_and_nan():
    words = ["inf", "-inf", "nan", "1.5", "", "Infinity", "-Infinity"]
    return Made(utf8("x,n\n" + "".join(f"{words[n % 7]},{n}\n" for n in range(ROWS))))


@table
def wide():
    return Made(utf8(to_csv(pd.DataFrame(rng.integers(0, 9, (20, 300))).add_prefix("c"), index=False)))


@table
def one_column():
    return Made(utf8("value\n" + "".join(f"{n / 3!r}\n" for n in range(ROWS))))


@table
def constant_columns():
    return Made(utf8("zero,one,half,word\n" + "0,1,0.5,x\n" * ROWS))


@table
def whole_floats():
    return Made(utf8("a,b\n" + "".join(f"{n}.0,{n}\n" for n in range(ROWS))), kinds={"a": "float64"})


# ---- text ----


@table
def quoted_line_ends():
    out = io.StringIO()
    rows = csv.writer(out)
    rows.writerow(["id", "review"])
    rows.writerows([n, f'line one\nline "two", {n}\n\nend'] for n in range(ROWS))
    return Made(utf8(out.getvalue()))


@table
def quotes_inside_fields():
    body = "size,n\n" + "".join(f'{n}" pipe,{n}\n' for n in range(ROWS))
    return Made(utf8(body), quoting=csv.QUOTE_NONE)


@table
def unicode_text():
    words = ["naïve", "東京", "привет", "😀 ok", "עברית", "a\u0301"]
    return Made(utf8("w,n\n" + "".join(f"{words[n % 6]},{n}\n" for n in range(ROWS))))


@table
def latin1_text():
    body = "Name;Alter\n" + "".join(f"Jürgen {n};{n % 90}\n" for n in range(ROWS))
    return Made(body.encode("latin-1"), ["--encoding", "latin-1"], sep=";", encoding="latin-1")


@table
def long_texts():
    return Made(utf8("t,n\n" + "".join(f'"{"word " * (n % 50)}",{n}\n' for n in range(ROWS))))


@table
def spaces_around():
    return Made(utf8("a,b\n" + "".join(f" {n} ,  {n / 2}\n" for n in range(ROWS))))


@table
def mixed_late():
    return Made(utf8("a,b\n" + "".join(f"{n if n < ROWS - 5 else 'n/m'},{n}\n" for n in range(ROWS))))


@table
def numbers_as_names():
    return Made(utf8("country,2019,2020\n" + "".join(f"{WORDS[n % 8]},{n},{n / 2}\n" for n in range(ROWS))))


@table
def empty_lines_and_crlf():
    return Made(utf8("a,b\r\n\r\n" + "".join(f"{n},{n * 2}\r\n" + ("\r\n" if n % 9 == 0 else "") for n in range(ROWS))))


@table
def no_line_end():
    return Made(utf8("a,b\n" + "".join(f"{n},{n * 2}\n" for n in range(ROWS))[:-1]))


@table
def booleans():
    forms = [("true", "false"), ("True", "False"), ("TRUE", "FALSE")]
    rows = "".join(",".join(pair[(n + k) % 2] for k, pair in enumerate(forms)) + "\n" for n in range(ROWS))
    return Made(utf8("a,b,c\n" + rows))


@table
def days_in_other_orders():
    body = "us,eu,iso\n" + "".join(f"{n % 12 + 1:02d}/{n % 28 + 1:02d}/2024,{n % 28 + 1:02d}.{n % 12 + 1:02d}.2024,2024-{n % 12 + 1:02d}-{n % 28 + 1:02d}\n" for n in range(ROWS))
    return Made(utf8(body), kinds={"us": "text", "eu": "text", "iso": "datetime64[D]"})


@table
def shards():
    frame = frame_of()
    parts = {f"part-{n}.csv": utf8(to_csv(frame[n * 100 : (n + 1) * 100], index=False)) for n in range(4)}
    parts["part-2.csv.gz"] = gzip.compress(parts.pop("part-2.csv"))
    return Made(parts)


@table
def many_rows():
    return Made(utf8(to_csv(frame_of(20000), index=False)))


@table
def short_rows():
    return Made("a,b,c,d\n" + "".join(",".join(str(n * 4 + k) for k in range(1 + n % 4)) + "\n" for n in range(ROWS)))


@table
def short_rows_of_text():
    return Made('id,note,tail\n' + "".join(f'{n},"a, ""{n}"""\n' if n % 3 else f"{n}\n" for n in range(ROWS)) + "7,x,y\n")


@table
def r_write_table():
    rows = "".join(f'"{n + 1}" {n / 4} {"NA" if n % 5 == 0 else n} {"TRUE" if n % 2 else "FALSE"} "car {n % 9}"\n' for n in range(ROWS))
    return Made('"mpg" "cyl" "fast" "name"\n' + rows, ending=".txt", sep=" ", frame=lambda frame: frame.rename_axis("index").reset_index())


@table
def row_names_without_a_name():
    rows = "".join(f"r{n},{n},{n / 8}\n" for n in range(ROWS))
    return Made("x,y\n" + rows, frame=lambda frame: frame.rename_axis("index").reset_index())


@table
def savetxt_with_bare_names():
    out = io.StringIO()
    np.savetxt(out, rng.random((ROWS, 3)), header="x y z", comments="")
    return Made(out.getvalue(), ending=".txt", sep=" ", float_precision="round_trip")


@table
def booleans_with_gaps():
    words = ["True", "False", ""]
    return Made("a,b,c\n" + "".join(f"{words[n % 3]},{['TRUE', 'FALSE', 'NA'][n % 3]},{n}\n" for n in range(ROWS)))


@table
def commas_and_given_words():
    rows = "".join(f"{'-999' if n % 7 == 0 else f'{n / 8}'.replace('.', ',')};{n};{'?' if n % 5 == 0 else f'w{n % 6}'}\n" for n in range(ROWS))
    return Made("a;b;t\n" + rows, ["--decimal", ",", "--na", "-999,?"], sep=";", decimal=",", na_values=["-999", "?"])


@table
def one_column_of_texts():
    return Made("text\n" + "".join(f"some words {n}\n" for n in range(ROWS)))


# ---- comparing ----


class Differs(Exception):
    pass


def need(fact, *why):
    if not fact:
        raise Differs(" ".join(str(word)[:160] for word in why))


def read_pandas(made, raw):
    """pandas' frame; `raw`: every field as text, none missing."""
    options = dict(made.read)
    options.setdefault("float_precision", "round_trip")
    if raw:
        options.update(dtype=str, keep_default_na=False)
        options.pop("float_precision")
        options.pop("na_values", None)
    parts = [pd.read_csv(name, **options) for name in sorted(made.files)]
    frame = pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]
    if options.get("header", 0) is None and made.frame is None:
        frame.columns = [str(n) for n in range(frame.shape[1])]
    return made.frame(frame) if made.frame is not None else frame


def compare_times(name, values, raw):
    want = pd.to_datetime(pd.Series([text if text not in ("NA", "NaT") else None for text in raw]).replace("", None), utc=True)
    want = want.dt.tz_localize(None).to_numpy()
    same = (values.astype("M8[ns]") == want) | (np.isnat(values) & np.isnat(want))
    need(same.all(), name, "differs in row", int(np.argmin(same)), values[~same][:1], raw[int(np.argmin(same))])


def compare_column(made, name, npz, member, fact, frame, raw):
    column = frame.iloc[:, list(frame.columns).index(name)] if name in frame.columns else None
    need(column is not None, "no column", name, list(frame.columns)[:9])
    raw = raw.iloc[:, list(frame.columns).index(name)]
    if name in made.kinds:
        need(fact["dtype"] == made.kinds[name], name, "is", fact["dtype"], "not", made.kinds[name])
    if fact["dtype"].startswith("datetime"):
        return compare_times(name, npz[member], list(raw))
    if fact["dtype"] == "text":
        words = [text for text in raw if text not in made.read.get("na_values", [])]
        found = [text for text in texts(npz, member) if text or "na_values" not in made.read]
        need(found == [w for w in words if w or "na_values" not in made.read], name, "texts differ", found[:3], words[:3])
        # pandas sees numbers only where it lost something, or where a number type for all does not exist.
        if column.dtype.kind in "iufb" and name not in made.text:
            exact = [str(v) for v in column] == list(raw)
            need(column.dtype.kind == "f" and not exact and fact["missing"] > 0 or column.isna().all(), name, "is text, in pandas", column.dtype)
        return None
    values = npz[member]
    if column.dtype == object and all(isinstance(v, (bool, np.bool_)) for v in column.dropna()):
        column = column.astype("f8")  # booleans with gaps: 1, 0 and NaN
    need(column.dtype.kind in "iufb", name, "is", fact["dtype"], "in pandas", column.dtype, list(raw)[:3])
    if column.dtype.kind in "iu" and values.dtype.kind in "iu":
        same = np.array([int(a) == int(b) for a, b in zip(values, column)])
    else:
        a, b = values.astype("f8"), column.to_numpy().astype("f8")
        same = (a == b) | (np.isnan(a) & np.isnan(b))
    need(len(values) == len(column) and same.all(), name, "differs in row", int(np.argmin(same)), values[~same][:1], column[~same][:1])
    return None


def run(command, *words):
    done = subprocess.run([command, *words, "--json"], capture_output=True, text=True, timeout=100)
    need(done.returncode == 0, done.stderr.strip())
    return json.loads(done.stdout)


def compare(command, name, made):
    for file, data in made.files.items():
        with open(file, "wb") as out:
            out.write(data)
    names = sorted(made.files)
    given = ["part-*"] if len(names) > 1 else names
    facts = run(command, "inspect", *given, *made.words)
    done = run(command, "shrink", *given, "-o", "out.npz", "--force", *made.words)
    frame, raw = read_pandas(made, False), read_pandas(made, True)
    need(facts["rows"] == len(frame), "rows:", facts["rows"], "in pandas", len(frame))
    need(len(facts["columns"]) == frame.shape[1], "columns:", len(facts["columns"]), "in pandas", frame.shape[1])
    frame.columns = [str(column) for column in frame.columns]
    with np.load("out.npz") as npz:
        for fact, column in zip(facts["columns"], done["columns"]):
            compare_column(made, fact["name"], npz, column["member"], fact, frame, raw)
    size = os.path.getsize("out.npz")
    need(abs(facts["npz_bytes"] - size) <= 0.05 * size, "promised", facts["npz_bytes"], "bytes, wrote", size)
    return len(facts["columns"])


def main(command, wanted):
    columns = bad = tables = 0
    for name, make in TABLES.items():
        if wanted and not any(word in name for word in wanted):
            continue
        folder = name
        os.makedirs(folder, exist_ok=True)
        os.chdir(folder)
        tables += 1
        try:
            columns += compare(command, name, make())
        except Differs as why:
            bad += 1
            print(f"{name}: {why}")
        os.chdir("..")
    print(f"{tables} tables, {columns} columns, {bad} differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
