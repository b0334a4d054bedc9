"""Data files through libstowage-data, for `inspect()` and `shrink()` (stowage/inspect.h, shrink.h).

The library works in this process. Ctrl-C, and whatever else the handler of a signal raises, ends a job as it ends any Python code.
"""

from __future__ import annotations

import json
import os
import re
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_double, c_int, c_uint32, c_uint64, c_void_p, pointer
from typing import Any, Callable, Dict, Iterable, Mapping, NamedTuple, Optional, Tuple, Union

from ._library import Growing, Invalid, StowageError, call, declare, error, lib, parse_budget, parse_size
from ._signals import held

_Progress = CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64)
_INTERRUPTED = -15  # STOW_ERR_INTERRUPTED
_ABSOLUTE = 1  # STOW_SHRINK_ABSOLUTE
_FORCE = 16  # STOW_SHRINK_FORCE
PURPOSES = {"arithmetic": 0, "training": 1, "storage": 2}  # STOW_FOR_ARITHMETIC, _TRAINING, _STORAGE
VERIFY = 32  # STOW_SHRINK_VERIFY
ALLOW_NAN = 64  # STOW_SHRINK_ALLOW_NAN
SPARSE = 512  # STOW_SHRINK_SPARSE
_NAMES = {"auto": 0, "yes": 1, "no": 2}  # STOW_NAMES_AUTO, _YES, _NO


class TableOptions(Growing):
    _fields_ = [
        ("reserved", c_uint32),
        ("delimiter", c_char_p),
        ("decimal", c_char_p),
        ("comment", c_char_p),
        ("encoding", c_char_p),
        ("skip", c_uint64),
        ("na", POINTER(c_char_p)),
        ("types", POINTER(c_char_p)),
        ("tolerances", POINTER(c_char_p)),
    ]


class InspectOptions(Growing):
    _fields_ = [
        ("threads", c_uint32),
        ("memory_bytes", c_uint64),
        ("raw_dtype", c_char_p),
        ("raw_shape", POINTER(c_uint64)),
        ("raw_dims", c_uint32),
        ("names", c_uint32),
        ("progress", _Progress),
        ("progress_user", c_void_p),
        ("purpose", c_uint32),
        ("reserved", c_uint32),
        ("table", POINTER(TableOptions)),
    ]


class ShrinkOptions(Growing):
    _fields_ = [
        ("flags", c_uint32),
        ("dtype", c_char_p),
        ("tolerance", c_double),
        ("memory_bytes", c_uint64),
        ("threads", c_uint32),
        ("names", c_uint32),
        ("raw_dtype", c_char_p),
        ("raw_shape", POINTER(c_uint64)),
        ("raw_dims", c_uint32),
        ("purpose", c_uint32),
        ("progress", _Progress),
        ("progress_user", c_void_p),
        ("columns", POINTER(c_char_p)),
        ("drop", POINTER(c_char_p)),
        ("quantize", c_char_p),
        ("prune", c_char_p),
        ("include", POINTER(c_char_p)),
        ("exclude", POINTER(c_char_p)),
        ("shard_bytes", c_uint64),
        ("table", POINTER(TableOptions)),
    ]


declare(
    {
        "stow_inspect_file": (c_int, [POINTER(c_void_p), c_char_p, POINTER(InspectOptions)]),
        "stow_inspection_close": (None, [c_void_p]),
        "stow_inspection_text": (c_char_p, [c_void_p]),
        "stow_inspection_json": (c_char_p, [c_void_p]),
        "stow_shrink_file": (c_int, [POINTER(c_void_p), c_char_p, c_char_p, POINTER(ShrinkOptions)]),
        "stow_shrink_close": (None, [c_void_p]),
        "stow_shrink_text": (c_char_p, [c_void_p]),
        "stow_shrink_json": (c_char_p, [c_void_p]),
    }
)


