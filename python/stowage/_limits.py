"""The limits in force for this process: set by enable() and limit(), read by info() and explanations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional

from . import _show
from ._library import format_size as size
from ._library import parse_size, shown_lines


@dataclass
class Enabled:
    """What is in force for this process."""

    vram: "Optional[str]" = None  #: limit of device memory, as given
    spill: "Optional[str]" = None  #: how much may spill to host memory
    ram: "Optional[str]" = None  #: limit of host memory
    shim: str = "not loaded"  #: how the shim was loaded
    notes: "List[str]" = field(default_factory=list)

    def _lines(self) -> "List[str]":
        lines = [f"device memory: {'at most ' + self.vram if self.vram else 'no limit'}, "
                 f"{'spilling to the host: ' + self.spill if self.spill else 'no spilling'}"]
        lines.append(f"host memory: {'at most ' + self.ram if self.ram else 'all there is'}, watched")
        lines.append(f"shim: {self.shim}")
        return lines + self.notes

    def __repr__(self) -> str:
        return shown_lines("\n".join(self._lines()))

    def _repr_html_(self) -> str:
        return _show.html_block("stowage is enabled", _show.html_text("\n".join(self._lines())))


_state: "Optional[Enabled]" = None


def in_force() -> "Optional[Enabled]":
    """Returns the limits requested in this process, or None."""
    return _state


def put_in_force(new: Enabled) -> None:
    """Sets the limits in force."""
    global _state
    _state = new


def current_limit() -> "Dict[str, str]":
    """The limits in force, for info()."""
    if _state is None:
        return {}
    shown = {"vram": _state.vram, "spill": _state.spill, "ram": _state.ram}
    return {name: size(parse_size(value)) if value[0].isdigit() and "=" not in value else value for name, value in shown.items() if value}


def ram_limit() -> "Optional[int]":
    """Returns the limit of host memory in bytes, or None."""
    return parse_size(_state.ram, "ram") if _state is not None and _state.ram else None
