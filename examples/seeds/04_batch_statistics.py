"""Mean and standard deviation batch by batch, then a collection. The whole array is in memory all the time.

With --stowage the same batches come from a file, and only a few of them are in memory at a time.
"""
import gc
import os
import sys
import tempfile

import numpy as np

ROWS, COLUMNS = 1_000_000, 100


def batches(data, size):
    for i in range(0, len(data), size):
        yield data[i : i + size]


def main():
    data = np.random.default_rng(0).random((ROWS, COLUMNS))
    for batch in batches(data, 10_000):
        mean, deviation = batch.mean(), batch.std()
    gc.collect()
    print(mean, deviation)


def write(path):
    """Makes the same values a piece at a time, for data that is never whole in memory."""
    rng = np.random.default_rng(0)
    with open(path, "wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (ROWS, COLUMNS)}
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(ROWS // 10_000):
            file.write(rng.random((10_000, COLUMNS)).tobytes())


def stowed():
    import stowage

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "data.npy")
        write(path)
        for batch in stowage.batches(path, 10_000, memory="64M"):
            mean, deviation = batch.mean(), batch.std()
        print(mean, deviation)


def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))


if __name__ == "__main__":
    stowed() if "--stowage" in sys.argv else main()
    print(f"peak memory {peak():.0f} MiB")
