"""The `stowage` command that comes with the package.

pip installs `main()` as `stowage`; it executes the compiled command. `run()` starts that command for `info()` and for the environment of
a run (`enable()`, `limit()`, `restart()`). Both must load the CUDA driver in another process: loaded here, `enable()` would be too late, and
a forked child could not use CUDA. For everything else the package calls the libraries.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any, List, Optional

from ._library import Invalid, NotFound, StowageError, native
from ._run_names import ENV_COMMAND, ENV_INTERPRETER


def command_path() -> str:
    """Returns the compiled command: `STOWAGE_COMMAND`, the wheel's, a source tree's, or the one on the path."""
    named = os.environ.get(ENV_COMMAND)
    if named and os.access(named, os.X_OK):
        return named
    found = native("bin/stowage")
    if found is not None:
        return str(found)
    # The path may have pip's script for main(), which would start itself forever.
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        candidate = shutil.which("stowage", path=folder) if folder else None
        if candidate and _is_compiled(candidate):
            return candidate
    raise NotFound(
        "the stowage command was not found; install the package with pip, or build it with make in the source tree"
    )


def _is_compiled(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def main() -> None:
    """Replaces this process with the compiled command."""
    try:
        path = command_path()
        os.environ.setdefault(ENV_INTERPRETER, sys.executable)  # `estimate` starts the Python that has this package
        os.execv(path, [path, *sys.argv[1:]])
    except (StowageError, OSError) as reason:
        sys.exit(f"stowage: {reason}")


def run(
    arguments: "List[str]",
    *,
    timeout: float = 300,
    notes: "Optional[List[str]]" = None,
) -> str:
    """Returns the output of the command for `arguments`; `notes` receives its messages on success.

    >>> run(["--version"]).startswith("stowage ")
    True
    >>> run(["info", "--device", "sim:lots"])
    Traceback (most recent call last):
        ...
    stowage._library.Invalid: device "sim:lots": "lots" has no valid size suffix (K, M, G or T); write it like ...
    """
    environment = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "CLICOLOR_FORCE")}
    # The preloaded library is for this process only.
    path = command_path()
    try:
        done = subprocess.run(
            [path, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        raise StowageError(f"stowage {arguments[0]}: no answer after {timeout:.0f} s") from None
    except OSError as reason:
        raise NotFound(f"{path} cannot be started: {reason}") from None
    out = done.stdout.decode("utf-8", "replace")
    first = f"stowage {arguments[0]}: "
    if done.returncode == 0:
        if notes is not None:
            lines = done.stderr.decode("utf-8", "replace").splitlines()
            notes += [line[len(first) :] if line.startswith(first) else line for line in lines]
        return out
    said = done.stderr.decode("utf-8", "replace").strip() or out.strip() or f"ended with code {done.returncode}"
    said = said[len(first) :] if said.startswith(first) else said
    # 2: the command line or the input is wrong; 1: it failed (stowage --help).
    raise (Invalid if done.returncode == 2 else StowageError)(said)


def run_json(arguments: "List[str]", *, timeout: float = 300) -> Any:
    """Runs it with `--json`; returns the parsed object."""
    return json.loads(run([arguments[0], "--json", *arguments[1:]], timeout=timeout))
