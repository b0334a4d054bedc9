"""stowage.batches: every row once, in step, resumable; buffers that stay valid; file objects; torch."""

import ctypes
import gc
import io
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

try:
    import numpy as np
except ImportError:
    raise unittest.SkipTest("numpy is not installed")

from support import in_turn, needs

import stowage
from stowage._library import lib

try:
    import torch
except ImportError:
    torch = None


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.x_path, cls.y_path = cls.path("x.npy"), cls.path("y.npy")
        cls.rows = 30000
        cls.y = np.arange(cls.rows)
        cls.x = cls.y[:, None] * 1.0 + np.arange(50)
        np.save(cls.x_path, cls.x)
        np.save(cls.y_path, cls.y)
        for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
            os.environ.pop(name, None)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder.name, name)


class Checksums(Case):
    """Stored members of an .npz, whose readers share one checksum."""

    WAYS = [
        dict(num_workers=1),
        dict(num_workers=3),
        dict(num_workers=3, shuffle=True, memory="4M"),
        dict(num_workers=3, shuffle="disk", memory="4M"),
        dict(num_workers=2, dtype="float32"),
    ]

    def damaged(self):
        path = self.path("damaged.npz")
        np.savez(path, x=self.x, y=self.y)
        with open(path, "r+b") as file:
            found = file.read().index(self.x[20000].tobytes())
            file.seek(found)
            file.write(b"\x01")
        return path

    def test_a_wrong_byte_of_a_stored_member_is_an_error_of_the_first_epoch_and_of_later_ones(self):
        path = self.damaged()
        for way in self.WAYS:
            with self.subTest(**way):
                opened = stowage.batches(path + ":x", 256, **way)
                for _ in range(2):
                    with self.assertRaisesRegex(stowage.StowageError, "damaged.npz: member x.npy.*wrong checksum"):
                        for _ in opened:
                            pass
                self.assertEqual(sum(map(len, stowage.batches(path + ":y", 256, **way))), self.rows)

    def test_a_rank_that_reads_a_share_does_not_check_it(self):
        path = self.damaged()
        shares = [stowage.batches(path + ":x", 256, rank=rank, world=2) for rank in range(2)]
        self.assertEqual(sum(len(batch) for share in shares for batch in share), self.rows)

    def test_a_whole_member_passes_in_every_order(self):
        path = self.path("whole.npz")
        np.savez(path, x=self.x)
        for way in self.WAYS:
            with self.subTest(**way):
                opened = stowage.batches(path + ":x", 256, **way)
                for _ in range(2):
                    self.assertEqual(sum(batch[:, 0].sum(dtype="f8") for batch in opened), self.y.sum())


