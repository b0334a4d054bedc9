"""Multiplies every column with every other: what comes out is larger than what went in, and no copy of it."""
import numpy


def covariance(rows, columns):
    table = numpy.ones((rows, columns))
    return (table.T @ table) / rows


covariance(3000, 5000)  # 120 MB, and 200 MB of products
