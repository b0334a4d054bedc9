"""Real notebooks in real kernels: magics and their rich output, errors, restart, death."""

import contextlib
import json
import os
import queue
import re
import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path

import stowage
from support import LOOKED, STANDIN, TREE, clean_environment, in_turn, needs, needs_standin


KERNEL = "stowage-tests"


@contextlib.contextmanager
def kernels(**more):
    """Returns a folder for state, and an environment with a kernel of this interpreter."""
    with tempfile.TemporaryDirectory() as state:
        place = Path(state) / "jupyter" / "kernels" / KERNEL
        place.mkdir(parents=True)
        words = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        (place / "kernel.json").write_text(json.dumps({"argv": words, "display_name": KERNEL, "language": "python"}))
        before = dict(os.environ)
        after = clean_environment(
            XDG_STATE_HOME=state,
            XDG_CACHE_HOME=state,
            IPYTHONDIR=state,
            JUPYTER_RUNTIME_DIR=state,
            JUPYTER_PATH=Path(state) / "jupyter",
            PYDEVD_DISABLE_FILE_VALIDATION=1,
            **more,
        )
        os.environ.clear()
        os.environ.update(after)
        try:
            yield state
        finally:
            os.environ.clear()
            os.environ.update(before)


def outputs(cell):
    """Returns everything that a cell shows: (kind, text)."""
    found = []
    for output in cell.get("outputs", []):
        if output["output_type"] == "stream":
            found.append(("text", output["text"]))
        elif output["output_type"] == "error":
            found.append(("error", "\n".join(output["traceback"])))
        else:
            for kind, text in output["data"].items():
                found.append((kind, text))
    return found


def shown(cell, kind):
    return "\n".join(text for name, text in outputs(cell) if name == kind)


