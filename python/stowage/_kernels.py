"""What CUDA kernels allocate in addition to their results: workspaces that stay, and which kernel attention and RNNs use. Fake tensors
show the results of an operator, but not what its kernel allocates while it runs. `_kernel_temporaries` has what is freed when an operator
returns. Each entry states where its figure comes from: "measured" (a recording of PyTorch 2.11 on an H200), "source" (read in PyTorch's
sources), or "assumed".
"""

from __future__ import annotations

import contextlib
from typing import Any, List, Optional, Tuple

from ._kernel_sizes import Sizes, bytes_of
from ._kernel_temporaries import GUESSED, RULES, operand_copies


def autocasts(torch: Any) -> bool:
    """Returns True inside autocast for CUDA."""
    return bool(torch.is_autocast_enabled())


# ---- workspaces that stay ----

#: Operators that multiply matrices with cuBLAS.
_MATRIX = frozenset(("mm", "addmm", "bmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "_addmm_activation", "linear", "_scaled_mm", "_int_mm"))
#: Operators that use cublasLt, whose workspace is separate (measured: 1 MiB, kept).
_WITH_BIAS = frozenset(("addmm", "_addmm_activation", "_scaled_mm"))


def hidden(recorder: Any, name: str, args: Any, kwargs: Any, result: Any, where: int) -> None:
    """Records what the kernel of one operator allocates in addition to its result."""
    found: Sizes
    if name in _MATRIX:
        if recorder.once("cublas"):
            recorder.note_kept("cuBLAS workspaces", recorder.gpu.cublas_bytes)
            recorder.alloc(recorder.gpu.cublas_bytes, where)
        if name in _WITH_BIAS and _takes_lt(args, result) and recorder.once("cublaslt"):
            recorder.note_kept("cublasLt workspaces", recorder.gpu.cublaslt_bytes)
            recorder.alloc(recorder.gpu.cublaslt_bytes, where)
        found = "operands of matrix products", operand_copies(name, args)
    elif name == "binary_cross_entropy" and result.dim() == 0:
        recorder.holds(result, bytes_of(args[0]), where)  # the losses were in its storage, which stays (source: Loss.cu)
        return
    elif name in RULES:
        found = RULES[name](recorder, args, result)
    else:
        return
    what, sizes = found
    guessed = what in GUESSED
    blocks: "List[int]" = []
    for at, size in enumerate(sizes):
        if isinstance(size, tuple):
            for block in [recorder.alloc(one, where) for one in size if one > 0]:
                recorder.free(block, where)
        elif size > 0:
            blocks.append(recorder.alloc(size, where, guessed=guessed and at == len(sizes) - 1))
    recorder.note_hidden(what, sum(size if isinstance(size, int) else 0 for size in sizes))
    for block in blocks:
        recorder.free(block, where)


def _takes_lt(args: Any, result: Any) -> bool:
    """cublasLt takes a bias of one dimension that is as long as the rows (source: aten/src/ATen/native/cuda/Blas.cpp)."""
    bias = args[0]
    return bool(bias.dim() == 1 and result.dim() == 2 and bias.shape[0] == result.shape[1] and min(result.shape) > 1)


# ---- attention ----


def choose_attention(torch: Any, gpu: Any, query: Any, key: Any, value: Any, mask: Any, dropout: float = 0.0, causal: bool = False) -> str:
    """Returns the kernel that scaled_dot_product_attention uses: "cudnn", "flash", "efficient" or "math" (source: sdp_utils.cpp).

    All but "math" need tensors, and a mask, whose last dimension is contiguous. cuDNN's comes first on compute capability 9.0 and 10.0
    since cuDNN 9.15, which PyTorch has since 2.11, and takes a mask.
    """
    backends = torch.backends.cuda
    half = query.dtype in (torch.float16, torch.bfloat16)
    width, wide = query.shape[-1], value.shape[-1]
    if query.dim() != 4 or any(one.stride(-1) != 1 for one in (query, key, value, mask) if one is not None):
        return "math"
    rows, columns = query.shape[2], key.shape[2]
    learned = mask is not None and mask.requires_grad  # only the efficient and the math kernel have its gradient (source: check_attn_mask_shape)
    if half and not learned and gpu.capability in ((9, 0), (10, 0)) and _is_on(backends, "cudnn_sdp_enabled") and _version(torch) >= (2, 11):
        most = 256 if gpu.capability == (9, 0) else 128
        if max(width, wide) <= most and width % 8 == 0 and wide % 8 == 0 and columns > 1 and not (rows == 1 and dropout > 0):
            return "cudnn"
    square = not causal or rows == columns
    trains = torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value))
    small = trains and gpu.capability in ((8, 6), (8, 9), (12, 0)) and (192 < width <= 224 or (width > 224 and dropout > 0))
    if backends.flash_sdp_enabled() and half and mask is None and gpu.capability >= (8, 0) and width <= 256 and width == wide and square and not small:
        return "flash"
    supported = half or query.dtype is torch.float32
    if query.dtype is torch.bfloat16 and gpu.capability < (8, 0):
        supported = False
    align = 8 if half else 4 if gpu.capability >= (8, 0) else 1  # source: minimum_gemm_alignment
    if width % align or wide % align:
        supported = False
    if backends.mem_efficient_sdp_enabled() and supported and gpu.capability >= (5, 0) and query.shape[1] == key.shape[1]:
        return "efficient"
    return "math"


