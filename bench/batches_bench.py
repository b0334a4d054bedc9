"""The comparison behind batches_bench.sh. Each way runs in a process of its own, which prints its seconds; ways take turns, and
the best of several counts. A cached file is read several times by each process, opened anew each time."""

import importlib.util
import os
import subprocess
import sys
import tempfile

MB = int(os.environ.get("STOWAGE_BENCH_MB", "512"))
COLUMNS, BATCH, TIMES = 256, 1024, int(os.environ.get("STOWAGE_BENCH_TIMES", "3"))
LIMIT_MB = max(MB // 3, 128)
SECONDS_MOST = 4  # a peer that takes longer is ended, and its rate so far counts

OURS = """
import stowage
def epoch(shuffle, memory, workers):
    total = 0.0
    for batch in stowage.batches(path, BATCH, shuffle=shuffle, memory=memory, num_workers=workers): total += batch.sum()
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
MAIN = """
import os, sys, time, numpy as np
path, BATCH = sys.argv[1], {batch}
def cut_after(fraction):
    seconds = time.perf_counter() - start
    if seconds > {most} and fraction < 1:
        print(seconds / fraction, "cut", flush=True)
        os._exit(0)
{way}
seconds = float("inf")
for _ in range({epochs}):
    start = time.perf_counter()
    total = epoch({shuffle}, {memory!r}, {workers!r})
    seconds = min(seconds, time.perf_counter() - start)
print(seconds, total)
"""


class Group:
    """A control group with a memory limit, version 1 or 2; `folder` None where there can be none."""

    def __init__(self, limit):
        self.folder = None
        for root, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            folder = f"{root}/stowage-bench-{os.getpid()}"
            try:
                if root == "/sys/fs/cgroup" and "memory" not in open(root + "/cgroup.subtree_control").read():
                    continue
                os.mkdir(folder)
                with open(f"{folder}/{name}", "w") as file:
                    file.write(str(limit))
                self.folder = folder
                return
            except OSError:
                try:
                    os.rmdir(folder)
                except OSError:
                    pass

    def enter(self):
        with open(self.folder + "/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))

    def close(self):
        if self.folder:
            os.rmdir(self.folder)


def run(way, path, shuffle=False, memory="256M", workers="auto", group=None, cold=False):
    """Seconds of one epoch."""
    epochs = 1 if cold or way is LOADER else 3
    if cold:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    program = MAIN.format(batch=BATCH, most=SECONDS_MOST, way=way, shuffle=shuffle, memory=memory, workers=workers,
                          epochs=epochs)
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, timeout=600,
                          preexec_fn=group.enter if group else None)
    if done.returncode != 0:
        raise SystemExit("batches_bench: " + done.stderr[-600:])
    seconds, total = done.stdout.split()
    return float(seconds), None if total == "cut" else float(total)


def compare(case, ours, peers, size):
    """ours and peers: (name, callable giving seconds and total)."""
    best = {}
    for _ in range(TIMES):
        for name, call in [("ours", ours), *peers]:
            seconds, total = call()
            best.setdefault("total", total)
            if total is not None and abs(total - best["total"]) > abs(best["total"]) * 1e-3 + 1:
                raise SystemExit(f"batches_bench: {case}: {name} sums to {total}, not {best['total']}")
            best[name] = min(best.get(name, 1e9), seconds)
    for name, _ in peers:
        a, b = size / best["ours"], size / best[name]
        print(f"case={case} ours={a:.4g} peer={name}:{b:.4g} ratio={a / b:.3g} unit=GB/s", flush=True)


def main():
    import numpy as np

    torch = importlib.util.find_spec("torch") is not None
    with tempfile.TemporaryDirectory(dir=os.environ.get("STOWAGE_BENCH_FOLDER")) as folder:
        path = folder + "/x.npy"
        rows = MB * 1024 * 1024 // 4 // COLUMNS
        x = np.lib.format.open_memmap(path, mode="w+", dtype="f4", shape=(rows, COLUMNS))
        for i in range(0, rows, 10000):
            x[i : i + 10000] = np.random.default_rng(i).random((len(x[i : i + 10000]), COLUMNS), dtype="f4")
        x.flush()
        del x
        os.sync()
        size = MB * 1024 * 1024 / 1e9
        for shuffle in (False, True):
            way = "shuffled" if shuffle else "sequential"
            peers = [("numpy_memmap", lambda: run(MEMMAP, path, shuffle))]
            if torch:
                peers += [(f"torch_dataloader_{n}_workers", lambda n=n: run(LOADER, path, shuffle, workers=n)) for n in (0, 2)]
            compare(f"batches_{way}_cached", lambda: run(OURS, path, shuffle), peers, size)
        if not torch:
            print("case=batches peer=torch_dataloader:missing")
        compare("batches_sequential_from_disk", lambda: run(OURS, path, cold=True),
                [("numpy_memmap", lambda: run(MEMMAP, path, cold=True)),
                 ("ours_one_reader", lambda: run(OURS, path, cold=True, workers=1))], size)
        group = Group(LIMIT_MB << 20)
        if group.folder is None:
            print("case=batches_limited peer=numpy_memmap:none (no control group can be made here; needs root)")
            return
        try:
            for shuffle in (False, True):
                way = "shuffled" if shuffle else "sequential"
                compare(f"batches_{way}_limited_to_{LIMIT_MB}M", lambda: run(OURS, path, shuffle, "64M", group=group, cold=True),
                        [("numpy_memmap", lambda: run(MEMMAP, path, shuffle, group=group, cold=True))], size)
        finally:
            group.close()


main()
