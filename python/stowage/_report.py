"""The report of a recording: a page in a notebook, text elsewhere."""

from __future__ import annotations

import html
import json
import os
from typing import Any, Dict, List, Optional, Union

from . import _analysis, _show
from ._library import NotFound, StowageError, shown

_latest: "Optional[str]" = None  # the latest recording of this process


def note_latest(path: str) -> None:
    """Remembers the latest recording, for `report()` without arguments."""
    global _latest
    _latest = path


class Report:
    """A recording as a page: inline in a notebook, text elsewhere; `save()` writes the page."""

    def __init__(self, paths: "List[str]") -> None:
        self.paths = paths
        self._page: "Optional[str]" = None

    @property
    def text(self) -> str:
        return _show.name_cells(_analysis.report_form(self.paths, "text").rstrip())

    @property
    def data(self) -> "Dict[str, Any]":
        """Every figure: the JSON of `stowage report`."""
        return json.loads(_analysis.report_form(self.paths, "json"))

    @property
    def page(self) -> str:
        """The page: one self-contained HTML file."""
        if self._page is None:
            self._page = _show.name_cells(_analysis.report_form(self.paths, "html"))
        return self._page

    def save(self, path: "Union[str, os.PathLike[str]]") -> None:
        """Writes the page to a file."""
        _analysis.report_save(self.paths, os.fspath(path))

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        # A separate frame: the page has its own scripts and styles.
        return f'<iframe srcdoc="{html.escape(self.page)}" style="width:100%;height:640px;border:0"></iframe>'


def report(*recordings: "Union[str, os.PathLike[str]]") -> Report:
    """Returns the report of a recording, or of two side by side; by default of the latest recording of this process.

    >>> report("nowhere.stow")
    Traceback (most recent call last):
        ...
    stowage._library.NotFound: nowhere.stow: no such recording; check the path
    """
    paths = [os.fspath(one) for one in recordings] or ([_latest] if _latest else [])
    if not paths:
        raise StowageError("nothing was recorded in this process; pass a recording, or make one: with stowage.record(…):")
    if len(paths) > 2:
        raise TypeError(f"report: {len(paths)} recordings; give one, or two to compare")
    for path in paths:
        if not os.path.exists(path):
            raise NotFound(f"{shown(path)}: no such recording; check the path")
    return Report(paths)
