"""What a PyTorch program was doing when it ran out: its model, its optimizer, its batch, as lines of text.

`program_text(torch)` runs on the thread whose request failed, before the exception frees anything. It reads variables of the running
functions and asks tensors for their sizes; it allocates nothing on the device and changes nothing. The text is a fact of the recording
("program", docs/explain.md) that src/advise/program.c reads.

The build also puts this file before src/shim/inside.py, so it must not import anything of the package.
"""
import re
import sys
import threading
from typing import Any

#: Version of the text. A reader ignores lines it does not know.
PROGRAM_VERSION = 1
PROGRAM_MOST = 3500  # bytes of the text: a fact of a trace has at most 4096
PROGRAM_FRAMES = 400
PROGRAM_MODULES = 20_000
PROGRAM_INPUTS = 4
PROGRAM_VIEWS = 4  # most rows of a call for one sample, if no name shows the batch

CALLS = ("_call_impl", "_wrapped_call_impl", "__call__", "_slow_forward")
BATCH_NAMES = re.compile(r"^(self\.)?(per_device_)?(train_|eval_|test_|mini|micro_?)?(batch(_?size)?|bs)$", re.IGNORECASE)


def locals_of_frame(frame: Any) -> Any:
    """Returns a copy of its variables.

    Before Python 3.13 the frame keeps the dict it makes, and with it tensors that the function replaces later. So the dict is
    emptied again, unless something else holds it.
    """
    values = frame.f_locals
    copy = dict(values)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & 1 and sys.gettrace() is None and sys.getrefcount(values) <= 3:
        values.clear()
    return copy


def frames_of_failure() -> Any:
    """Returns the running frames, innermost first.

    Autograd's threads have none: there, they are those of the main thread, which waits in backward().
    """
    found = frames_from(sys._getframe(1))
    if not any(is_own_file(frame.f_code.co_filename) for frame in found):
        found += frames_from(sys._current_frames().get(threading.main_thread().ident or 0))
    return found


def frames_from(at: Any) -> Any:
    """Returns the frame and those outside it, without ours."""
    ours = globals().get("__file__", "").rpartition("/")[0] or "<stowage"
    found: Any = []
    while at is not None and len(found) < PROGRAM_FRAMES:
        if not at.f_code.co_filename.startswith(ours):
            found.append(at)
        at = at.f_back
    return found


def is_own_file(path: str) -> bool:
    return not path.startswith("<") and "-packages/" not in path and "/lib/python" not in path


def step_of_frame(frame: Any) -> str:
    """Returns the part of a step that a frame belongs to; "" if it could be any."""
    name, path = frame.f_code.co_name, frame.f_code.co_filename.replace("\\", "/")
    if "torch/optim/" in path or "bitsandbytes/optim" in path:
        return "optimizer"
    if "torch/autograd/" in path and name in ("backward", "grad", "_engine_run_backward"):
        return "backward"
    if name in ("load_state_dict", "from_pretrained", "_load_pretrained_model") or "torch/serialization.py" in path:
        return "loading"
    if path.endswith("nn/modules/module.py"):
        return "building" if name in ("_apply", "to", "cuda") else "forward" if name in CALLS else ""
    if "torch/nn/" in path and name in ("__init__", "reset_parameters"):
        return "building"
    return ""


def word(text: Any) -> str:
    return re.sub(r"[^A-Za-z0-9_.]", "_", str(text))[:60]


