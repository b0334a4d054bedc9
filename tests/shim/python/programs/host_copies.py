"""Lets an array grow by append: each turn makes a new one, and another of the type it wants."""
import numpy


def gather():
    rows = numpy.zeros((0, 1000))
    for turn in range(10_000):
        rows = numpy.append(rows, numpy.ones((1000, 1000)), axis=0)
        lean = rows.astype(numpy.float32)
    return rows, lean


gather()
