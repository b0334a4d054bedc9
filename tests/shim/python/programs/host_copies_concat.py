"""Puts a table together by concat, turn by turn."""
import numpy
import pandas


def gather():
    table = pandas.DataFrame()
    for turn in range(10_000):
        part = pandas.DataFrame(numpy.ones((20_000, 50)))
        table = pandas.concat([table, part])
    return table


gather()
