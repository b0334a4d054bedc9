"""The report of a recording, from the `stowage report` command: a page in a notebook, text elsewhere."""

from __future__ import annotations

import html
import os
from typing import List, Optional, Union

from . import _show
from ._command import run
from ._library import NotFound, StowageError, shown

_latest: "Optional[str]" = None  # the recording that was made last in this process


def note_latest(path: str) -> None:
    """A recording has come to its end: the one that `report()` means."""
    global _latest
    _latest = path


class Report:
    """A recording as a page: inline in a notebook, text elsewhere; `save()` writes the page."""

    def __init__(self, paths: "List[str]") -> None:
        self.paths = paths
        self._page: "Optional[str]" = None

    @property
    def text(self) -> str:
        return _show.name_cells(run(["report", "--text", *self.paths]).rstrip())

    @property
    def page(self) -> str:
        """The page: one file of HTML that needs nothing else."""
        if self._page is None:
            self._page = _show.name_cells(run(["report", "--output", "-", *self.paths]))
        return self._page

    def save(self, path: "Union[str, os.PathLike[str]]") -> None:
        """Writes the page to a file."""
        run(["report", "--output", os.fspath(path), *self.paths])

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        # A frame of its own: the page has scripts and styles that are not the notebook's.
        return f'<iframe srcdoc="{html.escape(self.page)}" style="width:100%;height:640px;border:0"></iframe>'


def report(*recordings: "Union[str, os.PathLike[str]]") -> Report:
    """The report of a recording, or of two side by side; of the latest of this process where none is named.

    >>> report("nowhere.stow")
    Traceback (most recent call last):
        ...
    stowage._library.NotFound: nowhere.stow: there is no such recording
    """
    paths = [os.fspath(one) for one in recordings] or ([_latest] if _latest else [])
    if not paths:
        raise StowageError("nothing was recorded in this process; name a recording, or make one: with stowage.record(…):")
    for path in paths:
        if not os.path.exists(path):
            raise NotFound(f"{shown(path)}: there is no such recording")
    return Report(paths)
