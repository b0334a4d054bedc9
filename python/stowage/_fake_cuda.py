"""A CUDA device that exists only for PyTorch's Python code, for programs that run on fake tensors.

`fake_cuda(gpu)` replaces the functions of `torch.cuda` that programs and PyTorch's own Python code call (is CUDA there, which
capability, how much memory) while it is open, and every other place where PyTorch takes another code path without a GPU:
autocast, GradScaler, foreach and fused optimizers, `Module.to`, checkpointing's random state and the flat weights of RNNs. Nothing is allocated and no driver is loaded. Everything is restored when it closes.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import types
import weakref
from typing import Any, Dict, Iterator, List, Tuple

from ._gpus import Gpu
from ._library import Unsupported

_ABSENT = object()


class _Patches:
    """Attributes that were replaced, with what they were."""

    def __init__(self) -> None:
        self._was: "List[Tuple[Any, str, Any]]" = []

    def set(self, where: Any, name: str, value: Any, *, add: bool = False) -> None:
        """Replaces an attribute. One that does not exist is skipped, or added."""
        was = vars(where).get(name, _ABSENT) if isinstance(where, type) or add else getattr(where, name, _ABSENT)
        if was is _ABSENT and not add:
            return
        self._was.append((where, name, was))
        setattr(where, name, value)

    def undo(self) -> None:
        while self._was:
            where, name, was = self._was.pop()
            if was is _ABSENT:
                delattr(where, name)
            else:
                setattr(where, name, was)


class _Stream:
    """Replaces a CUDA stream or event: every method returns None or the object itself."""

    cuda_stream = 0
    stream_id = 0
    device_index = 0
    device_type = 1

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        return 1.0

    def record_event(self, event: Any = None) -> Any:
        return event if event is not None else _Stream()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def _apply_to_fakes(torch: Any, real: "List[Tuple[Any, Dict[str, Any], str, Any]]") -> Any:
    """Returns a Module._apply that works on fake tensors.

    PyTorch's own swaps the tensors, which fails as long as the fake mode remembers them. This one replaces the parameter; one that
    several modules share stays shared. `real` receives what it replaces in a model of the program: (module, its dict, key, tensor).
    """
    from torch._subclasses.fake_tensor import FakeTensor

    replaced: "Dict[int, Tuple[Any, Any]]" = {}  # id of the old parameter: weak references to it and to the new one, which modules hold

    def apply(module: Any, fn: Any, recurse: bool = True) -> Any:
        if recurse:
            for child in module.children():
                child._apply(fn)
        for key, old in list(module._parameters.items()):
            if old is None:
                continue
            known = replaced.get(id(old))
            shared = known[1]() if known is not None and known[0]() is old else None
            if shared is not None:
                if not isinstance(old, FakeTensor):
                    real.append((module, module._parameters, key, old))
                module._parameters[key] = shared
                continue
            with torch.no_grad():
                moved = fn(old)
                grad = fn(old.grad) if old.grad is not None else None
            if moved is old:
                continue
            new = torch.nn.Parameter(moved, requires_grad=old.requires_grad)
            new.__dict__.update({k: v for k, v in old.__dict__.items() if k.startswith("_") is False and k not in _FAKE_STATE})
            new.grad = grad
            replaced[id(old)] = (weakref.ref(old), weakref.ref(new))
            if not isinstance(old, FakeTensor):
                real.append((module, module._parameters, key, old))
            module._parameters[key] = new
            del moved, old, new, shared
        for key, buffer in list(module._buffers.items()):
            if buffer is not None:
                moved = fn(buffer)
                if moved is not buffer and not isinstance(buffer, FakeTensor):
                    real.append((module, module._buffers, key, buffer))
                module._buffers[key] = moved
        return module

    return apply


def _flatten(torch: Any) -> Any:
    """Returns an RNNBase.flatten_parameters for fake tensors: on the GPU all weights move into one buffer (source: rnn.py, RNN.cpp)."""

    def flatten(self: Any) -> None:
        weights = self._flat_weights
        if any(not isinstance(one, torch.Tensor) or one.device.type != "cuda" or one.dtype is not weights[0].dtype for one in weights):
            return
        storages = {one.untyped_storage()._cdata for one in weights}
        if len(storages) == 1 and len(weights) > 1:
            return
        with torch.no_grad():
            flat, at = weights[0].new_empty(sum(one.numel() for one in weights)), 0
            for one in weights:
                one.data = flat[at : at + one.numel()].view(one.shape)
                at += one.numel()

    return flatten


_FAKE_STATE = ("fake_device", "fake_mode", "constant", "real_tensor", "item_memo", "unique_memo", "nested_int_memo", "pytype", "dispatch_keys")


def _properties(gpu: Gpu) -> Any:
    return types.SimpleNamespace(
        name=gpu.name,
        major=gpu.capability[0],
        minor=gpu.capability[1],
        total_memory=gpu.total_bytes,
        multi_processor_count=gpu.multiprocessors,
        is_integrated=False,
        is_multi_gpu_board=False,
        max_threads_per_multi_processor=2048,
        warp_size=32,
        regs_per_multiprocessor=65536,
        L2_cache_size=40 << 20,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=101376,
        shared_memory_per_multiprocessor=102400,
        gcnArchName="",
        uuid="",
    )


@contextlib.contextmanager
def fake_cuda(torch: Any, gpu: Gpu, notes: "Dict[str, str]", replaced: "List[Tuple[Any, str, Any]]") -> "Iterator[None]":
    """Makes PyTorch's Python code find one GPU like `gpu`. `notes` receives what makes the answer approximate, by topic;
    `replaced` are further attributes to replace: (object, name, value)."""
    patches = _Patches()
    real: "List[Tuple[Any, Dict[str, Any], str, Any]]" = []
    cuda = torch.cuda
    guard = getattr(torch._C, "_ensureCUDADeviceGuardSet", None)
    if guard is not None:
        guard()  # where there is no GPU, fake CUDA tensors need a device guard that does nothing
    log = logging.getLogger("torch._subclasses.fake_tensor")
    was_off, log.disabled = log.disabled, True  # it repeats the program's own errors, with PyTorch's lines
    try:
        _patch_cuda(torch, cuda, gpu, patches)
        _patch_choices(torch, patches, notes)
        patches.set(torch.nn.Module, "_apply", _apply_to_fakes(torch, real))
        for where, name, value in replaced:
            patches.set(where, name, value, add=True)
        yield
    finally:
        patches.undo()
        for module, values, key, tensor in reversed(real):
            values[key] = tensor
            if hasattr(module, "_flat_weights_names"):  # an RNN lists its weights
                module._flat_weights = [module._parameters.get(name) for name in module._flat_weights_names]
        log.disabled = was_off


def _patch_cuda(torch: Any, cuda: Any, gpu: Gpu, patches: _Patches) -> None:
    def nothing(*_: Any, **__: Any) -> None:
        return None

    def zero(*_: Any, **__: Any) -> int:
        return 0

    answers: "Dict[str, Any]" = {
        "is_available": lambda: True,
        "is_initialized": lambda: False,
        "device_count": lambda: 1,
        "current_device": zero,
        "_lazy_init": nothing,
        "init": nothing,
        "set_device": nothing,
        "_exchange_device": zero,
        "_maybe_exchange_device": zero,
        "synchronize": nothing,
        "empty_cache": nothing,
        "ipc_collect": nothing,
        "manual_seed": nothing,
        "manual_seed_all": nothing,
        "seed": nothing,
        "seed_all": nothing,
        "get_device_properties": lambda *_, **__: _properties(gpu),
        "get_device_capability": lambda *_, **__: gpu.capability,
        "get_device_name": lambda *_, **__: gpu.name,
        "is_bf16_supported": lambda *_, **__: gpu.capability >= (8, 0),
        "is_tf32_supported": lambda *_, **__: gpu.capability >= (8, 0),
        "get_arch_list": lambda: [f"sm_{gpu.capability[0]}{gpu.capability[1]}"],
        "mem_get_info": lambda *_, **__: (gpu.available_bytes, gpu.total_bytes),
        "set_per_process_memory_fraction": nothing,
        "reset_peak_memory_stats": nothing,
        "reset_max_memory_allocated": nothing,
        "memory_stats": lambda *_, **__: {},
        "memory_summary": lambda *_, **__: "",
        "is_current_stream_capturing": lambda: False,
        "current_stream": _Stream,
        "default_stream": _Stream,
        "stream": _Stream,
        "set_stream": nothing,
        "Stream": _Stream,
        "Event": _Stream,
        "get_rng_state": lambda *_, **__: _real(torch, lambda: torch.zeros(16, dtype=torch.uint8)),
        "get_rng_state_all": lambda *_, **__: [_real(torch, lambda: torch.zeros(16, dtype=torch.uint8))],
        "set_rng_state": nothing,
        "set_rng_state_all": nothing,
    }
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        answers[name] = zero
    for name, value in answers.items():
        patches.set(cuda, name, value)
        for part in ("random", "memory"):
            patches.set(getattr(cuda, part, None), name, value)
    if hasattr(torch, "accelerator"):
        patches.set(torch.accelerator, "is_available", lambda *_, **__: True)
        patches.set(torch.accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda"))
        patches.set(torch.accelerator, "device_count", lambda: 1)
        patches.set(torch.accelerator, "synchronize", nothing)


def _real(torch: Any, make: Any) -> Any:
    """Makes a tensor outside of every mode: a real one, in host memory."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        return make()


