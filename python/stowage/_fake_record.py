"""Records when every storage of a program that runs on fake CUDA tensors is created and freed.

`Recorder` is a dispatch mode above PyTorch's fake mode. Each operator passes through it: a storage of its result that was not
seen before is an allocation, and the end of that storage, which a weak reference reports, is a free. The operator's hidden memory
(`_kernels`) is added around it. Events have the Python stack of the operator; those of the backward pass have the stack of the
operator in the forward pass whose gradient they compute.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from . import _convolutions, _kernel_times, _kernels
from ._gpus import Gpu

ALLOC, FREE, BEGIN, END, LAUNCH = 0, 1, 2, 3, 4
_FRAMES_MAX = 24
_ARRAY_MOST = 64 << 20  #: larger arrays of assumed values are read-only views of one number
_LOOPS_MOST = 2000  #: conditions on a tensor at one line: more are taken for a loop that only a value can end
_PACKAGE = __name__.rpartition(".")[0] + "."


#: The device that PyTorch's C++ code sees for a fake CUDA tensor. Its autograd engine asks the driver about the streams of a CUDA
#: tensor, and there may be none. No program uses this index.
HIDDEN = "meta:7"

#: References to a gradient that only the autograd engine holds, as a dispatch mode sees them: to its storage and to the tensor. Counted
#: with PyTorch 2.11; a version that has more of its own never adds in place here, and its estimate is a little too high.
_STORAGE_USES, _TENSOR_USES = 2, 4

#: Modules of PyTorch and of this package that are between every operator and the dispatch mode.
_PLUMBING = (_PACKAGE, "torch._ops", "torch.utils._python_dispatch", "torch.overrides", "torch._subclasses", "torch._compile", "torch._dynamo")


class Refused(Exception):
    """An operator that fake tensors cannot run; `operator` is its name, `line` where the program called it."""

    def __init__(self, operator: str, line: str, reason: str) -> None:
        super().__init__(operator)
        self.operator, self.line, self.reason = operator, line, reason


class _Named(NamedTuple):
    """Replaces a code object: the layer of the model that a frame of PyTorch runs."""

    co_name: str
    co_filename: str


#: The outermost frame of what a backward pass allocates: it marks the phase, and the line stays that of the forward pass.
_BACKWARD = (_Named("backward", "torch/autograd/__init__.py"), 1)


def _stack(end: str, in_backward: bool, layers: "Dict[int, str]") -> "Tuple[Tuple[Any, int], ...]":
    """Returns the frames of the program and of PyTorch that lead here, innermost first, up to the module `end`; in a
    backward pass, only those inside it.

    Where no frame is the program's, the innermost names the layer.
    """
    frames: "List[Tuple[Any, int]]" = []
    layer: "Optional[Tuple[Any, int]]" = None
    outside = False
    at: Any = sys._getframe(2)
    while at is not None and len(frames) < _FRAMES_MAX:
        name = at.f_globals.get("__name__", "")
        if name == end or (in_backward and name in ("torch.autograd", "torch.autograd.graph")):
            break
        if not name.startswith(_PLUMBING):
            frames.append((at.f_code, at.f_lineno))
            outside = outside or not _is_torch(at.f_code)
            if layers and not outside and layer is None and at.f_code.co_name == "forward" and name.startswith("torch.nn.modules"):
                known = layers.get(id(at.f_locals.get("self")))
                if known is not None:
                    layer = (_Named(known, at.f_code.co_filename), at.f_lineno)
        at = at.f_back
    if layer is not None and not outside:
        frames.insert(0, layer)
    return tuple(frames)


def _is_torch(code: Any) -> bool:
    return "-packages/torch/" in code.co_filename or code.co_filename.startswith("<")


def _is_dense(tensor: Any) -> bool:
    """Returns True if the numbers of a tensor fill its memory without gaps, in any order of its dimensions."""
    expected = 1
    for stride, count in sorted((int(stride), int(count)) for stride, count in zip(tensor.stride(), tensor.shape) if count != 1):
        if stride != expected:
            return False
        expected *= count
    return True


class Recorder:
    """The events of one program: (kind, id, bytes, stack number or name)."""

    def __init__(self, torch: Any, gpu: Gpu, device_type: str, end: str) -> None:
        self.torch, self.gpu, self.device_type = torch, gpu, device_type
        self.end = end  # the module that runs the program: its frames and those outside do not count
        self.events: "List[Tuple[int, int, int, Any]]" = []
        self.stacks: "List[Tuple[Tuple[Any, int], ...]]" = [()]
        self._stack_numbers: "Dict[Tuple[Tuple[Any, int], ...], int]" = {(): 0}
        self._live: "Dict[int, Tuple[Any, int]]" = {}  # address of a storage: its weak reference, its id
        self._sizes: "Dict[int, int]" = {}  # id of a live block: its bytes
        self._next = 0
        self._forward: "Dict[int, int]" = {}  # sequence number of an autograd node: stack number
        self._threads: "Dict[Tuple[int, str], bool]" = {}
        self.live_bytes = self.peak_bytes = 0
        self.layers: "Dict[int, str]" = {}  # id of a module: its name in the model
        self.guessed: "Set[int]" = set()  # blocks whose size a library chooses at run time
        self.assumed: "Dict[str, int]" = {}  # lines that read a value of a fake tensor
        self.hidden: "Dict[str, int]" = {}  # largest hidden block by what it is
        self.adds_in_place = self.paused = False
        self.faked: "Optional[Callable[[Any], Any]]" = None  #: makes a fake tensor of a real one
        self.compiled = ""  # "followed" or "ignored": what became of torch.compile
        self.sparse = ""  # the line that made the first sparse tensor
        self.inputs: "List[Any]" = []  # (type, shape) of the tensors of the first batch
        self._called: "Dict[int, Any]" = {}  # first dimension of what a model was called with: (type, shape)
        autograd = getattr(torch, "autograd", None)
        self._sequence = getattr(autograd, "_get_sequence_nr", None)
        self._node = getattr(torch._C, "_current_autograd_node", None)
        counts = hasattr(torch._C, "_storage_Use_Count") and hasattr(torch.Tensor, "_use_count")
        self._in_backward = getattr(torch._C, "_current_graph_task_id", None) if counts else None
        self._least_uses = _TENSOR_USES
        self.keeps_storages = tuple(int(p) for p in torch.__version__.split(".")[:2] if p.isdigit()) >= (2, 1)

    # ---- stacks ----

    def stack_number(self, frames: "Tuple[Tuple[Any, int], ...]") -> int:
        number = self._stack_numbers.get(frames)
        if number is None:
            number = self._stack_numbers[frames] = len(self.stacks)
            self.stacks.append(frames)
        return number

    def _where(self) -> int:
        """Returns the stack of the operator that runs; in the backward pass, that of the operator in the forward pass."""
        node = self._node() if self._node is not None else None
        frames = _stack(self.end, node is not None, self.layers)
        if node is not None:
            if all(_is_torch(code) for code, _ in frames) and not self._is_recomputed(frames):  # not a recomputed forward pass, nor a backward of the program
                known = self._forward.get(node._sequence_nr()) if hasattr(node, "_sequence_nr") else None
                if known:
                    return self.stack_number((*self.stacks[known], _BACKWARD))
            return self.stack_number(frames)
        if frames not in self._stack_numbers:
            self._see_call()
        if self._sequence is not None and self.torch.is_grad_enabled():
            number = self.stack_number(frames)
            self._forward.setdefault(self._sequence() - 1, number)  # the node was made just before its operator
            return number
        return self.stack_number(frames)

    def _see_call(self) -> None:
        """Notes the first tensor that the outermost module was called with: its first dimension is the batch."""
        at: Any = sys._getframe(2)
        call = None
        while at is not None and at.f_globals.get("__name__", "") != self.end:
            if at.f_code.co_name == "_call_impl" and at.f_globals.get("__name__") == "torch.nn.modules.module":
                call = at
            at = at.f_back
        if call is None:
            return
        held = call.f_locals
        given = held.get("args") or held.get("input") or tuple((held.get("kwargs") or {}).values())  # "input" before PyTorch 2.0
        first = next((one for one in given if isinstance(one, self.torch.Tensor) and one.dim() > 0), None)
        if first is not None:
            self._called.setdefault(int(first.shape[0]), (str(first.dtype), tuple(int(n) for n in first.shape)))

    def batch_seen(self) -> "List[Any]":
        """Returns (type, shape) of the batch: what `batch_fn` made, or what the lines that call the program's models agree on."""
        return self.inputs or (list(self._called.values()) if len(self._called) == 1 else [])

    @staticmethod
    def _is_recomputed(frames: "Tuple[Tuple[Any, int], ...]") -> bool:
        return any(code.co_name == "forward" for code, _ in frames)

    def line_of(self, number: int) -> str:
        """Returns "file.py:12" of the innermost frame that is not PyTorch's."""
        for code, line in self.stacks[number]:
            if not _is_torch(code):
                return f"{code.co_filename}:{line}"
        return ""

    def assumes(self, where: int) -> int:
        """Counts a value that the program read, and that an estimate does not have; returns how many were read at this line."""
        line = self.line_of(where)
        self.assumed[line] = self.assumed.get(line, 0) + 1
        return self.assumed[line]

    # ---- events ----

    def alloc(self, size: int, where: int, guessed: bool = False) -> int:
        """Records a block and returns its id. `guessed`: a library chooses its size at run time."""
        self._next += 1
        if guessed:
            self.guessed.add(self._next)
        self.events.append((ALLOC, self._next, size, where))
        self._sizes[self._next] = size
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return self._next

    def free(self, block: int, where: int = 0) -> None:
        size = self._sizes.pop(block, None)
        if size is not None:
            self.live_bytes -= size
            self.events.append((FREE, block, size, where))

    @property
    def block_count(self) -> int:
        """Returns how many blocks were recorded so far."""
        return self._next

    def mark(self, name: str, begins: bool) -> None:
        self.events.append((BEGIN if begins else END, 0, 0, name))

    def launched(self, name: str, args: Any, result: Any, inputs: "List[Any]", outputs: "List[Any]") -> None:
        """Records a kernel with the blocks that it uses."""
        blocks: "Dict[int, None]" = {}
        for one in (*inputs, *outputs):
            if one.device.type == self.device_type and one.layout is self.torch.strided:
                known = self._live.get((one.untyped_storage() if self.keeps_storages else one.storage()._storage)._cdata)
                if known is not None:
                    blocks[known[1]] = None
        if blocks:
            took = _kernel_times.device_ns(name, args, result, inputs, outputs)
            self.events.append((LAUNCH, 0, took, (name, list(blocks))))

    def step_ns(self) -> int:
        """Returns the simulated time of the last step: kernels run after each other and after their launches."""
        begins = [at for at, one in enumerate(self.events) if one[0] == BEGIN]
        host = device = 0
        for kind, _, took, _ in self.events[begins[-1] if begins else 0 :]:
            if kind == LAUNCH:
                host += _kernel_times.HOST_NS
                device = max(device, host) + took
        return max(host, device)

    def sweep(self) -> None:
        """Finds storages that ended, in versions of PyTorch whose storages do not report it."""
        if self.keeps_storages:
            return
        kind = self.torch.UntypedStorage
        for key, (pointer, block) in list(self._live.items()):
            if kind._expired(pointer):
                del self._live[key]
                kind._free_weak_ref(pointer)
                self.free(block)

    def _ended(self, key: int, block: int) -> None:
        known = self._live.get(key)
        if known is not None and known[1] == block:
            del self._live[key]
        self.free(block)

    def saw(self, tensor: Any, where: int) -> None:
        """Records the storage of a tensor if it is new and on the device. A sparse one has two: indices and values."""
        if tensor.device.type != self.device_type:
            return
        if tensor.layout is self.torch.sparse_coo:
            self.sparse = self.sparse or self.line_of(where) or "the backward pass"
            self.saw(tensor._indices(), where)
            self.saw(tensor._values(), where)
        if tensor.layout is not self.torch.strided:
            return
        storage = tensor.untyped_storage() if self.keeps_storages else tensor.storage()._storage
        key = storage._cdata
        if key in self._live:
            known = self._live[key]
            size = storage.nbytes()
            if self._sizes.get(known[1]) != size:  # resize_ replaced its memory
                self.free(known[1], where)
                block = self.alloc(size, where) if size else 0
                self._live[key] = (self._watch(storage, key, block), block)
            return
        size = storage.nbytes()
        if size == 0:
            return
        block = self.alloc(size, where)
        self._live[key] = (self._watch(storage, key, block), block)

    def holds(self, tensor: Any, size: int, where: int) -> None:
        """Records that the storage of a tensor is larger than the tensor shows."""
        storage = tensor.untyped_storage() if self.keeps_storages else tensor.storage()._storage
        known = self._live.get(storage._cdata)
        if known is not None and self._sizes.get(known[1], size) < size:
            self.free(known[1], where)
            block = self.alloc(size, where)
            self._live[storage._cdata] = (self._watch(storage, storage._cdata, block), block)

    def _watch(self, storage: Any, key: int, block: int) -> Any:
        if not self.keeps_storages:
            return storage._weak_ref()
        owner = self
        return weakref.ref(storage, lambda _: owner._ended(key, block))

    def accumulates_in_place(self, args: Any, kwargs: Any) -> bool:
        """Returns True for a sum of gradients that the autograd engine writes into the first of them.

        The engine does so when nothing else holds that gradient (input_buffer.cpp), but never with fake tensors.
        """
        if not self._in_backward or kwargs or len(args) != 2 or self.torch.is_grad_enabled() or self._in_backward() == -1:
            return False
        old, new = args
        if not isinstance(new, self.torch.Tensor) or old.device.type != "cuda" or old.shape != new.shape or old.dtype is not new.dtype:
            return False
        if not _is_dense(old) or self.torch._C._storage_Use_Count(old.untyped_storage()._cdata) > _STORAGE_USES:
            return False
        self._least_uses = min(self._least_uses, old._use_count())
        if old._use_count() > self._least_uses:
            return False
        # A backward pass of the program adds as the program does.
        return all(_is_torch(code) for code, _ in _stack(self.end, True, {}))

    @contextlib.contextmanager
    def adding_in_place(self) -> "Iterator[None]":
        """Inside the `with`, a sum uses the memory of its first argument. PyTorch's C++ code adds in place only what is not a fake tensor."""
        self.adds_in_place = True
        try:
            yield
        finally:
            self.adds_in_place = False

    @contextlib.contextmanager
    def pausing(self, paused: bool = True) -> "Iterator[None]":
        """Inside the `with`, operators run and nothing is recorded."""
        was, self.paused = self.paused, paused
        try:
            yield
        finally:
            self.paused = was

    def recording(self) -> Any:
        """Inside the `with`, operators are recorded again."""
        return self.pausing(False)

    def gives_up(self, tensor: Any, where: int) -> None:
        """Records that the next operator may use the memory of a tensor, which is not read again."""
        known = self._live.get((tensor.untyped_storage() if self.keeps_storages else tensor.storage()._storage)._cdata)
        if known is not None:
            self.free(known[1], where)

    def once(self, what: str) -> bool:
        """Returns True the first time a thread asks for `what`."""
        key = (threading.get_ident() if self._node is not None else 0, what)
        if what == "cublas" and self._node is not None:
            key = (1 if self._node() is not None else 0, what)  # a real backward pass has a thread of its own
        if key in self._threads:
            return False
        self._threads[key] = True
        return True

    def note_hidden(self, what: str, size: int) -> None:
        """Notes a temporary of a kernel: the largest counts, because one is freed before the next."""
        self.hidden[what] = max(self.hidden.get(what, 0), size)

    def note_kept(self, what: str, size: int) -> None:
        """Notes a workspace that stays: all of them count."""
        self.hidden[what] = self.hidden.get(what, 0) + size


