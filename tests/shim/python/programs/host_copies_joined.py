"""Joins bytes to bytes: a new one for every part, beside the old one."""
import sys


def download(path):
    body = b""
    with open(path, "rb") as connection:
        while part := connection.read(4 << 20):
            body = body + part
    return body


download(sys.argv[1])
