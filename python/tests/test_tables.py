"""Text tables: how they are written, dates, several files as one, and back into pandas."""

import bz2
import decimal
import gzip
import json
import lzma
import os
import subprocess
import sys
import tempfile
import time
import unittest

try:
    import numpy as np
except ImportError:
    raise unittest.SkipTest("numpy is not installed")

import stowage

try:
    import pandas
except ImportError:
    pandas = None


class Tables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = lambda name: os.path.join(folder.name, name)

    def write(self, name, text, encoding="utf-8"):
        with open(self.path(name), "w", encoding=encoding, newline="") as file:
            file.write(text)
        return self.path(name)

    def test_how_a_table_is_written(self):
        table = self.write("t.csv", "made by hand\n# x\nwert;wort;plz\n1,5;é;01067\n-9;ü;99999\n", "cp1252")
        said = dict(skip=1, comment="#", decimal=",", encoding="cp1252", na=["-9"])
        facts = {column["name"]: column for column in stowage.inspect(table, **said).data["columns"]}
        self.assertEqual([facts[name]["dtype"] for name in ("wert", "wort", "plz")], ["float64", "text", "text"])
        self.assertEqual(facts["wert"]["missing"], 1)
        stowage.shrink(table, self.path("t.npz"), quiet=True, types={"plz": "int32", "wort": str}, tolerance={"wert": 1e-3}, **said)
        made = stowage.open(self.path("t.npz"))
        self.assertEqual(made["plz"][:].tolist(), [1067, 99999])
        self.assertEqual(made["wort"][:].tolist(), ["é", "ü"])
        with self.assertRaises(TypeError):
            stowage.inspect(table, delimeter=";")
        with self.assertRaises(stowage.StowageError):
            stowage.inspect(table, encoding="ebcdic")

    def test_every_word_for_nan_is_missing_among_booleans_and_dates(self):
        for word in ("NaN", "nan", "-nan", "-NaN", "NA"):
            table = self.write("t.csv", f"ok,d,w,x\nTrue,2024-01-01,{word},7\n{word},{word},b,8\nFalse,2024-01-03,c,{word}\n")
            kinds = [column["dtype"] for column in stowage.inspect(table).data["columns"]]
            self.assertEqual(kinds, ["float64", "datetime64[D]", "text", "float64"], word)
            stowage.shrink(table, self.path("t.npz"), quiet=True, force=True)
            made = stowage.open(self.path("t.npz"))
            np.testing.assert_array_equal(made["ok"][:], [1, np.nan, 0])
            self.assertEqual([str(day) for day in made["d"][:]], ["2024-01-01", "NaT", "2024-01-03"])
            self.assertEqual(made["w"][:].tolist(), [word, "b", "c"])

    def test_text_that_is_not_utf_16_is_an_error(self):
        rows = "id,city\n" + "".join(f"{i},c{i % 3}\n" for i in range(500))
        table = self.write("t.csv", rows)
        for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
            with self.assertRaisesRegex(stowage.StowageError, "not UTF-16"):
                stowage.inspect(table, encoding=encoding)
        for encoding in ("utf-16-le", "utf-16-be"):
            for text in (rows, "名,市\n東,京\n西,都\n"):
                table = self.write("t.csv", text, encoding)
                self.assertEqual(stowage.inspect(table, encoding=encoding).data["shape"][1], 2)
            with self.assertRaisesRegex(stowage.StowageError, encoding):  # names the option
                stowage.inspect(self.write("t.csv", rows, encoding))

    def test_files_that_are_no_tables_are_named(self):
        import io
        import tarfile
        import zipfile

        def bytes_of(name, data):
            with open(self.path(name), "wb") as file:
                file.write(data)
            return self.path(name)

        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            tar.add(self.write("t.csv", "a,b\n1,2\n"), "t.csv")
        with zipfile.ZipFile(self.path("pictures.zip"), "w") as archive:
            archive.writestr("a.png", b"\x89PNG\r\n\x1a\n")
        zipfile.ZipFile(self.path("empty.zip"), "w").close()
        np.savez(self.path("none.npz"))
        stream = b"\xff\xff\xff\xff\x78\0\0\0" + bytes(200)
        for path, words in (
            (bytes_of("t.tar.gz", packed.getvalue()), "tar archive"),
            (self.path("pictures.zip"), "zip archive without"),
            (self.path("empty.zip"), "zip archive without"),
            (self.write("t.xml", '<?xml version="1.0"?>\n<rows>\n<r a="1"/>\n</rows>\n'), "XML"),
            (bytes_of("t.rds", gzip.compress(b"X\n\0\0\0\3\0\4\1\2" + bytes(60))), "a file of R"),
            (bytes_of("t.arrows", stream), "stream of Arrow"),
        ):
            with self.assertRaisesRegex(stowage.StowageError, words):
                stowage.inspect(path)
        self.assertEqual(stowage.inspect(self.path("none.npz")).data["arrays"], [])
        np.save(self.path("a.npy"), np.arange(9))
        with self.assertRaisesRegex(ValueError, "cannot be joined"):
            stowage.shrink([self.path("t.csv"), self.path("a.npy")], self.path("o.npz"), quiet=True)

    def test_rows_without_number_have_no_memory(self):
        np.save(self.path("none.npy"), np.zeros((0, 2**40)))
        self.assertEqual(stowage.open(self.path("none.npy")).shape, (0, 2**40))

    def test_json_nested_too_deeply_is_an_error(self):
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            self.skipTest("needs pyarrow, which Debian does not have")
        deep = self.write("deep.jsonl", '{"a":' + "[" * 2000 + "]" * 2000 + "}\n")
        with self.assertRaisesRegex(ValueError, "nested too deeply"):
            stowage.inspect(deep)
        with self.assertRaisesRegex(ValueError, "nested too deeply"):
            stowage.shrink(deep, self.path("o.parquet"), quiet=True)

    def test_names_of_columns_stay_in_parquet(self):
        try:
            import pyarrow.parquet
        except ImportError:
            self.skipTest("needs pyarrow, which Debian does not have")
        table = self.write("t.csv", "a\\b,..,c,c\n1,x,3,4\n4,y,6,7\n")
        stowage.shrink(table, self.path("t.parquet"), quiet=True, force=True)
        made = pyarrow.parquet.read_table(self.path("t.parquet"))
        done = subprocess.run([sys.executable, "-c", f"import stowage; stowage.shrink({self.path('t.parquet')!r}, {self.path('t.npz')!r}, force=True)"],
                              capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
        self.assertIn('column "a\\b" is member "a_b"', done.stdout + done.stderr)
        self.assertEqual(made.to_pydict(), {"a\\b": [1, 4], "..": ["x", "y"], "c": [3, 6], "c.1": [4, 7]})

    def test_an_npz_of_many_columns_is_opened_once(self):
        if pandas is None:
            self.skipTest("needs pandas")
        np.savez(self.path("m.npz"), **{f"c{i}": np.arange(3, dtype="i2") + i for i in range(3000)})
        began = time.process_time()
        opened = stowage.open(self.path("m.npz"))
        frame = opened.to_pandas()
        self.assertLess(time.process_time() - began, 5)  # 0.5 s; before, 30 s
        self.assertEqual(frame.shape, (3, 3000))
        self.assertEqual(frame["c2999"].tolist(), [2999, 3000, 3001])
        self.assertEqual(opened["c7"][:].tolist(), [7, 8, 9])

    def test_writing_parquet_imports_no_more_than_it_needs(self):
        try:
            import pyarrow.parquet
        except ImportError:
            self.skipTest("needs pyarrow, which Debian does not have")
        table = self.write("t.csv", "n,often,x,gaps,word,once\n" + "".join(f"{i},{i % 7},{i / 7},{i % 3 if i % 5 else ''},w{i % 9},o{i}\n" for i in range(3000)))
        code = f"import sys, stowage\nstowage.shrink({table!r}, {self.path('t.parquet')!r}, quiet=True)\nprint([m for m in ('pandas', 'pyarrow.compute') if m in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
        self.assertEqual((done.stdout.strip(), done.returncode), ("[]", 0), done.stderr)
        group = pyarrow.parquet.ParquetFile(self.path("t.parquet")).metadata.row_group(0)
        encoded = {column.path_in_schema: "RLE_DICTIONARY" in column.encodings for column in map(group.column, range(group.num_columns))}
        self.assertEqual([name for name, has in encoded.items() if has], ["often", "gaps", "word"])

    def test_times_open_slice_and_batch(self):
        days = np.datetime64("2024-01-01") + np.arange(500)
        table = self.write("t.csv", "day,n\n" + "".join(f"{day},{n}\n" for n, day in enumerate(days)))
        stowage.shrink(table, self.path("t.npz"), quiet=True)
        x = stowage.open(self.path("t.npz:day"))
        self.assertEqual(x.dtype, np.dtype("M8[D]"))
        self.assertTrue((x[100:110] == days[100:110]).all())
        batches = stowage.batches([self.path("t.npz:day"), self.path("t.npz:n")], batch_size=64, shuffle=True)
        for day, n in batches:
            self.assertTrue((day == days[n]).all())

    def test_options_that_are_wrong_are_named(self):
        table = self.write("t.csv", "a,b\n1,2\n3,4\n")
        for given, said in (
            ({"memory": 0}, "memory: a budget of 0 B is too small"),
            ({"tolerance": {"zz": 1e-3}}, 'tolerance: unknown column "zz"'),
            ({"types": {"zz": "int8"}}, 'type: unknown column "zz"'),
        ):
            with self.subTest(given=given), self.assertRaisesRegex(stowage.Invalid, said):
                stowage.shrink(table, self.path("t.npz"), quiet=True, **given)
        with self.assertRaisesRegex(stowage.Invalid, "memory: a budget of 0 B"):
            stowage.batches(np.zeros(4), 2, memory=0)
        with self.assertRaisesRegex(stowage.Invalid, r"\.npz; of a table also with \.parquet, \.feather, \.arrow or \.jsonl"):
            stowage.shrink(table, self.path("t.xlsx"), quiet=True)

    def test_nanoseconds_near_the_ends_of_their_range_are_times(self):
        times = ["1677-09-21T00:12:44.000000001", "2262-04-11T23:47:15.999999999"]
        table = self.write("t.csv", "t,beyond\n" + "".join(f"{time},{time.replace('2262', '2263')}\n" for time in times))
        stowage.shrink(table, self.path("t.npz"), quiet=True, force=True)
        made = stowage.open(self.path("t.npz"))
        self.assertEqual(made["t"][:].tolist(), np.array(times, "M8[ns]").tolist())
        self.assertEqual(made["beyond"][1], times[1].replace("2262", "2263"))

    def test_several_files_are_one(self):
        names = []
        for part in range(5):
            text = "a,b\n" + "".join(f"{part * 10 + row},w{row}\n" for row in range(10))
            names.append(self.write(f"p{part}.csv", text))
            np.save(self.path(f"x{part}.npy"), np.arange(part * 8, part * 8 + 8, dtype="f4").reshape(4, 2))
        with gzip.open(names[2] + ".gz", "wt") as file, open(names[2]) as plain:
            file.write(plain.read())
        os.remove(names[2])
        names[2] += ".gz"
        self.assertEqual(stowage.inspect(names).data["rows"], 50)
        self.assertEqual(stowage.inspect(self.path("p*.csv*")).data["rows"], 50)
        stowage.shrink(names, self.path("t.npz"), quiet=True)
        self.assertEqual(np.load(self.path("t.npz"))["a"].tolist(), list(range(50)))
        want = np.arange(40).reshape(20, 2)
        for given in (self.path("x*.npy"), [self.path(f"x{part}.npy") for part in range(5)]):
            x = stowage.open(given)
            self.assertEqual(x.shape, (20, 2))
            self.assertTrue((x[3:17:2] == want[3:17:2]).all())
        batches = stowage.batches([self.path("x*.npy"), [self.path(f"x{part}.npy") for part in range(5)]], batch_size=3, shuffle=True)
        seen = [row for x, y in batches for row in x.tolist() if (x == y).all()]
        self.assertEqual(sorted(seen), want.tolist())
        with self.assertRaises(stowage.StowageError):
            stowage.open(self.path("y*.npy"))
        # Each file has its own dictionary: texts are not joined.
        for part in (3, 4):
            stowage.shrink(names[part], self.path(f"t{part}.npz"), quiet=True)
        with self.assertRaises(stowage.StowageError):
            stowage.open(self.path("t[34].npz:b"))

    def test_the_size_of_a_table_that_is_counted_in_parts(self):
        try:
            import pyarrow.parquet
        except ImportError:
            self.skipTest("needs pyarrow, which Debian does not have")
        rows = np.random.default_rng(5)
        table = pyarrow.table({"i": np.arange(400000), "x": rows.normal(size=400000), "s": [f"name {i % 977}" for i in range(400000)]})
        pyarrow.parquet.write_table(table, self.path("t.parquet"), row_group_size=10000)
        facts = stowage.inspect(self.path("t.parquet"), memory="8M").data
        for ending, key in ((".parquet", "parquet_bytes_estimate"), (".feather", "feather_bytes_estimate")):
            stowage.shrink(self.path("t.parquet"), self.path("out" + ending), memory="8M", quiet=True, force=True)
            self.assertLess(abs(facts[key] / os.path.getsize(self.path("out" + ending)) - 1), 0.2)

    def test_texts_read_as_codes_are_reported_as_texts(self):
        try:
            import pyarrow.feather
            import pyarrow.parquet
        except ImportError:
            self.skipTest("needs pyarrow, which Debian does not have")
        words = [None if i % 7 == 0 else "" if i % 11 == 0 else f"wörd {i % 50}" for i in range(60000)]
        long = [f"{i * 7919 % 65537:032x}" for i in range(60000)]  # every one differs: not stored as codes
        table = pyarrow.table({"word": words, "id": long, "n": range(60000)})
        pyarrow.parquet.write_table(table, self.path("t.parquet"), row_group_size=25000)
        pyarrow.feather.write_feather(table, self.path("t.feather"))
        coded, plain = (stowage.inspect(self.path(name)).data for name in ("t.parquet", "t.feather"))
        self.assertEqual(coded["columns"], plain["columns"])
        self.assertEqual(coded["columns"][0]["missing"], sum(word is None for word in words))
        stowage.shrink(self.path("t.parquet"), self.path("t.npz"), quiet=True, force=True)
        self.assertEqual(coded["npz_bytes"], os.path.getsize(self.path("t.npz")))
        for ending, key in ((".parquet", "parquet_bytes_estimate"), (".feather", "feather_bytes_estimate")):
            stowage.shrink(self.path("t.parquet"), self.path("out" + ending), quiet=True, force=True)
            self.assertLess(abs(coded[key] / os.path.getsize(self.path("out" + ending)) - 1), 0.2)

    def test_texts_of_an_npz_are_laid_out_as_those_of_a_table_of_text(self):
        try:
            import pyarrow
            import pyarrow.feather
            import pyarrow.parquet
        except ImportError:
            self.skipTest("needs pyarrow, which Debian does not have")
        count = 3000
        columns = {
            "often": [f"wörd {i % 300}" for i in range(count)],
            "gaps": [None if i % 3 == 0 else "x" * (i % 5) for i in range(count)],
            "day": [f"2024-01-{i % 28 + 1:02d}th" for i in range(count)],
            "once": [f"{i}" for i in range(count)],
            "id": [f"{i:012x}" for i in range(count)],
            "none": [None] * count,
            "late": [None] * (count - 1) + ["text"],
        }
        table = pyarrow.table(columns, schema=pyarrow.schema([(name, pyarrow.string()) for name in columns]))
        self.write("t.csv", "\n".join([",".join(columns), *(",".join(word or "" for word in row) for row in zip(*columns.values()))]) + "\n")
        text = {"id": "text", "once": "text", "none": "text"}
        stowage.shrink(self.path("t.csv"), self.path("text.npz"), quiet=True, force=True, types=text)
        wanted = np.load(self.path("text.npz"))
        pyarrow.feather.write_feather(table, self.path("plain.feather"))
        pyarrow.parquet.write_table(table, self.path("t.parquet"), row_group_size=700)
        coded = pyarrow.table({name: pyarrow.array(words[::-1], "string").dictionary_encode().take(pyarrow.array(range(count)[::-1])) for name, words in columns.items()})
        pyarrow.feather.write_feather(coded, self.path("coded.feather"))
        for name in ("plain.feather", "t.parquet", "coded.feather"):
            facts = stowage.inspect(self.path(name)).data
            stowage.shrink(self.path(name), self.path("t.npz"), quiet=True, force=True)
            self.assertEqual(facts["npz_bytes"], os.path.getsize(self.path("t.npz")), name)
            found = np.load(self.path("t.npz"))
            self.assertEqual(sorted(found.files), sorted(wanted.files), name)
            for member in wanted.files:
                self.assertEqual((found[member].dtype, found[member].tolist()), (wanted[member].dtype, wanted[member].tolist()), (name, member))
        # Columns that are called as members of others.
        named = pyarrow.table({"a": ["x", "y"], "a.codes": [1, 2], "a.bytes": [1.5, 2.5], "a.offsets": ["long", "q"], "b.bytes": [3, 4], "b": ["", "z"]})
        pyarrow.parquet.write_table(named, self.path("n.parquet"))
        promised = stowage.inspect(self.path("n.parquet")).data["npz_bytes"]
        stowage.shrink(self.path("n.parquet"), self.path("n.npz"), quiet=True, force=True)
        self.assertEqual(promised, os.path.getsize(self.path("n.npz")))
        back = pyarrow.table(stowage.open(self.path("n.npz")))
        self.assertEqual(sorted(back.column_names), ["a", "a.bytes.1", "a.codes.1", "a.offsets.1", "b.1", "b.bytes"])
        self.assertEqual([back[name].to_pylist() for name in ("a.codes.1", "b.1", "b.bytes")], [[1, 2], ["", "z"], [3, 4]])
        # More distinct texts than the budget holds: each is written out, and the size is still what was promised.
        many = pyarrow.table({"s": [f"name {i // 2}" for i in range(200000)], "t": [f"{i % 50}" for i in range(200000)]})
        pyarrow.parquet.write_table(many, self.path("m.parquet"))
        promised = stowage.inspect(self.path("m.parquet"), memory="32M").data["npz_bytes"]
        stowage.shrink(self.path("m.parquet"), self.path("m.npz"), quiet=True, force=True, memory="32M")
        self.assertEqual(promised, os.path.getsize(self.path("m.npz")))
        found = np.load(self.path("m.npz"))
        self.assertEqual(sorted(found.files), ["s.bytes", "s.offsets", "t.codes", "t.words.bytes", "t.words.offsets"])
        self.assertEqual(found["s.bytes"].tobytes(), "".join(many["s"].to_pylist()).encode())

    @unittest.skipIf(pandas is None, "not installed: pandas")
    def test_the_size_of_a_small_table_of_pandas(self):
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            self.skipTest("needs pyarrow, which Debian does not have")
        for frame in (pandas.DataFrame({"x": [1, 2, 3]}), pandas.DataFrame({"x": [1, 2], "t": list("ab")}, index=[7, 9])):
            frame.to_parquet(self.path("t.parquet"))
            facts = stowage.inspect(self.path("t.parquet")).data
            for ending, key in ((".parquet", "parquet_bytes_estimate"), (".feather", "feather_bytes_estimate"), (".npz", "npz_bytes")):
                stowage.shrink(self.path("t.parquet"), self.path("out" + ending), quiet=True, force=True)
                self.assertEqual(facts[key], os.path.getsize(self.path("out" + ending)), ending)

    @unittest.skipIf(pandas is None, "not installed: pandas")
    def test_parquet_is_read_without_pandas(self):
        try:
            import pyarrow.parquet
        except ImportError:
            self.skipTest("needs pyarrow, which Debian does not have")
        rows = range(200000)
        gaps = {"gaps": [i if i % 3 else None for i in rows], "word": [f"w{i % 9}" if i % 5 else None for i in rows]}
        pyarrow.parquet.write_table(pyarrow.table({"n": rows, "id": [f"{i:x}" for i in rows], "flag": [i % 3 == 0 for i in rows], **gaps}), self.path("t.parquet"))
        for work in ("inspect({!r})", "shrink({!r}, 't.npz', quiet=True, force=True)", "shrink({!r}, 'o.parquet', quiet=True, force=True)"):
            code = f"import sys, stowage\nstowage.{work.format(self.path('t.parquet'))}\nprint('pandas' in sys.modules)"
            env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=os.path.dirname(self.path("")))
            self.assertEqual((done.stdout.strip(), done.returncode), ("False", 0), (work, done.stderr))

    def test_times_of_day_spans_and_wide_decimals_in_an_npz(self):
        try:
            import pyarrow as pa
            from pyarrow import feather
        except ImportError:
            self.skipTest("needs pyarrow, which Debian does not have")
        unscaled = [0, None, 999_999_999_999_999, -12345]
        cents = [None if one is None else decimal.Decimal(one).scaleb(-3) for one in unscaled]
        columns = {
            "at": pa.array([0, 1, None, 86_399_999_999], pa.time64("us")),
            "brief": pa.array([0, 1, None, 86_399], pa.time32("s")),
            "span": pa.array([-5, None, 0, 2**40], pa.duration("ms")),
            "day": pa.array([0, None, 86_400_000, -86_400_000], pa.date64()),
            "sum": pa.array(cents, pa.decimal128(38, 3)),
        }
        feather.write_feather(pa.table(columns), self.path("t.feather"))
        promised = stowage.inspect(self.path("t.feather")).data["npz_bytes"]
        stowage.shrink(self.path("t.feather"), self.path("t.npz"), quiet=True)
        self.assertEqual(os.path.getsize(self.path("t.npz")), promised)
        made = dict(np.load(self.path("t.npz")))
        nat = -(2**63)
        self.assertEqual({name: (one.dtype.str, one.view("i8").tolist()) for name, one in made.items() if name != "sum"}, {
            "at": ("<m8[us]", [0, 1, nat, 86_399_999_999]),
            "brief": ("<m8[s]", [0, 1, nat, 86_399]),
            "span": ("<m8[ms]", [-5, nat, 0, 2**40]),
            "day": ("<M8[ms]", [0, nat, 86_400_000, -86_400_000]),
        })
        np.testing.assert_array_equal(made["sum"], [0.0, np.nan, 999999999999.999, -12.345])
        back = pa.table(stowage.open(self.path("t.npz")))
        self.assertEqual(back["span"].to_pylist(), pa.table(columns)["span"].to_pylist())
        self.assertEqual(back["span"].null_count, 1)
        feather.write_feather(pa.table({"sum": pa.array([decimal.Decimal(10**15)], pa.decimal128(38, 0))}), self.path("w.feather"))
        self.assertIsNone(stowage.inspect(self.path("w.feather")).data["npz_bytes"])
        with self.assertRaises(stowage.StowageError):
            stowage.shrink(self.path("w.feather"), self.path("w.npz"), quiet=True)
        self.assertFalse(os.path.exists(self.path("w.npz")))

    def test_a_column_of_nothing_but_nulls_in_an_npz(self):
        try:
            import pyarrow as pa
            import pyarrow.parquet
        except ImportError:
            self.skipTest("needs pyarrow, which Debian does not have")
        for rows in (0, 3):
            pyarrow.parquet.write_table(pa.table({"none": pa.nulls(rows), "n": pa.array(range(rows), pa.int64())}), self.path("t.parquet"))
            stowage.shrink(self.path("t.parquet"), self.path("t.npz"), quiet=True, force=True)
            self.assertEqual(os.path.getsize(self.path("t.npz")), stowage.inspect(self.path("t.parquet")).data["npz_bytes"])
            made = np.load(self.path("t.npz"))
            np.testing.assert_array_equal(made["none"], np.full(rows, np.nan, "f4"))
            self.assertEqual(made["n"].tolist(), list(range(rows)))

    def test_a_table_of_one_column_of_text_of_one_width(self):
        table = self.write("t.csv", "ts\n" + "".join(f"{n * 2654435761 % 2**32:08x}\n" for n in range(50)))
        stowage.shrink(table, self.path("t.npz"), quiet=True, force=True)
        made = stowage.open(self.path("t.npz"))
        self.assertEqual(made["ts"][3], f"{3 * 2654435761 % 2**32:08x}")
        if pandas is not None:
            self.assertEqual(list(made.to_pandas().columns), ["ts"])
        np.savez(self.path("i.npz"), np.zeros((3, 4), "uint8"))
        self.assertEqual(stowage.open(self.path("i.npz")).shape, (3, 4))

    def test_text_that_is_not_utf8_names_the_option(self):
        try:
            import pyarrow.parquet
        except ImportError:
            self.skipTest("needs pyarrow, which Debian does not have")
        table = self.write("t.csv", "a,b\n1,café\n", "cp1252")
        with self.assertRaisesRegex(Exception, "--encoding cp1252"):
            stowage.shrink(table, self.path("t.parquet"), quiet=True)
        stowage.shrink(table, self.path("t.parquet"), quiet=True, encoding="cp1252")
        self.assertEqual(pyarrow.parquet.read_table(self.path("t.parquet"))["b"].to_pylist(), ["café"])

    def test_the_size_of_a_table_without_rows(self):
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            self.skipTest("needs pyarrow, which Debian does not have")
        pyarrow.parquet.write_table(pyarrow.table({"a": pyarrow.array([], "int64"), "b": pyarrow.array([], "string")}), self.path("t.parquet"))
        promised = stowage.inspect(self.path("t.parquet")).data["parquet_bytes_estimate"]
        stowage.shrink(self.path("t.parquet"), self.path("o.parquet"), quiet=True, force=True)
        self.assertEqual(promised, os.path.getsize(self.path("o.parquet")))

    def test_texts_as_views_as_polars_writes_them(self):
        try:
            import pyarrow as pa
            import pyarrow.parquet
            views, as_views = pa.string_view(), pa.array(["x", "a longer text than a view", None, "x"]).cast(pa.string_view())
        except (ImportError, AttributeError):
            self.skipTest("needs pyarrow with string_view, which Debian does not have")
        codes = pa.array([0, 1, None, 0], pa.uint32())
        columns = {
            "text": as_views,
            "word": pa.DictionaryArray.from_arrays(codes, pa.array(["x", "y"]).cast(views)),
            "list": pa.array([["a"], [], None, ["b", None]]).cast(pa.large_list(views)),
            "pair": pa.StructArray.from_arrays([as_views], ["u"]),
            "bytes": pa.array([b"1", None, b"", b"2"]).cast(pa.binary_view()),
        }
        table = pa.table(columns)
        with pa.ipc.new_file(self.path("t.arrow"), table.schema) as file:
            file.write_table(table)
        self.assertEqual([one["dtype"] for one in stowage.inspect(self.path("t.arrow")).data["columns"]][3], "struct")
        for ending, read in ((".parquet", pa.parquet.read_table), (".feather", lambda path: pa.ipc.open_file(path).read_all())):
            stowage.shrink(self.path("t.arrow"), self.path("o" + ending), quiet=True)
            self.assertEqual(read(self.path("o" + ending)).to_pylist(), table.to_pylist())
        stowage.shrink(self.path("t.arrow"), self.path("o.npz"), quiet=True, columns=["text", "word"], force=True)
        self.assertEqual(stowage.open(self.path("o.npz"))["word"][:].tolist(), ["x", "y", "", "x"])

    def test_a_private_output_stays_private(self):
        try:
            import pyarrow.parquet
        except ImportError:
            self.skipTest("needs pyarrow, which Debian does not have")
        pyarrow.parquet.write_table(pyarrow.table({"i": np.arange(100)}), self.path("t.parquet"))
        for ending in (".parquet", ".feather"):
            with open(self.path("out" + ending), "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write("old")
            stowage.shrink(self.path("t.parquet"), self.path("out" + ending), quiet=True, force=True)
            self.assertEqual(os.stat(self.path("out" + ending)).st_mode & 0o777, 0o600)

    def test_json_integers_above_int64_stay_exact(self):
        try:
            import pyarrow.parquet
        except ImportError:
            self.skipTest("needs pyarrow, which Debian does not have")
        for name, values in (("unsigned", [2**64 - 1, None, 1]), ("both", [2**64 - 1, -1]), ("large", [10**30, 7]), ("floats", [1e300, 0.5])):
            with open(self.path("t.jsonl"), "w") as file:
                file.write("".join('{"i": %s, "t": "x"}\n' % ("null" if v is None else v) for v in values))
            stowage.shrink(self.path("t.jsonl"), self.path("t.parquet"), quiet=True, force=True)
            self.assertEqual(pyarrow.parquet.read_table(self.path("t.parquet"))["i"].to_pylist(), values, name)

    def test_json_as_lines_as_an_array_and_compressed(self):
        try:
            import pyarrow.parquet
        except ImportError:
            self.skipTest("needs pyarrow, which Debian does not have")
        rows = [{"a": n, "s": "é]},{" * (n % 3), "x": n / 4 if n % 5 else None, "deep": {"k": [n]}} for n in range(3000)]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        texts = {"t.json": lines, "array.json": json.dumps(rows), "nice.json": "\ufeff" + json.dumps(rows, indent=2), "t.jsonl": json.dumps(rows)}
        for name, text in texts.items():
            self.write(name, text)
        for ending, module in ((".gz", gzip), (".bz2", bz2), (".xz", lzma)):
            for name, text in (("t.jsonl", lines), ("t.json", json.dumps(rows, indent=1))):
                texts[name + ending] = text
                with module.open(self.path(name + ending), "wb") as file:
                    file.write(text.encode())
        with pyarrow.output_stream(self.path("t.ndjson.zst"), compression="zstd") as file:
            file.write(lines.encode())
        for name in [*texts, "t.ndjson.zst"]:
            self.assertEqual(stowage.inspect(self.path(name), memory="4M").data["rows"], 3000, name)
            stowage.shrink(self.path(name), self.path("t.parquet"), memory="4M", quiet=True, force=True)
            self.assertEqual(pyarrow.parquet.read_table(self.path("t.parquet")).to_pylist(), rows, name)
        for name, text in (("cut.json", '[{"a": 1}, {"a"'), ("open.json", '[{"a": 1}'), ("numbers.json", "[1, 2]"), ("rows.json", "[[1], [2]]"), ("comma.json", '[{"a": 1} {"a": 2}]')):
            with self.assertRaises(stowage.StowageError, msg=name):
                stowage.inspect(self.write(name, text))
        with self.assertRaises(stowage.StowageError):  # written as lines only
            stowage.shrink(self.path("t.jsonl"), self.path("out.json"), quiet=True, force=True)

    @unittest.skipIf(pandas is None, "pandas is not installed")
    def test_back_into_pandas(self):
        frame = pandas.DataFrame(
            {
                "color": (["red", "green", None, "blue"] * 300),
                "note": [f"row {n}" for n in range(1200)],
                "n": np.arange(1200),
                "x": np.where(np.arange(1200) % 7 == 0, np.nan, np.arange(1200) / 4),
                "when": pandas.date_range("2024-01-01", periods=1200, freq="7h"),
            }
        )
        frame.to_csv(self.path("t.csv"), index=False)
        stowage.shrink(self.path("t.csv"), self.path("t.npz"), quiet=True)
        back = stowage.open(self.path("t.npz")).to_pandas()
        self.assertEqual(str(back.color.dtype), "category")
        self.assertEqual(back.color.astype(object).where(back.color.notna(), None).tolist(), ["red", "green", None, "blue"] * 300)
        self.assertEqual(back.note.tolist(), frame.note.tolist())
        self.assertTrue((back.n == frame.n).all() and ((back.x == frame.x) | (back.x.isna() & frame.x.isna())).all())
        self.assertTrue((back.when == frame.when).all())
        self.assertEqual(list(stowage.open(self.path("t.npz")).to_pandas(["n"]).columns), ["n"])
