"""Models, loaded tensor by tensor: `stowage.load("model.safetensors", device="cuda")`.

Values go from the file straight into the tensors on the CPU, and through a few pinned buffers to a GPU: the model is never in host
memory a second time. Types are converted on the way.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from ._array import type_name
from ._library import Invalid, NoTensor, Unsupported, counted, format_size, need, parse_size, shown
from ._model import PIECE_BYTES, Facts, Frame, Model, Run, in_threads, is_swapped, select, thread_count, torch_is_there, type_of

_SPELLED = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "half": "float16", "float": "float32"}
_FLOATS = ("float64", "float32", "float16", "bfloat16")


def load(
    path: Any,
    device: Any = None,
    dtype: Any = None,
    *,
    names: Optional[Iterable[str]] = None,
    lazy: bool = False,
    raw: bool = False,
    into: Any = None,
    strict: bool = True,
    framework: Optional[str] = None,
    staging: "str | int" = "256M",
    threads: Optional[int] = None,
    allow_nan: bool = False,
) -> Any:
    """Loads the tensors of a model; returns a dict from name to tensor.

    `path` is a safetensors or GGUF file, a file of torch.save (.pt, .bin; the pickle in it is never executed), an index of several
    files, or a folder as Hugging Face lays it out. Returns torch tensors if torch is installed, otherwise NumPy arrays; `framework`
    ("torch" or "numpy") overrides that.

    >>> import numpy, os, tempfile
    >>> from stowage import load, save
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = os.path.join(folder.name, "model.safetensors")
    >>> save({"w": numpy.arange(6, dtype="float32").reshape(2, 3)}, file)
    >>> load(file, framework="numpy", dtype="float16")["w"]
    array([[0., 1., 2.],
           [3., 4., 5.]], dtype=float16)
    >>> with load(file, framework="numpy", lazy=True) as model:
    ...     float(model["w"].sum()), model.view("w")[1, :2]
    (15.0, array([3., 4.], dtype=float32))

    device    a device of torch: "cuda", "cuda:1". The values pass through at most `staging` bytes of pinned memory, read by `threads`
              threads, copied on a separate stream. None: host memory
    dtype     float tensors become this type ("float16", "bf16", torch.bfloat16); others stay
    names     only these tensors
    lazy      return a mapping that reads a tensor on access: `model["w"]`. `model.view("w")[10:20]` reads only that slice
    raw       quantized tensors of GGUF as their bytes (uint8, each row's blocks in the last dimension) instead of decoded to float32
              or `dtype`
    into      a torch module, or a dict of tensors: fills its tensors in place, in their types, on their devices; returns it. All
              names must match unless `strict` is false
    allow_nan values too large for `dtype` (above 65504 for float16) become infinite instead of raising Invalid

    A type that the framework lacks becomes the next larger type that holds every value: bfloat16 in NumPy without ml_dtypes becomes float32.
    """
    if isinstance(names, (str, bytes)):
        raise Invalid(f"names: {names!r} is one name; give a list: names=[{names!r}]")
    model = LazyModel(path, device, dtype, raw=raw, framework=framework, staging=staging, threads=threads, allow_nan=allow_nan)
    if into is not None:
        if lazy or names is not None or device is not None or dtype is not None or raw:
            raise Invalid("into fills the tensors as they are: leave out device, dtype, names, lazy and raw")
        with model:
            _fill(model, into, strict)
        return into
    if lazy:
        if names is not None:
            raise Invalid("names: a lazy model reads only the tensors that you request; leave names out")
        return model
    with model:
        return model._load(list(model if names is None else names))


class LazyModel(Mapping[str, Any]):
    """The tensors of a model by name. Each access reads the tensor."""

    def __init__(
        self,
        path: Any,
        device: Any = None,
        dtype: Any = None,
        *,
        raw: bool = False,
        framework: Optional[str] = None,
        staging: "str | int" = "256M",
        threads: Optional[int] = None,
        allow_nan: bool = False,
    ) -> None:
        self._given = (path, device, dtype), dict(raw=raw, framework=framework, staging=staging, threads=threads, allow_nan=allow_nan)
        if framework not in (None, "torch", "numpy"):
            raise Invalid(f'framework: {framework!r}; give "torch" or "numpy"')
        if framework is None:
            framework = "torch" if device is not None or torch_is_there() else "numpy"
        if framework == "numpy" and device is not None and str(device) != "cpu":
            raise Invalid(f"device: {device!r}: NumPy arrays are in host memory; use torch, or leave the device out")
        self._frame = Frame(framework)
        self._device = _device(device) if device is not None and framework == "torch" else None
        self._dtype = None if dtype is None else _float_type(dtype)
        self._raw = raw
        self._staging = parse_size(staging, "staging")
        if self._staging < 1 << 20:
            raise Invalid(f"staging: {staging!r}; give at least 1M")
        self._threads = thread_count(threads)
        self._model = Model(path, allow_nan)

    # ---- facts ----

    @property
    def format(self) -> str:
        """safetensors, gguf or pytorch."""
        return self._model.format

    @property
    def metadata(self) -> "Dict[str, str]":
        """The __metadata__ of a safetensors file."""
        import json

        text = self._model.metadata_text
        return dict(json.loads(text)) if text else {}

    def __iter__(self) -> "Iterator[str]":
        return iter(self._model.tensors)

    def __len__(self) -> int:
        return len(self._model.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._model.tensors

    def __repr__(self) -> str:
        return f"<stowage.load({self._model.path!r}): {counted(len(self), 'tensor')}, {format_size(self._model.bytes)}>"

    def view(self, name: str) -> "LazyTensor":
        """Returns a tensor that is not read yet: its shape and type, and slices that read only their values."""
        return LazyTensor(self, self._facts(name))

    # ---- life ----

    def close(self) -> None:
        self._model.close()

    def __enter__(self) -> "LazyModel":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return _open_again, self._given  # opened again, as in a worker of a torch DataLoader

    # ---- reading ----

    def __getitem__(self, name: str) -> Any:
        return self._load([name])[name]

    def _facts(self, name: str) -> Facts:
        try:
            return self._model.tensors[name]
        except KeyError:
            raise NoTensor(f"{shown(self._model.path)} has no tensor {shown(name)}") from None

    def _load(self, names: "List[str]") -> "Dict[str, Any]":
        made: "Dict[str, Any]" = {}
        jobs = []
        for name in names:
            facts = self._facts(name)
            if name in made:
                continue
            _, kind, convert, shape = self._frame.choose(facts, self._dtype, self._raw)
            made[name] = self._empty(shape, kind)
            jobs.append(_Job(facts, made[name], convert, [Run(0, facts.values)]))
        self._read(jobs)
        return made

    def _empty(self, shape: "Tuple[int, ...]", kind: Any) -> Any:
        count = 1
        for n in shape:
            count *= n
        if self._device is None or self._device.type == "cpu":
            return self._frame.empty(shape, kind, count)
        return self._frame.module.empty(shape, dtype=kind, device=self._device)

    def _read(self, jobs: "List[_Job]") -> None:
        """Fills the tensors of the jobs, each by way of its device."""
        if self._frame.name == "numpy":
            _read_host(self._model, self._frame, jobs, self._threads)
        else:
            places: "Dict[Any, List[_Job]]" = {}
            for job in jobs:
                places.setdefault(job.to.device, []).append(job)
            for device, there in places.items():
                if device.type == "cpu":
                    _read_host(self._model, self._frame, there, self._threads)
                elif device.type != "meta":
                    _read_device(self._model, self._frame, there, self._threads, self._staging, device)
        self._model.check()


def _open_again(given: Any, named: Any) -> LazyModel:
    return LazyModel(*given, **named)


class LazyTensor:
    """A tensor of a model that is not read yet. Indexing with numbers, slices and ... reads only those values."""

    def __init__(self, model: LazyModel, facts: Facts) -> None:
        self._owner = model
        self._facts = facts
        self._name, self._kind, self._convert, self.shape = model._frame.choose(facts, model._dtype, model._raw)

    @property
    def dtype(self) -> Any:
        """The type of what is read."""
        return self._kind

    @property
    def stored_dtype(self) -> str:
        """The type in the file: "bfloat16", "Q4_K"."""
        return self._facts.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{shown(self._facts.name)}: shape {self.shape}, {self._name}>"

    def __getitem__(self, index: Any) -> Any:
        shape, runs = select(self.shape, index, self._facts.name)
        if self._convert is None and self._facts.block_values > 1:
            runs = [_in_values(run, self._facts) for run in runs]
        made = self._owner._empty(shape, self._kind)
        self._owner._read([_Job(self._facts, made, self._convert, runs)])
        return made


def _in_values(run: Run, facts: Facts) -> Run:
    """Converts a run of bytes of a quantized tensor to values."""
    given = (run.first, run.values, run.step)
    if any(n % facts.block_bytes for n in given):
        raise Invalid(f"{shown(facts.name)}: {facts.dtype} comes in blocks of {facts.block_bytes} bytes; slice whole blocks, or rows")
    first, count, step = (n // facts.block_bytes * facts.block_values for n in given)
    return Run(first, count, run.runs, step)


def _device(device: Any) -> Any:
    torch = need("torch", "device=")
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as reason:
        raise Invalid(f"device: {device!r}: {str(reason).splitlines()[0]}") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise Unsupported(f"device: {device!r}: torch finds no GPU here (torch.cuda.is_available() is False)")
    return found


def _float_type(dtype: Any) -> str:
    name = type_name(dtype)
    name = _SPELLED.get(name, name)
    if name not in _FLOATS:
        raise Invalid(f'dtype: {name}; float tensors become "float16", "bfloat16", "float32" or "float64", and others stay as they are')
    return name


# ---- reading ----


_STAGED_BYTES = 16 << 20  #: one pinned buffer, at most: with 8 MiB, threads wait for Python's lock a third of the time (16 cores)


class _Job(NamedTuple):
    facts: Facts
    to: Any  #: contiguous
    convert: Optional[bytes]
    runs: "List[Run]"


class _Part(NamedTuple):
    job: _Job
    run: Run
    at: int  #: bytes of the target before it
    bytes: int


def _parts(frame: Frame, jobs: "List[_Job]", piece_bytes: int) -> "Iterator[_Part]":
    for job in jobs:
        facts, at = job.facts, 0
        whole = job.convert is None and facts.block_values > 1  # as stored: the target counts in bytes of blocks
        width = facts.block_bytes if whole else frame.width(job.to)
        block = facts.block_values if whole else 1
        for run in job.runs:
            for part in run.split(max(256, piece_bytes // width * block)):
                count = part.values * part.runs // block * width
                yield _Part(job, part, at, count)
                at += count


def _read_host(model: Model, frame: Frame, jobs: "List[_Job]", threads: int) -> None:
    total = sum(job.facts.bytes for job in jobs)

    def work(_member: int, next_part: Any) -> None:
        while True:
            part = next_part()
            if part is None:
                return
            model.read(part.job.facts.number, part.run, part.job.convert, frame.address(part.job.to) + part.at)

    in_threads(1 if total < 2 * PIECE_BYTES else threads, work, _parts(frame, jobs, PIECE_BYTES))


def _read_device(model: Model, frame: Frame, jobs: "List[_Job]", threads: int, staging: int, device: Any) -> None:
    """Reads into pinned buffers, two for each thread, and copies them on a separate stream."""
    torch = frame.module
    cuda = device.type == "cuda"
    threads = max(1, min(threads, staging // (2 << 20)))
    most = max((job.to.numel() * job.to.element_size() for job in jobs), default=0)
    # A row of 256 values of the widest type is the smallest part; larger buffers than the largest tensor are of no use.
    piece = max(4096, min(staging // (2 * threads), _STAGED_BYTES, most))
    stream = torch.cuda.Stream(device) if cuda else None
    if cuda:
        stream.wait_stream(torch.cuda.current_stream(device))

    def work(_member: int, next_part: Any) -> None:
        # Few calls for each part: between two of them all threads wait for Python's lock.
        buffers: "List[Any]" = []
        events: "List[Any]" = []
        turn, job, to = 0, None, None  # type: int, Any, Any
        with torch.cuda.stream(stream) if cuda else contextlib.nullcontext():
            while True:
                part = next_part()
                if part is None:
                    return
                if len(buffers) <= turn:
                    buffers.append(torch.empty(piece, dtype=torch.uint8, pin_memory=cuda))
                    events.append(torch.cuda.Event() if cuda else None)
                elif cuda and not events[turn].query():
                    events[turn].synchronize()
                if part.job is not job:
                    job, to = part.job, part.job.to.view(-1).view(torch.uint8)
                model.read(job.facts.number, part.run, job.convert, buffers[turn].data_ptr())
                to[part.at : part.at + part.bytes].copy_(buffers[turn][: part.bytes], non_blocking=cuda)
                if cuda:
                    events[turn].record(stream)
                turn = 1 - turn

    try:
        in_threads(threads, work, _parts(frame, jobs, piece))
    finally:
        if cuda:
            stream.synchronize()


# ---- filling a module ----


def _fill(model: LazyModel, into: Any, strict: bool) -> None:
    if model._frame.name != "torch" and not isinstance(into, Mapping):
        raise Invalid("into: give a torch module or a dict of tensors")
    if not isinstance(into, Mapping) and not hasattr(into, "state_dict"):
        raise Invalid(f"into: {type(into).__name__}; give a torch module or a dict of tensors")
    targets = dict(into) if isinstance(into, Mapping) else into.state_dict()
    jobs, filled = [], set()
    for name, to in targets.items():
        if name not in model:
            continue
        facts = model._facts(name)
        jobs.append(_Job(facts, to, _convert_into(model, facts, to), [Run(0, facts.values)]))
        filled.add(_place(to))
    # Tied weights: a name that the file lacks counts as filled if it shares its memory with another.
    missing = [name for name, to in targets.items() if name not in model and _place(to) not in filled]
    unexpected = [name for name in model if name not in targets]
    if strict and (missing or unexpected):
        raise Invalid(
            f"{shown(model._model.path)} does not match: missing {_few(missing)}; not expected {_few(unexpected)}; "
            "strict=False fills what matches"
        )
    model._read(jobs)


def _convert_into(model: LazyModel, facts: Facts, to: Any) -> Optional[bytes]:
    name, kind = shown(facts.name), type_of(to)
    if is_swapped(to):
        raise Invalid(f"{name}: the target's values are not in this machine's byte order; load without into, and copy it")
    if tuple(to.shape) != facts.shape:
        raise Invalid(f"{name}: the file has shape {facts.shape}, the target {tuple(to.shape)}")
    if hasattr(to, "is_contiguous"):
        contiguous, meta = to.is_contiguous(), to.device.type == "meta"
        if meta:
            raise Invalid(f"{name}: the target is on the meta device; model.to_empty(device=...) gives it memory")
    else:
        contiguous = to.flags.c_contiguous and to.flags.writeable
    if not contiguous:
        raise Invalid(f"{name}: the target is not contiguous; load without into, and copy it")
    if kind == facts.dtype:
        return None
    if not facts.convertible or not kind.islower() or kind == "complex64":
        raise Unsupported(f"{name}: values of type {facts.dtype} cannot become {kind}")
    return kind.encode()


def _place(to: Any) -> "Tuple[str, int]":
    if hasattr(to, "data_ptr"):
        return str(to.device), to.data_ptr()
    return "", to.ctypes.data


def _few(names: "List[str]") -> str:
    shown_names = ", ".join(shown(n) for n in names[:3])
    return "none" if not names else shown_names + (f" and {len(names) - 3} more" if len(names) > 3 else "")
