#!/usr/bin/env python3
"""make.py NAME FOLDER OUT.stow: turns a probe's launches and PyTorch's block history into a small .stow trace with touches.

FOLDER has NAME.launches.gz (per launch: kind, number of words, start and end in ns, the parameter words that look like
addresses) and NAME.blocks.gz (PyTorch's alloc and free events, the blocks live at the end, the times of step boundaries, the step
time without the probe). Only the last step is kept, between two marks "step". Blocks below 64 KiB are dropped, and so are words in no
block. The probe synchronised after each launch, so its wall times are wrong for a program that runs freely: launch times are spread
at one distance chosen so that the step takes as long as the bare one did.
"""
import bisect
import gzip
import pickle
import struct
import sys

from stow_writer import ALLOC, FREE, LAUNCH, MARK_BEGIN, MARK_END, TOUCH, Writer

SMALL = 64 << 10
SYNC_NS = 9000  # what the probe's own synchronisation added to each launch (H200)
GAP_MIN_NS = 4000  # a launch costs the host at least this much
READ_ONLY = {"prompt", "token", "lora"}  # weights are not written: `crossings`


def load(name, folder):
    with gzip.open(f"{folder}/{name}.blocks.gz") as file:
        d = pickle.load(file)
    raw = gzip.open(f"{folder}/{name}.launches.gz").read()
    launches, at = [], 0
    while at + 24 <= len(raw):
        kind, n = struct.unpack_from("<II", raw, at)
        begin, end = struct.unpack_from("<QQ", raw, at + 8)
        launches.append((begin, end, kind, struct.unpack_from(f"<{n}Q", raw, at + 24)))
        at += 24 + 8 * n
    events = [(t * 1000, action, addr, size) for action, addr, size, t in d["events"]]
    live = dict(d["live"])
    for _, action, addr, size in reversed(events):
        if action == "alloc":
            live.pop(addr, None)
        elif action == "free_completed":
            live[addr] = size
    changes = sorted((e for e in events if e[1] in ("alloc", "free_completed")), key=lambda e: e[0])
    return d, launches, live, changes


def end_of(times, gap):
    """Returns when the device is done if the host starts a launch every `gap` ns."""
    free = 0
    for i, t in enumerate(times):
        free = max(free, (i + 1) * gap) + t
    return free


def spread(times, bare):
    """Returns the distance between launches and the factor for kernel times that together take `bare` ns."""
    factor = 1.0
    if end_of(times, GAP_MIN_NS) > bare:
        low, high = 0.0, 1.0
        for _ in range(40):
            factor = (low + high) / 2
            low, high = (low, factor) if end_of([t * factor for t in times], GAP_MIN_NS) > bare else (factor, high)
        return GAP_MIN_NS, factor
    low, high = GAP_MIN_NS, bare
    for _ in range(40):
        gap = (low + high) / 2
        low, high = (low, gap) if end_of(times, gap) > bare else (gap, high)
    return low, factor


def main(name, folder, out):
    d, launches, live, changes = load(name, folder)
    begin, end = (int(t * 1e9) for t in d["marks"][-2:])
    step = [x for x in launches if begin <= x[0] < end]
    at = 0
    while at < len(changes) and changes[at][0] <= step[0][0] + 1000:
        _, action, addr, size = changes[at]
        live.pop(addr, None) if action != "alloc" else live.__setitem__(addr, size)
        at += 1
    bare = int(d["bare_ms"] * 1e6)
    times = [max(1000, b - a - SYNC_NS) for a, b, _, _ in step]
    gap, factor = spread(times, bare)

    w = Writer(open(out, "wb"))
    w.fact("source", "stow")
    w.fact("clock", "monotonic")
    w.fact("device_name", "NVIDIA H200")
    w.fact("command", name)
    w.fact("bare_ns", bare)
    w.fact("crossings", 1 if name in READ_ONLY else 2)
    w.fact("framework", "pytorch")
    t0 = 1_000_000
    for addr in sorted(live):
        if live[addr] >= SMALL:
            w.event(ALLOC, t0, addr, live[addr])
    tag = w.name("step")
    w.event(MARK_BEGIN, t0, tag=tag)
    names = {}
    for i, (a, _, kind, words) in enumerate(step):
        now = t0 + int((i + 1) * gap)
        while at < len(changes) and changes[at][0] <= a + 1000:
            _, action, addr, size = changes[at]
            at += 1
            if action == "alloc":
                live[addr] = size
            elif live.pop(addr, None) is None:
                continue
            if size >= SMALL:
                w.event(ALLOC if action == "alloc" else FREE, now, addr, size)
        keys = sorted(live)
        named = []
        for word in words:
            k = bisect.bisect_right(keys, word) - 1
            if k >= 0 and word < keys[k] + live[keys[k]] and live[keys[k]] >= SMALL and word not in named:
                named.append(word)
        function = names.setdefault((kind, len(words)), f"f{len(names)}")
        f = w.name(function)
        w.event(LAUNCH, now, named[0] if named else 0, int(times[i] * factor), tag=f)
        for word in named[1:]:
            w.event(TOUCH, now, word, 0, tag=f)
    now = max(t0 + bare, now)
    while at < len(changes) and changes[at][0] <= end:
        _, action, addr, size = changes[at]
        at += 1
        if size >= SMALL and (action == "alloc" or addr in live):
            w.event(ALLOC if action == "alloc" else FREE, now, addr, size)
            live.pop(addr, None) if action != "alloc" else live.__setitem__(addr, size)
    w.event(MARK_END, now, tag=tag)
    w.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
