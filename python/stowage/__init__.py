"""Stowage: fits programs into the GPU and host memory there is.

Look:     info, watch, and in notebooks %load_ext stowage, %stowage, %%stowage
Release:  release, holders, cache, and in notebooks %release
Limit:    enable, limit, restart
Explain:  explain, record, report, step
Data:     shrink, open, batches
Heap:     heap; use_cupy, use_numba: CuPy's and Numba's memory on it

What it says comes from the C library and the `stowage` command, which come with the package. Nothing heavy is imported
with it: NumPy, pandas, torch, CuPy and JAX only where they are used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself is not imported: it would be half of the time this import takes
if TYPE_CHECKING:
    from typing import Any, List

#: Names and the files they live in, brought in when first used (PEP 562).
_WHERE = {
    "StowageError": "_library",
    "OutOfMemory": "_library",
    "Invalid": "_library",
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
    "cache": "_release",
    "enable": "_enable",
    "limit": "_enable",
    "restart": "_enable",
    "HostMemoryError": "_ram",
    "explain": "_explain",
    "record": "_explain",
    "report": "_explain",
    "step": "_explain",
    "shrink": "_shrink",
    "open": "lazy",
    "batches": "batches",
    "heap": "_heap",
    "use_cupy": "_heap",
    "use_numba": "_heap",
}

#: Not `open`: a star import must not take the place of the builtin.
__all__ = sorted(set(_WHERE) - {"open"})


def __getattr__(name: str) -> Any:
    import importlib

    if name == "__version__":
        from ._library import lib

        return lib().stow_version().decode()
    place = _WHERE.get(name)
    if place is None:
        raise AttributeError(f"module 'stowage' has no attribute {name!r}")
    # A file may have the name of its function, and importing it sets that name: ours is set after it.
    value = getattr(importlib.import_module(f".{place}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> "List[str]":
    return sorted([*globals(), *_WHERE, "__version__"])


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext stowage`: the magics %stowage, %%stowage and %release."""
    from ._notebook import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext stowage`."""
    from ._notebook import unload

    unload(shell)


if TYPE_CHECKING:
    from ._enable import enable, limit, restart  # noqa: F401
    from ._explain import explain, record, report, step  # noqa: F401
    from ._heap import heap, use_cupy, use_numba  # noqa: F401
    from ._library import (  # noqa: F401
        Invalid,
        Missing,
        NotFound,
        OutOfMemory,
        StowageError,
        Unreadable,
        Unsupported,
        format_size,
        parse_size,
    )
    from ._look import info, watch  # noqa: F401
    from ._ram import HostMemoryError  # noqa: F401
    from ._release import cache, holders, release  # noqa: F401
    from ._shrink import shrink  # noqa: F401

    __version__: str
