"""How much GPU memory a program will need, and whether it fits, without a GPU and without its data.

The program's steps run on PyTorch's fake tensors, which have shapes and no memory. `_fake_record` records when each storage is created and
freed, `_kernels` adds what CUDA kernels allocate besides, and the recorded trace is replayed through PyTorch's allocator (`_analysis`).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

from . import _analysis, _gpus, _show, _uncertainty
from ._fake_autocast import Casts
from ._fake_compile import replaced_by_graphs
from ._fake_cuda import fake_cuda
from ._fake_distributed import replaced_for_one_process
from ._fake_generation import generate_to_the_end
from ._fake_record import BEGIN, END, HIDDEN, LAUNCH, Recorder, Refused, dispatch_mode, function_mode, replaced_functions
from ._fake_record import FREE as FREED
from ._kernel_times import HOST_NS
from ._library import Invalid, NotFound, Unsupported, need, shown
from ._library import format_size as size
from ._program import PROGRAM_VERSION
from ._trace import ALLOC, FREE, Trace

_HOLDERS_SHOWN = 12

_MEASURE = "Measure the program instead: stowage run --record run.stow -- python your_script.py"
#: What PyTorch says when C++ code reads a fake tensor's memory (TensorImpl.h, StorageImpl.cpp) or its device.
_NO_MEMORY = ("its data is not allocated yet", "Cannot access data pointer", "Cannot access storage of", "FakeTensor", HIDDEN)


class Estimate:
    """What a program will need on a GPU. `data` is the JSON of `stowage estimate`."""

    def __init__(self, data: "Dict[str, Any]") -> None:
        self.data = data

    @property
    def fits(self) -> bool:
        """True if every step finishes on the GPU, whatever was assumed. See `verdict`."""
        return bool(self.data["fits"])

    @property
    def verdict(self) -> str:
        """"yes" or "no" where the margin is larger than the uncertainty of the estimate, else "close"."""
        return str(self.data["verdict"])

    @property
    def margin(self) -> int:
        """Bytes that stay free; negative: bytes that are missing."""
        return int(self.data["margin_bytes"])

    @property
    def peak_live(self) -> int:
        """The most bytes that tensors and workspaces hold at the same time."""
        return int(self.data["peak_live_bytes"])

    @property
    def peak_reserved(self) -> int:
        """The most bytes that PyTorch's allocator reserves on the GPU if there is no limit."""
        return int(self.data["peak_reserved_bytes"])

    @property
    def holders(self) -> "List[Dict[str, Any]]":
        """What holds memory at the peak, by line, the largest first."""
        return list(self.data["holders"])

    @property
    def trace(self) -> "Optional[str]":
        """The path of the recorded trace, for `stowage.report` and `stowage.replay`."""
        return self.data["trace"]

    @property
    def headline(self) -> str:
        """One sentence: it fits or not, and by how much."""
        data, gpu = self.data, self.data["gpu"]
        name = gpu["name"] if gpu["name"].startswith("GPU with") else f"{gpu['name']} ({size(gpu['total_bytes'])})"
        if data["verdict"] == "close":
            low, high = size(data["needs_low_bytes"]), size(data["needs_high_bytes"])
            return f"Close on a {name}: needs {size(data['needs_bytes'])} ({low} to {high}) of {size(gpu['available_bytes'])}. It may fit or not."
        if data["fits"]:
            return f"Fits on a {name}: needs {size(data['needs_bytes'])} of {size(gpu['available_bytes'])}, {size(self.margin)} to spare."
        return f"Does not fit on a {name}: needs {size(data['needs_bytes'])}, {size(-self.margin)} more than the {size(gpu['available_bytes'])} there."

    def _rows(self) -> "List[Tuple[str, str, str]]":
        data, gpu = self.data, self.data["gpu"]
        figures = f"{gpu['figures']} for this GPU"
        rows = [
            ("peak live", size(data["peak_live_bytes"]), "memory that tensors and workspaces hold at once"),
            ("peak reserved", size(data["peak_reserved_bytes"]), "memory that PyTorch's allocator takes, with its cache"),
            ("smallest limit", size(data["needs_bytes"]), "with less than this a step fails"),
            ("uncertainty", size((data["needs_high_bytes"] - data["needs_low_bytes"]) // 2), self._reasons()),
            ("CUDA context", size(gpu["context_bytes"]), figures),
        ]
        return rows + [(one["what"], size(one["bytes"]), one["source"]) for one in data["beside"]]

    def _reasons(self) -> str:
        data = self.data
        largest = max(data["uncertainty"], key=lambda one: one["high_bytes"] - one["low_bytes"], default={"what": ""})
        return f"{size(data['needs_low_bytes'])} to {size(data['needs_high_bytes'])}; most of it: {largest['what']}"

    @property
    def text(self) -> str:
        """The answer as the command prints it."""
        lines = [self.headline, "", _show.text_table(self._rows(), right=[1])]
        if self.data["holders"]:
            shown_holders = self.data["holders"][:_HOLDERS_SHOWN]
            lines += ["", "At the peak"]
            lines.append(_show.text_table([(size(one["bytes"]), one["label"]) for one in shown_holders], right=[0]))
            rest = self.data["holders"][_HOLDERS_SHOWN:]
            if rest:
                lines.append(f"  and {size(sum(one['bytes'] for one in rest))} at {len(rest)} other lines")
        if self.data["notes"]:
            lines += [""] + [f"note: {shown(one)}" for one in self.data["notes"]]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        gpu = self.data["gpu"]
        bar = _show.html_bar([(self.data["peak_live_bytes"], "#4a90d9"), (max(0, self.data["needs_bytes"] - self.data["peak_live_bytes"]), "#f0a030")], gpu["total_bytes"])
        holders = [("bytes", "line")] + [(size(one["bytes"]), one["label"]) for one in self.data["holders"][:_HOLDERS_SHOWN]]
        notes = "".join(f"<div>note: {_show.escape(one)}</div>" for one in self.data["notes"])
        rows = [("", "bytes", "")] + self._rows()
        return _show.html_block(self.headline, bar + _show.html_table(rows, right=[1]) + _show.html_table(holders, right=[0]) + notes)


# ---- the program ----


def _moved(torch: Any, tree: Any, device: str) -> Any:
    """Returns a batch with every tensor on the device."""
    if isinstance(tree, torch.Tensor):
        return tree.to(device) if tree.device.type != torch.device(device).type else tree
    if isinstance(tree, dict):
        return type(tree)({key: _moved(torch, one, device) for key, one in tree.items()}) if type(tree) is dict else {k: _moved(torch, v, device) for k, v in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_moved(torch, one, device) for one in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(_moved(torch, one, device) for one in tree)
    return tree


def _forward(torch: Any, model: Any, batch: Any) -> Any:
    if hasattr(batch, "items"):
        return model(**batch)
    if isinstance(batch, (list, tuple)):
        return model(*batch)
    return model(batch)


def _loss_of(torch: Any, output: Any) -> Any:
    """Returns the loss in a model's output; the mean of an output that has none."""
    found = getattr(output, "loss", None)
    if found is None and hasattr(output, "get"):
        found = output.get("loss")
    if found is None:
        found = output[0] if isinstance(output, (list, tuple)) else output
        found = getattr(found, "logits", found)
    if not isinstance(found, torch.Tensor):
        raise Invalid(f"estimate: the model returned {type(output).__name__}, which has no loss; give loss=lambda output, batch: …")
    return found if found.dim() == 0 else found.float().mean()


def _optimizer(torch: Any, wanted: Any, model: Any) -> Any:
    parameters = [one for one in model.parameters() if one.requires_grad]
    if isinstance(wanted, str):
        name = wanted.lower()
        if name in ("adamw8bit", "adam8bit"):
            return _EightBit(torch, parameters)
        known = {one.lower(): one for one in dir(torch.optim) if isinstance(getattr(torch.optim, one), type) and one != "Optimizer"}
        if name not in known:
            raise Invalid(f'optimizer: "{wanted}" is not one of torch.optim ({", ".join(sorted(known)[:4])}, …) nor adamw8bit')
        options = {"lr": 1e-3, "momentum": 0.9} if name == "sgd" else {"lr": 1e-3}
        return getattr(torch.optim, known[name])(parameters, **options)
    if isinstance(wanted, type):
        return wanted(parameters, lr=1e-3)
    if callable(wanted) and not hasattr(wanted, "step"):
        return wanted(parameters)
    raise Invalid("optimizer: give its name, its class, or a function of the parameters that makes it, such as lambda p: torch.optim.SGD(p, lr=0.1)")


class _EightBit:
    """The memory of an 8-bit Adam as bitsandbytes has it: two bytes per number and a float32 scale per 256 numbers.

    Tensors below 4096 numbers stay in float32 (source: bitsandbytes, Optimizer2State).
    """

    def __init__(self, torch: Any, parameters: "List[Any]") -> None:
        self._torch, self._parameters, self._state = torch, parameters, []  # type: Any, Any, List[Any]

    def step(self) -> None:
        if self._state:
            return
        for one in self._parameters:
            if one.grad is None:
                continue
            small = one.numel() < 4096
            kind = self._torch.float32 if small else self._torch.uint8
            for _ in range(2):
                self._state.append(self._torch.zeros_like(one, dtype=kind))
                if not small:
                    self._state.append(self._torch.zeros((one.numel() + 255) // 256, dtype=self._torch.float32, device=one.device))

    def zero_grad(self, set_to_none: bool = True) -> None:
        for one in self._parameters:
            one.grad = None


def _amp_type(torch: Any, amp: Any) -> Any:
    names = {"bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "float16": "float16", "half": "float16"}
    if amp is None or amp is False:
        return None
    if amp is True:
        return torch.bfloat16 if torch.cuda.get_device_capability() >= (8, 0) else torch.float16
    if isinstance(amp, str) and amp.lower() in names:
        return getattr(torch, names[amp.lower()])
    if amp in (torch.float16, torch.bfloat16):
        return amp
    raise Invalid(f'amp: {amp!r}: write "bf16" or "fp16"')


def _trainer(
    torch: Any, device: str, recorder: Any, model_fn: Any, batch_fn: Any, optimizer: Any, loss: Any, amp: Any, accumulate: int, evaluate: Any
) -> "Tuple[Callable[[int], None], str]":
    """Returns the function that runs step number i, and what kind of program it is."""
    model = model_fn()
    if isinstance(model, dict):
        unknown = set(model) - {"model", "batch", "optimizer", "loss", "amp", "accumulate", "evaluate"}
        if unknown or "model" not in model:
            raise Invalid(f"estimate: model_fn returned a dict with {sorted(map(str, model))}; its keys are model, batch, optimizer, loss, amp, accumulate, evaluate")
        evaluate = model.get("evaluate", evaluate)
        batch_fn, optimizer, loss = model.get("batch", batch_fn), model.get("optimizer", optimizer), model.get("loss", loss)
        amp, accumulate, model = model.get("amp", amp), model.get("accumulate", accumulate), model["model"]
    elif isinstance(model, tuple) and len(model) in (2, 3) and isinstance(model[0], torch.nn.Module):
        model, batch_fn, optimizer = (*model, optimizer)[:3]
    if not isinstance(model, torch.nn.Module):
        if batch_fn is None and callable(model):
            import inspect

            if evaluate is not None:
                raise Invalid("estimate: evaluate needs a model and batch_fn; a function that runs one step evaluates by itself")

            step = model
            try:
                takes = bool(inspect.signature(step).parameters)
            except (TypeError, ValueError):
                takes = False
            return (lambda i: step(i)) if takes else (lambda i: step()), "program"
        raise Invalid(f"estimate: model_fn returned {type(model).__name__}; return a torch.nn.Module, or a function that runs one step")
    if batch_fn is None:
        raise Invalid("estimate: batch_fn is missing: a function that returns the model's input, as one tensor, a tuple or a dict")
    recorder.layers.update((id(one), f"model.{name}") for name, one in model.named_modules() if name)
    model = model.to(device)
    kind = _amp_type(torch, amp)
    made_batch = _batches(batch_fn)

    def batches(i: int) -> Any:
        batch = made_batch(i)
        recorder.inputs = recorder.inputs or _inputs(torch, batch)
        return batch

    def cast() -> Any:
        return contextlib.nullcontext() if kind is None else torch.autocast(torch.device(device).type, dtype=kind)

    def infer(batch: Any) -> None:
        with torch.no_grad(), cast():
            _forward(torch, model, _moved(torch, batch, device))

    if optimizer is None:
        model.eval()
        return (lambda i: infer(batches(i))), "inference"
    evaluated = _batches(evaluate) if evaluate is not None else None
    model.train()
    made = optimizer if hasattr(optimizer, "step") and not isinstance(optimizer, type) else _optimizer(torch, optimizer, model)
    scaler = torch.cuda.amp.GradScaler() if kind is torch.float16 and not hasattr(torch, "amp") else None
    if kind is torch.float16 and hasattr(torch, "amp"):
        maker = getattr(torch.amp, "GradScaler", None)
        scaler = maker("cuda") if maker is not None else torch.cuda.amp.GradScaler()

    def train(i: int) -> None:
        for part in range(accumulate):
            batch = _moved(torch, batches(i * accumulate + part), device)
            with cast():
                output = _forward(torch, model, batch)
                found = loss(output, batch) if loss is not None else _loss_of(torch, output)
            if accumulate > 1:
                found = found / accumulate
            (scaler.scale(found) if scaler is not None else found).backward()
        if scaler is not None:
            scaler.step(made)
            scaler.update()
        else:
            made.step()
        made.zero_grad(set_to_none=True)
        if evaluated is not None:
            model.eval()
            infer(evaluated(i))
            model.train()

    return train, "training"


def _inputs(torch: Any, tree: Any) -> "List[Any]":
    """Returns the (type, shape) of the first tensors of a batch."""
    if isinstance(tree, torch.Tensor):
        return [(str(tree.dtype), tuple(int(n) for n in tree.shape))] if tree.dim() > 0 else []
    parts = list(tree.values()) if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else []
    return [one for part in parts[:8] for one in _inputs(torch, part)][:4]


def _batches(batch_fn: Any) -> "Callable[[int], Any]":
    import inspect

    try:
        takes = any(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in inspect.signature(batch_fn).parameters.values())
    except (TypeError, ValueError):
        takes = False
    return batch_fn if takes else lambda i: batch_fn()


# ---- running it ----


@contextlib.contextmanager
def _quiet() -> "Iterator[None]":
    """Silences a warning of PyTorch about the estimate's own tensors (copy.deepcopy of a model triggers it)."""
    import warnings

    before = list(warnings.filters)
    warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
    added = [one for one in warnings.filters if one not in before]
    try:
        yield
    finally:
        for one in added:
            with contextlib.suppress(ValueError):
                warnings.filters.remove(one)  # type: ignore[attr-defined]


def _without_memory(error: Exception) -> "Optional[Unsupported]":
    """Returns the error for a function that reads the memory of a tensor, in C++ or another library; None for other errors."""
    import traceback

    if not any(text in str(error) for text in _NO_MEMORY):
        return None
    frames = traceback.extract_tb(error.__traceback__)
    ours = [one for one in frames if f"{os.sep}torch{os.sep}" not in one.filename and os.path.dirname(one.filename) != os.path.dirname(__file__)]
    what = frames[-1].name if frames else "a function"
    where = f" at {ours[-1].filename}:{ours[-1].lineno}" if ours else ""
    return Unsupported(f"estimate: {what}{where} reads the memory of a tensor, and an estimate has only shapes. {_MEASURE}")


@contextlib.contextmanager
def _faked(torch: Any, gpu: _gpus.Gpu, notes: "Dict[str, str]") -> "Iterator[Tuple[Any, str]]":
    """The fake GPU and the modes that record it; yields the recorder and the device's name."""
    import inspect

    from torch._subclasses import FakeTensorMode

    named: "Dict[str, Any]" = {}
    if "allow_non_fake_inputs" in inspect.signature(FakeTensorMode.__init__).parameters:
        named["allow_non_fake_inputs"] = True
    recorder = Recorder(torch, gpu, "cuda", __name__)
    casts = Casts(torch)
    mode = FakeTensorMode(**named)  # imports parts of PyTorch that must not see the replaced functions
    recorder.faked = mode.from_tensor
    replaced = [*replaced_functions(recorder), (torch, "clear_autocast_cache", casts.clear), *replaced_for_one_process(torch, notes), *replaced_by_graphs(recorder, notes)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_quiet())
        stack.enter_context(fake_cuda(torch, gpu, notes, replaced))
        stack.enter_context(casts.registered())
        stack.enter_context(mode)
        stack.enter_context(dispatch_mode(recorder))
        stack.enter_context(function_mode(recorder))
        yield recorder, "cuda"


def _write(recorder: Any, path: str, gpu: _gpus.Gpu) -> None:
    """Writes the recorded events as a .stow trace."""
    trace = Trace(path)
    try:
        trace.fact("device_name", gpu.name)
        trace.fact("device_bytes", str(gpu.total_bytes))
        trace.fact("estimated", "1")
        trace.fact("host_ns", str(HOST_NS))
        inputs = recorder.batch_seen()
        if inputs:
            trace.fact("program", program_lines(inputs))
        numbers = [trace.stack([(code.co_name, code.co_filename, line) for code, line in frames]) for frames in recorder.stacks]
        places = Places()
        for kind, block, count, where in recorder.events:
            if kind in (BEGIN, END):
                trace.mark(where, kind == BEGIN)
            elif kind == LAUNCH:
                name, used = where
                trace.launch(name, count, [places.of[one] for one in used if one in places.of])
            elif kind == FREED:
                trace.block(FREE, places.give(block), count, numbers[where])
            else:
                trace.block(ALLOC, places.take(block, count), count, numbers[where])
    finally:
        trace.close()


class Places:
    """Assigns addresses to the blocks of a trace: the first free range that is large enough, like a cache that reuses memory."""

    def __init__(self) -> None:
        self.of: "Dict[int, int]" = {}  # live block: its address
        self._sizes: "Dict[int, int]" = {}
        self._free: "List[Tuple[int, int]]" = []  # (address, bytes), by address; no two touch
        self._end = 1 << 40

    def take(self, block: int, size_bytes: int) -> int:
        need = max(512, (size_bytes + 511) // 512 * 512)
        for at, (address, there) in enumerate(self._free):
            if there >= need:
                if there > need:
                    self._free[at] = (address + need, there - need)
                else:
                    del self._free[at]
                break
        else:
            address, self._end = self._end, self._end + need
        self.of[block], self._sizes[block] = address, need
        return address

    def give(self, block: int) -> int:
        import bisect

        address, size_bytes = self.of.pop(block), self._sizes.pop(block)
        begin, end = address, address + size_bytes
        at = bisect.bisect_left(self._free, (begin, 0))
        if at < len(self._free) and self._free[at][0] == end:
            end += self._free.pop(at)[1]
        if at > 0 and sum(self._free[at - 1]) == begin:
            at -= 1
            begin = self._free.pop(at)[0]
        self._free.insert(at, (begin, end - begin))
        return address


def program_lines(inputs: "List[Any]") -> str:
    """Returns the fact "program" of a trace (see `_program`): the inputs and the batch."""
    lines = [f"program {PROGRAM_VERSION}"]
    lines += [f"input {kind.replace('torch.', '')} {'x'.join(map(str, shape[:8]))}" for kind, shape in inputs]
    first = [shape[0] for _, shape in inputs]
    lines.append(f"batch {max(first, key=first.count)} first")
    return "\n".join(lines) + "\n"


def _new_trace(record: "Union[None, str, os.PathLike[str]]") -> str:
    if record is None:
        folder = tempfile.mkdtemp(prefix="stowage-estimate-")
        atexit.register(shutil.rmtree, folder, True)
        return os.path.join(folder, "estimate.stow")
    path = os.fspath(record)
    if os.path.exists(path):
        raise FileExistsError(f"{path} already exists and may be the only copy of another run; use another name")
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise NotFound(f"{path}: the folder does not exist; create it first")
    return path


def estimate(
    model_fn: Any,
    batch_fn: Any = None,
    *,
    optimizer: Any = None,
    loss: Any = None,
    amp: Any = None,
    steps: int = 2,
    accumulate: int = 1,
    evaluate: Any = None,
    gpu: "Optional[str]" = None,
    vram: "str | int | None" = None,
    record: "Union[None, str, os.PathLike[str]]" = None,
    settings: "Optional[str]" = None,
) -> Estimate:
    """Predicts whether a program fits on a GPU, and by how much, without the GPU and without data.

    `model_fn()` makes the model, `batch_fn()` or `batch_fn(i)` the input of step i. With `optimizer` ("adamw", "sgd", "adamw8bit", a
    class, or a function of the parameters) the steps train: forward, backward, optimizer; `loss(output, batch)` gives the loss if the
    output has none. Without it they are inference. `amp` is "bf16" or "fp16" (with a GradScaler). `accumulate` is the number of batches
    in each step. `evaluate`, like `batch_fn`, makes the input of an evaluation after each training step. `model_fn()` may also return
    (model, batch_fn) or (model, batch_fn, optimizer), or a dict with model, batch, optimizer, loss, amp, accumulate and evaluate. For any
    other program let it make everything and return a function that runs one step. `gpu` is a name ("T4", "A100-80G", "RTX 4090"),
    `vram` its memory ("16G"). `settings` are those of PYTORCH_ALLOC_CONF. `record` keeps the trace as a .stow file.

    The functions run on tensors that have a shape and no memory, so they must make their tensors themselves: what they return may
    have any size. A model that reads values of its tensors to decide what to do next cannot be estimated.

    >>> estimate(None, gpu="T4")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    stowage._library.Invalid: estimate: ...
    """
    target = _gpus.find(gpu, vram)
    if not callable(model_fn):
        raise Invalid("estimate: model_fn is not a function; give one that makes the model, such as lambda: MyModel()")
    for name, value in (("steps", steps), ("accumulate", accumulate)):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 10000:
            raise Invalid(f"{name}: {value!r}: must be a whole number from 1 to 10000")
    torch = need("torch", "stowage.estimate")
    path = _new_trace(record)
    began = time.monotonic()
    notes: "Dict[str, str]" = {}
    maker = _copy_of(torch, model_fn) if isinstance(model_fn, torch.nn.Module) else model_fn
    try:
        with _faked(torch, target, notes) as (recorder, device):
            run, mode = _trainer(torch, device, recorder, maker, batch_fn, optimizer, loss, amp, accumulate, evaluate)
            with generate_to_the_end(notes):
                for i in range(steps):
                    recorder.mark(f"step {i + 1}", True)
                    run(i)
                    recorder.sweep()
                    recorder.mark(f"step {i + 1}", False)
    except Refused as refused:
        where = f" at {refused.line}" if refused.line else ""
        raise Unsupported(
            f"estimate: {refused.operator}{where} needs the values of its input, and an estimate has only shapes. {_MEASURE}"
        ) from None
    except Exception as error:
        unsupported = _without_memory(error)
        if unsupported is None:
            raise
        raise unsupported from error
    if recorder.assumed:
        lines = sorted(recorder.assumed, key=recorder.assumed.get, reverse=True)  # type: ignore[arg-type]
        lines = [one for one in lines if one]
        if lines:
            notes["values"] = f"values that the program read from tensors were assumed (1, or False), first at {lines[0]}"
    if recorder.sparse:
        notes["sparse"] = f"sparse tensors, first at {recorder.sparse}: the temporaries of sparse operators are not counted, so it needs more than this"
    if not recorder.events or recorder.peak_bytes == 0:
        raise Invalid("estimate: the program made no tensor on the GPU; move the model and the batch there, or return them from model_fn and batch_fn")
    _write(recorder, path, target)
    seconds = time.monotonic() - began
    hidden = [
        {"what": what, "bytes": count, "source": "measured" if target.measured and "BLAS" in what.upper() else "assumed"}
        for what, count in sorted(recorder.hidden.items(), key=lambda one: -one[1])
        if count >= 1 << 20
    ]
    found = _answer(torch.__version__, target, path, mode, steps, hidden, notes, settings, seconds, recorder)
    found.data["simulated_step_ns"] = recorder.step_ns()
    return found


def _copy_of(torch: Any, model: Any) -> Any:
    """Returns a function that makes a fake copy of a real model; the model itself stays as it is."""

    def copy_it() -> Any:
        import copy

        from torch._subclasses.fake_tensor import FakeCopyMode
        from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

        mode = next(one for one in _get_current_dispatch_mode_stack() if type(one).__name__ == "FakeTensorMode")
        with FakeCopyMode(mode):
            return copy.deepcopy(model)

    return copy_it


def _answer(
    version: str,
    target: _gpus.Gpu,
    path: str,
    mode: str,
    steps: int,
    hidden: "List[Dict[str, Any]]",
    notes: "Dict[str, str]",
    settings: "Optional[str]",
    seconds: float,
    recorder: Any,
) -> Estimate:
    """Replays the trace and derives the answer for the GPU."""
    import json

    policy = "torch_expandable" if settings is not None and "expandable_segments:true" in settings.lower().replace(" ", "") else "torch_default"
    options = _analysis.ReplayOptions()
    options.settings = settings.encode("utf-8", "replace") if settings is not None else None

    def need(trace: str) -> "Dict[str, Any]":
        return _analysis.replay(trace, [policy], 1, options)[0]

    def bytes_needed(result: "Dict[str, Any]") -> int:
        return int(result["min_limit_bytes"] or result["peak_reserved_bytes"])

    free = need(path)
    needs = bytes_needed(free)
    bounds = _uncertainty.ranged(recorder, needs, target.measured, recorder.compiled, lambda trace: bytes_needed(need(trace)))
    options.limit_bytes = target.available_bytes
    finishes = _analysis.replay(path, [policy], 0, options)[0]["finishes"]
    verdict = _uncertainty.verdict(bounds, target.available_bytes)
    if verdict == "yes" and not finishes:
        verdict = "close"
    report = json.loads(_analysis.report_form([path], "json"))
    peak = report["runs"][0]["peak"]
    return Estimate(
        {
            "fits": verdict == "yes",
            "verdict": verdict,
            "margin_bytes": target.available_bytes - needs,
            "needs_bytes": needs,
            "needs_low_bytes": bounds.low,
            "needs_high_bytes": bounds.high,
            "uncertainty": bounds.reasons,
            "peak_live_bytes": free["peak_live_bytes"],
            "peak_reserved_bytes": free["peak_reserved_bytes"],
            "gpu": _gpus.as_json(target),
            "kind": mode,
            "steps": steps,
            "policy": policy,
            "holders": peak["holders"],
            "beside": hidden,
            "notes": list(notes.values()),
            "trace": path,
            "events": len(recorder.events),
            "torch": version,
            "seconds": round(seconds, 3),
        }
    )
