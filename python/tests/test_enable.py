"""enable, limit and restart in a running process, with a stand-in driver; and the watch over host memory."""

import json
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import stowage
from support import BUILD, LOOKED, STANDIN, clean_environment, needs, needs_standin, python

#: A driver's calls as a framework makes them: through the name of the library.
CUDA = """
import ctypes, stowage
def start():
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    return cuda
def take(cuda, mib):
    address = ctypes.c_uint64()
    return cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20))
"""


def with_driver(code, **more):
    return python(CUDA + textwrap.dedent(code), STOWAGE_LIBCUDA=STANDIN, **more)


def script_with_driver(code, *words):
    """A script of its own file, with words after its name: what may start itself again."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(CUDA + textwrap.dedent(code))
        return command_with_driver(folder, sys.executable, str(script), *words)


def command_with_driver(folder, *command):
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(STOWAGE_LIBCUDA=STANDIN, XDG_STATE_HOME=folder),
        check=False,
    )


@needs_standin
class Limits(unittest.TestCase):
    def test_a_limit_holds_in_a_running_process(self):
        out = with_driver(
            """
            print(stowage.limit(vram="64M"))
            cuda = start()
            print("answers", take(cuda, 32), take(cuda, 64))
            """
        )[1]
        self.assertIn("loaded into this process", out)
        self.assertIn("answers 0 2", out)

    def test_looking_first_does_not_make_it_too_late(self):
        out = with_driver(
            """
            from stowage import _look, _notebook
            print(stowage.info())
            stowage.limit(ram="2G")
            _notebook._Meter().report()
            with stowage.watch(0.05) as seen:
                pass
            print("seen", seen.peak_device_bytes)
            print(stowage.limit(vram="64M"))
            print("answers", take(start(), 96))
            """,
            STOWAGE_LIBNVML=STANDIN.parent / "libnvidia-ml.so.1",
        )[1]
        self.assertIn("loaded into this process", out)
        self.assertIn("answers 2", out)

    def test_spilling_goes_past_the_limit(self):
        out = with_driver(
            """
            stowage.enable(vram="64M", spill="256M")
            cuda = start()
            print("answers", take(cuda, 32), take(cuda, 64))
            """
        )[1]
        self.assertIn("answers 0 0", out)

    def test_it_is_reported_that_it_is_too_late(self):
        out = with_driver(
            """
            import os
            driver = ctypes.CDLL(os.environ["STOWAGE_LIBCUDA"])
            driver.cuInit(0)
            for _ in range(2):
                try:
                    stowage.enable(vram="64M")
                except stowage.StowageError as error:
                    print(error)
            print("preloaded", "libstowage" in os.environ.get("LD_PRELOAD", ""))
            """
        )[1]
        self.assertEqual(out.count("stowage.restart(vram='64M', spill='auto')"), 2, out)
        self.assertEqual(out.count("CUDA has already started in this process"), 2, out)
        self.assertIn("preloaded False", out)

    def test_a_device_that_is_not_there_is_reported(self):
        out = with_driver(
            """
            for call in (lambda: stowage.limit(vram="7=1G"), lambda: stowage.info("7"), lambda: stowage.heap(7)):
                try: print(call())
                except FileNotFoundError as error: print("reported", error)
            """,
            STOWAGE_LIBNVML=STANDIN.parent / "libnvidia-ml.so.1",
        )[1]
        self.assertEqual(out.count("reported"), 3, out)
        self.assertIn("vram: there is no device 7,", out)

    def test_two_limits_are_one_too_many(self):
        out = with_driver(
            """
            stowage.limit(vram="64M")
            stowage.limit(vram="64M")
            stowage.limit(ram="20G")
            try:
                stowage.limit(vram="32M")
            except stowage.StowageError as error:
                print(error)
            """
        )[1]
        self.assertIn("already in force, 64M", out)

    def test_children_load_it_too(self):
        out = with_driver(
            """
            import subprocess, sys
            stowage.limit(vram="64M")
            print(subprocess.run([sys.executable, "-c", "print([l for l in open('/proc/self/maps') if 'libstowage-shim.so' in l] != [])"],
                                 capture_output=True, text=True).stdout)
            """
        )[1]
        self.assertIn("True", out)

    def test_a_script_restarts_itself_once(self):
        done = script_with_driver(
            """
            import sys
            print("begins", sys.argv[1:], flush=True)
            print(stowage.restart(vram="64M", spill=None))
            cuda = start()
            print("answers", take(cuda, 32), take(cuda, 64))
            """,
            "a b",
            "c",
        )
        self.assertEqual(done.stdout.count("begins ['a b', 'c']"), 2, done.stdout + done.stderr)
        self.assertIn("preloaded", done.stdout)
        self.assertIn("answers 0 2", done.stdout)

    def test_after_a_restart_nothing_has_to_be_repeated(self):
        done = script_with_driver(
            """
            import os, resource
            if "STOWAGE_PYTHON_LIMITS" not in os.environ:
                stowage.limit(ram="2G")  # its bound ends with this life
                stowage.restart(vram="64M", spill="auto", ram="3G")
            print("bound", resource.getrlimit(resource.RLIMIT_DATA)[0])
            now = stowage.enable()
            print(now.vram, now.spill, now.ram)
            """
        )
        self.assertEqual(done.stdout, "bound -1\n64M auto 3G\n", done.stdout + done.stderr)

    def test_under_stowage_run_its_limits_hold(self):
        from stowage._command import command_path

        code = CUDA + "print(stowage.enable())\ncuda = start()\nprint('answers', take(cuda, 64))"
        with tempfile.TemporaryDirectory() as folder:
            done = command_with_driver(folder, command_path(), "run", "--vram-limit", "32M", "--", sys.executable, "-c", code)
        self.assertIn("those of the run", done.stdout, done.stderr)
        self.assertIn("answers 2", done.stdout)


@unittest.skipUnless((BUILD / "tests" / "shim" / "libframework_now.so").exists(), "the framework's stand-in is not built")
class AfterTheImport(unittest.TestCase):
    """A framework has loaded the driver; CUDA has not started."""

    CODE = """
        import os, shutil
        folder = {folder!r}
        def load(name):
            library = ctypes.CDLL(name)
            library.framework_take.argtypes = [ctypes.c_int, ctypes.c_size_t]
            return library
        lazy, now = (load(folder + "/libframework_" + bound + ".so") for bound in ("lazy", "now"))
        before = ctypes.CDLL("libcuda.so.1")
        print(stowage.enable(vram="64M", spill=None))
        assert lazy.framework_start() == 0
        """

    def run_after(self, code):
        whole = textwrap.dedent(self.CODE).format(folder=str(BUILD / "tests" / "shim")) + textwrap.dedent(code)
        return python(CUDA + whole, STOWAGE_LIBCUDA=STANDIN)[1]

    def test_its_imports_and_what_it_asks_for_later_are_within_the_limit(self):
        out = self.run_after(
            """
            print("given", [library.framework_take(how, 4) for library in (lazy, now) for how in (0, 1, 2)])
            print("refused", [library.framework_take(how, 48) for library in (lazy, now) for how in (0, 1, 2)])
            """
        )
        self.assertIn("loaded into this process", out)
        self.assertIn("given [0, 0, 0, 0, 0, 0]", out)
        self.assertIn("refused [2, 2, 2, 2, 2, 2]", out)

    def test_what_is_loaded_after_it_is_within_the_limit_too(self):
        out = self.run_after(
            """
            shutil.copy(folder + "/libframework_now.so", "later.so")
            later = load("./later.so")
            print("answers", [later.framework_take(how, mib) for how in (0, 1, 2) for mib in (4, 80)], take(ctypes.CDLL("libcuda.so.1"), 80))
            """
        )
        self.assertIn("answers [0, 2, 0, 2, 0, 2] 2", out)

    def test_a_handle_taken_before_leads_to_it_too(self):
        """As Numba has one from its import, and looks functions up as it first calls them."""
        out = self.run_after('print("answers", [take(before, mib) for mib in (4, 80)])')
        self.assertIn("answers [0, 2]", out)

    def test_the_limit_is_one_and_children_have_it(self):
        out = self.run_after(
            """
            import subprocess, sys
            print(stowage.enable(vram="64M", spill=None).shim)
            try: stowage.limit(vram="32M")
            except stowage.StowageError as error: print(error)
            print("child", "libstowage-shim.so" in subprocess.run(["cat", "/proc/self/maps"], capture_output=True, text=True).stdout)
            """
        )
        self.assertIn("already in force, 64M", out)
        self.assertIn("child True", out)


class BadUse(unittest.TestCase):
    def test_wrong_sizes(self):
        for call, kind in (
            (lambda: stowage.limit(), TypeError),
            (lambda: stowage.limit(vram="much"), ValueError),
            (lambda: stowage.limit(vram=0), ValueError),
            (lambda: stowage.limit(vram=8), ValueError),
            (lambda: stowage.limit(vram="8"), ValueError),
            (lambda: stowage.limit(vram="0=8"), ValueError),
            (lambda: stowage.enable(spill=12), ValueError),
            (lambda: stowage.limit(vram="0=8G,1=x"), ValueError),
            (lambda: stowage.limit(vram="0=8G,0=4G"), ValueError),
            (lambda: stowage.limit(vram="99=8G"), ValueError),
            (lambda: stowage.limit(ram="1M"), ValueError),
            (lambda: stowage.limit(ram=[]), TypeError),
            (lambda: stowage.enable(spill="some"), ValueError),
            (lambda: stowage.enable(spill=-1), ValueError),
        ):
            with self.assertRaises(kind):
                call()

    def test_a_later_limit_of_host_memory_is_checked_too(self):
        out = python(
            """
            import stowage
            stowage.limit(ram="2G")
            try: stowage.limit(ram="16M")
            except ValueError as error: print(error)
            print(stowage.limit(ram="1G").ram)
            """
        )[1]
        self.assertIn("so a limit of 16.0 MiB", out)
        self.assertTrue(out.endswith("1G\n"), out)

    def test_without_a_driver_this_is_reported(self):
        out = python("import stowage; print(stowage.enable())", STOWAGE_LIBCUDA="/nowhere/libcuda.so.1")[1]
        self.assertIn("no CUDA driver was found", out)
        # Then no limit is in force, and another limit can be set.
        out = python(
            "import stowage; stowage.limit(vram='8G'); print(stowage.limit(vram='4G').vram)", STOWAGE_LIBCUDA="/nowhere/libcuda.so.1"
        )[1]
        self.assertEqual(out, "4G\n")
        out = python(
            """
            import stowage
            try: stowage.restart()
            except stowage.StowageError as error: print(error)
            """,
            STOWAGE_LIBCUDA="/nowhere/libcuda.so.1",
        )[1]
        self.assertIn("no CUDA driver was found", out)


@needs("numpy")
class HostMemory(unittest.TestCase):
    def test_what_can_never_fit_is_refused_at_once(self):
        out = python(
            """
            import numpy, stowage
            stowage.limit(ram="600M")
            fits = numpy.ones(20 << 20)
            try:
                numpy.ones(100 << 20)
            except MemoryError as error:
                print("refused", type(error).__name__)
            print(fits.sum() == 20 << 20)
            """
        )[1]
        self.assertIn("refused", out)
        self.assertIn("True", out)

    def test_growth_is_interrupted_before_the_limit(self):
        code, out, err = python(
            """
            import numpy, stowage
            stowage.limit(ram="700M")
            kept = []
            def grow():
                while looked():
                    kept.append(numpy.ones(4 << 20))
            grow()
            """,
            before=LOOKED,
            check=False,
        )
        self.assertEqual(code, 1)
        self.assertIn("host memory runs out: this process holds", err)
        self.assertIn("of its limit of 700.0 MiB,\n", err)
        self.assertRegex(err, r"stowage: kept: a list of \d+ arrays, \d+\.\d MiB")  # as `stowage run` says it
        self.assertNotIn("kept[", err)

    def test_a_program_that_continues_regardless_stays_at_the_limit(self):
        out = python(
            """
            import numpy, stowage
            stowage.limit(ram="500M")
            kept, failed = [], 0
            while failed < 1000:
                try:
                    kept.append(numpy.ones(1 << 17))
                except:
                    failed += 1
            with open("/proc/self/status") as status:  # ru_maxrss would count the runner of the tests, from which this was forked
                print(next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) >> 10)
            try:
                raise MemoryError("here")
            except MemoryError as error:
                print(stowage.explain(error))  # there is room to say why
            """
        )[1]
        self.assertLess(int(out.split()[0]), 500 + 64 + 48, out)  # the pages of files are not of it
        self.assertRegex(out, r"the limit +500\.0 MiB  by stowage\.limit")
        self.assertIn("kept: a list of", out)

    def test_a_cache_gives_way_first(self):
        out = python(
            """
            import numpy, stowage, time
            stowage.limit(ram="640M")
            cache = stowage.cache("600M")
            for number in range(40):
                cache[number] = numpy.ones(2 << 20)
                if not len(cache): break
            end = time.monotonic() + 10
            while cache.held_bytes > 400 << 20 and time.monotonic() < end: time.sleep(0.02)
            print("gave way", cache.held_bytes < 400 << 20)
            """
        )[1]
        self.assertIn("gave way True", out)

    def test_the_bound_goes_when_the_watch_ends(self):
        out = python(
            """
            import resource, stowage
            before = resource.getrlimit(resource.RLIMIT_DATA)
            stowage.limit(ram="1G")
            during = resource.getrlimit(resource.RLIMIT_DATA)
            from stowage import _ram
            _ram.stop()
            print(before == resource.getrlimit(resource.RLIMIT_DATA), during != before)
            """
        )[1]
        self.assertEqual(out.strip(), "True True")


class Death(unittest.TestCase):
    def run_and_kill(self, state, code):
        """Runs code, which prints a line when it is ready, and then kills it."""
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            stdout=subprocess.PIPE,
            text=True,
            env=clean_environment(XDG_STATE_HOME=state, HOME=state),
        )
        line = child.stdout.readline()
        child.kill()
        child.wait(timeout=20)
        child.stdout.close()
        return line

    def explain(self, state):
        return python("import stowage; print(stowage.explain(last=True))", XDG_STATE_HOME=state)[1]

    @needs("numpy")
    def test_a_kill_near_the_limit_is_reported(self):
        with tempfile.TemporaryDirectory() as state:
            line = self.run_and_kill(
                state,
                """
                import numpy, stowage, json, time, pathlib, os
                stowage.limit(ram="600M")
                block = numpy.ones(64 << 20)
                file = pathlib.Path(os.environ["XDG_STATE_HOME"], "stowage", "processes", f"{os.getpid()}.json")
                while not file.exists() or json.loads(file.read_text())["held_bytes"] < 500 << 20: time.sleep(0.05)
                print("ready", flush=True)
                time.sleep(60)
                """,
            )
            self.assertEqual(line.strip(), "ready")
            said = self.explain(state)
        self.assertIn("because host memory (RAM) ran out", said)
        self.assertIn("of the 600.0 MiB it was limited to", said)

    def test_a_kill_with_room_left_is_not_blamed_on_memory(self):
        with tempfile.TemporaryDirectory() as state:
            self.run_and_kill(
                state,
                """
                import stowage, time, os, pathlib
                stowage.enable(spill=None)
                file = pathlib.Path(os.environ["XDG_STATE_HOME"], "stowage", "processes", f"{os.getpid()}.json")
                while not file.exists(): time.sleep(0.05)
                print("ready", flush=True)
                time.sleep(60)
                """,
            )
            said = self.explain(state)
        self.assertIn("host memory was not the cause", said)

    def test_an_orderly_end_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as state:
            python("import stowage; stowage.enable(spill=None)", XDG_STATE_HOME=state)
            self.assertEqual(list(Path(state).rglob("*.json")), [])
            with self.assertRaises(AssertionError):
                self.explain(state)
            (Path(state) / "stowage" / "processes").mkdir(parents=True, exist_ok=True)
            (Path(state) / "stowage" / "processes" / "7.json").write_text("{broken")
            with self.assertRaises(AssertionError):
                self.explain(state)


class AtTheLimit(unittest.TestCase):
    """What a comprehension was making is named with its bytes: the error frees the list, which is in no variable."""

    def explained(self, limit, line):
        """Runs a line at a limit. Returns the cause, the bytes it explains, whether the watch interrupted it, and the headline."""
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "rows.py")  # the line is read from its file
            code = """
            import json, stowage
            try: import numpy
            except ImportError: pass
            stowage.limit(ram=LIMIT)
            try:
                LINE
            except MemoryError as error:
                made = stowage.explain(error)
                print(json.dumps([made.cause, made.data["numbers"]["live_bytes"], isinstance(error, stowage.HostMemoryError), made.headline]))
            """
            script.write_text(LOOKED + textwrap.dedent(code).replace("LIMIT", repr(limit)).replace("LINE", line))
            return json.loads(python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")[1])

    def test_the_watch_interrupts_it(self):
        cause, held, interrupted, _ = self.explained("300M", 'rows = [{"a": i, "b": str(i)} for i in paced(range(10**8), 50000)]')
        self.assertEqual(cause, "host_objects")
        self.assertGreater(held, 200 << 20)
        self.assertTrue(interrupted)

    @needs("numpy")
    def test_a_request_of_it_fails(self):
        # 5 times 96 MiB are below the margin; 320 MiB more are above the bound. The watch may have looked while the fifth was filled.
        line = "rows = [numpy.ones(n) for n in paced([12 << 20] * 5 + [40 << 20], 1)]"
        cause, held, interrupted, headline = self.explained("700M", line)
        self.assertEqual(cause, "host_leak")
        self.assertRegex(headline, r"rows: a list of [45] arrays, [\d.]+ MiB, grows by 96.0 MiB per iteration at line \d+ of rows.py")
        self.assertGreater(held, 384 << 20)
        self.assertFalse(interrupted)


if __name__ == "__main__":
    unittest.main()
