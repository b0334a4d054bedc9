"""Libraries that are missing, too old, or another package of the same name: reported or ignored, never an error of ours."""

import sys
import types
import unittest
from unittest import mock

import stowage
from support import python


def setUpModule():
    # Import everything before modules are replaced: a file of the package imported meanwhile would be replaced too.
    for name in stowage.__all__:
        getattr(stowage, name)


def module(name, **inside):
    made = types.ModuleType(name)
    for key, value in inside.items():
        setattr(made, key, value)
    return made


#: A PyTorch from before memory histories: its CUDA has started, and it can do little else.
OLD_CUDA = types.SimpleNamespace(
    is_available=lambda: True,
    is_initialized=lambda: True,
    device_count=lambda: 1,
    current_device=lambda: 0,
    memory_allocated=lambda device: 5 << 20,
    memory_reserved=lambda device: 8 << 20,
    max_memory_allocated=lambda device: 9 << 20,
    memory=types.SimpleNamespace(),
)


class Missing(unittest.TestCase):
    def test_without_numpy_reading_says_what_to_install(self):
        out = python(
            """
            import struct, sys
            sys.modules["numpy"] = None  # as if it were not installed
            import stowage
            head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (4, 2), }".ljust(117) + b"\\n"
            with open("a.npy", "wb") as file:
                file.write(b"\\x93NUMPY\\x01\\x00" + struct.pack("<H", len(head)) + head + bytes(64))
            for call in (lambda: stowage.open("a.npy"), lambda: list(stowage.batches("a.npy", 2))):
                try: call()
                except ImportError as error: print(isinstance(error, stowage.StowageError), error)
            print(stowage.shrink("a.npy", "b.npz", quiet=True))
            """
        )[1]
        self.assertEqual(out.count("True reading arrays needs numpy"), 2, out)
        self.assertEqual(out.count("pip install numpy"), 2, out)
        self.assertTrue(out.endswith("b.npz\n"), out)

    def test_without_cupy_and_numba_the_packages_are_named(self):
        with mock.patch.dict(sys.modules, {"cupy": None, "numba": None}):
            for call, package in ((stowage.use_cupy, "cupy-cuda12x"), (stowage.use_numba, "numba-cuda")):
                with self.assertRaises(ImportError) as caught:
                    call()
                self.assertIn(package, str(caught.exception))


class Old(unittest.TestCase):
    def test_an_old_pytorch_is_reported_where_it_fails_and_used_where_it_can(self):
        with mock.patch.dict(sys.modules, {"torch": module("torch", __version__="1.4.0", cuda=OLD_CUDA)}):
            self.assertIn("torch on device 0", repr(stowage.info("sim:1G")))
            with self.assertRaisesRegex(NotImplementedError, "PyTorch 1.4.0 keeps no history.* install 2.1"):
                with stowage.record("never_made.stow"):
                    pass
            with stowage.step("one"):
                pass
            self.assertIn("freed", repr(stowage.release()))
            said = stowage.explain(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"))
            self.assertEqual(said.data["numbers"]["asked_bytes"], 2 << 30)

    def test_an_old_cupy_and_an_old_numba_are_reported_by_version(self):
        cupy = module("cupy", __version__="7.8", cuda=types.SimpleNamespace())
        with mock.patch.dict(sys.modules, {"cupy": cupy}):
            with self.assertRaisesRegex(NotImplementedError, "CuPy 7.8 .* install CuPy 9"):
                stowage.use_cupy()
            stowage.release()
        numba = module("numba", __path__=[], cuda=module("numba.cuda"))
        with mock.patch.dict(sys.modules, {"numba": numba, "numba.cuda": numba.cuda}):
            with self.assertRaisesRegex(NotImplementedError, "install Numba 0.51"):
                stowage.use_numba()

    def test_a_module_that_only_has_the_name_is_passed_over(self):
        names = ("torch", "cupy", "jax", "pandas", "scipy", "scipy.sparse", "tensorflow")
        with mock.patch.dict(sys.modules, {name: module(name) for name in names}):
            self.assertIn("freed", repr(stowage.release()))
            self.assertIn("simulated device", repr(stowage.info("sim:1G")))
            stowage.holders([1])
            with stowage.step():
                pass
            with self.assertRaises(TypeError):
                stowage.shrink([1, 2, 3])


if __name__ == "__main__":
    unittest.main()
