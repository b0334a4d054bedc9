"""JSON lines (or an array of objects) as record batches of pyarrow, with one type for each column.

JSON has no types for times, and no limit for integers. A column gets a type only if that keeps every value: texts become dates or times
if all of them are of one kind, and numbers are floats if no long integer is among them. Everything else is text, as written.
"""

from __future__ import annotations

import codecs
import datetime
import importlib
import io
import json
import os
import re
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

from ._library import Invalid, StowageError, Unsupported, need, shown
from ._library import format_size as size

_BLOCK = 4 << 20
_BLANKS = re.compile(r"[ \t\r\n]*")
_EXACT_INTEGER = 1 << 53  # a float64 holds every integer up to here
_LONG_INTEGER = re.compile(rb"[0-9]{16}")  # no shorter one is above 2^53
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = _DAY + r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
#: Texts of which a column may become dates, times, or times in UTC: what each of them must match.
_FORMS = {"date": _DAY + "$", "time": _TIME + "$", "utc": _TIME + "Z$"}
#: Units of time, and what a text with more digits matches.
_FINER: "Dict[str, Optional[str]]" = {"s": r"\.", "ms": r"\.[0-9]{4}", "us": r"\.[0-9]{7}", "ns": None}
_KINDS: "Dict[type, str]" = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}


class Block(NamedTuple):
    """Whole lines, and where they are in the file: the number of the first one."""

    data: bytes
    first: int
    unit: str  # "line", or "object" in an array


