"""torch.distributed for programs that run on fake tensors: one process, no communication, and the memory of DistributedDataParallel.

DistributedDataParallel copies every gradient into buckets and reduces those. Its C++ part reads the tensors' memory, which fake tensors do
not have. This file replaces it by a class body that allocates the same buckets (source: reducer.cpp, distributed.py of PyTorch 2.11).
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Tuple

_FIRST_BUCKET_BYTES = 1 << 20  #: dist._DEFAULT_FIRST_BUCKET_BYTES
_BUCKET_MIB = 25  #: bucket_cap_mb unless given
_BROADCAST_BYTES = 250 << 20  #: broadcast_bucket_size


class _Done:
    """A finished collective."""

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


def bucket_counts(counts: "List[Tuple[int, int]]", first_bytes: int, other_bytes: int) -> "List[int]":
    """Returns the numbers in each bucket, for (count, bytes of one number) of each gradient, the last layer first.

    >>> bucket_counts([(10, 4), (20, 4), (30, 4)], 40, 200)
    [10, 50]
    """
    found: "List[int]" = []
    filled, most = 0, first_bytes
    for count, width in counts:
        if not found or filled >= most:
            most = first_bytes if not found else other_bytes
            found.append(0)
            filled = 0
        found[-1] += count
        filled += count * width
    return found


def _buckets(torch: Any, tensors: "List[Any]", first_bytes: int, other_bytes: int) -> "List[Any]":
    """Allocates the buckets for these tensors, those of each type together."""
    by_kind: "Dict[Any, List[Any]]" = {}
    for one in tensors:
        by_kind.setdefault((one.dtype, one.device), []).append(one)
    made = []
    for (kind, device), parameters in by_kind.items():
        for count in bucket_counts([(one.numel(), one.element_size()) for one in parameters], first_bytes, other_bytes):
            made.append(torch.empty(count, dtype=kind, device=device))
    return made


def _gradients(model: Any) -> "List[Any]":
    """Returns the parameters that get gradients, the last layer's first."""
    return list(reversed([one for one in model.parameters() if one.requires_grad]))


def _parallel(torch: Any, notes: "Dict[str, str]") -> "Dict[str, Callable[..., Any]]":
    """Returns the methods that DistributedDataParallel has during an estimate."""

    def init(self: Any, module: Any, *_: Any, bucket_cap_mb: Any = None, gradient_as_bucket_view: bool = False, find_unused_parameters: bool = False, init_sync: bool = True, **__: Any) -> None:
        torch.nn.Module.__init__(self)
        self.module = module
        self.device = next(iter(module.parameters())).device
        self.require_backward_grad_sync = True
        self.find_unused_parameters, self.gradient_as_bucket_view = find_unused_parameters, gradient_as_bucket_view
        self._passes, self._cap = 0, int((bucket_cap_mb or _BUCKET_MIB) * (1 << 20))
        sent = [*module.parameters(), *module.buffers()] if init_sync else []
        _buckets(torch, sent, _BROADCAST_BYTES, _BROADCAST_BYTES)  # rank 0 sends its weights, and frees these
        # One bucket for everything until the order of the gradients is known.
        first = _FIRST_BUCKET_BYTES if find_unused_parameters else 1 << 62
        self._gradient_buckets = [] if gradient_as_bucket_view else _buckets(torch, _gradients(module), first, self._cap if find_unused_parameters else first)
        notes["distributed"] = "DistributedDataParallel: its gradient buckets are counted, the buffers of NCCL are not (they are outside of PyTorch's allocator)"

    def forward(self: Any, *args: Any, **named: Any) -> Any:
        if torch.is_grad_enabled() and self.require_backward_grad_sync and self.training:
            self._passes += 1
            if self._passes == 2 and self._gradient_buckets and not self.find_unused_parameters:
                # NCCL keeps the old ones until its watchdog sees that they were reduced (measured: through the second step).
                self._old_buckets = self._gradient_buckets
                self._gradient_buckets = _buckets(torch, _gradients(self.module), _FIRST_BUCKET_BYTES, self._cap)
            elif self._passes == 3:
                self._old_buckets = []
        return self.module(*args, **named)

    return {"__init__": init, "forward": forward}


def replaced_for_one_process(torch: Any, notes: "Dict[str, str]") -> "List[Tuple[Any, str, Any]]":
    """Returns what to replace during an estimate: (object, name, replacement). Empty if this PyTorch has no torch.distributed."""
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available():
        return []
    from torch.distributed import distributed_c10d
    from torch.nn.parallel import DistributedDataParallel

    state = {"open": bool(distributed.is_initialized())}

    def opened(*_: Any, **__: Any) -> None:
        state["open"] = True

    def closed(*_: Any, **__: Any) -> None:
        state["open"] = False

    def reduced(*_: Any, async_op: bool = False, **__: Any) -> Any:
        return _Done() if async_op else None

    def gathered(into: Any, one: Any, *_: Any, async_op: bool = False, **__: Any) -> Any:
        for part in into:
            part.copy_(one)
        return _Done() if async_op else None

    def gathered_objects(into: Any, one: Any, *_: Any, **__: Any) -> None:
        into[:] = [one] * len(into)

    answers: "Dict[str, Any]" = {
        "init_process_group": opened,
        "destroy_process_group": closed,
        "is_initialized": lambda: state["open"],
        "get_rank": lambda *_, **__: 0,
        "get_world_size": lambda *_, **__: int(os.environ.get("WORLD_SIZE", "1")),
        "get_backend": lambda *_, **__: "nccl",
        "barrier": reduced,
        "all_reduce": reduced,
        "reduce": reduced,
        "broadcast": reduced,
        "broadcast_object_list": lambda *_, **__: None,
        "all_gather": gathered,
        "all_gather_object": gathered_objects,
    }
    found: "List[Tuple[Any, str, Any]]" = []
    for name, value in answers.items():
        for where in (distributed, distributed_c10d):
            if hasattr(where, name):
                found.append((where, name, value))
    return found + [(DistributedDataParallel, name, method) for name, method in _parallel(torch, notes).items()]
