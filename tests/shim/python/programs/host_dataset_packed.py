"""Reads a packed text whole: its file is a thousandth of what it becomes."""
import gzip, sys


def load(path):
    with gzip.open(path, "rt") as file:
        return file.read()


print(len(load(sys.argv[1])))
