"""Background threads must not fail silently: the watch over host memory, watch(), caches under pressure, forks."""

import unittest

from support import needs, python

#: wait(CONDITION): polls until it is true, at most ten seconds.
WAIT = """
import os, resource, sys, threading, time, stowage
from stowage import _ram
def wait(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return bool(condition())
def bound():
    return resource.getrlimit(resource.RLIMIT_DATA)[0]
"""


def run(code, **more):
    return python(code, before=WAIT, **more)


class HostWatch(unittest.TestCase):
    def test_it_survives_a_time_without_file_descriptors(self):
        out = run(
            """
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
            stowage.enable(spill=None, ram="1G")
            watch, taken = _ram._watch, []
            try:
                while True:
                    taken.append(os.open("/dev/null", 0))
            except OSError:
                pass
            seen = watch.seen_at
            time.sleep(0.5)
            print("stood still", watch.seen_at - seen < 0.2)
            for one in taken:
                os.close(one)
            print("looks again", wait(lambda: watch.seen_at > seen + 0.5), watch.thread.is_alive())
            stowage.limit(ram="4G")
            print("bound moves", wait(lambda: bound() > 2 << 30))
            """
        )[1]
        self.assertEqual(out.splitlines(), ["stood still True", "looks again True True", "bound moves True"])

    def test_a_lasting_failure_and_its_end_are_reported(self):
        _, out, err = run(
            """
            _ram._SILENT_S = 0.1
            stowage.enable(spill=None, ram="4G")
            host = _ram._watch.watcher.host
            def fails():
                raise OSError("no descriptor left")
            _ram._watch.watcher.host = fails
            print(wait(lambda: _ram._watch.reported))
            _ram._watch.watcher.host = host
            print(wait(lambda: not _ram._watch.reported))
            """
        )
        self.assertEqual(out.split(), ["True", "True"])
        self.assertEqual(err.count("no descriptor left"), 1)
        self.assertIn("limits are enforced", err)

    def test_a_thread_that_ends_says_so_and_is_replaced(self):
        _, out, err = run(
            """
            stowage.enable(spill=None, ram="1G")
            before = _ram._watch
            def ends():
                raise SystemExit
            before.watcher.host = ends
            print(wait(lambda: not before.thread.is_alive()))
            stowage.limit(ram="4G")
            print(_ram._watch is not before, wait(lambda: bound() > 2 << 30))
            """
        )
        self.assertEqual(out.split(), ["True", "True", "True"])
        self.assertIn("has stopped", err)

    def test_a_first_look_that_fails_does_not_stop_later_ones(self):
        out = run(
            """
            from stowage import _memory
            real = _memory.Watcher.host
            def fails(self):
                raise OSError("not now")
            check, _ram.check = _ram.check, lambda limit: []
            _memory.Watcher.host = fails
            stowage.enable(spill=None, ram="4G")
            _memory.Watcher.host = real
            print(wait(lambda: bound() < 8 << 30))
            """
        )[1]
        self.assertEqual(out.split(), ["True"])

    def test_no_home_folder_is_no_reason_to_fail(self):
        _, out, err = run(
            """
            import pwd
            def nobody(uid):
                raise KeyError(uid)
            pwd.getpwuid = nobody
            os.environ.pop("HOME", None); os.environ.pop("XDG_STATE_HOME", None)
            print(stowage.enable(spill=None, ram="4G").ram)
            print(wait(lambda: bound() < 8 << 30), _ram._watch.thread.is_alive(), _ram._watch.failing_since)
            try:
                stowage.explain(last=True)
            except stowage.StowageError:
                print("reported")
            """
        )
        self.assertEqual(out.split(), ["4G", "True", "True", "0.0", "reported"], err)


class Forks(unittest.TestCase):
    def test_a_child_forked_while_a_thread_enables_is_free(self):
        out = run(
            """
            import signal
            from stowage import _enable, _cache, _memory
            inside, go_on = threading.Event(), threading.Event()
            real = _enable._load_shim
            def slow(*words):
                inside.set(); go_on.wait(20)
                return real(*words)
            _enable._load_shim = slow
            held = stowage.cache("1M")
            thread = threading.Thread(target=lambda: stowage.enable(spill=None, ram="8G"))
            thread.start(); inside.wait(10)
            with _cache._caches_lock, held._lock, _memory._lock:
                pid = os.fork()
                if pid == 0:
                    _enable._load_shim = real
                    done = threading.Thread(target=lambda: (stowage.limit(ram="4G"), _cache.shrink_all(), _memory.host()), daemon=True)
                    done.start(); done.join(10)
                    os._exit(1 if done.is_alive() else 0)
            go_on.set()
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if sys.version_info >= (3, 9) else os.waitpid(pid, 0)[1])
            thread.join()
            """
        )[1]
        self.assertEqual(out.split(), ["0"])

    def test_a_child_may_have_a_limit_of_its_own(self):
        out = run(
            """
            stowage.enable(spill=None, ram="1G")
            pid = os.fork()
            if pid == 0:
                stowage.limit(ram="4G")
                os._exit(0 if wait(lambda: bound() > 2 << 30) and _ram._watch.thread.is_alive() else 1)
            print(os.waitpid(pid, 0)[1], bound() < 2 << 30)
            """
        )[1]
        self.assertEqual(out.split(), ["0", "True"])


