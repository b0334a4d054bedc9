"""What CUDA kernels allocate in addition to their results: workspaces, temporaries, and which kernel attention and RNNs use. Fake tensors
show the results of an operator, but not what its kernel allocates while it runs. Each entry states where
its figure comes from: "measured" (a recording of PyTorch 2.11 on an H200), "source" (read in PyTorch's sources), or "assumed".
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

_MIB = 1 << 20


def _round(number: int, to: int) -> int:
    return (number + to - 1) // to * to


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def autocasts(torch: Any) -> bool:
    """Returns True inside autocast for CUDA."""
    return bool(torch.is_autocast_enabled())


# ---- workspaces that stay ----

#: Operators that multiply matrices with cuBLAS.
_MATRIX = frozenset(("mm", "addmm", "bmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "_addmm_activation", "linear", "_scaled_mm", "_int_mm"))
# : Operators that use cublasLt, whose workspace is separate (measured: 1 MiB, kept).
_WITH_BIAS = frozenset(("addmm", "_addmm_activation", "_scaled_mm"))


def hidden(recorder: Any, name: str, args: Any, kwargs: Any, result: Any, where: int) -> None:
    """Records what the kernel of one operator allocates in addition to its result."""
    if name in _MATRIX:
        if recorder.once("cublas"):
            recorder.note_kept("cuBLAS workspaces", recorder.gpu.cublas_bytes)
            recorder.alloc(recorder.gpu.cublas_bytes, where)
        if name in _WITH_BIAS and _takes_lt(args, result) and recorder.once("cublaslt"):
            recorder.note_kept("cublasLt workspaces", recorder.gpu.cublaslt_bytes)
            recorder.alloc(recorder.gpu.cublaslt_bytes, where)
        return
    rule = _TEMPORARY.get(name)
    if rule is None:
        return
    what, sizes = rule(recorder, args, result)
    blocks = [recorder.alloc(size, where) for size in sizes if size > 0]
    for size in sizes:
        recorder.note_hidden(what, size)
    for block in blocks:
        recorder.free(block, where)


def _takes_lt(args: Any, result: Any) -> bool:
    """cublasLt takes a bias of one dimension that is as long as the rows (source: aten/src/ATen/native/cuda/Blas.cpp)."""
    bias = args[0]
    return bool(bias.dim() == 1 and result.dim() == 2 and bias.shape[0] == result.shape[1] and min(result.shape) > 1)


# ---- temporaries of one operator ----

Sizes = Tuple[str, Tuple[int, ...]]


def _convolution(recorder: Any, args: Any, result: Any) -> Sizes:
    """cuDNN's workspace without benchmark mode: operands copied to channels-last order."""
    return "cuDNN convolution workspace", (_transforms(recorder, args[0], args[1], result, args[3]),)


