"""shrink: exact, smaller, and reported."""

import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path

import stowage
from support import needs

try:
    import numpy
except ImportError:
    numpy = None  # the classes are skipped


def quiet(*args, **kwargs):
    """Shrinks to the smallest types, with which most tests compare; class Purposes tests the default types."""
    kwargs.setdefault("purpose", "storage")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        return stowage.shrink(*args, **kwargs), out.getvalue()


@needs("numpy")
class Purposes(unittest.TestCase):
    def kind(self, values, purpose, **more):
        return stowage.shrink(numpy.array(values), quiet=True, purpose=purpose, **more).dtype.name

    def test_the_purpose_limits_the_types(self):
        for values, kinds in (
            ([0, 100], ("int8", "uint8", "uint8")),
            ([0, 200], ("int16", "uint8", "uint8")),
            ([0, 60_000], ("int32", "int32", "uint16")),
            ([-5, 100], ("int8", "int8", "int8")),
            ([0.5, 2.0], ("float32", "float16", "float16")),
            ([True, False], ("bool", "bool", "bool")),
        ):
            for purpose, kind in zip(("arithmetic", "training", "storage"), kinds):
                self.assertEqual(self.kind(values, purpose), kind, (values, purpose))
        self.assertEqual(stowage.shrink(numpy.array([0, 200]), quiet=True).dtype.name, "int16")
        self.assertEqual(self.kind(numpy.array([1, 2], "u2"), "arithmetic"), "int8")
        self.assertEqual(self.kind(numpy.array([200, 2], "u1"), "arithmetic"), "uint8")  # the type it has
        self.assertEqual(self.kind(numpy.array([2**63 + 1], "u8"), "arithmetic"), "uint64")
        self.assertEqual(self.kind([0.1, 0.2], "arithmetic", tolerance=1e-2), "float32")
        self.assertEqual(self.kind([0.1, 0.2], "training", tolerance=1e-2), "float16")
        with self.assertRaises(ValueError):
            self.kind([1], "fun")

    def test_sums_and_differences_hold(self):
        halves = stowage.shrink(numpy.full(1000, 100.5), quiet=True)
        self.assertEqual(halves.sum(), 100_500)
        counts = stowage.shrink(numpy.array([3, 200, 7]), quiet=True)
        self.assertEqual(list(numpy.diff(counts)), [197, -193])

    def test_files_and_inspections_agree(self):
        with tempfile.TemporaryDirectory() as folder:
            numpy.save(os.path.join(folder, "a.npy"), numpy.array([0.5, 100]))
            for purpose, kind in (("arithmetic", "float32"), ("training", "float16"), ("storage", "float16")):
                facts = stowage.inspect(os.path.join(folder, "a.npy"), purpose=purpose).data
                stowage.shrink(os.path.join(folder, "a.npy"), os.path.join(folder, "b.npy"), quiet=True, purpose=purpose)
                self.assertEqual((facts["smallest_dtype"], numpy.load(os.path.join(folder, "b.npy")).dtype.name), (kind, kind))


