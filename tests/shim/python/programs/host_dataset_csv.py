"""Reads a table whole."""
import sys

import pandas


def table(path):
    return pandas.read_csv(path)


print(table(sys.argv[1]).mean())
