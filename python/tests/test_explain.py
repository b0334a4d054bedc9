"""explain, record, report, step; notes on exceptions."""

import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import stowage
from support import LOOKED, TREE, in_turn, needs, python

SNAPSHOT = TREE / "tests" / "samples" / "causes" / "no_grad_missing-cnn.pickle.gz"


@contextlib.contextmanager
def inside(folder):
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class Explain(unittest.TestCase):
    def test_a_recording_is_explained(self):
        if not SNAPSHOT.exists():
            self.skipTest(f"no recording at {SNAPSHOT}")
        made = stowage.explain(SNAPSHOT)
        self.assertEqual(made.cause, "no_grad_missing")
        self.assertIn("torch.no_grad", made.text)
        card = made._repr_html_()
        self.assertIn("<code>with torch.no_grad():</code>", card)
        self.assertRegex(card.split("<details")[0], r"saves 1008\.6 MiB \(replayed\)")
        self.assertNotIn("white-space:pre;", card)  # long lines of evidence wrap
        self.assertEqual(made.data["fixes"][0]["basis"], "replayed")

    def test_messages_and_exceptions(self):
        made = stowage.explain(message="RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.")
        self.assertEqual(made.data["numbers"]["asked_bytes"], 2 << 30)
        error = MemoryError()
        self.assertIs(stowage.explain(error), stowage.explain(error))
        self.assertIs(stowage.explain(), stowage.explain(error))
        self.assertIn("holds", stowage.explain(error).text)

    def test_a_text_needs_no_keyword_and_a_name_that_exists_is_a_path(self):
        text = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB."
        self.assertEqual(stowage.explain(text).data["numbers"]["asked_bytes"], 2 << 30)
        self.assertEqual(stowage.explain("Traceback:\n  …\nMemoryError\n").cause, stowage.explain(message="MemoryError").cause)
        self.assertIsNone(stowage.explain("two lines,\nno error").cause)
        with tempfile.TemporaryDirectory() as folder, inside(folder):
            Path("error.txt").write_text(text)
            Path("Killed").write_text(text)
            for name in ("error.txt", Path("error.txt"), "Killed"):
                made = stowage.explain(name)
                self.assertEqual(made.data["numbers"]["asked_bytes"], 2 << 30)
                self.assertEqual(made.message, text)
            Path("Killed").write_bytes(b"\0" * 600)
            with self.assertRaises(stowage.StowageError):
                stowage.explain("Killed")
        with self.assertRaises(FileNotFoundError):
            stowage.explain(Path("Killed"))

    def test_wrong_use(self):
        out = python(
            """
            import stowage
            for call in (lambda: stowage.explain(), lambda: stowage.explain(last=True)):
                try: call()
                except stowage.StowageError as error: print("reported:", error)
            """
        )[1]
        self.assertEqual(out.count("reported:"), 2, out)
        with self.assertRaises(ValueError):
            stowage.explain(KeyError("x"))
        with self.assertRaises(TypeError):
            stowage.explain(MemoryError(), last=True)
        with self.assertRaises(FileNotFoundError):
            stowage.explain("/nowhere.pickle")
        with self.assertRaisesRegex(TypeError, "not an exception, a text or"):
            stowage.explain(5)

    @needs("numpy")
    def test_a_request_that_fails_at_the_limit_names_what_fills_it(self):
        out = python(
            """
            import numpy, stowage
            stowage.limit(ram="700M")
            kept = [numpy.ones(10 << 20) for _ in range(5)]
            looked()  # the bound counts all of it
            for rows in (48 << 20, 1 << 40):  # 384 MiB to the 400 MiB held: above the limit and its floor
                try: numpy.ones(rows)
                except MemoryError as error: print(isinstance(error, stowage.HostMemoryError), stowage.explain(error).headline)
            """,
            before=LOOKED,
        )[1]
        first, second = out.splitlines()
        self.assertIn("False kept: a list of 5 arrays", first)
        self.assertIn("larger than the limit of this process, 700.0 MiB", second)

    @needs("numpy")
    def test_a_process_interrupted_at_the_limit_names_what_fills_it(self):
        out = python(
            """
            import numpy, stowage
            stowage.limit(ram="700M")
            try:
                kept = [numpy.ones(10 << 20) for _ in range(5)]
                more = numpy.ones(34 << 20)  # 672 MiB and the interpreter: above the margin, below the bound
                while True: pass
            except MemoryError as error: print(isinstance(error, stowage.HostMemoryError), stowage.explain(error).headline)
            """
        )[1]
        self.assertIn("True kept: a list of 5 arrays", out)

    @needs("numpy")
    def test_a_request_larger_than_the_limit_names_the_limit_and_the_line(self):
        out = python(
            """
            import numpy, stowage
            stowage.limit(ram="400M")
            exec(compile("def load():\\n    return numpy.ones(60 << 20)", "load.py", "exec"))
            try: load()
            except MemoryError as error: print(stowage.explain(error))
            """
        )[1]
        self.assertIn("larger than the limit of this process, 400.0 MiB", out)
        self.assertIn("Try first: raise the limit of this process: stowage.limit(ram=…)", out)
        self.assertNotIn("swap", out)
        self.assertRegex(out, r"your own line in the traceback: load.py:2 in load")

    @needs("numpy")
    def test_the_traceback_of_a_full_process_ends_at_its_own_line(self):
        err = python(
            """
            import numpy, stowage
            stowage.enable(spill=None, ram="600M")
            kept = []

            while True: len(kept) < 70 and kept.append(numpy.ones(1 << 20))  # 560 MiB: the watch interrupts, no request fails
            """,
            check=False,
        )[2]
        self.assertIn("HostMemoryError", err)
        self.assertIn('File "<string>", line 6, in <module>', err)
        self.assertNotIn("_ram.py", err)

    @needs("numpy")
    def test_the_traceback_of_a_failed_request_ends_at_its_own_line(self):
        err = python(
            """
            import numpy, stowage
            stowage.enable(spill=None, ram="600M")
            kept = [numpy.ones(1 << 20) for _ in range(45)]
            looked()
            kept.append(numpy.ones(44 << 20))  # 352 MiB to the 360 MiB held: more than the bound
            """,
            before=LOOKED,
            check=False,
        )[2]
        self.assertIn("_ArrayMemoryError", err)
        self.assertIn("kept: a list of 45 arrays", err)
        self.assertIn(f'File "<string>", line {LOOKED.count(chr(10)) + 6}, in <module>', err)
        self.assertNotIn("_ram.py", err)

    @needs("numpy")
    def test_an_uncaught_memory_error_carries_the_explanation(self):
        code, _, err = python(
            """
            import numpy, stowage
            stowage.enable(spill=None)
            table = numpy.ones(4 << 20)
            numpy.ones((1 << 20, 1 << 27))
            """,
            check=False,
        )
        self.assertEqual(code, 1)
        self.assertIn("1.0 PiB", err)
        self.assertRegex(err, "larger than all host memory, [0-9.]+ [MGT]iB")
        self.assertRegex(err, r"table: numpy.ndarray \(4194304,\) of float64, 32.0 MiB")

    @in_turn(1)
    @needs("torch")
    def test_pytorchs_own_error_on_the_host(self):
        code, _, err = python(
            """
            import stowage, torch
            stowage.enable(spill=None)
            torch.ones(1 << 48)
            """,
            check=False,
        )
        self.assertEqual(code, 1)
        self.assertRegex(err, "stowage: .* more memory than any machine has")

    @in_turn(0)
    @needs("torch")
    def test_torch_is_hooked_when_it_is_imported_later(self):
        out = python(
            """
            import stowage
            stowage.enable(spill=None)
            import torch
            from stowage import _history
            print("torch asked" in _history._hooked, torch.cuda.is_initialized(), torch.ones(3).sum().item())
            """
        )[1]
        self.assertEqual(out.strip(), "True False 3.0")

    def test_refusals_nobody_asks_about_leave_one_file_at_most(self):
        from unittest import mock

        from stowage import _history

        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"{number}.pickle" for number in range(3)]
            for path in paths:
                path.write_text("x")
            with mock.patch.object(_history, "snapshot_file", side_effect=[str(path) for path in paths]):
                for _ in paths:
                    _history._on_torch_refusal()
            self.assertEqual([path.exists() for path in paths], [False, False, True])
            _history._forget_observed()
            self.assertEqual(list(Path(folder).iterdir()), [])

    def test_an_error_that_is_not_about_memory_is_left_alone(self):
        _, _, err = python("import stowage; stowage.enable(spill=None); {}['x']", check=False)
        self.assertNotIn("stowage:", err)
        self.assertIn("KeyError", err)

    def test_an_error_of_the_program_is_read_without_its_code(self):
        ran = []

        def trap(name):
            def method(self, *_):
                ran.append(name)
                return 3 if name == "__str__" else object.__getattribute__(self, *_)

            return method

        text = "CUDA out of memory. Tried to allocate 2.00 GiB."
        traps = {name: trap(name) for name in ("__str__", "__repr__", "__getattr__", "__getattribute__", "__setattr__", "__eq__", "add_note")}
        traps.update({name: property(trap(name)) for name in ("__class__", "args", "__traceback__", "scene", "__stowage__")}, __hash__=object.__hash__)
        for base in (RuntimeError, MemoryError, KeyError):
            for module in ("__main__", "torch"):
                kind = type("Odd", (base,), {**traps, "__module__": module})
                with contextlib.redirect_stderr(io.StringIO()):
                    made = stowage._explain.annotate(kind(text))
                self.assertIn("2.0 GiB", made.text)
                self.assertIsNone(stowage._explain.annotate(kind("no") if base is not MemoryError else OSError("no")))
        odd = type("Odd", (), traps)()
        self.assertIsNone(stowage._explain.annotate(RuntimeError(odd)))
        self.assertEqual(ran, [])

    def test_the_text_of_an_error_is_as_the_interpreter_shows_it(self):
        import traceback

        from stowage._errors import last_lines

        for error in (MemoryError(), RuntimeError("x"), OSError(2, "no"), KeyError("k"), ValueError(1, "two"), stowage.StowageError("x"), RuntimeError(("a", 1))):
            self.assertEqual(last_lines(error), "".join(traceback.format_exception_only(type(error), error)))

    def test_an_old_python_gets_it_in_the_text(self):
        from stowage import _explain

        class Without(MemoryError):
            """NumPy's error builds its text from a shape and a type."""

            def __str__(self):
                return "no room for an array"

        with mock.patch.object(_explain, "_NOTES", False):
            error = MemoryError("no room")
            _explain.annotate(error)
            self.assertIn("stowage: ", str(error))
            with contextlib.redirect_stderr(io.StringIO()) as said:
                _explain._on_exception(Without, Without((1, 2), "float64"), None)
        self.assertIn("stowage: The program asked for more host memory (RAM) than there was", said.getvalue())


