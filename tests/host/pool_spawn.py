# expect: host_workers | worker
# limit: 900M
import multiprocessing as mp

import numpy as np

table = None


def setup(data):
    global table
    table = data


def score(row):
    return float(table[row].sum())


if __name__ == "__main__":
    data = np.random.rand(2_000_000, 10)
    context = mp.get_context("spawn")
    with context.Pool(6, initializer=setup, initargs=(data,)) as pool:
        print(sum(pool.map(score, range(1000))))
