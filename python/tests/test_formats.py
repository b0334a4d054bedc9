"""Parquet, Arrow and JSON lines: what is refused, what interrupts a job, and which values stay as they are."""

import errno
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
from unittest import mock

import stowage
from support import BUILD, TREE, clean_environment, needs

try:
    import pyarrow as pa
    import pyarrow.feather as feather
    import pyarrow.parquet as parquet
except ImportError:
    pa = None  # the classes are skipped

needs_pyarrow = unittest.skipIf(pa is None, "needs pyarrow, which Debian does not have")


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = lambda name: os.path.join(folder.name, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def command(self, *words, **more):
        environment = clean_environment(
            STOWAGE_INTERPRETER=sys.executable, STOWAGE_LIBRARY=BUILD / "libstowage.so.1", PYTHONPATH=TREE / "python"
        )
        return subprocess.Popen(
            [str(BUILD / "stowage"), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=self.folder
        )

    def refused(self, pattern, call, *given, **more):
        with self.assertRaisesRegex(stowage.StowageError, pattern) as caught:
            call(*given, **more)
        return str(caught.exception)


@needs_pyarrow
@needs("numpy")
class Outputs(Case):
    def test_an_output_that_is_an_input_is_refused(self):
        table = pa.table({"a": range(100), "b": ["x"] * 100})
        parquet.write_table(table, self.path("t.parquet"))
        feather.write_feather(table, self.path("t.feather"))
        self.write("t.jsonl", '{"a": 1, "b": 2}\n')
        self.write("t.csv", "a,b\n1,2\n3,4\n")
        os.mkdir(self.path("in"))
        os.symlink(self.path("t.parquet"), self.path("link.parquet"))
        os.link(self.path("t.parquet"), self.path("hard.parquet"))
        os.link(self.path("t.csv"), self.path("csv.parquet"))
        stowage.shrink(self.path("t.parquet"), self.path("t.npz"), quiet=True)
        os.link(self.path("t.npz"), self.path("npz.parquet"))
        before = {name: os.stat(self.path(name)) for name in os.listdir(self.folder)}
        pairs = [(f"t.{end}", f"t.{end}") for end in ("parquet", "feather", "jsonl")]
        pairs += [("t.parquet", "in/../t.parquet"), ("t.parquet", "link.parquet"), ("link.parquet", "t.parquet")]
        pairs += [("t.parquet", "hard.parquet"), ("?.parquet", "t.parquet"), ("t.csv", "csv.parquet"), ("t.npz:a", "npz.parquet")]
        for source, output in pairs:
            with self.subTest(source=source, output=output):
                self.refused("the output is the file being read", stowage.shrink, self.path(source), self.path(output), force=True)
        with self.subTest("a list"):
            self.refused("being read", stowage.shrink, [self.path("t.parquet")] * 2, self.path("t.parquet"))
        job = self.command("shrink", "t.parquet", "-o", "t.parquet", "--columns", "a")
        _, said = job.communicate()
        self.assertEqual(job.returncode, 2, said)
        self.assertIn("the output is the file being read", said)
        for name, was in before.items():
            now = os.stat(self.path(name))
            self.assertEqual((now.st_ino, now.st_size, now.st_mtime_ns), (was.st_ino, was.st_size, was.st_mtime_ns), name)

    def test_the_size_of_a_table_that_ends_otherwise_than_it_begins(self):
        import numpy

        draws, rows = numpy.random.default_rng(6), 400000
        tail = rows // 20
        texts = ["same"] * (rows - tail) + [" ".join(f"word{n}" for n in draws.integers(0, 5000, 6)) for _ in range(tail)]
        numbers = numpy.r_[numpy.zeros(rows - tail, int), draws.integers(0, 2**60, tail)]
        parquet.write_table(pa.table({"a": numbers, "s": texts}), self.path("t.parquet"))
        for memory in ("256M", "32M"):
            facts = stowage.inspect(self.path("t.parquet"), memory=memory).data
            for ending in ("parquet", "feather"):
                output = self.path("o." + ending)
                stowage.shrink(self.path("t.parquet"), output, memory=memory, quiet=True, force=True)
                self.assertLess(abs(facts[ending + "_bytes_estimate"] / os.path.getsize(output) - 1), 0.15, (memory, ending))

    def test_columns_of_one_name_are_told_apart(self):
        table = pa.Table.from_arrays([pa.array([1, 2]), pa.array(["x", "y"]), pa.array([300, 4])], ["a", "b", "a"])
        parquet.write_table(table, self.path("t.parquet"))
        feather.write_feather(table, self.path("t.feather"))
        for source in ("t.parquet", "t.feather"):
            with self.subTest(source=source):
                self.assertEqual([one["name"] for one in stowage.inspect(self.path(source)).data["columns"]], ["a", "b", "a.1"])
                for output, read in (("o.parquet", parquet.read_table), ("o.feather", feather.read_table)):
                    stowage.shrink(self.path(source), self.path(output), quiet=True, force=True)
                    made = read(self.path(output))
                    self.assertEqual(made.to_pydict(), {"a": [1, 2], "b": ["x", "y"], "a.1": [300, 4]})
                    self.assertEqual([str(made[name].type) for name in ("a", "a.1")], ["int8", "int16"])
                stowage.shrink(self.path(source), self.path("o.npz"), quiet=True, columns=["a.1"], force=True)
                self.assertEqual(list(stowage.open(self.path("o.npz"))[:]), [300, 4])


class Interrupted(Case):
    """Ctrl-C and the end of a session, while a table is read and while it is written."""

    def table(self):
        rows = "".join(f"{i},{i * 0.25},w{i % 3000},{i * 2654435761 % 2**32:08x}\n" for i in range(20000))
        return self.write("t.csv", "a,b,c,d\n" + rows * 25)

    def begun(self, output):
        """Waits until the job has created a file."""
        while not any(name.startswith(output) for name in os.listdir(self.folder)):
            pass

    @needs("numpy")
    def test_ctrl_c_ends_a_job_in_python(self):
        table = self.table()
        for output in ["o.npz", "o.parquet"][: 1 if pa is None else 2]:
            with self.subTest(output=output):
                sends = threading.Thread(target=lambda: (self.begun(output), os.kill(os.getpid(), signal.SIGINT)), daemon=True)
                sends.start()
                with self.assertRaises(KeyboardInterrupt):
                    stowage.shrink(table, self.path(output), quiet=True, force=True)
                sends.join()
                self.assertEqual(os.listdir(self.folder), ["t.csv"])

    @needs("numpy")
    def test_what_any_handler_raises_ends_a_job(self):
        def handle(number, frame):
            raise TimeoutError("enough")

        old = signal.signal(signal.SIGALRM, handle)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        sends = threading.Thread(target=lambda: (self.begun("o.npz"), os.kill(os.getpid(), signal.SIGALRM)), daemon=True)
        table = self.table()
        sends.start()
        with self.assertRaisesRegex(TimeoutError, "enough"):
            stowage.shrink(table, self.path("o.npz"), quiet=True, force=True)
        sends.join()
        self.assertIs(signal.getsignal(signal.SIGALRM), handle)

    @needs_pyarrow
    @needs("numpy")
    def test_signals_end_the_command_and_nothing_is_left(self):
        self.table()
        parquet.write_table(pa.table({"x": [i * 0.1 for i in range(200000)] * 10}), self.path("t.parquet"), row_group_size=50000)
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            for source in ("t.csv", "t.parquet"):
                with self.subTest(number=number, source=source):
                    job = self.command("shrink", source, "-o", "o.parquet", "--force")
                    self.begun("o.parquet")
                    seen = set(os.listdir(self.folder)) - {"t.csv", "t.parquet"}
                    job.send_signal(number)
                    _, said = job.communicate()
                    self.assertEqual(job.returncode, code, said)
                    self.assertLessEqual(said.count("\n"), 1, said)
                    self.assertTrue(all(name.startswith("o.parquet.") for name in seen), seen)
                    self.assertEqual(sorted(os.listdir(self.folder)), ["t.csv", "t.parquet"])


@needs_pyarrow
@needs("numpy")
class Messages(Case):
    def test_a_damaged_page_names_the_file(self):
        numbers = [(i * 2654435761) % 2**40 for i in range(50000)]
        parquet.write_table(pa.table({"a": numbers}), self.path("t.parquet"), compression="gzip", use_dictionary=False)
        with open(self.path("t.parquet"), "r+b") as file:
            file.seek(20000)
            file.write(b"\xff" * 4000)
        for call in (stowage.inspect, lambda path: stowage.shrink(path, self.path("o.parquet"), quiet=True)):
            said = self.refused(r"t\.parquet: cannot read: .*get or make it again", call, self.path("t.parquet"))
            self.assertNotIn("Traceback", said)
            self.assertNotIn("\n", said)
        self.assertEqual(os.listdir(self.folder), ["t.parquet"])

    def test_a_full_disk_names_the_output(self):
        parquet.write_table(pa.table({"a": range(100)}), self.path("t.parquet"))
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for output, function in (("o.parquet", "_write_pyarrow"), ("o.feather", "_write_pyarrow"), ("o.npz", "write_npz")):
            with self.subTest(output=output), mock.patch.object(stowage._tables, function, side_effect=full):
                self.refused(f"{output}: the disk is full; free disk space", stowage.shrink, self.path("t.parquet"), self.path(output))
        self.assertEqual(os.listdir(self.folder), ["t.parquet"])

    @needs("h5py")
    def test_what_arrow_lacks_is_named_with_its_file(self):
        import h5py

        with h5py.File(self.path("t.h5"), "w") as file:
            file["a"], file["b/c"] = range(5), 3.5
        said = self.refused(r"t\.h5: .*b/c.*--drop", stowage.shrink, self.path("t.h5"), self.path("o.parquet"))
        self.assertNotIn("o.parquet", said)

    def test_a_line_of_json_that_is_wrong_is_named(self):
        for lines, said in {
            ('{"a": 1}', "", '{"a": 2'): "line 3: not JSON: .* at character 8; correct or delete",
            ('{"a": 1}', '{"a": "x"}'): "line 2: a is text, and a number in an earlier line; write all its values as text",
            ('{"a": {"b": [1]}}', '{"a": {"b": ["x"]}}'): r"line 2: a\.b\[\] is text",
            ('{"a": 1}', "5"): "line 2: holds a number, not an object; write each row",
            ('{"a": 1, "a": 2}',): "line 1: has a twice",
            (): "the file is empty; write one object on each line",
            (*['{"a": 1, "b": "2024-01-01"}'] * 100000, '{"a": {}}'): "line 100001: a is an object, and a number",
            ('{"a": [9007199254740993, 1.5]}',): "line 1: a holds 9007199254740993 .* as text in quotes",
        }.items():
            table = self.write("t.jsonl", "".join(line + "\n" for line in lines))
            with self.subTest(said=said):
                self.refused(r"t\.jsonl: " + said, stowage.inspect, table, memory="2M")
        table = self.write("t.json", '[{"a": 1},\n {"a": "x"}]')
        self.refused("object 2: a is text, and a number in an earlier object", stowage.inspect, table)


@needs_pyarrow
@needs("numpy")
class Json(Case):
    def made(self, lines):
        table = self.write("t.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        stowage.shrink(table, self.path("o.parquet"), quiet=True, force=True)
        return parquet.read_table(self.path("o.parquet"))

    def test_times_stay_text_where_a_time_would_lose_something(self):
        for texts, kind in (
            (["2024-01-01", None, "2024-02-29"], "date32[day]"),
            (["2024-01-01T10:00:00", "2024-01-01 10:00:00.25"], "timestamp[ms]"),
            (["2024-01-01T10:00Z", "2024-01-01T10:00:00.123456789Z"], "timestamp[ns, tz=UTC]"),
            (["2024-01-01T00:00:00+02:00", "2024-01-01T00:00:00+02:00"], "string"),
            (["2024-01-01T00:00:00", "2024-01-01T00:00:00Z"], "string"),
            (["2024-01-01", "2024-01-01T00:00:00"], "string"),
            (["2500-01-01T00:00:00.123456789"], "string"),  # nanoseconds end in 2262
            (["2024-01-01", "2024-02-30"], "string"),
        ):
            with self.subTest(texts=texts):
                made = self.made([{"t": text} for text in texts])
                self.assertEqual(str(made["t"].type), kind)
                if kind == "string":
                    self.assertEqual(made["t"].to_pylist(), texts)

    def test_lines_keep_their_texts(self):
        rows = [{"d": "2024-01-01", "t": "2024-01-01 10:00:00", "z": "2024-01-01T10:00:00Z", "in": {"d": "2024-01-01"}, "n": 10**30}] * 3
        table = self.write("t.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        stowage.shrink(table, self.path("o.jsonl"), quiet=True, force=True)
        with open(self.path("o.jsonl"), encoding="utf-8") as file:
            self.assertEqual([json.loads(line) for line in file], rows)

    def test_long_integers_among_fractions_stay_as_they_are_written(self):
        lines = [{"a": 1}, {"a": 1.5}, {}, {"a": 9007199254740993, "b": 9007199254740992}, {"b": 0.5}]
        made = self.made(lines)
        self.assertEqual(made["a"].to_pylist(), ["1", "1.5", None, "9007199254740993", None])
        self.assertEqual(made["b"].to_pylist(), [None, None, None, 2.0**53, 0.5])


@needs_pyarrow
class JsonOutput(Case):
    def test_what_json_lacks(self):
        parquet.write_table(pa.table({"b": [b"\0x\xff"], "n": [1]}), self.path("b.parquet"))
        parquet.write_table(pa.table({"l": [[{"deep": b"x"}]], "n": [1]}), self.path("deep.parquet"))
        parquet.write_table(pa.table({"x": [float("inf"), 1.5]}), self.path("inf.parquet"))
        parquet.write_table(pa.table({"l": [[float("-inf")]]}), self.path("infs.parquet"))
        for name, said in (("b", "no bytes .column b"), ("deep", "no bytes"), ("inf", "no infinity .column x"), ("infs", "no infinity")):
            with self.assertRaisesRegex(stowage.StowageError, said):
                stowage.shrink(self.path(f"{name}.parquet"), self.path("o.jsonl"), quiet=True, force=True)
            self.assertFalse(os.path.exists(self.path("o.jsonl")))
        stowage.shrink(self.path("b.parquet"), self.path("o.jsonl"), quiet=True, force=True, drop=["b"])
        self.assertEqual(self.rows(), [{"n": 1}])

    def test_missing_numbers_and_durations_come_back(self):
        spans = pa.array([90061, -2, None], pa.duration("s"))
        parquet.write_table(pa.table({"d": spans, "f": [float("nan"), 0.5, None], "l": [[1.0, float("nan")], [], None]}), self.path("d.parquet"))
        stowage.shrink(self.path("d.parquet"), self.path("o.jsonl"), quiet=True, force=True)
        made = self.rows()
        self.assertEqual([row["d"] for row in made], ["P1DT1H1M1S", "-P0DT0H0M2S", None])
        self.assertEqual([row["f"] for row in made], [None, 0.5, None])
        self.assertEqual([row["l"] for row in made], [[1.0, None], [], None])
        if importlib.util.find_spec("pandas") is not None:
            import pandas

            self.assertEqual(pandas.to_timedelta(made[0]["d"]).total_seconds(), 90061)
            self.assertEqual(pandas.to_timedelta(made[1]["d"]).total_seconds(), -2)

    def rows(self):
        with open(self.path("o.jsonl"), encoding="utf-8") as file:
            return [json.loads(line, parse_constant=self.fail) for line in file]

    def test_nested_columns_have_bytes(self):
        table = pa.table({"l": [[1, 2, 3]] * 1000, "s": [{"a": 1, "b": "xy"}] * 1000, "f": pa.array([[1, 2]] * 1000, pa.list_(pa.int16(), 2)),
                          "m": pa.array([[("k", 1.5)]] * 1000, pa.map_(pa.string(), pa.float64())), "w": pa.array([b"abc"] * 1000, pa.binary(3))})
        parquet.write_table(table, self.path("n.parquet"))
        facts = {one["name"]: one["bytes"] for one in stowage.inspect(self.path("n.parquet")).data["columns"]}
        self.assertEqual(facts, {"l": 28000, "s": 14000, "f": 4000, "m": 17000, "w": 3000})
        union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
        found = stowage.inspect(pa.table({"u": union, "n": [1, 2]}))
        self.assertEqual([one["bytes"] for one in found.data["columns"]], [None, 16])
        self.assertTrue(found.data["bytes_at_least"])
        self.assertIn("at least 16 B in memory", found.text)

    def test_a_table_without_columns_is_named(self):
        parquet.write_table(pa.table({}), self.path("none.parquet"))
        with self.assertRaisesRegex(stowage.StowageError, "has no columns"):
            stowage.inspect(self.path("none.parquet"))


@needs_pyarrow
@needs("numpy")
class Packages(Case):
    def test_durations_are_found_in_the_stored_schema(self):
        for table, found in (
            (pa.table({"a": [1], "span": pa.array([1], pa.duration("us")), "t": pa.array([1], pa.timestamp("us")), "wörd": ["x"]}), ["span"]),
            (pa.table({"list": [[1]], "in": [{"a": 1}], "none": pa.nulls(1)}), []),
        ):
            parquet.write_table(table, self.path("t.parquet"))
            stored = parquet.read_metadata(self.path("t.parquet")).metadata[b"ARROW:schema"]
            self.assertEqual(list(stowage._parquet_schema.durations(stored)), found)

    @unittest.skipIf(importlib.util.find_spec("duckdb") is None, "needs DuckDB, which Debian does not have")
    def test_duckdb_alone_refuses_what_it_would_change(self):
        os.mkdir(self.path("hidden"))
        for name in ("pyarrow", "polars"):
            self.write(f"hidden/{name}.py", "raise ImportError('hidden')\n")
        parquet.write_table(pa.table({"a": [1], "span": pa.array([1], pa.duration("us"))}), self.path("t.parquet"))
        self.write("t.jsonl", '{"a": 9007199254740993}\n{"a": 1.5}\n')
        code = """
            import stowage
            for source, more in (("t.parquet", {}), ("t.jsonl", {}), ("t.parquet", {"drop": ["span"]})):
                try:
                    print(stowage.shrink(source, "o.parquet", quiet=True, force=True, **more))
                except stowage.StowageError as reason:
                    print(reason)
        """
        environment = clean_environment(PYTHONPATH=f"{self.path('hidden')}:{TREE / 'python'}", STOWAGE_LIBRARY=BUILD / "libstowage.so.1")
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=environment, cwd=self.folder, timeout=60
        )
        said = done.stdout.split("\n")
        self.assertRegex(said[0], "the durations of span as integers", done.stderr)
        self.assertRegex(said[1], "line 1: a holds 9007199254740993")
        self.assertEqual(said[2], "o.parquet")


if __name__ == "__main__":
    unittest.main()
