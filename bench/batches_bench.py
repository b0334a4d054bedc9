"""The comparison of batches_bench.sh. Each case runs in a separate process, which prints its seconds without imports and other one-time
work. Each process opens and reads a cached file several times, and the best counts."""

import importlib.util
import os
import tempfile

from beside import Group, in_turns, line, middle, python

MB = int(os.environ.get("STOWAGE_BENCH_MB", "512"))
COLUMNS, BATCH, TIMES = 256, 1024, int(os.environ.get("STOWAGE_BENCH_TIMES", "5"))
LIMIT_MB = max(MB // 3, 128)
SECONDS_MOST = 4  # a peer that takes longer is ended, and its rate so far counts

OURS = """
from stowage import batches
from stowage._library import lib
lib()
def epoch(shuffle, memory, workers):
    total = 0.0
    for batch in batches(path, BATCH, shuffle=shuffle, memory=memory, num_workers=workers): total += batch.sum()
    return total
"""
MEMMAP = """
def epoch(shuffle, *_):
    x, total = np.load(path, mmap_mode="r"), 0.0
    order = np.random.default_rng(0).permutation(len(x)) if shuffle else None
    for i in range(0, len(x), BATCH):
        batch = x[order[i : i + BATCH]] if shuffle else x[i : i + BATCH]
        total += batch.sum()
        cut_after((i + BATCH) / len(x))
    return total
"""
LOADER = """
import torch
class Rows(torch.utils.data.Dataset):
    def __init__(self): self.x = np.load(path, mmap_mode="r")
    def __len__(self): return len(self.x)
    def __getitem__(self, i): return np.array(self.x[i])
def epoch(shuffle, _, workers):
    total, loader = 0.0, torch.utils.data.DataLoader(Rows(), BATCH, shuffle=shuffle, num_workers=workers)
    for i, batch in enumerate(loader):
        total += float(batch.numpy().sum())
        cut_after((i + 1) / len(loader))
    return total
"""
DISK = """
import mmap, threading
def epoch(*_):
    file, size, lock, at = os.open(path, os.O_RDONLY | os.O_DIRECT), os.path.getsize(path), threading.Lock(), [0]
    def read():
        to = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        to.madvise(mmap.MADV_HUGEPAGE)
        part = memoryview(to)[: 1 << 20]
        while True:
            with lock:
                offset, at[0] = at[0], at[0] + len(part)
            if offset >= size or os.preadv(file, [part], offset) == 0: break
    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers: reader.start()
    for reader in readers: reader.join()
    return None
"""
CPU = """
import sys, time, numpy as np, stowage
from stowage._library import lib
path, shuffle = sys.argv[1], sys.argv[2] == "disk"
lib()
for _ in stowage.batches(np.zeros((4096, 8), "f4"), 256): pass
made = stowage.batches(path, 256, shuffle="disk" if shuffle else False, memory="64M")
used = []
for _ in range(6):
    start = time.process_time()
    for batch in made: pass
    used.append(time.process_time() - start)
print(used[0], min(used[1:]))
"""
MAIN = """
import os, sys, time, numpy as np
path, BATCH = sys.argv[1], {batch}
def cut_after(fraction):
    seconds = time.perf_counter() - start
    if seconds > {most} and fraction < 1:
        print(seconds / fraction, None, flush=True)
        os._exit(0)
{way}
seconds = float("inf")
for _ in range({epochs}):
    start = time.perf_counter()
    total = epoch({shuffle}, {memory!r}, {workers!r})
    seconds = min(seconds, time.perf_counter() - start)
print(seconds, total)
"""


def run(way, path, shuffle=False, memory="256M", workers="auto", group=None, cold=False):
    """Returns the seconds of one epoch and its sum; None if it was stopped or has no sum."""
    if cold:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    epochs = 1 if cold or way is LOADER else 3
    program = MAIN.format(batch=BATCH, most=SECONDS_MOST, way=way, shuffle=shuffle, memory=memory, workers=workers, epochs=epochs)
    seconds, total = python(program, path, group=group).split()
    return float(seconds), None if total == "None" else float(total)


def compare(case, ours, peers, size, times=TIMES):
    """Compares with `peers` by name; each returns seconds and a total."""
    given = in_turns([ours, *peers.values()], times)
    totals = [total for values in given for _, total in values if total is not None]
    if max(totals) - min(totals) > abs(totals[0]) * 1e-3 + 1:
        raise SystemExit(f"batches_bench: {case}: not all sum to the same: {totals}")
    mine, *theirs = [size / middle([seconds for seconds, _ in values]) for values in given]
    for name, rate in zip(peers, theirs):
        line(case, mine, name, rate, "GB/s")


def write_file(path):
    import numpy as np

    rows = MB * 1024 * 1024 // 4 // COLUMNS
    x = np.lib.format.open_memmap(path, mode="w+", dtype="f4", shape=(rows, COLUMNS))
    for i in range(0, rows, 10000):
        x[i : i + 10000] = np.random.default_rng(i).random((len(x[i : i + 10000]), COLUMNS), dtype="f4")
    x.flush()
    os.sync()


def cached(path, size):
    torch = importlib.util.find_spec("torch") is not None
    for shuffle in (False, True):
        way = "shuffled" if shuffle else "sequential"
        ours = lambda: run(OURS, path, shuffle)  # noqa: E731
        compare(f"batches_{way}_cached", ours, {"numpy_memmap": lambda: run(MEMMAP, path, shuffle)}, size)
        if torch:
            peers = {f"torch_dataloader_{n}_workers": lambda n=n: run(LOADER, path, shuffle, workers=n) for n in (0, 2)}
            compare(f"batches_{way}_cached", ours, peers, size, times=min(TIMES, 3))
    if not torch:
        print("case=batches peer=torch_dataloader:missing")


def on_disk(path):
    """Compares the CPU time of a shuffle on disk with reading in order: the first epoch, which makes the copy, and later ones."""
    cpu = lambda way: tuple(map(float, python(CPU, path, way).split()))  # noqa: E731
    ours, order = in_turns([lambda: cpu("disk"), lambda: cpu("order")], TIMES)
    for case, epoch in (("first", 0), ("later", 1)):
        line(f"batches_shuffled_on_disk_{case}_epoch", min(used[epoch] for used in ours), "in_order", min(used[epoch] for used in order), "cpu_s")


def one_core(path, size):
    """Compares on one core. Without a second core a copy costs its full time; a memmap makes none."""
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(all_cores)})
    for shuffle in (False, True):
        compare(f"batches_{'shuffled' if shuffle else 'sequential'}_cached_one_core", lambda: run(OURS, path, shuffle),
                {"numpy_memmap": lambda: run(MEMMAP, path, shuffle)}, size)
    os.sched_setaffinity(0, all_cores)