class _Watch:
    """Runs handlers of signals regularly during a job. What they raise ends the job and is raised again after it."""

    def __init__(self) -> None:
        self.raised: "Optional[BaseException]" = None
        self.function = _Progress(self._look)
        self._run_handlers: "Callable[[], None]" = lambda: None

    def _look(self, user: Any, done: int, total: int) -> int:
        try:
            self._go_on()
        except BaseException as raised:
            self.raised = raised
        return _INTERRUPTED if self.raised is not None else 0

    def _go_on(self) -> None:
        self._run_handlers()

    def run(self, name: str, *arguments: Any) -> None:
        try:
            with held() as self._run_handlers:
                call(name, *arguments)
        except StowageError as reason:
            if self.raised is not None:
                raise self.raised from None
            raise error(reason.status, _in_keywords(str(reason))) from None


def _in_keywords(message: str) -> str:
    """Names options of the command as keywords: the library's messages are those of the command.

    >>> _in_keywords("use --dtype f32, or --allow-nan to write it anyway; `stowage inspect --json` lists them")
    'use dtype f32, or allow_nan to write it anyway; `stowage inspect --json` lists them'
    """
    quoted = message.split("`")
    quoted[::2] = [re.sub(r"--([a-z]+(?:-[a-z]+)*)", _keyword, part) for part in quoted[::2]]
    return "`".join(quoted)


def _keyword(found: "re.Match[str]") -> str:
    return found.group(1).replace("-", "_")


# ---- inspecting ----


class Inspection:
    """What a data file holds: `text` for people, `data` for programs (the JSON of `stowage inspect`)."""

    def __init__(self, text: str, data: "Dict[str, Any]") -> None:
        self.text, self.data = text, data

    def __repr__(self) -> str:
        return self.text


def inspect_file(
    path: "Union[str, os.PathLike[str]]",
    dtype: "Optional[str]",
    names: "Optional[str]",
    memory: "str | int | None",
    purpose: str,
    said: "Optional[Text]" = None,
) -> Inspection:
    """Inspects a file or URL that the library reads itself."""
    watch, made = _Watch(), c_void_p()
    options = InspectOptions(progress=watch.function, names=_names(names), purpose=read_purpose(purpose))
    options.table = (said or Text()).options()
    options.raw_dtype = str(dtype).encode() if dtype is not None else None
    options.memory_bytes = parse_budget(memory) if memory is not None else 0
    watch.run("stow_inspect_file", byref(made), os.fsencode(path), byref(options))
    try:
        text = lib().stow_inspection_text(made).decode("utf-8", "replace").rstrip()
        return Inspection(text, json.loads(lib().stow_inspection_json(made).decode("utf-8", "replace")))
    finally:
        lib().stow_inspection_close(made)


# ---- shrinking ----


class Text(NamedTuple):
    """The format of a text table; what is not given is detected."""

    delimiter: "Optional[str]" = None
    decimal: "Optional[str]" = None
    comment: "Optional[str]" = None
    skip: int = 0
    encoding: "Optional[str]" = None
    na: "Union[str, Iterable[str], None]" = None
    types: "Optional[Mapping[str, Any]]" = None
    tolerances: "Optional[Mapping[str, Any]]" = None

    def options(self) -> Any:
        """Returns a pointer for the library, which keeps what it points to alive."""
        made = TableOptions(skip=self.skip)
        for name in ("delimiter", "decimal", "comment", "encoding"):
            value = getattr(self, name)
            setattr(made, name, str(value).encode() if value is not None else None)
        if self.na is not None:
            made.na = _words([self.na] if isinstance(self.na, str) else self.na)
        if self.types:
            made.types = _words(f"{name}={_type_word(kind)}" for name, kind in self.types.items())
        if self.tolerances:
            made.tolerances = _words(f"{name}={value}" for name, value in self.tolerances.items())
        return pointer(made)


def read_text(verb: str, given: "Mapping[str, Any]") -> Text:
    """Returns the keywords of a function as a Text; TypeError for any other keyword."""
    for name in given:
        if name not in Text._fields:
            raise TypeError(f"{verb}: unknown keyword {name}=; of a text table: {', '.join(Text._fields)}")
    return Text(**given)


