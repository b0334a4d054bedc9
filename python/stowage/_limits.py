"""The limits in force for this process: enable() and limit() put them there, info() and explanations read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional

from . import _show
from ._library import format_size as size
from ._library import parse_size, shown_lines


@dataclass
class Enabled:
    """What is in force for this process."""

    vram: "Optional[str]" = None  #: limit of device memory, as it was given
    spill: "Optional[str]" = None  #: how much may go on in host memory
    ram: "Optional[str]" = None  #: limit of host memory
    shim: str = "not loaded"  #: how the shim stands beneath this process
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
    """What was asked for in this process, None where nothing was."""
    return _state


def put_in_force(new: Enabled) -> None:
    """From now on that is what holds."""
    global _state
    _state = new


def current_limit() -> "Dict[str, str]":
    """The limits in force, for info()."""
    if _state is None:
        return {}
    shown = {"vram": _state.vram, "spill": _state.spill, "ram": _state.ram}
    return {name: size(parse_size(value)) if value[0].isdigit() and "=" not in value else value for name, value in shown.items() if value}


def ram_limit() -> "Optional[int]":
    """The limit of host memory in bytes, None where there is none."""
    return parse_size(_state.ram, "ram") if _state is not None and _state.ram else None