def dispatch_mode(recorder: Recorder) -> Any:
    """Returns the dispatch mode that sends each operator's memory to the recorder."""
    torch = recorder.torch
    from torch.utils._python_dispatch import TorchDispatchMode

    tree_leaves = getattr(torch.utils._pytree, "tree_leaves", None) or (lambda tree: torch.utils._pytree.tree_flatten(tree)[0])
    def tensors(tree: Any) -> "List[Any]":
        return [one for one in tree_leaves(tree) if isinstance(one, torch.Tensor)]

    def writes(name: str) -> bool:
        """Returns True for an operator that writes to one of its arguments: mul_, _foreach_add_, set_data."""
        return name.rpartition(".")[0].endswith("_") or name.endswith("_")

    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    composites: "Dict[Any, bool]" = {}

    def composite(func: Any) -> bool:
        """Returns True for an operator that only calls others: conv2d, linear, softmax."""
        if func not in composites:
            composites[func] = hasattr(func, "_op_dk") and has_kernel(func.name(), "CompositeImplicitAutograd")
        return composites[func]

    errors = _failures()
    device_of = getattr(torch.ops.prim.device, "default", None)
    hidden_device = torch.device(HIDDEN)
    shown_device = torch.device("cuda:0")
    copy = torch.ops.aten._to_copy.default
    alias = torch.ops.aten.alias.default
    add, add_in_place = torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is device_of:
                given = args[0].fake_device if hasattr(args[0], "fake_device") else shown_device
                return hidden_device if given.type == "cuda" else given
            kwargs = kwargs or {}
            if kwargs.get("device") is not None and (kwargs["device"] == hidden_device or kwargs["device"].type == "cuda"):
                kwargs = {**kwargs, "device": shown_device}
                if func is copy and type(args[0]) in (torch.Tensor, torch.nn.Parameter) and recorder.faked is not None:
                    args = (recorder.faked(args[0]), *args[1:])  # PyTorch 2.5 would really copy it
                if func is copy and args[0].device == shown_device and kwargs.get("dtype") in (None, args[0].dtype):
                    if kwargs.get("memory_format") in (None, torch.preserve_format):
                        return alias(args[0])  # it is there already; only C++ does not know
            if torch.is_inference_mode_enabled() and composite(func):
                with self:  # elsewhere autograd does this before the mode sees the operator
                    return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
            if recorder.paused:
                return func(*args, **kwargs)
            if func is add and recorder.accumulates_in_place(args, kwargs):
                add_in_place(*args)
                return args[0]
            where = recorder._where()
            name = func._schema.name[6:] if hasattr(func, "_schema") and func._schema.name.startswith("aten::") else str(func)
            if recorder.adds_in_place and func is add:
                recorder.gives_up(args[0], where)
            try:
                result = func(*args, **kwargs)
            except errors as reason:
                value = _value(torch, name, args)
                if value is None:
                    raise Refused(str(func), recorder.line_of(where), str(reason).split("\n", 1)[0]) from None
                if recorder.assumes(where) > _LOOPS_MOST and value is False:
                    raise Refused(str(func), recorder.line_of(where), "a loop that ends by a value") from None
                return value
            except RuntimeError as reason:
                if "NVIDIA driver" not in str(reason) and "CUDA driver" not in str(reason):
                    raise
                raise Refused(str(func), recorder.line_of(where), str(reason).split("\n", 1)[0]) from None
            if name in ("convolution", "convolution_backward") and args[0].device.type == recorder.device_type:
                result = _convolutions.in_order(recorder, name, args, result)
            recorder.sweep()
            before = recorder.block_count
            first = None
            if name == "convolution_backward" and args[1].device.type == recorder.device_type:
                _convolutions.backward(recorder, args, result, where)
            if type(result) is torch.Tensor or isinstance(result, torch.Tensor):
                first = result
                recorder.saw(result, where)
            elif result is not None:
                leaves = tree_leaves(result if name != "_scaled_dot_product_cudnn_attention" or args[4] else result[:1])  # logsumexp only if asked for
                for one in reversed(leaves) if name == "native_dropout" else leaves:  # its kernel makes the mask first
                    if isinstance(one, torch.Tensor):
                        first = first if first is not None else one
                        recorder.saw(one, where)
            if first is None and writes(name):  # _foreach_add_ returns nothing
                given = tensors(args)
                if given and given[0].device.type == recorder.device_type:
                    recorder.launched(name, args, result, tensors((args, kwargs)), [])
            if first is not None and first.device.type == recorder.device_type:
                _kernels.hidden(recorder, name, args, kwargs, result, where)
                if recorder.block_count > before or writes(name):  # else a view
                    recorder.launched(name, args, result, tensors((args, kwargs)), tensors(result))
            return result

    return Mode()


