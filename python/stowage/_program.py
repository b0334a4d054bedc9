"""What a PyTorch program was doing when it ran out: its model, its optimizer, its batch, as lines of text.

`program_text(torch)` runs on the thread whose request failed, before the exception frees anything. It reads variables of the running
functions and the sizes of tensors; it runs no code of the program, allocates nothing on the device and changes nothing. The text is a
fact of the recording ("program", docs/explain.md) that src/advise/program.c reads.

The build also puts this file, below those that it imports, before src/shim/inside.py.
"""
import re
import sys
import threading
from typing import Any

from ._access import *
from ._tensors import *
from ._kept import *

#: Version of the text. A reader ignores lines it does not know.
PROGRAM_VERSION = 1
PROGRAM_MOST = 4000  # bytes of the text: a fact of a trace has at most 4096
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
    if not frame.f_code.co_flags & 1 and type(values) is not dict:  # a class body's may be anything
        return {}
    copy = dict(values)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & 1 and sys.gettrace() is None and sys.getrefcount(values) <= 3:
        values.clear()
    return copy


def frames_of_failure() -> Any:
    """Returns the running frames, innermost first.

    Autograd's threads have none: there, they are those of the main thread, which waits in backward().
    """
    found = frames_from(sys._getframe(1))
    if not any(is_own(frame.f_code.co_filename) for frame in found):
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


def word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]", "_", text)[:60]


class ProgramView:
    """What the frames show."""

    def __init__(self, torch: Any, tensors: Tensors) -> None:
        self.torch, self.tensors = torch, tensors
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

    def is_module(self, value: Any) -> bool:
        return is_a(value, self.torch.nn.Module)

    def look(self, frame: Any) -> None:
        step = step_of_frame(frame)
        # Loading and backward enclose calls and moves; the outermost of them shows the purpose.
        if step and (not self.step or step in ("loading", "backward", "optimizer")):
            self.step = step
        own = is_own(frame.f_code.co_filename)
        if not (own or step):
            return
        values = locals_of_frame(frame)
        self.mark = len(self.others)
        code = frame.f_code
        me = values.get(code.co_varnames[0]) if code.co_argcount > 0 else None
        if own and not self.step and frame.f_code.co_name == "__init__" and self.is_module(me):
            self.step = "building"
        if self.is_module(me) and (step in ("forward", "building") or frame.f_code.co_name == "forward"):
            if self.inner is None:
                self.inner = me
            if self.inner is me:
                self.beside += [v for v in values.values() if self.is_module(v) and v is not me]
            self.root = me
            if step == "forward":
                self.inputs = self.found((values.get("args"), values.get("kwargs"), values.get("input")))
        for name, value in values.items():
            self.take(name, value, own)
        if own and me is not None and not self.is_module(me):
            for name, value in fields_of(me)[:200]:
                self.take(name, value, False)

    def take(self, name: Any, value: Any, own: bool) -> None:
        if self.is_module(value):
            self.modules.append(value)
        elif is_a(value, self.torch.optim.Optimizer):
            inner = get(value, "optimizer")
            self.optimizers.append(inner if is_a(inner, self.torch.optim.Optimizer) else value)
        elif is_a(value, self.torch.utils.data.DataLoader):
            size = get(value, "batch_size")
            self.batches.append(size if type(size) is int else 0)
        elif type(value) is int:
            if type(name) is str and BATCH_NAMES.match(name):
                self.batches.append(value)
            if own:
                self.numbers.add(value)
        elif own:  # the newest first: a batch is made after the data it is cut from
            self.others[self.mark : self.mark] = self.found(value if is_a(value, (tuple, list, dict)) else (value,))

    def found(self, values: Any, depth: int = 0) -> "list[Any]":
        """Returns the tensors of arguments, including those in lists and dicts."""
        found: "list[Any]" = []
        for _, value in first_entries(values, 32):
            if is_a(value, self.torch.nn.Parameter):
                continue
            if self.tensors.has(value):
                found.append(value)
            elif depth < 2 and is_a(value, (tuple, list, dict)):
                found += self.found(value, depth + 1)
        return found[:32]

    def shape(self, tensor: Any) -> "tuple[int, ...]":
        return self.tensors.shape(tensor)

    def size_of(self, values: Any) -> int:
        return sum(self.tensors.size(t) for t in values)


