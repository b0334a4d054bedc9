import contextlib
import os

from .. import _C
from .._C import _cuda_beginAllocateCurrentThreadToPool, _cuda_endAllocateToPool


@contextlib.contextmanager
def use_mem_pool(pool):
    _cuda_beginAllocateCurrentThreadToPool(0, pool)
    try:
        yield
    finally:
        _cuda_endAllocateToPool(0, pool)


def _record_memory_history(enabled, context, stacks, max_entries):
    _C.history.append((enabled, context, stacks, max_entries))


def _segments(live):
    """Returns the segments as (address, bytes, blocks). Without blocks each tensor is a segment."""
    from . import library

    if not library:
        return [(address, size, [(address, size)]) for address, size in live.items()]
    addresses = [library.segment_at(i) for i in range(64) if library.segment_at(i)]
    return [(a, 20 << 20, [b for b in sorted(live.items()) if a <= b[0] < a + (20 << 20)]) for a in addresses]


def _snapshot():
    """Returns a snapshot like PyTorch's, with what is live and the history, if there is one."""
    from . import library, live, refused

    frame = [] if library else [{"name": "main", "filename": "train.py", "line": 7}]
    history = [] if library else (
        [{"action": "alloc", "addr": address, "size": size, "stream": 0, "time_us": i, "frames": frame}
         for i, (address, size) in enumerate(live.items())] +
        [{"action": "oom", "addr": 0, "size": size, "stream": 0, "time_us": len(live), "frames": frame} for size in refused[-1:]])
    return {
        "segments": [{
            "device": 0, "address": address, "total_size": size, "allocated_size": size, "active_size": size,
            "requested_size": size, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
            "frames": [], "blocks": [{"address": at, "size": -(-bytes_ // (1 << 20)) << 20, "requested_size": bytes_,
                                      "state": "active_allocated", "frames": frame} for at, bytes_ in blocks],
        } for address, size, blocks in _segments(live)],
        "device_traces": [history],
        "allocator_settings": {"expandable_segments": os.environ.get("STANDIN_EXPANDABLE") == "1"},
    }
