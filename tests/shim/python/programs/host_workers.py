"""Four workers, each with its own copy of the table."""
import multiprocessing
import time

import numpy


def work(turn):
    table = numpy.ones(40_000_000 // 8 * 4)  # 160 MB
    time.sleep(5)
    return table.sum() + turn


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map(work, range(4))