@in_turn(1, parts=2)
@needs("nbclient", "nbformat", "ipykernel", "numpy")
class Notebook(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import nbformat
        from nbclient import NotebookClient

        cls.sources = {
            "load": "%load_ext stowage\nimport numpy, stowage",
            "info": "%stowage sim:16G",
            "watch": "seen = stowage.watch(0.05)\nseen.stop()",
            "cell": "%%stowage\nkept = numpy.ones((1000, 1000))\nlost = numpy.ones((3000, 1000)); del lost",
            "plain": "%%stowage\nx = 1",
            "small": "%%stowage\nnames = [str(i).zfill(200) for i in range(20000)]",
            "more": "%%stowage\nnames += [str(i).zfill(200) for i in range(10000)]\nother_names = names",
            "many": "%%stowage\nparts = [bytearray(1 << 20) for _ in range(50)]",
            "option": "%%stowage --no-such\nran_it = 1",
            "line_option": "%stowage --no-such",
            "not_run": "'ran_it' in globals()",
            "figures": "with stowage.watch(0.05) as looked:\n    block = bytearray(32 << 20)\nrepr(looked)",
            "lines": "%%stowage --lines\npieces = [bytearray(4 << 20) for _ in range(4)]",
            "decorated": "@stowage.profile\ndef fill():\n    return bytearray(20 << 20)\nfilled = fill()",
            "heap": "%%stowage\ncard = stowage.heap('sim:64M')\nkept_block = card.block('16M')\nlost = card.block('32M'); del lost",
            "show": "kept",
            "kept_by": "stowage.holders(kept)",
            "alias": "other = [kept]",
            "release": "%release kept",
            "rest": "stowage.holders(other[0])",
            "release2": "%release other",
            "gone": "'kept' in globals() or 'other' in globals() or any(isinstance(value, numpy.ndarray) for value in Out.values())",
            "wrong": "%release nothing_here",
            # More than an address can hold: a system that overcommits would start to fill a smaller request.
            "error": "numpy.ones((1 << 20, 1 << 27))",
            "after": "stowage.explain()",
            "caught": "%%stowage\nnumpy.ones((1 << 20, 1 << 27))",
            "await": "%%stowage\nimport asyncio\nawait asyncio.sleep(0)",
            "fail": "def fail():\n    inside = numpy.ones(1 << 20)\n    1 / 0\nshown = numpy.ones(1 << 20)\nfail()",
            "frames": "stowage.release()",
            "other_error": "1 / 0",
            "record": "import tempfile, os\npath = os.path.join(tempfile.mkdtemp(), 'run.stow')\n"
            "with stowage.record(path), stowage.heap('sim:64M') as heap:\n    heap.alloc('1M')\nstowage.report(path)",
            "limit": "stowage.limit(ram='900M')",
            "grow": LOOKED + "hoard = []\nwhile looked():\n    hoard.append(numpy.ones(4 << 20))",
            "alive": "len(hoard) > 3",
            "drop": "%release hoard",
            "unload": "%unload_ext stowage",
            "unloaded": "%stowage",
        }
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cls.sources.values()])
        with kernels():
            try:
                NotebookClient(book, timeout=120, kernel_name=KERNEL, allow_errors=True).execute()
            except Exception as error:  # the notebook's own ends, not those of its cells: of which?
                done = [name for name, cell in zip(cls.sources, book.cells) if cell.execution_count is not None]
                raise AssertionError(f"{error!r} after the cell {done[-1] if done else 'none'!r}") from error
        cls.cells = dict(zip(cls.sources, book.cells))

    def errors(self, name):
        return shown(self.cells[name], "error")

    def test_no_cell_failed_that_should_not(self):
        for name in self.sources:
            if name not in ("wrong", "error", "caught", "await", "fail", "other_error", "grow", "unloaded"):
                self.assertEqual(self.errors(name), "", name)

    def test_the_line_magic_shows_a_bar_and_a_table(self):
        page = shown(self.cells["info"], "text/html")
        self.assertIn("background:", page)
        self.assertIn("simulated device", page)
        self.assertIn("simulated device", shown(self.cells["info"], "text/plain"))

    def test_watch_is_a_live_display(self):
        self.assertIn("at the peak", shown(self.cells["watch"], "text/html"))

    def test_watch_ends_with_one_figure_in_page_and_repr(self):
        page = [out for out in self.cells["figures"].outputs if "text/html" in out.get("data", {})][-1]["data"]["text/html"]
        text = shown(self.cells["figures"], "text/plain")
        said = text[text.index("at the peak") : text.index(">")]
        self.assertIn(said, page)

    def test_an_unknown_option_is_refused(self):
        self.assertIn("--no-such", self.errors("option") + shown(self.cells["option"], "text"))
        self.assertIn("--no-such", self.errors("line_option") + shown(self.cells["line_option"], "text"))
        self.assertIn("False", shown(self.cells["not_run"], "text/plain"))

    def test_the_cell_magic_reports_peak_difference_and_survivors(self):
        page, text = shown(self.cells["cell"], "text/html"), shown(self.cells["cell"], "text/plain")
        self.assertIn("this cell", page)
        self.assertRegex(text, r"host +\+\d\d\.\d MiB +\+")
        peak = float(text.split("host")[1].split()[0].strip("+"))
        self.assertGreater(peak, 28)  # the one kept and the one lost
        self.assertRegex(text, r"numpy.ndarray float64 \(1000, 1000\) +7.6 MiB +kept")
        self.assertNotIn("3000", text)
        self.assertIn("nothing of 1 MiB or more survived", shown(self.cells["plain"], "text/plain"))
        self.assertRegex(shown(self.cells["small"], "text/plain"), r"list of 20000 str +5.0 MiB +names")
        self.assertRegex(shown(self.cells["more"], "text/plain"), r"list of 30000 str +2.5 MiB +names, other_names\n")
        self.assertRegex(shown(self.cells["many"], "text/plain"), r"list of 50 bytearray +50.0 MiB +parts\n")
        self.assertNotIn("parts[", shown(self.cells["many"], "text/plain"))  # the list stands for its parts
        text = shown(self.cells["heap"], "text/plain")
        self.assertRegex(text, r"heap on sim:64M +\+48.0 MiB +\+16.0 MiB")
        self.assertRegex(text, r"stowage.Block +16.0 MiB +kept_block")

    def test_profiled_lines_are_named_by_their_cell(self):
        number = self.cells["lines"].execution_count
        self.assertRegex(shown(self.cells["lines"], "text/plain"), rf"16.0 MiB +16.0 MiB +16.0 MiB .* In\[{number}\]:1 ")
        number = self.cells["decorated"].execution_count
        said = "".join(text for _, text in outputs(self.cells["decorated"]))
        self.assertRegex(said, rf"20.0 MiB +20.0 MiB +20.0 MiB .* In\[{number}\]:3 fill")

    def test_release_deletes_the_name_and_the_result_and_names_who_holds_the_rest(self):
        said = shown(self.cells["release"], "text/plain")
        self.assertIn("deleted: kept", said)
        self.assertIn("other[0]", said)
        self.assertIn("<table", shown(self.cells["release"], "text/html"))
        self.assertIn("other[0]", shown(self.cells["rest"], "text/plain"))
        self.assertRegex(shown(self.cells["release2"], "text/plain"), r"freed \d+\.\d MiB of the host")
        self.assertEqual(shown(self.cells["gone"], "text/plain"), "False")

    def test_holders_are_named_as_people_know_them(self):
        names = shown(self.cells["kept_by"], "text/plain").splitlines()[1:]
        number = self.cells["show"].execution_count
        self.assertEqual(sorted(name.strip() for name in names), sorted(["kept", "_", f"_{number}", f"Out[{number}]"]))

    def test_frames_of_the_last_error_are_reported_and_no_names_of_the_notebook(self):
        said = shown(self.cells["frames"], "text/plain")
        self.assertRegex(said, r"8.0 MiB +local inside of fail \(In\[\d+\]:3\)\n")
        self.assertRegex(said, r"8.0 MiB +shown\n")
        self.assertEqual(said.count("the last traceback's frames hold"), 1, said)

    def test_a_cell_that_awaits_is_refused_with_the_next_step(self):
        said = self.errors("await") + shown(self.cells["await"], "text")
        self.assertIn("stowage.watch()", said)
        self.assertNotIn("already running", said)

    def test_a_wrong_name_is_reported(self):
        self.assertIn("no name nothing_here", self.errors("wrong"))

    def test_a_memory_error_carries_its_explanation_into_the_cell(self):
        self.assertIn("<b>One request for 1.0 PiB", shown(self.cells["error"], "text/html"))
        self.assertIn("One request for 1.0 PiB", shown(self.cells["error"], "text/plain"))
        self.assertNotIn("One request", self.errors("error"))
        self.assertIn("1.0 PiB", shown(self.cells["after"], "text/html"))
        self.assertIn("<b>One request for 1.0 PiB", shown(self.cells["caught"], "text/html"))

    def test_other_errors_are_as_ever(self):
        self.assertIn("ZeroDivisionError", self.errors("other_error"))
        self.assertNotIn("stowage", self.errors("other_error"))

    def test_the_report_is_inline(self):
        self.assertIn("<iframe srcdoc=", shown(self.cells["record"], "text/html"))

    def test_near_the_limit_the_cell_is_interrupted_and_the_kernel_lives(self):
        self.assertIn("host memory runs out", self.errors("grow"))
        card = shown(self.cells["grow"], "text/html")
        self.assertRegex(card, r"hoard: a list of \d+ arrays, [\d.]+ [MG]iB, grows by [\d.]+ [KM]iB per iteration at line \d+ of In\[\d+\]")
        self.assertIn("word-break:normal", card)
        details = card.split("<details")[1]
        self.assertRegex(details, r'<pre style="[^"]*font-family:monospace[^"]*word-break:normal')  # columns, and no broken words
        self.assertNotIn("Try first", details)  # the list above says it
        plain = re.sub(r"\x1b\[[\d;]*m", "", self.errors("grow"))
        self.assertLess(max(map(len, plain.splitlines()[-2:])), 100)
        self.assertNotIn("hoard[", card)
        self.assertNotIn("Try first", self.errors("grow"))  # the card has it, not the raw text
        self.assertEqual(shown(self.cells["alive"], "text/plain"), "True")
        self.assertRegex(shown(self.cells["drop"], "text/plain"), r"freed \d+\.\d MiB of the host")

    def test_it_can_be_unloaded(self):
        self.assertIn("stowage", self.errors("unloaded") + shown(self.cells["unloaded"], "text"))


