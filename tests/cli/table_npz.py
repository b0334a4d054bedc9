"""Reads the columns of a table that `stowage shrink` wrote as npz, with the standard library alone."""

import array
import ast
import zipfile

_CODES = {"|b1": "B", "|u1": "B", "|i1": "b", "<u2": "H", "<i2": "h", "<u4": "I", "<i4": "i", "<u8": "Q", "<i8": "q", "<f4": "f", "<f8": "d"}


def _half(bits):
    import struct

    return struct.unpack("<e", bits)[0]


def read_npy(bytes_):
    """Returns (dtype, shape, values) of an npy file in memory."""
    length = int.from_bytes(bytes_[8:10], "little")
    header = ast.literal_eval(bytes_[10 : 10 + length].decode("latin-1"))
    body, kind = bytes_[10 + length :], header["descr"]
    if kind == "<f2":
        values = [_half(body[i : i + 2]) for i in range(0, len(body), 2)]
    elif kind[1] == "U":
        width = 4 * int(kind[2:])
        values = [body[i : i + width].decode("utf-32-le").rstrip("\0") for i in range(0, len(body), width)]
    else:
        values = array.array(_CODES[kind])
        values.frombytes(body)
        values = [v != 0 for v in values] if kind == "|b1" else values.tolist() if kind != "|u1" else values
    return kind, header["shape"], values


def texts(members, name):
    """Returns the texts in NAME.bytes and, if their lengths differ, NAME.offsets."""
    _, shape, data = members[name + ".bytes"]
    data = bytes(data)
    if name + ".offsets" in members:
        offsets = members[name + ".offsets"][2]
    else:
        offsets = [i * shape[1] for i in range(shape[0] + 1)]
    return [data[a:b].decode("utf-8", "surrogateescape") for a, b in zip(offsets, offsets[1:])]


def read_columns(path):
    """Returns {column: values} in the order of the file; text as str."""
    with zipfile.ZipFile(path) as archive:
        members = {name[: -len(".npy")]: read_npy(archive.read(name)) for name in archive.namelist()}
    columns = {}
    for name in members:
        if name.endswith(".values") or name.endswith((".words.bytes", ".words.offsets", ".offsets")):
            continue
        if name + ".values" in members:
            words = members[name + ".values"][2]
            columns[name] = [words[code] for code in members[name][2]]
        elif name.endswith(".codes") and name[: -len(".codes")] + ".words.bytes" in members:
            words = texts(members, name[: -len(".codes")] + ".words")
            columns[name[: -len(".codes")]] = [words[code] for code in members[name][2]]
        elif name.endswith(".bytes"):
            columns[name[: -len(".bytes")]] = texts(members, name[: -len(".bytes")])
        else:
            columns[name] = list(members[name][2])
    return columns
