"""The comparison of gpu_batches_bench.sh: all cases run in turn in one process, because starting CUDA is slow; the median counts."""

import os
import tempfile
import time

import numpy as np
import stowage
import torch

from beside import in_turns, line, middle

MB = int(os.environ.get("STOWAGE_BENCH_MB", "800"))
COLUMNS, BATCH, TIMES = 1024, 512, 3
SECONDS_MOST = 4  # a peer that takes longer is stopped, and its rate so far counts


class Rows(torch.utils.data.Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return np.array(self.x[i]), self.y[i]


def loader(paths, shuffle, workers):
    rows = Rows(np.load(paths[0], mmap_mode="r"), np.load(paths[1]))
    made = torch.utils.data.DataLoader(rows, BATCH, shuffle=shuffle, num_workers=workers, pin_memory=True)
    return ((x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)) for x, y in made)


def memmap(paths, _shuffle):
    """A careful manual version: slices of a memmap, through one pinned buffer for each of two batches in flight."""
    x, y = np.load(paths[0], mmap_mode="r"), np.load(paths[1])
    pinned = [torch.empty((BATCH, COLUMNS), pin_memory=True) for _ in range(2)]
    done = [torch.cuda.Event() for _ in range(2)]
    for i in range(0, len(x), BATCH):
        turn = i // BATCH % 2
        done[turn].synchronize()
        part = pinned[turn][: len(x[i : i + BATCH])]
        np.copyto(part.numpy(), x[i : i + BATCH])
        yield part.to("cuda", non_blocking=True), torch.from_numpy(y[i : i + BATCH]).to("cuda")
        done[turn].record()


def ours(paths, shuffle):
    return iter(stowage.batches(paths, BATCH, shuffle=shuffle, device="cuda"))


def rate(way, weights):
    """Returns bytes per second and the sum of everything; None if it was stopped."""
    total, seen = torch.zeros((), device="cuda", dtype=torch.float64), 0
    torch.cuda.synchronize()
    start = time.perf_counter()
    stopped = False
    for x, y in way():
        total += (x @ weights).sum(dtype=torch.float64) + y.sum()
        seen += x.nbytes + y.nbytes
        if time.perf_counter() - start > SECONDS_MOST:
            stopped = True
            break
    torch.cuda.synchronize()
    return seen / (time.perf_counter() - start) / 1e9, None if stopped else float(total)


def main():
    weights = torch.ones((COLUMNS, 64), device="cuda")
    with tempfile.TemporaryDirectory(dir=os.environ.get("STOWAGE_BENCH_FOLDER")) as folder:
        paths, count = [folder + "/x.npy", folder + "/y.npy"], MB * 1000 * 1000 // 4 // COLUMNS
        x = np.lib.format.open_memmap(paths[0], mode="w+", dtype="f4", shape=(count, COLUMNS))
        for i in range(0, count, 4096):
            x[i : i + 4096] = np.random.default_rng(i).random(x[i : i + 4096].shape, dtype="f4")
        x.flush()
        del x
        np.save(paths[1], np.arange(count))
        for shuffle in (False, True):
            way = "shuffled" if shuffle else "sequential"
            peers = {f"torch_dataloader_pinned_{n}_workers": lambda n=n: loader(paths, shuffle, n) for n in (0, 4)}
            if not shuffle:
                peers["numpy_memmap_pinned_by_hand"] = lambda: memmap(paths, shuffle)
            rate(lambda: ours(paths, shuffle), weights)  # the file is cached, the device is warm
            runs = [lambda: rate(lambda: ours(paths, shuffle), weights)]
            for peer in peers.values():
                runs.append(lambda peer=peer: rate(peer, weights))
            given = in_turns(runs, TIMES)
            sums = [total for values in given for _, total in values if total is not None]
            if max(sums) - min(sums) > abs(sums[0]) * 1e-4:
                raise SystemExit(f"gpu_batches_bench: {way}: sums differ: {sums}")
            rates = [middle([value for value, _ in values]) for values in given]
            for name, theirs in zip(peers, rates[1:]):
                line(f"batches_to_device_{way}_cached", rates[0], name, theirs, "GB/s")


main()
