"""float64 against float32, and the smallest integer type that holds the values.

With --save FOLDER the two arrays are written there, for `stowage inspect` to find their types.
"""
import sys

import numpy as np


def smallest(values):
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= values.min() and values.max() <= np.iinfo(kind).max:
            return values.astype(kind)
    return values


def main():
    wide = np.zeros((1_000_000, 100))
    print(wide.nbytes, wide.astype(np.float32).nbytes)
    counts = np.random.default_rng(0).integers(0, 100, 1_000_000)
    print(counts.nbytes, smallest(counts).nbytes)


def save(folder):
    np.lib.format.open_memmap(folder + "/wide.npy", mode="w+", dtype="f8", shape=(1_000_000, 100))
    np.save(folder + "/counts.npy", np.random.default_rng(0).integers(0, 100, 1_000_000))


if __name__ == "__main__":
    save(sys.argv[2]) if "--save" in sys.argv else main()
