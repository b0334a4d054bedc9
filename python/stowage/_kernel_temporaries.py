"""What the kernel of one operator allocates while it runs and frees before it returns, by formula.

Fake tensors show the results of an operator, and nothing else. Each rule states where its figure comes from: "measured" (a recording of
PyTorch 2.11 on an H200), "source" (read in PyTorch's sources), or "assumed". A rule returns what it is and the sizes of the blocks. The
last block of those in `GUESSED` is a workspace whose size a library chooses at run time: an estimate is then also computed without it and
with more.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

_MIB = 1 << 20

#: Temporaries whose size cuDNN or cuFFT chooses at run time.
CONVOLUTION, TRANSFORM = "cuDNN convolution workspace", "cuFFT workspace"
GUESSED = frozenset((CONVOLUTION, TRANSFORM))

Sizes = Tuple[str, Tuple[int, ...]]


def round_up(number: int, to: int) -> int:
    """Returns the next multiple of `to`.

    >>> round_up(13, 8)
    16
    """
    return (number + to - 1) // to * to


def bytes_of(tensor: Any) -> int:
    """Returns the bytes of a tensor's numbers, also of those that share memory."""
    return int(tensor.numel() * tensor.element_size())


# ---- matrix products ----


def operand_copies(name: str, args: Any) -> "Tuple[int, ...]":
    """Returns the sizes of the copies of a product's operands.

    cuBLAS takes a matrix whose rows or columns are contiguous and do not overlap. Any other is copied (source: prepare_matrix_for_cublas
    and prepare_batch_matrix_for_cublas). Gradients of sums and means are such matrices: they are one number, expanded.
    """
    operands = args[1:3] if name in ("addmm", "baddbmm", "addbmm", "_addmm_activation") else args[:2] if name in ("mm", "bmm") else ()
    return tuple(bytes_of(one) for one in operands if hasattr(one, "stride") and one.dim() >= 2 and not _fits_blas(one))


def _fits_blas(matrix: Any) -> bool:
    rows, columns = int(matrix.shape[-2]), int(matrix.shape[-1])
    down, across = int(matrix.stride(-2)), int(matrix.stride(-1))
    return (across == 1 and down >= max(1, columns)) or (down == 1 and across >= max(1, rows)) or rows * columns <= 1


# ---- convolutions ----


def _convolution(recorder: Any, args: Any, result: Any) -> Sizes:
    """Operands that are not contiguous are copied (source: cudnn/ConvShared.cpp); cuDNN's workspace has them in channels-last order."""
    return CONVOLUTION, (*_format_copies(recorder, args[0], args[1]), _transforms(recorder, args[0], args[1], result, args[3], args[8]))


