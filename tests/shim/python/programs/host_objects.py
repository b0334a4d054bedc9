"""Keeps a table as a list of dicts."""


def read():
    rows = []
    for number in range(50_000_000):
        rows.append({"user": number, "item": number * 7 + 3, "score": number / 3})
    return rows


read()
