"""hdf5_bench [FOLDER]: reading HDF5 through the worker process, beside h5py, which calls libhdf5 in its own process.

Both sides read a dataset of 400 MB from front to back in blocks of the same rows and hand out each block as an array. They run in turn,
with the file in the page cache. `ours` and `peer` are the lowest of seven CPU times, of the process and of the worker together; `wall`
is the ratio of the lowest times by the clock. The bound for both is 1.10: the worker may cost 10% of a large read.
"""
import os
import resource
import sys
import tempfile
import time

import h5py
import numpy as np

import stowage
from beside import in_turns, line

ROWS, COLUMNS, STEP, BOUND, TIMES = 500_000, 100, 5_000, 1.10, 7
LAYOUTS = (
    ("contiguous", {}),
    ("chunks_1000_rows", dict(chunks=(1000, COLUMNS))),
    ("chunks_700_by_33", dict(chunks=(700, 33))),
    ("chunks_by_h5py", dict(chunks=True)),
    ("gzip_shuffle", dict(chunks=(1000, COLUMNS), compression="gzip", compression_opts=1, shuffle=True)),
    ("gzip_700_by_33", dict(chunks=(700, 33), compression="gzip", compression_opts=1)),
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
    """Returns CPU seconds and seconds by the clock."""
    cpu, clock = cpu_seconds(), time.monotonic()
    assert read(path) == ROWS
    return cpu_seconds() - cpu, time.monotonic() - clock


with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
    values = np.random.default_rng(0).integers(0, 1000, (ROWS, COLUMNS)).astype("f8")
    for name, layout in LAYOUTS:
        path = os.path.join(folder, "bench.h5")
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=values, **layout)
        turns = in_turns((lambda: timed(by_worker, path), lambda: timed(by_h5py, path)), TIMES)
        (ours, our_clock), (theirs, their_clock) = ([min(times) for times in zip(*side)] for side in turns)
        wall = our_clock / their_clock
        met = ours / theirs <= BOUND and wall <= BOUND
        line(f"hdf5_{name}", ours, "h5py", theirs, "cpu_s", f" wall={wall:.2f} bound={BOUND:.2f} {'met' if met else 'not-met'}")