class Rows(Case):
    def test_a_batch_larger_than_the_file_needs_no_more_memory_than_the_file(self):
        for size in (self.rows, self.rows + 1, 10**12):
            opened = stowage.batches(self.y_path, size, memory="8M")
            self.assertEqual([len(batch) for batch in opened], [self.rows])
            self.assertEqual(opened.state_dict()["batch_rows"], size)
        self.assertEqual(len(stowage.batches(self.y_path, self.rows + 1, drop_last=True, memory="8M")), 0)

    def test_every_row_once_and_files_in_step(self):
        for shuffle in (False, True):
            for size in (1000, 77):
                for memory in ("8M", "64M"):
                    seen = []
                    for x, y in stowage.batches([self.x_path, self.y_path], size, shuffle=shuffle, memory=memory):
                        self.assertEqual(x.shape, (len(y), 50))
                        np.testing.assert_array_equal(x, self.x[y])
                        seen.append(y)
                    seen = np.concatenate(seen)
                    self.assertEqual(np.array_equal(seen, self.y), not shuffle)
                    np.testing.assert_array_equal(np.sort(seen), self.y)

    def test_each_for_is_an_epoch_of_its_own(self):
        made = stowage.batches(self.y_path, 500, shuffle=True, seed=4)
        first, second = np.concatenate(list(made)), np.concatenate(list(made))
        self.assertFalse(np.array_equal(first, second))
        again = stowage.batches(self.y_path, 500, shuffle=True, seed=4)
        again.set_epoch(1)
        np.testing.assert_array_equal(np.concatenate(list(again)), second)
        for _ in made:
            break  # given up: the next one is a new epoch, from its first batch
        self.assertEqual(sum(len(batch) for batch in made), self.rows)

    def test_next_and_for_go_on_together(self):
        made = stowage.batches(self.y_path, 500)
        self.assertEqual(next(made)[0], 0)
        self.assertEqual(next(iter(made))[0], 500)

    def test_numpys_numbers_are_numbers(self):
        self.assertEqual(len(stowage.batches(self.y_path, np.int64(100), num_workers=np.int8(2))), -(-self.rows // 100))

    def test_len_and_drop_last(self):
        self.assertEqual(len(stowage.batches(self.y_path, 4096)), 8)
        made = stowage.batches(self.y_path, 4096, drop_last=True)
        self.assertEqual([len(batch) for batch in made], [4096] * 7)

    def test_types_are_converted_on_the_way(self):
        for batch in stowage.batches(self.x_path, 1000, dtype="float16"):
            self.assertEqual(batch.dtype, np.float16)
        made = stowage.batches({"x": self.x_path, "y": self.y_path}, 1000, dtype={"x": np.float32}, shuffle=True)
        for batch in made:
            self.assertEqual((batch["x"].dtype, batch["y"].dtype), (np.float32, np.int64))
            np.testing.assert_array_equal(batch["x"], self.x[batch["y"]].astype("f4"))

    def test_every_kind_of_number_and_order_comes_as_numpy_has_it(self):
        for kind in "? b B <h >h <H >H <i >i <I >I <q >q <Q >Q <e >e <f >f <d >d <F <D <U5 S3 V3 V16 <M8[ns]".split():
            for order in "CF":
                for shape in ((7,), (7, 3), (7, 3, 2)):
                    numbers = np.asarray(np.arange(np.prod(shape)).reshape(shape), order=order)
                    a = numbers.astype("S" + kind[1:]).view(kind) if kind[0] == "V" else numbers.astype(kind)
                    np.save(self.path("kind.npy"), a)
                    got = np.concatenate(list(stowage.batches(self.path("kind.npy"), 3, memory="8M")))
                    self.assertEqual(got.dtype.newbyteorder("="), a.dtype.newbyteorder("="))
                    np.testing.assert_array_equal(got, a)

    def test_members_and_raw(self):
        np.savez(self.path("stored.npz"), x=self.x, y=self.y)
        np.savez_compressed(self.path("deflated.npz"), x=self.x, y=self.y)
        self.x.tofile(self.path("x.bin"))
        for given, more in (
            (self.path("stored.npz:x"), {}),
            (self.path("deflated.npz:x"), {}),
            (self.path("x.bin"), dict(raw_dtype="float64", raw_shape=(self.rows, 50))),
        ):
            for shuffle in (False, True):
                total = sum(b.sum() for b in stowage.batches(given, 999, shuffle=shuffle, memory="8M", **more))
                self.assertEqual(total, self.x.sum())


    def test_datasets_of_hdf5(self):
        try:
            import h5py
        except ImportError:
            self.skipTest("h5py is not installed")
        with h5py.File(self.path("a.h5"), "w") as file:
            file.create_dataset("x", data=self.x, chunks=(500, 50), compression="gzip")
            file.create_dataset("y", data=self.y)
        try:
            for shuffle in (False, True):
                seen = []
                for x, y in stowage.batches([self.path("a.h5:x"), self.path("a.h5:y")], 700, shuffle=shuffle, memory="16M"):
                    np.testing.assert_array_equal(x, self.x[y])
                    seen.append(y)
                np.testing.assert_array_equal(np.sort(np.concatenate(seen)), self.y)
        except stowage.Unsupported as error:
            self.skipTest(str(error))

    @needs("h5py")
    def test_a_shuffle_of_hdf5_unpacks_each_chunk_once(self):
        import h5py

        with h5py.File(self.path("b.h5"), "w") as file:
            file.create_dataset("x", data=self.x, chunks=(1700, 50), compression="gzip", compression_opts=1)
            file.create_dataset("rows", data=np.zeros((64, 20_000), "f8"), chunks=(8, 20_000))  # large rows
        made = stowage.batches(self.path("b.h5:x"), 100, shuffle=True, memory="8M")
        self.assertEqual(made.info["block_rows"] % (1700 * 3), 0)  # 2 MB of chunks are read together
        self.assertGreater(made.info["window_rows"], 0)
        self.assertEqual(sum(len(x) for x in made), self.rows)
        made = stowage.batches(self.path("b.h5:rows"), 2, shuffle=True, memory="16M")
        self.assertEqual(made.info["block_rows"] % 8, 0)
        self.assertEqual(sum(len(x) for x in made), 64)

    @needs("h5py")
    def test_a_chunk_of_hdf5_is_bounded_by_memory_alone(self):
        import h5py

        with h5py.File(self.path("c.h5"), "w") as file:  # one chunk of 80 MB
            file.create_dataset("x", shape=(10_000, 1000), dtype="f8", chunks=(10_000, 1000), compression="gzip", compression_opts=1)
            file["x"][:] = 3
        self.assertEqual(sum(x.sum() for x in stowage.batches(self.path("c.h5:x"), 1000, memory="600M")), 3e7)
        with self.assertRaises(stowage.OutOfMemory) as caught:
            stowage.batches(self.path("c.h5:x"), 100, memory="64M")
        self.assertIn("--memory 458M", str(caught.exception))

    @needs("h5py")
    def test_hdf5_in_a_forked_child_and_in_threads(self):
        import threading

        import h5py

        with h5py.File(self.path("d.h5"), "w") as file:
            file.create_dataset("x", data=self.x, chunks=(500, 50), compression="gzip", compression_opts=1)
        opened = stowage.open(self.path("d.h5:x"))
        np.testing.assert_array_equal(opened[:10], self.x[:10])
        child = os.fork()
        if child == 0:
            os._exit(0 if np.array_equal(opened[5:2000], self.x[5:2000]) else 1)
        np.testing.assert_array_equal(opened[-10:], self.x[-10:])
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        np.testing.assert_array_equal(opened[:10], self.x[:10])
        wrong = []

        def read(number):
            mine = stowage.open(self.path("d.h5:x"))
            for first in range(number * 100, self.rows, 3000):
                if not np.array_equal(mine[first : first + 50], self.x[first : first + 50]):
                    wrong.append(first)

        threads = [threading.Thread(target=read, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Refusals(Case):
    def refused(self, kind, words, *given, **more):
        with self.assertRaises(kind) as caught:
            stowage.batches(*given, **more)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_what_is_wrong_is_reported(self):
        np.save(self.path("short.npy"), self.y[:-1])
        self.refused(ValueError, ["30000 rows", "29999"], [self.x_path, self.path("short.npy")])
        self.refused(ValueError, ["batch_size 0"], self.x_path, 0)
        self.refused(ValueError, ["rank 3 of 3"], self.x_path, rank=3, world=3)
        self.refused(ValueError, ["rank and world"], self.x_path, rank=0)
        self.refused(ValueError, ["rank 1.5 of 3"], self.x_path, rank=1.5, world=3)
        self.refused(ValueError, ["seed 1.5"], self.x_path, seed=1.5)
        self.refused(ValueError, ["batch_size 1180591620717411303424"], self.x_path, 1 << 70)
        self.refused(ValueError, ["num_workers"], self.x_path, num_workers="many")
        self.refused(ValueError, ["memory"], self.x_path, memory="8 apples")
        self.refused(MemoryError, ["the budget is"], self.x_path, 20000, memory="8M")
        self.refused(FileNotFoundError, ["nowhere"], self.path("nowhere.npy"))
        self.refused(TypeError, ["a path"], 17)
        self.refused(ValueError, ["16"], [self.x_path] * 17)
        with open(self.path("t.csv"), "w") as table:
            table.write("a,b\n1,2\n")
        self.refused(OSError, ["stowage shrink"], self.path("t.csv"))
        np.save(self.path("objects.npy"), np.array([{}, []], dtype=object))
        self.refused(stowage.StowageError, ["object"], self.path("objects.npy"))

    def test_closed_batches_say_so(self):
        made = stowage.batches(self.x_path, 100, shuffle=True)
        kept = next(made)
        first = kept.copy()
        made.close()
        made.close()
        self.assertIn("closed", repr(made))
        for use in (
            lambda: next(made),
            lambda: list(made),
            lambda: len(made),
            lambda: made.info,
            lambda: made.state_dict(),
            lambda: made.load_state_dict({}) or made.set_epoch(1),
            lambda: made.set_epoch(1),
            lambda: pickle.dumps(made),
        ):
            with self.assertRaises(ValueError):
                use()
        np.testing.assert_array_equal(kept, first)

    def test_a_file_cut_while_it_is_read(self):
        path = self.path("cut.npy")
        np.save(path, np.zeros((200000, 50)))
        made = iter(stowage.batches(path, 1000, memory="8M"))
        next(made)
        os.truncate(path, 40 << 20)
        with self.assertRaises(OSError) as caught:
            list(made)
        self.assertIn("truncated while being read", str(caught.exception))


class Resuming(Case):
    def test_a_state_continues_with_what_was_left(self):
        for more in (dict(), dict(shuffle=True), dict(shuffle=True, rank=1, world=3)):
            made = stowage.batches(self.y_path, 700, seed=9, memory="8M", **more)
            made.set_epoch(3)
            whole = [batch.copy() for batch in made]
            for point in range(0, len(whole) + 1, 5):
                made.set_epoch(3)
                for _ in range(point):
                    next(made)
                state = pickle.loads(pickle.dumps(made.state_dict()))
                other = stowage.batches(self.y_path, 700, memory="16M", **more)
                other.load_state_dict(state)
                left = list(other)
                self.assertEqual(len(left), len(whole) - point)
                for a, b in zip(left, whole[point:]):
                    np.testing.assert_array_equal(a, b)

    def test_another_state_is_refused(self):
        made = stowage.batches(self.y_path, 700)
        state = dict(made.state_dict(), rows=5)
        with self.assertRaises(ValueError):
            made.load_state_dict(state)
        with self.assertRaises(ValueError):
            made.load_state_dict({"rows": 5})

    def test_batches_can_be_pickled(self):
        made = stowage.batches(self.y_path, 700, shuffle=True)
        next(made)
        other = pickle.loads(pickle.dumps(made))
        np.testing.assert_array_equal(next(other), next(made))


class Shards(Case):
    def test_ranks_share_everything_and_nothing_twice(self):
        for shuffle in (False, True):
            seen = [
                np.concatenate(list(stowage.batches(self.y_path, 64, shuffle=shuffle, rank=r, world=4, memory="8M")))
                for r in range(4)
            ]
            np.testing.assert_array_equal(np.sort(np.concatenate(seen)), self.y)
            self.assertLessEqual(max(map(len, seen)) - min(map(len, seen)), 1)

    def test_shares_are_drawn_anew_in_each_epoch(self):
        path, rows, world = self.path("few.npy"), 3000, 3
        np.save(path, np.arange(rows)[:, None] * np.ones((1, 4), np.int64))
        for shuffle in (True, "disk"):
            ranks = [stowage.batches(path, 100, shuffle=shuffle, seed=1, rank=r, world=world, memory="8M") for r in range(world)]
            seen = [set() for _ in ranks]
            for _ in range(4):
                shares = [np.concatenate([batch[:, 0] for batch in made]) for made in ranks]
                np.testing.assert_array_equal(np.sort(np.concatenate(shares)), np.arange(rows))
                for rank, share in zip(seen, shares):
                    rank.update(share.tolist())
                    self.assertLess(abs(share.mean() - rows / 2), 150)  # from everywhere in the file
            for rank in seen:
                self.assertLess(abs(len(rank) / rows - (1 - (2 / 3) ** 4)), 0.04)

    def test_the_quality_of_a_rank_is_that_of_its_share(self):
        path, rows = self.path("more.npy"), 80000  # 20 MB
        np.save(path, np.arange(rows, dtype=np.float32)[:, None] * np.ones((1, 64), np.float32))
        for memory in ("8M", "64M"):
            made = stowage.batches(path, 256, shuffle=True, rank=1, world=4, memory=memory, drop_last=True)
            classes = [len(set((batch[:, 0].astype(int) * 1000 // rows).tolist())) for batch in made]
            self.assertLess(abs(np.mean(classes) / 226 - made.shuffle_quality), 0.06)
            self.assertGreater(made.shuffle_quality, 0.85)

    def test_a_state_with_other_blocks_is_for_its_epoch_only(self):
        def opened(rank):
            return stowage.batches(self.y_path, 100, shuffle=True, seed=1, rank=rank, world=2, memory="8M")

        rest = []
        for rank in range(2):
            made = opened(rank)
            made.load_state_dict(dict(made.state_dict(), block_rows=8192))  # as an earlier version saved it
            rest += [v for batch in made for v in batch.tolist()]
            again = opened(rank)
            again.set_epoch(1)
            for one, other in zip(made, again):
                np.testing.assert_array_equal(one, other)
        self.assertEqual(sorted(rest), list(range(self.rows)))

    @in_turn(2)
    def test_the_environment_names_the_rank(self):
        code = "import stowage, sys; print(sum(int(b.sum()) for b in stowage.batches(sys.argv[1], 100)))"
        for rank, world in (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"),
                            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")):
            total = 0
            for r in range(3):
                env = dict(os.environ, **{rank: str(r), world: "3"})
                env["PYTHONPATH"] = os.pathsep.join(sys.path)
                total += int(subprocess.run([sys.executable, "-c", code, self.y_path], env=env, check=True,
                                            capture_output=True, text=True).stdout)
            self.assertEqual(total, int(self.y.sum()))


class Buffers(Case):
    def test_kept_batches_stay_as_they_were(self):
        for shuffle in (False, True):
            kept = list(stowage.batches([self.x_path, self.y_path], 100, shuffle=shuffle, memory="8M"))
            gc.collect()
            for x, y in kept:
                np.testing.assert_array_equal(x, self.x[y])

    def test_arrays_outlive_the_batches(self):
        with stowage.batches(self.x_path, 100) as made:
            first = next(made)
            view = first[3:5]
        del first
        gc.collect()
        np.testing.assert_array_equal(view, self.x[3:5])
        with self.assertRaises(ValueError):
            next(made)

    def test_arrays_are_the_librarys_memory_and_can_be_written(self):
        batch = next(stowage.batches(self.x_path, 100))
        self.assertFalse(batch.flags.owndata)
        self.assertTrue(batch.flags.writeable)
        self.assertEqual(batch.ctypes.data % 64, 0)
        batch += 1  # the caller's own until it is gone
        np.testing.assert_array_equal(batch, self.x[:100] + 1)

    def test_memory_does_not_grow_with_epochs_or_with_kept_labels(self):
        code = """
import numpy, os, stowage, sys
def resident():
    with open("/proc/self/status") as f:
        return next(int(l.split()[1]) for l in f if l.startswith("VmRSS:")) >> 10
made = stowage.batches(sys.argv[1:3], 500, shuffle=True, memory="8M")
labels = [y for x, y in made]  # keeps the labels, not the features
before = resident()
for _ in range(20):
    labels = [y for x, y in made]
print(resident() - before)
"""
        env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        grown = subprocess.run([sys.executable, "-c", code, self.x_path, self.y_path], env=env, check=True,
                               capture_output=True, text=True).stdout
        self.assertLess(int(grown), 6)  # MiB; the features are 12 an epoch


def whole(path):
    with open(path, "rb") as file:
        return file.read()


class Failing(io.BytesIO):
    reads, failures, reason = 0, 1, ConnectionError("the line went dead")

    def read(self, *given):
        self.reads += 1
        if 20 <= self.reads < 20 + self.failures:
            raise self.reason
        return super().read(*given)


class FileObjects(Case):
    def test_any_file_that_seeks(self):
        with open(self.x_path, "rb") as file:
            for given in (file, io.BytesIO(whole(self.x_path))):
                for shuffle in (False, True):
                    total = sum(batch.sum() for batch in stowage.batches(given, 777, shuffle=shuffle, memory="8M"))
                    self.assertEqual(total, self.x.sum())

    def test_the_attributes_of_a_file_are_its_own(self):
        class Download(io.BytesIO):
            member, address, raw_dtype, raw_shape = "gold", None, "float16", None

        np.testing.assert_array_equal(stowage.open(Download(whole(self.x_path)))[5:10], self.x[5:10])

    def failures_of(self, file, kind):
        made = stowage.batches(file, 500, memory="8M")
        total, failures = 0, 0
        while True:
            try:
                total += len(next(made))
            except StopIteration:
                break
            except OSError as error:
                failures += 1
                self.assertIsInstance(error.__cause__, kind)
        self.assertEqual(total, self.rows)
        return failures

    def test_an_interrupt_in_a_read_ends_the_call_and_leaves_nothing(self):
        class Interrupted(io.BytesIO):
            def read(self, size=-1):
                reads[0] += 1
                if reads[0] > allowed:
                    raise KeyboardInterrupt
                return super().read(size)

        with open(self.x_path, "rb") as file:
            content = file.read()
        threads = len(os.listdir("/proc/self/task"))
        with tempfile.TemporaryDirectory() as scratch:
            for way in ({}, {"shuffle": True}, {"shuffle": "disk", "scratch": scratch}, {"num_workers": 1}):
                for allowed in (0, 1, 3, 5):
                    with self.subTest(allowed=allowed, **way):
                        reads = [0]
                        with self.assertRaises(KeyboardInterrupt):
                            with stowage.batches(Interrupted(content), 500, memory="4M", **way) as opened:
                                for _ in opened:
                                    pass
                        opened = None
                        gc.collect()
                        self.assertEqual(os.listdir(scratch), [])
                        self.assertEqual(len(os.listdir("/proc/self/task")), threads)
            allowed, reads = 3, [0]
            opened = stowage.open(Interrupted(content))
            with self.assertRaises(KeyboardInterrupt):
                for first in range(0, self.rows, 100):
                    opened[first : first + 100]
            allowed = 1 << 30
            np.testing.assert_array_equal(opened[5:10], self.x[5:10])  # and can be used on
            opened.close()

    def test_a_read_that_fails_is_tried_again(self):
        self.assertEqual(self.failures_of(Failing(whole(self.x_path)), ConnectionError), 0)

    def test_its_own_error_is_shown_and_the_batch_tried_again(self):
        file = Failing(whole(self.x_path))
        file.failures = 4
        self.assertEqual(self.failures_of(file, ConnectionError), 1)
        file = Failing(whole(self.x_path))
        file.reason = PermissionError("not yours")  # asking again would not help
        self.assertEqual(self.failures_of(file, PermissionError), 1)

    def test_closing_waits_for_the_read_under_way_and_no_other(self):
        class Slow(io.BytesIO):
            reads, may_go_on = 0, threading.Event()

            def read(self, *given):
                self.reads += 1
                self.may_go_on.wait(60)
                return super().read(*given)

        file = Slow(whole(self.x_path))
        file.may_go_on.set()
        made = stowage.batches(file, 100, num_workers=8)
        next(made)
        file.may_go_on.clear()
        closing = threading.Thread(target=made.close)
        closing.start()
        while not made._origins[0].reader.stopped:
            pass
        begun = file.reads
        file.may_go_on.set()
        closing.join(60)
        self.assertFalse(closing.is_alive())
        self.assertEqual(file.reads, begun)

    def test_what_fsspec_opens_is_opened(self):
        class OpenFile:  # fsspec's: no file object yet
            mode = "rb"

            def open(inner):
                return open(self.y_path, "rb")

        got = np.concatenate([batch.copy() for batch in stowage.batches(OpenFile(), 1000)])
        np.testing.assert_array_equal(got, self.y)
        np.testing.assert_array_equal(stowage.open(OpenFile())[5:9], self.y[5:9])

    def test_addresses_of_other_stores_are_for_fsspec(self):
        for address in ("s3://bucket/x.npy", "gs://bucket/x.npy", "filecache::s3://bucket/x.npy"):
            with self.assertRaises(stowage.Invalid) as caught:
                stowage.batches(address)
            self.assertIn("fsspec.open", str(caught.exception))


class Fuse(Case):
    """A file system in user space, as Drive is in Colab: bindfs shows a folder through one."""

    def test_files_through_fuse(self):
        if shutil.which("bindfs") is None:
            self.skipTest("bindfs is not installed")
        with tempfile.TemporaryDirectory() as seen:
            mounted = subprocess.run(["bindfs", self.folder.name, seen], capture_output=True, text=True, timeout=30)
            if mounted.returncode != 0:
                self.skipTest(f"this machine mounts nothing: {mounted.stderr.strip()[:200]}")
            try:
                paths = [os.path.join(seen, "x.npy"), os.path.join(seen, "y.npy")]
                for shuffle in (False, True):
                    rows = []
                    for x, y in stowage.batches(paths, 777, shuffle=shuffle, memory="8M"):
                        np.testing.assert_array_equal(x, self.x[y])
                        rows.append(y)
                    np.testing.assert_array_equal(np.sort(np.concatenate(rows)), self.y)
                with stowage.open(paths[0]) as lazy:
                    np.testing.assert_array_equal(lazy[5:9, 3], self.x[5:9, 3])
                del x, y
            finally:
                subprocess.run(["umount", seen], timeout=30)


class SimulatedDevice:
    """Replaces a GPU with torch or CuPy by the simulated device: arrays are NumPy arrays over its memory."""

    index, stream = 0, None

    def __init__(self):
        self.heap = stowage.heap("sim:256M")
        library = lib()
        library.stow_heap_device.restype = ctypes.c_void_p
        self.device = ctypes.c_void_p(library.stow_heap_device(self.heap.handle))
        self.given = 0

    def kind(self, dtype, _is_bfloat16):
        return dtype

    def empty(self, shapes, kinds):
        made = []
        for shape, kind in zip(shapes, kinds):
            block = self.heap.block(max(1, int(np.prod(shape)) * kind.itemsize))
            raw = (ctypes.c_ubyte * block.nbytes).from_address(block.address)
            raw.block = block
            made.append(np.frombuffer(raw, kind, int(np.prod(shape))).reshape(shape))
        return made, [array.ctypes.data for array in made]

    def mark(self):
        return self.heap

    def hand_over(self, _arrays, _done):
        lib().stow_sim_advance(self.device, ctypes.c_uint64(1_000_000))
        self.given += 1


class Device(Case):
    def batches(self, device, *words, **more):
        stowage.batches  # the module behind it is there now
        module = sys.modules["stowage.batches"]
        with mock.patch("stowage._gpu._open_gpu", lambda _: device), mock.patch.object(
            module, "device_handle", lambda _: device.device
        ):
            return stowage.batches(*words, device="cuda", **more)

    def test_batches_arrive_whole_and_in_step(self):
        device = SimulatedDevice()
        for shuffle in (False, True):
            b = self.batches(device, [self.x_path, self.y_path], 700, shuffle=shuffle, memory="8M")
            for _ in range(2):
                seen = []
                for x, y in b:
                    np.testing.assert_array_equal(x, self.x[y])
                    seen += y.tolist()
                self.assertEqual(len(x), len(self.x) % 700)  # the last one is short
                self.assertEqual(sorted(seen), list(range(len(self.x))))
                if not shuffle:
                    self.assertEqual(seen, sorted(seen))
            b.close()

    def test_the_state_counts_what_was_given_not_what_was_sent(self):
        device = SimulatedDevice()
        b = self.batches(device, self.y_path, 100, shuffle=True, memory="8M")
        want = [batch.tolist() for batch in b]
        b.set_epoch(0)
        for i in range(5):
            self.assertEqual(next(b).tolist(), want[i])
        self.assertEqual(b.state_dict()["next_batch"], 5)
        again = self.batches(device, self.y_path, 100, shuffle=True, seed=5, memory="8M")
        again.load_state_dict(b.state_dict())
        self.assertEqual([batch.tolist() for batch in again], want[5:])
        b.set_epoch(0)
        self.assertEqual(next(b).tolist(), want[0])

    def test_given_up_half_way_nothing_stays_on_the_device(self):
        device = SimulatedDevice()
        for i in range(6):
            b = self.batches(device, [self.x_path, self.y_path], 700, memory="8M")
            for _ in range(i % 3):
                next(b)
            if i % 2:
                b.close()
                with self.assertRaises(ValueError):
                    next(b)
            del b
        gc.collect()
        self.assertEqual(device.heap.stats()["live_bytes"], 0)


class Types(Case):
    def test_a_value_that_does_not_fit_is_named(self):
        np.save(self.path("a.npy"), np.array([[100, 2], [3, 200], [70000, 4]]))
        for shuffle in (False, True, "window", "disk"):
            with self.assertRaises(stowage.Invalid) as caught:
                list(stowage.batches(self.path("a.npy"), 3, dtype="int8", shuffle=shuffle))
            self.assertIn("does not fit int8", str(caught.exception))
        with self.assertRaises(stowage.Invalid) as caught:
            stowage.open(self.path("a.npy"), dtype="float16")[1:]
        self.assertIn("row 2: 70000", str(caught.exception))
        self.assertEqual(stowage.open(self.path("a.npy"), dtype="int16")[:2].tolist(), [[100, 2], [3, 200]])
        self.assertEqual(stowage.open(np.asfortranarray([[0.5, np.nan], [np.inf, -1.7]]), dtype="float16")[1].tolist(), [float("inf"), float(np.float16(-1.7))])
        for value, dtype in ((np.nan, "int32"), (np.inf, "int64"), (1e300, "float32"), (-1.5, "uint8"), (128.5, "int8")):
            with self.assertRaises(stowage.Invalid):
                list(stowage.batches(np.array([0.0, value]), 2, dtype=dtype))
        self.assertEqual(next(stowage.batches(np.array([127.9, -128.9, 0.1]), 3, dtype="int8")).tolist(), [127, -128, 0])

    def test_bfloat16_is_read_as_numbers(self):
        np.array([0x3F80, 0x4000, 0xC040], dtype="u2").tofile(self.path("b.bin"))
        for made in (next(stowage.batches(self.path("b.bin"), 3, raw_dtype="bfloat16")), stowage.open(self.path("b.bin"), raw_dtype="bfloat16")[:],
                     next(stowage.batches({"x": stowage.open(self.path("b.bin"), raw_dtype="bfloat16")}, 3))["x"]):
            self.assertEqual(made.astype("float64").tolist(), [1.0, 2.0, -3.0])
        if np.dtype(made.dtype) == np.float32:  # without ml_dtypes
            with self.assertRaises(stowage.Missing) as caught:
                stowage.open(self.path("b.bin"), dtype="bfloat16", raw_dtype="float16")
            self.assertIn("ml_dtypes", str(caught.exception))

    def test_a_parquet_file_gets_its_own_command(self):
        with open(self.path("p.parquet"), "wb") as file:
            file.write(b"PAR1" + bytes(100) + b"PAR1")
        with self.assertRaises(stowage.StowageError) as caught:
            stowage.batches(self.path("p.parquet"))
        self.assertIn(f"stowage shrink {self.path('p.parquet')} -o {self.path('p.npz')}", str(caught.exception))


class DiskMemory(Case):
    def test_the_copy_of_a_shuffle_stays_in_the_budget(self):
        np.save(self.path("m.npy"), np.zeros((50_000, 256), "f4"))
        np.save(self.path("few.npy"), np.zeros((10, 4), "f4"))
        code = (
            "import re, sys, numpy as np, stowage\n"
            "peak = lambda: int(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read()).group(1)) / 1024\n"
            "list(stowage.batches(sys.argv[3], 2, shuffle='disk', memory='16M')); before = peak()\n"  # the code of the shuffle is in memory
            "rows = sum(len(x) for x in stowage.batches(sys.argv[1], 256, shuffle='disk', memory=sys.argv[2] + 'M'))\n"
            "print(rows, peak() - before)\n"
        )
        for budget in ("16", "32"):
            done = subprocess.run([sys.executable, "-c", code, self.path("m.npy"), budget, self.path("few.npy")], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
            self.assertEqual(done.returncode, 0, done.stderr)
            rows, used = done.stdout.split()
            self.assertEqual(int(rows), 50_000)
            self.assertLess(float(used), float(budget) + 1)  # and objects of Python; it was 27 and 41


@unittest.skipIf(torch is None, "torch is not installed")
class Torch(Case):
    def test_tensors_without_a_copy(self):
        for x, y in stowage.batches([self.x_path, self.y_path], 1000, device="cpu", shuffle=True):
            self.assertIsInstance(x, torch.Tensor)
            np.testing.assert_array_equal(x.numpy(), self.x[y.numpy()])
        array = next(stowage.batches(self.x_path, 10))
        tensor = torch.from_dlpack(array) if hasattr(array, "__dlpack__") else torch.from_numpy(array)
        self.assertEqual(tensor.data_ptr(), array.ctypes.data)

    def test_a_device_that_is_not_there_is_named(self):
        if torch.cuda.is_available():
            self.skipTest("there is a device")
        with self.assertRaises(NotImplementedError) as caught:
            next(stowage.batches(self.x_path, 10, device="cuda"))
        self.assertIn("needs a GPU", str(caught.exception))

    def test_a_heap_without_a_device_is_refused(self):
        with stowage.heap("sim:64M") as heap, self.assertRaises(NotImplementedError) as caught:
            stowage.batches(self.x_path, 10, device=heap)
        self.assertIn("simulated device", str(caught.exception))

    def test_bfloat16(self):
        np.array([0x3F80, 0x4000, 0xC040], dtype="u2").tofile(self.path("b.bin"))
        tensor = next(stowage.batches(self.path("b.bin"), 3, raw_dtype="bfloat16", device="cpu"))
        self.assertEqual(tensor.dtype, torch.bfloat16)
        self.assertEqual(tensor.float().tolist(), [1.0, 2.0, -3.0])

    def test_a_data_loader_takes_them(self):
        from torch.utils.data import DataLoader

        for workers in (0, 2):
            made = stowage.batches([self.x_path, self.y_path], 500, shuffle=True)
            loader = DataLoader(made, batch_size=None, num_workers=workers)
            seen = torch.cat([y.clone() for _, y in loader])
            np.testing.assert_array_equal(torch.sort(seen).values.numpy(), self.y)

    def test_each_for_over_a_loader_with_workers_is_another_epoch(self):
        from torch.utils.data import DataLoader

        made = stowage.batches(self.y_path, 5000, shuffle=True, seed=1)
        loader = DataLoader(made, batch_size=None, num_workers=2)

        def epoch():
            return np.concatenate([np.asarray(batch) for batch in loader])

        first, second = epoch(), epoch()
        self.assertFalse(np.array_equal(first, second))
        np.testing.assert_array_equal(np.sort(second), self.y)
        made.set_epoch(0)
        np.testing.assert_array_equal(epoch(), first)
        np.testing.assert_array_equal(epoch(), second)
        list(made)  # in this process: the epoch after those
        self.assertEqual(made.state_dict()["epoch"], 2)
        made.set_epoch(4)
        taken = next(made).tolist()
        self.assertEqual(sorted(taken + epoch().tolist()), list(range(self.rows)))  # what remains


if __name__ == "__main__":
    unittest.main()
