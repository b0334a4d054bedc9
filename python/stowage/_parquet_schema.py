"""The Arrow schema that pyarrow and polars store in a Parquet file, as far as the types of its columns.

Parquet has no type for durations: they are integers, and only this schema says what they are. DuckDB does not read it.
"""

from __future__ import annotations

import base64
import struct
from typing import Iterator, Tuple

KEY = b"ARROW:schema"
_DURATION = 18  # Type.Duration in Arrow's Schema.fbs


def durations(stored: bytes) -> "Iterator[str]":
    """Yields the columns of a stored schema (base64 of an encapsulated message, Arrow's Message.fbs) that are durations."""
    for name, kind in _columns(base64.b64decode(stored)):
        if kind == _DURATION:
            yield name


def _columns(message: bytes) -> "Iterator[Tuple[str, int]]":
    data = message[8:] if message[:4] == b"\xff" * 4 else message[4:]  # the second length, since Arrow 0.15

    def number(kind: str, at: int) -> int:
        return int(struct.unpack_from("<" + kind, data, at)[0])

    def follow(at: int) -> int:
        return at + number("I", at)

    def slot(table: int, index: int) -> int:
        """Returns where a field of a table is (FlatBuffers: its vtable has the offsets); 0: it is not there."""
        fields = table - number("i", table)
        offset = number("H", fields + 4 + 2 * index) if 4 + 2 * index < number("H", fields) else 0
        return table + offset if offset else 0

    schema = follow(slot(follow(0), 2))  # Message.header
    listed = follow(slot(schema, 1))  # Schema.fields
    for i in range(number("I", listed)):
        field = follow(listed + 4 + 4 * i)
        name, kind = slot(field, 0), slot(field, 2)  # Field.name, Field.type_type
        text = follow(name) if name else 0
        yield data[text + 4 : text + 4 + number("I", text)].decode() if name else "", data[kind] if kind else 0
