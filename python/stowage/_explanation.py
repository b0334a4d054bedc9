"""An explanation: what `stowage explain` says of a failure, with what the process itself knew beside it.

Made by explain() of an error or a recording, and of the last sight of a process that died; shown in a notebook, a terminal
or as the note of an exception.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from . import _show
from ._command import run, run_json
from ._library import shown


class Explanation:
    """Why memory ran out: `text` for people, `data` for programs (the JSON of `stowage explain`)."""

    def __init__(self, arguments: "List[str]", message: "Optional[str]", facts: "Optional[List[str]]" = None) -> None:
        self._arguments, self._message = arguments, message
        self._data: "Optional[Dict[str, Any]]" = None
        self.facts = facts or []  #: what this process knew beside it
        self._said = _show.name_cells(run(["explain", *arguments], text=message).rstrip())

    @property
    def message(self) -> str:
        """The error's own words, where it was made of them."""
        return self._message or ""

    @property
    def of_recording(self) -> bool:
        """Made from what was recorded, not of the error's words alone."""
        return self._arguments[0] != "--message"

    @property
    def text(self) -> str:
        if not self.facts:
            return self._said
        return self._said + "\n\nThis process\n" + "\n".join(f"  {shown(line)}" for line in self.facts)

    @property
    def headline(self) -> str:
        """The first sentence."""
        return self._said.split("\n", 1)[0]

    @property
    def data(self) -> "Dict[str, Any]":
        if self._data is None:
            self._data = run_json(["explain", *self._arguments], text=self._message)
        return self._data

    @property
    def cause(self) -> "Optional[str]":
        """The first cause's name ("no_grad_missing"), None where there is none."""
        return self.data["causes"][0]["id"] if self.data["causes"] else None

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        headline, _, rest = self.text.partition("\n")
        return _show.html_block(headline, _show.html_text(rest.strip("\n")))
