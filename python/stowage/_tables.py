"""Parquet, Arrow IPC (Feather) and JSON lines, read and written by the user's pyarrow, polars or DuckDB, batch by batch.

`reader()` gives a table that can be read any number of times; `write()` writes one. Neither holds more than a few batches when
pyarrow is installed. polars and DuckDB hold the table, so a file larger than the budget needs pyarrow.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import functools
import glob
import importlib
import importlib.util
import io
import itertools
import json
import os
import re
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from ._arrow import Column, Passed, Plan, Renamed, frames_of_file, relayed, stream_of
from ._arrow_types import distinct_names, numpy_of, plain_batch, plain_schema, record_batches
from ._column_texts import Counted, TextColumns
from ._files import Inspection, Table, Text, read_purpose, shrink_file
from ._json_lines import JsonLines, blocks, json_line, refuse_rounded
from ._library import Invalid, Missing, NotFound, StowageError, Unreadable, Unsupported, counted, parse_budget, shown
from ._library import format_size as size
from ._newfile import beside, partial_name
from ._parquet_schema import KEY, durations
from ._sizes import Sample
from ._table_npz import note_members, npz_bytes, write_npz
from . import _show

#: Formats by the ending of a file.
_ENDINGS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "arrow",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_PACKED = (".gz", ".bz2", ".xz", ".zst")  # endings of compressed JSON, which is only read
_MEMORY = 256 << 20
_SAMPLE_ROWS = 20000
_SLACK_BYTES = 64 << 10  # about a footer with statistics: a file that grows by less does not count as larger
_CODE_BYTES = 4  # per row: a column of a Parquet file that takes more has texts beside its codes
PACKAGES = ("pyarrow", "polars", "duckdb")


def format_of(path: Any) -> "Optional[str]":
    """Returns "parquet", "arrow" or "jsonl" by the ending of a path; None for anything else.

    >>> format_of("a/B.Parquet"), format_of("x.csv"), format_of("x.json"), format_of("x.ndjson.gz"), format_of("x.csv.gz")
    ('parquet', None, 'jsonl', 'jsonl', None)
    >>> format_of("model.safetensors.index.json")
    """
    if isinstance(path, (list, tuple)) and path:  # the files of one table
        kinds = {format_of(one) for one in path}
        return kinds.pop() if len(kinds) == 1 else None
    if not isinstance(path, (str, os.PathLike)):
        return None
    name = os.fspath(path).lower()
    rest, ending = os.path.splitext(name)
    if ending in _PACKED:
        return "jsonl" if format_of(rest) == "jsonl" else None
    if ending == ".json":  # lines or an array; the index of a model is neither
        return None if rest.endswith(".index") else "jsonl"
    return _ENDINGS.get(ending)


def _package(what: str, *names: str) -> "Tuple[str, Any]":
    """Imports the first of the packages that is installed."""
    for name in names or PACKAGES:
        with contextlib.suppress(ImportError):
            return name, importlib.import_module(name)
    first = (names or PACKAGES)[0]
    others = f" (or {' or '.join(names[1:] if names else PACKAGES[1:])})" if len(names or PACKAGES) > 1 else ""
    raise Missing(f"{shown(what)}: this format needs {first}{others}: pip install {first}")


# ---- reading ----


class TableFile:
    """A file as a table: `batches()` yields record batches, `__arrow_c_stream__` gives them to other packages, each time from the start."""

    def __init__(
        self, path: str, memory: int, columns: "Sequence[str]" = (), drop: "Sequence[str]" = (), times: bool = True
    ) -> None:
        if not os.path.exists(path):
            if re.match(r"https?://", path, re.IGNORECASE):
                raise Unsupported(
                    f"{shown(path)}: Parquet, Arrow and JSON lines are read from a disk; download the file first (curl -LO), or read it "
                    "with pyarrow or polars and give the table"
                )
            raise NotFound(f"{shown(path)}: cannot open: No such file or directory; check the path")
        self.path, self.memory, self.format, self._times = path, memory, format_of(path), times
        self._package, self._module = _package(path)
        self._schema: Any = None
        self.rows = 0  # where the file says how many it has
        self._is_renamed = False  # columns had one name
        self._picked: "Optional[List[str]]" = None
        self.coded: "List[str]" = []  # columns of text that are read as codes and a dictionary
        if self._package == "pyarrow":
            self._open_pyarrow()
            names = list(self._schema.names)
        else:
            self._whole = self._read_whole()
            names = list(self._whole.columns)
        self.columns = _pick(path, names, columns, drop)
        if self.columns != names:
            self._picked = self.columns
        if self._package == "duckdb" and self.format == "parquet":
            self._refuse_durations()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        if self._package == "pyarrow":
            import pyarrow

            schema = self._schema
            if self._picked is not None:
                schema = pyarrow.schema([schema.field(name) for name in self._picked], schema.metadata)
            return stream_of(schema, self.batches())
        whole = self._whole
        if self._picked is not None:
            whole = whole.select(self._picked) if self._package == "polars" else whole.project(*[f'"{n}"' for n in self._picked])
        return whole.__arrow_c_stream__()

    # -- with pyarrow: a few batches at a time --

    def read_codes(self) -> None:
        """Reads texts that a Parquet file stores as codes in that form from now on: much faster if nobody needs each text."""
        if self._package != "pyarrow" or self.format != "parquet" or type(self) is not TableFile or self._is_renamed:
            return
        import pyarrow.parquet

        texts = {name for name in self._schema.names if str(self._schema.field(name).type) in ("string", "large_string")}
        with pyarrow.parquet.ParquetFile(self.path) as file:
            groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        for number in range(groups[0].num_columns if groups else 0):
            chunks = [group.column(number) for group in groups]
            stored = sum(one.total_uncompressed_size for one in chunks)
            is_coded = all(one.has_dictionary_page for one in chunks) and stored <= _CODE_BYTES * sum(one.num_values for one in chunks)
            if is_coded and chunks[0].path_in_schema in texts:
                self.coded.append(chunks[0].path_in_schema)
        with pyarrow.parquet.ParquetFile(self.path, read_dictionary=self.coded) as file:
            self._schema = file.schema_arrow

    def _open_pyarrow(self) -> None:
        import pyarrow

        with self._named(f"not a {self.format} file"):
            if self.format == "parquet":
                import pyarrow.parquet

                with pyarrow.parquet.ParquetFile(self.path) as file:
                    self._schema, self.rows = file.schema_arrow, file.metadata.num_rows
            elif self.format == "arrow":
                with self._ipc() as reader:
                    self._schema = plain_schema(reader.schema)
            else:
                self._lines = JsonLines(self.path, self.memory, self._times)
                self._schema = self._lines.schema
        names = distinct_names(self._schema.names)
        if names != self._schema.names:
            self._is_renamed = True
            fields = [field.with_name(name) for field, name in zip(self._schema, names)]
            self._schema = pyarrow.schema(fields, self._schema.metadata)

    @contextlib.contextmanager
    def _named(self, said: str) -> "Iterator[None]":
        """Adds the name of the file to errors of pyarrow, which ends some with a traceback."""
        import pyarrow

        try:
            yield
        except pyarrow.lib.ArrowMemoryError:
            raise
        except (pyarrow.lib.ArrowException, OSError) as reason:
            if isinstance(reason, StowageError):
                raise
            made = Unreadable(
                f"{shown(self.path)}: {said}: {str(reason).split(chr(10))[0]}; it may be damaged or not complete: get or make it again"
            )
            made.malformed = not isinstance(reason, OSError)
            raise made from None

    def batches(self) -> "Iterator[Any]":
        """Yields pyarrow record batches of the selected columns."""
        import pyarrow

        with self._named("cannot read"):
            for batch in {"parquet": self._parquet, "arrow": self._arrow, "jsonl": self._json}[self.format or ""]():
                if self._is_renamed:
                    batch = pyarrow.RecordBatch.from_arrays(batch.columns, schema=self._schema)
                if self._picked is not None and batch.schema.names != self._picked:
                    batch = batch.select(self._picked)
                yield batch

    def _json(self) -> "Iterator[Any]":
        return self._lines.batches()

    def _parquet(self) -> "Iterator[Any]":
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(self.path, buffer_size=64 << 10, pre_buffer=False, read_dictionary=self.coded) as file:
            facts = file.metadata
            stored = sum(facts.row_group(n).total_byte_size for n in range(facts.num_row_groups))
            row = max(1, stored // max(1, facts.num_rows)) * 2  # unpacked: about twice
            rows = max(1, min(1 << 16, self.memory // 16 // row))
            columns = None if self._is_renamed else self._picked
            yield from file.iter_batches(batch_size=rows, columns=columns, use_threads=False)

    @contextlib.contextmanager
    def _ipc(self) -> "Iterator[Any]":
        import pyarrow

        with pyarrow.OSFile(self.path) as file:
            if file.read(6) == b"ARROW1":
                file.seek(0)
                yield pyarrow.ipc.open_file(file)
            else:
                file.seek(0)
                yield pyarrow.ipc.open_stream(file)

    def _arrow(self) -> "Iterator[Any]":
        with self._ipc() as reader:
            if hasattr(reader, "num_record_batches"):
                for number in range(reader.num_record_batches):
                    yield plain_batch(reader.get_batch(number), self._schema)
            else:
                for batch in reader:
                    yield plain_batch(batch, self._schema)

    # -- with polars or DuckDB: the whole table, if it fits --

    def _read_whole(self) -> Any:
        stored = os.path.getsize(self.path)
        if stored * 4 > self.memory:
            raise Unsupported(
                f"{shown(self.path)}: {size(stored)} may not fit the budget of {size(self.memory)} in {self._package}, "
                "which reads a file as a whole: pip install pyarrow, or raise the memory"
            )
        kind = {"parquet": "parquet", "arrow": "ipc", "jsonl": "ndjson"}[self.format or ""]
        if self._package == "duckdb" and kind == "ipc":
            raise Missing(f"{shown(self.path)}: DuckDB does not read Arrow files: pip install pyarrow")
        try:
            if self._package == "polars":
                source: Any = io.BytesIO(b"".join(one.data for one in blocks(self.path, self.memory))) if kind == "ndjson" else self.path
                whole = getattr(self._module, f"read_{kind}")(source)
            else:
                whole = self._module.read_parquet(self.path) if kind == "parquet" else self._module.read_json(self.path)
        except Exception as reason:
            if not is_of_package(reason):
                raise
            raise Unreadable(f"{shown(self.path)}: {self._package} cannot read it: {str(reason).split(chr(10))[0]}; try pip install pyarrow") from None
        if kind == "ndjson":
            types = dict(zip(whole.columns, (str(one) for one in (whole.dtypes if self._package == "polars" else whole.types))))
            refuse_rounded(self.path, self.memory, {name for name, type in types.items() if type.upper() in ("FLOAT64", "DOUBLE")})
        return whole

    def _refuse_durations(self) -> None:
        """Rejects durations in a Parquet file that DuckDB reads: it takes them for integers."""
        query = "select value from parquet_kv_metadata(?) where key = ?"
        for (stored,) in self._module.execute(query, [self.path, KEY]).fetchall():
            found = [name for name in durations(stored) if name in self.columns]
            if found:
                raise Unsupported(
                    f"{shown(self.path)}: DuckDB reads the durations of {', '.join(found)} as integers: pip install pyarrow, "
                    "or leave them out with --drop (drop=)"
                )


def is_of_package(reason: BaseException) -> bool:
    """Returns whether a package that reads and writes files raised this."""
    return type(reason).__module__.split(".")[0].lstrip("_") in PACKAGES


class TableFiles(TableFile):
    """Several files of one table, in order: the rows of each follow those of the one before."""

    def __init__(
        self, paths: "List[str]", memory: int, columns: "Sequence[str]" = (), drop: "Sequence[str]" = (), times: bool = True
    ) -> None:
        pyarrow = _package(paths[0], "pyarrow")[1]
        self._parts = [TableFile(path, memory, times=times) for path in paths]
        self.path, self.memory, self.format, self._package = f"{len(paths)} files", memory, self._parts[0].format, "pyarrow"
        self._schema, self._picked, self.coded = self._parts[0]._schema, None, []
        self.rows = sum(part.rows for part in self._parts)
        for part in self._parts[1:]:
            if set(part.columns) != set(self._schema.names):
                odd = sorted(set(part.columns) ^ set(self._schema.names))
                raise Invalid(f"{shown(part.path)}: its columns differ from those of {shown(paths[0])}: {', '.join(odd[:8])}")
            try:
                self._schema = pyarrow.unify_schemas([self._schema, part._schema], promote_options="permissive")
            except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as reason:
                raise Invalid(f"{shown(part.path)}: its types do not fit those of {shown(paths[0])}: {reason}") from None
        self.columns = _pick(paths[0], list(self._schema.names), columns, drop)
        if self.columns != list(self._schema.names):
            self._picked = self.columns
            for part in self._parts:
                part._picked = self.columns

    def batches(self) -> "Iterator[Any]":
        import pyarrow

        names = self._picked or self._schema.names
        schema = pyarrow.schema([self._schema.field(name) for name in names], self._schema.metadata)
        for part in self._parts:
            for batch in part.batches():
                batch = batch.select(names)
                yield pyarrow.RecordBatch.from_arrays([one.cast(to.type) for one, to in zip(batch.columns, schema)], schema=schema)


def open_tables(
    given: Any, memory: int, columns: "Sequence[str]" = (), drop: "Sequence[str]" = (), times: bool = True
) -> TableFile:
    """Opens a file, a pattern ("part-*.parquet", sorted by name) or a list of files as one table. With `times`, texts of JSON that are
    dates or times become such."""
    paths = paths_of(given)
    if len(paths) == 1:
        return TableFile(paths[0], memory, columns, drop, times)
    return TableFiles(paths, memory, columns, drop, times)


def paths_of(given: Any) -> "List[str]":
    """Returns the files that a path, a pattern or a list names."""
    if isinstance(given, (list, tuple)):
        return [path for one in given for path in paths_of(one)]
    path = os.fspath(given)
    if os.path.exists(path) or not glob.has_magic(path):
        return [path]
    found = sorted(glob.glob(path))
    if not found:
        raise NotFound(f"{shown(path)}: no file matches this name")
    return found


def _pick(path: str, names: "List[str]", columns: "Sequence[str]", drop: "Sequence[str]") -> "List[str]":
    if not names:
        raise Invalid(f"{shown(path)}: the table has no columns")
    wanted = [name for each in columns for name in ([each] if each in names else each.split(","))]
    dropped = [name for each in drop for name in ([each] if each in names else each.split(","))]
    for name in [*wanted, *dropped]:
        if name not in names:
            raise Invalid(f"{shown(path)}: no column {name!r}; there are {', '.join(names[:20])}")
    left = [name for name in names if (not wanted or name in wanted) and name not in dropped]
    if not left:
        raise Invalid(f"{shown(path)}: no column is left; drop fewer columns")
    return left


# ---- writing ----


def _grouped(reader: Any, most: int) -> "Iterator[Any]":
    """Yields tables of about `most` bytes, so that a row group of a Parquet file is worth the name."""
    import pyarrow

    held: "List[Any]" = []
    held_bytes = 0
    for batch in reader:
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= most:
            yield pyarrow.Table.from_batches(held, reader.schema)
            held, held_bytes = [], 0
    if held:
        yield pyarrow.Table.from_batches(held, reader.schema)


def _repeats(column: Any) -> bool:
    """Returns whether a dictionary makes a column smaller. One of values that do not repeat takes memory and saves nothing."""
    import numpy
    import pyarrow

    kinds = pyarrow.types
    if not any(is_kind(column.type) for is_kind in (kinds.is_floating, kinds.is_integer, kinds.is_string, kinds.is_large_string)):
        return True
    some = column.slice(0, _SAMPLE_ROWS)
    values: "Set[Any]" = set()
    for chunk in some.chunks:
        if kinds.is_string(column.type) or kinds.is_large_string(column.type):
            values.update(chunk.to_pylist())
        elif len(chunk) > 0:
            values.update(numpy.unique(numpy_of(chunk)).tolist())
    return 0 < len(values) - (some.null_count > 0) <= len(some) // 2


def _write_pyarrow(frames: Any, file: Any, kind: str, memory: int, repeated: "Optional[List[str]]" = None) -> None:
    """Writes a table to a path, or to a file object. `repeated` are the columns that get a dictionary in Parquet; None: look at them."""
    import pyarrow

    reader = record_batches(frames)
    most = min(64 << 20, memory // 16)
    if kind == "parquet":
        import pyarrow.parquet

        groups = _grouped(reader, most)
        first = next(groups, None)
        if repeated is None:
            repeated = [name for name in reader.schema.names if first is None or _repeats(first.column(name))]
        with pyarrow.parquet.ParquetWriter(file, reader.schema, compression="zstd", use_dictionary=repeated or False) as writer:
            for table in itertools.chain([] if first is None else [first], groups):
                writer.write_table(table, row_group_size=max(1, table.num_rows))
    elif kind == "arrow":
        options = pyarrow.ipc.IpcWriteOptions(compression="lz4", unify_dictionaries=False)
        with contextlib.ExitStack() as stack:
            sink = stack.enter_context(pyarrow.OSFile(file, "wb")) if isinstance(file, str) else file
            writer = stack.enter_context(pyarrow.ipc.new_file(sink, reader.schema, options=options))
            for table in _grouped(reader, min(most, 8 << 20)):
                for batch in table.combine_chunks().to_batches():
                    writer.write_batch(batch)
    else:
        fd = os.open(file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)  # made by beside
        with open(fd, "w", encoding="utf-8") as text:
            for batch in reader:
                for row in batch.to_pylist():
                    text.write(json_line(row) + "\n")


def write(frames: Any, path: str, memory: int, most: Optional[int] = None) -> None:
    """Writes a table; the file appears when it is complete. One of more than `most` bytes is an error."""
    kind = format_of(path) or ""
    package, module = _package(path)
    with beside(path) as made:
        if package == "pyarrow":
            _write_pyarrow(frames, made, kind, memory)
        elif package == "polars":
            frame = module.DataFrame(frames)
            getattr(frame, {"parquet": "write_parquet", "arrow": "write_ipc", "jsonl": "write_ndjson"}[kind])(made)
        elif kind == "arrow":
            raise Missing(f"{shown(path)}: DuckDB does not write Arrow files: pip install pyarrow")
        else:
            with module.connect() as database:
                database.register("frames", frames)
                database.execute(f"copy frames to '{made}' (format {'parquet' if kind == 'parquet' else 'json'})")
        if most is not None and os.path.getsize(made) > most + _SLACK_BYTES:
            raise Invalid(
                f"{shown(path)}: would have {size(os.path.getsize(made))}, more than the {size(most)} of the input; "
                "write it with --force (force=True)"
            )


# ---- inspect and shrink ----

#: Arrow's formats in words.
_WORDS = {"u": "text", "U": "text", "vu": "text", "z": "bytes", "Z": "bytes", "b": "bool", "n": "null", "tdD": "date", "tdm": "date",
          "+s": "struct", "+m": "map"}


def word(column: Column) -> str:
    """Returns the type of a column in words."""
    kind = column.from_type
    if column.scanned:
        return kind
    times = {"ts": "datetime", "tt": "time", "tD": "duration"}
    if kind[:2] in times:
        return times[kind[:2]]
    if kind.startswith(("w:", "vz")):
        return "bytes"
    return _WORDS.get(kind) or ("decimal" if kind.startswith("d:") else "list" if kind.startswith("+") else "dictionary" if len(kind) == 1 else kind)


def is_unknown(column: Column) -> bool:
    """Returns whether nobody counted the bytes of a column: unions and views of lists."""
    return not column.scanned and column.bytes == 0 and column.rows > 0 and column.from_type != "n"


def column_lines(columns: "List[Column]") -> str:
    """Returns the report of a plan as a table."""
    rows = [("", "is", "could be", "nulls", "least", "most", "bytes", "after", "")]
    for one in columns:
        known = one.scanned and one.least <= one.most
        said = f"off by at most {one.error:.3g}" if one.error else ""
        least, most = (f"{one.least:g}", f"{one.most:g}") if known else ("", "")
        small = one.to_type if one.scanned else word(one)
        taken = ("-", "-") if is_unknown(one) else (size(one.bytes), size(one.bytes_after))
        rows.append((one.name, word(one), small, str(one.nulls or ""), least, most, *taken, said))
    return _show.text_table(rows, right=[3, 4, 5, 6, 7], indent=0)


def _report(name: str, kind: str, plan: Plan) -> "Tuple[str, Dict[str, Any]]":
    before, after = sum(one.bytes for one in plan.columns), sum(one.bytes_after for one in plan.columns)
    head = f"{name}: {counted(plan.rows, 'row')} of {counted(len(plan.columns), 'column')}, {kind}"
    least = "at least " if any(map(is_unknown, plan.columns)) else ""
    foot = f"{least}{size(before)} in memory, {least}{size(after)} in the smallest types"
    columns = []
    for one in plan.columns:
        facts: "Dict[str, Any]" = {"name": one.name, "dtype": word(one), "smallest": one.to_type if one.scanned else word(one)}
        known_bytes = (None, None) if is_unknown(one) else (one.bytes, one.bytes_after)
        facts.update(rows=one.rows, missing=one.nulls, bytes=known_bytes[0], bytes_after=known_bytes[1])
        if one.scanned:
            known = one.least <= one.most and all(abs(x) != float("inf") for x in (one.least, one.most))
            facts.update(nans=one.nans, infs=one.infs, zeros=one.zeros)
            facts.update(least=one.least if known else None, most=one.most if known else None)
        columns.append(facts)
    data = {"file": name, "format": kind, "rows": plan.rows, "bytes": before, "bytes_after": after, "columns": columns}
    if least:
        data["bytes_at_least"] = True
    return "\n".join([head, column_lines(plan.columns), foot]), data


def _refuse_for_json(output: str, plan: Plan) -> None:
    """Rejects what JSON has no form for: bytes, which would come back as texts, and infinities."""
    for what, found in (
        ("bytes", [one.name for one in plan.columns if word(one) == "bytes"]),
        ("infinity", [one.name for one in plan.columns if one.infs > 0]),
    ):
        if found:
            columns = f"column{'s' * (len(found) > 1)} {', '.join(found[:8])}"
            raise Unsupported(f"{shown(output)}: JSON has no {what} ({columns}); leave out with --drop (drop=), or write .parquet")


def _estimated(sample: Sample, plan: Plan, kind: str, memory: int, coded: "Sequence[str]" = ()) -> int:
    """Returns about the size of the table in a compressed format. `coded` are columns of text that were read as codes."""
    import pyarrow

    schema = record_batches(plan.apply(sample.empty())).schema  # the plan casts whole tables only
    for name in coded:  # the dictionary of a piece has words of all rows
        schema = schema.set(schema.get_field_index(name), pyarrow.field(name, schema.field(name).type.value_type))

    found: "List[int]" = []

    def write_part(part: Any, columns: "List[int]", is_main: bool, file: Any) -> None:
        types = pyarrow.schema([schema.field(number) for number in columns], schema.metadata if is_main else None)
        repeated = [schema.names[number] for number in columns if number in found] if len(columns) < len(schema) else None
        _write_pyarrow(part.cast(types, safe=False), file, kind, memory, repeated)

    def with_dictionaries(part: Any) -> "List[int]":
        if kind == "parquet":
            found.extend(at for at, one in enumerate(part.columns) if _repeats(one))
        else:
            found.extend(at for at, one in enumerate(schema) if pyarrow.types.is_dictionary(one.type))
        return found

    return sample.bytes(write_part, with_dictionaries)


def _refusing_depth(work: "Callable[..., Any]") -> "Callable[..., Any]":
    """Makes values that are nested more deeply than Python recurses an error of the file."""

    @functools.wraps(work)
    def refusing(thing: Any, *rest: Any, **more: Any) -> Any:
        try:
            return work(thing, *rest, **more)
        except RecursionError:
            name = shown(os.fspath(thing)) if isinstance(thing, (str, os.PathLike)) else "the table"
            raise Invalid(f"{name}: lists or objects are nested too deeply for a table; flatten them first") from None

    return refusing


@_refusing_depth
def inspect_table(thing: Any, memory: "str | int | None" = None, purpose: str = "arithmetic") -> Inspection:
    """What a Parquet, Arrow or JSON lines file, or a table in memory, holds and what it could take."""
    if not isinstance(thing, (str, os.PathLike, list, tuple)):
        kind = f"{type(thing).__module__.partition('.')[0]} {type(thing).__name__}"
        return Inspection(*_report("table", kind, Plan(thing, None, read_purpose(purpose))))
    budget = _budget(memory)
    table = open_tables(thing, budget)
    texts = TextColumns(budget // 8)
    sample = _sample(Counted(table, texts), budget)
    if sample is not None:
        sample.expect(table.rows)
        table.read_codes()
    with relayed():
        plan = Plan(sample or table, None, read_purpose(purpose))
    _call_text(plan, table, texts)
    text, data = _report(shown(table.path), str(table.format), plan)
    if sample is not None:
        npz, parquet, feather = npz_bytes(sample, plan, texts), *(_estimated(sample, plan, kind, budget, table.coded) for kind in ("parquet", "arrow"))
        data.update(npz_bytes=npz, parquet_bytes_estimate=parquet, feather_bytes_estimate=feather)
        text += f"; about {size(parquet)} as .parquet, {size(feather)} as .feather" + (f", {size(npz)} as .npz" if npz else "")
    return Inspection(text, data)


def _call_text(plan: Plan, table: TableFile, texts: TextColumns) -> None:
    """Makes the columns of text that were read as codes columns of text in the plan."""
    for at, one in enumerate(plan.columns):
        if one.name in table.coded:
            stored = texts[one.name].bytes + one.rows * 4
            plan.columns[at] = one._replace(from_type="u", to_type="u", bytes=stored, bytes_after=stored)


def _sample(table: Any, budget: int) -> "Optional[Sample]":
    """Returns the table such that its size on disk can be estimated; None without pyarrow."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        return None
    return Sample(table, min(32 << 20, budget // 8))  # one to two row groups, because each has its own dictionaries


def _budget(memory: "str | int | None") -> int:
    return parse_budget(memory) if memory is not None else _MEMORY


def _passed(frames: Any) -> Any:
    """Returns the table so that handlers of signals run while the library reads it; without pyarrow, as it is."""
    return frames if importlib.util.find_spec("pyarrow") is None else Passed(frames)


def _renamed(frames: Any, members: "Dict[str, str]") -> Any:
    """Gives the columns of an npz the names that they have in their table. Of those that share one, each keeps that of its member."""
    taken = collections.Counter(members.values())
    names = {member: name if taken[name] == 1 else member for member, name in members.items()}
    if all(member == name for member, name in names.items()):
        return frames
    if importlib.util.find_spec("pyarrow") is not None:
        return Renamed(frames, names)
    return _package("names of columns", "polars")[1].DataFrame(frames).rename(names)


def _files_of(path: str) -> "List[str]":
    """Returns the files that a name for the library stands for: several lines, patterns, members ("data.zip:trips.csv")."""
    found = []
    for line in path.split("\n"):
        for name in [line, *(line[: one.start()] for one in re.finditer(":", line))]:
            found += [name] if os.path.exists(name) else glob.glob(name)
    return found


def _refuse_input(output: str, names: "List[str]") -> None:
    """Rejects an output that is one of the inputs, under any name."""
    for name in names:
        with contextlib.suppress(OSError):
            if os.path.samefile(name, output):
                raise Invalid(f"{shown(output)}: the output is the file being read; name another output")


@contextlib.contextmanager
def _as_npz(path: str, output: str) -> "Iterator[str]":
    """Yields a name beside the output for the npz of a table that only the library reads. Errors name the table; nothing is left."""
    whole = partial_name(output, ".npz")
    try:
        yield whole
    except StowageError as reason:
        text = str(reason)
        text = text.replace(shown(whole), shown(output if ": cannot write" in text else path))
        if "of 0 dimensions" in text or "no Arrow type" in text:
            text += "; leave it out with --drop (drop=), or write .npz"
        raise type(reason)(text, reason.status) from None
    finally:
        for name in glob.glob(glob.escape(whole) + "*"):
            with contextlib.suppress(OSError):
                os.unlink(name)


@contextlib.contextmanager
def _disk_errors(path: str) -> "Iterator[None]":
    """Names the file if the disk is full. Some packages say so only in a text."""
    try:
        yield
    except Exception as reason:
        is_full = getattr(reason, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(reason)
        if isinstance(reason, StowageError) or not is_full:
            raise
        raise Unreadable(f"{shown(path)}: the disk is full; free disk space, or write elsewhere") from None


@_refusing_depth
def shrink_tables(
    path: Any,
    output: str,
    tolerance: "Optional[Tuple[float, bool]]",
    table: Table,
    purpose: str,
    memory: "str | int | None",
    dry_run: bool = False,
) -> "Tuple[str, Dict[str, Any]]":
    """Writes a table in the smallest types if one of the two files is Parquet, Arrow or JSON lines. Returns the report."""
    budget = _budget(memory)
    target = format_of(output)
    if target is None and not output.endswith(".npz"):
        raise Invalid(f"{shown(output)}: a {format_of(path)} table can be written as .parquet, .feather, .arrow, .jsonl or .npz")
    if target == "jsonl" and not output.lower().endswith((".jsonl", ".ndjson")):
        raise Invalid(f"{shown(output)}: JSON is written as lines, in a file that ends with .jsonl")
    if target is not None:
        _package(output)
    if not os.path.isdir(os.path.dirname(output) or "."):
        raise NotFound(f"{shown(output)}: no such folder")
    names = paths_of(path) if format_of(path) is not None else _files_of(path)
    _refuse_input(output, names)
    kind = format_of(path) or "table"
    expected: "Optional[int]" = None
    with contextlib.ExitStack() as stack:
        stack.enter_context(relayed())
        given: Any
        if format_of(path) is not None:
            if table.names is not None or table.text != Text():
                raise Invalid(f"{shown(path)}: names and how text is written are for text tables; this file says it itself")
            given = open_tables(path, budget, table.columns, table.drop, times=target != "jsonl")
            path = given.path
        elif path.endswith((".npz", ".npy")) or ".npz:" in path:
            if table.columns or table.drop:
                raise Invalid(f"{shown(path)}: columns and drop are for tables as text, Parquet or Arrow")
            given = _passed(frames_of_file(path, budget // 16))
        else:
            whole = stack.enter_context(_as_npz(path, output))
            members: "Dict[str, str]" = {}
            shrink_file(path, whole, tolerance, None, table._replace(force=True), purpose=purpose, memory=budget, members=members)
            given, tolerance = _renamed(_passed(frames_of_file(whole, budget // 16)), members), None
        texts = TextColumns(budget // 8)
        counted = given
        if target is None:
            _package(output, "pyarrow")
            given.read_codes()
            counted = Counted(given, texts)
        sample = _sample(counted, budget) if dry_run else None
        plan = Plan(sample or counted, tolerance, read_purpose(purpose))
        if target is None:
            _call_text(plan, given, texts)
        if sample is not None:
            expected = npz_bytes(sample, plan, texts) if target is None else _estimated(sample, plan, target, budget) if target != "jsonl" else None
        if target == "jsonl":
            _refuse_for_json(output, plan)
        if not dry_run:
            made = plan.apply(given)
            with _disk_errors(output):
                if target is None:
                    write_npz(made, plan.columns, texts, output)
                else:
                    # The same format must not grow. Others are compressed in another way, or not at all.
                    same = target == kind and not table.force
                    write(made, output, budget, sum(os.path.getsize(name) for name in names) if same else None)
    if "\n" in path:  # several text tables
        listed = path.split("\n")
        path = f"{listed[0]} and {counted(len(listed) - 1, 'more file')}"
    text, data = _report(shown(path), kind, plan)
    if target is None:
        text += note_members([column.name for column in plan.columns], texts)
    stored = sum(os.path.getsize(name) for name in names if os.path.exists(name))
    if expected is not None:
        about = "about " if target is not None else ""
        text += f"\n{shown(output)}: {about}{size(expected)} on disk, {size(stored)} before"
        data.update(file_bytes=stored, file_bytes_after=expected, estimate=target is not None)
    if not dry_run:
        now = os.path.getsize(output)
        text += f"\n{shown(output)}: {size(now)} on disk, {size(stored)} before"
        data.update(output=shown(output), file_bytes=stored, file_bytes_after=now)
    return text, data