def limited(path, size):
    group = Group(LIMIT_MB << 20)
    if group.folder is None:
        print("case=batches_limited peer=numpy_memmap:none (no control group can be made here; needs root)")
        return
    more = {"group": group, "cold": True}
    try:
        for shuffle in (False, True):
            peers = {"numpy_memmap": lambda: run(MEMMAP, path, shuffle, **more)}
            if not shuffle:
                peers["disk_direct"] = lambda: run(DISK, path, **more)
            compare(f"batches_{'shuffled' if shuffle else 'sequential'}_limited_to_{LIMIT_MB}M",
                    lambda: run(OURS, path, shuffle, "64M", **more), peers, size, times=3 if shuffle else TIMES + 4)
    finally:
        group.close()


def main():
    with tempfile.TemporaryDirectory(dir=os.environ.get("STOWAGE_BENCH_FOLDER")) as folder:
        path, size = folder + "/x.npy", MB * 1024 * 1024 / 1e9
        write_file(path)
        cached(path, size)
        on_disk(path)
        one_core(path, size)
        compare("batches_sequential_from_disk", lambda: run(OURS, path, cold=True),
                {"numpy_memmap": lambda: run(MEMMAP, path, cold=True),
                 "ours_one_reader": lambda: run(OURS, path, cold=True, workers=1)}, size)
        limited(path, size)


main()
