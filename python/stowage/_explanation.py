"""An explanation: the library's account of a failure, with facts from the process itself.

explain() makes it from an error, a recording, or the last figures of a process that was killed. It is shown in a notebook, in a
terminal or as the note of an exception.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from . import _show
from ._analysis import Answer
from ._library import format_size, shown


class Explanation:
    """Why memory ran out: `text` for people, `data` for programs (the JSON of `stowage explain`)."""

    def __init__(
        self,
        answer: Answer,
        message: "Optional[str]" = None,
        facts: "Optional[List[str]]" = None,
        *,
        of_recording: bool = False,
    ) -> None:
        self._message = message
        self.data: "Dict[str, Any]" = answer.data
        self.facts = facts or []  #: facts from this process
        self.of_recording = of_recording  #: True if it was made from a recording, not only from the error's text
        self._said = _show.name_cells(answer.text)

    @property
    def message(self) -> str:
        """The text of the error, if the explanation was made from it."""
        return self._message or ""

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
    def cause(self) -> "Optional[str]":
        """The name of the first cause ("no_grad_missing"), or None."""
        return self.data["causes"][0]["id"] if self.data["causes"] else None

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """A card: the sentence, what to change, and the rest folded away."""
        headline, _, rest = self.text.partition("\n")
        fixes = [(str(fix.get("change", "")), _saves(fix)) for fix in self.data.get("fixes", [])[:3]]
        if fixes and rest.startswith("Try first: "):
            rest = rest.partition("\n")[2].partition("\n")[2]  # the change, and what it costs
        return _show.html_card(headline, fixes, rest.strip("\n"))


def _saves(fix: "Dict[str, Any]") -> str:
    """Returns what a fix saves and how that is known; "" if it is not known."""
    return f"saves {format_size(fix['saves_bytes'])} ({fix['basis']})" if fix.get("saves_bytes") else ""
