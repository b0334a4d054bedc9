"""Mean and standard deviation batch by batch, then a collection. The array is whole in memory all the while."""
import gc

import numpy as np


def batches(data, size):
    for i in range(0, len(data), size):
        yield data[i : i + size]


def main():
    data = np.random.default_rng(0).random((1_000_000, 100))
    for batch in batches(data, 10_000):
        mean, deviation = batch.mean(), batch.std()
    gc.collect()
    print(mean, deviation)


if __name__ == "__main__":
    main()
