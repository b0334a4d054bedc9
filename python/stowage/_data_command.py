"""`stowage inspect` and `stowage shrink` for Parquet, Arrow and JSON lines, started by the command.

The command has checked the options. Exit codes are the command's: 0 done, 1 failed, 2 the input is wrong; 128 and the number of a
signal that ended it. Ended by a signal, it leaves no file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from typing import Any, Dict, List, Optional

from ._array import several
from ._files import Table, Text
from ._library import Invalid, Missing, NotFound, StowageError, shown, shown_lines
from ._shrink import read_tolerance
from ._store import on_disk
from ._tables import format_of, inspect_table, is_of_package, shrink_tables

#: Options of the command that mean nothing for these files, or that the package does not have.
_REFUSED = (
    "dtype shape vram header min-rate quantize prune prune-by include exclude shard from-dtype"
).split()
_REFUSED_FLAGS = "diff join verify allow-nan sparse resume".split()


def _parse(arguments: "List[str]") -> Any:
    parser = argparse.ArgumentParser(prog="stowage", add_help=False, allow_abbrev=False)
    for name in ("memory", "for", "threads", "output", "names", "delimiter", "decimal", "comment", "encoding", *_REFUSED):
        parser.add_argument(f"--{name}")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--na", action="append")
    for name in ("columns", "drop", "type", "tolerance"):
        parser.add_argument(f"--{name}", action="append", default=[])
    for name in ("json", "dry-run", "force", "no-sync", *_REFUSED_FLAGS):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("files", nargs="+")
    return parser.parse_args(_joined(arguments))


def _joined(arguments: "List[str]") -> "List[str]":
    """Returns `--na -999` as `--na=-999`: argparse takes a value that begins with a dash for an option.

    >>> _joined(["--na", "-999,?", "t.csv", "--json"])
    ['--na=-999,?', 't.csv', '--json']
    """
    made: "List[str]" = []
    for word in arguments:
        if made and made[-1] == "--na" and word.startswith("-") and not word.startswith("--"):
            made[-1] += "=" + word
        else:
            made.append(word)
    return made


def _refuse(given: Any) -> None:
    for name in (*_REFUSED, *_REFUSED_FLAGS):
        if getattr(given, name.replace("-", "_")):
            raise Invalid(f"--{name} does not apply to Parquet, Arrow and JSON lines")


def _inspect(given: Any) -> None:
    if _text(given) != Text():
        raise Invalid("options for text tables do not apply to Parquet, Arrow and JSON lines")
    found = [inspect_table(file, given.memory, getattr(given, "for") or "arithmetic") for file in given.files]
    if given.json:
        answer = json.dumps(found[0].data if len(found) == 1 else [one.data for one in found], indent=2)
    else:
        answer = shown_lines("\n".join(one.text for one in found))
    print(answer)


def _pairs(values: "List[str]") -> "Optional[Dict[str, str]]":
    """Returns {"a": "b"} of ["a=b"]; None if there is none."""
    found = {}
    for value in values:
        name, equal, word = value.rpartition("=")
        if equal:
            found[name] = word
    return found or None


def _text(given: Any) -> Text:
    kinds, off = _pairs(given.type), _pairs(given.tolerance)
    return Text(given.delimiter, given.decimal, given.comment, given.skip, given.encoding, given.na, kinds, off)


def _shrink(given: Any) -> None:
    everywhere = [value for value in given.tolerance if "=" not in value]
    tolerance = re.sub("^rel:", "", everywhere[-1]) if everywhere else None
    listed = given.files if format_of(given.files) is not None else several(given.files)
    text, data = shrink_tables(
        given.files[0] if len(given.files) == 1 else listed,
        given.output,
        read_tolerance(tolerance),
        Table(given.names, tuple(given.columns), tuple(given.drop), given.force, _text(given)),
        getattr(given, "for") or "arithmetic",
        given.memory,
        given.dry_run,
    )
    answer = json.dumps(data, indent=2) if given.json else shown_lines(text)
    print(answer)


def _end(number: int, frame: Any) -> None:
    sys.exit(128 + number)  # what was begun is removed on the way


def main(arguments: "List[str]") -> None:
    """Prints the answer and ends the process."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(ending, _end)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's threads wait for work in a loop, and there is none for them
    given = _parse(arguments)
    verb = "inspect" if given.output is None else "shrink"
    try:
        _refuse(given)
        given.files, given.output = on_disk(given.files), on_disk(given.output)
        (_inspect if given.output is None else _shrink)(given)
    except KeyboardInterrupt:
        answer = "\n" * sys.stderr.isatty() + f"stowage {verb}: interrupted" + ("; nothing was written" if verb == "shrink" else "")
        print(answer, file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except Exception as reason:
        # The packages that read and write the files have exceptions of their own, mostly about what the file holds.
        if not isinstance(reason, (StowageError, OSError, ValueError)) and not is_of_package(reason):
            raise
        answer = shown(f"stowage {verb}: {reason}")
        print(answer, file=sys.stderr)
        failed = not getattr(reason, "malformed", False) and (isinstance(reason, (OSError, MemoryError)) or isinstance(reason, StowageError) and not isinstance(reason, ValueError))
        sys.exit(1 if failed and not isinstance(reason, (Invalid, Missing, NotFound)) else 2)
