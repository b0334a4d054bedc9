"""`inspect()`: what a data file or a table in memory holds."""

from __future__ import annotations

import os
from typing import Any, Optional, Union

from ._array import several
from ._arrow import has_stream
from ._files import Inspection, Text, inspect_file, read_text
from ._store import on_disk
from ._tables import format_of, inspect_table


def inspect(
    path: "Union[str, os.PathLike[str], Any]",
    *,
    dtype: "Optional[str]" = None,
    names: "Optional[str]" = None,
    memory: "str | int | None" = None,
    purpose: str = "arithmetic",
    **text: Any,
) -> Inspection:
    """Returns what a data file or URL holds, what it takes in memory and what it could take; never holds the whole file.

    A pattern ("part-*.csv") or a list of files is one table, or one array: their rows follow one another.

    `dtype`: the file is raw values of this type. `names`: whether the first row of a table names its columns ("yes", "no",
    "auto"). `memory` is the most to hold. `purpose` is as in `shrink`. Parquet, Arrow (Feather) and JSON lines are read by pyarrow,
    polars or DuckDB, whichever is installed. A table in memory that has `__arrow_c_stream__` (pandas 2.2, polars, pyarrow, DuckDB) may
    be given instead of a path.

    The format of a text table can be set with `delimiter`, `decimal`, `comment`, `skip` (lines), `encoding`, `na` (words for
    missing
    values) and `types` ({"zip": "text"}), as in `shrink`.

    >>> inspect("nowhere.npy")
    Traceback (most recent call last):
        ...
    stowage._library.NotFound: nowhere.npy: cannot open: No such file or directory; check the path
    """
    said, path = read_text("inspect", text), on_disk(path)
    if format_of(path) is not None or has_stream(path):
        if dtype is not None or names is not None or said != Text():
            raise TypeError("inspect: dtype=, names= and how text is written are for raw values and text tables")
        return inspect_table(path, memory, purpose)
    if isinstance(path, (list, tuple)):
        path = several(path)
    return inspect_file(path, dtype, names, memory, purpose, said)
