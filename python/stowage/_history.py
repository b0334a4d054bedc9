"""PyTorch's own history of allocations: kept from the moment CUDA starts, and saved when it runs out.

Called by enable(), which wants it for the error that may come, by recordings, and by explanations, which read the snapshot
of the latest refusal. Does not start CUDA, and imports no torch.
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

#: Events kept of PyTorch's history, and so of what an explanation can look back at.
HISTORY = 200_000

_hooked: "set[str]" = set()
_observed: "Optional[str]" = None  # the snapshot file of PyTorch's latest refusal


# ---- the history ----


def start_history(torch: Any) -> None:
    """PyTorch's history of allocations, with Python's lines."""
    begin = getattr(torch.cuda.memory, "_record_memory_history", None)
    if begin is None:
        raise Unsupported(f"PyTorch {torch.__version__} keeps no history of allocations; install 2.1 or later")
    try:
        begin(max_entries=HISTORY, stacks="python")
    except TypeError:
        begin(True)  # before 2.1


def stop_history(torch: Any) -> None:
    """Ends the history and forgets it; quietly nothing where there is none."""
    with contextlib.suppress(Exception):
        torch.cuda.memory._record_memory_history(enabled=None)


def snapshot_file() -> "Optional[str]":
    """PyTorch's view of its memory as a file, None where it has none to give."""
    torch = _memory.torch_cuda()
    take = getattr(getattr(getattr(torch, "cuda", None), "memory", None), "_snapshot", None)
    if take is None:
        return None
    try:
        view = take()
    except Exception:  # another allocator was plugged in
        return None
    if not any(view.get("device_traces", [])):
        return None  # no history was kept: the error's own words tell more
    handle, path = tempfile.mkstemp(prefix="stowage-", suffix=".pickle")
    with os.fdopen(handle, "wb") as file:
        pickle.dump(view, file, protocol=4)
    return path


# ---- the latest refusal ----


def take_refusal() -> "Optional[str]":
    """The snapshot of PyTorch's latest refusal, the caller's from now on; of this moment where none was seen."""
    global _observed
    path, _observed = _observed or snapshot_file(), None
    return path


def _forget_observed() -> None:
    """A program may catch one refusal after the other and ask about none."""
    global _observed
    path, _observed = _observed, None
    if path is not None:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _on_torch_refusal(*_: Any) -> None:
    """PyTorch is about to raise: its view of this moment is the best there will be."""
    global _observed
    _forget_observed()
    try:
        _observed = snapshot_file()
    except Exception:
        _observed = None


# ---- hooks ----


def is_hooked() -> bool:
    """Is the history kept for errors that may come, and not only for a recording?"""
    return "torch" in _hooked


def _arm_torch() -> None:
    """CUDA has started in PyTorch, or is about to."""
    torch = _memory.loaded("torch")
    if torch is None or "torch" in _hooked:
        return
    _hooked.add("torch")
    atexit.register(_forget_observed)
    try:
        start_history(torch)
        torch._C._cuda_attach_out_of_memory_observer(_on_torch_refusal)
    except Exception:  # an old PyTorch, or one without CUDA, has neither: the error's text is what is left
        pass


def hook_torch(torch: Any = None) -> bool:
    """Has PyTorch keep a history and tell when it runs out, from the moment it starts CUDA; False where it is not loaded.

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
