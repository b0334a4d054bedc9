#!/usr/bin/env python3
"""Runs one program on tensors without memory, under a limit: what a device would refuse, PyTorch's allocator refuses in a replay.

usage: simulated.py PROGRAM LIMIT FOLDER        (needs torch 2.1 or newer, no device)

The program runs twice on the fake tensors of `stowage estimate`. The first recording is replayed under the limit less a CUDA context,
which is smaller until the first optimizer step: kernels are loaded when they first run. The workspace of a convolution may be refused:
PyTorch then tries the next engine of cuDNN (try_plans in aten/src/ATen/native/cudnn/Conv_v8.cpp), here one without a workspace.
If the replay finishes, exit status 0. Otherwise the program runs again, its request that the replay refused raises OutOfMemoryError,
and FOLDER gets what `stowage run` would have kept: run.stow with the stacks and what the program reports about itself, and error.txt.
Exit status 10. Another status: fake tensors cannot run this program.
"""
import contextlib
import os
import runpy
import sys

import torch
from stowage import _analysis, _estimate, _gpus
from stowage._fake_record import ALLOC, BEGIN, END, FREE
from stowage._convolutions import CONVOLUTION
from stowage._library import parse_size
from stowage._program import program_text
from stowage._trace import FAIL, Trace

TRACE_EVENTS = {ALLOC, FREE, BEGIN, END}
REFUSED = 10  # exit status; an exception of Python ends with 1
START_CONTEXT = 527 << 20  # measured on an H200 before the first backward pass (docs/MEASUREMENTS.md)


class Mark:
    """record_function: the marks of optimizer steps."""

    def __init__(self, recorder, name):
        self.recorder, self.name = recorder, str(name)

    def __enter__(self):
        self.recorder.mark(self.name, True)
        return self

    def __exit__(self, *_):
        self.recorder.mark(self.name, False)


def record(path, gpu, refused):
    """Runs the program. Returns the recorder, what the program reported at the request number `refused`, and the workspaces of convolutions."""
    facts, optional = {}, set()
    with _estimate._faked(torch, gpu, {}) as (recorder, _):
        torch.autograd.profiler.record_function = lambda name, *_: Mark(recorder, name)
        recorder.end = "runpy"  # the program is what runpy runs
        alloc = recorder.alloc

        def limited(size, where, **how):
            if recorder.block_count + 1 == refused and not facts:
                facts.update(program=program_text(torch), size=size, where=where, live=recorder.live_bytes)
                facts["events"] = list(recorder.events)
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return alloc(size, where, **how)

        note = recorder.note_hidden

        def noted(what, size):
            if what == CONVOLUTION:  # the last of its blocks
                optional.add(recorder.block_count)
            note(what, size)

        recorder.alloc, recorder.note_hidden = limited, noted
        with contextlib.suppress(torch.OutOfMemoryError), open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            runpy.run_path(path, run_name="__main__")
    return recorder, facts, optional & recorder.guessed


def write(path, recorder, events, gpu, facts):
    """Writes a trace. Returns the number of the allocation for each of its events."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    trace, places, order = Trace(path), _estimate.Places(), []
    try:
        trace.fact("device_name", gpu.name)
        if facts:
            trace.fact("program", facts["program"])
        numbers = [trace.stack([(code.co_name, code.co_filename, line) for code, line in frames]) for frames in recorder.stacks]
        for kind, block, count, where in events:
            if kind not in TRACE_EVENTS:
                continue
            order.append(block if kind == ALLOC else 0)
            if kind in (BEGIN, END):
                trace.mark(where, kind == BEGIN)
            elif kind == FREE:
                trace.block(2, places.give(block), count, numbers[where])
            else:
                trace.block(0, places.take(block, count), count, numbers[where])
        if facts:
            trace.block(FAIL, 0, facts["size"], numbers[facts["where"]])
    finally:
        trace.close()
    return order


def replay(path, recorder, gpu, optional, limit, conf):
    """Replays the recording under a limit. Returns the result, the number of the refused allocation, whether it comes before the first
    optimizer step, and the workspaces that were refused and left out."""
    options = _analysis.ReplayOptions()
    options.settings, options.limit_bytes = conf.encode() or None, limit
    policy = "torch_expandable" if "expandable_segments:True" in conf else "torch_default"
    kinds = {block: (size, where) for kind, block, size, where in recorder.events if kind == ALLOC and block in optional}
    dropped = set()
    while True:
        events = [event for event in recorder.events if event[1] not in dropped]
        order = write(path, recorder, events, gpu, {})
        result = _analysis.replay(path, [policy], 0, options)[0]
        if result["finishes"]:
            return result, 0, False, dropped
        refused = order[result["failed_at_event"]]
        if refused not in kinds:
            break
        dropped |= {block for block, kind in kinds.items() if kind == kinds[refused]}  # PyTorch keeps the engine that ran
    marks = [at for at, event in enumerate(e for e in events if e[0] in TRACE_EVENTS) if event[0] == BEGIN]
    return result, refused, not marks or result["failed_at_event"] < marks[0], dropped


def mib(size):
    return f"{size / (1 << 20):.2f} MiB"


def main():
    path, limit, folder = sys.argv[1], parse_size(sys.argv[2]), sys.argv[3]
    sys.argv = [path]
    sys.path.insert(0, os.path.dirname(path))
    conf = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    gpu = _gpus.find("H200", None)
    room = limit - gpu.context_bytes
    recorder, _, optional = record(path, gpu, 0)
    whole = os.path.join(folder, "whole.stow")
    result, refused, before_steps, dropped = replay(whole, recorder, gpu, optional, room, conf)
    if refused and before_steps:
        early = replay(whole, recorder, gpu, optional, limit - START_CONTEXT, conf)
        steps = any(event[0] == BEGIN for event in recorder.events)
        if early[2] or not steps:
            (result, refused, _, dropped), room = early, limit - START_CONTEXT
    if result["finishes"]:
        print(f"finishes with {mib(result['peak_reserved_bytes'])} of {mib(room)}")
        return 0
    recorder, facts, _ = record(path, gpu, refused)
    write(os.path.join(folder, "run.stow"), recorder, [event for event in facts["events"] if event[1] not in dropped], gpu, facts)
    reserved = min(result["peak_reserved_bytes"], room)
    text = (f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {mib(facts['size'])}. GPU 0 has a total capacity of {mib(limit)} of "
            f"which {mib(room - reserved)} is free. Including non-PyTorch memory, this process has {mib(limit - room + reserved)} memory in use. "
            f"Of the allocated memory {mib(facts['live'])} is allocated by PyTorch, and {mib(reserved - facts['live'])} is reserved by "
            "PyTorch but unallocated.\n")
    with open(os.path.join(folder, "error.txt"), "w") as file:
        file.write(text)
    print(text, end="")
    return REFUSED


if __name__ == "__main__":
    sys.exit(main())