def _convolution_backward(recorder: Any, args: Any, result: Any) -> Sizes:
    """The same copies, and partial sums of the weight's gradient.

    Measured: 14 sums in float32 besides the gradient itself for weights up to 0.56 MiB, 7.875 MiB of them for larger ones.
    """
    grad, x, weight = args[0], args[1], args[2]
    one = _transforms(recorder, x, weight, grad, args[4])
    sums = min(14 * weight.numel() * 4, 7 * _MIB + 7 * _MIB // 8)
    wanted = sum(1 for part in result[:2] if part is not None)
    # The gradients of input and weight are two kernels, one after the other: the larger workspace counts.
    return "cuDNN convolution workspace", (one + sums if wanted and one else 0,)


def _transforms(recorder: Any, x: Any, weight: Any, y: Any, stride: Any) -> int:
    """Returns the bytes of a convolution's operands in channels-last order; 0 if cuDNN takes them as they are.

    Measured: input and output with channels rounded up to 16 bytes, and the weight. A product of pixels (1 x 1, stride 1) is a matrix
    product without copies.
    """
    half = x.dtype.itemsize == 2
    if recorder.gpu.capability < ((7, 0) if half else (8, 0)):
        return 0
    last = recorder.torch.channels_last if x.dim() == 4 else recorder.torch.channels_last_3d if x.dim() == 5 else None
    if last is not None and x.is_contiguous(memory_format=last) and not x.is_contiguous():
        return 0
    if all(n == 1 for n in weight.shape[2:]) and all(n == 1 for n in stride) and weight.shape[1] == x.shape[1]:
        return 0
    return _padded(x) + _bytes(weight) + _padded(y)


def _padded(tensor: Any) -> int:
    """Returns the bytes of an image with its channels rounded up to 16 bytes."""
    channels = int(tensor.shape[1])
    return _bytes(tensor) // max(1, channels) * _round(channels, max(1, 16 // tensor.element_size()))


def _flash_backward(recorder: Any, args: Any, result: Any) -> Sizes:
    """dq_accum and softmax_d in float32 (source: mha_bwd of flash_api.cpp), and dk, dv of every query head with grouped heads."""
    query, key = args[1], args[2]
    batch, heads, rows, width = query.shape
    if recorder.gpu.capability >= (9, 0):  # cuDNN's kernel has one workspace (measured for 196 to 2048 rows)
        grouped = batch * heads * key.shape[2] * width * query.element_size() if key.shape[1] != heads else 0
        return "attention backward", (batch * heads * rows * (width + 1) * 4 + 2 * grouped,)
    rows = _round(rows, 128)
    accumulated = batch * heads * rows * _round(width, 32) * 4
    grouped = 0
    if key.shape[1] != heads:
        grouped = batch * heads * key.shape[2] * width * query.element_size()
    return "attention backward", (batch * heads * rows * 4, accumulated, grouped, grouped)


def _efficient_backward(recorder: Any, args: Any, result: Any) -> Sizes:
    """delta, and for 16-bit types a float32 accumulator of dq (source: attention_backward.cu)."""
    query = args[1]
    batch, heads, rows, width = query.shape
    half = query.element_size() == 2
    return "attention backward", (batch * heads * _round(rows, 32) * 4, batch * heads * _round(rows, 64) * _round(width, 32) * 4 if half else 0)


def _embedding_backward(recorder: Any, args: Any, result: Any) -> Sizes:
    """Indices in several orders, the space to sort them, and partial sums, above 3072 indices (source: Embedding.cu).

    Measured for 13440 indices and 768 columns: all of these blocks, the partial sums with 45,416,448 B.
    """
    count, width = args[1].numel(), result.shape[-1]
    if count <= 3072:
        return "embedding backward", ()
    parts = -(-count // 10) + min(count, result.shape[0])
    return "embedding backward", (*(count * 8,) * 3, count * 16 + 19968, *(count * 8,) * 4, parts * 8, parts * width * 4)


def _sort(recorder: Any, args: Any, result: Any) -> Sizes:
    """Keys and indices once more (source: Sort.cpp, cub)."""
    size = args[0].numel()
    return "sort", (size * 8, size * args[0].element_size())


def _index_put(recorder: Any, args: Any, result: Any) -> Sizes:
    """Sorted linear indices, their order, and the space to sort (source: Indexing.cu); only when values are added up."""
    if len(args) < 4 or not args[3]:
        return "index_put", ()
    count = max((one.numel() for one in args[1] if one is not None), default=0)
    return "index_put", (count * 8, count * 8, count * 8, count * 16)


def _softmax_backward(recorder: Any, args: Any, result: Any) -> Sizes:
    """grad * output (source: SoftMax.cu; measured: one block of the scores' size for each attention layer)."""
    return "softmax backward", (max(_bytes(args[0]), _bytes(args[1])),)


def _last_power(number: int) -> int:
    return 1 << (max(1, number).bit_length() - 1)


def _reduction(recorder: Any, args: Any, result: Any) -> Sizes:
    """The buffer of a reduction that many blocks share, and its semaphores (source: setReduceConfig of Reduce.cuh).

    Measured: the sums of the bias gradients of a GPT with 13440 rows and 768, 2304 and 3072 columns had exactly these sizes.
    """
    x, out = args[0], result
    what = "reduction"
    if not isinstance(out, recorder.torch.Tensor) or x.dim() == 0 or x.numel() == 0 or out.numel() == 0 or x.stride(-1) != 1:
        return what, ()
    dims = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else None
    if dims is None or not dims or any(d % x.dim() == x.dim() - 1 for d in dims):
        return what, ()  # along the fastest dimension the buffer is small
    outputs, inputs = out.numel(), x.numel() // out.numel()
    vector = next(n for n in (4, 2, 1) if x.shape[-1] % n == 0)
    threads_max = 512 // vector
    width_max, height_max = min(_last_power(outputs // vector), threads_max), min(_last_power(inputs), threads_max)
    width = min(width_max, 32)
    height = min(height_max, threads_max // width)
    width = min(width_max, threads_max // height)
    values = inputs
    if values < min(height * 16, 256):
        return what, ()
    values = -(-values // height)
    target = recorder.gpu.multiprocessors * (recorder.gpu.threads_per_multiprocessor // (width * height))
    grid = -(-(outputs // vector) // width)
    if values < 256 or grid > target:
        return what, ()
    blocks = max(min(-(-target // grid), -(-values // 16)), -(-values // 256))
    if blocks <= 1:
        return what, ()
    width_bytes = 8 if x.dtype in (recorder.torch.float64, recorder.torch.int64) else 4
    return what, (width_bytes * outputs * blocks * width * vector, 4 * grid)


_TEMPORARY: "Dict[str, Callable[[Any, Any, Any], Sizes]]" = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention_backward": _flash_backward,
    "_scaled_dot_product_cudnn_attention_backward": _flash_backward,
    "_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "embedding_dense_backward": _embedding_backward,
    "sort": _sort,
    "_index_put_impl_": _index_put,
    "index_put_": _index_put,
    "_softmax_backward_data": _softmax_backward,
    "sum": _reduction,
    "mean": _reduction,
    "amax": _reduction,
    "amin": _reduction,
}


# ---- attention ----


def choose_attention(torch: Any, gpu: Any, query: Any, key: Any, value: Any, mask: Any) -> str:
    """Returns the kernel that scaled_dot_product_attention uses: "flash", "efficient" or "math" (source: sdp_utils.cpp).

    All but "math" need tensors, and a mask, whose last dimension is contiguous.

    cuDNN's kernel, which new versions prefer on compute capability 9, allocates what "flash" does.
    """
    backends = torch.backends.cuda
    half = query.dtype in (torch.float16, torch.bfloat16)
    width = query.shape[-1]
    if query.dim() != 4 or any(one.stride(-1) != 1 for one in (query, key, value, mask) if one is not None):
        return "math"
    if backends.flash_sdp_enabled() and half and mask is None and gpu.capability >= (8, 0) and width <= 256:
        return "flash"
    supported = half or query.dtype is torch.float32
    if query.dtype is torch.bfloat16 and gpu.capability < (8, 0):
        supported = False
    if backends.mem_efficient_sdp_enabled() and supported and gpu.capability >= (5, 0) and query.shape[1] == key.shape[1]:
        return "efficient"
    return "math"


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
    chosen = choose_attention(torch, recorder.gpu, query, key, value, attn_mask) if query.device.type == "cuda" else "math"
    width = query.shape[-1]
    if chosen != "math" and width % 8 != 0:
        query, key, value = (torch.nn.functional.pad(one, (0, 8 - width % 8)) for one in (query, key, value))
    if chosen == "flash":
        out = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
        return out[..., :width] if width % 8 else out
    if chosen == "efficient":
        grad = torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value))
        if attn_mask is not None:
            attn_mask = _mask(torch, attn_mask, query, key)
        out = aten._scaled_dot_product_efficient_attention(query, key, value, attn_mask, grad, dropout_p, is_causal, scale=scale)[0]
        return out[..., :width] if width % 8 else out
    named = {"enable_gqa": True} if enable_gqa else {}
    kind = query.dtype
    if query.device.type == "cuda" and kind in (torch.float16, torch.bfloat16):  # computed in float32 (measured; source: attention.cpp)
        query, key, value = query.float(), key.float(), value.float()
        attn_mask = attn_mask.float() if attn_mask is not None and attn_mask.dtype is kind else attn_mask
    return aten._scaled_dot_product_attention_math(query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, **named)[0].to(kind)


def _mask(torch: Any, mask: Any, query: Any, key: Any) -> Any:
    """A mask as the efficient kernel takes it: of the query's type, its rows a multiple of 8 long (source: attention.cpp)."""
    if mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    columns = key.shape[2]
    mask = mask.expand(query.shape[0], query.shape[1], query.shape[2], columns)
    if columns % 8 != 0:
        mask = torch.nn.functional.pad(mask, (0, 8 - columns % 8))[..., :columns]
    return mask


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

    (numbers kept for the backward pass, bytes of dropout masks kept, numbers in the workspace besides a copy of the weights). The
    workspace is fitted to measurements of LSTMs with 2 and 3 layers, one with two directions, and a GRU with two.
    """
    kept = cells * (_CELLS[name] * layers + layers - 1)
    masks = (layers - 1) * cells // 8 if drops else 0
    return kept, masks, 8 * cells if ways == 2 else int(cells * (4 + 1.32 * layers))


def is_cuda_rnn(args: Any) -> bool:
    """cuDNN takes whole sequences on a GPU; packed ones have their lengths as the second argument."""
    return bool(args[0].device.type == "cuda" and len(args) == 9)


def rnn(recorder: Any, name: str, args: Any) -> Any:
    """An RNN as cuDNN runs it: one output, one reserve for the backward pass, one workspace."""
    x, state, weights, _, layers, dropped, training, both, batch_first = args
    states = tuple(state) if isinstance(state, (tuple, list)) else (state,)
    if autocasts(recorder.torch):
        kind = recorder.torch.get_autocast_gpu_dtype()
        x, states, weights = x.to(kind), tuple(one.to(kind) for one in states), [one.to(kind) for one in weights]
    if batch_first:
        x = x.transpose(0, 1).contiguous()
    function = _rnn_function(recorder)
    result = function.apply(name, layers, 2 if both else 1, training, dropped > 0, len(states), x, *states, *weights)
    out = result[0].transpose(0, 1) if batch_first else result[0]
    return (out, *result[1:])


def _rnn_function(recorder: Any) -> Any:
    torch = recorder.torch

    def reserve(x: Any, count: int) -> Any:
        return x.new_empty(count)

    class Rnn(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, name: str, layers: int, ways: int, training: bool, drops: bool, state_count: int, x: Any, *rest: Any) -> Any:
            states, weights = rest[:state_count], rest[state_count:]
            width = states[0].shape[-1]
            cells = x.shape[0] * x.shape[1] * width * ways
            kept, masks, space = rnn_sizes(name, layers, ways, cells, drops and training)
            space += sum(one.numel() for one in weights)
            keep = reserve(x, kept + masks // x.element_size()) if training else None
            out = x.new_empty(x.shape[0], x.shape[1], width * ways)
            new_states = [torch.empty_like(one) for one in states]
            workspace = reserve(x, space)
            del workspace
            ctx.sizes = (space, state_count)
            ctx.save_for_backward(x, out, keep, *states, *weights)
            return (out, *new_states)

        @staticmethod
        def backward(ctx: Any, grad: Any, *grads: Any) -> Any:
            saved = ctx.saved_tensors
            space, count = ctx.sizes
            x, states, weights = saved[0], saved[3 : 3 + count], saved[3 + count :]
            dx = torch.empty_like(x)
            dstates = [torch.empty_like(one) for one in states]
            workspace = reserve(x, space)  # of the input's gradient
            del workspace
            flat = x.new_empty(sum(one.numel() for one in weights))
            workspace = reserve(x, space)  # of the weights'
            at, dweights = 0, []
            for one in weights:
                dweights.append(flat[at : at + one.numel()].view(one.shape))
                at += one.numel()
            del workspace
            return (None, None, None, None, None, None, dx, *dstates, *dweights)

    return Rnn