def _type_word(kind: Any) -> str:
    """Returns the library's word for a type: a name, or NumPy's or Python's own type.

    >>> _type_word("float32"), _type_word(str), _type_word("datetime64[ns]")
    ('float32', 'text', 'datetime')
    """
    word = getattr(kind, "__name__", None) or str(kind)
    if word in ("str", "object", "string", "category"):
        return "text"
    return "datetime" if word.startswith("datetime") else {"int": "int64", "float": "float64"}.get(word, word)


def _words(words: "Iterable[Any]") -> Any:
    listed = [str(word).encode() for word in words]
    return (c_char_p * (len(listed) + 1))(*listed, None)


class Table(NamedTuple):
    """Options for a table: whether its first row names the columns, the columns to write and to omit, `force`, its text format."""

    names: "Optional[str]" = None
    columns: "Tuple[str, ...]" = ()
    drop: "Tuple[str, ...]" = ()
    force: bool = False
    text: Text = Text()


def read_purpose(purpose: str) -> int:
    if purpose not in PURPOSES:
        raise Invalid(f'purpose: {purpose!r}; write "arithmetic", "training" or "storage"')
    return PURPOSES[purpose]


class Model(NamedTuple):
    """Options for a model file: types of 4 to 8 bits, pruning, the names of tensors, the size of its files."""

    quantize: "Optional[str]" = None
    prune: "Optional[str]" = None
    include: "Tuple[str, ...]" = ()
    exclude: "Tuple[str, ...]" = ()
    shard: "str | int | None" = None
    flags: int = 0


def _names(names: "Optional[str]") -> int:
    if names is not None and names not in _NAMES:
        raise Invalid(f'names: {names!r}; write "yes", "no" or "auto"')
    return _NAMES[names or "auto"]


def _list(words: "Tuple[str, ...]") -> Any:
    return (c_char_p * (len(words) + 1))(*[word.encode() for word in words], None) if words else None


def _say_model(options: ShrinkOptions, model: Model) -> None:
    options.quantize = model.quantize.encode() if model.quantize is not None else None
    options.prune = model.prune.encode() if model.prune is not None else None
    if model.include:
        options.include = _list(model.include)
    if model.exclude:
        options.exclude = _list(model.exclude)
    if model.shard is not None:
        options.shard_bytes = parse_size(model.shard, "shard")
    options.flags |= model.flags


def shrink_file(
    path: str,
    output: str,
    tolerance: "Optional[Tuple[float, bool]]",
    dtype: "Optional[str]",
    table: Table = Table(),
    model: Model = Model(),
    purpose: str = "arithmetic",
    memory: "str | int | None" = None,
    members: "Optional[Dict[str, str]]" = None,
) -> str:
    """Rewrites a file in the smallest types, or a model in the requested types. Returns what `stowage shrink` prints. `members` gets the
    column of each member that a table becomes."""
    watch, made = _Watch(), c_void_p()
    options = ShrinkOptions(progress=watch.function, names=_names(table.names), flags=_FORCE if table.force else 0)
    options.dtype = dtype.encode() if dtype is not None else None
    options.purpose = read_purpose(purpose)
    options.table = table.text.options()
    options.memory_bytes = parse_budget(memory) if memory is not None else 0
    _say_model(options, model)
    if table.columns:
        options.columns = _list(table.columns)
    if table.drop:
        options.drop = _list(table.drop)
    if tolerance is not None:
        options.tolerance = tolerance[0]
        options.flags |= 0 if tolerance[1] else _ABSOLUTE
    watch.run("stow_shrink_file", byref(made), os.fsencode(path), os.fsencode(output), byref(options))
    try:
        if members is not None:
            found = json.loads(lib().stow_shrink_json(made).decode("utf-8", "replace"))
            members.update({one["member"]: one["name"] for one in found.get("columns", [])})
        return lib().stow_shrink_text(made).decode("utf-8", "replace").rstrip()
    finally:
        lib().stow_shrink_close(made)
