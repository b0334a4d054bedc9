"""PyTorch's history of allocations: recorded once CUDA starts, and saved when memory runs out.

Used by enable(), by recordings, and by explanations, which read the snapshot of the latest failed request. Does not start CUDA and
does not import torch.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import pickle
import sys
import tempfile
from typing import Any, Optional

from . import _memory
from ._library import Unsupported
from ._program import program_text

#: Number of events that PyTorch's history keeps for an explanation.
HISTORY = 200_000

_hooked: "set[str]" = set()
_observed: "Optional[str]" = None  # the snapshot file of PyTorch's latest failed request


# ---- the history ----


def start_history(torch: Any) -> None:
    """Starts PyTorch's history of allocations, with Python lines."""
    begin = getattr(torch.cuda.memory, "_record_memory_history", None)
    if begin is None:
        raise Unsupported(f"PyTorch {torch.__version__} keeps no history of allocations; install 2.1 or later")
    try:
        begin(max_entries=HISTORY, stacks="python")
    except TypeError:
        begin(True)  # before 2.1


def stop_history(torch: Any) -> None:
    """Stops and clears the history; does nothing if there is none."""
    with contextlib.suppress(Exception):
        torch.cuda.memory._record_memory_history(enabled=None)


def snapshot_file() -> "Optional[str]":
    """Writes PyTorch's snapshot to a file and returns it; None if there is no snapshot."""
    torch = _memory.torch_cuda()
    take = getattr(getattr(getattr(torch, "cuda", None), "memory", None), "_snapshot", None)
    if take is None:
        return None
    try:
        view = take()
    except Exception:  # another allocator was plugged in
        return None
    if not any(view.get("device_traces", [])):
        return None  # no history was kept: the error text has more information
    with contextlib.suppress(Exception):
        view["stowage_program"] = program_text(torch)
    handle, path = tempfile.mkstemp(prefix="stowage-", suffix=".pickle")
    with os.fdopen(handle, "wb") as file:
        pickle.dump(view, file, protocol=4)
    return path


# ---- the latest failed request ----


def take_refusal() -> "Optional[str]":
    """Returns the snapshot of PyTorch's latest failed request, or a new one; the caller owns it."""
    global _observed
    path, _observed = _observed or snapshot_file(), None
    return path


def _forget_observed() -> None:
    """Removes the previous snapshot: a program may catch many errors without asking for an explanation."""
    global _observed
    path, _observed = _observed, None
    if path is not None:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _on_torch_refusal(*_: Any) -> None:
    """Takes a snapshot just before PyTorch raises its error."""
    global _observed
    _forget_observed()
    try:
        _observed = snapshot_file()
    except Exception:
        _observed = None


# ---- hooks ----


def is_hooked() -> bool:
    """Returns true if the history is kept for later errors, not only for a recording."""
    return "torch" in _hooked


def _arm_torch() -> None:
    """Runs when CUDA starts in PyTorch."""
    torch = _memory.loaded("torch")
    if torch is None or "torch" in _hooked:
        return
    _hooked.add("torch")
    atexit.register(_forget_observed)
    try:
        start_history(torch)
        torch._C._cuda_attach_out_of_memory_observer(_on_torch_refusal)
    except Exception:  # an old PyTorch, or one without CUDA, has neither: use the error text
        pass


def hook_torch(torch: Any = None) -> bool:
    """Makes PyTorch keep a history and report when it runs out, once CUDA starts. Returns False if torch is not loaded.

    Costs 1.5 to 2 us for each allocation. Does not start CUDA itself: a program may still want to fork.
    """
    torch = torch or _memory.loaded("torch")
    if torch is None or "torch asked" in _hooked:
        return torch is not None
    _hooked.add("torch asked")
    if _memory.torch_cuda() is not None:
        _arm_torch()
    elif hasattr(torch.cuda, "_lazy_call"):
        torch.cuda._lazy_call(_arm_torch)
    return True


class _LateTorch:
    """Hooks torch at the end of its import: `enable()` may come first."""

    def find_spec(self, name: str, *_: Any) -> Any:
        if name != "torch":
            return None
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec(name)
        loader = spec.loader if spec is not None else None
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        execute = loader.exec_module

        def then_hook(module: Any) -> None:
            execute(module)
            with contextlib.suppress(Exception):
                hook_torch(module)

        setattr(loader, "exec_module", then_hook)
        return spec


def hook_torch_when_loaded() -> None:
    """hook_torch() now, or at the end of torch's import."""
    if not hook_torch() and "late" not in _hooked:
        _hooked.add("late")
        sys.meta_path.insert(0, _LateTorch())  # type: ignore[arg-type]