def _failures() -> "Tuple[Any, ...]":
    """Returns the exceptions with which fake tensors refuse an operator."""
    from torch._subclasses import fake_tensor

    names = ("DataDependentOutputException", "DynamicOutputShapeException", "UnsupportedFakeTensorException", "UnsupportedOperatorException")
    return tuple(getattr(fake_tensor, name) for name in names if hasattr(fake_tensor, name))


def _value(torch: Any, name: str, args: Any) -> Any:
    """Returns the value assumed for a read of one element (`.item()`, `if tensor:`), or None for another operator."""
    if name == "equal":
        return False
    if name != "_local_scalar_dense":
        return None
    kind = args[0].dtype
    return False if kind is torch.bool else 1.0 if kind.is_floating_point else 1


def replaced_functions(recorder: Recorder) -> "List[Tuple[Any, str, Any]]":
    """Returns the functions that choose a kernel by the device: (object, name, replacement)."""
    torch = recorder.torch
    dropout, functional = torch._VF.dropout, torch.nn.functional
    changed = [(torch._VF, "dropout", lambda x, p, train: _kernels.dropout(torch, dropout, x, p, train))]
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        changed.append((torch._VF, name, _rnn(recorder, name, getattr(torch._VF, name))))
    linear = functional.linear

    def with_bias(x: Any, weight: Any, bias: Any = None) -> Any:
        """PyTorch runs some linear layers as a product and a sum in place, which it does not do for fake tensors (Linear.cpp)."""
        if bias is None or not isinstance(x, torch.Tensor) or x.device.type != "cuda" or x.dim() < 3 or x.is_contiguous():
            return linear(x, weight, bias)
        return torch.matmul(x, weight.t()).add_(bias)

    changed.append((functional, "linear", with_bias))
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    changed.append((FakeTensor, "numpy", _array(recorder)))
    if not hasattr(torch._C, "_ensureCUDADeviceGuardSet") and hasattr(FakeTensorMode, "dispatch"):  # fake_cuda() calls the first
        changed.append((FakeTensorMode, "dispatch", hiding_dispatch(torch, FakeTensorMode.dispatch, FakeTensor)))
    if hasattr(functional, "scaled_dot_product_attention"):
        changed.append((functional, "scaled_dot_product_attention", lambda *args, **named: _kernels.attention(recorder, *args, **named)))
    return changed


