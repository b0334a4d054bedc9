"""Run by load_bench.sh: loads a model file into host memory with stowage.load and with the safetensors package, in turn."""

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from beside import in_turns, line, middle  # noqa: E402
from weights_file import make  # noqa: E402

import numpy  # noqa: E402
import stowage  # noqa: E402

MEGABYTES = int(os.environ.get("STOWAGE_BENCH_MB", "1024"))


def timed(load):
    """Returns the seconds to load and to touch every page, the CPU seconds of all threads, and a sum."""
    began, used = time.monotonic(), time.process_time()
    made = load()
    total = sum(int(w.view(numpy.uint8).reshape(-1)[::4096].sum(dtype=numpy.int64)) for w in made.values())
    return time.monotonic() - began, time.process_time() - used, total


size = make("in.safetensors", MEGABYTES)
ours = lambda: timed(lambda: stowage.load("in.safetensors", framework="numpy"))
halves = lambda: timed(lambda: stowage.load("in.safetensors", framework="numpy", dtype="float16"))
try:
    from safetensors.numpy import load_file
except ImportError:
    print("case=load_beside_safetensors peer=safetensors:missing")
else:
    theirs = lambda: timed(lambda: load_file("in.safetensors"))
    theirs_halves = lambda: timed(lambda: {k: v.astype(numpy.float16) for k, v in load_file("in.safetensors").items()})
    for name, a, b in (("load_beside_safetensors", ours, theirs), ("load_as_float16_beside_safetensors", halves, theirs_halves)):
        first, second = in_turns([a, b], 5)
        assert first[0][2] == second[0][2], "the values differ"
        each = [min(cpu for _, cpu, _ in runs) * (1 << 30) / size for runs in (first, second)]
        line(name, size / 1e9 / middle([t for t, _, _ in first]), "safetensors", size / 1e9 / middle([t for t, _, _ in second]), "GB/s", " cpu_s_per_gib={:.2f}:{:.2f}".format(*each))
