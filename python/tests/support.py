"""Shared by the tests: running Python in a separate process, and libraries that may be missing."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("STOWAGE_BUILD", TREE / "build" / "release"))
STANDIN = BUILD / "tests" / "standin" / "libcuda.so.1"


def needs(*names):
    """Skips a test, or a whole class, if one of the libraries is missing (a failure in CI)."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}")


#: The long tests that this run does not take.
left_out = []


def in_turn(number, parts=3):
    """Takes a long test in one of `parts` runs in a row: those whose STOWAGE_TEST_SEED, plus the number, is a multiple of it.

    tests/run.sh sets the seed. Without it, and in make test-long (STOWAGE_TEST_LONG), every test runs.
    """

    def decorate(test):
        seed = os.environ.get("STOWAGE_TEST_SEED", "")
        if os.environ.get("STOWAGE_TEST_LONG") or not seed or (int(seed) + number) % parts == 0:
            return test
        left_out.append(test.__name__)
        return None  # not callable: the loader passes it over

    return decorate


needs_standin = unittest.skipUnless(STANDIN.exists(), f"no stand-in driver: {STANDIN} is not built")


def clean_environment(**more):
    """Returns the environment without what other tests or an enclosing run set, with its state in a separate folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STOWAGE_") and name != "LD_PRELOAD"}
    kept.update({name: str(value) for name, value in more.items()})
    return kept


#: Defines functions for a program that paces itself. They are not the program's own code, so no explanation names their lines.
#: looked() waits until the watch over host memory has completed a look: it knows what is held now.
#: paced(values, each) gives the values. Before each of so many it waits until the watch knows, and has described, what is held.
LOOKED = """
helpers = {"__name__": "stowage.helpers"}
exec('''
import time
from stowage import _ram

def looked():
    watch, since = _ram._watch, time.monotonic()
    for _ in range(2):  # the first of them may have begun before
        while watch.seen_at <= since: time.sleep(0.002)
        since = watch.seen_at
    return True

def described():  # from two fifths of the limit on, after each growth by a sixteenth
    watch = _ram._watch
    return 5 * watch.seen.held_bytes < 2 * watch.limit or (
        watch.scene is not None and 16 * (watch.seen.held_bytes - watch.scene.held_bytes) < watch.limit)

def paced(values, each):
    for number, value in enumerate(values):
        if number % each == 0:
            looked()
            while not described(): looked()
        yield value
''', helpers)
looked, paced = helpers["looked"], helpers["paced"]
"""


def python(code, *, before="", timeout=60, check=True, **environment):
    """Runs code in a new interpreter, after the lines of `before`. Returns (exit code, standard output, standard error)."""
    with tempfile.TemporaryDirectory() as state:
        environment.setdefault("XDG_STATE_HOME", state)
        environment.setdefault("XDG_CACHE_HOME", state)
        done = subprocess.run(
            [sys.executable, "-c", before + textwrap.dedent(code)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=clean_environment(**environment),
            cwd=state,
            check=False,
        )
    if check and done.returncode != 0:
        raise AssertionError(f"code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.returncode, done.stdout, done.stderr
