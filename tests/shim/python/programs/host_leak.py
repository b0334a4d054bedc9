"""Keeps every batch it has worked on."""
import numpy

done = []


def work(turn):
    batch = numpy.full(400_000, turn, dtype=numpy.float64)
    done.append(batch)
    return batch.sum()


for turn in range(10_000):
    work(turn)