def _is_on(backends: Any, name: str) -> bool:
    return bool(getattr(backends, name, lambda: False)())


def _version(torch: Any) -> "Tuple[int, ...]":
    return tuple(int(part) for part in torch.__version__.split(".")[:2] if part.isdigit())


def attention(
    recorder: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: "Optional[float]" = None,
    enable_gqa: bool = False,
) -> Any:
    """scaled_dot_product_attention with the kernel the GPU would use."""
    torch, aten = recorder.torch, recorder.torch.ops.aten
    if autocasts(torch) and query.dtype.is_floating_point and query.dtype is not torch.float64:
        kind = torch.get_autocast_gpu_dtype()
        query, key, value = query.to(kind), key.to(kind), value.to(kind)
        if attn_mask is not None and attn_mask.dtype.is_floating_point:
            attn_mask = attn_mask.to(kind)
    chosen = choose_attention(torch, recorder.gpu, query, key, value, attn_mask, dropout_p, is_causal) if query.device.type == "cuda" else "math"
    grad = torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value))
    width = query.shape[-1]
    if chosen != "math" and attn_mask is not None and attn_mask.dtype is torch.bool:
        zero = torch.zeros((), dtype=query.dtype, device=query.device)
        attn_mask = torch.where(attn_mask, zero, zero)  # 0 and minus infinity; the shape alone counts
    if chosen == "cudnn":
        return aten._scaled_dot_product_cudnn_attention(query, key, value, attn_mask, grad, dropout_p, is_causal, False, scale=scale)[0]
    if chosen == "flash":
        if width % 8 != 0:
            query, key, value = (torch.nn.functional.pad(one, (0, 8 - width % 8)) for one in (query, key, value))
        out = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
        return out[..., :width] if width % 8 else out
    if chosen == "efficient":
        if attn_mask is not None:
            attn_mask = _mask(torch, attn_mask, query, key)
        return aten._scaled_dot_product_efficient_attention(query, key, value, attn_mask, grad, dropout_p, is_causal, scale=scale)[0]
    named = {"enable_gqa": True} if enable_gqa else {}
    # Its products are in float32 also under autocast, and a mask is added in place (source: attention.cpp; measured).
    with _without_autocast(torch), recorder.adding_in_place():
        if dropout_p > 0 and query.device.type == "cuda":
            return _math_with_dropout(torch, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        return aten._scaled_dot_product_attention_math(query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, **named)[0]


def _math_with_dropout(torch: Any, query: Any, key: Any, value: Any, mask: Any, p: float, causal: bool, scale: Any, grouped: bool) -> Any:
    """Attention by products with the dropout of a GPU, which keeps one byte per score; C++ takes that of the CPU for fake tensors."""
    kind, half = query.dtype, query.dtype in (torch.float16, torch.bfloat16)
    wide = lambda one: one.float() if half else one  # noqa: E731
    query, key, value = wide(query), wide(key), wide(value)
    if causal:
        there = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
        mask = torch.where(there, 0.0, float("-inf")).to(query.dtype)
    if grouped and key.shape[-3] != query.shape[-3]:
        key, value = (one.repeat_interleave(query.shape[-3] // one.shape[-3], -3) for one in (key, value))
    root = float(scale if scale is not None else query.shape[-1] ** -0.5) ** 0.5
    scores = torch.matmul(query * root, key.transpose(-2, -1) * root)
    if mask is not None:
        scores = scores + mask
    scores = torch.native_dropout(torch.ops.aten._safe_softmax(scores, -1), p, True)[0]
    shown = scores.to(kind)
    out = torch.matmul(scores, value).to(kind)
    del shown
    return out


def _without_autocast(torch: Any) -> Any:
    """Turns autocast off inside an operator whose inputs it has cast."""
    key = getattr(torch._C.DispatchKey, "AutocastCUDA", None)
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)) if key is not None else contextlib.nullcontext()


def _mask(torch: Any, mask: Any, query: Any, key: Any) -> Any:
    """A mask as the efficient kernel takes it: its strides multiples of 8, then expanded, which copies nothing (source: preprocess_mask)."""
    columns = mask.shape[-1]
    if any(mask.stride(d) % 8 for d in range(mask.dim() - 1)):
        mask = torch.nn.functional.pad(mask, (0, 8 - columns % 8))[..., :columns]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


# ---- dropout ----


def dropout(torch: Any, plain: Any, x: Any, p: float, train: bool) -> Any:
    """Dropout on a GPU keeps its mask in one byte per number (source: Dropout.cpp, native_dropout)."""
    if not isinstance(x, torch.Tensor) or x.device.type != "cuda" or not train or p <= 0 or p >= 1 or x.numel() == 0:
        return plain(x, p, train)
    return torch.native_dropout(x, p, train)[0]


# ---- RNNs ----

#: Numbers per cell and step that cuDNN keeps for the backward pass (measured for LSTM and GRU, else assumed), and one more per cell
#: between two layers.
_CELLS = {"lstm": 5, "gru": 6, "rnn_tanh": 2, "rnn_relu": 2}


def rnn_sizes(name: str, layers: int, ways: int, cells: int, drops: bool) -> "Tuple[int, int, int]":
    """Returns what cuDNN needs for an RNN whose layers have `cells` numbers in all steps and directions together.

    (numbers kept for the backward pass, bytes of dropout masks kept, numbers in the workspace besides a copy of the weights and
    `_RNN_BYTES` for each layer). The workspace is fitted to 14 measurements of LSTMs and GRUs with 1 to 3 layers, within 7%.
    """
    kept = cells * (_CELLS[name] * layers + layers - 1)
    masks = (layers - 1) * cells // 8 if drops else 0
    return kept, masks, 8 * cells if ways == 2 else int(cells * (4.2 + 0.93 * layers))


#: Part of the workspace of an RNN with one direction that does not grow with its input, for each layer. Fitted with `rnn_sizes`.
_RNN_BYTES = 9 << 20


def is_cuda_rnn(args: Any) -> bool:
    """cuDNN takes whole sequences on a GPU; packed ones have their lengths as the second argument."""
    return bool(args[0].device.type == "cuda" and len(args) == 9)


def rnn(recorder: Any, name: str, args: Any) -> Any:
    """An RNN as cuDNN runs it: one output, one reserve for the backward pass, workspaces. (Source of the order: cudnn/RNN.cpp.)"""
    x, state, weights, _, layers, dropped, training, both, batch_first = args
    states = tuple(state) if isinstance(state, (tuple, list)) else (state,)
    torch = recorder.torch
    if autocasts(torch):
        kind = torch.get_autocast_gpu_dtype()
        weights = _cast_weights(torch, weights, kind)
        x, states = x.to(kind), tuple(one.to(kind) for one in states)
    if training and dropped > 0 and recorder.once("dropout"):
        where = recorder._where()
        recorder.note_kept("cuDNN dropout", _DROPOUT_BYTES * recorder.gpu.multiprocessors)
        recorder.alloc(_DROPOUT_BYTES * recorder.gpu.multiprocessors, where)
    function = _rnn_function(recorder)
    return function.apply(name, layers, 2 if both else 1, training, dropped > 0, len(states), batch_first, x, *states, *weights)


#: The random state of dropout in RNNs, for each multiprocessor (measured: 6,488,064 B with 132).
_DROPOUT_BYTES = 49152


def _cast_weights(torch: Any, weights: Any, kind: Any) -> Any:
    """Returns weights that autocast casts: they share one buffer (source: _cudnn_rnn_cast_reflatten)."""

    class Cast(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            ctx.kinds = [one.dtype for one in given]
            flat, at, views = given[0].new_empty(sum(one.numel() for one in given), dtype=kind), 0, []
            for one in given:
                views.append(flat[at : at + one.numel()].view(one.shape))
                at += one.numel()
            return tuple(views)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return tuple(one.to(was) if one is not None else None for one, was in zip(grads, ctx.kinds))

    return list(Cast.apply(*weights))


def _rnn_function(recorder: Any) -> Any:
    torch = recorder.torch

    def reserve(x: Any, count: int, guessed: bool = True) -> Any:
        made = x.new_empty(count)
        if guessed:
            recorder.guessed.add(recorder.block_count)
        return made

    class Rnn(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, name: str, layers: int, ways: int, training: bool, drops: bool, state_count: int, batch_first: bool, x: Any, *rest: Any) -> Any:
            states, weights = rest[:state_count], rest[state_count:]
            width = states[0].shape[-1]
            steps = (x.transpose(0, 1) if batch_first else x).contiguous()
            cells = steps.shape[0] * steps.shape[1] * width * ways
            kept, masks, space = rnn_sizes(name, layers, ways, cells, drops and training)
            space += sum(one.numel() for one in weights) + (layers * _RNN_BYTES // x.element_size() if ways == 1 else 0)
            out = x.new_empty(steps.shape[0], steps.shape[1], width * ways)
            new_states = [torch.empty_like(one) for one in states]
            workspace = reserve(x, space)
            keep = reserve(x, kept + masks // x.element_size(), guessed=False) if training else None
            del workspace, steps
            if batch_first:
                out = out.transpose(0, 1)
            ctx.sizes = (space, state_count, batch_first)
            ctx.save_for_backward(x, out, keep, *states, *weights)
            return (out, *new_states)

        @staticmethod
        def backward(ctx: Any, grad: Any, *grads: Any) -> Any:
            saved = ctx.saved_tensors
            space, count, batch_first = ctx.sizes
            x, states, weights = saved[0], saved[3 : 3 + count], saved[3 + count :]
            turned = lambda one: one.transpose(0, 1) if batch_first else one  # noqa: E731
            steps, grad_steps = turned(x).contiguous(), turned(grad).contiguous()
            dx = torch.empty_like(steps)
            dstates = [torch.empty_like(one) for one in states]
            workspace = reserve(x, space)  # of the input's gradient
            del workspace, steps, grad_steps
            steps = turned(x).contiguous()
            flat = x.new_empty(sum(one.numel() for one in weights))
            workspace = reserve(x, space)  # of the weights'
            at, dweights = 0, []
            for one in weights:
                dweights.append(flat[at : at + one.numel()].view(one.shape))
                at += one.numel()
            del workspace, steps
            return (None, None, None, None, None, None, None, turned(dx), *dstates, *dweights)

    return Rnn