@needs("numpy")
class Arrays(unittest.TestCase):
    def test_what_an_array_has_beside_its_values_stays_with_it(self):
        import numpy

        masked = numpy.ma.array([1, 2, 3], mask=[False, True, False])
        made, _ = quiet(masked)
        self.assertEqual((made.dtype.name, made.mask.tolist(), made.sum()), ("uint8", [False, True, False], 4))
        made, _ = quiet(numpy.matrix([[1, 2], [3, 4]]))
        self.assertEqual((made * made).tolist(), [[7, 10], [15, 22]])

        class Lengths(numpy.ndarray):
            unit = "m"

        with self.assertRaisesRegex(NotImplementedError, "Lengths may carry more than its values.*numpy.asarray"):
            stowage.shrink(numpy.arange(3).view(Lengths))

    def test_every_value_stays_and_the_type_is_the_smallest(self):
        import numpy

        random = numpy.random.default_rng(1)
        cases = [
            (random.integers(0, 200, (300, 40)), "uint8"),
            (random.integers(-200, 200, 1000), "int16"),
            (random.random((100, 100)), "float64"),
            (random.random((100, 100)).astype("f4").astype("f8"), "float32"),
            (numpy.array([numpy.nan, 1.5, -0.0, numpy.inf]), "float16"),
            (numpy.arange(100, dtype=">i4"), "uint8"),
            (numpy.asfortranarray(random.integers(0, 9, (50, 60))), "uint8"),
            (random.integers(0, 70000, (64, 64))[::2, ::3], "uint32"),
            (numpy.array(5), "uint8"),
            (numpy.array([2**63], dtype="uint64"), "uint64"),
            (numpy.zeros((0, 3)), "float64"),
            (numpy.array([True, False]), "bool"),
        ]
        for array, kind in cases:
            before = array.copy()
            made, _ = quiet(array)
            if array.size:
                self.assertEqual(made.dtype.name, kind)
            self.assertEqual(made.shape, array.shape)
            self.assertTrue(numpy.array_equal(before, made, equal_nan=array.dtype.kind == "f"))
            self.assertTrue(numpy.array_equal(before, array, equal_nan=array.dtype.kind == "f"), "the input was changed")
            if array.dtype.kind == "f" and array.size:
                self.assertTrue(numpy.array_equal(numpy.signbit(before), numpy.signbit(made)))
        self.assertTrue(quiet(cases[6][0])[0].flags.f_contiguous)

    def test_it_says_what_changed(self):
        import numpy

        _, said = quiet(numpy.arange(1000))
        self.assertRegex(said, r"int64\s+uint16\s+7.8 KiB\s+2.0 KiB")
        self.assertEqual(quiet(numpy.arange(1000), quiet=True)[1], "")

    def test_whole_floats_become_integers_only_on_request(self):
        import numpy

        array = numpy.arange(3000.0)
        self.assertEqual(quiet(array)[0].dtype.name, "float32")
        self.assertEqual(quiet(array, integers=True)[0].dtype.name, "uint16")

    def test_a_tolerance_is_kept(self):
        import numpy

        array = 1 + numpy.random.default_rng(2).random((400, 300))
        made, said = quiet(array, tolerance=1e-3)
        self.assertEqual(made.dtype.name, "float16")
        self.assertLessEqual((abs(made.astype("f8") - array) / array).max(), 1e-3)
        self.assertIn("off by at most", said)
        made, _ = quiet(array[:, ::2], tolerance="abs:1e-6")
        self.assertEqual(made.dtype.name, "float32")
        self.assertLessEqual(abs(made - array[:, ::2]).max(), 1e-6)
        self.assertEqual(quiet(array, tolerance=1e-12)[0].dtype.name, "float64")

    @needs("scipy")
    def test_zeros_are_reported_and_left_out_on_request(self):
        import numpy
        import scipy.sparse

        dense = numpy.zeros((1000, 500))
        dense[5, 7] = 1.1
        made, said = quiet(dense)
        self.assertIn("sparse=True", said)
        self.assertEqual(made.shape, dense.shape)
        made, _ = quiet(dense, sparse=True)
        self.assertTrue(scipy.sparse.issparse(made))
        self.assertTrue((made.toarray() == dense).all())
        dense[0, 0] = -0.0
        made, said = quiet(dense, sparse=True)
        self.assertEqual(made.nnz, 1)
        self.assertIn("1 negative zeros became 0", said)

    def test_files_are_written_again(self):
        import numpy

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.npy"
            numpy.save(path, numpy.arange(1000))
            made, said = quiet(path, Path(folder) / "y.npy")
            self.assertEqual(numpy.load(made).dtype.name, "uint16")
            self.assertIn("uint16", said)

    def test_wrong_use(self):
        import numpy

        array = numpy.array([0.1, 300.0])
        for kind, call in (
            (TypeError, lambda: stowage.shrink([1, 2])),
            (TypeError, lambda: stowage.shrink("x.npy")),
            (TypeError, lambda: stowage.shrink(array, "out.npy")),
            (FileNotFoundError, lambda: stowage.shrink("/nowhere/x.npy", "/nowhere/y.npy")),
            (ValueError, lambda: stowage.shrink(array, dtype="int8")),
            (ValueError, lambda: stowage.shrink(array, dtype="complex64")),
            (ValueError, lambda: stowage.shrink(array, tolerance=-1)),
            (ValueError, lambda: stowage.shrink(array, tolerance="much")),
            (ValueError, lambda: stowage.shrink(array, dtype="float16", tolerance=1e-9)),
        ):
            with self.assertRaises(kind):
                call()