def parts_of(module: Any) -> "list[tuple[str, Any]]":
    """Returns a module and those inside it with their names, each once, in the order of named_modules()."""
    found: "list[tuple[str, Any]]" = []
    seen: "set[int]" = set()
    wait = [("", module)]
    while wait and len(found) < PROGRAM_MODULES:
        name, at = wait.pop()
        if at is None or id(at) in seen:
            continue
        seen.add(id(at))
        found.append((name, at))
        inside = first_entries(get(at, "_modules"), PROGRAM_MODULES)
        wait += [(f"{name}.{key}" if name else str(key), part) for key, part in reversed(inside) if type(key) is str]
    return found


def own_parameters(module: Any) -> "list[Any]":
    return [p for _, p in first_entries(get(module, "_parameters"), PROGRAM_MODULES) if p is not None]


def groups_of(optimizer: Any) -> "list[Any]":
    return [group for _, group in first_entries(get(optimizer, "param_groups"), PROGRAM_MODULES) if is_a(group, dict)]


def parameters_of(view: ProgramView) -> "list[Any]":
    """Returns every parameter once: of the modules found, and of the optimizers."""
    found: "dict[int, Any]" = {}
    seen: "set[int]" = set()
    for module in [view.root, *view.modules]:
        if module is not None and len(found) < PROGRAM_MODULES and id(module) not in seen:
            for _, part in parts_of(module):
                seen.add(id(part))
                for p in own_parameters(part):
                    found[id(p)] = p
    for optimizer in view.optimizers:
        for group in groups_of(optimizer):
            for _, p in first_entries(dict.get(group, "params"), PROGRAM_MODULES):
                found[id(p)] = p
    return [p for p in found.values() if view.tensors.has(p)]


def state_size(view: ProgramView, optimizer: Any) -> int:
    """Returns the bytes of the optimizer's state on a device so far."""
    return sum(
        view.tensors.size(value)
        for _, state in first_entries(get(optimizer, "state"), PROGRAM_MODULES)
        for _, value in first_entries(state, 64)
        if view.tensors.has(value) and view.tensors.device(value) != "cpu"
    )


def lines_of_model(view: ProgramView) -> Any:
    parameters, tensors = parameters_of(view), view.tensors
    trained = [p for p in parameters if tensors.read(p, "requires_grad")]
    gradients = [tensors.read(p, "grad") for p in parameters if tensors.read(p, "is_leaf")]
    yield f"parameters {sum(map(tensors.count, parameters))} {view.size_of(parameters)}"
    yield f"trained {sum(map(tensors.count, trained))} {view.size_of(trained)}"
    yield f"on_device {view.size_of(p for p in parameters if tensors.device(p) != 'cpu')}"
    yield f"gradients {view.size_of(g for g in gradients if tensors.has(g))}"
    sizes: "dict[str, int]" = {}
    for p in parameters:
        name = str(tensors.read(p, "dtype")).replace("torch.", "")
        sizes[name] = sizes.get(name, 0) + tensors.size(p)
    for name, size in sorted(sizes.items(), key=lambda pair: -pair[1])[:4]:
        yield f"dtype {word(name)} {size}"


def whole_of(view: ProgramView) -> Any:
    """Returns the largest module of the program's variables that contains the called one: a list of layers that a loop calls one by one."""
    whole, most = view.root, 0
    for module in view.modules[:64]:
        inside = parts_of(module)
        if len(inside) > most and any(m is view.root for _, m in inside):
            whole, most = module, len(inside)
    return whole


def lines_of_place(view: ProgramView) -> Any:
    """Returns the module that was called, and how far its forward pass had come, counted in modules with weights of their own."""
    root = view.root
    if root is None:
        return
    yield f"module {word(class_name(root))}"
    yield f"training {int(get(root, 'training') is True)}"
    yield f"within {word(class_name(view.inner))}"
    passed, count, head, path = -1, 0, 0, ""
    beside = {id(module) for module in view.beside}
    whole = whole_of(view)
    for name, module in parts_of(whole):
        if module is view.inner:
            path = name
        if (module is view.inner and module is not whole) or id(module) in beside:
            passed = count
        if own_parameters(module):
            count += 1
        if is_a(module, view.torch.nn.Linear):
            head = get(module, "out_features", head)
    if path:
        yield f"path {word(path)}"
    if passed >= 0:  # else: somewhere in the model's own forward
        yield f"passed {passed} {count}"
    yield f"modules {count}"
    yield f"head {head if type(head) is int else 0}"