def blocks(path: str, memory: int) -> "Iterator[Block]":
    """Yields whole lines, about `_BLOCK` bytes at a time. The objects of an array become lines."""
    block, first = max(64 << 10, min(_BLOCK, memory // 32)), 1
    with _open_packed(path) as file:
        if file.peek(64)[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[":
            for data in _array_blocks(file, path, block, memory // 8):
                yield Block(data, first, "object")
                first += data.count(b"\n")
            return
        while True:
            data = file.read(block)
            if not data:
                return
            data += file.readline()
            if data.strip():
                yield Block(data, first, "line")
            first += data.count(b"\n")


def _open_packed(path: str) -> Any:
    """Opens a file, decompressed by its ending, with `peek`."""
    ending = os.path.splitext(path)[1].lower()
    if ending == ".zst":
        return io.BufferedReader(need("pyarrow", shown(path)).input_stream(path, compression="zstd"))
    module = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}.get(ending)
    return io.BufferedReader(importlib.import_module(module).open(path)) if module else open(path, "rb")


def _array_blocks(file: Any, path: str, block: int, most: int) -> "Iterator[bytes]":
    """Yields the objects of a JSON array as lines, about `block` bytes at a time. No object may have more than `most` characters.

    >>> list(_array_blocks(io.BytesIO(b'[{"a": 1,\\n "b": "]"} , {}]'), "x", 4, 99))
    [b'{"a": 1,  "b": "]"}\\n', b'{}\\n']
    """
    decode, decoder = codecs.getincrementaldecoder("utf-8-sig")().decode, json.JSONDecoder()
    held, at, expected, lines, number = "", 0, "[", "", 1
    while True:
        at = _BLANKS.match(held, at).end()  # type: ignore[union-attr]
        if at < len(held) and expected == "{" and held[at] == "{":
            try:
                end = decoder.raw_decode(held, at)[1]
            except json.JSONDecodeError as reason:
                if len(held) - at > most:
                    raise Invalid(
                        f"{shown(path)}: object {number}: not JSON ({reason.msg}), or more than {size(most)}; correct it, or raise the memory"
                    ) from None
            else:
                lines += held[at:end].replace("\n", " ").replace("\r", " ") + "\n"
                at, expected, number = end, ",]", number + 1
                if len(lines) >= block:
                    yield lines.encode()
                    lines = ""
                continue
        elif at < len(held):
            if held[at] == "]" and expected != "[":
                break
            if held[at] not in expected:
                raise Invalid(
                    f"{shown(path)}: a JSON array must hold objects, one for each row; found {held[at : at + 20]!r} "
                    f"where object {number} or its end should be"
                )
            at, expected = at + 1, "{"
            continue
        more = file.read(max(block, len(held) - at))
        if not more:
            raise Invalid(
                f"{shown(path)}: object {number} of the JSON array is cut off or not JSON, or the array has no end; "
                "the file may not have been copied whole: get it again"
            )
        held, at = held[at:] + decode(more), 0
    if lines:
        yield lines.encode()


class JsonLines:
    """A file whose columns have types: `schema` and `batches()`. With `times`, texts that are dates or times become such."""

    def __init__(self, path: str, memory: int, times: bool = True) -> None:
        self._path, self._memory = path, memory
        self._casts: "Dict[str, Any]" = {}  # columns that are read as text and become dates or times
        self._literals: "Set[str]" = set()  # columns of numbers that stay as they are written
        self.schema = self._find_schema(times)

    def batches(self) -> "Iterator[Any]":
        import pyarrow

        names = self.schema.names
        text = {name: pyarrow.string() for name in self._casts}
        read = pyarrow.schema([(n, text.get(n, self.schema.field(n).type)) for n in names if n not in self._literals])
        for block in self._blocks():
            table = self._parse(block, read, is_all=not self._literals)
            for name, kind in self._casts.items():
                table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(kind))
            if self._literals:
                rows = [row for _, row in self._rows(block, parse_int=str, parse_float=str)]
                for name in self._literals:
                    table = table.append_column(name, pyarrow.array([row.get(name) for row in rows], pyarrow.string()))
                table = table.select(names)
            yield from table.to_batches()

    def _blocks(self) -> "Iterator[Block]":
        return blocks(self._path, self._memory)

    # -- types --

    def _find_schema(self, times: bool) -> Any:
        """Returns the types of all lines together: a later line may have a fraction, a new name, or another form of time."""
        import pyarrow

        schema: Any = None
        texts: "Dict[str, bool]" = {}  # columns of text: whether they may be dates or times
        most: "Dict[str, float]" = {}  # the largest absolute value of a column of numbers
        for block in self._blocks():
            table = self._parse(block)
            for field in table.schema:
                if texts.get(field.name, True) and not pyarrow.types.is_null(field.type):
                    texts[field.name] = pyarrow.types.is_timestamp(field.type) or _is_time(table[field.name])
                if str(field.type) in ("int64", "double"):
                    most[field.name] = max(most.get(field.name, 0), _largest(table[field.name]))
            found = pyarrow.schema([field.with_type(_without_times(field.type)) for field in table.schema])
            try:
                schema = found if schema is None else pyarrow.unify_schemas([schema, found], promote_options="permissive")
            except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as reason:
                raise self._wrong(block, reason, schema) from None
        if schema is None:
            raise Invalid(f"{shown(self._path)}: the file is empty; write one object on each line, such as {{\"a\": 1}}")
        for name in [n for n in schema.names if str(schema.field(n).type) == "double" and most.get(n, 0) >= _EXACT_INTEGER]:
            schema = schema.set(schema.get_field_index(name), pyarrow.field(name, self._type_of_numbers(name, most[name])))
        self._refuse_rounding(schema)
        for name, kind in self._times([n for n, is_time in texts.items() if is_time] if times else []).items():
            self._casts[name] = kind
            schema = schema.set(schema.get_field_index(name), pyarrow.field(name, kind))
        return schema

    def _type_of_numbers(self, name: str, most: float) -> Any:
        """Returns the type that holds every number of a column exactly: the floats' own, or text if there are long integers."""
        import pyarrow

        if most >= 2**63:
            for kind in (pyarrow.uint64(), pyarrow.decimal128(38, 0)):
                if self._reads(name, kind):
                    return kind
        for block in self._blocks():
            if _LONG_INTEGER.search(block.data):
                for _, row in self._rows(block):
                    value = row.get(name)
                    if isinstance(value, int) and not _is_exact(value):
                        self._literals.add(name)
                        return pyarrow.string()
        return pyarrow.float64()

    def _refuse_rounding(self, schema: Any) -> None:
        """Raises an error if a list or an object holds an integer that its type, a float, rounds: only a whole column can be text."""
        nested = {name: kind for name, kind in zip(schema.names, schema.types) if kind.num_fields and "double" in str(kind)}
        for block in self._blocks() if nested else ():
            for number, row in self._rows(block) if _LONG_INTEGER.search(block.data) else ():
                for name, kind in nested.items():
                    for value in _rounded(row.get(name), kind):
                        raise Invalid(
                            f"{shown(self._path)}: {block.unit} {number}: {shown(name)} holds {value} among numbers with fractions, "
                            "which no float holds exactly; write these numbers as text in quotes"
                        )

    def _reads(self, name: str, kind: Any) -> bool:
        """Returns whether every value of the column is of this type, exactly."""
        import pyarrow

        try:
            for block in self._blocks():
                self._parse(block, pyarrow.schema([(name, kind)]), is_all=False)
        except StowageError:
            return False
        return True

    def _times(self, names: "List[str]") -> "Dict[str, Any]":
        """Returns the type of each of these columns of text whose texts are all dates, all local times, or all times in UTC."""
        import pyarrow
        import pyarrow.compute

        forms = {name: dict.fromkeys(_FORMS, True) for name in names}
        units = dict.fromkeys(names, "s")
        for block in self._blocks() if names else ():
            table = self._parse(block, pyarrow.schema([(name, pyarrow.string()) for name in names]), is_all=False)
            for name in names:
                texts = table[name].drop_null()
                for form in [form for form, holds in forms[name].items() if holds]:
                    forms[name][form] = _all_match(texts, _FORMS[form])
                for unit in list(_FINER)[list(_FINER).index(units[name]) :]:
                    units[name] = unit
                    pattern = _FINER[unit]
                    if pattern is None or not pyarrow.compute.any(pyarrow.compute.match_substring_regex(texts, pattern)).as_py():
                        break
        made = {}
        for name in names:
            found = [form for form, holds in forms[name].items() if holds]
            if found:
                kind = pyarrow.date32() if found == ["date"] else pyarrow.timestamp(units[name], "UTC" if found == ["utc"] else None)
                if self._casts_to(name, kind):
                    made[name] = kind
        return made

    def _casts_to(self, name: str, kind: Any) -> bool:
        """Returns whether every text of the column is in the range of this type of time."""
        import pyarrow

        try:
            for block in self._blocks():
                self._parse(block, pyarrow.schema([(name, pyarrow.string())]), is_all=False)[name].cast(kind)
        except pyarrow.ArrowInvalid:
            return False
        return True

    # -- reading a block --

    def _parse(self, block: Block, schema: Any = None, is_all: bool = True) -> Any:
        """Returns a block as a table in these types, or in those that pyarrow finds. Without `is_all` there may be other columns."""
        import pyarrow
        import pyarrow.json

        reading = pyarrow.json.ReadOptions(use_threads=False, block_size=len(block.data) + 1)
        others = "infer" if schema is None else "error" if is_all else "ignore"
        parsing = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others)
        try:
            return pyarrow.json.read_json(io.BytesIO(block.data), read_options=reading, parse_options=parsing)
        except pyarrow.ArrowInvalid as reason:
            raise self._wrong(block, reason, schema) from None

    def _rows(self, block: Block, **how: Any) -> "Iterator[Tuple[int, Any]]":
        """Yields the number and the value of each line. Raises json.JSONDecodeError or UnicodeDecodeError."""
        for number, line in enumerate(block.data.split(b"\n"), block.first):
            if line.strip():
                yield number, json.loads(line.decode("utf-8-sig"), **how)

    def _wrong(self, block: Block, reason: Exception, schema: Any) -> Invalid:
        """Returns an error that names the line. pyarrow counts from the beginning of the block, and from 0."""
        kinds = dict(_kinds_of_types(schema)) if schema is not None else {}
        for number, line in enumerate(block.data.split(b"\n"), block.first):
            if not line.strip():
                continue
            said, advice = "", "correct or delete this line"
            try:
                row = json.loads(line.decode("utf-8-sig"), object_pairs_hook=_refuse_twice)
            except json.JSONDecodeError as why:
                said = f"not JSON: {why.msg} at character {why.colno}"
            except UnicodeDecodeError:
                said, advice = "not UTF-8", "convert the file to UTF-8"
            except ValueError as why:
                said = str(why)
            else:
                if not isinstance(row, dict):
                    said, advice = f"holds {_KINDS.get(type(row), 'null')}, not an object", 'write each row as an object, such as {"a": 1}'
                for name, kind in _kinds_of_values("", row) if not said else ():
                    before = kinds.setdefault(name, kind)
                    if before != kind and not said:
                        said = f"{shown(name)} is {kind}, and {before} in an earlier {block.unit}"
                        advice = "write all its values as text in quotes, or leave it out"
            if said:
                return Invalid(f"{shown(self._path)}: {block.unit} {number}: {said}; {advice}")
        last = block.first + block.data.count(b"\n")
        text = str(reason).split("\n")[0]
        return Invalid(f"{shown(self._path)}: {block.unit}s {block.first} to {last}: {text}; correct the one that is meant")


def refuse_rounded(path: str, memory: int, floats: "Set[str]") -> None:
    """Raises an error if one of these columns, which polars or DuckDB reads as floats, holds an integer that no float holds."""
    for block in blocks(path, memory) if floats else ():
        if _LONG_INTEGER.search(block.data):
            for number, line in enumerate(block.data.split(b"\n"), block.first):
                row = json.loads(line.decode("utf-8-sig")) if line.strip() else {}
                for name in floats & set(row):
                    if isinstance(row[name], int) and not _is_exact(row[name]):
                        raise Invalid(
                            f"{shown(path)}: {block.unit} {number}: {shown(name)} holds {row[name]} among numbers with fractions, "
                            "which no float holds exactly; write these numbers as text in quotes, or pip install pyarrow"
                        )


def _refuse_twice(pairs: "List[Tuple[str, Any]]") -> "Dict[str, Any]":
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"has {next(shown(name) for name in names if names.count(name) > 1)} twice")
    return found


def _is_exact(value: int) -> bool:
    """Returns whether a float64 holds this integer.

    >>> _is_exact(2**53), _is_exact(2**53 + 1), _is_exact(10**400)
    (True, False, False)
    """
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _rounded(value: Any, kind: Any) -> "Iterator[int]":
    """Yields the integers in a value of this type that become other floats."""
    if isinstance(value, list) and kind.num_fields:
        for inner in value:
            yield from _rounded(inner, kind.value_type)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if kind.get_field_index(name) >= 0:
                yield from _rounded(inner, kind[kind.get_field_index(name)].type)
    elif str(kind) == "double" and isinstance(value, int) and not _is_exact(value):
        yield value


def _is_time(column: Any) -> bool:
    """Returns whether the first text of a column has a form of `_FORMS`; False for other columns."""
    import pyarrow

    texts = column.drop_null() if pyarrow.types.is_string(column.type) else ()
    return len(texts) > 0 and any(re.match(form, texts[0].as_py()) for form in _FORMS.values())


def _largest(column: Any) -> float:
    """Returns the largest absolute value of a column of numbers."""
    import pyarrow.compute

    ends = pyarrow.compute.min_max(column).as_py()
    return max((abs(end) for end in ends.values() if end is not None), default=0)


def _all_match(texts: Any, pattern: str) -> bool:
    import pyarrow.compute

    return pyarrow.compute.all(pyarrow.compute.match_substring_regex(texts, pattern)).as_py() is not False


def _without_times(kind: Any) -> Any:
    """Returns an inferred type with text instead of times."""
    import pyarrow

    if pyarrow.types.is_timestamp(kind):
        return pyarrow.string()
    if pyarrow.types.is_struct(kind):
        return pyarrow.struct([field.with_type(_without_times(field.type)) for field in kind])
    if pyarrow.types.is_list(kind):
        return pyarrow.list_(kind.value_field.with_type(_without_times(kind.value_type)))
    return kind


def _kinds_of_types(fields: "Iterable[Any]", outer: str = "") -> "Iterator[Tuple[str, str]]":
    """Yields what the columns of a schema hold, in the words of `_KINDS`, and what is in them."""
    import pyarrow

    for field in fields:
        name, kind = outer + field.name, field.type
        while pyarrow.types.is_list(kind):
            yield name, _KINDS[list]
            name, kind = name + "[]", kind.value_type
        if pyarrow.types.is_struct(kind):
            yield name, _KINDS[dict]
            yield from _kinds_of_types(kind, name + ".")
        elif not pyarrow.types.is_null(kind):
            is_text, is_truth = pyarrow.types.is_string(kind), pyarrow.types.is_boolean(kind)
            yield name, _KINDS[str if is_text else bool if is_truth else float]


def _kinds_of_values(outer: str, value: Any) -> "Iterator[Tuple[str, str]]":
    """Yields the same of the values of a row.

    >>> list(_kinds_of_values("", {"a": 1, "b": [{"c": "x"}], "d": None}))
    [('a', 'a number'), ('b', 'a list'), ('b[]', 'an object'), ('b[].c', 'text')]
    """
    if outer and value is not None:
        yield outer, _KINDS[type(value)]
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _kinds_of_values(f"{outer}.{name}" if outer else name, inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _kinds_of_values(outer + "[]", inner)


def to_text(value: Any) -> Any:
    """Returns what JSON lacks as text, and a decimal without a fraction as an integer (`json.dumps(default=to_text)`).

    >>> import datetime, decimal
    >>> to_text(decimal.Decimal(10**30)), to_text(decimal.Decimal("1.50")), to_text(datetime.date(2024, 1, 31))
    (1000000000000000000000000000000, '1.50', '2024-01-31')
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise Unsupported("JSON has no bytes; leave their column out with --drop (drop=), or write .parquet")
    if isinstance(value, datetime.timedelta):
        return duration_text(value)
    exponent = value.as_tuple().exponent if hasattr(value, "as_tuple") else None
    if exponent == 0:
        return int(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def duration_text(span: datetime.timedelta) -> str:
    """Returns a duration in ISO 8601, which pandas.to_timedelta reads. pandas' own durations have nanoseconds.

    >>> duration_text(datetime.timedelta(days=1, seconds=3661)), duration_text(-datetime.timedelta(milliseconds=1500))
    ('P1DT1H1M1S', '-P0DT0H0M1.5S')
    """
    nanos = ((span.days * 86400 + span.seconds) * 10**6 + span.microseconds) * 1000 + int(getattr(span, "nanoseconds", 0))
    seconds, rest = divmod(abs(nanos), 10**9)
    fraction = f".{rest:09d}".rstrip("0").rstrip(".")
    return f"{'-' * (nanos < 0)}P{seconds // 86400}DT{seconds // 3600 % 24}H{seconds // 60 % 60}M{seconds % 60}{fraction}S"


def json_line(row: Any) -> str:
    """Returns a row as one line of JSON. NaN becomes null, as pandas and polars write it; infinity has no form that they read.

    >>> json_line({"a": float("nan"), "b": [1.5, None]})
    '{"a": null, "b": [1.5, null]}'
    """
    try:
        return json.dumps(row, ensure_ascii=False, default=to_text, allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(row), ensure_ascii=False, default=to_text, allow_nan=False)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(one) for one in value]
    if isinstance(value, float) and value != value:
        return None
    if value in (float("inf"), float("-inf")):
        raise Unsupported("JSON has no infinity; leave its column out with --drop (drop=), or write .parquet")
    return value
