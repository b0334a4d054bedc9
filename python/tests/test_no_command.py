"""Explaining, replaying, reporting, inspecting and shrinking never start the `stowage` command, nor any process."""

import os
import tempfile
import unittest
from pathlib import Path

import stowage
from support import TREE, needs, python

DATA = TREE / "tests" / "samples"

#: A `stowage` first on the path that leaves a mark, and a Python that cannot start processes.
PRELUDE = """
import os, sys
folder = os.getcwd()
os.mkdir("bin")
fake = os.path.join(folder, "bin", "stowage")
with open(fake, "w") as file:
    file.write("#!/bin/sh\\ntouch '" + folder + "/started'\\n")
os.chmod(fake, 0o755)
os.environ["PATH"] = os.path.join(folder, "bin") + os.pathsep + os.environ["PATH"]
os.environ["STOWAGE_COMMAND"] = fake

def refuse(event, arguments):
    if event in ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"):
        raise RuntimeError(f"a process was started: {event} {arguments}")

sys.addaudithook(refuse)
import stowage
"""


def alone(code):
    """Runs code where starting a process fails; what it printed."""
    return python(PRELUDE + code + "\nassert not os.path.exists('started'), 'the command was started'\n")[1]


class NoCommand(unittest.TestCase):
    def setUp(self):
        if not DATA.exists():
            self.skipTest(f"no recordings at {DATA}")

    def test_the_guard_works(self):
        with self.assertRaisesRegex(AssertionError, "a process was started"):
            alone("stowage.info()")

    def test_explain(self):
        said = alone(
            f"""
made = stowage.explain({str(DATA / "fragmentation.pickle.gz")!r})
print(made.cause, made.data["fixes"][0]["basis"], made.of_recording)
print(stowage.explain(message="CUDA out of memory. Tried to allocate 2.00 GiB.").data["numbers"]["asked_bytes"])
print(stowage.explain(MemoryError()).headline)
os.makedirs("run")
with open("run/end", "w") as file:
    file.write("code 3\\nsignal 0\\ncommand train.py\\nkernel 0\\n")
print(stowage.explain("run").headline)
os.makedirs(os.environ["XDG_STATE_HOME"] + "/stowage/runs")
os.symlink(os.path.abspath("run"), os.environ["XDG_STATE_HOME"] + "/stowage/runs/last")
print(stowage.explain(last=True).headline)
"""
        ).splitlines()
        self.assertEqual(said[0], "fragmentation replayed True")
        self.assertEqual(said[1], str(2 << 30))
        self.assertIn("code 3", said[3])
        self.assertEqual(said[3], said[4])

    def test_report(self):
        said = alone(
            f"""
made = stowage.report({str(DATA / "fragmentation.pickle.gz")!r}, {str(DATA / "one_spike.pickle.gz")!r})
print(len(made.data["runs"]), "</html>" in made.page, "one_spike" in made.text)
made.save("page.html")
print(os.path.getsize("page.html") > 10000)
"""
        )
        self.assertEqual(said.split(), ["2", "True", "True", "True"])

    def test_the_simulated_spill_of_tune(self):
        recording = str(DATA / "touches" / "gan.stow")
        said = alone(f"from stowage import _tune_options as t\nprint(t._spill_ns({recording!r}, 9 << 30) > t._spill_ns({recording!r}, 40 << 30) > 0)")
        self.assertEqual(said.strip(), "True")

    def test_replay(self):
        said = alone(
            f"""
path = {str(DATA / "fragmentation.pickle.gz")!r}
made = stowage.replay(path, ["torch_default", "stowage"], min_limit=True, check=True)
print(made["torch_default"]["address_mismatches"], made["stowage"]["address_mismatches"])
least = made["torch_default"]["min_limit_bytes"]
print(stowage.replay(path, "torch_default", vram_limit=least)["torch_default"]["finishes"])
print(stowage.replay(path, "torch_default", vram_limit=least - (2 << 20))["torch_default"]["finishes"])
print(len(stowage.replay(path).data))
tuned = stowage.tune(path)
print(tuned.best, tuned.data[0]["finishes"])
for wrong in ({{"policy": "none"}}, {{"vram": "8G", "vram_limit": "8G"}}, {{"settings": "none:1"}}):
    try: stowage.replay(path, **wrong)
    except stowage.StowageError as error: print(type(error).__name__, error.status)
"""
        )
        self.assertEqual(said.split(), ["0", "None", "True", "False", "5", "expandable_segments:True", "True", "NotFound", "-4", "Invalid", "-1", "Invalid", "-1"])

    @needs("numpy")
    def test_inspect_and_shrink(self):
        said = alone(
            """
import numpy
numpy.save("x.npy", numpy.arange(1000))
print(stowage.inspect("x.npy").data["smallest_dtype"])
stowage.shrink("x.npy", "y.npy", quiet=True)
print(numpy.load("y.npy").dtype)
with open("cut.npy", "wb") as file:
    file.write(open("x.npy", "rb").read()[:40])
for call in (lambda: stowage.inspect("none.npy"), lambda: stowage.shrink("none.npy", "z.npy"),
             lambda: stowage.shrink("x.npy", "z.npy", dtype="int8"), lambda: stowage.inspect("cut.npy")):
    try: call()
    except stowage.StowageError as error: print(type(error).__name__, error.status)
"""
        )
        self.assertEqual(
            said.split(), ["int16", "int16", "NotFound", "-4", "NotFound", "-4", "Invalid", "-1", "Unreadable", "-10"]
        )


class Interrupt(unittest.TestCase):
    @needs("numpy")
    def test_an_exception_ends_a_file_job(self):
        import numpy

        from stowage import _files

        class Stop(_files._Watch):
            @staticmethod
            def _go_on():
                raise KeyboardInterrupt

        before, _files._Watch = _files._Watch, Stop
        try:
            with tempfile.TemporaryDirectory() as folder:
                path, out = Path(folder) / "x.npy", Path(folder) / "y.npy"
                numpy.save(path, numpy.arange(1 << 20))
                with self.assertRaises(KeyboardInterrupt):
                    stowage.shrink(path, out)
                self.assertEqual(os.listdir(folder), ["x.npy"])
        finally:
            _files._Watch = before


if __name__ == "__main__":
    unittest.main()