@needs("numpy", "pandas", "scipy")
class Tables(unittest.TestCase):
    def test_a_table_can_still_be_grouped_and_merged(self):
        import pandas

        table = pandas.DataFrame({"key": [1.0, 2.0, 2.0], "value": [0.5, 1.5, 2.5]})
        made, _ = quiet(table)
        self.assertEqual([str(kind) for kind in made.dtypes], ["float32", "float32"])
        self.assertEqual(made.groupby("key").value.sum().tolist(), [0.5, 4.0])
        self.assertEqual(len(made.merge(made, on="key")), 5)
        self.assertEqual(str(quiet(table, dtype="float16")[0].dtypes.iloc[0]), "float16")

    def test_tables_keep_their_values(self):
        import numpy
        import pandas

        random = numpy.random.default_rng(3)
        table = pandas.DataFrame(
            {
                "whole": random.integers(0, 100, 5000),
                "real": random.random(5000).astype("f4").astype("f8"),
                "text": random.choice(["red", "green", "blue"], 5000),
                "missing": pandas.array([1, None] * 2500, dtype="Int64"),
                "when": pandas.date_range("2020", periods=5000, freq="h"),
                "names": [f"name {i}" for i in range(5000)],
            },
            index=random.permutation(5000),
        )
        made, said = quiet(table)
        pandas.testing.assert_frame_equal(table, made, check_dtype=False, check_categorical=False)
        self.assertEqual([str(kind) for kind in made.dtypes][:4], ["uint8", "float32", "category", "UInt8"])
        self.assertLess(made.memory_usage(deep=True).sum(), table.memory_usage(deep=True).sum() / 1.5)
        self.assertIn("3 different texts", said)
        series, _ = quiet(table["whole"])
        self.assertEqual(str(series.dtype), "uint8")
        self.assertEqual(quiet(pandas.DataFrame())[0].shape, (0, 0))
        twice = pandas.concat([table["whole"], table["whole"]], axis=1)
        self.assertEqual(quiet(twice)[0].shape, twice.shape)

    def test_writing_to_the_result_leaves_the_input_alone(self):
        import pandas
        from scipy import sparse

        def table():
            made = pandas.DataFrame({"small": numpy.arange(4, dtype="i1"), "large": numpy.arange(4), "half": numpy.arange(4, dtype="f4") + 0.5})
            return made.assign(when=pandas.date_range("2020", periods=4), name=list("abcd"), some=pandas.array([1, 2, 3, None], dtype="Int8"))

        for names in (list(table()), ["small"], ["small", "half"], []):
            given = table()[names]
            made, _ = quiet(given)
            self.assertIsNot(made, given)
            for name in names:
                made.iloc[0, made.columns.get_loc(name)] = given[name].iloc[1]
            made["new"] = 1
            pandas.testing.assert_frame_equal(given, table()[names])
        for name in table():
            given = table()[name].copy()
            made, _ = quiet(given)
            made.iloc[0] = given.iloc[1]
            pandas.testing.assert_series_equal(given, table()[name])
        given = sparse.csr_matrix(numpy.eye(3, dtype="f4"))
        quiet(given)[0].data[0] = 7
        self.assertEqual(given.sum(), 3)

    def test_sparse_matrices_are_narrowed(self):
        import numpy
        import scipy.sparse

        matrix = scipy.sparse.random(1000, 1000, 0.01, format="csr", random_state=4)
        matrix.data = numpy.round(matrix.data * 100)
        matrix.indices = matrix.indices.astype("i8")
        for form in ("csr", "csc", "coo"):
            made, _ = quiet(matrix.asformat(form))
            self.assertEqual((made != matrix.asformat(form)).nnz, 0)
            self.assertEqual(made.dtype.name, "float32")
        with self.assertRaises(NotImplementedError):
            stowage.shrink(matrix.tolil())


class Models(unittest.TestCase):
    def test_a_model_is_cast_quantized_and_inspected_without_the_command(self):
        import json
        import struct

        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "model.safetensors")
            values = struct.pack("<256f", *[i / 64 - 2 for i in range(256)])
            facts = {"dtype": "F32", "shape": [4, 64], "data_offsets": [0, len(values)]}
            header = json.dumps({"layers.0.up_proj.weight": facts}).encode()
            Path(path).write_bytes(struct.pack("<Q", len(header)) + header + values)
            half = str(Path(folder) / "half.safetensors")
            said = quiet(path, half, dtype="bf16", verify=True)[1]
            self.assertIn("bfloat16", said)
            self.assertEqual(stowage.inspect(half).data["arrays"][0]["dtype"], "bfloat16")
            self.assertIn("int8", quiet(path, str(Path(folder) / "q.safetensors"), quantize="int8")[1])
            with self.assertRaises(Exception) as refused:
                stowage.shrink(path, str(Path(folder) / "x.gguf"), dtype="f16")
            self.assertIn("convert_hf_to_gguf.py", str(refused.exception))
            with self.assertRaises(TypeError):
                stowage.shrink([1, 2], prune="50%")


if __name__ == "__main__":
    unittest.main()
