"""stowage.records and batches of them: folders, tar shards, lines, tokens; hostile tars; arrays in memory; object stores."""

import io
import os
import pickle
import tarfile
import tempfile
import threading
import unittest
from unittest import mock

try:
    import numpy as np
except ImportError:
    raise unittest.SkipTest("numpy is not installed")

from support import needs

import stowage

CLEARED = ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        for name in CLEARED:
            os.environ.pop(name, None)

    def path(self, *names):
        path = os.path.join(self.folder.name, *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def write(self, name, data):
        with open(self.path(*name.split("/")), "wb") as file:
            file.write(data)
        return self.path(*name.split("/"))

    def check_order(self, source, count, name_of):
        """Every record once, in order and shuffled; over ranks; resumed; continued by another world."""
        everything = [name_of(record) for batch in stowage.batches(source, 7, memory="8M") for record in batch]
        self.assertEqual(len(set(everything)), count)
        self.assertEqual(len(everything), count)
        for shuffle in (True, "disk"):
            made = stowage.batches(source, 7, shuffle=shuffle, seed=3, memory="8M")
            whole = [name_of(record) for batch in made for record in batch]
            self.assertEqual(sorted(whole), sorted(everything))
            self.assertNotEqual(whole, everything)
            made.set_epoch(0)
            for _ in range(4):
                next(made)
            other = stowage.batches(source, 7, shuffle=shuffle, memory="8M")
            other.load_state_dict(pickle.loads(pickle.dumps(made.state_dict())))
            self.assertEqual([name_of(record) for batch in other for record in batch], whole[28:])
            # Three ranks begin, two go on with batches of another size.
            seen, state = [], None
            for rank in range(3):
                begun = stowage.batches(source, 5, shuffle=shuffle, rank=rank, world=3, memory="8M")
                seen += [name_of(record) for _ in range(2) for record in next(begun)]
                state = begun.state_dict()
            for rank in range(2):
                left = stowage.batches(source, 4, shuffle=shuffle, rank=rank, world=2, memory="8M")
                left.load_state_dict(state)
                seen += [name_of(record) for batch in left for record in batch]
            self.assertEqual(sorted(seen), sorted(everything))
        return everything


class Files(Case):
    def test_files_of_a_folder(self):
        for i in range(60):
            self.write(f"images/{'cat' if i % 2 else 'dog'}/{i:03}.jpg", b"%d:" % i + b"x" * i * 7)
        self.write("images/.hidden/1.jpg", b"no")
        self.write("images/dog/.DS_Store", b"no")
        self.write("images/readme.txt", b"no image")
        source = stowage.records(self.path("images"), pattern="*.jpg")
        self.assertEqual((len(source), source.kind), (60, "files"))
        names = self.check_order(source, 60, lambda record: record.name)
        self.assertEqual(names[:2], ["cat/001.jpg", "cat/003.jpg"])
        batch = next(stowage.batches(self.path("images"), 4, memory="8M"))  # a folder is records
        self.assertEqual([record[:2] for record in batch], [b"no", b"1:", b"3:", b"5:"])
        self.assertIsInstance(batch[0], bytes)

    def test_a_function_makes_arrays(self):
        for i in range(20):
            self.write(f"in/{i:02}.bin", np.full(6, i, "<u2").tobytes())

        def decode(record):
            return np.frombuffer(record, "<u2").reshape(2, 3)

        labels = np.arange(20) * 10
        made = stowage.batches({"x": self.path("in"), "y": labels}, 8, shuffle=True, memory="8M", decode={"x": decode})
        seen = []
        for batch in made:
            self.assertEqual((batch["x"].shape[1:], batch["x"].dtype), ((2, 3), np.uint16))
            np.testing.assert_array_equal(batch["x"][:, 0, 0] * 10, batch["y"])
            seen += batch["y"].tolist()
        self.assertEqual(sorted(seen), labels.tolist())
        sizes = next(stowage.batches(self.path("in"), 4, memory="8M", decode=len))
        self.assertEqual(sizes.tolist(), [12] * 4)
        texts = next(stowage.batches(self.path("in"), 2, memory="8M", decode=lambda record: record.name))
        self.assertEqual(texts, ["00.bin", "01.bin"])
        self.assertRaises(stowage.Invalid, stowage.batches, labels, decode=len)

    def test_an_error_of_the_function_is_the_callers_and_the_batch_is_tried_again(self):
        for i in range(6):
            self.write(f"in/{i}.bin", b"x")
        fails = [True]

        def decode(record):
            if record.name == "3.bin" and fails.pop() if fails else False:
                raise KeyError("no such label")
            return record.name

        made = stowage.batches(self.path("in"), 2, memory="8M", decode=decode, num_workers=1)
        self.assertEqual(next(made), ["0.bin", "1.bin"])
        with self.assertRaises(KeyError):
            next(made)
        self.assertEqual(list(made), [["2.bin", "3.bin"], ["4.bin", "5.bin"]])

    def test_a_batch_larger_than_the_budget_says_what_would_do(self):
        for i in range(3):
            self.write(f"in/{i}.bin", bytes(4 << 20))
        made = stowage.batches(self.path("in"), 3, memory="8M")
        with self.assertRaises(MemoryError) as caught:
            next(made)
        self.assertIn("17.0 MiB", str(caught.exception))
        self.assertEqual(sum(len(batch) for batch in stowage.batches(self.path("in"), 3, memory="17M")), 3)

    def test_files_that_change_or_go_are_named(self):
        for i in range(4):
            self.write(f"in/{i}.bin", b"12345")
        source = stowage.records(self.path("in"))
        self.write("in/2.bin", b"123456")
        with self.assertRaises(OSError) as caught:
            list(stowage.batches(source, 1, memory="8M"))
        self.assertIn("2.bin", str(caught.exception))
        os.makedirs(self.path("empty", "sub"))
        for given in (self.path("empty"), [], self.path("nothing-*")):
            self.assertRaises(ValueError if given != self.path("nothing-*") else FileNotFoundError, stowage.records, given, "files")
        self.assertRaises(stowage.Invalid, stowage.records, self.path("in"), "pictures")

    def test_in_a_torch_loader_and_pickled(self):
        for i in range(5):
            self.write(f"in/{i}.bin", b"%d" % i)
        made = stowage.batches(self.path("in"), 2, memory="8M")
        next(made)
        again = pickle.loads(pickle.dumps(made))
        self.assertEqual(next(again), next(made))

    @needs("torch")
    def test_spawned_workers_of_a_loader_read_their_shares(self):
        import torch.utils.data

        for i in range(10):
            self.write(f"in/{i}.bin", b"%d" % i)
        made = pickle.dumps(stowage.batches(self.path("in"), 3, memory="8M", decode=int))
        seen = []
        for number in range(2):
            worker = mock.Mock(id=number, num_workers=2)
            with mock.patch("torch.utils.data.get_worker_info", return_value=worker):
                seen += [int(n) for batch in pickle.loads(made) for n in batch]
        self.assertEqual(sorted(seen), list(range(10)))


class Lines(Case):
    def test_lines_are_pythons(self):
        rng = np.random.default_rng(2)
        for round_ in range(30):
            data = bytes(rng.choice(np.frombuffer(b"ab\n\r \xff", np.uint8), size=rng.integers(1, 300)))
            path = self.write(f"{round_}.txt", data)
            want = [line[:-1] if line.endswith(b"\r") else line for line in data.split(b"\n")]
            if data.endswith(b"\n"):
                want.pop()
            elif want[-1] == b"" or data.split(b"\n")[-1].endswith(b"\r"):
                want[-1] = data.split(b"\n")[-1]  # no line end: \r is part of the line
            got = [line for batch in stowage.batches(path, 9, memory="8M") for line in batch]
            self.assertEqual(got, want)

    def test_shards_are_one_after_another(self):
        for shard in range(3):
            self.write(f"part-{shard}.log", b"".join(b"%d-%03d %s\r\n" % (shard, i, b"w" * (i % 11)) for i in range(50)))
        source = stowage.records(self.path("part-*.log"), "lines")
        lines = self.check_order(source, 150, lambda line: line.split()[0])
        self.assertEqual(lines[49:51], [b"0-049", b"1-000"])
        self.assertRaises(stowage.Invalid, stowage.records, self.path("part-0.log"))  # says that kind= is needed

    def test_a_line_end_at_the_border_of_a_chunk(self):
        from stowage import _records

        chunk = _records._CHUNK_BYTES
        for first in (chunk - 2, chunk - 1, chunk):
            data = b"a" * first + b"\r\n" + b"b" * 5
            path = self.write("long.txt", data)
            got = [line for batch in stowage.batches(path, 1, memory="32M") for line in batch]
            self.assertEqual([len(line) for line in got], [first, 5])

    def test_compressed_text_is_refused(self):
        import gzip

        path = self.write("x.txt", gzip.compress(b"a\nb\n"))
        self.assertRaises(stowage.Unsupported, stowage.records, path)

    def test_a_file_that_changed_is_refused(self):
        path = self.write("x.txt", b"a\nb\n")
        source = stowage.records(path)
        self.write("x.txt", b"a\nbb\n")
        self.assertRaises(OSError, next, stowage.batches(source, 2, memory="8M"))


def pack(members, format=tarfile.GNU_FORMAT):
    """A tar of (name, bytes) in memory."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            if data is None:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
                continue
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def header(name=b"a.txt", size=b"00000000000\0", kind=b"0"):
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    block[124:136] = size
    block[156:157] = kind
    block[257:265] = b"ustar\00000"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


class Tars(Case):
    def test_samples_of_shards(self):
        long = "deep/" * 40
        for shard, format in enumerate((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT)):
            prefix = long if format != tarfile.USTAR_FORMAT else "deep/" * 20
            members = [("./", None)] + [
                (f"{prefix}{shard}_{i:03}.{ext}", b"%s %d %d" % (ext.encode(), shard, i) * (i + 1))
                for i in range(20)
                for ext in ("jpg", "cls", "seg.png")
            ]
            self.write(f"shard-{shard}.tar", pack(members, format))
        source = stowage.records(self.path("shard-*.tar"))
        self.assertEqual((len(source), source.kind), (60, "tar"))
        self.check_order(source, 60, lambda sample: sample["__key__"])
        sample = next(stowage.batches(source, 60, memory="8M"))[25]
        self.assertEqual(sorted(sample), ["__key__", "cls", "jpg", "seg.png"])
        self.assertEqual(sample["__key__"], f"{long}1_005")
        self.assertEqual(sample["seg.png"], b"seg.png 1 5" * 6)

    def test_samples_are_those_of_tarfile(self):
        rng = np.random.default_rng(4)
        for round_ in range(20):
            members, keys = [], int(rng.integers(1, 15))
            for i in range(keys):
                for ext in rng.permutation(["jpg", "json", "txt", "SEG.png"])[: rng.integers(1, 5)]:
                    members.append((f"d{i % 3}/k{i}.{ext}", bytes(rng.integers(0, 256, rng.integers(0, 2000), dtype=np.uint8))))
            path = self.write("x.tar", pack(members, int(rng.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))))
            want = {}
            for name, data in members:
                key, _, ext = name.partition(".")
                want.setdefault(key, {"__key__": key})[ext.lower()] = data
            got = [sample for batch in stowage.batches(path, 4, memory="8M") for sample in batch]
            self.assertEqual(got, list(want.values()))

    def test_batches_take_a_pattern_or_a_list_of_shards(self):
        for number in range(3):
            path = self.write(f"s-{number}.tar", pack([(f"{number}{i}.cls", b"%d" % i) for i in range(5)], tarfile.GNU_FORMAT))
        pattern = path.replace("s-2", "s-*")
        want = [f"{number}{i}" for number in range(3) for i in range(5)]
        for given in (pattern, [[pattern]], {"x": [path.replace("s-2", f"s-{number}") for number in range(3)]}):
            got = []
            for batch in stowage.batches(given, 4, memory="8M"):
                got += batch if isinstance(batch, list) else batch["x"] if isinstance(batch, dict) else batch[0]
            self.assertEqual([sample["__key__"] for sample in got], want)

    def test_hostile_tars_are_refused_and_allocate_nothing(self):
        import resource

        end = bytes(1024)
        good = header(b"k.txt", b"00000000003\0") + b"abc".ljust(512, b"\0")
        huge = b"\x80" + (1 << 60).to_bytes(11, "big")
        pax = b"30 size=99999999999999999999999\n"
        cases = {
            "up": good + header(b"../../etc/passwd.txt") + end,
            "inside": good + header(b"a/../b.txt") + end,
            "absolute": header(b"/etc/passwd.txt") + end,
            "cut in the data": header(b"k.txt", b"00000001000\0") + b"abc",
            "cut in a header": good + header()[:100],
            "no end": good,
            "octal size": header(b"k.txt", b"77777777777\0") + end,
            "binary size": header(b"k.txt", huge) + end,
            "negative size": header(b"k.txt", b"\xff" * 12) + end,
            "size is no number": header(b"k.txt", b"zzzzzzzzzzz\0") + end,
            "long name of 1 GiB": header(b"L", b"10000000000\0", b"L") + end,
            "long name of 2 MiB": header(b"L", b"00010000000\0", b"L") + bytes(2 << 20) + end,
            "pax size": header(b"x", b"%011o\0" % len(pax), b"x") + pax.ljust(512, b"\0") + header(b"k.txt") + end,
            "pax record": header(b"x", b"00000000005\0", b"x") + b"999 a".ljust(512, b"\0") + header(b"k.txt") + end,
            "sparse": header(b"k.txt", kind=b"S") + end,
            "twice": good + good + end,
            "checksum": good[:200] + b"x" + good[201:] + end,
            "no tar": b"\x89PNG" + bytes(range(256)) * 8,
            "gzip": b"\x1f\x8b" + bytes(2000),
            "empty": b"",
        }
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for name, data in cases.items():
            path = self.write("x.tar", data)
            with self.assertRaises((OSError, ValueError, NotImplementedError), msg=name) as caught:
                stowage.records(path)
            self.assertIn(path, str(caught.exception), name)
            self.assertIsInstance(caught.exception, stowage.StowageError, name)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 64 << 10)  # KiB

    def test_every_damaged_byte_is_refused_or_harmless(self):
        whole = pack([(f"k{i}.{ext}", b"%d" % i * 50) for i in range(4) for ext in ("a", "b")], tarfile.PAX_FORMAT)
        rng = np.random.default_rng(1)
        refused = 0
        for _ in range(120):
            data = bytearray(whole[: rng.integers(1, len(whole))] if rng.random() < 0.3 else whole)
            for at in rng.integers(0, len(data), 3):
                data[at] = rng.integers(0, 256)
            path = self.write("x.tar", bytes(data))
            try:
                for batch in stowage.batches(stowage.records(path, "tar"), 2, memory="8M"):
                    self.assertTrue(all(len(value) <= len(whole) for sample in batch for value in sample.values()))
            except stowage.StowageError:
                refused += 1
        self.assertGreater(refused, 20)


class TokenFiles(Case):
    def test_sequences_of_several_files(self):
        want = []
        for i, count in enumerate((1000, 37, 640)):
            tokens = (np.arange(count) + i * 2000).astype("<u2")
            self.write(f"t{i}.bin", tokens.tobytes())
            want += tokens[: count // 32 * 32].reshape(-1, 32).tolist()
        source = stowage.records(self.path("t*.bin"), "tokens", length=32)
        self.assertEqual(len(source), len(want))
        got = [row for batch in stowage.batches(source, 5, memory="8M") for row in batch.tolist()]
        self.assertEqual(got, want)
        self.check_order(source, len(want), lambda row: int(row[0]))
        batch = next(stowage.batches(source, 5, memory="8M", dtype="int64"))
        self.assertEqual((batch.dtype, batch.shape), (np.int64, (5, 32)))

    def test_what_is_wrong_is_reported(self):
        path = self.write("t.bin", bytes(101))
        for more in (dict(length=4), dict(length=0), dict(), dict(length=4, dtype="float32"), dict(length=90, dtype="uint8", pattern="x")):
            with self.assertRaises((ValueError, OSError)):
                stowage.records(path, "tokens", **more)
        self.assertRaises(ValueError, stowage.records, path, "tokens", length=102, dtype="uint8")
        self.assertEqual(len(stowage.records(path, "tokens", length=50, dtype="uint8")), 2)


class InMemory(Case):
    def test_arrays_beside_files(self):
        path, rows = self.path("x.npy"), 5000
        np.save(path, np.arange(rows * 3).reshape(rows, 3))
        beside = [
            np.arange(rows, dtype=">i4"),
            np.arange(rows) * 1j,
            np.array([f"t{i}" for i in range(rows)]),
            np.arange(rows).astype("datetime64[s]"),
            np.arange(rows * 8, dtype="f4").reshape(rows, 2, 4)[:, ::-1],
            np.arange(rows) % 2 == 0,
        ]
        for shuffle in (False, True):
            seen = 0
            for x, *others in stowage.batches([path, *beside], 64, shuffle=shuffle, memory="8M"):
                numbers = x[:, 0] // 3
                for array, got in zip(beside, others):
                    self.assertEqual(got.dtype, array.dtype.newbyteorder("="))
                    np.testing.assert_array_equal(got, array[numbers])
                seen += len(x)
            self.assertEqual(seen, rows)
        converted = next(stowage.batches(np.arange(10), 4, dtype="float32"))
        self.assertEqual((converted.dtype, converted.tolist()), (np.float32, [0, 1, 2, 3]))
        opened = stowage.open(path)
        np.testing.assert_array_equal(next(stowage.batches(opened, 2)), opened[:2])

    def test_what_is_no_array_of_rows_is_refused(self):
        for wrong in (np.float64(3), np.array([object()]), np.zeros((3, 2)).astype("M8[s]")):
            with self.assertRaises(ValueError):
                stowage.batches(wrong, dtype="float32")
        with self.assertRaises(ValueError):
            stowage.batches([np.zeros(3), np.zeros(4)])

    def test_an_array_lives_as_long_as_its_batches(self):
        made = stowage.batches(np.arange(3_000_000), 1000, shuffle=True, memory="8M")
        held = bytearray(24 << 20)  # what a freed array would be overwritten with
        self.assertEqual(sum(int(batch.sum()) for batch in made), 2_999_999 * 1_500_000)
        del held

    @needs("torch")
    def test_tensors_and_pt_files(self):
        import torch

        x, y = torch.arange(300).reshape(100, 3).float(), torch.arange(100)
        torch.save({"x": x, "y": y}, self.path("d.pt"))
        torch.save((x, y), self.path("l.pt"))
        torch.save(x, self.path("t.pt"))
        for a, b, c in stowage.batches([self.path("d.pt") + ":x", self.path("l.pt") + ":1", self.path("t.pt")], 7, shuffle=True):
            np.testing.assert_array_equal(a[:, 0], b * 3)
            np.testing.assert_array_equal(a, c)
        batch = next(stowage.batches([x, y], 5, device="cpu"))
        torch.testing.assert_close(batch[0], x[:5])

    @needs("torch")
    def test_what_a_pt_file_says_about_its_data_is_left_out(self):
        import torch

        x = torch.arange(300).reshape(100, 3).float()
        torch.save({"x": x, "meta": {"mean": torch.ones(2)}, "names": ["a", "b"], "n": 3}, self.path("d.pt"))
        torch.save([{"made": "by hand"}, x, "cifar"], self.path("l.pt"))
        torch.save({"epoch": 3, "state_dict": {"w": x}, "best": torch.ones(1)}, self.path("c.pt"))
        for name in ("d.pt:x", "l.pt:1", "c.pt:w"):
            np.testing.assert_array_equal(stowage.open(self.path(name))[:], x.numpy(), name)
        torch.save(["no", "tensor"], self.path("n.pt"))
        with self.assertRaises(stowage.StowageError):
            stowage.open(self.path("n.pt:0"))


def shard_of(numbers):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for number in numbers:
            for ext, data in (("jpg", bytes([number]) * (3000 * number + 5)), ("cls", b"%d" % number)):
                member = tarfile.TarInfo(f"{number:04d}.{ext}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


class Store:
    """Looks like a file system of fsspec: ranges without a position."""

    def __init__(self, data):
        self.data, self.lock, self.at_once, self.most = data, threading.Lock(), 0, 0
        self.met = threading.Event()

    def cat_file(self, path, start=None, end=None):
        with self.lock:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            if self.at_once > 1 or self.met.is_set():
                self.met.set()
        if end - start > 10000:
            self.met.wait(5)  # until two are here at once
        with self.lock:
            self.at_once -= 1
        return self.data[start:end]


class Stores(Case):
    def test_ranges_of_a_store_are_read_in_parallel(self):
        out = io.BytesIO()
        np.save(out, np.arange(200000).reshape(20000, 10))
        store = Store(out.getvalue())

        class File(io.BytesIO):
            fs, path, mode = store, "bucket/x.npy", "rb"

            def read(self, *_):
                raise AssertionError("read with a position")

        total = sum(int(batch.sum()) for batch in stowage.batches(File(out.getvalue()), 500, memory="64M"))
        self.assertEqual(total, 199999 * 100000)
        self.assertGreater(store.most, 1)

    @needs("fsspec")
    def test_fsspec(self):
        import fsspec

        memory = fsspec.filesystem("memory")
        array = np.arange(200000).reshape(20000, 10)
        out = io.BytesIO()
        np.save(out, array)
        memory.pipe_file("/bucket/x.npy", out.getvalue())
        for given in ("memory://bucket/x.npy", fsspec.open("memory://bucket/x.npy"), memory.open("/bucket/x.npy")):
            for shuffle in (False, True, "disk"):
                got = np.concatenate([batch.copy() for batch in stowage.batches(given, 500, shuffle=shuffle, memory="4M")])
                np.testing.assert_array_equal(got[got[:, 0].argsort()], array)
        np.testing.assert_array_equal(stowage.open("memory://bucket/x.npy")[5:7], array[5:7])
        with self.assertRaises(ValueError):
            stowage.open("nosuchstore://bucket/x.npy")

    @needs("fsspec")
    def test_members_and_patterns_in_a_store(self):
        import fsspec

        memory = fsspec.filesystem("memory")
        x, y, words = np.arange(3000).reshape(1000, 3), np.arange(1000) * 0.5, np.array([[65], [66]], "uint8")
        stored, deflated = io.BytesIO(), io.BytesIO()
        np.savez(stored, **{"x": x, "y": y, "t.codes": (np.arange(1000) % 2).astype("uint8"), "t.words.bytes": words})
        np.savez_compressed(deflated, x=x)
        for name, data in (("a.npz", stored), ("d.npz", deflated), ("x.h5", io.BytesIO(b"\x89HDF\r\n\x1a\n" + b"\0" * 500))):
            memory.pipe("/bucket/" + name, data.getvalue())
        for number in range(2):
            one = io.BytesIO()
            np.save(one, x[number::2])
            memory.pipe(f"/bucket/part-{number}.npy", one.getvalue())
        np.testing.assert_array_equal(stowage.open("memory://bucket/a.npz:x")[5:700], x[5:700])
        self.assertEqual(stowage.open("memory://bucket/a.npz:t")[:3].tolist(), ["A", "B", "A"])
        for rows, halves in stowage.batches(["memory://bucket/a.npz:x", "memory://bucket/a.npz:y"], 64, shuffle=True, memory="16M"):
            np.testing.assert_array_equal(rows[:, 0], halves * 6)
        np.testing.assert_array_equal(stowage.open("memory://bucket/*-1.npy")[:], x[1::2])
        for given, said in (
            (["memory://bucket/part-0.npy", os.path.join(self.folder.name, "x.npy")], "not read as one"),
            (["memory://bucket/part-0.npy", "memory://bucket/a.npz:y"], "its rows are float64"),
            ("memory://bucket/none.npy", "no such object"),
            ("memory://bucket/none-*.npy", "no object has such a name"),
            ("memory://bucket/a.npz:z", "no such array; there are x, y"),
            ("memory://bucket/d.npz:z", "no such array; there are x"),
            ("memory://bucket/x.h5:y", "h5py"),
        ):
            # In batches, a list names files that are read in step.
            for read in (stowage.open, stowage.batches) if isinstance(given, str) else (stowage.open,):
                with self.subTest(given=given, read=read), self.assertRaisesRegex(stowage.StowageError, said):
                    read(given)
        for address in ("memory://bucket/a.npz", "s3://bucket/t.csv", "memory://bucket/t.parquet"):
            with self.assertRaisesRegex(stowage.Unsupported, "copy the file to disk"):
                stowage.inspect(address)
            with self.assertRaisesRegex(stowage.Unsupported, "copy the file to disk"):
                stowage.shrink(address, os.path.join(self.folder.name, "o.npz"))

    def check_object(self, address, expected, memory, most=4 << 20):
        """Reads an object in every order, in ranges of at most `most` bytes."""
        ranges, cat = [], type(memory).cat_file

        def watched(system, path, start=None, end=None, **more):
            ranges.append(end - start)
            return cat(system, path, start=start, end=end, **more)

        with mock.patch.object(type(memory), "cat_file", watched):
            for shuffle in (False, True, "disk"):
                with self.subTest(address=address, shuffle=shuffle):
                    got = np.concatenate([batch.copy() for batch in stowage.batches(address, 500, shuffle=shuffle, memory="4M")])
                    np.testing.assert_array_equal(got[got[:, 0].argsort()], expected)
            opened = stowage.open(address)
            np.testing.assert_array_equal(opened[77:1999:3], expected[77:1999:3])
            np.testing.assert_array_equal(stowage.open(address, "float32")[-3:, 1], expected[-3:, 1].astype("f4"))
        self.assertLessEqual(max(ranges, default=0), most)

    @needs("fsspec")
    def test_deflated_members_and_several_objects_of_a_store(self):
        import fsspec

        memory = fsspec.filesystem("memory")
        x = np.arange(1500000.0).reshape(-1, 10)
        made = io.BytesIO()
        np.savez_compressed(made, x=x, y=x[:, 0])
        memory.pipe_file("/objects/d.npz", made.getvalue())
        for number in range(3):
            made = io.BytesIO()
            np.save(made, x[number * 50000 : (number + 1) * 50000])
            memory.pipe_file(f"/objects/part-{number}.npy", made.getvalue())
        path = os.path.join(self.folder.name, "x.safetensors")
        stowage.save({"x": x, "y": x[:, 0]}, path)
        memory.put_file(path, "/objects/x.safetensors")
        for name in ("d.npz:x", "x.safetensors:x", "part-*.npy"):
            self.check_object("memory://objects/" + name, x, memory)
        with mock.patch.object(type(memory), "cat_file", side_effect=memory.cat_file) as cat:
            opened = stowage.open("memory://objects/part-*.npy")
            cat.side_effect = ConnectionError("gone")
            cat.reset_mock()
            with self.assertRaises(stowage.StowageError):
                opened[:10]
            self.assertEqual(cat.call_count, 4)  # one of several objects is tried as often as one alone
        turned = stowage.open([f"memory://objects/part-{number}.npy" for number in (2, 0)])
        np.testing.assert_array_equal(turned[49990:50010], np.concatenate([x[149990:], x[:10]]))

    @needs("fsspec")
    @needs("h5py")
    def test_hdf5_in_a_store(self):
        import fsspec
        import h5py

        memory = fsspec.filesystem("memory")
        x = np.arange(1500000.0).reshape(-1, 10)
        made = io.BytesIO()
        with h5py.File(made, "w") as file:
            file.create_dataset("group/x", data=x, chunks=(1000, 5), compression="gzip")
            file["big"] = x.astype(">f8")
            file["names"] = [b"a", b"b"]
        memory.pipe_file("/objects/x.h5", made.getvalue())
        for name in ("group/x", "/group/x", "big"):
            self.check_object("memory://objects/x.h5:" + name, x, memory)
        for name, said in ((":none", "there are big, group/x, names"), ("", "3 datasets"), (":names", "not numbers")):
            with self.assertRaisesRegex(stowage.StowageError, said):
                stowage.open("memory://objects/x.h5" + name)

    @needs("fsspec")
    @needs("torch")
    def test_tensors_of_torch_in_a_store(self):
        import fsspec
        import torch

        memory = fsspec.filesystem("memory")
        x = np.arange(600000.0).reshape(-1, 10)
        made = io.BytesIO()
        torch.save({"x": torch.tensor(x), "y": torch.zeros(3)}, made)
        memory.pipe_file("/objects/x.pt", made.getvalue())
        self.check_object("memory://objects/x.pt:x", x, memory)

    def test_addresses_of_files_are_paths(self):
        path = os.path.join(self.folder.name, "x")
        np.savez(path + ".npz", a=np.arange(5), b=np.arange(5) * 2)
        for number in range(2):
            np.save(f"{path}-{number}.npy", np.arange(4))
        self.assertEqual(stowage.open(f"file://{path}.npz:b")[:].tolist(), [0, 2, 4, 6, 8])
        self.assertEqual(stowage.open(f"file://{path}.npz").columns, ["a", "b"])
        self.assertEqual(len(stowage.open(f"file://{path}-*.npy")), 8)
        self.assertEqual(len(stowage.open([f"file://{path}-{number}.npy" for number in range(2)])), 8)
        self.assertEqual(sum(map(len, stowage.batches(f"file://{path}-*.npy", 3))), 8)
        self.assertEqual(stowage.inspect(f"file://{path}-0.npy").data["shape"], [4])
        stowage.shrink(f"file://{path}-0.npy", f"file://{path}-small.npy", quiet=True)
        self.assertEqual(np.load(path + "-small.npy").dtype, "int8")

    @needs("fsspec")
    def test_records_of_a_store(self):
        import fsspec

        memory = fsspec.filesystem("memory")
        for shard in range(2):
            memory.pipe_file(f"/shards/s-{shard}.tar", shard_of(range(shard * 40, shard * 40 + 40)))
        self.check_order(stowage.records("memory://shards/s-*.tar"), 80, lambda sample: int(sample["cls"]))
        for name in ("a/1.jpg", "a/2.jpg", "b/3.jpg", "b/3.txt", ".hidden/4.jpg"):
            memory.pipe_file(f"/images/{name}", name.encode() * 9)
        found = [record for batch in stowage.batches(stowage.records("memory://images/", pattern="*.jpg"), 2) for record in batch]
        self.assertEqual([(record.name, bytes(record)) for record in found], [(n, n.encode() * 9) for n in ("a/1.jpg", "a/2.jpg", "b/3.jpg")])
        memory.pipe_file("/text/t.bin", np.arange(1000, dtype="uint16").tobytes())
        rows = np.concatenate(list(stowage.batches(stowage.records("memory://text/t.bin", "tokens", length=10), 7)))
        np.testing.assert_array_equal(rows.ravel(), np.arange(1000))
        with self.assertRaises(stowage.NotFound):
            stowage.records("memory://shards/x-*.tar")


class Shuffles(Case):
    def test_the_quality_is_reported_and_disk_is_uniform(self):
        rows, classes = 400000, 1000
        path = self.path("sorted.npy")
        np.save(path, np.repeat(np.arange(classes), rows // classes)[:, None].repeat(6, 1))  # 19 MB
        quality = {}
        for shuffle in (True, "disk"):
            made = stowage.batches(path, 256, shuffle=shuffle, seed=1, memory="4M", scratch=self.folder.name)
            counts = [len(np.unique(batch[:, 0])) for batch in made]
            quality[shuffle] = made.shuffle_quality
            self.assertAlmostEqual(np.mean(counts[:-1]) / 226, quality[shuffle], delta=0.04)
            self.assertIn(f"quality {quality[shuffle]:.2f}", repr(made))
            self.assertEqual(made.info["scratch_bytes"], rows * 48 if shuffle == "disk" else 0)
        self.assertLess(quality[True], 0.5)
        self.assertGreater(quality["disk"], 0.95)
        self.assertEqual(stowage.batches(path, 256, memory="4M").shuffle_quality, 0)
        self.assertEqual(stowage.batches(path, 256, shuffle=True, memory="64M").shuffle_quality, 1)
        with self.assertRaises(ValueError):
            stowage.batches(path, shuffle="yes")

    def test_windows_of_the_copy_are_small_and_every_row_comes_once(self):
        for rows, width, memory in ((20011, 256, "8M"), (20011, 250, "8M"), (16384, 1024, "8M"), (30000, 320, "24M"), (90001, 128, "24M")):
            path = os.path.join(self.folder.name, f"rows-{width}.npy")
            np.save(path, np.arange(rows, dtype="float32")[:, None] + np.zeros(width, "float32"))
            made = stowage.batches([path, np.arange(rows)], 64, shuffle="disk", memory=memory, scratch=self.folder.name)
            self.assertGreater(made.info["scratch_bytes"], 0)
            self.assertGreaterEqual(made.shuffle_quality, 0.95)
            if memory == "24M":  # its rows are mixed already: what fits in a cache is enough, even if the budget holds more
                self.assertLess(made.info["window_rows"] * width * 4, 4 << 20)
            orders = []
            for _ in range(3):
                seen = []
                for x, label in made:
                    self.assertTrue((x == label[:, None]).all())
                    seen += label.tolist()
                self.assertEqual(sorted(seen), list(range(rows)))
                orders.append(tuple(seen))
            self.assertEqual(len(set(orders)), 3)

    def test_a_deflated_member_is_shuffled_on_disk_from_front_to_back(self):
        rows, classes = 300000, 1000
        path = self.path("sorted.npz")
        labels = np.repeat(np.arange(classes), rows // classes)
        np.savez_compressed(path, x=np.stack([labels, np.arange(rows), labels, labels], 1))  # 9.6 MB
        made = stowage.batches(path + ":x", 256, shuffle="disk", memory="4M", scratch=self.folder.name, dtype="float32")
        batches = [batch.copy() for batch in made]
        self.assertEqual(sorted(np.concatenate(batches)[:, 1].tolist()), list(range(rows)))
        self.assertGreater(np.mean([len(np.unique(batch[:, 0])) for batch in batches[:-1]]), 0.95 * 226)
        self.assertGreater(made.shuffle_quality, 0.95)

    def test_a_state_of_the_disk_continues_in_another_world(self):
        path = self.path("x.npy")
        np.save(path, np.arange(60000 * 40).reshape(60000, 40))
        options = dict(shuffle="disk", memory="4M", scratch=self.folder.name)
        seen, state = [], None
        for rank in range(2):
            begun = stowage.batches(path, 100, rank=rank, world=2, **options)
            seen += [batch[:, 0].copy() for _, batch in zip(range(11), begun)]
            state = begun.state_dict()
        self.assertGreater(state["deck_rows"], 0)
        for rank in range(5):
            left = stowage.batches(path, 64, rank=rank, world=5, **options)
            left.load_state_dict(state)
            seen += [batch[:, 0].copy() for batch in left]
            self.assertEqual(left.state_dict()["earlier"], [[2, 100, 11]])
            left.close()
        np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(60000) * 40)


if __name__ == "__main__":
    unittest.main()
