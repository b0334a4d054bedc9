"""Run by gpu_load_bench.sh: a model file to the card with stowage.load and with safetensors.torch.load_file, in turn in one process,
because starting CUDA is slow. Every byte is read on the card: its sum counts. The median of each counts."""

import os
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from beside import in_turns, line, middle  # noqa: E402
from weights_file import make  # noqa: E402

import stowage  # noqa: E402
import torch  # noqa: E402

MEGABYTES = int(os.environ.get("STOWAGE_BENCH_MB", "8192"))
TIMES = int(os.environ.get("STOWAGE_BENCH_TIMES", "5"))


def timed(load):
    torch.cuda.synchronize()
    began = time.perf_counter()
    made = load()
    total = torch.zeros((), dtype=torch.float64, device="cuda")
    for one in made.values():
        total += one.sum(dtype=torch.float64)
    total = total.item()
    took = time.perf_counter() - began
    del made
    return took, total


def page_cache(path, threads=8, piece=8 << 20):
    """Returns the seconds to read the file from the page cache with several threads and plain reads, as a baseline for the machine."""
    size, began = os.path.getsize(path), time.perf_counter()

    def read(number):
        buffer = bytearray(piece)
        with open(path, "rb", buffering=0) as file:
            for at in range(number * piece, size, threads * piece):
                file.seek(at)
                file.readinto(buffer)

    team = [threading.Thread(target=read, args=(i,)) for i in range(threads)]
    for one in team:
        one.start()
    for one in team:
        one.join()
    return time.perf_counter() - began, None


def peak_host():
    with open("/proc/self/status") as file:
        return next(int(text.split()[1]) << 10 for text in file if text.startswith("VmHWM"))


with tempfile.TemporaryDirectory(dir=os.environ.get("STOWAGE_BENCH_FOLDER")) as folder:
    path = os.path.join(folder, "in.safetensors")
    size = make(path, MEGABYTES)
    timed(lambda: stowage.load(path, device="cuda", staging="128M"))  # starts CUDA, pins the buffers, fills the page cache
    print(f"peak_host_mb={peak_host() >> 20} of a file of {size >> 20} MB")
    ours = lambda: timed(lambda: stowage.load(path, device="cuda"))
    (mine, cache) = in_turns([ours, lambda: page_cache(path)], TIMES)
    rate = lambda runs: size / 1e9 / middle([t for t, _ in runs])
    line("load_to_card_beside_page_cache", rate(mine), "page_cache", rate(cache), "GB/s")
    try:
        from safetensors.torch import load_file
    except ImportError:
        # The same steps written by hand: map the file, and copy each tensor to the GPU.
        import json

        import numpy

        def load_file(name, device):
            with open(name, "rb") as file:
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(length))
            whole = torch.from_numpy(numpy.memmap(name, dtype=numpy.uint8, mode="c"))
            made = {}
            for key, facts in header.items():
                first, end = (n + 8 + length for n in facts["data_offsets"])
                made[key] = whole[first:end].view(torch.float32).reshape(facts["shape"]).to(device)
            return made

        peer = "mapping"
    else:
        peer = "safetensors"
    theirs = lambda: timed(lambda: load_file(path, device="cuda"))
    mine, other = in_turns([ours, theirs], TIMES)
    assert mine[0][1] == other[0][1], "the sums differ"
    line("load_to_card", rate(mine), peer, rate(other), "GB/s")
    as_halves = lambda: timed(lambda: stowage.load(path, device="cuda", dtype="bf16"))
    their_halves = lambda: timed(lambda: {k: v.to(torch.bfloat16) for k, v in load_file(path, device="cuda").items()})
    mine, other = in_turns([as_halves, their_halves], TIMES)
    line("load_to_card_as_bf16", rate(mine), peer, rate(other), "GB/s")
