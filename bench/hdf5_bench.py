"""hdf5_bench [FOLDER]: reading HDF5 through the worker process, beside h5py, which calls libhdf5 in its own process.

Each figure is the best of five over a file in the page cache; both sides read the dataset from front to back in blocks of the same rows
and hand out each block as an array.
"""
import os
import sys
import tempfile
import time

import h5py
import numpy as np

import stowage

ROWS, COLUMNS, STEP = 500_000, 100, 5_000


def by_h5py(path):
    with h5py.File(path, "r") as file:
        data = file["x"]
        return sum(len(data[first : first + STEP]) for first in range(0, ROWS, STEP))


def by_worker(path):
    data = stowage.open(path + ":x")
    return sum(len(data[first : first + STEP]) for first in range(0, ROWS, STEP))


def best(read, path):
    times = []
    for _ in range(5):
        start = time.perf_counter()
        assert read(path) == ROWS
        times.append(time.perf_counter() - start)
    return min(times)


with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
    values = np.random.default_rng(0).integers(0, 1000, (ROWS, COLUMNS)).astype("f8")
    for name, layout in (
        ("contiguous", {}),
        ("chunks of 1000 rows", dict(chunks=(1000, COLUMNS))),
        ("gzip, shuffle", dict(chunks=(1000, COLUMNS), compression="gzip", compression_opts=1, shuffle=True)),
    ):
        path = os.path.join(folder, "bench.h5")
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=values, **layout)
        ours, theirs = best(by_worker, path), best(by_h5py, path)
        print(f"{name:20} worker {ours:6.3f} s, h5py {theirs:6.3f} s: {ours / theirs:.2f}")
