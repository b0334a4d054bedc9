"""Shrinks data in memory to the smallest types that hold the same values.

`shrink()` checks every value with the library's scan, casts with the library's cast, and shows what changed. It loses nothing
unless a tolerance allows it. Files go to `_files`, which never holds a whole file.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from ctypes import POINTER, c_bool, c_char, c_char_p, c_double, c_int, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, Iterable, List, Optional, Tuple

from . import _arrow, _show, _tables
from ._array import several
from ._files import ALLOW_NAN, SPARSE, VERIFY, Model, Table, Text, read_purpose, read_text, shrink_file
from ._library import Growing, Invalid, Missing, Unsupported, call, declare
from ._library import format_size as size
from ._memory import loaded
from ._store import on_disk

#: Number of values per piece if an array must be copied for the scan.
_CHUNK = 1 << 20


class _Facts(Growing):
    _fields_ = [
        ("whole", c_uint32),
        ("count", c_uint64),
        ("nans", c_uint64),
        ("infs", c_uint64),
        ("zeros", c_uint64),
        ("least", c_double),
        ("most", c_double),
        ("smallest", c_char * 16),
    ]


declare(
    {
        "stow_values_open": (c_int, [POINTER(c_void_p), c_char_p]),
        "stow_values_add": (c_int, [c_void_p, c_void_p, c_uint64]),
        "stow_values_get": (c_int, [c_void_p, POINTER(_Facts)]),
        "stow_values_fit": (c_int, [c_void_p, c_char_p, POINTER(c_bool)]),
        "stow_values_close": (c_int, [c_void_p]),
        "stow_values_cast": (c_int, [c_void_p, c_char_p, c_void_p, c_char_p, c_uint64]),
        "stow_values_error": (c_int, [POINTER(c_double), c_bool, c_void_p, c_char_p, c_void_p, c_char_p, c_uint64]),
    }
)

_NUMBERS = {"bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"}
#: Types of weights, in both spellings; only for files.
_FLOATS = {"f16": "float16", "bf16": "bfloat16", "bfloat16": "bfloat16", "torch.bfloat16": "bfloat16", "f32": "float32"}


# ---- arrays ----


class _Seen:
    """Scans every value of an array once."""

    def __init__(self, array: Any) -> None:
        self._handle = c_void_p()
        call("stow_values_open", ctypes.byref(self._handle), array.dtype.name.encode())
        for part in _parts(array):
            call("stow_values_add", self._handle, part.ctypes.data, part.size)
        self.facts = _Facts()
        call("stow_values_get", self._handle, ctypes.byref(self.facts))

    def fits(self, kind: str) -> bool:
        answer = c_bool()
        call("stow_values_fit", self._handle, kind.encode(), ctypes.byref(answer))
        return answer.value

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            call("stow_values_close", self._handle)


def _in_one(array: Any) -> bool:
    return array.flags.forc and array.dtype.isnative


def _parts(array: Any) -> Any:
    """Yields the values as contiguous pieces in this machine's byte order; the array itself if it is one."""
    import numpy

    if _in_one(array) or array.size == 0:
        yield array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
        return
    flat = array.reshape(1) if array.ndim == 0 else array
    rows = max(1, _CHUNK // max(1, array.size // flat.shape[0]))
    for start in range(0, flat.shape[0], rows):
        yield numpy.ascontiguousarray(flat[start : start + rows], dtype=array.dtype.newbyteorder("="))


def _cast(array: Any, kind: str, tolerance: "Optional[Tuple[float, bool]]" = None) -> "Tuple[Any, float]":
    """Casts the array and keeps its memory order. With a tolerance, also returns the largest error."""
    import numpy

    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    made = numpy.empty(array.shape, dtype=kind, order="F" if fortran else "C")
    worst = c_double(0)
    largest = 0.0
    whole = _in_one(array)
    flat = None if whole else made.reshape(-1)
    at = 0
    for part in _parts(array):
        to = made.ctypes.data if flat is None else flat[at:].ctypes.data
        names = (kind.encode(), part.ctypes.data, array.dtype.name.encode(), part.size)
        call("stow_values_cast", to, *names)
        if tolerance is not None:
            call("stow_values_error", ctypes.byref(worst), tolerance[1], to, *names)
            largest = max(largest, worst.value)
        at += part.size
    return made, largest


#: The types that may be chosen, by purpose, in ascending size (scan_allows in src/numbers/scan.c).
_SIGNED = ["int8", "int16", "int32", "int64"]
_CHOICES = {
    "arithmetic": (_SIGNED, ["float32", "float64"]),
    "training": (["uint8", *_SIGNED], ["float16", "float32", "float64"]),
    "storage": (["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"], ["float16", "float32", "float64"]),
}


def _choose(array: Any, seen: _Seen, options: "_Options") -> str:
    """Returns the smallest type for the purpose that holds every value; floats stay floats unless `integers`."""
    import numpy

    own, size = str(array.dtype.name), array.dtype.itemsize
    if seen.facts.count == 0 or array.dtype.kind == "b":
        return own
    integers, floats = _CHOICES[options.purpose]
    kinds = [*floats, *(integers if options.integers else [])] if array.dtype.kind == "f" else integers
    fitting = [kind for kind in kinds if numpy.dtype(kind).itemsize < size and seen.fits(kind)]
    return min(fitting, key=lambda kind: numpy.dtype(kind).itemsize) if fitting else own


def _shrink_array(array: Any, options: "_Options", changes: "Optional[List[_Change]]" = None, name: str = "array") -> Any:
    if array.dtype.name not in _NUMBERS:
        options.note(changes, name, str(array.dtype), str(array.dtype), array.nbytes, array.nbytes, "not numbers: as it was")
        return array
    seen = _Seen(array)
    kind, error = _choose(array, seen, options), 0.0
    made = None
    if options.dtype is not None:
        kind = options.dtype
        if not seen.fits(kind) and options.tolerance is None:
            raise Invalid(
                f"{name}: not every value fits {kind} exactly (from {seen.facts.least:g} to {seen.facts.most:g}, "
                f"{seen.facts.nans} NaN); the smallest that does is {seen.facts.smallest.decode()}, or allow a tolerance="
            )
    if options.tolerance is not None and array.dtype.kind == "f":
        wanted = [options.dtype] if options.dtype is not None else [k for k in ("float16", "float32") if k in _CHOICES[options.purpose][1]]
        for candidate in wanted:
            made, error = _cast(array, candidate, options.tolerance)
            if error <= options.tolerance[0]:
                kind = candidate
                break
            made = None
        if made is None and options.dtype is not None:
            raise Invalid(f"{name}: in {options.dtype} a value would be off by {error:.3g}, the tolerance is {options.tolerance[0]:g}")
    if made is None:
        error = 0.0
        made = array if kind == array.dtype.name and array.dtype.isnative else _cast(array, kind)[0]
    said = f"off by at most {error:.3g}" if error else ""
    zeros = seen.facts.zeros
    if array.ndim == 2 and zeros * 2 > array.size:
        dense = made
        made, said = _maybe_sparse(made, zeros, options, said)
        if made is not dense:
            options.note(changes, name, array.dtype.name, f"{made.dtype} CSR", array.nbytes, _sparse_bytes(made), said)
            return made
    options.note(changes, name, array.dtype.name, made.dtype.name, array.nbytes, made.nbytes, said)
    return made


def _shrink_kind(array: Any, options: "_Options", changes: "List[_Change]") -> Any:
    """Shrinks an array of a supported class and keeps its mask."""
    import numpy

    if type(array) in (numpy.ndarray, numpy.memmap):
        return _shrink_array(array, options, changes)
    dense = _Options(options.tolerance, options.integers, options.dtype, False, options.purpose)
    if type(array) is numpy.matrix:
        return _shrink_array(numpy.asarray(array), dense, changes).view(numpy.matrix)
    if type(array) is numpy.ma.MaskedArray:
        made = numpy.ma.array(_shrink_array(array.data, dense, changes), mask=array.mask, hard_mask=array.hardmask)
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            made.fill_value = array.fill_value
        return made
    kind = f"{type(array).__module__}.{type(array).__qualname__}"
    raise Unsupported(f"shrink: {kind} may carry more than its values, a unit or a name, which would be lost; give numpy.asarray(x)")


# ---- sparse ----


def _sparse_bytes(matrix: Any) -> int:
    parts = [getattr(matrix, name, None) for name in ("data", "indices", "indptr", "row", "col", "offsets")]
    return sum(part.nbytes for part in parts if part is not None)


def _maybe_sparse(array: Any, zeros: int, options: "_Options", said: str) -> "Tuple[Any, str]":
    """Returns the CSR form if it was requested and is smaller; a note about it if it was not requested."""
    kept = array.size - zeros
    expected = kept * (array.itemsize + 4) + (array.shape[0] + 1) * 4
    if expected >= array.nbytes:
        return array, said
    if not options.sparse:
        hint = f"{100 * zeros / array.size:.0f}% are zeros: sparse=True makes it {size(expected)}"
        return array, f"{said}; {hint}" if said else hint
    if array.dtype.name == "float16":
        array = _cast(array, "float32")[0]  # SciPy computes with no smaller floats
    import numpy

    try:
        from scipy import sparse  # type: ignore[import-not-found]
    except ImportError:
        raise Missing("sparse=True needs SciPy: pip install scipy, or shrink to a file: stowage shrink") from None
    negative = int(((array == 0) & numpy.signbit(array)).sum()) if array.dtype.kind == "f" else 0
    if negative:
        said = f"{said}; " * bool(said) + f"{negative} negative zeros became 0"
    return sparse.csr_matrix(array), said


def _shrink_sparse(matrix: Any, options: "_Options", changes: "Optional[List[_Change]]" = None, name: str = "matrix") -> Any:
    import numpy

    before = _sparse_bytes(matrix)
    if matrix.format not in ("csr", "csc", "coo", "bsr", "dia"):
        raise Unsupported(f"a sparse matrix in {matrix.format} form has no arrays to narrow; give .tocsr()")
    inner = _Options(options.tolerance, options.integers, options.dtype, False, options.purpose)
    data = _shrink_array(matrix.data, inner, None, "values")
    if data.dtype.name == "float16":
        data = _cast(matrix.data, "float32")[0] if matrix.data.dtype.name == "float64" else matrix.data
    made = matrix.copy()
    if data is not matrix.data:
        made.data = data
    for part in ("indices", "indptr", "row", "col"):
        indices = getattr(made, part, None)
        # SciPy uses 32 bits if they are enough for the largest index, and widens anything narrower.
        if indices is not None and indices.dtype == numpy.int64 and (indices.size == 0 or indices.max() < 2**31):
            setattr(made, part, indices.astype(numpy.int32))
    was = f"{matrix.dtype} {matrix.format.upper()}"
    options.note(changes, name, was, f"{made.dtype} {made.format.upper()}", before, _sparse_bytes(made), "")
    return made


# ---- tables ----


# pandas has no float16 indexes, so it can neither group nor merge by such a column: floats of a table stay at least float32,
# unless dtype=
# requests float16.


def _shrink_column(column: Any, options: "_Options", changes: "List[_Change]", name: str) -> Any:
    import pandas  # type: ignore[import-untyped]

    before = int(column.memory_usage(index=False, deep=True))
    kind = column.dtype
    inner = _Options(options.tolerance, options.integers, options.dtype, False, options.purpose)
    made, said = column, ""
    if getattr(kind, "name", "") in _NUMBERS and not isinstance(kind, pandas.api.extensions.ExtensionDtype):
        given = column.to_numpy()
        values = _shrink_array(given, inner, None, name)
        if values.dtype.name == "float16" and options.dtype is None:
            values = _cast(given, "float32")[0] if kind.name == "float64" else given  # see above
        if values is not given:
            made = pandas.Series(values, index=column.index, name=column.name)
    elif isinstance(kind, pandas.api.extensions.ExtensionDtype) and str(kind)[:3] in ("Int", "UIn", "Flo"):
        known = column[~column.isna()].to_numpy(dtype=kind.numpy_dtype)
        small = _shrink_array(known, inner, None, name).dtype.name
        if small == "float16":
            small = "float32"
        shown = "".join(part.capitalize() for part in (small,)).replace("Uint", "UInt")
        made = column.astype(shown)
    elif kind == object or isinstance(kind, pandas.StringDtype):  # pandas 3 calls its own type str
        made, said = _categories(column)
    after = int(made.memory_usage(index=False, deep=True))
    if after > before:
        made, after = column, before
    options.note(changes, name, str(kind), str(made.dtype), before, after, said)
    return made.copy(deep=not _copies_on_write()) if made is column else made


def _copies_on_write() -> bool:
    """Returns whether writing to what shares memory with another column leaves that one as it was: since pandas 3."""
    import pandas

    return int(pandas.__version__.partition(".")[0]) >= 3


def _categories(column: Any) -> "Tuple[Any, str]":
    """Stores repeated texts once."""
    if not all(isinstance(value, str) for value in column[~column.isna()]):
        return column, "not only text: as it was"
    distinct = column.nunique(dropna=True)
    if distinct == 0 or distinct * 2 > len(column):
        return column, ""
    return column.astype("category"), f"{distinct} different texts"


def _shrink_table(table: Any, options: "_Options", changes: "List[_Change]") -> Any:
    import pandas

    parts = [
        _shrink_column(table.iloc[:, at], options, changes, str(table.columns[at])) for at in range(table.shape[1])
    ]
    if not parts:
        return table.copy()
    lazily = {} if _copies_on_write() else {"copy": False}
    made = pandas.concat(parts, axis=1, **lazily) if len(parts) > 1 else parts[0].to_frame()
    made.columns = table.columns
    made.attrs = dict(table.attrs)
    return made


# ---- public functions ----

_Change = Tuple[str, str, str, int, int, str]


class _Options:
    """What may be done."""

    def __init__(
        self, tolerance: "Optional[Tuple[float, bool]]", integers: bool, dtype: "Optional[str]", sparse: bool, purpose: str
    ) -> None:
        self.tolerance, self.integers, self.dtype, self.sparse, self.purpose = tolerance, integers, dtype, sparse, purpose

    @staticmethod
    def note(changes: "Optional[List[_Change]]", *change: Any) -> None:
        if changes is not None:
            name, was, now, before, after, said = change
            changes.append((name, was, now, before, after, said))


def _say(changes: "List[_Change]") -> None:
    rows = [("", "was", "is", "before", "after", "")]
    for name, was, now, before, after, said in changes:
        rows.append((name, was, now, size(before), size(after), said))
    before, after = sum(change[3] for change in changes), sum(change[4] for change in changes)
    print(_show.text_table(rows, right=[3, 4], indent=0))
    if len(changes) > 1:
        print(f"{size(before)} before, {size(after)} after")


def read_tolerance(tolerance: "float | str | None") -> "Optional[Tuple[float, bool]]":
    """Parses a tolerance: 1e-3 is a fraction of each value, "abs:0.5" an amount."""
    if tolerance is None:
        return None
    text = str(tolerance)
    amount = text[4:] if text.startswith("abs:") else text
    try:
        value = float(amount)
    except ValueError:
        raise Invalid(f'tolerance: {tolerance!r}: write a fraction of each value, as 1e-3, or an amount, as "abs:0.5"') from None
    if not 0 < value < float("inf"):
        raise Invalid(f"tolerance: {tolerance!r}: must be more than 0")
    return value, not text.startswith("abs:")


def shrink(
    thing: Any,
    output: "Optional[str | os.PathLike[str]]" = None,
    *,
    tolerance: "float | str | Dict[str, Any] | None" = None,
    dtype: "Optional[str]" = None,
    integers: bool = False,
    sparse: bool = False,
    quiet: bool = False,
    names: "Optional[str]" = None,
    columns: "Optional[Iterable[str]]" = None,
    drop: "Optional[Iterable[str]]" = None,
    force: bool = False,
    purpose: str = "arithmetic",
    quantize: "Optional[str]" = None,
    prune: "Optional[str]" = None,
    include: "Optional[Iterable[str]]" = None,
    exclude: "Optional[Iterable[str]]" = None,
    shard: "str | int | None" = None,
    verify: bool = False,
    allow_nan: bool = False,
    memory: "str | int | None" = None,
    **text: Any,
) -> Any:
    """Returns the same data in the smallest types that hold every value, and prints what changed.

    `thing`: a NumPy array, a pandas DataFrame or Series, a SciPy sparse matrix, a polars or pyarrow table (or any object with
    `__arrow_c_stream__`, which comes back as such), or the path of a file (then `output` names the new one, and `memory` is the most
    to hold). A pattern ("part-*.csv") or a list of files is one table, or one array. Parquet, Arrow (Feather) and JSON lines are read and written by pyarrow, polars or DuckDB. Exact unless a `tolerance` allows rounding of floats: 1e-3 of each value, or "abs:0.5". Floats stay
    floats unless `integers`; with `sparse` a mostly-zero matrix becomes CSR. The input is never changed. For a table file, `names`
    "yes" or "no" states whether its first row names the columns, `columns` selects columns, `drop` omits columns, and `force` allows
    an output larger than the table. `purpose` limits the types: "arithmetic" chooses no float16, whose sums overflow at 65504, and no
    unsigned type, whose differences wrap; "training" allows float16 and uint8; "storage" allows all.

    The format of a text table is detected, or set with `delimiter` ("tab"), `decimal` (","), `comment` ("#"), `skip` (lines
    before the
    table), `encoding` ("latin-1", "cp1252", "utf-16") and `na` (words for missing values). `types` gives columns their type ({"zip":
    "text", "n": "int32", "t": "datetime"}), and `tolerance` may be a dict by column.

    A model file or folder (safetensors, GGUF, .pt, .bin) is written in `dtype` "f16", "bf16" or "f32". `quantize` stores the large
    layers as "q8_0", "q6_k", "q4_k" or "q4_0" (GGUF), "int8" or "fp8" (safetensors); `prune` is "50%" or "2:4". `include` and
    `exclude` are patterns of tensor names, `shard` is the size of a file ("2G"), `verify` reads the output back, and `allow_nan`
    accepts NaN and infinity. With `sparse` the layers are stored without their zeros, in the layouts of compressed-tensors.

    >>> import numpy
    >>> small = shrink(numpy.arange(1000))
           was    is      before    after
    array  int64  int16  7.8 KiB  2.0 KiB
    >>> small.dtype
    dtype('int16')
    """
    read_purpose(purpose)
    if isinstance(tolerance, dict):
        text["tolerances"], tolerance = tolerance, None
    said = read_text("shrink", text)
    listed = isinstance(thing, (list, tuple)) and len(thing) > 0 and all(isinstance(one, (str, os.PathLike)) for one in thing)
    is_file = isinstance(thing, (str, os.PathLike)) or listed
    kind = _FLOATS.get(str(dtype), None) if is_file else None
    options = _Options(read_tolerance(tolerance), integers, kind or _read_dtype(dtype), sparse, purpose)
    changes: "List[_Change]" = []
    if is_file:
        given = [tuple([each] if isinstance(each, str) else each or ()) for each in (columns, drop, include, exclude)]
        model = Model(quantize, prune, given[2], given[3], shard, (VERIFY if verify else 0) | (ALLOW_NAN if allow_nan else 0) | (SPARSE if sparse else 0))
        return _shrink_file(thing if listed else os.fspath(thing), output, options, quiet, Table(names, given[0], given[1], force, said), model, memory)
    if quantize is not None or prune is not None or include is not None or exclude is not None or shard is not None:
        raise TypeError("shrink: quantize=, prune=, include=, exclude= and shard= are for model files")
    if names is not None or columns is not None or drop is not None or force or memory is not None or said != Text():
        raise TypeError("shrink: names=, columns=, drop=, force=, memory= and how text is written are for files")
    if output is not None:
        raise TypeError("shrink: output= is for files; an array comes back as the result")
    made = _shrink_thing(thing, options, changes)
    if not quiet:
        _say(changes)
    return made


def _read_dtype(dtype: "Optional[Any]") -> "Optional[str]":
    if dtype is None:
        return None
    name = str(dtype)
    numpy = loaded("numpy")
    if numpy is not None:
        with contextlib.suppress(TypeError):
            name = numpy.dtype(dtype).name
    if name not in _NUMBERS:
        raise Invalid(f"dtype: {dtype!r}: must be one of {', '.join(sorted(_NUMBERS))}")
    return name


def _shrink_thing(thing: Any, options: _Options, changes: "List[_Change]") -> Any:
    numpy, pandas, scipy = loaded("numpy"), loaded("pandas"), loaded("scipy.sparse")
    if isinstance(thing, getattr(pandas, "DataFrame", ())):
        return _shrink_table(thing, options, changes)
    if isinstance(thing, getattr(pandas, "Series", ())):
        return _shrink_column(thing, options, changes, str(getattr(thing, "name", None) or "column"))
    if hasattr(scipy, "issparse") and scipy.issparse(thing):
        return _shrink_sparse(thing, options, changes)
    if isinstance(thing, getattr(numpy, "ndarray", ())):
        return _shrink_kind(thing, options, changes)
    if _arrow.has_stream(thing):
        return _shrink_arrow(thing, options, changes)
    kind = f"{type(thing).__module__}.{type(thing).__qualname__}"
    raise TypeError(f"shrink: {kind}: give a NumPy array, a pandas, polars or pyarrow table, a SciPy sparse matrix or a path")


def _shrink_arrow(thing: Any, options: _Options, changes: "List[_Change]") -> Any:
    """Shrinks the number columns of a table; the other columns are passed on without a copy."""
    if options.dtype is not None or options.integers or options.sparse:
        raise TypeError("shrink: dtype=, integers= and sparse= are for arrays and pandas tables")
    table = _arrow.as_table(thing)
    plan = _arrow.Plan(table, options.tolerance, read_purpose(options.purpose))
    for one in plan.columns:
        said = f"off by at most {one.error:.3g}" if one.error else ""
        options.note(changes, one.name, _tables.word(one), one.to_type if one.scanned else _tables.word(one), one.bytes, one.bytes_after, said)
    return _arrow.back(thing, plan.apply(table))


def _shrink_file(path: Any, output: Any, options: _Options, quiet: bool, table: Table, model: Model, memory: Any) -> str:
    if output is None:
        raise TypeError(f'shrink: {path} is a file; say where the smaller one goes: shrink("{path}", "small.npz")')
    path, output = on_disk(path), on_disk(os.fspath(output))
    if _tables.format_of(path) is not None or _tables.format_of(output) is not None:
        if options.dtype is not None or model != Model():
            raise TypeError("shrink: dtype= and options for models do not apply to tables")
        if isinstance(path, (list, tuple)) and _tables.format_of(path) is None:
            path = several(path)
        said, _ = _tables.shrink_tables(path, output, options.tolerance, table, options.purpose, memory)
    else:
        path = several(path) if isinstance(path, (list, tuple)) else path
        said = shrink_file(path, output, options.tolerance, options.dtype, table, model, options.purpose, memory)
    if not quiet:
        print(said.rstrip())
    return output


