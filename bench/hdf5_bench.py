"""hdf5_bench [FOLDER]: reading HDF5 through the worker process, beside h5py, which calls libhdf5 in its own process.

Both sides read a dataset of 400 MB from front to back in blocks of the same rows and hand out each block as an array. They run in turn,
with the file in the page cache. Each figure is the lowest of five CPU times, of the process and of the worker together. The bound is
1.10: the worker may cost 10% of a large read.
"""
import os
import resource
import sys
import tempfile

import h5py
import numpy as np

import stowage

ROWS, COLUMNS, STEP, BOUND = 500_000, 100, 5_000, 1.10
LAYOUTS = (
    ("contiguous", {}),
    ("chunks of 1000 rows", dict(chunks=(1000, COLUMNS))),
    ("chunks of 700 by 33", dict(chunks=(700, 33))),
    ("gzip, shuffle", dict(chunks=(1000, COLUMNS), compression="gzip", compression_opts=1, shuffle=True)),
)


def by_h5py(path):
    with h5py.File(path, "r") as file:
        data = file["x"]
        return sum(len(data[first : first + STEP]) for first in range(0, ROWS, STEP))


def by_worker(path):
    with stowage.open(path + ":x") as data:  # closing ends the worker: its time then counts as a child's
        return sum(len(data[first : first + STEP]) for first in range(0, ROWS, STEP))


def cpu_seconds():
    times = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(t.ru_utime + t.ru_stime for t in times)


def timed(read, path):
    start = cpu_seconds()
    assert read(path) == ROWS
    return cpu_seconds() - start


with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
    values = np.random.default_rng(0).integers(0, 1000, (ROWS, COLUMNS)).astype("f8")
    for name, layout in LAYOUTS:
        path = os.path.join(folder, "bench.h5")
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=values, **layout)
        turns = [(timed(by_worker, path), timed(by_h5py, path)) for _ in range(5)]
        ours, theirs = (min(times) for times in zip(*turns))
        ratio = ours / theirs
        print(f"{name:20} worker {ours:6.3f} s, h5py {theirs:6.3f} s: {ratio:.2f} ({'within' if ratio <= BOUND else 'above'} {BOUND})", flush=True)