class Interpreters(unittest.TestCase):
    def test_a_sub_interpreter_error_says_where_to_call_it(self):
        code, out, err = run(
            """
            try:
                import _xxsubinterpreters as interpreters
            except ImportError:
                print("skip"); raise SystemExit
            inner = interpreters.create()
            interpreters.run_string(inner, '''
            try:
                import stowage
                stowage.enable(spill=None, ram="4G")
                print("went through")
            except (stowage.Unsupported, ImportError) as error:
                print("refused", "main interpreter" in str(error) or isinstance(error, ImportError), flush=True)
            '''.replace("\\n            ", "\\n"))
            stowage.enable(spill=None, ram="4G")
            print("main works", flush=True)
            """
        )
        if out.strip() == "skip":
            self.skipTest("this Python has no sub-interpreters to ask for")
        self.assertEqual(sorted(out.splitlines()), ["main works", "refused True"], err)


class Caches(unittest.TestCase):
    def test_caches_may_be_made_while_they_are_emptied(self):
        out = run(
            """
            from stowage._cache import shrink_all
            sys.setswitchinterval(1e-6)
            errors, stop = [], []
            def empty():
                while not stop:
                    try:
                        shrink_all()
                    except Exception as error:
                        errors.append(repr(error))
            keep = [stowage.cache("1M") for _ in range(2000)]
            thread = threading.Thread(target=empty); thread.start()
            end = time.monotonic() + 1.5
            while time.monotonic() < end and not errors:
                keep.append(stowage.cache("1M")); keep.pop(0)
            stop.append(1); thread.join()
            print(len(errors), errors[:1])
            """
        )[1]
        self.assertEqual(out.strip(), "0 []")


class Watching(unittest.TestCase):
    def test_watch_continues_after_a_failed_look_and_a_lost_display(self):
        out = run(
            """
            class Gone:
                def isatty(self): return True
                def write(self, text): raise ValueError("I/O operation on closed file")
                def flush(self): pass
            seen = stowage.watch(0.01, stream=Gone())
            host, seen._watcher.host = seen._watcher.host, None
            print(wait(lambda: seen._missed > 0 or True))
            seen._watcher.host = host
            peak = seen.peak_host_bytes
            block = bytearray(64 << 20)
            print(wait(lambda: seen.peak_host_bytes > peak + (32 << 20)), seen._thread.is_alive())
            def fails():
                raise stowage.StowageError("no descriptor left")
            seen._watcher.host = fails
            print(wait(lambda: "no descriptor left" in repr(seen)))
            seen._watcher.host = host
            print(wait(lambda: "no descriptor left" not in repr(seen)), seen._thread.is_alive())
            seen._width = 0
            seen.stop()
            """
        )[1]
        self.assertEqual(out.split(), ["True"] * 6)


class Surface(unittest.TestCase):
    def test_tab_completion_shows_the_public_names_only(self):
        out = run(
            """
            stowage.parse_size("1M"); stowage.cache("1M"); import stowage.lazy
            shown = [name for name in dir(stowage) if not name.startswith("__")]
            print(shown == sorted([*stowage.__all__, "open"]), "open" in stowage.__all__, "annotations" in dir(stowage), "__version__" in dir(stowage))
            """
        )[1]
        self.assertEqual(out.split(), ["True", "False", "False", "True"])

    def test_a_heap_says_that_it_is_simulated(self):
        out = run(
            """
            with stowage.heap("sim:64M") as one:
                print(one.simulated, "simulated" in repr(one), "simulated" in repr(stowage.info("sim:64M")).split("this process")[1])
            """
        )[1]
        self.assertEqual(out.split(), ["True", "True", "True"])

    def test_the_heap_of_a_machine_without_a_card_says_that_it_is_simulated(self):
        out = run(
            """
            with stowage.heap() as one:
                print(one.simulated, "simulated" in repr(one), "simulated" in repr(stowage.info()).split("this process")[1])
            """,
            STOWAGE_LIBCUDA="/nonexistent",
        )[1]
        self.assertEqual(out.split(), ["True", "True", "True"])

    @needs("numpy")
    def test_one_request_larger_than_memory_is_explained_as_that(self):
        out = run(
            """
            import numpy
            stowage.limit(ram="2G")
            try:
                numpy.zeros((100000, 100000))
            except MemoryError as error:
                made = stowage.explain(error)
                print(made.data["causes"][0]["id"] if "id" in made.data["causes"][0] else made.data["causes"][0]["cause"], made.headline)
            """
        )[1]
        self.assertIn("host_limit", out)
        self.assertIn("74.5 GiB", out)
        self.assertIn("2.0 GiB", out)


if __name__ == "__main__":
    unittest.main()