class Record(unittest.TestCase):
    @unittest.skipUnless(SNAPSHOT.exists(), f"no recording at {SNAPSHOT}")
    def test_a_recording_of_this_process_is_explained_with_the_error_it_ended_with(self):
        from unittest import mock

        from stowage import _explain

        said = "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 7.00 GiB of which 1.00 MiB is free."
        with mock.patch.dict(_explain._ended_with, {str(SNAPSHOT): said}):
            self.assertIn("7.0 GiB", stowage.explain(SNAPSHOT).text)
        self.assertNotIn("7.0 GiB", stowage.explain(SNAPSHOT).text)

    def test_a_heap_is_recorded_with_its_steps_and_explained(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.stow"
            with self.assertRaises(MemoryError):
                with stowage.record(path), stowage.heap("sim:256M") as heap:
                    for number in range(100):
                        with stowage.step(f"step {number}"):
                            heap.alloc("8M", tag="kept")
            self.assertTrue(path.exists())
            report = stowage.report(path)
            self.assertIn("256.0 MiB", report.text)
            self.assertIn("<iframe", report._repr_html_())
            self.assertIn("<!doctype html", report.page[:200].lower())
            report.save(Path(folder) / "page.html")
            self.assertGreater((Path(folder) / "page.html").stat().st_size, 10_000)
            made = stowage.explain(path)
            self.assertIn("8.0 MiB", made.text)
            self.assertIs(stowage.report().paths[0].endswith("run.stow"), True)
            with self.assertRaises(FileExistsError):
                with stowage.record(path):
                    pass

    def test_one_recording_at_a_time(self):
        with tempfile.TemporaryDirectory() as folder:
            with stowage.record(Path(folder) / "a.stow"):
                with self.assertRaises(stowage.StowageError):
                    with stowage.record(Path(folder) / "b.stow"):
                        pass
            with self.assertRaises(FileNotFoundError):
                with stowage.record(Path(folder) / "none" / "a.stow"):
                    pass

    def test_the_programs_own_error_is_not_hidden(self):
        from unittest import mock

        from stowage import _recording, _trace

        with tempfile.TemporaryDirectory() as folder:
            with mock.patch.object(_recording, "note_latest", side_effect=stowage.StowageError("nothing was recorded")):
                with self.assertRaises(KeyboardInterrupt):
                    with stowage.record(Path(folder) / "a.stow"):
                        raise KeyboardInterrupt
                with self.assertRaisesRegex(stowage.StowageError, "nothing was recorded"):
                    with stowage.record(Path(folder) / "b.stow"):
                        pass
            self.assertEqual((_recording._recordings, _trace.listening()), ([], []))

    def test_step_refuses_what_is_no_name(self):
        for wrong in (7, "", "x" * 1000):
            with self.assertRaises(ValueError):
                stowage.step(wrong)


if __name__ == "__main__":
    unittest.main()
