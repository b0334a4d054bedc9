"""tables.sh's checks: each function is one, and runs in a folder of its own."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np


def stowage(*words, code=0):
    done = subprocess.run([os.environ["STOWAGE"], *words], capture_output=True, text=True, timeout=100)
    assert done.returncode == code, (words, done)
    return done.stderr if code else done.stdout


def write(name, text):
    with open(name, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    return name


def columns(name, *words):
    facts = json.loads(stowage("inspect", "--json", name, *words))
    return {column["name"]: column for column in facts["columns"]}


def texts(npz, name):
    """The texts of a column, by docs/formats.md alone."""
    base = name
    if f"{name}.codes" in npz.files:
        base = f"{name}.words"
    data = npz[f"{base}.bytes"]
    if data.ndim == 2:
        found = [row.tobytes().decode() for row in data]
    else:
        ends = npz[f"{base}.offsets"]
        found = [data[a:b].tobytes().decode() for a, b in zip(ends, ends[1:])]
    return [found[code] for code in npz[f"{name}.codes"]] if base != name else found


def shrink(name, *words):
    stowage("shrink", name, "-o", "out.npz", *words)
    return np.load("out.npz")


# ---- values that must not change ----


def leading_zeros_stay():
    rows = "".join(f"{n % 100000:05d},{n % 12 + 1:02d},{n}\n" for n in range(0, 30000, 7))
    found = columns(write("t.csv", "zip,month,n\n" + rows))
    assert found["zip"]["dtype"] == "text" and found["zip"]["leading_zeros"], found["zip"]
    assert found["month"]["dtype"] == "text" and found["n"]["dtype"] == "int64", found
    for words in (["--threads", "1"], ["--threads", "3", "--memory", "32M"]):
        out = shrink("t.csv", *words)
        assert texts(out, "zip") == [f"{n % 100000:05d}" for n in range(0, 30000, 7)]
    # One zero in front, anywhere in the column, and in a column with gaps.
    found = shrink(write("t.csv", "a,b\n1,\n" * 1 + "10,7\n" * 5000 + "010,08\n0,\n"))
    assert texts(found, "a")[-2:] == ["010", "0"] and texts(found, "b")[-2:] == ["08", ""]
    # Not ids: a zero alone, fractions, exponents.
    found = columns(write("t.csv", "a,b\n0,00.5\n0,0.25\n-3,1e05\n"))
    assert [found[c]["dtype"] for c in "ab"] == ["int64", "float64"], found
    # No header becomes of a first row of ids.
    facts = json.loads(stowage("inspect", "--json", write("t.csv", "00501,1\n00601,2\n")))
    assert not facts["header"] and facts["rows"] == 2, facts


def floats_stay_floats_for_arithmetic():
    found = columns(write("t.csv", "zero,whole,n\n0.0,1.0,1\n0.0,2.0,2\n"))
    assert [found[c]["smallest_dtype"] for c in ("zero", "whole", "n")] == ["float32", "float32", "int8"], found
    out = shrink("t.csv")
    assert out["zero"].dtype == "f4" and out["n"].dtype == "i1"
    stowage("shrink", write("u.csv", "a,b\n0.0,1.0\n0.0,2.0\n"), "-o", "out.npy")
    assert np.load("out.npy").dtype == "f4"
    out = shrink("t.csv", "--for", "storage")
    assert out["zero"].itemsize == 1


def an_output_larger_than_the_table_needs_force():
    small = write("t.csv", "a\n" + "0.1\n" * 1000)  # 4 bytes each, 8 as float64
    said = stowage("shrink", small, "-o", "out.npz", code=1)
    assert "8000 bytes" in said and "--force" in said and not os.path.exists("out.npz"), said
    shrink(small, "--force")
    os.remove("out.npz")
    # Only the headers make this one larger: it is written, and the report says so.
    said = stowage("shrink", write("t.csv", "a,b\n1,2\n3,4\n"), "-o", "out.npz")
    assert "larger than the input" in said, said


CHECKS = [value for name, value in list(globals().items()) if callable(value) and getattr(value, "__module__", "") == "__main__"]
CHECKS = [check for check in CHECKS if check.__code__.co_argcount == 0 and check.__code__.co_kwonlyargcount == 0]

if __name__ == "__main__":
    if sys.argv[1] == "--list":
        print("\n".join(check.__name__ for check in CHECKS))
    else:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            os.chdir(folder)
            globals()[sys.argv[1]]()
            os.chdir("..")
