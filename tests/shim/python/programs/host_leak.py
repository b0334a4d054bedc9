"""Keeps every batch it has worked on."""
import numpy

done = []


def work(turn):
    batch = numpy.full(400_000, turn, dtype=numpy.float64)
    done.append(batch)
    for _ in range(8):  # no faster than a program that works, on a loaded machine too
        numpy.tan(batch)
    return numpy.tan(batch).sum()


for turn in range(10_000):
    work(turn)
