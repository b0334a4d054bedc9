#!/usr/bin/env bash
# Compares stowage inspect with NumPy and SciPy, which write the files and know their contents. STOWAGE_TEST_PYTHON names another
# Python that has both.
. "$(dirname "$0")/../guards/lib.bash"
export STOWAGE=$stowage
. "$source_dir/tests/cli/numpy.bash"
require_numpy data
cd "$folder" || exit 1

test_py every_type_order_and_version_numpy_writes_is_read_right << 'END'
kinds = ["?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d"]
shapes = [(), (0,), (1,), (7,), (3, 4), (0, 3), (2, 0, 5), (2, 3, 4)]
count = 0
for kind in kinds:
    for order in "<>":
        for shape in shapes:
            for fortran in (False, True):
                a = random_array(np.dtype(order + kind), shape)
                if fortran:
                    a = np.asfortranarray(a)
                version = [(1, 0), (2, 0), (3, 0)][count % 3]
                with open("a.npy", "wb") as f:
                    np.lib.format.write_array(f, a, version=version)
                check_facts(inspect("a.npy"), a)
                count += 1
assert count == 12 * 2 * 8 * 2
END

test_py members_of_other_kinds_and_names_with_slashes_do_not_block_the_rest << 'END'
arrays = {"params/Dense_0/kernel": np.arange(6.0), "s": np.zeros(3, dtype=[("a", "f4"), ("b", "U3")]), "o": np.array([{}, 1], dtype=object)}
for save in (np.savez, np.savez_compressed):
    save("a.npz", **arrays)
    listed = {a["name"]: a["dtype"] for a in inspect("a.npz")["arrays"]}
    assert listed == {"params/Dense_0/kernel": "float64", "s": "structured", "o": "objects"}, listed
    stowage("shrink", "a.npz", "-o", "b.npz")
    back = np.load("b.npz", allow_pickle=True)
    assert back["params/Dense_0/kernel"].dtype.itemsize == 1 and np.array_equal(back["params/Dense_0/kernel"], np.arange(6))
    assert np.array_equal(back["s"], arrays["s"]) and back["s"].dtype == arrays["s"].dtype and list(back["o"]) == [{}, 1]
    assert "use .npz" in stowage("shrink", "a.npz:o", "-o", "b.npy", fails=True)
import zipfile
with zipfile.ZipFile("f.npz", "w") as z:  # as `zip -r` writes it
    z.writestr("params/", b"")
    z.write("a.npz", "params/notes.txt")
    np.save("x.npy", np.arange(3))
    z.write("x.npy", "params/x.npy")
assert [a["dtype"] for a in inspect("f.npz")["arrays"]] == ["not an array", "int64"]
for name in ("../x.npy", "/x.npy", "a/../../x.npy", "a\\x.npy"):
    with zipfile.ZipFile("bad.npz", "w") as z:
        z.write("x.npy", "PLACEHOLDERPLACE"[:len(name)])
    raw = open("bad.npz", "rb").read().replace("PLACEHOLDERPLACE"[:len(name)].encode(), name.encode())
    open("bad.npz", "wb").write(raw)
    assert "of the zip file: a" in inspect("bad.npz", fails=True), name
END

test_py tables_of_savetxt_are_read << 'END'
a = rng.standard_normal((300, 4))
for more, names in [({}, None), (dict(header="x y z w"), "xyzw"), (dict(header="made by me\n\nx y z w"), "xyzw"),
                    (dict(header="three words here"), None), (dict(delimiter=","), None), (dict(fmt="%.17g", newline="\r\n"), None)]:
    np.savetxt("a.txt", a, **more)
    facts = inspect("a.txt")
    assert facts["rows"] == 300 and len(facts["columns"]) == 4, (more, facts)
    assert names is None or "".join(c["name"] for c in facts["columns"]) == names, facts
    shrink("a.txt", "-o", "a.npy")
    assert np.array_equal(np.load("a.npy"), np.loadtxt("a.txt", delimiter=more.get("delimiter"))), more
np.savetxt("i.txt", np.arange(10).reshape(5, 2), fmt="%d")
shrink("i.txt", "-o", "i.npy")
assert np.array_equal(np.load("i.npy"), np.arange(10).reshape(5, 2))
open("words.txt", "w").write("two words\nmore words\n")
assert len(inspect("words.txt")["columns"]) == 1
END

