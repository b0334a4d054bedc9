"""`stowage inspect` and `stowage shrink` for Parquet, Arrow and JSON lines, started by the command.

The command has checked the options. Exit codes are the command's: 0 done, 1 failed, 2 the input is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, List

from ._files import Table
from ._library import Invalid, Missing, NotFound, StowageError, shown, shown_lines
from ._shrink import read_tolerance
from ._tables import inspect_table, shrink_tables

#: Options of the command that mean nothing for these files, or that the package does not have.
_REFUSED = (
    "dtype shape vram header min-rate quantize prune prune-by include exclude shard from-dtype"
).split()
_REFUSED_FLAGS = "diff join verify allow-nan resume".split()


def _parse(arguments: "List[str]") -> Any:
    parser = argparse.ArgumentParser(prog="stowage", add_help=False, allow_abbrev=False)
    for name in ("memory", "for", "threads", "output", "tolerance", "names", *_REFUSED):
        parser.add_argument(f"--{name}")
    for name in ("columns", "drop"):
        parser.add_argument(f"--{name}", action="append", default=[])
    for name in ("json", "dry-run", "force", "no-sync", *_REFUSED_FLAGS):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("files", nargs="+")
    return parser.parse_args(arguments)


def _refuse(given: Any) -> None:
    for name in (*_REFUSED, *_REFUSED_FLAGS):
        if getattr(given, name.replace("-", "_")):
            raise Invalid(f"--{name} does not apply to Parquet, Arrow and JSON lines")


def _inspect(given: Any) -> None:
    found = [inspect_table(file, given.memory, getattr(given, "for") or "arithmetic") for file in given.files]
    if given.json:
        answer = json.dumps(found[0].data if len(found) == 1 else [one.data for one in found], indent=2)
    else:
        answer = shown_lines("\n".join(one.text for one in found))
    print(answer)


def _shrink(given: Any) -> None:
    tolerance = given.tolerance[4:] if (given.tolerance or "").startswith("rel:") else given.tolerance
    text, data = shrink_tables(
        given.files[0],
        given.output,
        read_tolerance(tolerance),
        Table(given.names, tuple(given.columns), tuple(given.drop), given.force),
        getattr(given, "for") or "arithmetic",
        given.memory,
        given.dry_run,
    )
    answer = json.dumps(data, indent=2) if given.json else shown_lines(text)
    print(answer)


def main(arguments: "List[str]") -> None:
    """Prints the answer and ends the process."""
    given = _parse(arguments)
    verb = "inspect" if given.output is None else "shrink"
    try:
        _refuse(given)
        (_inspect if given.output is None else _shrink)(given)
    except (StowageError, OSError, ValueError) as reason:
        answer = shown(f"stowage {verb}: {reason}")
        print(answer, file=sys.stderr)
        sys.exit(2 if isinstance(reason, (Invalid, Missing, NotFound)) else 1)
