"""Arrow streams: files and tables go through the C interface, without any Arrow package."""

import contextlib
import gc
import os
import subprocess
import sys
import tempfile
import unittest

import stowage
from support import BUILD, TREE, clean_environment, needs

try:
    import numpy
except ImportError:
    numpy = None  # the classes are skipped


@needs("numpy")
class Streams(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def table(self):
        with open(self.path("t.csv"), "w", encoding="utf-8") as file:
            file.write("n,x,city,note\n")
            for i in range(3000):
                file.write(f"{i % 100},{i * 0.5},{'Zürich' if i % 3 else 'Bern'},note {i * 7919 % 100000}\n")
        stowage.shrink(self.path("t.csv"), self.path("t.npz"), quiet=True)
        return stowage.open(self.path("t.npz"))

    def test_a_table_of_shrink_opens_as_columns(self):
        table = self.table()
        self.assertEqual(table.columns, ["n", "x", "city", "note"])
        self.assertEqual(len(table), 3000)
        self.assertEqual(table["city"][1], "Zürich")
        self.assertEqual(list(table["n"][:3]), [0, 1, 2])
        with self.assertRaises(KeyError):
            table["nothing"]

    def test_a_stream_reports_types_rows_and_bounds(self):
        found = stowage.inspect(self.table()).data
        self.assertEqual(found["rows"], 3000)
        by_name = {one["name"]: one for one in found["columns"]}
        self.assertEqual((by_name["n"]["dtype"], by_name["n"]["least"], by_name["n"]["most"]), ("int8", 0, 99))
        self.assertEqual(by_name["x"]["smallest"], "float32")
        self.assertEqual(by_name["city"]["dtype"], "dictionary")
        self.assertEqual(by_name["note"]["dtype"], "text")

    def test_an_object_with_a_stream_shrinks_and_comes_back_as_one(self):
        numpy.save(self.path("wide.npy"), numpy.arange(5000))
        with contextlib.redirect_stdout(None):
            small = stowage.shrink(stowage.open(self.path("wide.npy")))
        self.assertEqual(stowage.inspect(small).data["columns"][0]["dtype"], "int16")

    def test_a_capsule_nobody_takes_is_released(self):
        table = self.table()

        def descriptors():
            return len(os.listdir("/proc/self/fd"))

        kept = table.__arrow_c_stream__()
        before = descriptors()
        del kept
        gc.collect()
        self.assertLess(descriptors(), before)

    def test_text_that_is_not_utf8_is_refused(self):
        numpy.savez(self.path("b.npz"), **{"t.bytes": numpy.array([[255, 254]], "uint8"), "n": numpy.arange(1)})
        with self.assertRaisesRegex(stowage.StowageError, "UTF-8"):
            stowage.inspect(stowage.open(self.path("b.npz")))

    def test_offsets_and_codes_outside_of_the_text_are_refused(self):
        offsets, text = numpy.array([0, 9], "int32"), numpy.array([65, 66], "uint8")
        numpy.savez(self.path("o.npz"), **{"t.offsets": offsets, "t.bytes": text, "n": numpy.arange(1)})
        numpy.savez(
            self.path("c.npz"),
            **{"t.codes": numpy.array([3], "uint8"), "t.words.bytes": numpy.array([[65]], "uint8"), "n": numpy.arange(1)},
        )
        for name in ("o.npz", "c.npz"):
            with self.assertRaises(stowage.StowageError):
                stowage.inspect(stowage.open(self.path(name)))

    def test_spans_of_time_are_a_column(self):
        numpy.savez(self.path("m.npz"), n=numpy.arange(3), span=numpy.array([1, "NaT", -3], "m8[ms]"))
        table = stowage.open(self.path("m.npz"))
        self.assertEqual(table["span"][:].tolist(), numpy.array([1, "NaT", -3], "m8[ms]").tolist())
        facts = {column["name"]: column for column in stowage.inspect(table).data["columns"]}
        self.assertEqual((facts["span"]["dtype"], facts["span"]["missing"]), ("duration", 1))

    def test_arrays_of_different_lengths_are_no_table(self):
        numpy.savez(self.path("d.npz"), a=numpy.arange(3), b=numpy.arange(4))
        with self.assertRaises(stowage.Invalid):
            stowage.open(self.path("d.npz"))


class Command(unittest.TestCase):
    """What the command does with Parquet if no package reads it: a fake module hides an installed one."""

    def run_command(self, *words, **more):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("pyarrow", "polars", "duckdb"):
                with open(os.path.join(folder, name + ".py"), "w", encoding="utf-8") as file:
                    file.write("raise ImportError('hidden')\n")
            for name in ("x.parquet", "x.csv"):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write("a,b\n1,2\n")
            environment = clean_environment(
                STOWAGE_INTERPRETER=sys.executable,
                STOWAGE_LIBRARY=BUILD / "libstowage.so.1",
                PYTHONPATH=os.pathsep.join([folder, str(TREE / "python")]),
            )
            environment.update(more)
            done = subprocess.run(
                [str(BUILD / "stowage"), *words], capture_output=True, text=True, cwd=folder, env=environment, timeout=60, check=False
            )
            return done.returncode, done.stderr, os.listdir(folder)

    def test_it_says_what_to_install(self):
        for words in (["inspect", "x.parquet"], ["shrink", "x.parquet", "-o", "y.npz"], ["shrink", "x.csv", "-o", "y.parquet"]):
            code, said, left = self.run_command(*words)
            self.assertEqual(code, 2, said)
            self.assertIn("pip install pyarrow", said)
            self.assertFalse([name for name in left if name.startswith("y.")])

    def test_a_python_without_the_package_and_none_at_all(self):
        code, said, _ = self.run_command("inspect", "x.parquet", PYTHONPATH="", PYTHONSAFEPATH="1")
        self.assertEqual(code, 2, said)
        self.assertIn("pip install", said)
        code, said, _ = self.run_command("inspect", "x.parquet", STOWAGE_INTERPRETER="/nowhere/python")
        self.assertEqual(code, 2, said)

    def test_options_that_mean_nothing_are_refused(self):
        code, said, _ = self.run_command("shrink", "x.parquet", "-o", "y.npz", "--dtype", "float32")
        self.assertEqual(code, 2, said)
        code, said, _ = self.run_command("inspect", "x.parquet", "x.csv")
        self.assertEqual(code, 2, said)


if __name__ == "__main__":
    unittest.main()
