"""The last memory figures of a process, kept in case it is killed.

The watch over host memory writes them to a file every second and removes the file at a normal exit. A file that remains belongs to a
process that was killed. `explain(last=True)` in the next process then gives the cause, or reports that memory was not the cause.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from . import _memory
from ._analysis import explain_message, explain_run
from ._explanation import Explanation
from ._newfile import write_private
from ._library import NotFound, StowageError
from ._library import format_size as size
from ._run_names import RUN_LAST

_KEPT_S = 7 * 86400


class _NoFolder(OSError):
    """No folder for records: there is no home folder, and XDG_STATE_HOME is not set."""


def _folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    except RuntimeError as reason:  # no HOME, and the user is not in the password file
        raise _NoFolder(str(reason)) from None
    return base / "stowage" / "processes"


def _started(pid: int) -> "Optional[int]":
    """Returns the start time of a process in kernel ticks, which identifies it together with the pid. None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    # A zombie has ended; its parent has not waited for it yet.
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _file() -> Path:
    return _folder() / f"{os.getpid()}.json"


_cell: "Optional[str]" = None


def set_cell(text: "Optional[str]") -> None:
    """Returns the first line of the running cell."""
    global _cell
    _cell = text


def note(now: "_memory.Host", limit: "Optional[int]", growth: float) -> None:
    """Writes the current figures; does nothing if the file cannot be written."""
    known = {
        "pid": os.getpid(),
        "started": _started(os.getpid()),
        "time": time.time(),
        "held_bytes": now.held_bytes,
        "limit_bytes": limit,
        "usable_bytes": now.usable_bytes,
        "total_bytes": now.total_bytes,
        "growth_bytes_s": int(growth),
        "group_kills": now.group_kills,
        "cell": _cell,
    }
    with contextlib.suppress(OSError):
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(file, json.dumps(known))


def forget() -> None:
    """Removes the record at a normal exit."""
    with contextlib.suppress(OSError):
        _file().unlink()


def _dead() -> "List[Dict[str, Any]]":
    """Returns the processes that were killed, latest first; removes old records."""
    found = []
    try:
        folder = _folder()
    except _NoFolder:
        return []
    for file in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        try:
            known = json.loads(file.read_text())
            alive = _started(int(known["pid"])) == known["started"]
            float(known["time"]), int(known["held_bytes"]), int(known["usable_bytes"]), int(known["total_bytes"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if alive:
            continue
        if time.time() - known["time"] > _KEPT_S:
            with contextlib.suppress(OSError):
                file.unlink()
            continue
        found.append(known)
    return sorted(found, key=lambda known: -known["time"])


def _last_run_time() -> float:
    try:
        return (_folder().parent / "runs" / RUN_LAST).stat().st_mtime
    except OSError:
        return 0.0


class _NotForMemory(Explanation):
    """An explanation for a process whose end was not caused by memory."""

    def __init__(self, text: str, facts: "List[str]") -> None:
        self._said, self.facts = text, facts
        self._message, self.of_recording = None, False
        self.data = {"headline": text, "causes": [], "fixes": [], "numbers": {}, "notes": facts}


def _facts(known: "Dict[str, Any]") -> "List[str]":
    when = time.strftime("%H:%M:%S", time.localtime(known["time"]))
    limit = known.get("limit_bytes")
    within = f" of the {size(limit)} it was limited to" if limit else f" of the host's {size(known['total_bytes'])}"
    lines = [f"process {known['pid']}, seen last at {when}: held {size(known['held_bytes'])}{within}"]
    lines.append(f"{size(known['usable_bytes'])} of host memory was left")
    if known.get("growth_bytes_s", 0) > 1 << 20:
        lines.append(f"growing by {size(known['growth_bytes_s'])} per second")
    if known.get("cell"):
        lines.append(f"in the cell that begins: {known['cell']}")
    return lines


def explain_death(known: "Dict[str, Any]") -> Explanation:
    """Explains why a process was killed, from its last figures."""
    facts = _facts(known)
    kills = _memory.host().group_kills - int(known.get("group_kills") or 0)
    whole = known.get("limit_bytes") or known["total_bytes"]
    if kills > 0:
        facts.append(f"the kernel has killed {kills} process(es) of this group for lack of memory since then")
    ahead = known["held_bytes"] + 2 * max(0, int(known.get("growth_bytes_s") or 0))
    if kills > 0 or ahead >= 0.8 * whole or known["usable_bytes"] < 0.1 * known["total_bytes"]:
        # A kill near the limit is probably for memory. A kill that the group counted is for memory: write it as the kernel logs it.
        text = "Out of memory: Killed\n" if kills > 0 else "Killed\n"
        return Explanation(explain_message(text), text, facts)
    text = f"Process {known['pid']} ended without an error message, and host memory was not the cause as far as is known."
    return _NotForMemory(text, facts)


def explain_last() -> Explanation:
    """Explains the run or the process that ended last."""
    dead = _dead()
    if dead and dead[0]["time"] > _last_run_time():
        return explain_death(dead[0])
    try:
        return Explanation(explain_run(), of_recording=True)
    except StowageError as reason:
        if dead:
            return explain_death(dead[0])
        raise NotFound(
            f"no earlier run is known ({reason}); stowage.enable() keeps what is needed to explain a crash"
        ) from None
