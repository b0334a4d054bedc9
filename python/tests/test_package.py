"""The package as installed: light to import, complete, clear about what is missing."""

import doctest
import importlib.util
import os
import pkgutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import stowage
from support import TREE, in_turn, needs, python


class Package(unittest.TestCase):
    def test_import_takes_under_30_ms_and_brings_nothing_heavy(self):
        code = """
        import sys, time
        begin = time.perf_counter()
        import stowage
        took = time.perf_counter() - begin
        heavy = [name for name in ("numpy", "pandas", "torch", "jax", "cupy", "scipy", "ctypes", "IPython") if name in sys.modules]
        print(took * 1000, heavy)
        """
        outs = [python(code)[1] for _ in range(3)]
        self.assertTrue(all("[]" in out for out in outs), outs)
        self.assertLess(min(float(out.split()[0]) for out in outs), 30)

    def test_every_public_name_is_there(self):
        for name in stowage.__all__:
            self.assertTrue(hasattr(stowage, name), name)
        self.assertIn("release", dir(stowage))
        with self.assertRaises(AttributeError):
            stowage.relaese

    def test_version_is_the_librarys(self):
        self.assertRegex(stowage.__version__, r"^\d+\.\d+\.\d+$")

    def test_the_command_is_the_compiled_one(self):
        out = subprocess.run([sys.executable, "-m", "stowage", "--version"], capture_output=True, text=True, check=True)
        self.assertEqual(out.stdout.strip(), f"stowage {stowage.__version__}")
        out = subprocess.run([sys.executable, "-m", "stowage", "frobnicate"], capture_output=True, text=True, check=False)
        self.assertEqual(out.returncode, 2)

    def test_a_missing_library_is_reported_with_the_next_step(self):
        code, _, err = python("import stowage; stowage.parse_size('8G')", check=False, STOWAGE_LIBRARY="/nowhere/libstowage.so")
        self.assertEqual(code, 1)
        self.assertIn("STOWAGE_LIBRARY", err)
        self.assertIn("FileNotFoundError" if "FileNotFound" in err else "NotFound", err)

    def test_an_older_library_is_reported_by_the_function_it_lacks(self):
        from stowage import _library

        with self.assertRaises(stowage.Unsupported) as caught:
            _library.call("stow_no_such_function")
        self.assertIn("older than this package", str(caught.exception))

    def test_errors_are_of_python_kinds(self):
        with self.assertRaises(ValueError):
            stowage.parse_size("8 apples")
        with self.assertRaises(TypeError):
            stowage.parse_size(None)
        with self.assertRaises(ValueError):
            stowage.parse_size(-1)
        with self.assertRaises(ValueError):
            stowage.parse_size(0.5)
        with self.assertRaises(FileNotFoundError):
            stowage.explain("no such recording")
        self.assertTrue(issubclass(stowage.OutOfMemory, MemoryError))

    @in_turn(0)
    @needs("mypy")
    def test_types_check_and_so_does_a_program_of_every_public_name(self):
        package = Path(stowage.__file__).parent
        names = [*stowage.__all__, "open", "__version__"]
        with tempfile.TemporaryDirectory() as folder:
            right, wrong = Path(folder) / "right.py", Path(folder) / "wrong.py"
            right.write_text("import stowage\n" + "".join(f"print(stowage.{name})\n" for name in names))
            wrong.write_text("import stowage\nstowage.relaese()\nstowage.limit(vram=[8])\n")
            words = ["-m", "mypy", "--config-file", TREE / "pyproject.toml", "--cache-dir", os.devnull, package, right, wrong]
            environment = dict(os.environ)
            if "site-packages" not in package.parts:  # Python searches it anyway and need not be pointed to it
                environment["MYPYPATH"] = str(package.parent)
            done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=False, env=environment)
        lines = [line for line in done.stdout.splitlines() if "wrong.py" not in line]
        self.assertEqual([line for line in lines if ": error:" in line], [], done.stdout + done.stderr)
        self.assertIn('Module has no attribute "relaese"', done.stdout)
        self.assertIn('Argument "vram" to "limit"', done.stdout)


@needs("numpy")
class Docstrings(unittest.TestCase):
    def test_examples_do_what_they_say(self):
        tried = 0
        for module in pkgutil.iter_modules(stowage.__path__):
            if module.name in ("__main__", "numba", "keras", "lightning", "transformers"):  # these import the framework
                continue
            found = importlib.import_module(f"stowage.{module.name}")
            failed, attempted = doctest.testmod(found, optionflags=doctest.ELLIPSIS)
            self.assertEqual(failed, 0, module.name)
            tried += attempted
        self.assertGreater(tried, 40)


class Foreign(unittest.TestCase):
    """Names of other people's making reach a terminal clean."""

    EVIL = "n\x1b]0;pwned\x07\x1b[31mEVIL\x9b31m\u202eabc\u2066\ud800\nforged"

    def clean(self, text):
        for letter in ("\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\ud800", "\nforged"):
            self.assertNotIn(letter, text)
        self.assertIn("EVIL", text)

    def test_names_are_cleaned_wherever_they_are_shown(self):
        from stowage import _release, _show
        from stowage._library import shown

        self.clean(shown(self.EVIL))
        self.clean(_show.text_table([("name", "bytes"), (self.EVIL, "1")]))
        self.clean(_show.html_table([("name", "bytes"), (self.EVIL, "1")]))
        self.clean(repr(_release.Holders([self.EVIL], self.EVIL)))
        with stowage.heap("sim:64M") as heap:
            block = heap.block("1M", tag=self.EVIL.replace("\ud800", ""))
            self.clean(repr(block))
            del block
        for reading in (lambda: stowage.open("EVIL\x1b[2J\x9b.npy"), lambda: stowage.report("EVIL\x1b[2J\x9b.stow").text):
            with self.assertRaises(stowage.StowageError) as caught:
                reading()
            self.clean(str(caught.exception))

    def test_safe_text_is_untouched(self):
        from stowage._library import shown

        for text in ("Größe 日本語 \U0001f600", "", "a  b"):
            self.assertEqual(shown(text), text)


if __name__ == "__main__":
    unittest.main()
