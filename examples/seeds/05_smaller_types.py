"""float64 against float32, and the smallest integer type that holds what is there."""
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


if __name__ == "__main__":
    main()