class ProgramView:
    """What the frames show."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.step = ""
        self.root: Any = None  # the module whose call failed, or the one being moved
        self.inner: Any = None
        self.beside: "list[Any]" = []  # modules that the innermost forward has in variables: the layer of a loop
        self.modules: "list[Any]" = []
        self.optimizers: "list[Any]" = []
        self.inputs: "list[Any]" = []
        self.others: "list[Any]" = []  # tensors of the program's own variables
        self.mark = 0
        self.batches: "list[int]" = []  # numbers whose name shows that they are the batch size
        self.numbers: "set[int]" = set()  # all whole numbers of the program's own variables
        for frame in frames_of_failure():
            self.look(frame)

    def look(self, frame: Any) -> None:
        step = step_of_frame(frame)
        # Loading and backward enclose calls and moves; the outermost of them shows the purpose.
        if step and (not self.step or step in ("loading", "backward", "optimizer")):
            self.step = step
        own = is_own_file(frame.f_code.co_filename)
        if not (own or step):
            return
        values = locals_of_frame(frame)
        self.mark = len(self.others)
        code = frame.f_code
        me = values.get(code.co_varnames[0]) if code.co_argcount > 0 else None
        if own and not self.step and frame.f_code.co_name == "__init__" and isinstance(me, self.torch.nn.Module):
            self.step = "building"
        if isinstance(me, self.torch.nn.Module) and (step in ("forward", "building") or frame.f_code.co_name == "forward"):
            if self.inner is None:
                self.inner = me
            if self.inner is me:
                self.beside += [v for v in values.values() if isinstance(v, self.torch.nn.Module) and v is not me]
            self.root = me
            if step == "forward":
                self.inputs = self.tensors((values.get("args"), values.get("kwargs"), values.get("input")))
        for name, value in values.items():
            self.take(name, value, own)
        if own and me is not None and not isinstance(me, self.torch.nn.Module):
            for name, value in list(getattr(me, "__dict__", {}).items())[:200]:
                self.take(name, value, False)

    def take(self, name: str, value: Any, own: bool) -> None:
        if isinstance(value, self.torch.nn.Module):
            self.modules.append(value)
        elif isinstance(value, self.torch.optim.Optimizer):
            self.optimizers.append(getattr(value, "optimizer", value))
        elif isinstance(value, self.torch.utils.data.DataLoader):
            self.batches.append(value.batch_size or 0)
        elif isinstance(value, int):
            if BATCH_NAMES.match(name):
                self.batches.append(value)
            if own:
                self.numbers.add(value)
        elif own:  # the newest first: a batch is made after the data it is cut from
            self.others[self.mark : self.mark] = self.tensors(value if isinstance(value, (tuple, list, dict)) else (value,))

    def tensors(self, values: Any, depth: int = 0) -> Any:
        """Returns the tensors of arguments, including those in lists and dicts."""
        found = []
        many = list(values.values()) if isinstance(values, dict) else list(values)
        for value in many[:32]:
            if isinstance(value, self.torch.nn.Parameter):
                continue
            if isinstance(value, self.torch.Tensor):
                found.append(value)
            elif isinstance(value, (tuple, list, dict)) and depth < 2:
                found += self.tensors(value, depth + 1)
        return found[:32]


def parameters_of(view: ProgramView) -> Any:
    """Returns every parameter once: of the modules found, and of the optimizers."""
    found: Any = {}
    for module in [view.root, *view.modules]:
        if module is not None and len(found) < PROGRAM_MODULES:
            for p in module.parameters():
                found[id(p)] = p
    for optimizer in view.optimizers:
        for group in optimizer.param_groups:
            for p in group["params"]:
                found[id(p)] = p
    return list(found.values())


def size_of(tensors: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def state_size(optimizer: Any) -> int:
    """Returns the bytes of the optimizer's state on a device so far."""
    return sum(
        value.numel() * value.element_size()
        for state in list(optimizer.state.values())
        if isinstance(state, dict)
        for value in state.values()
        if hasattr(value, "element_size") and value.device.type != "cpu"
    )


def lines_of_model(view: ProgramView) -> Any:
    parameters = parameters_of(view)
    trained = [p for p in parameters if p.requires_grad]
    yield f"parameters {sum(p.numel() for p in parameters)} {size_of(parameters)}"
    yield f"trained {sum(p.numel() for p in trained)} {size_of(trained)}"
    yield f"on_device {size_of(p for p in parameters if p.device.type != 'cpu')}"
    yield f"gradients {size_of(p.grad for p in parameters if p.is_leaf and p.grad is not None)}"
    sizes: "dict[str, int]" = {}
    for p in parameters:
        name = str(p.dtype).replace("torch.", "")
        sizes[name] = sizes.get(name, 0) + p.numel() * p.element_size()
    for name, size in sorted(sizes.items(), key=lambda pair: -pair[1])[:4]:
        yield f"dtype {word(name)} {size}"


def whole_of(view: ProgramView) -> Any:
    """Returns the largest module of the program's variables that contains the called one: a list of layers that a loop calls one by one."""
    whole, most = view.root, 0
    for module in view.modules[:64]:
        inside = list(module.modules())[:PROGRAM_MODULES]
        if len(inside) > most and any(m is view.root for m in inside):
            whole, most = module, len(inside)
    return whole


