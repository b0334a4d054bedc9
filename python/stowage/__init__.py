"""Stowage: find out why memory ran out, set limits, spill to host memory, read data larger than memory.

Look:     info, watch, and in notebooks %load_ext stowage, %stowage, %%stowage
Release:  release, holders, cache, and in notebooks %release
Limit:    enable, limit, restart
Explain:  explain, record, report, step, profile
Plan:     estimate, replay, tune; Plan.load reads a saved plan
Data:     shrink, open, batches, records
Models:   load, save, shrink, inspect
Heap:     heap; use_cupy, use_numba: let CuPy and Numba allocate from it

The package is a thin layer over the C libraries and the `stowage` command, which it contains. It imports NumPy, pandas, torch, CuPy
and JAX only where they are used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # does not import typing, which would take half of the import time
if TYPE_CHECKING:
    from typing import Any, List

#: Public names and their modules, imported on first use (PEP 562).
_WHERE = {
    "StowageError": "_library",
    "OutOfMemory": "_library",
    "Invalid": "_library",
    "NoTensor": "_library",
    "NotFound": "_library",
    "Unsupported": "_library",
    "Missing": "_library",
    "Unreadable": "_library",
    "parse_size": "_library",
    "format_size": "_library",
    "info": "_look",
    "watch": "_look",
    "release": "_release",
    "holders": "_release",
    "cache": "_cache",
    "enable": "_enable",
    "limit": "_enable",
    "restart": "_enable",
    "HostMemoryError": "_ram",
    "explain": "_explain",
    "record": "_recording",
    "report": "_report",
    "profile": "_profile",
    "step": "_recording",
    "shrink": "_shrink",
    "inspect": "_inspect",
    "replay": "_replay",
    "tune": "_tune",
    "Plan": "_tune",
    "estimate": "_estimate",
    "load": "_load",
    "save": "_save",
    "open": "lazy",
    "batches": "batches",
    "records": "_records",
    "heap": "_heap",
    "use_cupy": "_heap",
    "use_numba": "numba",
}

#: Without `open`: a star import must not replace the builtin.
__all__ = sorted(set(_WHERE) - {"open"})


if not TYPE_CHECKING:  # type checkers see the names below and find wrong ones

    def __getattr__(name: str) -> Any:
        import importlib

        if name == "__version__":
            from ._library import lib

            return lib().stow_version().decode()
        place = _WHERE.get(name)
        if place is None:
            raise AttributeError(f"module 'stowage' has no attribute {name!r}")
        # A module can have the name of its function, and importing it sets that name: set the function after it.
        value = getattr(importlib.import_module(f".{place}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> "List[str]":
    """Returns the public names and those of every module (__doc__, __file__, …)."""
    return sorted({*_WHERE, "__version__", *(name for name in globals() if name.startswith("__") and name.endswith("__"))})


def load_ipython_extension(shell: Any) -> None:
    """Registers the magics %stowage, %%stowage and %release (`%load_ext stowage`)."""
    from ._notebook import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext stowage`."""
    from ._notebook import unload

    unload(shell)


if TYPE_CHECKING:  # `as` with the same name: the import is part of the package's interface
    from ._cache import cache as cache
    from ._enable import enable as enable
    from ._enable import limit as limit
    from ._enable import restart as restart
    from ._estimate import estimate as estimate
    from ._explain import explain as explain
    from ._heap import heap as heap
    from ._heap import use_cupy as use_cupy
    from ._inspect import inspect as inspect
    from ._library import Invalid as Invalid
    from ._library import Missing as Missing
    from ._library import NoTensor as NoTensor
    from ._library import NotFound as NotFound
    from ._library import OutOfMemory as OutOfMemory
    from ._library import StowageError as StowageError
    from ._library import Unreadable as Unreadable
    from ._library import Unsupported as Unsupported
    from ._library import format_size as format_size
    from ._library import parse_size as parse_size
    from ._load import load as load
    from ._look import info as info
    from ._look import watch as watch
    from ._profile import profile as profile
    from ._ram import HostMemoryError as HostMemoryError
    from ._recording import record as record
    from ._recording import step as step
    from ._records import records as records
    from ._release import holders as holders
    from ._release import release as release
    from ._replay import replay as replay
    from ._report import report as report
    from ._save import save as save
    from ._shrink import shrink as shrink
    from ._tune import Plan as Plan
    from ._tune import tune as tune
    from .batches import batches as batches
    from .lazy import open as open
    from .numba import use_numba as use_numba

    __version__: str
