"""Reads a file whole that it only needs the sums of."""
import sys

import numpy


def load(path):
    return numpy.load(path)


print(load(sys.argv[1]).sum())