def hiding_dispatch(torch: Any, real: Any, kind: Any) -> Any:
    """Returns FakeTensorMode.dispatch that hides the device of tensors of this kind from C++. The recorder's mode does so only for what
    the program calls, not inside the operators that PyTorch calls for it."""
    device_of = getattr(torch.ops.prim.device, "default", None)
    hidden_device, shown_device = torch.device(HIDDEN), torch.device("cuda:0")

    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is device_of and isinstance(args[0], kind):
            given = getattr(args[0], "fake_device", None) or args[0].device
            return hidden_device if given.type == "cuda" else given
        if kwargs and kwargs.get("device") == hidden_device:
            kwargs = {**kwargs, "device": shown_device}
        return real(self, func, types, args, kwargs)

    return dispatch


def _array(recorder: Recorder) -> Any:
    """Returns Tensor.numpy for fake tensors: an array of the values assumed for reads, 1 or False."""
    torch = recorder.torch

    def numpy(self: Any, *, force: bool = False) -> Any:
        import numpy as np
        from torch.utils._python_dispatch import _disable_current_modes

        if not force and self.device.type == "cuda":
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.")
        if not force and self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        recorder.assumes(recorder._where())
        with _disable_current_modes():
            one = torch.zeros((), dtype=self.dtype).numpy() if self.dtype is torch.bool else torch.ones((), dtype=self.dtype).numpy()
        shape = tuple(int(n) for n in self.shape)
        whole = np.broadcast_to(one, shape)  # takes no memory, and cannot be written
        return whole if whole.size * one.itemsize > _ARRAY_MOST else whole.copy()

    return numpy


