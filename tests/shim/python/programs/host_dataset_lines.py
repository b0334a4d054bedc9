"""Reads a text whole, to count its longest line."""
import sys


def read(path):
    with open(path, "rb") as file:
        return file.read()


text = read(sys.argv[1])
print(max(len(line) for line in text.split(b"\n")))
