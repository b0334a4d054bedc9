"""Keeps the result of every call, behind the name of the function."""
import functools

import numpy


@functools.lru_cache(maxsize=None)
def spectrum(seed):
    return numpy.full(200_000, float(seed))


for trial in range(10_000):
    spectrum(trial)
