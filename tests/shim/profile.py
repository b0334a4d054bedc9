"""profile.py STOWAGE FOLDER: programs whose allocations are known, under `stowage run --profile`.

Sampling is random: each figure may differ from the true one by 5 standard errors (sqrt(bytes * period), one failure in a million).
Prints the result lines of the tests.
"""
import importlib.util
import json
import math
import os
import subprocess
import sys

STOWAGE, FOLDER = sys.argv[1:3]
MIB = 1 << 20
PERIOD = 512 << 10


def run(name, text, *options, code=0):
    """Returns the profile of a program, and what was printed on standard error."""
    program, result = f"{FOLDER}/{name}.py", f"{FOLDER}/{name}.json"
    with open(program, "w", encoding="utf-8") as file:
        file.write(text)
    done = subprocess.run([STOWAGE, "run", "--quiet", "--profile", "--profile-json", result, *options, "--", sys.executable, program],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    if done.returncode != code:
        raise AssertionError(f"exit code {done.returncode}: {done.stderr}")
    with open(result, encoding="utf-8") as file:
        return json.load(file), done.stderr


def of(profile, name, **where):
    """Returns the sums of the host memory of the lines with this function or line number."""
    lines = [p["host"] for p in profile["lines"] if (p["file"] or "").endswith(f"/{name}.py") and all(p.get(k) == v for k, v in where.items())]
    return {key: sum(p[key] for p in lines) for key in ("allocated_bytes", "kept_bytes", "peak_bytes", "allocated_error_bytes")}


def near(found, true, what, least=0):
    """Checks that it is within five standard errors; `least` is the share of the true figure that headers may add."""
    bound = 5 * math.sqrt(true * PERIOD) + least * true
    if abs(found - true) > bound:
        raise AssertionError(f"{what}: {found / MIB:.1f} MiB, not {true / MIB:.1f} ± {bound / MIB:.1f} MiB")


def small_objects_are_estimated_within_the_bound():
    profile, shown = run("small", """
def fill():
    rows = [None] * 1_000_000
    for i in range(1_000_000):
        rows[i] = b"%095d" % i
    return rows
def pass_by(n=200):
    for i in range(500_000):
        text = "x" * n
    return text
keep = fill()
last = pass_by()
""")
    each = sys.getsizeof(b"%095d" % 1)
    kept = of(profile, "small", function="fill")["kept_bytes"]
    near(kept, 1_000_000 * (each + 8), "kept by fill", 0.02)
    passed = of(profile, "small", line=9)
    near(of(profile, "small", function="pass_by")["allocated_bytes"], 500_000 * (sys.getsizeof("x" * 200) + 28), "allocated in pass_by", 0.02)
    if passed["kept_bytes"] > 4 * MIB or "small.py:9 pass_by" not in shown:
        raise AssertionError(f"{passed} {shown}")
    error = passed["allocated_error_bytes"]
    if error > math.sqrt(passed["allocated_bytes"] * PERIOD) * 1.01:
        raise AssertionError(f"the error {error} is larger than the bound")


def code_at_the_address_of_old_code_has_its_own_line():
    profile, _ = run("cells", """
held = []
for n in range(40):  # like the cells of a notebook: each is compiled, run and freed
    exec(compile("\\n" * n + "held.append(bytearray(1 << 20) + bytearray(3 << 20))", "/cells/odd.py" if n % 2 else "/cells/two.py", "exec"))
""")
    found = {(p["file"], p["line"]): p["host"]["kept_bytes"] for p in profile["lines"] if (p["file"] or "").startswith("/cells/")}
    if sorted(found) != sorted(("/cells/odd.py" if n % 2 else "/cells/two.py", n + 1) for n in range(40)):
        raise AssertionError(f"lines: {sorted(found)}")


def large_blocks_are_exact_and_the_peak_is_by_line():
    for _ in range(3):
        profile, _ = run("large", """
def first(): return bytearray(60 << 20)
def second(): return bytearray(40 << 20)
a = first()
b = second()
del a
c = bytearray(20 << 20)
""")
        if profile["host_peak_bytes"] < 115 * MIB:
            break  # otherwise the search for what holds memory still referred to it when it was deleted
    first, second, third = (of(profile, "large", line=n) for n in (2, 3, 7))
    if [round(p["peak_bytes"] / MIB) for p in (first, second, third)] != [60, 40, 0]:
        raise AssertionError(f"peaks: {first} {second} {third}")
    if [round(p["kept_bytes"] / MIB) for p in (first, second, third)] != [0, 40, 20]:
        raise AssertionError(f"kept: {first} {second} {third}")
    if round(profile["host_peak_bytes"] / MIB) not in range(100, 112):
        raise AssertionError(f"peak: {profile['host_peak_bytes']}")
    functions = [p for p in profile["functions"] if p["function"] == "first"]
    if round(functions[0]["host"]["allocated_bytes"] / MIB) != 60:
        raise AssertionError(f"by function: {functions}")


def numpy_arrays_count_at_the_line_that_makes_them():
    if importlib.util.find_spec("numpy") is None:
        return "no numpy"
    profile, _ = run("arrays", """
import numpy as np
def load(): return np.ones((10, 1 << 20))
def scale(a): return a * 2.0
data = load()
twice = scale(data)
small = [np.zeros(1000) for _ in range(5000)]
""")
    for line, true in ((3, 80 * MIB), (4, 80 * MIB), (7, 5000 * 8000)):
        near(of(profile, "arrays", line=line)["kept_bytes"], true, f"line {line}", 0.05)
    return None


def reallocations_count_the_new_size_and_free_the_old():
    profile, _ = run("grow", """
text = bytearray()
for _ in range(64):
    text.extend(bytes(1 << 20))
""")
    kept = sum(p["host"]["kept_bytes"] for p in profile["lines"] if (p["file"] or "").endswith("/grow.py"))
    if not 62 * MIB < kept < 80 * MIB:
        raise AssertionError(f"kept {kept / MIB:.1f} MiB")


def threads_and_generators_count_at_their_own_lines():
    profile, _ = run("threads", """
import threading
kept = []
def worker():
    for _ in range(40):
        kept.append(bytes(1 << 20))
def produce():
    for _ in range(30):
        yield bytes(2 << 20)
threads = [threading.Thread(target=worker) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
made = list(produce())
""")
    near(of(profile, "threads", line=6)["kept_bytes"], 160 * MIB, "threads", 0.01)
    near(of(profile, "threads", line=9)["kept_bytes"], 60 * MIB, "a generator", 0.01)


def forked_children_have_profiles_of_their_own():
    profile, _ = run("forks", """
import os
before = bytes(30 << 20)
def child():
    held = bytes(50 << 20)
    os._exit(0)
for _ in range(2):
    pid = os.fork()
    if pid == 0: child()
    os.waitpid(pid, 0)
""")
    if profile["processes"] != 3:
        raise AssertionError(f"{profile['processes']} processes")
    near(of(profile, "forks", line=5)["allocated_bytes"], 100 * MIB, "children", 0.01)
    near(of(profile, "forks", line=3)["allocated_bytes"], 30 * MIB, "the parent", 0.01)


def exceptions_and_kills_leave_the_profile():
    text = "data = bytes(50 << 20)\n{}\n"
    profile, _ = run("raises", text.format("raise SystemExit(3)"), code=3)
    near(of(profile, "raises", line=1)["kept_bytes"], 50 * MIB, "after an exception", 0.01)
    profile, _ = run("killed", text.format("import os; os.kill(os.getpid(), 9)"), code=-9)
    near(of(profile, "killed", line=1)["kept_bytes"], 50 * MIB, "after a kill", 0.01)
    profile, _ = run("catches", """
def ask():
    return bytes(1 << 62)
try:
    ask()
except MemoryError:
    pass
""")
    if of(profile, "catches", line=3)["allocated_bytes"] != 0:
        raise AssertionError("a refused request was counted")


def python_with_plain_malloc_counts_once():
    os.environ["PYTHONMALLOC"] = "malloc"
    try:
        profile, _ = run("plain", "rows = [b'%095d' % i for i in range(400_000)]\n")
    finally:
        del os.environ["PYTHONMALLOC"]
    near(of(profile, "plain")["kept_bytes"], 400_000 * (sys.getsizeof(b"%095d" % 1) + 8), "kept", 0.05)


def in_process(text):
    """Runs a program with the Python package and nothing preloaded; returns its output."""
    done = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    if done.returncode != 0:
        raise AssertionError(done.stdout)
    return done.stdout


def a_running_process_profiles_a_block_and_a_function():
    shown = in_process("""
import threading, stowage
def thread(): kept.append(bytes(16 << 20))
kept = []
with stowage.profile() as seen:
    gone = bytearray(64 << 20)
    one = threading.Thread(target=thread)
    one.start()
    one.join()
    del gone
by = {line.function: line for line in seen.functions}
assert round(seen.peak / 2**20) in range(80, 84), seen
assert round(by["thread"].kept / 2**20) == 16, seen
for _ in range(20):
    with stowage.profile() as again: block = bytearray(8 << 20)
assert round(again.peak / 2**20) in range(8, 10), again
@stowage.profile
def work(n): return bytearray(n << 20) if n == 32 else work(32)
assert len(work(1)) == 32 << 20
try:
    with stowage.profile(), stowage.profile(): pass
except stowage.StowageError: pass
else: raise AssertionError("two at once")
with stowage.profile() as last: block = bytearray(24 << 20)
assert round(last.peak / 2**20) in range(24, 26), last
""")
    if shown.count("stowage: work: peak 32") != 1:
        raise AssertionError(shown)


def numpy_in_a_running_process_is_counted():
    if importlib.util.find_spec("numpy") is None:
        return "no numpy"
    in_process("""
import numpy, stowage
with stowage.profile() as seen:
    data = numpy.ones(10 << 20)
assert round(seen.lines[0].kept / 2**20) == 80, seen
""")
    return None


def numpy_imported_inside_is_counted():
    if importlib.util.find_spec("numpy") is None:
        return "no numpy"
    in_process("""
import stowage
for turn in range(2):
    with stowage.profile() as seen:
        import numpy
        data = numpy.ones(10 << 20)
    assert round(seen.lines[0].kept / 2**20) == 80, seen
from importlib.machinery import ExtensionFileLoader
assert "_profile" not in ExtensionFileLoader.create_module.__code__.co_filename
""")
    return None


def main():
    failed = 0
    for test in (small_objects_are_estimated_within_the_bound, code_at_the_address_of_old_code_has_its_own_line, large_blocks_are_exact_and_the_peak_is_by_line,
                 numpy_arrays_count_at_the_line_that_makes_them, reallocations_count_the_new_size_and_free_the_old,
                 threads_and_generators_count_at_their_own_lines, forked_children_have_profiles_of_their_own,
                 exceptions_and_kills_leave_the_profile, a_running_process_profiles_a_block_and_a_function,
                 numpy_in_a_running_process_is_counted, numpy_imported_inside_is_counted, python_with_plain_malloc_counts_once):
        try:
            why = test()
            print(f"skip {test.__name__}: {why}" if why else f"ok {test.__name__}", flush=True)
        except Exception as error:
            print(f"FAIL {test.__name__}: {error}", flush=True)
            failed = 1
    return failed


sys.exit(main())
