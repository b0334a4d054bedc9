"""Replaying a recording with other allocators, limits and settings."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Union

from . import _analysis, _show
from ._library import format_size as size
from ._library import parse_size

_MIN_LIMIT, _CHECK = 1, 2  # STOW_REPLAY_MIN_LIMIT, STOW_REPLAY_CHECK


class Replay:
    """What each allocator would have done with a recording; `data` is the JSON of `stowage replay`."""

    def __init__(self, data: "List[Dict[str, Any]]") -> None:
        self.data = data

    def __getitem__(self, policy: str) -> "Dict[str, Any]":
        """The result of one allocator, by its name."""
        for one in self.data:
            if one["policy"] == policy:
                return one
        raise KeyError(policy)

    def _rows(self) -> "List[tuple[str, ...]]":
        rows: "List[tuple[str, ...]]" = [("policy", "result", "peak live", "peak reserved", "smallest limit")]
        for one in self.data:
            result = "finishes" if one["finishes"] else f"fails at event {one['failed_at_event']}"
            least = size(one["min_limit_bytes"]) if one["min_limit_bytes"] else "-"
            rows.append((one["policy"], result, size(one["peak_live_bytes"]), size(one["peak_reserved_bytes"]), least))
        return rows

    def __repr__(self) -> str:
        return _show.text_table(self._rows(), right=[2, 3, 4], indent=0)

    def _repr_html_(self) -> str:
        return _show.html_table(self._rows(), right=[2, 3, 4])


def replay(
    recording: "Union[str, os.PathLike[str]]",
    policy: "Union[None, str, List[str]]" = None,
    *,
    vram: "str | int | None" = None,
    vram_limit: "str | int | None" = None,
    settings: "Optional[str]" = None,
    min_limit: bool = False,
    check: bool = False,
) -> Replay:
    """Runs the requests of a recording through other allocators, without the program and without a GPU.

    `policy` is one name or a list ("torch_default", "torch_expandable", "bfc", "cuda_async", "stowage"), all of them by default; "planned"
    is a layout computed in advance from the recorded lifetimes, with its lower bound. `vram` is the size of the device, `vram_limit` limits
    what the allocator may reserve. `settings` are those of
    PYTORCH_ALLOC_CONF. `min_limit` also finds the smallest limit that finishes.

    >>> replay("nowhere.stow")
    Traceback (most recent call last):
        ...
    stowage._library.NotFound: nowhere.stow: cannot open: No such file or directory; check the path
    """
    options = _analysis.ReplayOptions()
    options.device_bytes = parse_size(vram, "vram") if vram is not None else 0
    options.limit_bytes = parse_size(vram_limit, "vram_limit") if vram_limit is not None else 0
    options.settings = settings.encode("utf-8", "replace") if settings is not None else None
    names = _analysis.policies() if policy is None else [policy] if isinstance(policy, str) else list(policy)
    flags = (_MIN_LIMIT if min_limit else 0) | (_CHECK if check else 0)
    return Replay(_analysis.replay(os.fspath(recording), names, flags, options))


class Tuning:
    """The settings that were tried; `data` is the JSON of `stowage tune`, `best` the value for PYTORCH_ALLOC_CONF.

    With a size of the GPU, `batch_part` is the largest part of the recorded batch that fits it (1.0: all of it, 0.0: not even a 64th),
    `batch` the same in samples where the recording has them, and `batch_settings` the value for PYTORCH_ALLOC_CONF to use with it.
    """

    def __init__(self, data: "List[Dict[str, Any]]") -> None:
        self.data = data
        self.best: str = next(one["settings"] for one in data if one["best"])
        fitting = next((one for one in data if one["batch_part"] is not None), None)
        self.batch_part: "Optional[float]" = fitting["batch_part"] if fitting else None
        self.batch: "Optional[int]" = fitting["batch_samples"] if fitting else None
        self.batch_settings: "Optional[str]" = fitting["settings"] if fitting else None

    def _fits(self) -> str:
        """One line about the size that was given; empty without one."""
        if self.batch_part is None:
            return ""
        if self.batch_part == 0:
            return "does not fit with any batch"
        part = f"a batch of {self.batch}" if self.batch is not None else f"{int(self.batch_part * 100)}% of the recorded batch"
        return f"fits with {part}" + (f" and {self.batch_settings}" if self.batch_settings else "")

    def _rows(self) -> "List[tuple[str, ...]]":
        rows: "List[tuple[str, ...]]" = [("settings", "smallest limit", "saves", "peak reserved")]
        for one in self.data:
            name = (one["settings"] or "(none)") + (" <- best" if one["best"] else "")
            saves = size(one["min_limit_saved_bytes"]) if one["min_limit_saved_bytes"] else ""
            rows.append((name, size(one["min_limit_bytes"]), saves, size(one["peak_reserved_bytes"])))
        return rows

    def __repr__(self) -> str:
        table = _show.text_table(self._rows(), right=[1, 2, 3], indent=0)
        return f"{table}\n{self._fits()}" if self._fits() else table

    def _repr_html_(self) -> str:
        return _show.html_block(self._fits(), _show.html_table(self._rows(), right=[1, 2, 3]))


def tune_recording(path: str, vram: "str | int | None", vram_limit: "str | int | None") -> Tuning:
    """Returns the settings with which a recorded program needs the least memory."""
    options = _analysis.TuneOptions()
    options.device_bytes = parse_size(vram, "vram") if vram is not None else 0
    options.limit_bytes = parse_size(vram_limit, "vram_limit") if vram_limit is not None else 0
    return Tuning(_analysis.tune(path, options))
