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


needs_standin = unittest.skipUnless(STANDIN.exists(), f"no stand-in driver: {STANDIN} is not built")


def clean_environment(**more):
    """Returns the environment without what other tests or an enclosing run set, with its state in a separate folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STOWAGE_") and name != "LD_PRELOAD"}
    kept.update({name: str(value) for name, value in more.items()})
    return kept


def python(code, *, timeout=60, check=True, **environment):
    """Runs code in a new interpreter. Returns (exit code, standard output, standard error)."""
    with tempfile.TemporaryDirectory() as state:
        environment.setdefault("XDG_STATE_HOME", state)
        environment.setdefault("XDG_CACHE_HOME", state)
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
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
