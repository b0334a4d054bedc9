"""load and save: every value as it is in the file, no second copy of the model, no pickle executed."""

import doctest
import json
import os
import pickle
import struct
import tempfile
import unittest
import weakref
import zipfile
from pathlib import Path

import stowage
from support import in_turn, needs, python

try:
    import numpy
except ImportError:
    numpy = None  # the classes are skipped
try:
    import torch
except ImportError:
    torch = None


class Case(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.folder = Path(self._folder.name)

    def path(self, name):
        return str(self.folder / name)

    def file(self, tensors, name="m.safetensors", metadata=None):
        """Writes a safetensors file by hand: name -> (type, shape, bytes)."""
        header, at = ({} if metadata is None else {"__metadata__": metadata}), 0
        for key, (kind, shape, values) in tensors.items():
            header[key] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + len(values)]}
            at += len(values)
        text = json.dumps(header).encode()
        Path(self.path(name)).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(v for _, _, v in tensors.values()))
        return self.path(name)

    def gguf(self, tensors, name="m.gguf"):
        """Writes a GGUF file by hand: name -> (number of the type, shape, bytes)."""
        head, data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 0), b""
        for key, (kind, shape, values) in tensors.items():
            dims = list(reversed(shape))
            head += struct.pack("<Q", len(key)) + key.encode() + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
            data += values + bytes(-len(values) % 32)
        head += bytes(-len(head) % 32)
        Path(self.path(name)).write_bytes(head + data)
        return self.path(name)


@needs("numpy")
class Refusals(Case):
    def test_names_that_no_reader_finds_again_are_refused(self):
        for name in ("a\0b", "a\ud800"):
            with self.assertRaises(stowage.Invalid):
                stowage.save({name: numpy.ones(2)}, self.path("o.safetensors"))
        self.assertFalse(os.path.exists(self.path("o.safetensors")))

    def test_what_is_no_target_is_named(self):
        path = self.file({"w": ("F32", [2], bytes(8))})
        with self.assertRaises(stowage.Invalid):
            stowage.load(path, into=3)

    def test_shapes_that_numpy_cannot_hold_are_named(self):
        path = self.file({"w": ("F32", [0, 1 << 62], b"")})
        with self.assertRaises(stowage.Unsupported):
            stowage.load(path, framework="numpy")

    @needs("torch")
    def test_devices_that_are_not_there_are_named(self):
        path = self.file({"w": ("F32", [2], bytes(8))})
        with self.assertRaises(stowage.StowageError):
            stowage.load(path, device="no such device")
        if not torch.cuda.is_available():
            with self.assertRaises(stowage.Unsupported):
                stowage.load(path, device="cuda")
        with self.assertRaises(stowage.Invalid):
            stowage.save({"w": torch.empty(2, device="meta")}, self.path("o.safetensors"))


