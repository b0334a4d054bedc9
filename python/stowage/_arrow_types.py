"""Types and arrays of Arrow: which are text, which not every reader knows, and names of columns that are there twice."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Iterable, List


def is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def is_coded_text(kind: Any) -> bool:
    """Returns whether a type is text as codes and a dictionary."""
    import pyarrow

    return pyarrow.types.is_dictionary(kind) and is_text(kind.value_type)


# Many functions of pyarrow import pandas if they are given a value, a list or a NumPy array, or return one. That takes longer than the rest
# of most tables, so what they take and return here are arrays of pyarrow.


def arrow_of(numbers: Any) -> Any:
    """Returns a NumPy array as one of pyarrow, without a copy."""
    import pyarrow

    return pyarrow.Array.from_buffers(pyarrow.from_numpy_dtype(numbers.dtype), len(numbers), [None, pyarrow.py_buffer(numbers)])


def numpy_of(array: Any) -> Any:
    """Returns an array of numbers or booleans without nulls as one of NumPy."""
    import numpy
    import pyarrow

    if pyarrow.types.is_boolean(array.type):
        return numpy_of(array.cast(pyarrow.uint8())).view(bool)
    kind = numpy.dtype(array.type.to_pandas_dtype())
    if len(array) == 0:
        return numpy.empty(0, kind)
    return numpy.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)


def filled(array: Any, value: Any) -> Any:
    """Returns an array of numbers with `value` for nulls."""
    import numpy

    if array.null_count == 0:
        return array
    return array.fill_null(arrow_of(numpy.array([value], array.type.to_pandas_dtype()))[0])


def record_batches(frames: Any) -> Any:
    import pyarrow

    reader = pyarrow.RecordBatchReader.from_stream(frames)
    schema = plain_schema(reader.schema)
    if schema.equals(reader.schema):
        return reader
    return pyarrow.RecordBatchReader.from_batches(schema, (plain_batch(batch, schema) for batch in reader))


def without_views(kind: Any) -> Any:
    """Returns an Arrow type with large_string and large_binary instead of string_view and binary_view, which polars writes: pyarrow
    writes them to no Parquet file if they are nested, and decodes no dictionary of them."""
    import pyarrow

    if str(kind) in ("string_view", "binary_view"):
        return pyarrow.large_string() if str(kind) == "string_view" else pyarrow.large_binary()
    if pyarrow.types.is_dictionary(kind):
        return pyarrow.dictionary(kind.index_type, without_views(kind.value_type), kind.ordered)
    if pyarrow.types.is_struct(kind):
        return pyarrow.struct([field.with_type(without_views(field.type)) for field in kind])
    for is_list, make in ((pyarrow.types.is_list, pyarrow.list_), (pyarrow.types.is_large_list, pyarrow.large_list)):
        if is_list(kind):
            return make(kind.value_field.with_type(without_views(kind.value_type)))
    if pyarrow.types.is_fixed_size_list(kind):
        return pyarrow.list_(kind.value_field.with_type(without_views(kind.value_type)), kind.list_size)
    return kind


def plain_schema(schema: Any) -> Any:
    for number, field in enumerate(schema):
        schema = schema.set(number, field.with_type(without_views(field.type)))
    return schema


def plain_batch(batch: Any, schema: Any) -> Any:
    """Returns the batch in the types of `plain_schema`."""
    import pyarrow

    if batch.schema.equals(schema):
        return batch
    columns = []
    for column, field in zip(batch.columns, schema):
        if column.type == field.type:
            columns.append(column)
        elif pyarrow.types.is_dictionary(field.type):
            words = column.dictionary.cast(field.type.value_type)
            columns.append(pyarrow.DictionaryArray.from_arrays(column.indices, words, ordered=field.type.ordered))
        else:
            columns.append(column.cast(field.type))
    return pyarrow.record_batch(columns, schema=schema)


def distinct_names(names: "Iterable[str]") -> "List[str]":
    """Returns the names of columns. Of several that are equal, the others become x.1, x.2, as in pandas and in a table of text.

    >>> distinct_names(["x", "y", "x", "x.1", "x"])
    ['x', 'y', 'x.1', 'x.1.1', 'x.2']
    """
    made: "Dict[str, None]" = {}
    for name in names:
        tries = itertools.chain([name], (f"{name}.{n}" for n in itertools.count(1)))
        made[next(one for one in tries if one not in made)] = None
    return list(made)
