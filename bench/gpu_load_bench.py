"""Run by gpu_load_bench.sh: a model file to the device with stowage.load and with safetensors.torch.load_file, in turn in one process,
because starting CUDA is slow. Every byte is read on the device: its sum counts. The median of each counts. Stops after $STOWAGE_BENCH_SECONDS:
comparisons that have not begun by then are named and left out."""

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

MEGABYTES = int(os.environ.get("STOWAGE_BENCH_MB", "4096"))
TIMES = int(os.environ.get("STOWAGE_BENCH_TIMES", "3"))
UNTIL = time.monotonic() + float(os.environ.get("STOWAGE_BENCH_SECONDS", "40"))


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


def mapped(name, device):
    """Does by hand what load_file does: maps the file, and copies each tensor to the GPU."""
    import json

    import numpy

    with open(name, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    whole = torch.from_numpy(numpy.memmap(name, dtype=numpy.uint8, mode="c"))
    made = {}
    for key, facts in header.items():
        first, end = (n + 8 + length for n in facts["data_offsets"])
        made[key] = whole[first:end].view(torch.float32).reshape(facts["shape"]).to(device)
    return made


def forget(path):
    """Drops the file from the page cache, so that the next read comes from the disk."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def compare(name, ours, peer, theirs, times=TIMES, same_sum=False):
    if time.monotonic() > UNTIL:
        print(f"case={name} peer={peer}:not-run (out of time: raise STOWAGE_BENCH_SECONDS)", flush=True)
        return
    mine, other = in_turns([ours, theirs], times)
    assert not same_sum or mine[0][1] == other[0][1], "the sums differ"
    rate = lambda runs: size / 1e9 / middle([t for t, _ in runs])
    line(name, rate(mine), peer, rate(other), "GB/s")


try:
    from safetensors.torch import load_file

    peer = "safetensors"
except ImportError:
    load_file, peer = mapped, "mapping"

with tempfile.TemporaryDirectory(dir=os.environ.get("STOWAGE_BENCH_FOLDER")) as folder:
    path = os.path.join(folder, "in.safetensors")
    size = make(path, MEGABYTES)
    os.sync()  # only written pages can be dropped from the page cache
    timed(lambda: stowage.load(path, device="cuda", staging="256M"))  # starts CUDA, pins the buffers, fills the page cache
    print(f"peak_host_mb={peak_host() >> 20} of a file of {size >> 20} MB", flush=True)
    ours = lambda: timed(lambda: stowage.load(path, device="cuda"))
    theirs = lambda: timed(lambda: load_file(path, device="cuda"))
    compare("load_to_device", ours, peer, theirs, same_sum=True)
    compare("load_to_device_beside_page_cache", ours, "page_cache", lambda: page_cache(path))
    as_halves = lambda: timed(lambda: stowage.load(path, device="cuda", dtype="bf16"))
    their_halves = lambda: timed(lambda: {k: v.to(torch.bfloat16) for k, v in load_file(path, device="cuda").items()})
    compare("load_to_device_as_bf16", as_halves, peer, their_halves)
    compare("load_to_device_beside_disk", lambda: (forget(path), ours())[1], "disk", lambda: (forget(path), page_cache(path))[1], times=1)