def _convolution_backward(recorder: Any, args: Any, result: Any) -> Sizes:
    """The same copies, and partial sums of the weight's gradient.

    Measured: 14 sums in float32 besides the gradient itself for weights up to 0.56 MiB, 7.875 MiB of them for larger ones.
    """
    grad, x, weight = args[0], args[1], args[2]
    one = _transforms(recorder, x, weight, grad, args[4], args[9])
    sums = min(14 * weight.numel() * 4, 7 * _MIB + 7 * _MIB // 8)
    wanted = sum(1 for part in result[:2] if part is not None)
    # The gradients of input and weight are two kernels, one after the other: the larger workspace counts.
    return CONVOLUTION, (*_format_copies(recorder, x, weight, grad), one + sums if wanted and one else 0)


def _is_last(torch: Any, tensor: Any) -> bool:
    """Returns True for an image whose channels are the fastest dimension, and not only because others have one element."""
    if tensor.dim() == 3:  # PyTorch sees it as an image of one row
        return bool(tensor.stride(1) == 1 and tensor.stride(2) >= tensor.shape[1] > 1 and tensor.shape[2] > 1)
    last = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d if tensor.dim() == 5 else None
    return bool(last is not None and tensor.is_contiguous(memory_format=last) and not tensor.is_contiguous())


def _format_copies(recorder: Any, x: Any, weight: Any, grad: Any = None) -> "Tuple[int, ...]":
    """Returns the sizes of the operands that are copied to the order the convolution runs in: channels-last if an operand has it.

    (Source: cudnn_conv_suggest_memory_format and the calls of contiguous() around it.)
    """
    torch = recorder.torch
    last = _is_last(torch, x) or _is_last(torch, weight)
    given = (x, weight) if grad is None else (grad, x, weight)
    return tuple(bytes_of(one) for one in given if not _is_in_order(torch, one, last))


def _is_in_order(torch: Any, tensor: Any, last: bool) -> bool:
    if not last:
        return bool(tensor.is_contiguous())
    either = tensor.shape[1] == 1 or all(n == 1 for n in tensor.shape[2:])  # one channel or one pixel: both orders are the same
    return _is_last(torch, tensor) or bool(either and tensor.is_contiguous())


def _transforms(recorder: Any, x: Any, weight: Any, y: Any, stride: Any, groups: int) -> int:
    """Returns the bytes of a convolution's operands in channels-last order; 0 if cuDNN takes them as they are.

    Measured: input and output with channels rounded up to 16 bytes, and the weight. A product of pixels (1 x 1, stride 1) is a matrix
    product without copies. One filter per channel runs in a kernel of PyTorch without a workspace, except in float16 (source:
    use_cudnn_depthwise of Convolution.cpp).
    """
    half = x.dtype.itemsize == 2
    if recorder.gpu.capability < ((7, 0) if half else (8, 0)):
        return 0
    if _is_last(recorder.torch, x):
        return 0
    if all(n == 1 for n in weight.shape[2:]) and all(n == 1 for n in stride) and weight.shape[1] == x.shape[1]:
        return 0
    if groups > 1 and groups == x.shape[1] and weight.shape[0] % groups == 0 and x.dtype is not recorder.torch.float16:
        return 0
    return _padded(x) + bytes_of(weight) + _padded(y)


def _padded(tensor: Any) -> int:
    """Returns the bytes of an image with its channels rounded up to 16 bytes."""
    channels = int(tensor.shape[1])
    return bytes_of(tensor) // max(1, channels) * round_up(channels, max(1, 16 // tensor.element_size()))


# ---- attention ----


def _flash_backward(recorder: Any, args: Any, result: Any) -> Sizes:
    """dq_accum and softmax_d in float32 (source: mha_bwd of flash_api.cpp), and dk, dv of every query head with grouped heads."""
    query, key = args[1], args[2]
    batch, heads, rows, width = query.shape
    rows = round_up(rows, 128)
    accumulated = batch * heads * rows * round_up(width, 32) * 4
    grouped = batch * heads * key.shape[2] * width * query.element_size() if key.shape[1] != heads else 0
    return "attention backward", (batch * heads * rows * 4, accumulated, grouped, grouped)


def _cudnn_backward(recorder: Any, args: Any, result: Any) -> Sizes:
    """One workspace (measured for 196 to 2048 rows)."""
    query, key = args[1], args[2]
    batch, heads, rows, width = query.shape
    grouped = batch * heads * key.shape[2] * width * query.element_size() if key.shape[1] != heads else 0
    return "attention backward", (batch * heads * rows * (width + 1) * 4 + 2 * grouped,)


def _efficient_backward(recorder: Any, args: Any, result: Any) -> Sizes:
    """delta, and for 16-bit types float32 sums of dq, of heads above 128 also of dk and dv (source: attention_backward.cu)."""
    query, key = args[1], args[2]
    batch, heads, rows, width = query.shape
    sums = 0
    if query.element_size() == 2:
        sums = batch * heads * round_up(rows, 64) * round_up(width, 32) * 4
        if width > 128:
            sums += 2 * batch * heads * round_up(key.shape[2], 128) * round_up(width, 32) * 4
    return "attention backward", (batch * heads * round_up(rows, 32) * 4, sums)


# ---- indices ----


def _embedding_backward(recorder: Any, args: Any, result: Any) -> Sizes:
    """Indices in several orders, the space to sort them, and partial sums, above 3072 indices (source: Embedding.cu).

    Measured for 13440 indices and 768 columns: all of these blocks, the partial sums with 45,416,448 B. A gradient that is not contiguous
    is copied first.
    """
    grad, count, width = args[0], args[1].numel(), result.shape[-1]
    copied = bytes_of(grad) if grad is not None and not grad.is_contiguous() else 0
    if count <= 3072:
        return "embedding backward", (copied,)
    parts = -(-count // 10) + min(count, result.shape[0])
    return "embedding backward", (copied, *(count * 8,) * 3, count * 16 + 19968, *(count * 8,) * 4, parts * 8, parts * width * 4)


def _sort(recorder: Any, args: Any, result: Any) -> Sizes:
    """Keys and indices once more (source: Sort.cpp, cub). Up to 4096 in a row are sorted in place (source: should_use_small_sort)."""
    values = result[0]
    dim = next((one for one in args[1:] if isinstance(one, int) and not isinstance(one, bool)), -1)
    if values.dim() == 0 or values.shape[dim] <= 4096:
        return "sort", ()
    return "sort", (values.numel() * 8, bytes_of(values))


def _index_put(recorder: Any, args: Any, result: Any) -> Sizes:
    """Sorted linear indices, their order, and the space to sort (source: Indexing.cu); only when values are added up."""
    if len(args) < 4 or not args[3]:
        return "index_put", ()
    count = max((one.numel() for one in args[1] if one is not None), default=0)
    return "index_put", (count * 8, count * 8, count * 8, count * 16)


def _multinomial(recorder: Any, args: Any, result: Any) -> Sizes:
    """One draw per number (source: multinomial of Distributions.cpp); several draws with replacement: two normalized copies."""
    several = len(args) > 2 and args[2] and args[1] > 1
    return "multinomial", (bytes_of(args[0]),) * (2 if several else 1)


# ---- reductions ----


def _softmax_backward(recorder: Any, args: Any, result: Any) -> Sizes:
    """grad * output (source: SoftMax.cu; measured: one block of the scores' size for each attention layer)."""
    return "softmax backward", (max(bytes_of(args[0]), bytes_of(args[1])),)


def _logsumexp(recorder: Any, args: Any, result: Any) -> Sizes:
    """exp(x - max) (source: logsumexp_out_impl of ReduceOps.cpp)."""
    return "logsumexp", (args[0].numel() * result.element_size(),)


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


def _foreach_norm(recorder: Any, args: Any, result: Any) -> Sizes:
    """One float32 per chunk of 65536 numbers, for as many chunks as the largest tensor has (source: ForeachReduceOp.cu)."""
    tensors = args[0]
    chunks = max((-(-one.numel() // 65536) for one in tensors), default=0)
    return "norms of many tensors", (len(tensors) * chunks * 4,)


# ---- norms ----


def _norm(recorder: Any, args: Any, result: Any) -> Sizes:
    """An input that is not contiguous is copied (source: layer_norm_kernel.cu)."""
    return "layer norm", (0 if args[0].is_contiguous() else bytes_of(args[0]),)


def _norm_backward(recorder: Any, args: Any, result: Any) -> Sizes:
    """Copies of what is not contiguous; with many rows, partial sums of 32 rows for each gradient of a weight (source: layer_norm_kernel.cu)."""
    grad, x, shape = args[0], args[1], args[2]
    columns = 1
    for one in shape:
        columns *= int(one)
    rows = x.numel() // max(1, columns)
    sizes = [bytes_of(one) for one in (grad, x) if not one.is_contiguous()]
    if rows > 64 * 1024 and columns // 32 < recorder.gpu.multiprocessors // 2:
        across = -(-columns // 32)
        down = min(32 * 1024 // across, -(-rows // 32))
        sizes += [down * columns * one.element_size() for one in result[1:] if isinstance(one, recorder.torch.Tensor)]
    return "layer norm backward", tuple(sizes)


def _batch_norm_backward(recorder: Any, args: Any, result: Any) -> Sizes:
    """The gradient in the order of the input, if it is in another one (source: cudnn/BatchNorm.cpp)."""
    grad, x, torch = args[0], args[1], recorder.torch
    same = _is_last(torch, x) == _is_last(torch, grad) and (grad.is_contiguous() or _is_last(torch, grad))
    return "batch norm backward", (0 if same else bytes_of(grad),)


# ---- losses ----


def _loss(recorder: Any, args: Any, result: Any) -> Sizes:
    """The loss of each number, before their mean or sum (source: Loss.cpp)."""
    reduction = next((one for one in args[2:] if isinstance(one, int) and not isinstance(one, bool)), 1)
    return "losses", (args[0].numel() * result.element_size() if reduction else 0,)


def _loss_of_logits(recorder: Any, args: Any, result: Any) -> Sizes:
    """log(sigmoid(x)), and the loss of each number (source: binary_cross_entropy_with_logits of Loss.cpp)."""
    one = bytes_of(args[0])
    return "losses", (one, one if result.dim() == 0 else 0)


# ---- others ----


def _fourier(recorder: Any, args: Any, result: Any) -> Sizes:
    """A workspace as large as the result: assumed. A transform to real numbers overwrites its input, which is copied (source: SpectralOps.cpp)."""
    return TRANSFORM, (bytes_of(args[0]) if not result.is_complex() else 0, bytes_of(result))


def _distances(recorder: Any, args: Any, result: Any) -> Sizes:
    """Both sets of points with two more columns, and -2 times the first (source: _euclidean_dist of Distance.cpp)."""
    a, b = args[0], args[1]
    more = lambda one: bytes_of(one) // max(1, one.shape[-1]) * (one.shape[-1] + 2)  # noqa: E731
    return "distances", (bytes_of(a), more(a), more(b))


RULES: "Dict[str, Callable[[Any, Any, Any], Sizes]]" = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention_backward": _flash_backward,
    "_scaled_dot_product_cudnn_attention_backward": _cudnn_backward,
    "_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "embedding_dense_backward": _embedding_backward,
    "sort": _sort,
    "_index_put_impl_": _index_put,
    "index_put_": _index_put,
    "multinomial": _multinomial,
    "_softmax_backward_data": _softmax_backward,
    "logsumexp": _logsumexp,
    "sum": _reduction,
    "mean": _reduction,
    "amax": _reduction,
    "amin": _reduction,
    "_foreach_norm": _foreach_norm,
    "native_layer_norm": _norm,
    "_fused_rms_norm": _norm,
    "native_layer_norm_backward": _norm_backward,
    "_fused_rms_norm_backward": _norm_backward,
    "native_batch_norm_backward": _batch_norm_backward,
    "mse_loss": _loss,
    "smooth_l1_loss": _loss,
    "huber_loss": _loss,
    "binary_cross_entropy_with_logits": _loss_of_logits,
    "_fft_c2c": _fourier,
    "_fft_r2c": _fourier,
    "_fft_c2r": _fourier,
    "_euclidean_dist": _distances,
}