def _patch_choices(torch: Any, patches: _Patches, notes: "Dict[str, str]") -> None:
    """Follows the code path of a CUDA tensor where PyTorch's Python code checks the tensor's type."""
    from torch._subclasses import fake_tensor

    patches.set(fake_tensor, "init_gpu_context", lambda *_: None)  # it would allocate on a real GPU
    # torch.tensor(…, device="cuda") then makes a CPU tensor first, even if there is a GPU.
    patches.set(fake_tensor.FakeTensorMode, "avoid_device_init", property(lambda self: True))
    patches.set(torch.autograd.profiler, "record_function", lambda *_: contextlib.nullcontext())  # an operator that old fakes refuse
    patches.set(torch.nn.RNNBase, "flatten_parameters", _flatten(torch))
    foreach = getattr(getattr(torch.utils, "_foreach_utils", None), "_foreach_supported_types", None)
    if foreach is not None:
        with_fakes = [*foreach, fake_tensor.FakeTensor, torch.nn.Parameter]
        patches.set(torch.utils._foreach_utils, "_foreach_supported_types", with_fakes)
        patches.set(sys.modules.get("torch.optim.optimizer"), "_foreach_supported_types", with_fakes)
    # C++ does not see the device of these tensors (_fake_record), and Python must.
    patches.set(fake_tensor.FakeTensor, "is_cuda", property(lambda self: self.fake_device.type == "cuda"), add=True)
    patches.set(fake_tensor.FakeTensor, "get_device", lambda self: 0 if self.fake_device.type == "cuda" else -1, add=True)
    group: Any = getattr(torch._C, "_group_tensors_by_device_and_dtype", _ABSENT)
    if group is not _ABSENT:

        def grouped(*args: Any) -> Any:
            found = group(*args)
            return {(torch.device("cuda:0") if key[0].type == "meta" else key[0], key[1]): value for key, value in found.items()}

        patches.set(torch._C, "_group_tensors_by_device_and_dtype", grouped)
    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler

    def step(self: Any, optimizer: Any, state: Any, *arguments: Any, **named: Any) -> Any:
        return optimizer.step(*arguments, **named)  # no gradient overflows in an estimate

    patches.set(scaler, "_maybe_opt_step", step)

    if not hasattr(torch._C.DispatchKey, "AutocastCUDA"):

        def autocast(*_: Any, **__: Any) -> Any:
            raise Unsupported(f"estimate: autocast needs PyTorch 2.0 or newer, and this is {torch.__version__}")

        patches.set(torch, "autocast", autocast)
        patches.set(torch.cuda.amp, "autocast", autocast)