def lines_of_place(view: ProgramView) -> Any:
    """Returns the module that was called, and how far its forward pass had come, counted in modules with weights of their own."""
    root = view.root
    if root is None:
        return
    yield f"module {word(type(root).__name__)}"
    yield f"training {int(root.training)}"
    yield f"within {word(type(view.inner).__name__)}"
    passed, count, head, path = -1, 0, 0, ""
    beside = {id(module) for module in view.beside}
    whole = whole_of(view)
    for name, module in list(whole.named_modules())[:PROGRAM_MODULES]:
        if module is view.inner:
            path = name
        if (module is view.inner and module is not whole) or id(module) in beside:
            passed = count
        if any(True for _ in module.parameters(recurse=False)):
            count += 1
        head = getattr(module, "out_features", head) if isinstance(module, view.torch.nn.Linear) else head
    if path:
        yield f"path {word(path)}"
    if passed >= 0:  # else: somewhere in the model's own forward
        yield f"passed {passed} {count}"
    yield f"modules {count}"
    yield f"head {head if isinstance(head, int) else 0}"


def lines_of_optimizer(view: ProgramView) -> Any:
    names = {id(o): o for o in view.optimizers}
    for optimizer in list(names.values())[:4]:
        params = [p for group in optimizer.param_groups for p in group["params"]]
        options = optimizer.param_groups[0] if optimizer.param_groups else {}
        flags = [name for name in ("fused", "foreach", "amsgrad", "momentum", "centered", "capturable") if options.get(name)]
        flags += ["single"] if options.get("foreach") is False else []
        yield f"optimizer {word(type(optimizer).__name__)} {sum(p.numel() for p in params)} {size_of(params)} {state_size(optimizer)}" + "".join(
            f" {flag}" for flag in flags
        )


def batch_of(view: ProgramView, inputs: Any) -> "tuple[int, str]":
    """Returns the batch of the program, and whether a name shows it ("named") or the first dimension of the inputs ("first").

    A call may get several rows for each sample: two views of an image, a prompt with and without its text. Then the batch is a number
    of the program that divides the rows: one named as a batch, or the length of a tensor that differs from an input in its length only.
    Lists of numbers, such as a graph's edges, have a length of their own, so a tensor with several dimensions shows the rows.
    """
    named = [n for n in view.batches if n > 0 and any(n in t.shape for t in inputs)]
    if named:
        return named[0], "named"
    first = [t.shape[0] for t in inputs if t.dim() > 1] or [t.shape[0] for t in inputs]
    rows = max(first, key=first.count)
    named = [n for n in view.batches if 1 < n < rows and rows % n == 0]
    if named:
        return named[0], "named"
    like = {(t.dtype, tuple(t.shape[1:])) for t in inputs if t.dim() > 1 and t.shape[0] == rows}
    for tensor in view.others:
        n = tensor.shape[0] if tensor.dim() > 1 and (tensor.dtype, tuple(tensor.shape[1:])) in like else 0
        if 1 < n < rows <= n * PROGRAM_VIEWS and rows % n == 0 and n in view.numbers and rows not in view.numbers:
            return n, "first"
    return rows, "first"


def lines_of_batch(view: ProgramView) -> Any:
    """Returns the inputs of the call and the batch; if no call is running, the program's own tensors that are not results."""
    inputs = [t for t in view.inputs or view.others if t.dim() > 0 and (view.inputs or not t.requires_grad)][:PROGRAM_INPUTS]
    for tensor in inputs:
        yield f"input {word(str(tensor.dtype).replace('torch.', ''))} {'x'.join(str(n) for n in list(tensor.shape)[:8])}"
    if inputs:
        yield "batch {} {}".format(*batch_of(view, inputs))


def autocast_type(torch: Any) -> str:
    try:
        on = torch.is_autocast_enabled("cuda")
        kind = torch.get_autocast_dtype("cuda")
    except TypeError:  # before 2.4
        on, kind = torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()
    return word(str(kind).replace("torch.", "")) if on else "off"


def program_text(torch: Any) -> str:
    """Returns the facts, one per line; a part that cannot be read is left out."""
    lines = [f"program {PROGRAM_VERSION}", f"torch {word(torch.__version__)}"]
    parts: "list[Any]" = [lambda: [f"grad {int(torch.is_grad_enabled())}"], lambda: [f"autocast {autocast_type(torch)}"]]
    try:
        view = ProgramView(torch)
        lines.append(f"step {view.step or 'other'}")
        parts += [lambda part=part: part(view) for part in (lines_of_model, lines_of_place, lines_of_optimizer, lines_of_batch)]
    except Exception:  # a variable of the program whose attributes cannot be read
        pass
    for part in parts:
        try:
            lines += list(part())
        except Exception:
            continue
    text = ""
    for line in lines:
        if len(text) + len(line) + 1 <= PROGRAM_MOST:
            text += line + "\n"
    return text
