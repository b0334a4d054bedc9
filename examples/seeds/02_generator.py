"""Batches of 1000 rows from a generator, doubled and deleted. The array is whole in memory all the while."""
import numpy as np


def batches(data, size):
    for i in range(0, len(data), size):
        yield data[i : i + size]


def main():
    data = np.random.default_rng(0).standard_normal((1_000_000, 100))
    total = 0.0
    for batch in batches(data, 1000):
        doubled = batch * 2
        total += doubled[0, 0]
        del batch, doubled
    print(total)


if __name__ == "__main__":
    main()
