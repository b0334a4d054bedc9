"""tables.py [NAME…]: tables.sh's checks, all or those named. Each function is one, and runs in a folder of its own."""
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback

import numpy as np

from npz_texts import texts


def stowage(*words, code=0):
    done = subprocess.run([os.environ["STOWAGE"], *words], capture_output=True, text=True, timeout=100)
    assert done.returncode == code, (words, done)
    return done.stderr if code else done.stdout


def write(name, text):
    with open(name, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    return name


def columns(name, *words):
    facts = json.loads(stowage("inspect", "--json", name, *words))
    return {column["name"]: column for column in facts["columns"]}


def shrink(name, *words):
    stowage("shrink", name, "-o", "out.npz", *words)
    return np.load("out.npz")


# ---- values that must not change ----


def leading_zeros_stay():
    rows = "".join(f"{n % 100000:05d},{n % 12 + 1:02d},{n}\n" for n in range(0, 30000, 7))
    found = columns(write("t.csv", "zip,month,n\n" + rows))
    assert found["zip"]["dtype"] == "text" and found["zip"]["leading_zeros"], found["zip"]
    assert found["month"]["dtype"] == "text" and found["n"]["dtype"] == "int64", found
    for words in (["--threads", "1"], ["--threads", "3", "--memory", "32M"]):
        out = shrink("t.csv", *words)
        assert texts(out, "zip") == [f"{n % 100000:05d}" for n in range(0, 30000, 7)]
    # One zero in front, anywhere in the column, and in a column with gaps.
    found = shrink(write("t.csv", "a,b\n1,\n" * 1 + "10,7\n" * 5000 + "010,08\n0,\n"))
    assert texts(found, "a")[-2:] == ["010", "0"] and texts(found, "b")[-2:] == ["08", ""]
    # Not ids: a zero alone, fractions, exponents.
    found = columns(write("t.csv", "a,b\n0,00.5\n0,0.25\n-3,1e05\n"))
    assert [found[c]["dtype"] for c in "ab"] == ["int64", "float64"], found
    # No header becomes of a first row of ids.
    facts = json.loads(stowage("inspect", "--json", write("t.csv", "00501,1\n00601,2\n")))
    assert not facts["header"] and facts["rows"] == 2, facts


def long_integers_beside_fractions_stay_text():
    # 2^53 + 1 rounds to 2^53. The fraction is in a later window, after the integers were scanned.
    for n in (5000, 60000):
        for number in ("9007199254740993", "-9007199254740993", "1234567890123456789"):
            rows = [str(i) for i in range(n)]
            rows[5], rows[-1] = number, "0.5"
            out = shrink(write("t.csv", "k,v\n" + "".join(f"{i % 7},{v}\n" for i, v in enumerate(rows))), "--force")
            assert texts(out, "v")[5] == number and texts(out, "v")[-1] == "0.5", (n, number)


def names_with_dots_and_names_that_are_there_twice():
    for name in ("No.", "Inv. No.", "a..b", "..", "x/..", "../y"):
        out = shrink(write("t.csv", f"{name},b\n1,2\n3,4\n"), "--force")
        assert len(out.files) == 2 and out["b"].tolist() == [2, 4], (name, out.files)
        assert [a["rows"] if "rows" in a else a["shape"] for a in json.loads(stowage("inspect", "--json", "out.npz"))["arrays"]]
    out = shrink(write("t.csv", "a,a,a.1,a\n1,2,3,4\n"), "--force")
    assert {key: int(out[key][0]) for key in out.files} == {"a": 1, "a.2": 2, "a.1": 3, "a.3": 4}, out.files  # as pandas


def bars_within_fields_between_pairs_of_colons():
    facts = json.loads(stowage("inspect", "--json", "--names", "no", write("t.dat", "1::Toy Story::Animation|Comedy\n2::Heat::Action|Crime\n")))
    assert facts["shape"] == [2, 3], facts
    facts = json.loads(stowage("inspect", "--json", "--names", "no", write("t.dat", "a::b::c,12\nd::e::f,13\n")))
    assert facts["shape"] == [2, 2], facts


def the_header_of_savetxt_is_read_with_any_delimiter():
    values = np.arange(12.0).reshape(3, 4) + 0.5
    for delimiter in ", ;\t":
        for lines in ("", "made by a program\n"):
            np.savetxt("t.txt", values, delimiter=delimiter, header=lines + delimiter.join("xyzw"), fmt="%g")
            assert list(columns("t.txt")) == list("xyzw"), (delimiter, lines, columns("t.txt"))
    facts = json.loads(stowage("inspect", "--json", write("t.txt", "# made by a program\n1,2\n3,4\n")))
    assert not facts["header"] and facts["rows"] == 2, facts
    assert list(columns(write("t.csv", "# id,name\n1,bob\n2,eve\n"))) == ["# id", "name"]  # not numbers: as it is


def the_footer_of_savetxt_is_no_row():
    values = np.arange(30000.0).reshape(-1, 3) + 0.5
    for delimiter in " ,;\t":
        for header in ("", delimiter.join("abc")):
            for footer in ("end", "made by a program\nat noon, on a day", "\n"):
                np.savetxt("t.txt", values, delimiter=delimiter, header=header, footer=footer, fmt="%g")
                assert json.loads(stowage("inspect", "--json", "t.txt"))["shape"] == [10000, 3], (delimiter, header, footer)
    np.savetxt("t.txt", values, fmt="%.1f", delimiter=",", footer="end\n" * 9)  # several windows and threads; a window that ends within the footer
    np.savetxt("t.txt.gz", values, fmt="%.1f", delimiter=",", footer="end\n" * 9)
    for name in ("t.txt", "t.txt.gz"):
        for window in range(90, 130, 3):
            os.environ["STOWAGE_TEST_WINDOW"] = str(window)
            assert json.loads(stowage("inspect", "--json", name))["shape"] == [10000, 3], window
        del os.environ["STOWAGE_TEST_WINDOW"]
        for threads in "1", "3":
            stowage("shrink", name, "-o", "out.npy", "--threads", threads, "--force")
            assert (np.load("out.npy") == values).all()
    np.savetxt("t.txt", values[:, 0], footer="end")
    assert json.loads(stowage("inspect", "--json", "t.txt"))["shape"] == [10000, 1]
    # Before more rows, and below texts, it is a row like any other.
    facts = json.loads(stowage("inspect", "--json", write("t.csv", "1,2\n# a,b\n3,4\n")))
    assert facts["shape"] == [3, 2], facts
    facts = json.loads(stowage("inspect", "--json", write("t.csv", "id,tag\nx,1\n# y,2\n")))
    assert facts["shape"] == [2, 2], facts
    facts = json.loads(stowage("inspect", "--json", "--names", "no", write("t.csv", "1,2\n#3,4\n")))
    assert facts["shape"] == [2, 2], facts


def complex_numbers_of_savetxt_are_rows_of_text():
    a = np.array([[0.5 + 1e-3j, -2.25 - 3j, 0j], [1e300 + 1j, complex(np.nan, -np.inf), -1 + 0j], [7 + 7j] * 3])
    for number, words in enumerate((dict(), dict(header="x y z"), dict(fmt=" ".join(["%.18e%+.18ej"] * 3), header="x y z"))):
        np.savetxt("t.txt", a, **words)
        found = json.loads(stowage("inspect", "--json", "t.txt"))
        assert (found["rows"], found["header"]) == (3, number > 0), found
        out = shrink("t.txt", "--force")
        for i, name in enumerate("012" if number == 0 else "xyz"):
            back = np.array([complex(text.replace("+-", "-")) for text in texts(out, name)])
            assert np.array_equal(back, a[:, i], equal_nan=True), (words, back)
    for words, names in ((dict(), "012"), (dict(header="x,y,z"), "xyz"), (dict(header="x,y,z", comments=""), "xyz")):
        np.savetxt("t.csv", a, delimiter=",", **words)
        assert list(columns("t.csv")) == list(names) and json.loads(stowage("inspect", "--json", "t.csv"))["rows"] == 3, words
    np.savetxt("t.txt", a[:, 0])
    assert json.loads(stowage("inspect", "--json", "t.txt"))["rows"] == 3


def each_of_several_files_may_have_what_savetxt_adds():
    values = np.arange(30.0).reshape(-1, 3)
    for delimiter in ",;\t":
        for header in ("", delimiter.join("abc"), "made by a program\n" + delimiter.join("abc")):
            for name in ("p0.txt", "p1.txt", "p2.txt"):
                np.savetxt(name, values, delimiter=delimiter, header=header, footer="end\nof it", fmt="%g")
            facts = json.loads(stowage("inspect", "--json", "p?.txt"))
            assert facts["shape"] == [30, 3], (delimiter, header, facts)
            stowage("shrink", "p?.txt", "-o", "out.npz", "--force")
            out = np.load("out.npz")
            assert (np.stack([out[name] for name in out.files], 1) == np.concatenate([values] * 3)).all(), (delimiter, header)
    for name in ("p0.txt", "p1.txt", "p2.txt"):
        write(name, "sep=;\na;b\n1;2\n")
    assert json.loads(stowage("inspect", "--json", "p?.txt"))["shape"] == [3, 2]


def times_at_the_limits_of_nanoseconds():
    text = "a\n1677-09-22T00:00:00\n2262-04-11T00:00:00\n2024-01-01T00:00:00.123456789\n"
    out = shrink(write("t.csv", text), "--force")
    assert out["a"].dtype == "datetime64[ns]" and str(out["a"][0])[:10] == "1677-09-22" and str(out["a"][1])[:10] == "2262-04-11", out["a"]
    assert shrink(write("t.csv", text.replace("1677-09-22", "1677-09-21")), "--force")  # text
    assert columns("t.csv")["a"]["dtype"] == "text", columns("t.csv")
    first, last = "1677-09-21T00:12:43.145224193", "2262-04-11T23:47:16.854775807"  # the limits themselves; the one before is NaT
    out = shrink(write("t.csv", f"a,b\n{first},{last}\n1677-09-21T00:12:43.9,2262-04-11T23:47:16\n,{last}\n"), "--force")
    for name, limit in (("a", first), ("b", last)):
        assert out[name].dtype == "datetime64[ns]" and str(out[name][0]) == limit, out[name]
    assert out["a"].view("i8").tolist()[0] == -(2**63) + 1 and np.isnat(out["a"][2]) and out["b"].view("i8").tolist()[0] == 2**63 - 1
    assert str(out["a"][1]) == "1677-09-21T00:12:43.900000000" and str(out["b"][1]) == "2262-04-11T23:47:16.000000000", out["a"]
    for past in ("1677-09-21T00:12:43.145224192", "1677-09-21T00:12:43", "2262-04-11T23:47:16.854775808", "2262-04-11T23:47:17"):
        found = columns(write("t.csv", f"a\n{past}\n2024-01-01T00:00:00.123456789\n"))
        assert found["a"]["dtype"] == "text", (past, found)
        found = columns(write("t.csv", f"a\n{past[:19]}.5\n2024-01-01T00:00:00.123456\n"))  # microseconds hold all
        assert found["a"]["dtype"] == "datetime64[us]", (past, found)


def floats_stay_floats_for_arithmetic():
    found = columns(write("t.csv", "zero,whole,n\n0.0,1.0,1\n0.0,2.0,2\n"))
    assert [found[c]["smallest_dtype"] for c in ("zero", "whole", "n")] == ["float32", "float32", "int8"], found
    out = shrink("t.csv")
    assert out["zero"].dtype == "f4" and out["n"].dtype == "i1"
    stowage("shrink", write("u.csv", "a,b\n0.0,1.0\n0.0,2.0\n"), "-o", "out.npy")
    assert np.load("out.npy").dtype == "f4"
    out = shrink("t.csv", "--for", "storage")
    assert out["zero"].itemsize == 1


def an_output_larger_than_the_table_needs_force():
    small = write("t.csv", "a\n" + "0.1\n" * 1000)  # 4 bytes each, 8 as float64
    said = stowage("shrink", small, "-o", "out.npz", code=1)
    assert "8000 bytes" in said and "--force" in said and not os.path.exists("out.npz"), said
    shrink(small, "--force")
    os.remove("out.npz")
    # Only the headers make this one larger: it is written, and the report says so.
    said = stowage("shrink", write("t.csv", "a,b\n1,2\n3,4\n"), "-o", "out.npz")
    assert "larger than the input" in said, said


# ---- compressed ----


def packed(name, text):
    """The text in every form that is read: names and bytes."""
    import gzip, io, lzma, zipfile

    made = {f"{name}.csv": text, f"{name}.csv.gz": gzip.compress(text), f"{name}.csv.xz": lzma.compress(text)}
    half = len(text) // 2
    made[f"{name}2.csv.xz"] = lzma.compress(text[:half]) + lzma.compress(text[half:])  # two streams are one
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as archive:
            archive.writestr("folder/data.csv", text)
            archive.writestr("__MACOSX/folder/._data.csv", "x")
        made[f"{name}{method}.zip"] = out.getvalue()
    if shutil.which("zstd"):
        pack = lambda data: subprocess.run(["zstd", "-q", "-c"], input=data, capture_output=True, check=True).stdout
        made[f"{name}.csv.zst"] = pack(text[:half]) + pack(text[half:])
    return made


def compressed_tables_are_read():
    text = ("a,b\n" + "".join(f"{n},{n / 8}\n" for n in range(20000))).encode()
    for name, data in packed("t", text).items():
        out = shrink(write(name, data))
        assert (out["a"] == np.arange(20000)).all() and (out["b"] == np.arange(20000) / 8).all(), name
        if name == "t.csv":
            continue
        assert json.loads(stowage("inspect", "--json", name))["rows"] == 20000
        if ".csv." in name:  # cut off: an error, not fewer rows
            said = stowage("inspect", write(f"cut-{name}", data[: len(data) * 2 // 3]), code=2)
            assert "truncated" in said or "corrupt" in said, (name, said)
            broken = bytearray(data)
            broken[len(data) // 2] ^= 0xFF
            stowage("inspect", write(f"bad-{name}", bytes(broken)), code=2)
    os.environ["STOWAGE_LIBLZMA"] = "/nowhere/liblzma.so"
    assert "liblzma" in stowage("inspect", "t.csv.xz", code=1)


def a_zip_of_several_tables_needs_a_name():
    import zipfile

    with zipfile.ZipFile("t.zip", "w") as archive:
        archive.writestr("one.csv", "a\n1\n")
        archive.writestr("two.tsv", "a\tb\n1\t2\n")
    said = stowage("inspect", "t.zip", code=2)
    assert "one.csv, two.tsv" in said, said
    assert list(columns("t.zip:two.tsv")) == ["a", "b"]
    assert shrink("t.zip:one.csv")["a"].tolist() == [1]
    assert "one.csv" in stowage("inspect", "t.zip:three.csv", code=2)


# ---- how text is written ----


def text_options():
    rows = [(1.5, "\u00e9t\u00e9"), (-2.25, "\u20ac 5"), (1e3, "")]
    body = "x;word\n" + "".join(f"{str(x).replace('.', ',')};{word}\n" for x, word in rows)
    for encoding in ("utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le", "utf-16-be"):
        data = body.encode(encoding)
        words = ["--encoding", encoding] if encoding in ("cp1252", "utf-16-le", "utf-16-be") else []
        for window in ("", "64", "101"):
            os.environ["STOWAGE_TEST_WINDOW"] = window
            out = shrink(write("t.csv", data), "--decimal", ",", *words)
            assert out["x"].tolist() == [x for x, _ in rows] and texts(out, "word") == [w for _, w in rows], (encoding, window)
    os.environ["STOWAGE_TEST_WINDOW"] = ""
    assert texts(shrink(write("t.csv", "a,b\nx,\xe9\n".encode("latin-1")), "--encoding", "latin-1"), "b") == ["\xe9"]
    # A point beside decimal commas is no decimal point.
    assert columns(write("t.csv", "a;b\n1.234;5\n"), "--decimal", ",")["a"]["dtype"] == "text"
    assert list(columns(write("t.csv", "a^b\n1^2\n"), "--delimiter", "^")) == ["a", "b"]
    assert list(columns(write("t.csv", "a b\n1 x\n"), "--delimiter", "space")) == ["a", "b"]
    for wrong in (["--delimiter", "ab"], ["--decimal", "x"], ["--encoding", "ebcdic"], ["--skip", "-1"], ["--delimiter", ",", "--decimal", ","]):
        stowage("inspect", "t.csv", *wrong, code=2)


def skipped_lines_and_comments():
    text = 'report of today\n\n# made by hand\na,b\n1,x\n# 2,y\n3,"two\n# lines"\n#4,z\n5,#w\n'
    for window in ("", "64", "70"):
        os.environ["STOWAGE_TEST_WINDOW"] = window
        out = shrink(write("t.csv", text), "--skip", "1", "--comment", "#")
        assert out["a"].tolist() == [1, 3, 5] and texts(out, "b") == ["x", "two\n# lines", "#w"], window
    # Errors name the line of the file.
    said = stowage("inspect", write("t.csv", "junk\n#c\na,b\n1,2\n#\n3,4,5\n"), "--skip", "1", "--comment", "#", code=2)
    assert "line 6" in said, said
    assert json.loads(stowage("inspect", "--json", "t.csv", "--skip", "4", "--names", "no", "--comment", "#"))["rows"] == 1


def bytes_that_are_not_text_are_named():
    assert "line 3 has a byte that is not text: 0x1a, at byte 8" in stowage("inspect", write("t.csv", "a,b\n1,2\n\x1a"), code=2)
    assert "line 2 has a byte that is not text: 0x00, at byte 6" in stowage("inspect", write("t.csv", "a,b\n1,\0002\n"), code=2)
    assert "not an npy" in stowage("inspect", write("t.csv", b"\x01\x02\x03"), code=2)
    assert "nothing is left after --skip 99" in stowage("inspect", "--skip", "99", write("t.csv", "a,b\n1,2\n"), code=2)


def words_for_missing_values():
    numbers = write("t.csv", "a,b\n1,x\n-999,-999\nNA,?\n,NA\n")
    found = columns(numbers)
    assert found["a"]["missing"] == 2 and found["b"]["missing"] == 0, found  # -999 is a number; words are text
    found = columns(numbers, "--na", "-999,?", "--na", "NA")
    assert found["a"]["missing"] == 3 and found["b"]["missing"] == 3, found
    out = shrink(numbers, "--na", "-999,?,NA")
    assert np.isnan(out["a"]).tolist() == [False, True, True, True] and texts(out, "b") == ["x", "", "", ""]
    # pandas' words, by default in numbers.
    for word in ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"):
        found = columns(write("t.csv", f"a,b\n1,1\n{word},2\n"))["a"]
        assert found["dtype"] == "float64" and found["missing"] + found["nan"] >= 1, (word, found)
    assert columns(write("t.csv", "a\nnone\n1\n"))["a"]["dtype"] == "text"


def types_of_single_columns():
    write("t.csv", "zip,n,x,d\n00501,1,0.1,2020-01-01\n10001,2,0.2,2020-01-02\n")
    out = shrink("t.csv", "--type", "zip=int32", "--type", "n=text", "--type", "x=float32", "--tolerance", "x=1e-6", "--type", "d=text", "--force")
    assert out["zip"].dtype == "i4" and out["zip"].tolist() == [501, 10001], out["zip"]
    assert texts(out, "n") == ["1", "2"] and out["x"].dtype == "f4" and texts(out, "d") == ["2020-01-01", "2020-01-02"]
    assert "0.1" not in stowage("shrink", "t.csv", "-o", "x.npz", "--type", "x=float32", code=2)
    assert "nope" in stowage("shrink", "t.csv", "-o", "x.npz", "--type", "nope=int8", code=2)
    assert "line 2" in stowage("shrink", "t.csv", "-o", "x.npz", "--type", "d=int64", code=2)
    stowage("shrink", "t.csv", "-o", "x.npz", "--type", "n=datetime", code=2)
    stowage("shrink", "t.csv", "-o", "x.npz", "--type", "n=int7", code=2)
    # 007 as a number in every way of reading: threads, quotes, gaps.
    body = "a,b\n" + "".join(f'{n:04d},"{n:03d}"\n' for n in range(9000)) + ",\n"
    for words in (["--threads", "1"], ["--threads", "3", "--memory", "32M"]):
        out = shrink(write("t.csv", body), "--type", "a=float64", "--type", "b=float32", "--force", *words)
        assert (out["a"][:-1] == np.arange(9000)).all() and (out["b"][:-1] == np.arange(9000)).all() and np.isnan(out["a"][-1])


def columns_of_gaps_keep_the_type_that_is_asked_for():
    write("t.csv", "a,b,c\n" + ",,1\n" * 3000)
    types = ["--type", "a=text", "--type", "b=datetime"]
    for words in (["--threads", "1"], ["--threads", "3", "--memory", "32M"]):
        out = shrink("t.csv", "--force", *types, *words)
        assert texts(out, "a") == [""] * 3000, sorted(out)
        assert out["b"].dtype.kind == "M" and out["b"].shape == (3000,) and np.isnat(out["b"]).all(), out["b"]
    found = columns("t.csv", *types)
    assert found["a"]["dtype"] == "text" and found["b"]["first_date"] is None and found["a"]["missing"] == found["b"]["missing"] == 3000, found
    out = shrink(write("t.csv", "a,b\nNA,NA\n,\n"), "--force", *types)
    assert texts(out, "a") == ["NA", ""] and np.isnat(out["b"]).all()
    out = shrink(write("t.csv", "a,b\n"), "--force", *types)
    assert texts(out, "a") == [] and out["b"].dtype.kind == "M" and out["b"].shape == (0,)


def dates_and_times():
    days = [f"{np.datetime64('1999-12-30') + n}" for n in range(3000)]
    stamps = [f"{np.datetime64('2024-02-28T23:59:58.250') + np.timedelta64(n * 12345, 'ms')}".replace("T", " ") for n in range(3000)]
    zoned = ["2024-01-01T00:30:00+01:00", "2024-01-01T00:30:00Z", "2023-12-31 18:30:00-05:00"] * 1000
    micros = [f"2024-01-01T00:00:00.{n:06d}" for n in range(3000)]
    nanos = [f"2024-01-01T00:00:00.{n:09d}" for n in range(3000)]
    gaps = [day if n % 7 else ("", "NA", "NaT")[n // 7 % 3] for n, day in enumerate(days)]
    late = ["1.5" if n == 2999 else day for n, day in enumerate(days)]
    names = "day,stamp,zoned,micros,nanos,gaps,late"
    write("t.csv", names + "\n" + "".join(",".join(row) + "\n" for row in zip(days, stamps, zoned, micros, nanos, gaps, late)))
    found = columns("t.csv")
    assert [found[c]["dtype"] for c in names.split(",")] == [
        "datetime64[D]", "datetime64[ms]", "datetime64[s]", "datetime64[us]", "datetime64[ns]", "datetime64[D]", "text"], found
    assert found["gaps"]["missing"] == len(range(0, 3000, 7)) and found["zoned"]["utc"] and not found["day"]["utc"]
    assert found["day"]["first_date"] == days[0] and found["day"]["last_date"] == days[-1]
    for words in (["--threads", "1"], ["--threads", "3", "--memory", "32M"], ["--memory", "4M", "--threads", "1"]):
        out = shrink("t.csv", *words)
        assert (out["day"] == np.array(days, "M8[D]")).all()
        assert (out["stamp"] == np.array([s.replace(" ", "T") for s in stamps], "M8[ms]")).all()
        assert (out["zoned"] == np.array(["2023-12-31T23:30:00", "2024-01-01T00:30:00", "2023-12-31T23:30:00"] * 1000, "M8[s]")).all()
        assert (out["micros"] == np.array(micros, "M8[us]")).all() and (out["nanos"] == np.array(nanos, "M8[ns]")).all()
        want = np.array([g if len(g) == 10 else "NaT" for g in gaps], "M8[D]")
        assert ((out["gaps"] == want) | (np.isnat(out["gaps"]) & np.isnat(want))).all()
        assert texts(out, "late") == late
    # What is no ISO 8601, or has no common meaning, stays text.
    for wrong in ("2023-02-29", "2024-13-01", "01/02/2024", "2024-1-2", "2024-01-01T25:00", "2024-01-01T00:00:60", "0000-01-01", "2024-01-01T00:00:00.", "2024-01-01x"):
        assert columns(write("u.csv", f"a,b\n2024-01-01,1\n{wrong},2\n"))["a"]["dtype"] == "text", wrong
    assert columns(write("u.csv", "a,b\n2024-01-01T00:00Z,1\n2024-01-01T00:00,2\n"))["a"]["dtype"] == "text"
    assert columns(write("u.csv", "a,b\n9999-12-31,1\n0001-01-01,2\n"))["a"]["dtype"] == "datetime64[D]"
    stowage("shrink", write("u.csv", "a\n2024-01-01\n"), "-o", "x.npy", code=2)
    # Far more distinct times than the budget holds.
    body = "t\n" + "".join(f"{np.datetime64('2000-01-01T00:00:00') + n}\n" for n in range(200000))
    out = shrink(write("u.csv", body), "--memory", "4M")
    assert (out["t"] == np.datetime64("2000-01-01T00:00:00") + np.arange(200000)).all()


# ---- several files ----


def rows_of_megabytes_among_short_ones():
    """A window of a long row waits for those before it, which other threads may have read and not merged yet."""
    rows = ["a,b\n"]
    for n in range(6):
        rows += [f"{n},{'x' * (1_100_000 + n)}\n"] * (n % 2 + 1) + [f"{k},t{(k * 7919 + n * 31) % 9973}\n" for k in range(12000)]
    write("t.csv", "".join(rows))
    with_one = shrink("t.csv", "--threads", "1", "--memory", "64M")
    for threads in ("2", "5"):
        out = shrink("t.csv", "--threads", threads, "--memory", "64M")
        assert sorted(out.files) == sorted(with_one.files) and all((out[name] == with_one[name]).all() for name in out.files)
    assert texts(with_one, "b") == [row.split(",")[1][:-1] for row in rows[1:]]


def several_tables_are_one():
    for n in range(5):
        rows = "".join(f"{n * 10 + k},w{k},{k / 4}\n" for k in range(10))
        write(f"p{n}.csv", "a,b,c\n" + (rows[:-1] if n == 1 else rows))  # no line end at the end of p1
    for words in (["p*.csv"], ["p0.csv", "p1.csv", "p2.csv", "p3.csv", "p4.csv"], ["p0.csv", "p[1-4].csv"]):
        for more in ([], ["--threads", "3", "--memory", "32M"]):
            out = shrink(*words, *more)
            assert out["a"].tolist() == list(range(50)) and texts(out, "b") == [f"w{n % 10}" for n in range(50)]
    facts = json.loads(stowage("inspect", "--json", "p*.csv"))
    assert facts["rows"] == 50 and facts["file_bytes"] == sum(os.path.getsize(f"p{n}.csv") for n in range(5)), facts
    os.environ["STOWAGE_TEST_WINDOW"] = "64"
    assert shrink("p*.csv")["a"].tolist() == list(range(50))
    os.environ["STOWAGE_TEST_WINDOW"] = ""
    for body, words in (
        ("a,x,c\n1,2,3\n", ["bad.csv", '"x"', '"b"', "p0.csv"]),
        ("a,b\n1,2\n", ["bad.csv", "2 columns", '"c"']),
        ("a,b,c,d\n1,2,3,4\n", ["bad.csv", '"d"']),
        ("a,b,c\n1,x,2\n3,y,4,5\n", ["bad.csv: line 3"]),
        ("", ["bad.csv", "empty"]),
    ):
        write("bad.csv", body)
        said = stowage("shrink", "p0.csv", "p1.csv", "bad.csv", "-o", "x.npz", code=2)
        assert all(word in said for word in words), said
    # Without names, with comments in each, of numbers with spaces.
    for n in range(3):
        np.savetxt(f"s{n}.txt", np.full((4, 3), n + 0.5), header="three columns")
    stowage("shrink", "s*.txt", "-o", "out.npy")
    assert (np.load("out.npy")[:, 0] == np.repeat([0.5, 1.5, 2.5], 4)).all()
    said = stowage("inspect", "none*.csv", code=2)
    assert "none*.csv" in said


def several_arrays_are_one():
    for n in range(6):
        np.save(f"n{n}.npy", np.arange(n * 12, n * 12 + 12, dtype=">i4").reshape(4, 3))
        np.savez_compressed(f"z{n}.npz", x=np.arange(n * 3, n * 3 + 3) / 2, y=np.zeros(n))
    want = np.arange(72).reshape(24, 3)
    facts = json.loads(stowage("inspect", "--json", "n*.npy"))
    assert facts["shape"] == [24, 3] and facts["max"] == 71, facts
    stowage("shrink", "n*.npy", "-o", "out.npy")
    assert (np.load("out.npy") == want).all()
    stowage("shrink", "z*.npz:x", "-o", "out.npy")
    assert (np.load("out.npy") == np.arange(18) / 2).all()
    said = stowage("shrink", "n0.npy", "z0.npz:x", "-o", "x.npy", code=2)
    assert "n0.npy" in said and "z0.npz:x" in said, said
    assert stowage("shrink", "n0.npy", "n1.npy", "-o", "n1.npy", code=2)
    assert (np.load("n1.npy") == np.arange(12, 24).reshape(4, 3)).all()


def a_column_is_not_a_member():
    write("n.csv", "id,v\n1,10\n2,20\n")
    write("n.csv.gz", gzip.compress(b"id,v\n1,10\n2,20\n"))
    write("j.jsonl", '{"id": 1}\n')
    for name in ("n.csv", "n.csv.gz", "j.jsonl"):
        for column in ("id", "zzz"):
            for out in ("o.npy", "o.npz"):
                said = stowage("shrink", f"{name}:{column}", "-o", out, code=2)
                assert f"no member {column}" in said and f"--columns {column}" in said, said
                assert not os.path.exists(out)
            assert f"no member {column}" in stowage("inspect", f"{name}:{column}", code=2)
    assert shrink("n.csv", "--columns", "id", "--force").files == ["id"]


def bfloat16_becomes_a_type_that_npy_has():
    np.array([0x3FC0, 0x7F00], "u2").tofile("wide.bin")
    np.array([0x3FC0, 0xC000], "u2").tofile("half.bin")
    for name, dtype, values in (("wide.bin", "float32", [1.5, 2.0**127]), ("half.bin", "float16", [1.5, -2.0])):
        for out in ("o.npy", "o.npz"):
            stowage("shrink", name, "--from-dtype", "bfloat16", "-o", out)
            made = np.load(out)
            made = made if out == "o.npy" else made[made.files[0]]
            assert made.dtype == dtype and made.tolist() == values, (out, made)


def columns_of_one_name_are_listed_as_they_are_written():
    write("d.csv", "a,b,a,a.1,a\n1,2,3,4,5\n")
    facts = json.loads(stowage("inspect", "--json", "d.csv"))
    assert [c["name"] for c in facts["columns"]] == ["a", "b", "a.2", "a.1", "a.3"], facts["columns"]
    assert sorted(shrink("d.csv", "--force").files) == sorted(c["name"] for c in facts["columns"])


def a_number_that_is_too_large_is_the_reason_for_text():
    for number, point in (("1e400", "."), ("-1E999", "."), ("99999999999999999999999", "."), ("1,5e400", ",")):
        words = ["--decimal", ","] if point == "," else []
        delimiter = ";" if point == "," else ","
        found = columns(write("t.csv", f"a{delimiter}b\n{number}{delimiter}1\n2{delimiter}2\n"), *words)
        assert found["a"]["dtype"] == "text" and found["a"]["too_large_numbers"], (number, found)
        assert "too large numbers" in stowage("inspect", "t.csv", *words)
        assert texts(shrink("t.csv", "--force", *words), "a") == [number, "2"]
    found = columns(write("t.csv", "a,b\n1,x\n2,1e400x\n"))
    assert not found["b"]["too_large_numbers"], found


def a_damaged_archive_is_named_before_its_table():
    body = b"id,v\n" + b"".join(b"%d,%d\n" % (i, i) for i in range(300_000))
    packed = bytearray(gzip.compress(body, 0))  # stored: a flipped byte changes the table
    packed[packed.index(b"\n2500,2500\n") + 3] = ord(",")
    write("c.csv.gz", bytes(packed))
    for verb in (["inspect", "c.csv.gz"], ["shrink", "c.csv.gz", "-o", "c.npz"]):
        assert "gzip stream is corrupt" in stowage(*verb, code=2)
    write("good.csv.gz", gzip.compress(b"a,b\n1,2\n3\n4,5,6\n"))
    assert "line 4" in stowage("inspect", "good.csv.gz", code=2)


def zeros_behind_gzip_members_are_padding():
    for zeros in (1, 512, 200_000):
        body, end = gzip.compress(b"a,b\n1,2\n") + bytes(zeros), gzip.compress(b"3,4\n")
        for packed, rows in ((body, 1), (body + end, 2), (body + end + bytes(zeros), 2)):
            assert json.loads(stowage("inspect", write("p.csv.gz", packed), "--json"))["rows"] == rows
    write("p.csv.gz", body + b"garbage")
    assert "gzip stream is corrupt" in stowage("inspect", "p.csv.gz", code=2)
    write("p.csv.gz", body + end[:-1])
    assert "gzip stream is truncated" in stowage("inspect", "p.csv.gz", code=2)


def a_carriage_return_among_line_feeds_is_named():
    for text in ("a,b\r\n1,2\n3,4\r5,6\r\n7,8", "a,b\n1,2\n3,4\r5,6\n"):
        said = stowage("inspect", write("t.csv", text), code=2)
        assert "line 3: 3 fields" in said and "carriage return alone" in said, said
    assert "carriage" not in stowage("inspect", write("t.csv", 'a,b\r\n1,2\r\n1,"x\ry",3\r\n'), code=2)


def files_of_other_kinds_are_named():
    for start, what in ((b"%PDF-1.4\n%abc\n", "PDF"), (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "an image"), (b"\xff\xd8\xff\xe0\0\x10JFIF\0\n", "an image"),
                        (b"GIF89a\x01\0\x01\0", "an image"), (b"Rar!\x1a\x07\0\n12345", "RAR")):
        said = stowage("inspect", write("t.bin", start), code=2)
        assert what in said and ("stowage.records" in said) == (what == "an image"), said
    for name in ("ORCID", "PAR1", "BZh"):  # letters that other files begin with
        assert name in columns(write("t.csv", f"{name},n\n1,2\n3,4\n"))


def one_part_of_a_sparse_matrix_is_an_array():
    np.savez("s.npz", indptr=np.array([0, 1, 2]), indices=np.array([0, 1]), data=np.array([1.5, 2.5]), shape=np.array([2, 2]), format=np.array(b"csr"))
    for name, values in (("data", [1.5, 2.5]), ("indptr", [0, 1, 2]), ("shape", [2, 2])):
        facts = json.loads(stowage("inspect", "--json", f"s.npz:{name}"))
        assert [a["name"] for a in facts["arrays"]] == [name] and not facts["arrays"][0]["sparse"], facts
        stowage("shrink", f"s.npz:{name}", "-o", "o.npy", "--force")
        assert np.load("o.npy").tolist() == values


def messages_name_the_users_file_and_the_next_step():
    write("t.csv", "a,b\n1,2\n")
    for out in ("/proc/o.npz", "/proc/o.npy"):
        said = stowage("shrink", "--force", "t.csv", "-o", out, code=1)
        assert f"{out}: " in said and "scratch" not in said and "does not exist" not in said, said
    assert "nodir/o.npz: " in stowage("shrink", "t.csv", "-o", "nodir/o.npz", code=1)
    os.mkdir("dir")
    said = stowage("shrink", "dir", "-o", "o.npz", code=2)
    assert "dir/*.csv" in said and "stowage.records" in said, said
    np.savez("z.npz", x=np.arange(3), y=np.arange(2))
    said = stowage("inspect", "z.npz:q", code=2)
    assert "no member q" in said and "x.npy, y.npy" in said, said
    np.save("a.npy", np.arange(100))
    for name in ("a.npy", "z.npz"):
        with open(name, "rb") as file:
            write("cut.bin", file.read()[:200])
        assert "copy or write it again" in stowage("inspect", "cut.bin", code=2)


CHECKS = [value for name, value in list(globals().items()) if callable(value) and getattr(value, "__module__", "") == "__main__"]
CHECKS = [check for check in CHECKS if check.__code__.co_argcount == 0 and check.__code__.co_kwonlyargcount == 0]

if __name__ == "__main__":
    failed = 0
    for check in CHECKS:
        if sys.argv[1:] and check.__name__ not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                check()
                print(f"ok {check.__name__}", flush=True)
            except Exception:
                traceback.print_exc(file=sys.stdout)
                print(f"FAIL {check.__name__}", flush=True)
                failed = 1
            os.chdir("..")
    sys.exit(failed)