@needs("jupyter_client", "ipykernel", "numpy")
class Kernel(unittest.TestCase):
    @staticmethod
    def start():
        from jupyter_client.manager import start_new_kernel

        return start_new_kernel(kernel_name=KERNEL)

    def ask(self, client, code, timeout=60):
        """Runs code. Returns (what it printed and showed, its errors)."""
        # With stop_on_error a kernel drops requests for a moment after a cell that failed, and answers them with nothing.
        request = client.execute(code, stop_on_error=False)
        text, error = "", ""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            try:
                message = client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                text += content["text"]
            elif kind in ("execute_result", "display_data"):
                text += content["data"]["text/plain"]
            elif kind == "error":
                error += "\n".join(content["traceback"])
            elif kind == "status" and content["execution_state"] == "idle":
                return text, error
        raise AssertionError(f"no end of {code!r}: {text} {error}")

    @in_turn(2)
    def test_a_killed_kernel_is_explained_by_the_next(self):
        with kernels():
            self.kill_and_explain()

    @in_turn(2)
    def test_a_second_shortage_is_shown_as_well_as_the_first(self):
        fill = "def fill():\n    kept = []\n    while True:\n        kept.append(bytes([len(kept) % 256]) * 100_000)"
        with kernels():
            manager, client = self.start()
            try:
                self.ask(client, "%load_ext stowage\nimport stowage; stowage.enable(ram='600M')")
                self.ask(client, fill)
                for turn in range(3):  # the error of one cell keeps its list, by which the next would fail at once
                    text, error = self.ask(client, "fill()")
                    self.assertIn("MemoryError", error)  # HostMemoryError, unless a request fails before the watch has looked again
                    self.assertRegex(text + error, "kept: a list of [0-9]+ bytes objects")
                    self.assertEqual("that the last error kept" in text, turn > 0, text)
            finally:
                client.stop_channels()
                manager.shutdown_kernel(now=True)

    def kill_and_explain(self):
        manager, client = self.start()
        try:
            self.ask(client, "import stowage, numpy, os, time, json, pathlib; stowage.limit(ram='700M')")
            self.ask(client, "big = numpy.ones(70 << 20)")
            code = (
                "# the cell that was too much\n"
                "file = pathlib.Path(os.environ['XDG_STATE_HOME'], 'stowage', 'processes', f'{os.getpid()}.json')\n"
                "while not (json.loads(file.read_text())['cell'] or '').startswith('# the cell'): time.sleep(0.05)\n"
                "print('ready', flush=True); time.sleep(100)"
            )
            client.execute(code)
            while True:
                message = client.get_iopub_msg(timeout=60)
                if message["msg_type"] == "stream" and "ready" in message["content"]["text"]:
                    break
            os.kill(manager.provisioner.pid if hasattr(manager, "provisioner") else manager.kernel.pid, signal.SIGKILL)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
        manager, client = self.start()
        try:
            text, error = self.ask(client, "import stowage\nstowage.explain(last=True)")
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
        self.assertEqual(error, "")
        self.assertIn("because host memory (RAM) ran out", text)
        self.assertIn("of the 700.0 MiB it was limited to", text)
        self.assertIn("the cell that was too much", text)

    @in_turn(0)
    @needs_standin
    def test_a_kernel_comes_back_with_the_shim(self):
        with kernels(STOWAGE_LIBCUDA=STANDIN):
            self.restart()

    def restart(self):
        manager, client = self.start()
        look = "sum('libstowage-shim.so' in line for line in open('/proc/self/maps')) > 0"
        try:
            self.ask(client, "import ctypes, os, stowage\ndriver = ctypes.CDLL(os.environ['STOWAGE_LIBCUDA'])\n"
                     "driver.cuInit(0)\nmine = 7")
            text, error = self.ask(client, "stowage.enable(vram='64M')")
            self.assertIn("stowage.restart(vram='64M', spill='auto')", error)
            text, error = self.ask(client, "print(os.getpid())\nstowage.restart(vram='64M', spill='auto')")
            self.assertIn("run the cells again", text)
            before = text.split()[0]
            text, end = "True", time.monotonic() + 60
            while "False" not in text and time.monotonic() < end:
                time.sleep(0.1)
                # Requests during the restart are lost, and at first the old process still answers.
                with contextlib.suppress(AssertionError):
                    text, error = self.ask(client, "import os\nprint(os.getpid())\n'mine' in globals()", timeout=5)
            self.assertIn("False", text)
            self.assertIn(before, text)
            self.assertEqual(self.ask(client, look), ("True", ""))
            text, error = self.ask(client, "import stowage; stowage.enable(vram='64M')")
            self.assertIn("preloaded", text, error)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