test_py other_types_are_named_and_measured << 'END'
for a in (np.zeros(3, "c8"), np.zeros(3, ">c16"), np.array(["ab", "c"]), np.array([b"ab"]), np.zeros(2, "M8[ns]"),
          np.zeros(2, "m8[D]"), np.zeros(4, "V3"), np.zeros(2, "g")):
    np.save("a.npy", a)
    facts = inspect("a.npy")
    assert facts["dtype"] == str(a.dtype) or facts["dtype"] == a.dtype.str, (facts, a.dtype)
    assert facts["shape"] == list(a.shape) and facts["bytes"] == a.nbytes, facts
for descr in ("<V2", "|V2", ">V2", "|a2"):  # bfloat16 is saved as the first
    header = "{'descr': '%s', 'fortran_order': False, 'shape': (2,), }\n" % descr
    open("a.npy", "wb").write(b"\x93NUMPY\x01\x00" + bytes([len(header), 0]) + header.encode() + b"abcd")
    assert inspect("a.npy")["dtype"] == str(np.dtype(descr.replace("a", "S"))), descr
END

test_py objects_and_structures_are_refused << 'END'
np.save("o.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
assert "Python objects" in inspect("o.npy", fails=True)
np.save("s.npy", np.zeros(2, dtype=[("a", "f4"), ("b", "i4")]))
assert "structured" in inspect("s.npy", fails=True)
END

test_py values_at_the_edge_of_a_type_decide << 'END'
edges = [(127, "int8"), (-128, "int8"), (255, "uint8"), (256, "uint16"), (-129, "int16"), (65535, "uint16"),
         (65536, "uint32"), (-32769, "int32"), (2**32 - 1, "uint32"), (2**32, "int64"), (-2**31 - 1, "int64")]
for value, expected in edges:
    a = np.zeros((100003,), dtype="i8")
    a[-1] = value  # in the last row
    if value > 0 and expected.startswith("int"):
        a[0] = -1
    np.save("a.npy", a)
    facts = inspect("a.npy")
    assert facts["smallest_dtype"] == expected, (value, facts)
    assert facts["bytes_after"] == a.size * np.dtype(expected).itemsize
for value, expected in [(0.5, "float16"), (2053.5, "float32"), (0.1, "float64"), (65504.0, "float16"), (65503.0, "uint16"), (1e300, "float64"),
                        (-0.0, "float16"), (np.nan, "float16"), (np.inf, "float16"), (2.0**-24, "float16"),
                        (float(2**24 + 1), "uint32")]:
    a = np.ones(100003)
    a[-1] = value
    np.save("a.npy", a)
    assert inspect("a.npy")["smallest_dtype"] == expected, (value, inspect("a.npy"))
END

test_py npz_members_and_sparse_matrices_agree << 'END'
dense = random_sparse((300, 200), 0.02)
np.savez("s.npz", x=dense, y=np.arange(9), z=np.array(3.5))
np.savez_compressed("d.npz", x=dense, y=np.arange(9), z=np.array(3.5))
for name in ("s.npz", "d.npz"):
    facts = inspect(name)
    loaded = np.load(name)
    assert [a["name"] for a in facts["arrays"]] == loaded.files
    for a in facts["arrays"]:
        check_facts(a, loaded[a["name"]])
    assert facts["arrays"][0]["sparse_is_smaller"]
for make in (sp.csr_matrix, sp.csc_matrix):
    for compressed in (False, True):
        m = make(dense)
        sp.save_npz("m.npz", m, compressed=compressed)
        facts = inspect("m.npz")
        assert facts["sparse"] == m.format and facts["shape"] == list(m.shape) and facts["dtype"] == str(m.dtype)
        assert facts["bytes"] == m.data.nbytes + m.indices.nbytes + m.indptr.nbytes
        assert abs(facts["zero_fraction"] - (dense == 0).mean()) < 1e-12
END

test_py raw_bytes_are_what_they_are_declared_to_be << 'END'
a = random_array(np.dtype("<f4"), (30, 7))
a.tofile("a.bin")
check_facts(inspect("a.bin", "--dtype", "f32", "--shape", "30,7"), a)
check_facts(inspect("a.bin", "--dtype", "float32", "--shape", "(30, 7)"), a)
check_facts(inspect("a.bin", "--dtype", "float32"), a.ravel())
assert "the file has" in inspect("a.bin", "--dtype", "f32", "--shape", "30,8", fails=True)
END

test_py tables_agree_with_pythons_own_reader << 'END'
import csv, gzip
words = ["Oslo", "New, York", 'say "x"', "two\nlines", "Zürich", ""]
for trial in range(20):
    rows = [[str(int(rng.integers(-9, 9) * 10 ** int(rng.integers(0, 17)))), repr(float(rng.standard_normal() * 10.0 ** int(rng.integers(-300, 300)))),
             words[int(rng.integers(0, 6))], "%.18e" % rng.standard_normal()] for _ in range(300)]
    with open("t.csv", "w", newline="") as f:
        csv.writer(f, lineterminator="\r\n" if trial % 2 else "\n").writerows([["i", "f", "t", "e"], *rows])
    with open("t.csv", "rb") as f, gzip.open("t.csv.gz", "wb") as g:
        g.write(f.read())
    for name in ("t.csv", "t.csv.gz"):
        facts = inspect(name)
        i, f, t, e = facts["columns"]
        assert facts["shape"] == [300, 4] and facts["header"]
        assert (i["dtype"], i["min"], i["max"]) == ("int64", min(int(r[0]) for r in rows), max(int(r[0]) for r in rows)), i
        for column, k in ((f, 1), (e, 3)):
            values = [float(r[k]) for r in rows]
            assert (column["dtype"], column["min"], column["max"]) == ("float64", min(values), max(values)), column
        assert t["dtype"] == "text" and t["distinct"] == len({r[2] for r in rows} - {""}) and t["missing"] == sum(r[2] == "" for r in rows), t
END

test_py what_stands_between_fields_is_found << 'END'
rows = "Preis (EUR, netto);Menge\n1,50;3\n2,25;4\n"
for text, names, shape in ((rows, ["Preis (EUR, netto)", "Menge"], [2, 2]), (rows.replace(";", "|"), ["Preis (EUR, netto)", "Menge"], [2, 2]),
                           (rows.replace(";", "\t"), ["Preis (EUR, netto)", "Menge"], [2, 2]), ("a,b;c\n1,2\n3,4\n", ["a", "b;c"], [2, 2]),
                           ("id,genres\n1,A|B\n2,C|D\n", ["id", "genres"], [2, 2]), ("1,5;2,5\n3,5;4,5\n", ["0", "1"], [2, 2]), ('a;b\n"x\n,,";1\n', ["a", "b"], [1, 2]),
                           ("a,b;c,d\n", ["a", "b;c", "d"], [0, 3]), ("\ufeffsep=;\r\na;b,c\r\n1;2\r\n", ["a", "b,c"], [1, 2]), ("sep=|\na|b\n1|2\n", ["a", "b"], [1, 2])):
    open("t.csv", "w", newline="").write(text)
    facts = inspect("t.csv")
    assert facts["shape"] == shape and names in (None, [c["name"] for c in facts["columns"]]), (text, facts)
open("t.csv", "w").write("sep=;\na;b\n1;2\n3;4;5\n")
assert "line 4: 3 fields, but the lines before it have 2" in inspect("t.csv", fails=True)
END

test_py words_for_nothing_are_missing_among_numbers_and_words_among_words << 'END'
for word in ("NA", "N/A", "null", "#N/A", "<NA>", ""):
    for words in ([word, "1.5"], ["1.5", word]):
        open("t.csv", "w").write("a,b\n" + "".join(f"{w},1\n" for w in words))
        a = inspect("t.csv")["columns"][0]
        assert (a["dtype"], a["missing"]) == ("float64", 1), (word, a)
    for words in ([word, "x", ""], ["x", word, ""]):  # in whatever order
        open("t.csv", "w").write("a,b\n" + "".join(f"{w},1\n" for w in words))
        a = inspect("t.csv")["columns"][0]
        assert (a["dtype"], a["missing"]) == ("text", words.count("")), (word, a)
END

test_py a_column_may_go_without_a_name << 'END'
for text, names in ((",x\n0,1\n1,2\n", ["index", "x"]), ("a,b,\n1,2,\n", ["a", "b", "2"]), ("a,,c\n1,2,3\n", ["a", "1", "c"]), ("a,NA\n1,2\n", ["a", "NA"])):  # as pandas writes its index
    open("t.csv", "w").write(text)
    facts = inspect("t.csv")
    assert facts["header"] and [c["name"] for c in facts["columns"]] == names and facts["columns"][0]["dtype"] == "int64", facts
for text in (",\n1,2\n", ",2\nx,3\n", "5,NA\n1,2\n"):
    open("t.csv", "w").write(text)
    assert not inspect("t.csv")["header"], text
END

test_py lines_may_end_with_cr_alone << 'END'
import gzip
rows = 'a,b;"c\r1,5;"2\r3,"x\ry"\r'  # a quote in the middle of a field is text
tables = [(rows.encode(), [], {"a": [1, 3], 'b;"c': ['5;"2', "x\ry"]}), (rows.encode("utf-16"), [], {"a": [1, 3], 'b;"c': ['5;"2', "x\ry"]}),
          (gzip.compress(rows.encode()), [], {"a": [1, 3], 'b;"c': ['5;"2', "x\ry"]}), (b"sep=;\ra;b\r1;2\r", [], {"a": [1], "b": [2]}),
          (b"made by me\r# so\ra,b\r1,2\r#x\r3,4", ["--skip", "1", "--comment", "#"], {"a": [1, 3], "b": [2, 4]}),
          (b"a,b\r1,2\r\n3,4\n\r5,6", [], {"a": [1, 3, 5], "b": [2, 4, 6]}), (b"# x y\r1.5 2.5\r3.5 4.5\r", [], {"x": [1.5, 3.5], "y": [2.5, 4.5]})]
from table_npz import read_columns
for text, words, expected in tables:
    open("t.csv", "wb").write(text)
    for threads in "1", "2":
        stowage("shrink", "t.csv", "-o", "t.npz", "--force", "--threads", threads, *words)
        columns = {name: list(values) for name, values in read_columns("t.npz").items()}
        assert columns == expected, (text, columns)
END

test_py a_line_of_libsvm_is_data << 'END'
for text, rows in (("1 1:0.5 3:1.25\n0 2:1\n1 1:2\n", 3), ("+1 1:.5 2:1e-3 # a\n-1 1:1\n", 2), ("0 qid:1 1:3\n2 qid:2 1:4\n", 2), ("1 1:2\n0\n1 4:2\n", 3),
                   ("1,3 5:0.2\n2 5:1 7:3\n2,4,5 1:1\n", 3), ("1,3 5:0.2\n1,2 5:0.3\n", 2), ("0 1:2\n0,1 4:2\n", 2)):
    open("t.csv", "w").write(text)
    facts = inspect("t.csv")
    assert not facts["header"] and facts["rows"] == rows and len(facts["columns"]) == 1, facts
END

test_py a_delimiter_behind_the_last_field_moves_no_column << 'END'
from table_npz import read_columns
for text in ("a,b,c\n1,x,2.5,\n2,y,3.5,\n", "a,b,c,\n1,x,2.5,\n2,y,3.5,\n", "a;b;c\r\n1;x;2,5;\r\n2;y;3,5;"):
    open("t.csv", "w", newline="").write(text)
    stowage("shrink", "t.csv", "-o", "t.npz", "--force", *(["--decimal", ","] if ";" in text else []))
    columns = {name: list(values) for name, values in read_columns("t.npz").items()}
    assert columns["a"] == [1, 2] and columns["b"] == ["x", "y"] and columns["c"] == [2.5, 3.5] and len(columns) == 4, columns
open("t.csv", "w").write('"a","b"\n"r1","x",""\n"r2","y",""\n')  # an empty text between quotes is a value: R's row names
assert [c["name"] for c in inspect("t.csv")["columns"]] == ["index", "a", "b"]
open("t.csv", "w").write('"Country","1960","1961",\n"A","1.5","",\n"B","2.5","",\n')
facts = inspect("t.csv")
assert facts["header"] and [c["name"] for c in facts["columns"]] == ["Country", "1960", "1961", "3"], facts
END

test_py two_colons_between_fields_are_a_delimiter << 'END'
# The tables of MovieLens. One pair in a line is an address or a name of C++, and a pair inside quotes stays.
from table_npz import read_columns
rows = [(1 + i // 7, int(rng.integers(1, 3953)), int(rng.integers(1, 6)), 978300760 + i * 37) for i in range(30_000)]
open("ratings.dat", "w").write("".join("::".join(map(str, row)) + "\n" for row in rows))
for words in ([], ["--threads", "1"], ["--delimiter", "::"], ["--memory", "8M"]):
    stowage("shrink", "ratings.dat", "-o", "r.npz", "--force", *words)
    columns = read_columns("r.npz")
    assert all(list(columns[str(k)]) == [row[k] for row in rows] for k in range(4)), words
open("movies.dat", "wb").write("".join(f"{i}::Part {i}: a: b (19{i})::{'|'.join(['Drama', 'War'][: 1 + i % 2])}\n" for i in range(60)).encode() + "60::Misérables, Les::Drama\n".encode("latin-1"))
stowage("shrink", "movies.dat", "-o", "m.npz", "--force", "--encoding", "latin-1")
columns = read_columns("m.npz")
assert columns["1"][7] == "Part 7: a: b (197)" and columns["1"][60] == "Misérables, Les" and columns["2"][7] == "Drama|War", columns
stowage("shrink", "ratings.dat", "ratings.dat", "-o", "r.npz", "--force")
assert len(read_columns("r.npz")["0"]) == 60_000
for text, count in (("fe80::1\nfe80::2\n::1\n", 1), ("a,b::c::d\n1,e::f::g\n", 2), ('1::"a::b"::3\n2::c::4\n', 3), ("1::2::\r\n3::4::5", 3), ("1::2:3\n4::5:6\n", 1)):
    open("t.txt", "w", newline="").write(text)
    facts = inspect("t.txt", "--names", "no")
    assert len(facts["columns"]) == count, (text, facts)
assert "spaces or ::" in inspect("t.txt", "--delimiter", ":::", fails=True)
END

test_py work_grows_with_the_file_and_not_with_rows_times_columns << 'END'
import resource
def cpu(*words, **more):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = stowage(*words, **more)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, said
for rows, columns in ((20_000, 20_000), (300_000, 4_000)):  # 160 KB and 620 KB; each row has one field
    open("t.csv", "w").write(",".join(f"c{i}" for i in range(columns)) + "\n" + "1\n" * rows)
    for words in (["inspect", "t.csv"], ["inspect", "t.csv", "--memory", "512M", "--threads", "1"], ["shrink", "t.csv", "-o", "t.npz"]):
        seconds, said = cpu(*words, fails=True)
        assert f"t.csv: the rows have far fewer fields than the {columns} of the first one; check --delimiter" in said and seconds < 8, (seconds, said)
open("t.csv", "w").write(",".join(f"c{i}" for i in range(300)) + "\n" + "1,2\n" * 3000)
assert inspect("t.csv")["short_rows"] == 3000
# Every column is a member.
open("t.csv", "w").write(",".join(f"c{i}" for i in range(60_000)) + "\n" + ("1," * 59_999 + "1\n") * 2)
seconds, _ = cpu("shrink", "t.csv", "-o", "t.npz", "--force")
assert seconds < 4, seconds
END

test_py a_tsv_of_one_column_keeps_its_commas << 'END'
import gzip
from table_npz import read_columns
texts = ["hello world", "foo, bar", "a;b|c, d", "e"]
for name, write in (("t.tsv", open), ("T.TSV", open), ("t.tsv.gz", gzip.open), ("t.tab", open)):
    with write(name, "wt") as f:
        f.write("text\n" + "".join(text + "\n" for text in texts))
    stowage("shrink", name, "-o", "t.npz", "--force")
    assert list(read_columns("t.npz")["text"]) == texts, name
open("t.tsv", "w").write("a,b\n1,2\n3,4\n")  # another table under this name
assert len(inspect("t.tsv")["columns"]) == 2
open("t.tsv", "w").write("a, b\tc\n1\t2\n3\n")
assert [c["name"] for c in inspect("t.tsv")["columns"]] == ["a, b", "c"]
END

test_py text_that_is_not_utf8_is_noted << 'END'
for count, words in ((3, []), (3, ["--threads", "1"]), (3000, [])):
    open("t.csv", "wb").write("x,plain,odd\n".encode() + b"".join(b"%d,\xc3\xa9t\xc3\xa9 %d,long enough caf\xe9 %d\n" % (i, i % count, i % count) for i in range(9000)))
    said = stowage("shrink", "t.csv", "-o", "t.npz", "--force", *words)
    assert "column odd: some text is not UTF-8" in said and "--encoding cp1252" in said and "column plain" not in said, said
    facts = {c["name"]: c for c in json.loads(stowage("shrink", "t.csv", "-o", "t.npz", "--force", "--json", *words))["columns"]}
    assert facts["odd"]["utf8"] is False and "utf8" not in facts["plain"], facts
    assert "not UTF-8" not in stowage("shrink", "t.csv", "-o", "t.npz", "--force", "--encoding", "cp1252")
END

test_py an_unknown_type_of_a_column_names_the_types << 'END'
open("t.csv", "w").write("x,y\n1,2\n")
said = stowage("shrink", "t.csv", "-o", "t.npz", "--type", "x=complex", fails=True)
assert 'type "x=complex": unknown type; use text, datetime, bool, int8 to int64' in said, said
END

test_py a_control_character_may_be_the_delimiter << 'END'
open("t.txt", "w").write("1\x01a\x01\\N\n2\x01b\x010.5\n")
assert "not an npy" in stowage("inspect", "t.txt", fails=True)
facts = inspect("t.txt", "--delimiter", "\x01", "--names", "no", "--na", "\\N")
assert [c["dtype"] for c in facts["columns"]] == ["int64", "text", "float64"] and facts["columns"][2]["missing"] == 1, facts
END

test_py a_file_of_another_kind_is_named << 'END'
import zipfile
with zipfile.ZipFile("sheet", "w") as sheet:
    sheet.writestr("[Content_Types].xml", "<a/>")
    sheet.writestr("xl/workbook.xml", "<a/>")
said = stowage("inspect", "sheet", fails=True)
assert "spreadsheet" in said, said
for start, word in (('{"a": 1}\n{"a": 2}\n', ".jsonl"), ('[\n  {"a": 1}]', ".json"), ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 5\n", "mmread"),
                    ("@RELATION iris\n\n@DATA\n1,2\n", "--skip"), ("<!doctype html>\n<html>", "web page"), ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
                    ("HEADER RECORD*******LIBRARY HEADER RECORD!!!!!!!000\n", "SAS"), ("ORC\x01\x02", "ORC"), ("Obj\x01\x04", "Avro"), ("PAR1\x00\x00", ".parquet")):
    open("t", "w").write(start)
    for words in (["inspect", "t"], ["shrink", "t", "-o", "t.npz", "--force"]):
        said = stowage(*words, fails=True)
        assert word in said, (start, said)
open("t", "w").write("@RELATION iris\n\n@DATA\n1,2\n3,5\n")
assert inspect("t", "--skip", "3", "--names", "no")["rows"] == 2
END

test_py memory_stays_in_the_budget_whatever_the_file << 'END'
with open("big.npy", "wb") as f:
    np.lib.format.write_array_header_1_0(f, {"descr": "<f8", "fortran_order": False, "shape": (25_000_000,)})
    for i in range(25):
        f.write(np.random.default_rng(i).standard_normal(1_000_000).astype("f4").astype("f8").tobytes())
    f.seek(-8, 2)
    f.write(np.float64(0.1).tobytes())
facts = inspect("big.npy", "--memory", "8M")
assert facts["smallest_dtype"] == "float64", facts  # only the last value needs it
assert facts["peak_memory_bytes"] < (8 + 16) << 20, facts["peak_memory_bytes"]
# Rows of megabytes are held once, not by every thread. (A sanitizer would keep freed memory.)
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64"
with open("long.csv", "w") as f:
    f.writelines(f"{i}," + "x" * 7_000_000 + f"{i}\n" for i in range(24))
facts = inspect("long.csv", "--memory", "64M", "--threads", "8")
assert facts["shape"] == [24, 2] and facts["peak_memory_bytes"] < (64 + 16) << 20, facts["peak_memory_bytes"]
END

finish