def _rnn(recorder: Recorder, name: str, plain: Any) -> Any:
    def run(*args: Any) -> Any:
        return _kernels.rnn(recorder, name, args) if _kernels.is_cuda_rnn(args) else plain(*args)

    return run


def function_mode(recorder: Recorder) -> Any:
    """Returns the mode for calls that name a device, and for attention that was imported by its own name."""
    torch = recorder.torch
    attention = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
    from torch.overrides import TorchFunctionMode

    def is_cuda(one: Any) -> bool:
        return (isinstance(one, str) and one.startswith("cuda")) or (isinstance(one, torch.device) and one.type == "cuda")

    shown_device = torch.device("cuda:0")
    softmaxes = {one: torch.ops.aten._softmax for one in (torch.nn.functional.softmax, torch.softmax, torch.Tensor.softmax)}
    softmaxes.update({one: torch.ops.aten._log_softmax for one in (torch.nn.functional.log_softmax, torch.log_softmax, torch.Tensor.log_softmax)})

    def widens(x: Any, *rest: Any, **named: Any) -> bool:
        """Returns True for a softmax from float16 to float32, which a GPU computes without a copy in float32 (SoftMax.cpp)."""
        return named.get("dtype") is torch.float32 and x.dtype is torch.float16 and x.device.type == "cuda"

    class Mode(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if func is attention and attention is not None:
                return _kernels.attention(recorder, *args, **kwargs)
            if func in softmaxes and args and widens(*args, **kwargs):
                return softmaxes[func](args[0], kwargs["dim"] if "dim" in kwargs else args[1], True)
            if func is torch.Tensor.cuda:
                func, args, kwargs = torch.Tensor.to, (args[0], shown_device), {}
            if is_cuda(kwargs.get("device")) or (isinstance(kwargs.get("device"), int) and not isinstance(kwargs.get("device"), bool)):
                kwargs["device"] = shown_device
            if func is torch.Tensor.to:
                args, kwargs = self.without_device(args, kwargs)
                if len(args) == 1 and not kwargs:
                    return args[0]
            return func(*args, **kwargs)

        @staticmethod
        def without_device(args: Any, kwargs: Any) -> Any:
            """Returns the arguments of Tensor.to with the device's index; without the device if the tensor is already there."""
            there = args[0].device.type == "cuda"
            target = is_cuda(kwargs.get("device")) or any(is_cuda(one) for one in args[1:])
            if not target:
                return args, kwargs
            kwargs = {key: one for key, one in kwargs.items() if key != "device" and not (there and key == "non_blocking")}
            rest = [one for one in args[1:] if not is_cuda(one)]
            if there:
                rest = [one for one in rest if not isinstance(one, bool) and one is not None]
                if not rest and all(one is None for one in kwargs.values()):
                    return (args[0],), {}
                return (args[0], *rest), kwargs
            return (args[0], shown_device, *rest), kwargs

    return Mode()
