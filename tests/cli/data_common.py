"""Shared by the tests of the data verbs: runs the command, makes random arrays, and computes their facts with NumPy."""
import json
import os
import subprocess

import numpy as np
import scipy.sparse as sp

from npz_texts import is_text, texts  # noqa: F401  for the programs

rng = np.random.default_rng(1)
in_full = bool(os.environ.get("STOWAGE_TEST_LONG"))  # `make test-long`; otherwise sweeps run a slice with the same seed


def stowage(*words, fails=False, code=None):
    model = any(word.endswith((".safetensors", ".gguf", ".pt", ".index.json")) for word in words)
    if words[0] in ("inspect", "shrink") and "--for" not in words and not model:
        words += ("--for", "storage")  # the smallest types, which is what most tests compare with
    done = subprocess.run([os.environ["STOWAGE"], *words], capture_output=True, text=True, timeout=100)
    assert (done.returncode != 0) == fails, (words, done)
    assert code is None or done.returncode == code, (words, done)
    assert done.returncode >= 0, (words, done)
    return done.stderr if fails else done.stdout


def inspect(*words, fails=False):
    out = stowage("inspect", "--json", *words, fails=fails)
    return out if fails else json.loads(out)


def large_files():
    """Writes files for jobs in parts: whole numbers, the same with another last value, floats in the other byte order."""
    own = np.random.default_rng(3)
    a = own.integers(0, 200, 300_000).astype("f8")
    np.save("a.npy", a)
    a[-1] = 0.1
    np.save("b.npy", a)
    np.save("c.npy", own.standard_normal((1000, 300)).astype(">f8"))
    return own, a


def random_array(dtype, shape):
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        low = 0 if dtype.kind == "u" else info.min // 2
        return np.asarray(rng.integers(low, info.max // 2, shape, dtype="i8" if info.bits < 64 else dtype.newbyteorder("="))).astype(dtype)
    return np.asarray(rng.standard_normal(shape)).astype(dtype)


def random_sparse(shape, density, dtype="f8"):
    a = rng.standard_normal(shape).astype(dtype)
    a[rng.random(shape) >= density] = 0
    return a


def check_facts(facts, a):
    assert facts["shape"] == list(a.shape), (facts, a.shape)
    assert facts["dtype"] == str(a.dtype), (facts, a.dtype)
    assert facts["bytes"] == a.nbytes, (facts, a.nbytes)
    if a.size == 0:
        return
    assert abs(facts["zero_fraction"] - (a == 0).mean()) < 1e-12, facts
    if a.dtype.kind != "b":
        assert facts["min"] == a.min().item() and facts["max"] == a.max().item(), (facts, a.min(), a.max())
    small = np.dtype(facts["smallest_dtype"])
    back = a.astype(small).astype(a.dtype)
    assert np.array_equal(a, back), facts
    assert facts["bytes_after"] == a.size * small.itemsize


def shrink(*words):
    return json.loads(stowage("shrink", "--json", *words))


def same(a, b):
    """Compares every value, including the sign of zero and the position of NaN, whatever the type became."""
    if a.shape != b.shape:
        return False
    if a.dtype.kind not in "fiub":
        return np.array_equal(a, b)
    back = b.astype(a.dtype)
    return np.array_equal(a, back, equal_nan=a.dtype.kind == "f") and (a.dtype.kind != "f" or np.array_equal(np.signbit(a), np.signbit(back)))