@needs("nbclient", "nbformat", "ipykernel", "numpy")
class Examples(unittest.TestCase):
    @in_turn(1)
    def test_the_notebook_of_the_examples_runs_from_top_to_bottom(self):
        import nbformat
        from nbclient import NotebookClient

        path = TREE / "examples" / "colab.ipynb"
        if not path.exists():
            self.skipTest(f"{path} is not here")
        book = nbformat.read(path, as_version=4)
        with kernels() as state:
            NotebookClient(book, timeout=120, kernel_name=KERNEL, resources={"metadata": {"path": state}}).execute()
        text = "\n".join(text for cell in book.cells if cell.cell_type == "code" for _, text in outputs(cell))
        card = bool(stowage.info().data["devices"])
        self.assertIn("loaded into this process" if card else "no GPU here: this notebook uses a simulated device", text)
        self.assertIn("100 batches evaluated", text)
        # The cause is the one that the page describes, and the fix comes first.
        causes = shown(next(cell for cell in book.cells if "explain(" in cell.source), "text/plain")
        self.assertRegex(causes, r"graph_kept|no_grad_missing" if card else r"leak|graph", causes)
        if "the limit set" not in causes:  # as where others on the card make known that its size is one
            self.assertNotIn("the device's size is not known", causes)


if __name__ == "__main__":
    unittest.main()
