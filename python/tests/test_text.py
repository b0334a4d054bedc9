"""Columns of text that shrink wrote: opened, sliced, batched and shuffled."""

import os
import pickle
import random
import tempfile
import time
import unittest
import zipfile

try:
    import numpy as np
except ImportError:
    raise unittest.SkipTest("numpy is not installed")

import stowage
from stowage._text import column_names


class Text(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        make = random.Random(5)
        cls.rows = 20000
        cls.columns = {
            "few": [make.choice(["red", "green", "blue", ""]) for _ in range(cls.rows)],
            "alike": [make.choice(["DE", "FR"]) for _ in range(cls.rows)],
            "fixed": ["%016x" % make.getrandbits(64) for _ in range(cls.rows)],
            "long": ["é" * make.randrange(30) + "x%d" % i for i in range(cls.rows)],
        }
        cls.table, cls.npz = (os.path.join(cls.folder.name, name) for name in ("t.csv", "t.npz"))
        with open(cls.table, "w", encoding="utf-8") as file:
            file.write("number," + ",".join(cls.columns) + "\n")
            for i, row in enumerate(zip(*cls.columns.values())):
                file.write(",".join((str(i), *row)) + "\n")
        stowage.shrink(cls.table, cls.npz, quiet=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def path(self, name):
        return f"{self.npz}:{name}"

    def test_slices_are_those_of_numpy(self):
        for name, layout in (("few", "dictionary"), ("alike", "dictionary"), ("fixed", "fixed"), ("long", "offsets")):
            x = stowage.open(self.path(name))
            whole = np.array(self.columns[name], dtype=object)
            self.assertIn(layout, repr(x))
            self.assertEqual((x.shape, len(x), x.dtype), ((self.rows,), self.rows, object))
            for index in (slice(3, 90), slice(None, None, 7000), slice(90, 3, -2), slice(5, 5), [3, 1, -1, 3], whole == whole[0]):
                got = x[index]
                self.assertEqual(got.tolist(), whole[index].tolist(), (name, index))
                self.assertEqual(got.dtype, object)
            self.assertEqual((x[0], x[-1]), (whole[0], whole[-1]))
            self.assertEqual(np.asarray(x).tolist(), whole.tolist())
            self.assertEqual(list(x), whole.tolist())
            self.assertEqual(pickle.loads(pickle.dumps(x))[7], whole[7])
            with self.assertRaises(IndexError):
                x[self.rows]
            x.close()

    def test_batches_stay_in_step(self):
        names = ["number", *self.columns]
        for shuffle in (False, True):
            seen = []
            for batch in stowage.batches({n: self.path(n) for n in names}, 333, shuffle=shuffle, memory="8M"):
                numbers = batch["number"].tolist()
                seen += numbers
                for name, values in self.columns.items():
                    self.assertEqual(batch[name].tolist(), [values[i] for i in numbers], name)
            self.assertEqual(sorted(seen), list(range(self.rows)))

    def test_batches_of_a_table_name_the_call_that_works(self):
        table = os.path.join(self.folder.name, "table.csv")
        with open(table, "w") as file:
            file.write("city,name,n\n" + "".join(f"{['Rome', 'Oslo'][i % 2]},name {'y' * (i % 37)} {i * 7919},{i}\n" for i in range(2000)))
        path = os.path.join(self.folder.name, "table.npz")
        stowage.shrink(table, path, quiet=True)
        with self.assertRaisesRegex(stowage.StowageError, r"3 columns: city, name, n;.*table.npz:city.*stowage\.open\("):
            stowage.batches(path, 100)
        opened = stowage.open(path)
        for shuffle in (False, True):
            rows = [row for batch in stowage.batches(opened, 100, shuffle=shuffle) for row in zip(batch["city"], batch["name"], batch["n"])]
            rows.sort(key=lambda row: row[2])
            self.assertEqual([row[0] for row in rows], opened["city"][:].tolist())
            self.assertEqual([row[1] for row in rows], opened["name"][:].tolist())
        first = next(iter(stowage.batches([opened["name"], opened["n"]], 100)))
        self.assertEqual(first[0].tolist(), opened["name"][:100].tolist())

    def test_batches_of_a_table_of_one_column_of_text_are_texts(self):
        table, path = os.path.join(self.folder.name, "one.csv"), os.path.join(self.folder.name, "one.npz")
        for rows in (["a1", "b2", "c3"] * 99, [f"{'x' * (i % 29)}-{i * 7919}" for i in range(999)], [f"k{i:05d}" for i in range(999)]):
            with open(table, "w") as file:
                file.write("key\n" + "".join(row + "\n" for row in rows))
            stowage.shrink(table, path, force=True, quiet=True)
            self.assertEqual([text for batch in stowage.batches(path, 100) for text in batch], rows)

    def test_a_damaged_npz_is_an_error_of_the_library(self):
        path = os.path.join(self.folder.name, "damaged.npz")
        with open(self.npz, "rb") as file:
            content = bytearray(file.read())
        content[content.rindex(b"PK\x01\x02") + 1] ^= 0xFF  # the last entry of its directory
        with open(path, "wb") as file:
            file.write(content)
        for read in (lambda: stowage.batches(path, 10), lambda: stowage.open(path)):
            with self.assertRaises(stowage.StowageError):
                read()

    def test_the_columns_of_many_members_are_found_quickly(self):
        path = os.path.join(self.folder.name, "many.npz")
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(40000):
                archive.writestr(f"{number}.codes.npy", b"")
        began = time.process_time()
        self.assertEqual(len(column_names(path)), 40000)
        self.assertLess(time.process_time() - began, 10)  # below 1 s

    def test_batches_resume(self):
        opened = stowage.batches(self.path("long"), 500, shuffle=True, seed=3)
        next(opened)
        state = opened.state_dict()
        rest = [batch.tolist() for batch in opened]
        again = stowage.batches(self.path("long"), 500, shuffle=True, seed=3)
        again.load_state_dict(state)
        self.assertEqual([batch.tolist() for batch in again], rest)

    def test_what_is_no_column_is_refused(self):
        with self.assertRaises(stowage.StowageError):
            stowage.open(self.path("nobody"))
        with self.assertRaises(stowage.StowageError):
            stowage.batches(self.path("few"), 5, dtype="float32")

    def table_of(self, text):
        path, out = os.path.join(self.folder.name, "v.csv"), os.path.join(self.folder.name, "v.npz")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        stowage.shrink(path, out, quiet=True, force=True)
        return stowage.open(out)

    def test_tables_of_one_column_open(self):
        self.assertEqual(self.table_of("city\nParis\nRome is old\n")["city"][1], "Rome is old")
        self.assertEqual(self.table_of("v\n3\n4\n")[:].tolist(), [3, 4])

    def test_columns_open_whatever_they_are_called(self):
        table = self.table_of('"a\nb",rx.bytes,tx.offsets,a/b,t\n1,300,5,7,xy\n2,400,6,8,zz\n')
        self.assertEqual(table.columns, ["a_b", "rx.bytes", "tx.offsets", "a/b", "t"])
        self.assertEqual([list(table[name][:]) for name in table.columns], [[1, 2], [300, 400], [5, 6], [7, 8], ["xy", "zz"]])

    def test_tables_take_the_options_of_the_command(self):
        out = os.path.join(self.folder.name, "u.npz")
        stowage.shrink(self.table, out, columns=["number", "few"], quiet=True)
        self.assertEqual({name.split(".")[0] for name in np.load(out).files}, {"number", "few"})
        stowage.shrink(self.table, out, drop="4", names="no", quiet=True, force=True)
        self.assertEqual({name.split(".")[0] for name in np.load(out).files}, {"0", "1", "2", "3"})
        self.assertEqual(stowage.open(out + ":1")[0], "few")
        with self.assertRaises(TypeError):
            stowage.shrink(np.arange(3), force=True)


if __name__ == "__main__":
    unittest.main()
