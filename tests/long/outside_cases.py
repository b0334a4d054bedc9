"""The tables of outside.py: files as pandas, polars, DuckDB, R, spreadsheets, NumPy and people write them."""

import csv
import datetime
import decimal
import gzip
import json
import math
import os
import string
import sys

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

FOLDER = sys.argv[2]
CASES = []


class Case:
    """What a case returns: the file, the reference (a dict of lists, or options of pandas.read_csv), and options for the command."""

    def __init__(self, path, reference=None, options=(), **kinds):
        self.path, self.options = path, list(options)
        self.reference = {} if reference is None else reference
        self.is_data = isinstance(reference, pd.DataFrame | pl.DataFrame)
        self.kinds = kinds.pop("kinds", {})  # where stowage reads a column as another kind by design: {"zip": "text"}
        self.names = kinds.pop("names", None)
        self.refused = kinds.pop("refused", None)  # words of the message, where stowage does not take the file
        assert not kinds, kinds


def case(function):
    CASES.append((function.__name__, function))
    return function


# Data to write.

FIRST = "Anna Bo Carla Dmitri Élodie Fatima Günter Hui Ines João Kwame Łukasz Mónica Nguyễn Olga Şebnem Zoë 健太 Ольга محمد".split()
NOUNS = "pump valve bolt gear belt motor sensor cable board frame hinge spring seal pipe clamp".split()


def names(r, n):
    return [f"{r.choice(FIRST)} {r.choice(string.ascii_uppercase)}." for _ in range(n)]


def prose(r, n, low=3, high=40):
    return [" ".join(r.choice(NOUNS) for _ in range(r.randint(low, high))) for _ in range(n)]


def money(r, n):
    return [round(r.lognormvariate(3, 1), 2) for _ in range(n)]


def days(r, n, start=datetime.date(2019, 1, 1)):
    return [start + datetime.timedelta(days=r.randint(0, 2000)) for _ in range(n)]


def moments(r, n, step=1):
    return [datetime.datetime(2021, 3, 1) + datetime.timedelta(microseconds=r.randrange(0, 10**13, step)) for _ in range(n)]


def mixed(r, n=2000):
    return pd.DataFrame(
        {
            "id": range(1, n + 1),
            "name": names(r, n),
            "price": money(r, n),
            "count": [r.randint(0, 250) for _ in range(n)],
            "ratio": [r.random() for _ in range(n)],
            "active": [r.random() < 0.4 for _ in range(n)],
        }
    )


def with_gaps(r, frame, share=0.1):
    gone = np.array([[r.random() < share for _ in frame.columns] for _ in range(len(frame))])
    return frame.astype(object).mask(gone)


def text(name, content, encoding="utf-8", newline=""):
    path = os.path.join(FOLDER, name)
    with open(path, "w", encoding=encoding, newline=newline) as f:
        f.write(content)
    return path


def rows_text(rows, separator=",", end="\n"):
    return "".join(separator.join(str(v) for v in row) + end for row in rows)


def at(name):
    return os.path.join(FOLDER, name)


# Written by pandas.

@case
def pandas_with_index(r):
    mixed(r).to_csv(at("a.csv"))
    return Case(at("a.csv"), names={"Unnamed: 0": "index"})

@case
def pandas_without_index(r):
    mixed(r).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_matrix_numbered_columns(r):
    pd.DataFrame(np.random.default_rng(r.randint(0, 99)).normal(size=(800, 7))).to_csv(at("a.csv"))
    return Case(at("a.csv"), names={"Unnamed: 0": "index"})

@case
def pandas_tab(r):
    mixed(r).to_csv(at("a.tsv"), sep="\t", index=False)
    return Case(at("a.tsv"), {"sep": "\t"})

@case
def pandas_german(r):
    mixed(r).to_csv(at("a.csv"), sep=";", decimal=",", index=False)
    return Case(at("a.csv"), {"sep": ";", "decimal": ","}, ["--decimal", ","])

@case
def pandas_quote_all(r):
    mixed(r).to_csv(at("a.csv"), quoting=csv.QUOTE_ALL, index=False)
    return Case(at("a.csv"))

@case
def pandas_quote_nonnumeric(r):
    mixed(r).to_csv(at("a.csv"), quoting=csv.QUOTE_NONNUMERIC, index=False)
    return Case(at("a.csv"))

