from .. import _C


def _record_memory_history(enabled, context, stacks, max_entries):
    _C.history.append((enabled, context, stacks, max_entries))


def _snapshot():
    """A snapshot as PyTorch makes it: what is live is one segment each, and its making is the history."""
    from . import live, refused

    frame = {"name": "main", "filename": "train.py", "line": 7}
    return {
        "segments": [{
            "device": 0, "address": address, "total_size": size, "allocated_size": size, "active_size": size,
            "requested_size": size, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
            "frames": [], "blocks": [{"address": address, "size": size, "requested_size": size,
                                      "state": "active_allocated", "frames": [frame]}],
        } for address, size in live.items()],
        "device_traces": [[{"action": "alloc", "addr": address, "size": size, "stream": 0, "time_us": i, "frames": [frame]}
                           for i, (address, size) in enumerate(live.items())] +
                          [{"action": "oom", "addr": 0, "size": refused[-1], "stream": 0, "time_us": len(live),
                            "frames": [frame]}]],
        "allocator_settings": {"expandable_segments": False},
    }
