"""Sends every worker its own copy of the data; most of them are still on the way when it is too much."""
import multiprocessing

import numpy


def work(task):
    data, seed = task
    return float(data.sum()) + seed


if __name__ == "__main__":
    data = numpy.ones((50, 100_000))
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        print(pool.map(work, [(data, seed) for seed in range(200)], 1))