@case
def pandas_quotes_inside(r):
    n = 1500
    frame = pd.DataFrame({"size": [f'{r.randint(1, 40)}" x {r.randint(1, 40)}"' for _ in range(n)], "note": prose(r, n), "n": range(n)})
    frame.to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_multiline(r):
    n = 1200
    notes = [t.replace(" pump", '\npump, "old"').replace(" gear", "\r\ngear") for t in prose(r, n)]
    pd.DataFrame({"k": range(n), "note": notes, "v": money(r, n)}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_crlf(r):
    mixed(r).to_csv(at("a.csv"), index=False, lineterminator="\r\n")
    return Case(at("a.csv"))

@case
def pandas_old_mac_lines(r):
    mixed(r, 300).to_csv(at("a.csv"), index=False, lineterminator="\r")
    return Case(at("a.csv"), {"lineterminator": "\r"})

@case
def pandas_null_word(r):
    with_gaps(r, mixed(r)).to_csv(at("a.csv"), index=False, na_rep="NULL")
    return Case(at("a.csv"))

@case
def pandas_nan_word(r):
    with_gaps(r, mixed(r)[["price", "ratio", "count"]]).to_csv(at("a.csv"), index=False, na_rep="NaN")
    return Case(at("a.csv"))

@case
def pandas_gaps(r):
    with_gaps(r, mixed(r)).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_two_decimals(r):
    pd.DataFrame({c: money(r, 3000) for c in "abcd"}).to_csv(at("a.csv"), index=False, float_format="%.2f")
    return Case(at("a.csv"))

@case
def pandas_dates(r):
    pd.DataFrame({"day": pd.to_datetime(days(r, 1500)), "v": money(r, 1500)}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"), {"parse_dates": ["day"]})

@case
def pandas_dates_with_gaps(r):
    values = [d if r.random() < 0.8 else None for d in days(r, 1500)]
    pd.DataFrame({"day": pd.to_datetime(values), "v": money(r, 1500)}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"), {"parse_dates": ["day"]})

@case
def pandas_timestamps(r):
    pd.DataFrame({"t": moments(r, 1500), "s": [m.replace(microsecond=0) for m in moments(r, 1500)]}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"), {"parse_dates": ["t", "s"], "date_format": "ISO8601"})

@case
def pandas_nanoseconds(r):
    t = pd.to_datetime([1_600_000_000_000_000_000 + r.randrange(10**18) for _ in range(900)])
    frame = pd.DataFrame({"t": t})
    frame.to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"), frame)

@case
def pandas_time_zone(r):
    t = pd.to_datetime([m.replace(microsecond=0) for m in moments(r, 900)]).tz_localize("UTC").tz_convert("Asia/Kolkata")
    pd.DataFrame({"t": t, "n": range(900)}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"), {"parse_dates": ["t"]})

@case
def pandas_timedeltas(r):
    pd.DataFrame({"took": pd.to_timedelta([r.randint(0, 10**6) for _ in range(700)], unit="s")}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_booleans_with_gaps(r):
    pd.DataFrame({"b": [r.choice([True, False, None]) for _ in range(900)], "n": range(900)}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"), kinds={"b": "number"})

@case
def pandas_repeated_names(r):
    frame = mixed(r, 300)[["id", "price", "price", "name", "price"]]
    frame.columns = ["id", "v", "v", "name", "v"]
    frame.to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_awkward_names(r):
    frame = mixed(r, 400)
    frame.columns = ["a/b", 'say "x"', "two\nlines", " spaces ", "größe, ½", "日本語"]
    frame.to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"), names={"two\nlines": "two_lines"})  # names of an npz have no control characters

@case
def pandas_years_as_names(r):
    frame = pd.DataFrame({"country": [f"C{i:03d}" for i in range(180)]})
    for year in range(2000, 2024):
        frame[year] = [r.randint(10**5, 10**9) for _ in range(180)]
    frame.to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_names_inf_nan(r):
    pd.DataFrame({"inf": range(200), "nan": money(r, 200), "rate": range(200)}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_pivot(r):
    frame = mixed(r, 1500)
    frame["kind"] = [r.choice(NOUNS) for _ in range(1500)]
    frame["level"] = [r.choice("LMH") for _ in range(1500)]
    frame.pivot_table(index="kind", columns="level", values="price").to_csv(at("a.csv"))
    return Case(at("a.csv"))

@case
def pandas_wide(r):
    g = np.random.default_rng(5)
    pd.DataFrame(g.integers(0, 100, size=(60, 1500)), columns=[f"f{i}" for i in range(1500)]).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_one_column(r):
    pd.DataFrame({"v": [r.gauss(0, 1) for _ in range(4000)]}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_one_text_column(r):
    pd.DataFrame({"word": [r.choice(NOUNS) for _ in range(4000)]}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_one_row(r):
    mixed(r, 1).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_long_texts(r):
    texts = ["".join(r.choices(string.ascii_letters + " ,", k=r.choice([10, 100, 300_000]))) for _ in range(40)]
    pd.DataFrame({"id": range(40), "document": texts}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_empty_columns(r):
    frame = mixed(r, 700)
    frame["empty"], frame["blank"] = None, ""
    frame.to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_nothing_but_gaps(r):
    pd.DataFrame({"a": [None] * 300, "b": [None] * 300}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_integers_and_fractions(r):
    values = [str(r.randint(-500, 500)) if r.random() < 0.5 else f"{r.uniform(-5, 5):.3f}" for _ in range(1500)]
    path = text("a.csv", rows_text([("k", "v")] + [(i, v) for i, v in enumerate(values)]))
    return Case(path)

@case
def pandas_uint64(r):
    pd.DataFrame({"h": np.array([r.getrandbits(64) | 1 << 63 for _ in range(900)], dtype="uint64")}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_int64_extremes(r):
    pd.DataFrame({"v": [-(2**63), 2**63 - 1] + [r.randint(-(2**62), 2**62) for _ in range(500)]}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_infinities(r):
    values = [r.choice([math.inf, -math.inf, r.random()]) for _ in range(600)]
    pd.DataFrame({"v": values, "n": range(600)}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_hard_floats(r):
    values = [r.uniform(-1, 1) * 10.0 ** r.randint(-307, 307) for _ in range(1500)] + [5e-324, 1.7976931348623157e308, 2.2250738585072014e-308]
    pd.DataFrame({"v": values}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_negative_zero(r):
    pd.DataFrame({"v": [r.choice([-0.0, 0.0, 1.5]) for _ in range(400)]}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_categories(r):
    frame = pd.DataFrame({"c": pd.Categorical([r.choice(["low", "mid", "high"]) for _ in range(5000)]), "n": range(5000)})
    frame.to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))

@case
def pandas_json_in_cells(r):
    cells = [json.dumps({"a": r.randint(0, 9), "b": [r.random()], "c": r.choice(FIRST)}) for _ in range(600)]
    pd.DataFrame({"id": range(600), "payload": cells}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"))


def _compressed(extension):
    def write(r):
        mixed(r).to_csv(at(f"a.csv.{extension}"), index=False)
        return Case(at(f"a.csv.{extension}"))

    write.__name__ = f"pandas_{extension}"
    return case(write)


for _extension in ("gz", "zst", "xz", "zip"):
    _compressed(_extension)

@case
def gzip_of_two_parts(r):
    frame = mixed(r)
    body = frame.to_csv(index=False).encode()
    with open(at("a.csv.gz"), "wb") as f:
        f.write(gzip.compress(body[:50_000]) + gzip.compress(body[50_000:]))
    return Case(at("a.csv.gz"))


# Encodings.

@case
def byte_order_mark(r):
    mixed(r).to_csv(at("a.csv"), index=False, encoding="utf-8-sig")
    return Case(at("a.csv"))

@case
def byte_order_mark_quoted(r):
    mixed(r).to_csv(at("a.csv"), index=False, encoding="utf-8-sig", quoting=csv.QUOTE_ALL)
    return Case(at("a.csv"))

@case
def utf_16(r):
    mixed(r).to_csv(at("a.csv"), index=False, encoding="utf-16")
    return Case(at("a.csv"), {"encoding": "utf-16"})

@case
def latin_1(r):
    frame = mixed(r)
    frame["name"] = [r.choice(["Élodie", "Günter", "João", "Zoë", "Mónica"]) for _ in range(len(frame))]
    frame.to_csv(at("a.csv"), index=False, encoding="latin-1")
    return Case(at("a.csv"), {"encoding": "latin-1"}, ["--encoding", "latin-1"])

@case
def windows_1252(r):
    frame = mixed(r)
    frame["name"] = [r.choice(["5 €", "“quoted”", "it’s", "Œuvre", "Žofie"]) for _ in range(len(frame))]
    frame.to_csv(at("a.csv"), index=False, encoding="cp1252")
    return Case(at("a.csv"), {"encoding": "cp1252"}, ["--encoding", "cp1252"])


# As R writes them.


def r_cell(value):
    if value is None:
        return "NA"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return repr(value)


def r_rows(r, n=900):
    return [[names(r, 1)[0], r.random() < 0.5, r.gauss(0, 1) if r.random() < 0.9 else None, r.randint(1, 9)] for _ in range(n)]

@case
def r_write_csv(r):
    head = '"","who","flag","score","grade"\n'
    body = "".join(",".join([f'"{i}"'] + [r_cell(v) for v in row]) + "\n" for i, row in enumerate(r_rows(r), 1))
    return Case(text("a.csv", head + body), names={"Unnamed: 0": "index"})

@case
def r_write_csv2(r):
    head = '"who";"flag";"score";"grade"\n'
    body = "".join(";".join(r_cell(v).replace(".", ",") if isinstance(v, float) else r_cell(v) for v in row) + "\n" for row in r_rows(r))
    return Case(text("a.csv", head + body), {"sep": ";", "decimal": ","}, ["--decimal", ","])

@case
def r_write_table(r):
    head = '"who" "flag" "score" "grade"\n'
    body = "".join(" ".join([f'"{i}"'] + [r_cell(v) for v in row]) + "\n" for i, row in enumerate(r_rows(r), 1))
    return Case(text("a.txt", head + body), {"sep": " "}, ["--delimiter", "space"], names={"": "index"})

@case
def r_write_table_tab_no_quotes(r):
    rows = [[i, r.choice(NOUNS), "NA" if r.random() < 0.1 else round(r.random(), 4)] for i in range(800)]
    return Case(text("a.tsv", rows_text([("id", "part", "x")] + rows, "\t")), {"sep": "\t"})


# As spreadsheets write them.

@case
def excel_semicolon_line(r):
    rows = [(i, r.choice(FIRST), f"{r.random() * 100:.2f}".replace(".", ",")) for i in range(700)]
    body = "sep=;\r\n" + rows_text([("nr", "name", "betrag")] + rows, ";", "\r\n")
    return Case(text("a.csv", body, "utf-8-sig"), {"sep": ";", "decimal": ",", "skiprows": 1, "encoding": "utf-8-sig"}, ["--decimal", ","])

@case
def excel_trailing_empty_columns(r):
    rows = [(i, r.choice(NOUNS), r.randint(0, 99), "", "") for i in range(600)]
    body = rows_text([("id", "part", "n", "", "")] + rows, ",", "\r\n")
    return Case(text("a.csv", body, "utf-8-sig"), names={"Unnamed: 3": "3", "Unnamed: 4": "4"})

@case
def excel_errors_and_blanks(r):
    rows = [(i, r.choice(["#N/A", "", f"{r.random():.4f}"]), r.choice(["#DIV/0!", "5", "7"])) for i in range(600)]
    return Case(text("a.csv", rows_text([("id", "x", "y")] + rows, ",", "\r\n")))

@case
def excel_day_month_year(r):
    rows = [(d.strftime("%d/%m/%Y"), round(r.random() * 1000, 2)) for d in days(r, 800)]
    return Case(text("a.csv", rows_text([("date", "amount")] + rows, ",", "\r\n")))

@case
def excel_unicode_text(r):
    mixed(r, 700).to_csv(at("a.txt"), index=False, sep="\t", encoding="utf-16", lineterminator="\r\n")
    return Case(at("a.txt"), {"sep": "\t", "encoding": "utf-16"})

@case
def thousands_separators(r):
    rows = [(i, f'"{r.randint(0, 10**7):,}"') for i in range(800)]
    return Case(text("a.csv", rows_text([("id", "population")] + rows)), kinds={})

@case
def money_and_percent_signs(r):
    rows = [(f"${r.random() * 100:.2f}", f"{r.randint(0, 100)}%", r.randint(0, 9)) for _ in range(700)]
    return Case(text("a.csv", rows_text([("price", "share", "n")] + rows)))

@case
def preamble_lines(r):
    body = "Report of sales\nMade by: the office\n\n" + rows_text([("a", "b")] + [(i, r.randint(0, 99)) for i in range(500)])
    return Case(text("a.csv", body), {"skiprows": 3}, ["--skip", "3"])

@case
def comment_lines(r):
    rows = [f"{i},{r.randint(0, 99)}\n" if i % 50 else f"# part {i}\n" for i in range(1, 800)]
    return Case(text("a.csv", "# made by a logger\nt,v\n" + "".join(rows)), {"comment": "#"}, ["--comment", "#"])

@case
def blank_lines_between(r):
    return Case(text("a.csv", "a,b\n\n" + "".join(f"{i},{r.random():.3f}\n" + "\n" * (i % 7 == 0) for i in range(500))))

@case
def spaces_after_commas(r):
    return Case(text("a.csv", rows_text([("a", "b", "c")] + [(i, r.randint(-9, 9), f"{r.random():.4f}") for i in range(700)], ", ")))

@case
def bars(r):
    return Case(text("a.txt", rows_text([("a", "b", "c")] + [(i, r.choice(NOUNS), money(r, 1)[0]) for i in range(900)], "|")), {"sep": "|"})

@case
def short_rows(r):
    rows = [f"{i},{r.choice(NOUNS)},{i % 7}\n" if i % 9 else f"{i},{r.choice(NOUNS)}\n" for i in range(800)]
    return Case(text("a.csv", "a,b,c\n" + "".join(rows)))

@case
def delimiter_after_every_row(r):
    return Case(text("a.csv", "a,b,c\n" + "".join(f"{i},{r.randint(0, 9)},{r.randint(0, 9)},\n" for i in range(500))), names={"": "index"})

@case
def no_end_of_last_line(r):
    return Case(text("a.csv", "a,b\n" + "\n".join(f"{i},{r.random():.3f}" for i in range(500))))

@case
def zip_codes(r):
    rows = [(f"{r.randint(500, 99999):05d}", r.randint(0, 9)) for _ in range(900)]
    return Case(text("a.csv", rows_text([("zip", "n")] + rows)), kinds={"zip": "text"})

@case
def phone_numbers(r):
    rows = [(f"+49 {r.randint(30, 99)} {r.randint(10**6, 10**7)}", f"({r.randint(200, 999)}) 555-{r.randint(1000, 9999)}") for _ in range(700)]
    return Case(text("a.csv", rows_text([("a", "b")] + rows)))

@case
def plus_signs_and_exponents(r):
    rows = [(f"+{r.randint(0, 99)}", f"{r.randint(1, 9)}e{r.randint(-5, 5)}", f"{r.randint(1, 9)}E+{r.randint(0, 5):02d}", f".{r.randint(0, 99)}") for _ in range(700)]
    return Case(text("a.csv", rows_text([("a", "b", "c", "d")] + rows)))

@case
def hexadecimal_and_underscores(r):
    rows = [(hex(r.getrandbits(20)), f"{r.randint(1, 9)}_000", f"{r.randint(1, 9)}L") for _ in range(500)]
    return Case(text("a.csv", rows_text([("a", "b", "c")] + rows)))

@case
def country_codes_with_namibia(r):
    rows = [(r.choice(["DE", "NA", "FR", "US"]), r.randint(0, 99)) for _ in range(900)]
    return Case(text("a.csv", rows_text([("country", "n")] + rows)), {"keep_default_na": False, "na_values": [""]})

@case
def sentinel_numbers(r):
    rows = [(r.choice([-999, r.randint(0, 50)]), r.choice(["?", f"{r.random():.3f}"])) for _ in range(900)]
    return Case(text("a.csv", rows_text([("t", "p")] + rows)), {"na_values": ["-999", "?"], "keep_default_na": False}, ["--na", "-999,?"])

@case
def postgres_copy(r):
    rows = [(i, r.choice(NOUNS), r"\N" if r.random() < 0.2 else r.randint(0, 99), r.choice("tf")) for i in range(900)]
    return Case(text("a.tsv", rows_text([("id", "part", "n", "ok")] + rows, "\t")), {"sep": "\t", "na_values": [r"\N"]}, ["--na", r"\N"])

@case
def text_at_the_last_row(r):
    return Case(text("a.csv", "id,v\n" + "".join(f"{i},{r.randint(0, 9)}.50\n" for i in range(3000)) + "3000,none of these\n"))

@case
def integers_too_large(r):
    rows = [(r.getrandbits(80), r.randint(0, 9)) for _ in range(400)]
    return Case(text("a.csv", rows_text([("big", "n")] + rows)), kinds={"big": "text"})

@case
def uuids(r):
    rows = [(f"{r.getrandbits(128):032x}", r.randint(0, 9)) for _ in range(2500)]
    return Case(text("a.csv", rows_text([("uuid", "n")] + rows)))

@case
def single_quotes_and_backslashes(r):
    rows = [(f"O'Brien {i}", rf"C:\data\{r.choice(NOUNS)}", "'quoted'") for i in range(600)]
    return Case(text("a.csv", rows_text([("who", "path", "q")] + rows)))

@case
def quotes_in_the_middle(r):
    rows = [(i, f'pipe {r.randint(1, 9)}" long') for i in range(600)]
    return Case(text("a.csv", rows_text([("id", "what")] + rows)))

@case
def emoji_and_right_to_left(r):
    rows = [(r.choice(["👍🏽", "👩‍👩‍👧", "🇳🇴", "naïve"]), r.choice(["שלום", "مرحبا", "हिन्दी"])) for _ in range(700)]
    return Case(text("a.csv", rows_text([("mood", "hello")] + rows)))

@case
def dates_compact(r):
    rows = [(d.strftime("%Y%m%d"), d.strftime("%Y-%m"), d.strftime("%H:%M:%S")) for d in moments(r, 700)]
    return Case(text("a.csv", rows_text([("ymd", "month", "clock")] + rows)))

@case
def dates_with_z(r):
    rows = [(m.strftime("%Y-%m-%dT%H:%M:%SZ"), r.randint(0, 9)) for m in moments(r, 700)]
    return Case(text("a.csv", rows_text([("t", "n")] + rows)), {"parse_dates": ["t"]})

@case
def dates_before_1900(r):
    rows = [(d.isoformat(), r.randint(0, 9)) for d in days(r, 700, datetime.date(1780, 5, 1))]
    return Case(text("a.csv", rows_text([("born", "n")] + rows)), {"parse_dates": ["born"]})

@case
def booleans_of_all_kinds(r):
    rows = [(r.choice(["true", "false"]), r.choice(["True", "False"]), r.choice(["TRUE", "FALSE"]), r.choice(["yes", "no"]), r.choice("01")) for _ in range(700)]
    return Case(text("a.csv", rows_text([("a", "b", "c", "d", "e")] + rows)))


# numpy.savetxt and the like.

@case
def savetxt_plain(r):
    x = np.random.default_rng(3).normal(size=(900, 5))
    np.savetxt(at("a.txt"), x)
    return Case(at("a.txt"), {"sep": " ", "header": None})

@case
def savetxt_named(r):
    x = np.random.default_rng(4).normal(size=(900, 3))
    np.savetxt(at("a.txt"), x, header="alpha beta gamma")
    return Case(at("a.txt"), {"sep": " ", "header": None, "skiprows": 1, "names": ["alpha", "beta", "gamma"]})

@case
def savetxt_integers(r):
    np.savetxt(at("a.csv"), np.random.default_rng(4).integers(-50, 50, size=(900, 4)), fmt="%d", delimiter=",")
    return Case(at("a.csv"), {"header": None})

@case
def aligned_with_spaces(r):
    rows = "".join(f"{r.randint(0, 999):6d} {r.gauss(0, 10):10.3f} {r.random():8.5f}\n" for _ in range(800))
    return Case(text("a.dat", rows), {"sep": r"\s+", "header": None})


def spaced_frame(r, n=300):
    return pd.DataFrame({"id": range(n), "part": [r.choice(NOUNS) for _ in range(n)], "price": money(r, n), "x": [r.gauss(0, 1e6) for _ in range(n)]})


@case
def pandas_to_string(r):
    return Case(text("a.txt", spaced_frame(r).to_string()), {"sep": r"\s+", "index_col": False, "names": ["index", "id", "part", "price", "x"], "header": 0})


@case
def pandas_to_string_without_index(r):
    return Case(text("a.txt", spaced_frame(r).to_string(index=False)), {"sep": r"\s+"})


@case
def words_aligned_at_the_left(r):
    rows = [("part", "maker", "grade")] + [(r.choice(NOUNS), r.choice(FIRST[:4]), r.choice("ABC")) for _ in range(200)]
    return Case(text("a.txt", "".join(f"{a:<12}{b:<10}{c}\n" for a, b, c in rows)), {"sep": r"\s+"})


@case
def savetxt_with_widths_and_names(r):
    np.savetxt(at("a.txt"), [[r.gauss(0, 1), r.randint(0, 9), r.gauss(0, 1e5)] for _ in range(200)], fmt="%12.5f", header="alpha    beta    gamma", comments="")
    return Case(at("a.txt"), {"sep": r"\s+"})


@case
def spaces_with_missing_words_and_quotes(r):
    rows = "".join(f'{i:5d}   {r.choice(["NA", "1.5", "-2"]):>6}   "{r.choice(NOUNS)} {r.choice(NOUNS)}"\r\n' for i in range(150))
    return Case(text("a.txt", "  n      value   what\r\n" + rows), {"sep": r"\s+"})


@case
def spaces_and_tabs_in_gzip(r):
    rows = "a  b\tc\n" + "".join(f" {i}{r.choice([' ', chr(9), '   '])}{r.random():.4f}  \t {r.randint(0, 5)}  \n" for i in range(300))
    with gzip.open(at("a.txt.gz"), "wt") as f:
        f.write(rows)
    return Case(at("a.txt.gz"), {"sep": r"\s+"})


# Written by polars.


def polars_frame(r, n=2500):
    return pl.DataFrame(
        {
            "i8": pl.Series([r.randint(-128, 127) for _ in range(n)], dtype=pl.Int8),
            "i64": pl.Series([r.choice([None, r.randint(-(2**40), 2**40)]) for _ in range(n)], dtype=pl.Int64),
            "u64": pl.Series([r.getrandbits(64) for _ in range(n)], dtype=pl.UInt64),
            "f32": pl.Series([r.gauss(0, 1) for _ in range(n)], dtype=pl.Float32),
            "f64": [r.choice([None, r.gauss(0, 1)]) for _ in range(n)],
            "text": [r.choice([None, r.choice(FIRST)]) for _ in range(n)],
            "day": days(r, n),
            "at": moments(r, n),
            "yes": [r.random() < 0.5 for _ in range(n)],
        }
    )

@case
def polars_csv(r):
    frame = polars_frame(r)
    frame.write_csv(at("a.csv"))
    return Case(at("a.csv"), frame.with_columns(pl.col("f32").cast(pl.String).cast(pl.Float64)))

@case
def polars_csv_null_word(r):
    frame = polars_frame(r).drop("text", "f32")
    frame.write_csv(at("a.csv"), null_value="null", separator=";")
    return Case(at("a.csv"), frame)

@case
def polars_parquet(r):
    frame = polars_frame(r)
    frame.write_parquet(at("a.parquet"))
    return Case(at("a.parquet"), frame)

@case
def polars_ipc(r):
    frame = polars_frame(r)
    frame.write_ipc(at("a.arrow"))
    return Case(at("a.arrow"), frame)

@case
def polars_ndjson(r):
    frame = polars_frame(r).drop("day", "at", "f32", "u64")
    frame.write_ndjson(at("a.jsonl"))
    return Case(at("a.jsonl"), frame)

@case
def polars_categories_parquet(r):
    frame = pl.DataFrame({"c": [r.choice(NOUNS) for _ in range(3000)], "n": range(3000)}).with_columns(pl.col("c").cast(pl.Categorical))
    frame.write_parquet(at("a.parquet"))
    return Case(at("a.parquet"), frame.with_columns(pl.col("c").cast(pl.String)))


# Written by DuckDB.

DUCK = """select range as id, (random() * 1e6)::decimal(12, 2) as amount, case when random() < 0.2 then null else (random() * 100)::int end as n,
  ['north', 'south', 'east', 'west'][1 + (random() * 3)::int] as region, date '2020-01-01' + (random() * 900)::int as day,
  timestamp '2020-01-01 00:00:00' + to_seconds((random() * 9e6)::bigint) as at, random() < 0.5 as flag, random() as u from range(2500)"""


def duck(query, statement):
    connection = duckdb.connect()
    connection.execute("select setseed(0.25)")
    connection.execute(f"create table t as {query}")
    connection.execute(statement)
    return connection.sql("from t").pl()

@case
def duckdb_csv(r):
    frame = duck(DUCK, f"copy t to '{at('a.csv')}' (header)")
    return Case(at("a.csv"), frame)

@case
def duckdb_csv_nullstr(r):
    frame = duck(DUCK, f"copy t to '{at('a.csv')}' (header, nullstr 'NULL', delimiter '|')")
    return Case(at("a.csv"), frame)

@case
def duckdb_parquet(r):
    frame = duck(DUCK, f"copy t to '{at('a.parquet')}' (format parquet)")
    return Case(at("a.parquet"), frame)

@case
def duckdb_jsonl(r):
    frame = duck(DUCK.replace("as day", "as day_").replace("as at", "as at_"), f"copy (select * exclude (day_, at_) from t) to '{at('a.jsonl')}' (format json)")
    return Case(at("a.jsonl"), frame.drop("day_", "at_"))

@case
def duckdb_csv_gz(r):
    frame = duck(DUCK, f"copy t to '{at('a.csv.gz')}' (header, compression gzip)")
    return Case(at("a.csv.gz"), frame)


# Written by pandas and pyarrow, binary.

@case
def pandas_parquet(r):
    frame = mixed(r, 3000)
    frame["day"] = pd.to_datetime(days(r, 3000))
    frame.to_parquet(at("a.parquet"))
    return Case(at("a.parquet"), frame)

@case
def pandas_parquet_named_index(r):
    frame = mixed(r, 1000).sample(frac=1, random_state=1).set_index("id")
    frame.to_parquet(at("a.parquet"))
    return Case(at("a.parquet"), frame.reset_index()[[*frame.columns, "id"]])

@case
def pandas_feather(r):
    frame = mixed(r, 3000)
    frame.to_feather(at("a.feather"))
    return Case(at("a.feather"), frame)

@case
def pandas_jsonl(r):
    frame = mixed(r, 1200)
    frame.to_json(at("a.jsonl"), orient="records", lines=True, double_precision=15)
    return Case(at("a.jsonl"), pd.read_json(at("a.jsonl"), lines=True, precise_float=True))

@case
def jsonl_with_missing_keys(r):
    rows = []
    for i in range(900):
        row = {"id": i, "v": r.randint(0, 9) if i < 500 else r.random()}
        if i > 300:
            row["late"] = r.choice(NOUNS)
        if i % 3:
            row["maybe"] = r.choice([None, True, False])
        rows.append(row)
    path = text("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return Case(path, pl.DataFrame({k: [float(row[k]) if k == "v" else row.get(k) for row in rows] for k in ("id", "v", "maybe", "late")}))

@case
def parquet_snappy_row_groups(r):
    frame = mixed(r, 5000)
    pa.parquet.write_table(pa.Table.from_pandas(frame), at("a.parquet"), compression="snappy", row_group_size=700)
    return Case(at("a.parquet"), frame)

@case
def parquet_decimals(r):
    values = [decimal.Decimal(r.randint(-(10**9), 10**9)).scaleb(-2) for _ in range(900)]
    pa.parquet.write_table(pa.table({"d": pa.array(values, pa.decimal128(12, 2)), "n": range(900)}), at("a.parquet"))
    return Case(at("a.parquet"), pl.DataFrame({"d": [float(v) for v in values], "n": list(range(900))}))

@case
def parquet_large_text_and_times(r):
    table = pa.table({
        "t": pa.array([r.choice([None, m]) for m in moments(r, 1500, 1000)], pa.timestamp("ms")),
        "z": pa.array(moments(r, 1500), pa.timestamp("us", tz="UTC")),
        "s": pa.array(prose(r, 1500), pa.large_string()),
        "f": pa.array([r.random() for _ in range(1500)], pa.float32()),
    })
    pa.parquet.write_table(table, at("a.parquet"))
    return Case(at("a.parquet"), pl.from_arrow(table))

@case
def feather_uncompressed_dictionary(r):
    table = pa.table({"c": pa.array([r.choice(NOUNS) for _ in range(2000)]).dictionary_encode(), "v": pa.array([r.gauss(0, 1) for _ in range(2000)])})
    pa.feather.write_feather(table, at("a.feather"), compression="uncompressed")
    return Case(at("a.feather"), pl.from_arrow(table).with_columns(pl.col("c").cast(pl.String)))

@case
def parquet_all_null_and_empty(r):
    pa.parquet.write_table(pa.table({"a": pa.array([None] * 700, pa.int32()), "b": pa.array([""] * 700), "n": range(700)}), at("a.parquet"))
    return Case(at("a.parquet"), pl.DataFrame({"a": pl.Series([None] * 700, dtype=pl.Int32), "b": [""] * 700, "n": list(range(700))}))


# Larger tables, for the sizes: what compresses well, badly, and differently in one part of the file than in another. In a small budget
# the sizes are estimated from parts of the table.

SMALL = ["--memory", "8M"]

@case
def large_sorted_and_random(r):
    g = np.random.default_rng(8)
    n = 120_000
    pd.DataFrame({"t": np.arange(n) * 60, "v": g.normal(size=n).round(3), "k": np.sort(g.integers(0, 50, n)), "u": g.integers(0, 2**31, n)}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"), options=SMALL)

@case
def large_texts_change_halfway(r):
    n = 60_000
    words = [r.choice(NOUNS) if i < n // 2 else f"{r.getrandbits(64):016x}" for i in range(n)]
    pd.DataFrame({"id": range(n), "word": words, "price": money(r, n)}).to_csv(at("a.csv"), index=False)
    return Case(at("a.csv"), options=SMALL)

@case
def large_log(r):
    n = 60_000
    t = datetime.datetime(2024, 1, 1)
    rows = []
    for i in range(n):
        t += datetime.timedelta(milliseconds=r.randint(1, 4000))
        rows.append((t.isoformat(timespec="milliseconds"), r.choice(["GET", "GET", "POST"]), f"/item/{r.randint(1, 5000)}", r.choice([200, 200, 200, 404, 500]), round(r.expovariate(20), 4)))
    return Case(text("a.csv", rows_text([("time", "method", "path", "status", "took")] + rows)), {"parse_dates": ["time"], "date_format": "ISO8601"}, SMALL)

@case
def large_parquet(r):
    g = np.random.default_rng(9)
    n = 200_000
    frame = pl.DataFrame({"id": np.arange(n), "x": g.normal(size=n), "k": g.integers(0, 1000, n), "s": [NOUNS[i] for i in g.integers(0, 15, n)]})
    frame.write_parquet(at("a.parquet"), row_group_size=20_000)
    return Case(at("a.parquet"), frame, SMALL)

@case
def large_parquet_sorted_by_text(r):
    texts = sorted(prose(r, 40_000, 1, 12))
    frame = pl.DataFrame({"s": texts, "n": [len(t) for t in texts], "x": [r.gauss(0, 1) for _ in texts]})
    frame.write_parquet(at("a.parquet"), row_group_size=5_000)
    return Case(at("a.parquet"), frame, SMALL)

@case
def large_jsonl(r):
    frame = pl.DataFrame({"id": range(50_000), "v": money(r, 50_000), "who": names(r, 50_000)})
    frame.write_ndjson(at("a.jsonl"))
    return Case(at("a.jsonl"), frame, SMALL)