@needs("numpy")
class Arrays(Case):
    def load(self, path, **more):
        return stowage.load(path, framework="numpy", **more)

    def test_every_type_comes_back_as_it_was_saved(self):
        random = numpy.random.default_rng(1)
        made = {}
        for kind in "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64".split():
            made[kind] = random.integers(0, 100, (3, 5)).astype(kind)
        made.update(scalar=numpy.array(2.5), empty=numpy.empty((0, 4), "f4"), turned=random.random((6, 4)).T, far=random.random((9, 8))[::2, 1:7])
        stowage.save(made, self.path("m.safetensors"), metadata={"who": "test"})
        back = self.load(self.path("m.safetensors"))
        self.assertEqual(sorted(back), sorted(made))
        for name, values in made.items():
            self.assertEqual((back[name].dtype, back[name].shape), (values.dtype, values.shape), name)
            self.assertTrue(numpy.array_equal(back[name], values), name)
        with self.load(self.path("m.safetensors"), lazy=True) as lazy:
            self.assertEqual(lazy.metadata, {"who": "test", "format": "np"})

    def test_values_are_converted_on_the_way(self):
        values = numpy.random.default_rng(2).standard_normal((700, 513)).astype("f4")
        stowage.save({"w": values, "n": numpy.arange(5)}, self.path("m.safetensors"))
        for kind in ("float16", "float64", "f32"):
            back = self.load(self.path("m.safetensors"), dtype=kind, threads=3)
            self.assertTrue(numpy.array_equal(back["w"], values.astype({"f32": "f4"}.get(kind, kind))))
            self.assertEqual(back["n"].dtype, numpy.int64)
        stowage.save({"w": values}, self.path("h.safetensors"), dtype="f16")
        self.assertTrue(numpy.array_equal(self.load(self.path("h.safetensors"))["w"], values.astype("f2")))
        for wrong in ("int8", "complex64", "words"):
            with self.assertRaises(ValueError):
                self.load(self.path("m.safetensors"), dtype=wrong)

    def test_values_that_become_infinite_are_refused(self):
        for kind, large, to in (("f4", 1e9, "f16"), ("f8", -1e300, "f32"), ("f8", 65520, "float16")):
            with self.subTest(kind=kind, to=to):
                path, values = self.path(f"{kind}{to}.safetensors"), numpy.ones(1000, kind)
                values[777] = large
                with self.assertRaisesRegex(stowage.Invalid, "w: 1 value is too large for float.*or set allow_nan"):
                    stowage.save({"w": values}, path, dtype=to)
                self.assertEqual(os.listdir(self.folder), [])
                stowage.save({"w": values}, path)
                with self.assertRaisesRegex(stowage.Invalid, "w: 1 value is too large for float.*or set allow_nan"):
                    self.load(path, dtype=to)
                self.assertTrue(numpy.isinf(self.load(path, dtype=to, allow_nan=True)["w"][777]))
                with self.load(path, dtype=to, lazy=True) as lazy:
                    self.assertEqual(float(lazy.view("w")[:777].sum()), 777)
                    self.assertRaises(stowage.Invalid, lambda lazy=lazy: lazy["w"])
                into = numpy.zeros(1000, "f2" if "16" in to else "f4")
                self.assertRaises(stowage.Invalid, stowage.load, path, into={"w": into}, framework="numpy")
                os.remove(path)
                stowage.save({"w": values}, path, dtype=to, allow_nan=True)
                self.assertTrue(numpy.isinf(self.load(path)["w"][777]))
                os.remove(path)

    def test_values_that_are_not_finite_are_loaded_and_refused_when_converted(self):
        values = numpy.array([1, numpy.nan, -numpy.inf, 65504], "f4")
        stowage.save({"w": values}, self.path("m.safetensors"))  # not converted: not checked
        back = self.load(self.path("m.safetensors"), dtype="f16")["w"]
        self.assertTrue(numpy.array_equal(back, values.astype("f2"), equal_nan=True))
        for kind in ("f16", "bf16", "f64"):
            with self.assertRaisesRegex(stowage.Invalid, "w: 2 values are NaN or infinite: .*set allow_nan"):
                stowage.save({"w": values}, self.path("no.safetensors"), dtype=kind)
            stowage.save({"w": values}, self.path("yes.safetensors"), dtype=kind, allow_nan=True)

    def test_float8_is_converted_unless_it_has_scales(self):
        codes = bytes((0x38, 0xC0, 0x01, 0x7E))  # 1, -2, 2^-9, 448
        plain = {"l.weight": ("F8_E4M3", (2, 2), codes), "n": ("F32", (1,), struct.pack("<f", 0.1))}
        back = self.load(self.file(plain), dtype="f16")
        self.assertEqual((back["l.weight"].dtype, back["n"].dtype), ("float16", "float16"))
        self.assertEqual(back["l.weight"].tolist(), [[1, -2], [2**-9, 448]])
        for scale in ("l.weight_scale", "l.weight_scale_inv", "l.scale_weight"):
            path = self.file({**plain, scale: ("F32", (1,), struct.pack("<f", 0.1))}, "scaled.safetensors")
            with self.load(path, dtype="f16", lazy=True) as model:
                self.assertEqual((model.view("n").dtype, model.view(scale).dtype), ("float16", "float32"))
                self.assertEqual(model.view("l.weight").stored_dtype, "F8_E4M3")
                self.assertNotEqual(model.view("l.weight").dtype, "float16")  # float32, or ml_dtypes' float8

    def test_arrays_of_the_other_byte_order_are_swapped(self):
        made = {kind: numpy.arange(12).reshape(3, 4).astype(kind) for kind in (">f4", ">f2", ">i8", ">u2")}
        made["cut"] = made[">f4"][:, ::2]
        stowage.save(made, self.path("m.safetensors"), dtype="f16")
        back = self.load(self.path("m.safetensors"))
        for name, values in made.items():
            self.assertEqual(values.tolist(), back[name].tolist(), name)
            self.assertEqual(back[name].dtype.byteorder, "=", name)
        with self.assertRaisesRegex(stowage.Invalid, "^>f4: the target's values are not in this machine's byte order"):
            stowage.load(self.path("m.safetensors"), into=made, framework="numpy")

    def test_save_drops_a_tensor_before_it_reads_the_next(self):
        alive = []

        class Reading(dict):
            def __getitem__(self, name):
                made = numpy.arange(1000.0).reshape(10, 100).T[int(name) :]
                for old in alive[len(self) :]:  # the first pass reads shapes
                    assert old() is None, name
                alive.append(weakref.ref(made))
                return made

        stowage.save(Reading({str(i): None for i in range(4)}), self.path("m.safetensors"), staging="1M")
        self.assertEqual(len(alive), 8)

    def test_errors_of_a_lazy_model_are_the_packages(self):
        stowage.save({"w": numpy.ones(3)}, self.path("m.safetensors"))
        lazy = self.load(self.path("m.safetensors"), lazy=True)
        for kind in (KeyError, stowage.StowageError, stowage.NoTensor):
            with self.assertRaisesRegex(kind, "m.safetensors has no tensor x$"):
                lazy["x"]
        lazy.close()
        for kind in (ValueError, stowage.StowageError):
            with self.assertRaisesRegex(kind, "is closed"):
                lazy["w"]

    def test_messages_of_shrink_name_keywords(self):
        stowage.save({"w": numpy.array([1e6, 1], "f4")}, self.path("m.safetensors"))
        with self.assertRaisesRegex(stowage.Invalid, "use dtype bf16 or f32, leave .* with exclude, or use allow_nan to write it anyway"):
            stowage.shrink(self.path("m.safetensors"), self.path("s.safetensors"), dtype="f16")

    def test_bfloat16_and_float8_become_float32_where_numpy_lacks_them(self):
        halves = struct.pack("<4H", 0x3F80, 0xC000, 0x3E80, 0x7F80)
        path = self.file({"b": ("BF16", [4], halves), "f": ("F8_E4M3", [3], bytes([0x38, 0xB8, 0x7E]))})
        back = self.load(path, dtype="float32")
        self.assertEqual(back["b"].tolist(), [1, -2, 0.25, float("inf")])
        self.assertEqual(back["f"].tolist(), [1, -1, 448])
        self.assertEqual(self.load(path)["b"].astype("f4").tolist(), [1, -2, 0.25, float("inf")])

    def test_slices_equal_those_of_the_whole(self):
        values = numpy.random.default_rng(3).integers(0, 1000, (7, 6, 10)).astype("i4")
        stowage.save({"w": values, "s": numpy.array(3)}, self.path("m.safetensors"))
        with self.load(self.path("m.safetensors"), lazy=True) as lazy:
            view = lazy.view("w")
            self.assertEqual((view.shape, view.ndim, len(view), view.dtype), ((7, 6, 10), 3, 7, numpy.int32))
            for index in (
                0, -1, slice(2, 5), slice(None), ..., (slice(1, 6, 2),), (3, 4), (3, 4, 5), (slice(None), 2), (slice(None), slice(1, 3)),
                (slice(None), slice(1, 3), slice(4, 9)), (..., 3), (..., slice(0, 10, 3)), (2, ..., slice(5, 5)), (slice(0, 7, 3), slice(5, 0)),
                (slice(0, 7, 3), slice(0, 6, 5), slice(1, 10, 4)), (1, slice(None), slice(0, 2)),
            ):
                self.assertTrue(numpy.array_equal(view[index], values[index]), index)
                self.assertEqual(view[index].shape, values[index].shape, index)
            self.assertEqual(lazy.view("s")[()], 3)
            for index in (numpy.int64(2), numpy.array(2)):
                self.assertTrue(numpy.array_equal(view[index], values[2]) and view[index].shape == (6, 10))
            # An array of one number would keep its dimension; True is no row.
            arrays = (numpy.array([2]), numpy.array([1, 2]), numpy.ones(7, bool), numpy.array(True), True)
            for index in (7, (0, 0, 0, 0), slice(None, None, -1), [1, 2], None, *arrays):
                with self.assertRaises(IndexError):
                    view[index]

    def test_a_slice_reads_only_its_bytes(self):
        path = self.path("holes.safetensors")
        text = json.dumps({"w": {"dtype": "F32", "shape": [1 << 20, 1 << 12], "data_offsets": [0, 1 << 34]}}).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.seek(8 + len(text) + (1 << 33))
            file.write(struct.pack("<f", 7))
            file.truncate(8 + len(text) + (1 << 34))
        with self.load(path, lazy=True) as lazy:
            before = _read_bytes()
            self.assertEqual(lazy.view("w")[1 << 19, :3].tolist(), [7, 0, 0])
            self.assertEqual(lazy.view("w")[(1 << 19) - 1 : (1 << 19) + 1, 0].tolist(), [0, 7])
            self.assertLess(_read_bytes() - before, 1 << 16)

    def test_gguf_is_decoded_or_raw(self):
        blocks = struct.pack("<e32b", 0.5, *range(-16, 16)) + struct.pack("<e32b", 2, *range(32))
        plain = numpy.arange(6, dtype="f4").reshape(2, 3)
        path = self.gguf({"q": (8, [2, 32], blocks), "n": (0, [2, 3], plain.tobytes()), "odd": (20, [1, 32], bytes(18))})
        first = [[n * 0.5 for n in range(-16, 16)], [n * 2.0 for n in range(32)]]
        back = self.load(path, names=["q", "n"], dtype="f16")
        self.assertEqual((back["q"].dtype.name, back["q"].tolist()), ("float16", first))
        with self.load(path, lazy=True) as lazy:
            self.assertEqual(lazy["q"].dtype.name, "float32")
            self.assertEqual(lazy.view("q")[1, 3:7].tolist(), [6, 8, 10, 12])
            self.assertEqual(lazy.view("q").stored_dtype, "Q8_0")
            with self.assertRaisesRegex(NotImplementedError, "raw=True"):
                lazy["odd"]
        raw = self.load(path, raw=True)
        self.assertEqual((raw["q"].shape, raw["q"].tobytes(), raw["odd"].shape), ((2, 34), blocks, (1, 18)))
        self.assertTrue(numpy.array_equal(raw["n"], plain))
        with self.load(path, raw=True, lazy=True) as lazy:
            self.assertEqual(lazy.view("q")[1].tobytes(), blocks[34:])
            with self.assertRaises(ValueError):
                lazy.view("q")[1, 3:7]

    def test_a_folder_of_shards_is_one_model(self):
        random = numpy.random.default_rng(4)
        made = {f"layer.{i}.weight": random.random((50, 40)).astype("f4") for i in range(7)}
        stowage.save(made, self.path("out"), shard=20_000)
        self.assertEqual(len(list((self.folder / "out").glob("*.safetensors"))), 4)
        for path in (self.path("out"), self.path("out/model.safetensors.index.json")):
            back = self.load(path)
            self.assertEqual(list(back), list(made))
            self.assertTrue(all(numpy.array_equal(back[name], made[name]) for name in made))
        with self.assertRaises(ValueError):
            stowage.save(made, self.path("out"))  # not empty
        with self.load(self.path("out"), lazy=True) as lazy:
            stowage.save(lazy, self.path("joined.safetensors"), dtype="f16")
        self.assertEqual(self.load(self.path("joined.safetensors"))["layer.3.weight"].tolist(), made["layer.3.weight"].astype("f2").tolist())

    def test_nothing_is_left_of_a_save_that_fails(self):
        class Broken(dict):
            asked = 0

            def __getitem__(self, name):
                Broken.asked += 1
                if Broken.asked == 4:  # each is asked for its facts, then for its values
                    raise OSError("gone")
                return dict.__getitem__(self, name)

        stowage.save({"old": numpy.ones(3)}, self.path("m.safetensors"))
        with self.assertRaises(OSError):
            stowage.save(Broken(a=numpy.ones(3), b=numpy.ones(3)), self.path("m.safetensors"))
        self.assertEqual(list(self.load(self.path("m.safetensors"))), ["old"])
        self.assertEqual(os.listdir(self.folder), ["m.safetensors"])

    def test_wrong_arguments_are_refused(self):
        stowage.save({"w": numpy.ones(3)}, self.path("m.safetensors"))
        for more in ({"device": "cuda"}, {"staging": 1000}, {"threads": 0}, {"lazy": True, "names": ["w"]}):
            with self.assertRaises(ValueError):
                self.load(self.path("m.safetensors"), **more)
        with self.assertRaises(KeyError):
            self.load(self.path("m.safetensors"), names=["x"])
        with self.assertRaisesRegex(stowage.Invalid, r"names: 'w' is one name; give a list: names=\['w'\]"):
            self.load(self.path("m.safetensors"), names="w")
        with self.assertRaisesRegex(stowage.Invalid, "c: float32 is one number, not an array; use numpy.asarray"):
            stowage.save({"c": numpy.float32(3)}, self.path("n.safetensors"))
        with self.assertRaises(ValueError):
            stowage.load(self.path("m.safetensors"), framework="jax")
        with self.assertRaises(FileNotFoundError):
            self.load(self.path("none.safetensors"))
        for wrong, path in (({"w": [1]}, "a.safetensors"), ([1], "a.safetensors"), ({1: numpy.ones(1)}, "a.safetensors"),
                            ({"__metadata__": numpy.ones(1)}, "a.safetensors")):
            with self.assertRaises(ValueError):
                stowage.save(wrong, self.path(path))
        for wrong, path in (({"w": numpy.ones(1)}, "a.gguf"), ({"w": numpy.array(["x"])}, "a.safetensors")):
            with self.assertRaises(NotImplementedError):
                stowage.save(wrong, self.path(path))
        with self.assertRaises(OSError):
            Path(self.path("bad.safetensors")).write_bytes(b"\xff" * 100)
            self.load(self.path("bad.safetensors"))

    def test_a_file_that_changes_meanwhile_is_noticed(self):
        stowage.save({"w": numpy.ones(3)}, self.path("m.safetensors"))
        lazy = self.load(self.path("m.safetensors"), lazy=True)
        with open(self.path("m.safetensors"), "r+b") as file:
            file.truncate(40)
        with self.assertRaises(OSError):
            lazy["w"]
        lazy.close()
        with self.assertRaises(ValueError):
            lazy["w"]

    def test_arrays_are_filled_in_place(self):
        values = numpy.random.default_rng(5).random((40, 30))
        stowage.save({"a": values, "b": values[0]}, self.path("m.safetensors"))
        into = {"a": numpy.zeros((40, 30), "f4"), "b": numpy.zeros(30)}
        kept = into["a"]
        self.assertIs(self.load(self.path("m.safetensors"), into=into), into)
        self.assertTrue(numpy.array_equal(kept, values.astype("f4")) and numpy.array_equal(into["b"], values[0]))
        for wrong in ({"a": kept}, {**into, "c": numpy.zeros(3)}, {"a": kept.T, "b": into["b"]}, {"a": numpy.zeros((40, 60))[:, ::2], "b": into["b"]}):
            with self.assertRaises(ValueError):
                self.load(self.path("m.safetensors"), into=wrong)
        self.load(self.path("m.safetensors"), into={"a": kept}, strict=False)

    def test_memory_stays_at_the_tensors_and_a_little(self):
        """96 MiB of tensors, converted or not: the peak is at most 16 MiB above them."""
        each = 24 << 20
        path = self.file({f"w{i}": ("F32", [each // 4], bytes(each)) for i in range(4)})
        code = """
            import numpy, stowage
            def status(name):
                return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(name))
            with stowage.load(PATH, framework="numpy", lazy=True): pass
            before = status("VmRSS")
            made = stowage.load(PATH, framework="numpy", dtype=DTYPE, threads=4)
            peak = status("VmHWM") - before
            held = sum(w.nbytes for w in made.values())
            print(held, peak)
        """
        for dtype, held in ((None, 96 << 20), ("float16", 48 << 20)):
            _, out, _ = python(code.replace("PATH", repr(path)).replace("DTYPE", repr(dtype)), PYTHONPATH=os.environ.get("PYTHONPATH", ""), **_library())
            self.assertEqual(int(out.split()[0]), held)
            self.assertLess(int(out.split()[1]), held + (16 << 20))

    def test_examples_of_the_documentation_run(self):
        import stowage._load
        import stowage._model
        import stowage._save

        for module in (stowage._load, stowage._save, stowage._model):
            self.assertEqual(doctest.testmod(module).failed, 0)


@needs("numpy")
class Accuracy(unittest.TestCase):
    @in_turn(1)
    def test_a_trained_network_keeps_its_accuracy(self):
        """examples/accuracy.py with a fifth of its samples: what docs/models.md states holds."""
        example = Path(__file__).resolve().parents[2] / "examples" / "accuracy.py"
        more = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **_library()}
        _, out, _ = python(f"import runpy; runpy.run_path({str(example)!r})['main'](24000)", timeout=240, **more)
        share = {line[:11].strip(): float(line.split()[-1].rstrip("%")) for line in out.splitlines()}
        self.assertGreater(share["float32"], 90)
        for name, lost in (("q8_0", 0.2), ("q4_0", 1), ("pruned 50%", 2)):
            self.assertGreater(share[name], share["float32"] - lost, out)


def _library():
    named = os.environ.get("STOWAGE_LIBRARY")
    return {"STOWAGE_LIBRARY": named} if named else {}


def _read_bytes():
    with open("/proc/self/io") as file:
        return int(next(line for line in file if line.startswith("rchar")).split()[1])


@needs("torch", "numpy")
class Tensors(Case):
    def test_torch_tensors_come_back(self):
        torch.manual_seed(1)
        made = {
            "b": torch.randn(300, 200).to(torch.bfloat16),
            "f": torch.randn(40, 30, requires_grad=True),
            "turned": torch.randn(40, 30).t(),
            "i": torch.arange(5),
            "yes": torch.tensor([True, False]),
            "one": torch.tensor(2.5),
        }
        stowage.save(made, self.path("m.safetensors"))
        back = stowage.load(self.path("m.safetensors"), device="cpu")
        for name, values in made.items():
            self.assertEqual(back[name].dtype, values.dtype)
            self.assertTrue(torch.equal(back[name], values.detach()), name)
        halves = stowage.load(self.path("m.safetensors"), dtype=torch.float16)
        self.assertTrue(torch.equal(halves["f"], made["f"].detach().half()) and halves["i"].dtype == torch.int64)
        self.assertEqual(stowage.load(self.path("m.safetensors"), device="meta")["b"].shape, (300, 200))

    def test_large_tensors_are_ordinary_ones(self):
        made = {"w": torch.arange(3 << 20, dtype=torch.float32).reshape(3, 1024, 1024).to(torch.bfloat16)}
        stowage.save(made, self.path("m.safetensors"))
        back = stowage.load(self.path("m.safetensors"), threads=3)["w"]
        self.assertTrue(torch.equal(back, made["w"]) and back.is_contiguous() and back.storage_offset() == 0)
        back[0] = 1
        self.assertTrue(torch.equal(stowage.load(self.path("m.safetensors"), lazy=True).view("w")[1:, 5, ::7], made["w"][1:, 5, ::7]))

    def test_types_that_torch_lacks_become_wider(self):
        path = self.file({"h": ("U16", [2], struct.pack("<2H", 1, 65535))})
        self.assertEqual(stowage.load(path)["h"].tolist(), [1, 65535])

    def test_a_module_is_filled_in_place_and_saved(self):
        class Tied(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head, self.norm = torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50), torch.nn.BatchNorm1d(8)
                self.head.weight = self.embed.weight

        one, two = Tied(), Tied()
        stowage.save(one, self.path("m.safetensors"))
        before = two.embed.weight.data_ptr()
        self.assertIs(stowage.load(self.path("m.safetensors"), into=two), two)
        self.assertEqual(two.embed.weight.data_ptr(), before)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values())))
        kept = {name: value for name, value in one.state_dict().items() if name != "head.weight"}
        stowage.save(kept, self.path("tied.safetensors"))
        three = Tied()
        stowage.load(self.path("tied.safetensors"), into=three)
        self.assertTrue(torch.equal(three.head.weight, one.head.weight))
        with self.assertRaisesRegex(ValueError, "shape"):
            stowage.load(self.path("m.safetensors"), into=torch.nn.ModuleDict({"embed": torch.nn.Embedding(51, 8)}), strict=False)
        halves = Tied().half()
        stowage.load(self.path("m.safetensors"), into=halves)
        self.assertTrue(torch.equal(halves.head.bias, one.head.bias.detach().half()))

    def test_files_of_torch_are_read_and_no_pickle_is_executed(self):
        made = {"w": torch.randn(30, 20), "h": torch.randn(4).to(torch.bfloat16)}
        torch.save(made, self.path("m.pt"))
        back = stowage.load(self.path("m.pt"))
        self.assertTrue(torch.equal(back["w"], made["w"]) and torch.equal(back["h"], made["h"]))

        layer = torch.nn.Linear(3, 3)
        adam = torch.optim.AdamW(layer.parameters())
        layer(torch.randn(2, 3)).sum().backward()
        adam.step()
        torch.save({"epoch": 3, "state_dict": made, "optimizer_states": [adam.state_dict()], "loss": 0.5}, self.path("m.ckpt"))
        back = stowage.load(self.path("m.ckpt"))
        self.assertEqual(list(back), ["w", "h"])
        self.assertTrue(torch.equal(back["w"], made["w"]))

        class Evil:
            def __reduce__(self):
                return os.mkdir, (evil,)

        evil = self.path("executed")
        with zipfile.ZipFile(self.path("evil.pt"), "w") as archive:
            archive.writestr("evil/data.pkl", pickle.dumps({"w": Evil()}, 2))
        with self.assertRaises(stowage.StowageError):
            stowage.load(self.path("evil.pt"))
        self.assertFalse(os.path.exists(evil))

    def test_a_tensor_of_torch_is_an_index_only_without_dimensions(self):
        values = torch.arange(24).reshape(6, 4)
        stowage.save({"w": values}, self.path("m.safetensors"))
        with stowage.load(self.path("m.safetensors"), lazy=True) as lazy:
            self.assertTrue(torch.equal(lazy.view("w")[torch.tensor(2)], values[2]))
            for index in (torch.tensor([2]), torch.tensor([True] * 6), torch.tensor(True)):
                with self.assertRaises(IndexError):
                    lazy.view("w")[index]

    def test_a_lazy_model_is_a_state_dict_and_survives_pickling(self):
        layer = torch.nn.Linear(8, 4)
        stowage.save(layer.state_dict(), self.path("m.safetensors"))
        lazy = pickle.loads(pickle.dumps(stowage.load(self.path("m.safetensors"), lazy=True)))
        other = torch.nn.Linear(8, 4)
        other.load_state_dict(dict(lazy))
        self.assertTrue(torch.equal(other.weight, layer.weight))

    def test_the_way_to_a_device_gives_the_same_values(self):
        """Every device except the CPU is reached through buffers. Tested here with CPU tensors, in parts of 4 KiB."""
        from stowage import _load

        torch.manual_seed(2)
        made = {"w": torch.randn(700, 33), "b": torch.randn(5000).to(torch.bfloat16), "one": torch.tensor(3)}
        stowage.save(made, self.path("m.safetensors"))
        lazy = _load.LazyModel(self.path("m.safetensors"), staging="1M")
        kinds = {name: lazy._frame.choose(lazy._facts(name), None, False) for name in made}
        to = {name: torch.empty(shape, dtype=kind) for name, (_, kind, _, shape) in kinds.items()}
        jobs = [_load._Job(lazy._facts(name), to[name], None, [_load.Run(0, to[name].numel())]) for name in made]
        _load._read_device(lazy._model, lazy._frame, jobs, 3, 24 << 10, torch.device("xpu"))
        self.assertTrue(all(torch.equal(to[name], made[name]) for name in made))


if __name__ == "__main__":
    unittest.main()
