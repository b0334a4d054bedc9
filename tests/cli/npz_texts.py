"""The text columns of an npz that shrink wrote, read by docs/formats.md alone."""


def _written_out(t, name):
    data = t[name + ".bytes"]
    if name + ".offsets" not in t.files:
        return [row.tobytes().decode() for row in data]
    ends, data = t[name + ".offsets"], data.tobytes()
    assert ends[0] == 0 and ends[-1] == len(data), name
    return [data[a:b].decode() for a, b in zip(ends, ends[1:])]


def texts(t, name):
    """Returns a text column of an npz that shrink wrote, as a list of str."""
    if name + ".codes" not in t.files:
        return _written_out(t, name)
    words = _written_out(t, name + ".words")
    return [words[code] for code in t[name + ".codes"]]


def is_text(t, name):
    return name + ".bytes" in t.files or name + ".codes" in t.files
