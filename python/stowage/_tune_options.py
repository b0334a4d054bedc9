"""What makes a program fit if not even one sample does: autocast, checkpoints, offloading, another optimizer, spilling.

`_tune` asks for this list when a batch of 1 is too large. Each option is estimated, with its bytes and its simulated time. The two that
change a model without changing its code, checkpoints and offloaded activations, are applied by functions of this file.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _analysis, _gpus
from ._estimate import estimate
from ._library import StowageError
from ._library import format_size as size

_BUS_NS_PER_BYTE = 19.4e6 / (1 << 30)  #: a copy of 1 GiB takes 19.4 ms (measured on an H200, src/residency/cost.c)
_OFFLOAD_LEAST = 1 << 20  #: smaller tensors stay on the GPU: their copies would cost more time than they save memory
_SHARES_TRIED = 3  #: numbers of checkpointed blocks that are estimated, after all of them: to an eighth of the blocks


# ---- changes to a model ----


def repeated_blocks(model: Any) -> "List[Tuple[str, Any]]":
    """Returns the repeated blocks of a model with their names: the children of its longest ModuleList or Sequential of at least two."""
    import torch

    best: "List[Tuple[str, Any]]" = []
    for name, one in model.named_modules():
        if isinstance(one, (torch.nn.ModuleList, torch.nn.Sequential)):
            inside = [(f"{name}.{key}" if name else key, child) for key, child in one.named_children() if any(True for _ in child.parameters())]
            if len(inside) >= 2 and len(inside) > len(best):
                best = inside
    return best


def checkpoint_blocks(model: Any, count: "Optional[int]" = None) -> int:
    """Recomputes the first `count` repeated blocks of `model` (None: all) in the backward pass instead of keeping their activations.

    Returns the number of blocks. The result is the same. Dropout draws the same numbers, because the state of the generator is restored.
    The first blocks are the best ones: when they are recomputed, the activations of the others are already freed.
    """
    from torch.utils.checkpoint import checkpoint

    found = repeated_blocks(model)[:count]
    for _, one in found:
        plain = one.forward

        def forward(*given: Any, _plain: Any = plain, _block: Any = one, **named: Any) -> Any:
            if not _block.training:
                return _plain(*given, **named)
            return checkpoint(_plain, *given, use_reentrant=False, **named)

        one.forward = forward
    return len(found)


def offload_activations(model: Any, moved: "Optional[List[int]]" = None) -> None:
    """Keeps the activations that `model` saves for the backward pass in host memory; the result is the same.

    Weights and tensors below 1 MiB stay on the GPU. `moved` receives the bytes of each tensor that is copied.
    """
    import torch

    plain = model.forward

    def pack(tensor: Any, weights: "set[int]") -> Any:
        count = tensor.numel() * tensor.element_size()
        if tensor.device.type != "cuda" or count < _OFFLOAD_LEAST or _storage_key(tensor) in weights:
            return tensor
        if moved is not None:
            moved.append(count)
        kept = torch.empty(tensor.size(), dtype=tensor.dtype, layout=tensor.layout, pin_memory=not _is_fake(tensor))
        kept.copy_(tensor, non_blocking=True)
        return tensor.device, kept

    def unpack(kept: Any) -> Any:
        return kept[1].to(kept[0], non_blocking=True) if isinstance(kept, tuple) else kept

    def forward(*given: Any, **named: Any) -> Any:
        if not (model.training and torch.is_grad_enabled()):
            return plain(*given, **named)
        weights = {_storage_key(one) for one in model.parameters()}
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: pack(tensor, weights), unpack):
            return plain(*given, **named)

    model.forward = forward


def _storage_key(tensor: Any) -> int:
    """Returns a number that all views of one storage share, also for fake tensors."""
    return int((tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()._storage)._cdata)  # 1.13 has no untyped_storage()


def _is_fake(tensor: Any) -> bool:
    return hasattr(tensor, "fake_mode")


def _changed(made: Any, change: "Callable[[Any], Any]") -> Any:
    """Applies `change` to the model in what model_fn returned: a model, a tuple that begins with it, or a dict that has it."""
    change(made["model"] if isinstance(made, dict) else made[0] if isinstance(made, tuple) else made)
    return made


class _Stateless:
    """An optimizer without state on the GPU: only the gradients are there, the rest is on the host."""

    def __init__(self, parameters: "List[Any]") -> None:
        self._parameters = parameters

    def step(self) -> None:
        pass

    def zero_grad(self, set_to_none: bool = True) -> None:
        for one in self._parameters:
            one.grad = None


# ---- the list ----


class _Tried:
    """The options found so far, for a program whose single sample needs `needs` bytes of `limit`."""

    def __init__(self, step: Any, batch_fn: Any, named: "Dict[str, Any]", needs: int, limit: int) -> None:
        self._step, self._batch_fn, self._named = step, batch_fn, named
        self.needs, self.limit = needs, limit
        self.found: "List[Dict[str, Any]]" = []

    def again(self, made: Any = None, **other: Any) -> "Tuple[int, int, str]":
        """Returns (bytes, simulated time, trace) of one sample with another setting; zeros if it cannot be estimated."""
        with contextlib.suppress(StowageError, ImportError, AttributeError, RuntimeError, TypeError):
            data = estimate(made or self._step, lambda: self._batch_fn(1), **{**self._named, **other}).data
            return int(data["needs_bytes"]), int(data["simulated_step_ns"]), str(data["trace"])
        return 0, 0, ""

    def again_with(self, change: "Callable[[Any], Any]") -> "Tuple[int, int, str]":
        return self.again(lambda: _changed(self._step(), change))

    def add(self, kind: str, name: str, cost: str, how: str, bytes_now: int, exact: bool, times: "Optional[float]" = None, **more: Any) -> None:
        """Adds an option that needs less; one that needs as much, or could not be estimated (0), is left out."""
        if not 0 < bytes_now < self.needs:
            return
        if times is not None:
            cost = f"about {times:.1f}x the time of a step, simulated; {cost}"
        fits = bytes_now <= self.limit
        one = {"kind": kind, "name": name, "needs_bytes": bytes_now, "saves_bytes": self.needs - bytes_now, "fits": fits}
        self.found.append({**one, "exact": exact, "cost": cost, "times": times, "how": how, "chosen": False, **more})


def _checkpointed(tried: _Tried, plain: int) -> None:
    """Adds checkpointing: of all repeated blocks and, if that fits, of the fewest that fit."""
    names: "List[str]" = []

    def all_of(model: Any) -> None:
        names[:] = [name for name, _ in repeated_blocks(model)]
        checkpoint_blocks(model)

    found, took, _ = tried.again_with(all_of)
    count = total = len(names)
    if total == 0 or not 0 < found < tried.needs:
        return
    low, high = 0, total  # `low` blocks are too few, `high` are enough
    for _ in range(_SHARES_TRIED if found <= tried.limit else 0):
        if high - low <= 1:
            break
        middle = (low + high) // 2
        fewer = tried.again_with(functools.partial(checkpoint_blocks, count=middle))
        if 0 < fewer[0] <= tried.limit:
            high = count = middle
            found, took, _ = fewer
        else:
            low = middle
    name = "checkpointing of the repeated blocks" if count == total else f"checkpointing of {count} of {total} blocks"
    how = f"plan.apply(model): {names[0]} to {names[count - 1]}" if count > 1 else f"plan.apply(model): {names[0]}"
    tried.add("checkpoint", name, "computes them twice", how, found, True, _times(took, plain), blocks=count)


def _offloaded(tried: _Tried, plain: int) -> None:
    """Adds activations in host memory. Assumes that their copies overlap with nothing."""
    moved: "List[int]" = []

    def change(model: Any) -> None:
        del moved[:]
        offload_activations(model, moved)

    found, took, _ = tried.again_with(change)
    copied = sum(moved) // 2  # of the two steps of an estimate
    both = int(took + 2 * copied * _BUS_NS_PER_BYTE)
    tried.add("offload", "activations in host memory", f"copies {size(copied)} each way in each step", "plan.apply(model)", found, True, _times(both, plain))


def _spill_ns(trace: str, total_bytes: int) -> "Optional[int]":
    """Returns the time of a step of an estimated program that spills, from the residency simulator; None if it has no answer."""
    with contextlib.suppress(StowageError):
        return int(_analysis.spill(trace, total_bytes).step_ns)
    return None


def _times(simulated: "Optional[int]", plain: "Optional[int]") -> "Optional[float]":
    return simulated / plain if simulated and plain else None


def options_for_one(step: Any, batch_fn: Any, named: "Dict[str, Any]", needs: int, limit: int, allow: "List[str]") -> "List[Dict[str, Any]]":
    """Returns what would make one sample fit, with the bytes and the time of each. The fastest that is permitted is the choice."""
    tried = _Tried(step, batch_fn, named, needs, limit)
    spill: "Optional[float]" = None
    if batch_fn is not None:
        _, plain, trace = tried.again()
        if trace:
            spill = _times(_spill_ns(trace, _gpus.find(named.get("gpu"), named.get("vram")).total_bytes), plain)
        if named.get("amp") is None:
            found, took, _ = tried.again(amp="bf16")
            how = 'with torch.autocast("cuda", dtype=torch.bfloat16): around the forward pass'
            tried.add("amp", "autocast to bfloat16", "rounds differently", how, found, False, _times(took, plain))
        if named.get("optimizer") is not None:
            _checkpointed(tried, plain)
            _offloaded(tried, plain)
            held, took, _ = tried.again(optimizer=lambda parameters: _Stateless(parameters))
            moved = needs - held
            both = int(took + 2 * moved * _BUS_NS_PER_BYTE)
            how = "keep the optimizer's state on the CPU (torch.optim with CPU parameters, or DeepSpeed's ZeRO-Offload)"
            cost = f"copies {size(max(0, moved))} each way in each step, the optimizer's own time on the CPU not included"
            tried.add("host_state", "optimizer state in host memory", cost, how, held, True, _times(both, plain))
            if isinstance(named["optimizer"], str) and named["optimizer"].lower() in ("adam", "adamw"):
                found, _, _ = tried.again(optimizer="adamw8bit")
                tried.add("8bit", "8-bit optimizer state", "rounds the optimizer's state", "bitsandbytes.optim.AdamW8bit", found, False)
    cost = f"moves at least {size(needs - limit)} over the bus in each step"
    tried.add("spill", "spill to host memory", cost, 'stowage.enable(spill="auto") before CUDA starts', limit, True, spill)
    permitted = [one for one in tried.found if one["fits"] and (one["exact"] or one["kind"] in allow)]
    timed = [one for one in permitted if one["times"] is not None]
    if permitted:
        (min(timed, key=lambda one: one["times"]) if len(timed) == len(permitted) else permitted[0])["chosen"] = True
    return tried.found
