"""Needs one array, all of it, and no more."""
import numpy


def solve():
    matrix = numpy.ones((9000, 9000))  # 648 MB
    return matrix.sum()


solve()
