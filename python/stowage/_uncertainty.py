"""How far the real need of an estimated program can be from the estimate.

Some sizes are not known before the run: cuDNN and cuFFT choose their workspaces, and PyTorch's allocator amplifies small differences,
because a freed block is used again only by a request that fits into it. So the trace is replayed again with other sizes: without the
workspaces that were guessed and with more, and with all large blocks slightly larger. The range of the answers, and a share for
what no variant shows, is the uncertainty. `estimate` says yes or no only outside of it.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from . import _analysis
from ._fake_record import ALLOC
from ._fake_record import FREE as FREED
from ._trace import ALLOC as TRACE_ALLOC
from ._trace import FREE as TRACE_FREE
from ._trace import Trace

#: Share of the need by which programs without guessed workspaces were wrong: at most 3.7% for GPT, Llama, LoRA, ViT and generation on an
#: H200 (docs/MEASUREMENTS.md). Other GPUs were not measured; the context and the choice of kernels are assumed for them.
_MEASURED_SHARE, _ASSUMED_SHARE = 0.035, 0.05
#: A program that reads values of its tensors may run other code than the estimate did. Assumed.
_VALUES_SHARE = 0.02
#: Sparse operators have temporaries that are not counted. Assumed.
_SPARSE_SHARE = 0.25
#: Of torch.compile, as shares (down, up): a program whose graphs were followed was 3% off; of programs that were estimated uncompiled one
#: needed 31% less (one program each, docs/MEASUREMENTS.md).
_COMPILED_SHARES = {"": (0.0, 0.0), "followed": (0.15, 0.15), "ignored": (0.4, 0.0)}
#: Guessed workspaces times these, and what the need may differ besides, as shares (down, up). On a measured GPU most workspaces are right
#: within 2%, and programs with them within 4% (docs/MEASUREMENTS.md). Where memory is short, PyTorch takes a kernel of cuDNN with a smaller
#: workspace (source: try_configs of cudnn/Conv_v8.cpp), so programs can need less.
_MEASURED_SCALES, _ASSUMED_SCALES = (0.0, 0.9, 1.1, 1.25), (0.0, 0.5, 1.5, 2.0)
_MEASURED_WORKSPACES, _ASSUMED_WORKSPACES = (0.04, 0.03), (0.04, 0.1)
#: Blocks of a MiB and more are larger by up to this share, the same for all blocks of one size.
_JITTER, _JITTERED, _SEEDS = 0.005, 1 << 20, (1, 2)


class Range(NamedTuple):
    """The least and the most bytes that the program may need, and why they differ."""

    low: int
    high: int
    reasons: "List[Dict[str, Any]]"


def verdict(found: Range, available: int) -> str:
    """Returns "yes" if the program fits in any case, "no" if in none, "close" otherwise.

    >>> [verdict(Range(10, 20, []), there) for there in (20, 15, 9)]
    ['yes', 'close', 'no']
    """
    return "yes" if found.high <= available else "no" if found.low > available else "close"


def shares(needs: int, measured: bool, values: bool = False, sparse: bool = False, compiled: str = "") -> Range:
    """Returns the range by shares of the need alone."""
    base = _MEASURED_SHARE if measured else _ASSUMED_SHARE
    reasons = [_reason("kernels", "kernels and allocator" + ("" if measured else ", not measured on this GPU"), -base * needs, base * needs)]
    if values:
        reasons.append(_reason("values", "values that the program reads", -_VALUES_SHARE * needs, _VALUES_SHARE * needs))
    if sparse:
        reasons.append(_reason("sparse", "temporaries of sparse operators", 0, _SPARSE_SHARE * needs))
    if compiled:
        down, up = _COMPILED_SHARES[compiled]
        reasons.append(_reason("compile", f"torch.compile, which was {compiled}", -down * needs, up * needs))
    return _range(needs, reasons)


def _range(needs: int, reasons: "List[Dict[str, Any]]") -> Range:
    low, high = (needs + sum(one[key] for one in reasons) for key in ("low_bytes", "high_bytes"))
    return Range(max(0, low), high, reasons)


def _reason(kind: str, what: str, low: float, high: float) -> "Dict[str, Any]":
    return {"kind": kind, "what": what, "low_bytes": int(low), "high_bytes": int(high)}


def spread(recorder: Any, needs: int, measured: bool, replayed: "Callable[[str], int]") -> "List[Dict[str, Any]]":
    """Returns by how much the need changes if sizes that are not known are others. `replayed(path)` is the need of a trace."""
    reasons = []
    if recorder.guessed:
        what = "workspaces that cuDNN or cuFFT chooses"
        found = _variants(recorder, needs, replayed, "workspaces", what, [_scaled(recorder.guessed, scale) for scale in (_MEASURED_SCALES if measured else _ASSUMED_SCALES)])
        down, up = _MEASURED_WORKSPACES if measured else _ASSUMED_WORKSPACES
        found["low_bytes"] -= int(down * needs)
        found["high_bytes"] += int(up * needs)
        reasons.append(found)
    reasons.append(_variants(recorder, needs, replayed, "reuse", "use of freed blocks", [_jittered(seed) for seed in _SEEDS]))
    return [one for one in reasons if one["low_bytes"] or one["high_bytes"]]


def beyond_headroom(reasons: "List[Dict[str, Any]]") -> int:
    """Returns the upper part of an uncertainty that the headroom of a plan is not for: what was guessed or not counted."""
    return sum(int(one["high_bytes"]) for one in reasons if one["kind"] not in ("kernels", "reuse"))


def _scaled(guessed: "set[int]", scale: float) -> "Callable[[int, int], int]":
    return lambda block, size: int(size * scale) if block in guessed else size


def _jittered(seed: int) -> "Callable[[int, int], int]":
    def changed(block: int, size: int) -> int:
        if size < _JITTERED:
            return size
        number = ((size // 512 + seed) * 0x9E3779B97F4A7C15) & ((1 << 64) - 1)
        return size + int(size * _JITTER * (number >> 40) / (1 << 24))

    return changed


def _variants(
    recorder: Any, needs: int, replayed: "Callable[[str], int]", kind: str, what: str, changes: "List[Callable[[int, int], int]]"
) -> "Dict[str, Any]":
    found = [needs]
    with tempfile.TemporaryDirectory(prefix="stowage-estimate-") as folder:
        for at, change in enumerate(changes):
            path = os.path.join(folder, f"variant{at}")
            _write_sizes(recorder.events, path, change)
            found.append(replayed(path))
    return _reason(kind, what, min(found) - needs, max(found) - needs)


def _write_sizes(events: "List[Tuple[int, int, int, Any]]", path: str, change: "Callable[[int, int], int]") -> None:
    """Writes a trace with only blocks, each at an address of its own and with the size that `change` gives it."""
    trace, at = Trace(path), 1 << 40
    try:
        live: "Dict[int, Tuple[int, int]]" = {}
        for kind, block, size, _ in events:
            if kind == ALLOC:
                size = change(block, size)
                if size > 0:
                    live[block] = (at, size)
                    trace.block(TRACE_ALLOC, at, size, 0)
                    at += max(512, (size + 511) // 512 * 512)
            elif kind == FREED and block in live:
                address, size = live.pop(block)
                trace.block(TRACE_FREE, address, size, 0)
    finally:
        trace.close()


def ranged(recorder: Any, needs: int, measured: bool, compiled: str, replayed: "Callable[[str], int]") -> Range:
    """Returns the range of a recorded program that needs `needs` bytes."""
    by_share = shares(needs, measured, bool(recorder.assumed), bool(recorder.sparse), compiled)
    return _range(needs, by_share.reasons + spread(recorder, needs, measured, replayed))
