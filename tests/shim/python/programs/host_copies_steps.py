"""One line of two steps: the array, what the first step makes of it, and what the second makes of that."""
import numpy

depth = numpy.ones(12_000_000)  # 96 MB
for _ in range(200):  # long enough to be looked at
    inverse = 1 / (depth + 1e-6)
    del inverse