def lines_of_optimizer(view: ProgramView) -> Any:
    names = {id(o): o for o in view.optimizers}
    for optimizer in list(names.values())[:4]:
        groups = groups_of(optimizer)
        params = [p for group in groups for _, p in first_entries(dict.get(group, "params"), PROGRAM_MODULES) if view.tensors.has(p)]
        options = groups[0] if groups else {}
        flags = [name for name in ("fused", "foreach", "amsgrad", "momentum", "centered", "capturable") if is_set(dict.get(options, name))]
        flags += ["single"] if dict.get(options, "foreach") is False else []
        numbers = f"{sum(map(view.tensors.count, params))} {view.size_of(params)} {state_size(view, optimizer)}"
        yield " ".join(["optimizer", word(class_name(optimizer)), numbers, *flags])


def is_set(value: Any) -> bool:
    return is_plain(value) and bool(value)


def batch_of(view: ProgramView, inputs: Any) -> "tuple[int, str]":
    """Returns the batch of the program, and whether a name shows it ("named") or the first dimension of the inputs ("first").

    A call may get several rows for each sample: two views of an image, a prompt with and without its text. Then the batch is a number
    of the program that divides the rows: one named as a batch, or the length of a tensor that differs from an input in its length only.
    Lists of numbers, such as a graph's edges, have a length of their own, so a tensor with several dimensions shows the rows.
    """
    shapes = [view.shape(t) for t in inputs]
    named = [n for n in view.batches if n > 0 and any(n in shape for shape in shapes)]
    if named:
        return named[0], "named"
    first = [shape[0] for shape in shapes if len(shape) > 1] or [shape[0] for shape in shapes]
    rows = max(first, key=first.count)
    named = [n for n in view.batches if 1 < n < rows and rows % n == 0]
    if named:
        return named[0], "named"
    like = {(view.tensors.read(t, "dtype"), s[1:]) for t, s in zip(inputs, shapes) if len(s) > 1 and s[0] == rows}
    for tensor in view.others:
        shape = view.shape(tensor)
        n = shape[0] if len(shape) > 1 and (view.tensors.read(tensor, "dtype"), shape[1:]) in like else 0
        if 1 < n < rows <= n * PROGRAM_VIEWS and rows % n == 0 and n in view.numbers and rows not in view.numbers:
            return n, "first"
    return rows, "first"


def lines_of_batch(view: ProgramView) -> Any:
    """Returns the inputs of the call and the batch; if no call is running, the program's own tensors that are not results."""
    inputs = [t for t in view.inputs or view.others if view.shape(t) and (view.inputs or not view.tensors.read(t, "requires_grad"))][:PROGRAM_INPUTS]
    for tensor in inputs:
        yield f"input {word(str(view.tensors.read(tensor, 'dtype')).replace('torch.', ''))} {'x'.join(str(n) for n in view.shape(tensor)[:8])}"
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
    known_kinds.clear()  # a class of before may have ended
    with Tensors(torch) as tensors:
        return text_of_program(torch, tensors)


def text_of_program(torch: Any, tensors: Tensors) -> str:
    lines = [f"program {PROGRAM_VERSION}", f"torch {word(str(torch.__version__))}"]
    parts: "list[Any]" = [lambda: [f"grad {int(torch.is_grad_enabled())}"], lambda: [f"autocast {autocast_type(torch)}"]]
    try:
        view = ProgramView(torch, tensors)
        lines.append(f"step {view.step or 'other'}")
        parts += [lambda part=part: part(view) for part in (lines_of_model, lines_of_place, lines_of_optimizer, lines_of_batch)]
    except Exception:  # a variable of the program that cannot be read
        pass
    parts.append(lambda: advice_lines(torch, tensors, frames_of_failure(), locals_of_frame))
    for part in parts:
        try:
            lines += list(part())
        except Exception:
            continue
    text = ""
    for line in lines:
        if len(text.encode()) + len(line.encode()) + 1 <= PROGRAM_MOST:
            text += line + "\n"
    return text
