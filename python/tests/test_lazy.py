"""stowage.open: returns what NumPy would return for the same index, and reads only that."""

import io
import os
import pickle
import random
import subprocess
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    raise unittest.SkipTest("numpy is not installed")

from support import BUILD, needs

import stowage


def some_index(rng, shape):
    """Returns a random index of any kind that NumPy knows, perhaps one it refuses."""
    def one(n):
        kind = rng.randrange(8)
        if kind == 1 and n:
            return rng.randrange(-n, n)
        if kind == 2:
            return slice(rng.randrange(-n - 2, n + 2), rng.randrange(-n - 2, n + 2), rng.choice([1, 2, 3, -1, -2]))
        if kind == 3 and n:
            return [rng.randrange(-n, n) for _ in range(rng.randrange(1, 5))]
        if kind == 4:
            return np.array([rng.random() < 0.5 for _ in range(n)], dtype=bool)
        if kind == 5:
            return slice(rng.randrange(0, n + 1), None)
        return Ellipsis if kind == 6 else slice(None)

    index = tuple(one(n) for n in shape[: rng.randrange(1, len(shape) + 1)])
    return index + (None,) if rng.random() < 0.1 else index


class Lazy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def test_one_row_is_what_numpy_gives(self):
        arrays = [
            np.arange(150.0).reshape(50, 3), np.arange(7), np.arange(7).astype("M8[s]"), np.arange(14).reshape(7, 2).astype("m8[D]"),
            np.asfortranarray(np.arange(20.0).reshape(5, 4)), np.zeros((3, 0)), np.array(["abc", "de"], "S3"), np.zeros((3, 2), "c16"),
            np.arange(24).reshape(4, 2, 3).astype("f2"), np.arange(8.0).reshape(4, 2).astype(">f8"), np.array([[True, False]] * 2),
        ]
        for a in arrays:
            np.save(self.path("row.npy"), a)
            x = stowage.open(self.path("row.npy"))
            for i in [0, 1, -1, len(a) - 1, -len(a), np.int32(0), np.uint8(1), np.int64(-1)]:
                is_, should = x[i], a[i]
                self.assertEqual((type(is_), is_.shape), (type(should), should.shape))
                self.assertTrue(np.array_equal(is_, should), (a.dtype, i))
            for i in [len(a), -len(a) - 1, np.int64(len(a))]:
                with self.assertRaises(IndexError):
                    x[i]
        x.close()
        with self.assertRaises(ValueError):
            x[0]

    def test_any_index_gives_what_numpy_gives(self):
        rng, same, refused = random.Random(5), 0, 0
        for shape in [(20,), (20, 7), (9, 5, 4), (6, 1, 3), (0, 3), (4, 0, 2)]:
            for order in "CF":
                a = np.asarray(np.arange(np.prod(shape), dtype="i4").reshape(shape), order=order)
                np.save(self.path("a.npy"), a)
                x = stowage.open(self.path("a.npy"))
                for _ in range(400):
                    index = some_index(rng, shape)
                    try:
                        wanted = a[index]
                    except IndexError:
                        with self.assertRaises(IndexError):
                            x[index]
                        refused += 1
                        continue
                    got = x[index]
                    self.assertEqual(np.shape(got), np.shape(wanted), index)
                    np.testing.assert_array_equal(got, wanted, str(index))
                    same += 1
        self.assertGreater(same, 3000)
        self.assertGreater(refused, 50)

    @needs("scipy")
    def test_sparse_matrices_are_read_as_rows(self):
        import scipy.sparse as sp

        rng = np.random.default_rng(3)
        dense = np.where(rng.random((900, 70)) < 0.05, rng.integers(1, 90, (900, 70)), 0).astype("f8")
        np.save(self.path("c.npy"), dense)
        np.save(self.path("f.npy"), np.asfortranarray(dense))
        for name in "cf":
            command = [str(BUILD / "stowage"), "shrink", self.path(name + ".npy"), "-o", self.path(name + ".npz")]
            subprocess.run(command, check=True, capture_output=True)
        sp.save_npz(self.path("packed.npz"), sp.csr_matrix(dense))
        for name in ("c.npz", "f.npz", "packed.npz"):
            x = stowage.open(self.path(name))
            self.assertEqual(x.shape, dense.shape)
            for index in (slice(None), slice(5, 400, 7), (slice(3, 50), slice(2, 9)), -1, [3, 800, 3]):
                np.testing.assert_array_equal(x[index], dense[index])
            for shuffle in (False, True):
                made = np.concatenate(list(stowage.batches(self.path(name), 64, shuffle=shuffle, memory="8M")))
                np.testing.assert_array_equal(made[np.lexsort(made.T)], dense[np.lexsort(dense.T)])
        with self.assertRaises(stowage.Unsupported) as caught:
            sp.save_npz(self.path("coo.npz"), sp.coo_matrix(dense))
            stowage.open(self.path("coo.npz"))
        self.assertIn(".tocsr()", str(caught.exception))
        twice = sp.csr_matrix(([1.0, 2.0], [3, 3], [0, 2]), shape=(1, 5))
        sp.save_npz(self.path("twice.npz"), twice)
        with self.assertRaises(stowage.Unsupported):
            stowage.open(self.path("twice.npz"))[:]

    def test_lists_apart_and_new_dimensions_stand_where_numpy_puts_them(self):
        a = np.arange(4 * 5 * 3 * 2).reshape(4, 5, 3, 2)
        np.save(self.path("a.npy"), a)
        x = stowage.open(self.path("a.npy"))
        two, square = [0, 1], np.array([[0, 1], [1, 0]])
        for index in (
            (slice(None, None, -1), two, slice(None), two),  # the lists' own dimension comes first, then the rows backwards
            (slice(None, None, -1), 1, ..., two, 0),
            (slice(None), 1, two, ..., 0),
            (slice(None), two, None, two),
            (None, slice(1, 3), square),
            (2, square),
            (two, ..., two, 0, 1),
            (..., None),
            (3, 4, 2, 1, ...),
            ([9], [], slice(None), 0),
        ):
            wanted, got = a[index], x[index]
            self.assertEqual((np.shape(got), type(got)), (np.shape(wanted), type(wanted)), index)
            np.testing.assert_array_equal(got, wanted, str(index))

    def test_opened_again_where_it_is_pickled(self):
        np.save(self.path("a.npy"), np.arange(6.0))
        x = pickle.loads(pickle.dumps(stowage.open(self.path("a.npy"), "float32")))
        np.testing.assert_array_equal(x[2:], np.arange(2, 6, dtype="f4"))

    def test_a_type_of_two_meanings_is_refused(self):
        np.save(self.path("a.npy"), np.arange(3))
        for word in ("i8", "u8"):  # bytes to NumPy, bits to the command
            with self.assertRaisesRegex(ValueError, "int64"):
                stowage.open(self.path("a.npy"), word)

    def test_facts_and_whole_arrays(self):
        a = np.random.default_rng(0).standard_normal((30, 4, 2))
        np.save(self.path("a.npy"), a)
        with stowage.open(self.path("a.npy"), dtype="f32") as x:
            self.assertEqual((x.shape, x.dtype, x.ndim, x.size, x.nbytes, len(x)), ((30, 4, 2), np.float32, 3, 240, 960, 30))
            self.assertIn("float32", repr(x))
            np.testing.assert_array_equal(np.asarray(x), a.astype("f4"))
            self.assertEqual(np.asarray(x, dtype="f8").dtype, np.float64)
            np.testing.assert_array_equal(np.stack(list(x)), a.astype("f4"))
            row = x[3]
            row += 1  # a copy: the file stays
            np.testing.assert_array_equal(np.load(self.path("a.npy")), a)
        with self.assertRaises(ValueError):
            x[0]
        np.save(self.path("zero.npy"), np.array(7.5))
        self.assertEqual(stowage.open(self.path("zero.npy"))[()], 7.5)
        with self.assertRaises(IndexError):
            stowage.open(self.path("a.npy"))[30]
        with self.assertRaises(IndexError):
            stowage.open(self.path("a.npy"))[np.zeros((30, 4), bool)]

    def test_members_raw_tensors_and_file_objects(self):
        a = np.arange(24.0).reshape(6, 4)
        np.savez(self.path("s.npz"), a=a, b=a.T)
        np.savez_compressed(self.path("d.npz"), a=a)
        a.tofile(self.path("raw.bin"))
        with open(self.path("d.npz"), "rb") as file:
            whole = file.read()
        for x in (
            stowage.open(self.path("s.npz:a")),
            stowage.open(self.path("d.npz")),
            stowage.open(self.path("raw.bin"), raw_dtype="float64", raw_shape=(6, 4)),
            stowage.open(io.BytesIO(whole)),
        ):
            np.testing.assert_array_equal(x[1:5:2, [0, 3]], a[1:5:2, [0, 3]])
        with self.assertRaises(ValueError) as caught:
            stowage.open(self.path("s.npz"))
        self.assertIn("a.npy, b.npy", str(caught.exception))

    def test_only_what_is_asked_for_is_read(self):
        class Counted(io.BytesIO):
            count = 0

            def read(self, *given):
                part = super().read(*given)
                Counted.count += len(part)
                return part

        whole = io.BytesIO()
        np.save(whole, np.zeros((500, 20000), "f4"))  # 40 MB, 80 KB a row
        x = stowage.open(Counted(whole.getvalue()))
        for index, most in ((7, 90_000), ((slice(None), 17), 20_000), (slice(10, 20), 900_000), ((slice(0, 500, 100), slice(5, 9)), 20_000)):
            Counted.count = 0
            x[index]
            self.assertLess(Counted.count, most, index)


if __name__ == "__main__":
    unittest.main()
