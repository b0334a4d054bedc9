"""What the kernel of one operator allocates while it runs and frees before it returns, by formula.

Fake tensors show the results of an operator, and nothing else. Each rule states where its figure comes from: "measured" (a recording of
PyTorch 2.11 on an H200), "source" (read in PyTorch's sources), or "assumed". A rule returns what it is and the sizes of the blocks. The
last block of those in `GUESSED` is a workspace whose size a library chooses at run time: an estimate is then also computed without it and
with more.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

from . import _convolutions
from ._kernel_sizes import Sizes, bytes_of, round_up

#: Temporaries whose size cuDNN or cuFFT chooses at run time.
TRANSFORM = "cuFFT workspace"
GUESSED = frozenset((_convolutions.CONVOLUTION, TRANSFORM))


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
    """One workspace (measured for 196 to 2048 rows, with 256 bytes more)."""
    query, key = args[1], args[2]
    batch, heads, rows, width = query.shape
    grouped = batch * heads * key.shape[2] * width * query.element_size() if key.shape[1] != heads else 0
    return "attention backward", (batch * heads * rows * (width + 1) * 4 + 2 * grouped + 256,)


def _efficient_backward(recorder: Any, args: Any, result: Any) -> Sizes:
    """delta, the sum of grad * out in float32, and float32 sums of dq with a lock for each block of them; of heads above 128 also of dk and dv.

    (Source: attention_backward.cu, kernel_backward.h.) Measured in float32 for 200 to 1024 rows and widths of 64 and 256: exactly these.
    """
    query, key = args[1], args[2]
    batch, heads, rows, width = query.shape
    blocks, wide = -(-rows // 64), round_up(width, 32) if width <= 64 else round_up(width, 128)
    sums = blocks * 64 * wide * 4 + blocks * -(-width // 128) * 16
    if query.element_size() == 2 and width > 128:
        sums += 2 * round_up(key.shape[2], 128) * round_up(width, 32) * 4
    delta = batch * heads * rows * 4
    return "attention backward", ((batch * heads * rows * width * 4,), delta, delta, batch * heads * sums)


# ---- indices ----


def _embedding_backward(recorder: Any, args: Any, result: Any) -> Sizes:
    """Indices in several orders, the space to sort them, and partial sums, above 3072 indices (source: Embedding.cu).

    Measured for 4096 to 16384 indices and 512 to 1024 columns: all of these blocks. A gradient that is not contiguous is copied first.
    """
    grad, count, width = args[0], args[1].numel(), result.shape[-1]
    copied = bytes_of(grad) if grad is not None and not grad.is_contiguous() else 0
    if count <= 3072:
        return "embedding backward", (copied,)
    parts = count // 10 + min(count, result.shape[0])
    return "embedding backward", (copied, *(count * 8,) * 3, count * 16 + count // 4 + 16895, *(count * 8,) * 4, parts * 8, parts * width * 4)


def _sort(recorder: Any, args: Any, result: Any) -> Sizes:
    """Indices twice and keys once more, and cub's space for both (measured with 64 x 32000 numbers).

    Up to 4096 in a row are sorted in place (source: should_use_small_sort of Sort.cpp).
    """
    values = result[0]
    dim = next((one for one in args[1:] if isinstance(one, int) and not isinstance(one, bool)), -1)
    if values.dim() == 0 or values.shape[dim] <= 4096:
        return "sort", ()
    indices, keys = values.numel() * 8, bytes_of(values)
    return "sort", (indices, indices, keys, indices + keys + 398847)


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


def _softmax(recorder: Any, args: Any, result: Any) -> Sizes:
    """An input that is not contiguous is copied (source: host_softmax of SoftMax.cu; measured)."""
    return "softmax", (0 if args[0].is_contiguous() else bytes_of(args[0]),)


def _safe_softmax(recorder: Any, args: Any, result: Any) -> Sizes:
    """Which scores are minus infinity, and the rows that have no others (source: attention.cpp; measured)."""
    return "softmax", (result.numel(), result.numel() // max(1, result.shape[-1]))


def _logsumexp(recorder: Any, args: Any, result: Any) -> Sizes:
    """exp(x - max) (source: logsumexp_out_impl of ReduceOps.cpp)."""
    return "logsumexp", (args[0].numel() * result.element_size(),)


def _last_power(number: int) -> int:
    return 1 << (max(1, number).bit_length() - 1)


def _reduction(recorder: Any, args: Any, result: Any) -> Sizes:
    """The buffer of a sum, mean, norm or extreme that many blocks share, and its semaphores.

    Measured: the sums of the bias gradients of a GPT with 13440 rows and 768, 2304 and 3072 columns, and norms of columns in Adafactor,
    had exactly these sizes.
    """
    x, out = args[0], result
    what = "reduction"
    if not isinstance(out, recorder.torch.Tensor) or x.dim() == 0 or x.numel() == 0 or out.numel() == 0 or x.stride(-1) != 1:
        return what, ()
    dims = next((one for one in args[1:] if isinstance(one, (list, tuple))), None)
    if not dims or any(d % x.dim() == x.dim() - 1 for d in dims):
        return what, ()  # along the fastest dimension the buffer is small
    wide = x.dtype in (recorder.torch.float64, recorder.torch.int64)
    return what, _shared_reduction(recorder.gpu, out.numel(), x.numel() // out.numel(), int(x.shape[-1]), 8 if wide else 4)


def _shared_reduction(gpu: Any, outputs: int, inputs: int, columns: int, width_bytes: int) -> "Tuple[int, ...]":
    """Returns the buffer and the semaphores of a reduction of `inputs` rows (source: setReduceConfig of Reduce.cuh); none if one block does it."""
    vector = next(n for n in (4, 2, 1) if columns % n == 0)
    threads_max = 512 // vector
    width_max, height_max = min(_last_power(outputs // vector), threads_max), min(_last_power(inputs), threads_max)
    width = min(width_max, 32)
    height = min(height_max, threads_max // width)
    width = min(width_max, threads_max // height)
    values = inputs
    if values < min(height * 16, 256):
        return ()
    values = -(-values // height)
    target = gpu.multiprocessors * (gpu.threads_per_multiprocessor // (width * height))
    grid = -(-(outputs // vector) // width)
    if values < 256 or grid > target:
        return ()
    blocks = max(min(-(-target // grid), -(-values // 16)), -(-values // 256))
    return (width_bytes * outputs * blocks * width * vector, 4 * grid) if blocks > 1 else ()


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
    """Copies of what is not contiguous; with many rows, partial sums of 32 rows for each gradient of a weight, and their sum.

    (Source: layer_norm_kernel.cu; measured with 131072 rows and 768 columns.)
    """
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
        sizes += _shared_reduction(recorder.gpu, columns, down, columns, 4)
    return "layer norm backward", tuple(sizes)


def _batch_norm_backward(recorder: Any, args: Any, result: Any) -> Sizes:
    """The gradient in the order of the input, if it is in another one (source: cudnn/BatchNorm.cpp)."""
    grad, x, torch = args[0], args[1], recorder.torch
    last = _convolutions.is_last(torch, grad)
    same = _convolutions.is_last(torch, x) == last and (grad.is_contiguous() or last)
    return "batch norm backward", (0 if same else bytes_of(grad),)


# ---- losses ----


def _loss(recorder: Any, args: Any, result: Any) -> Sizes:
    """The loss of each number, before their mean or sum (source: Loss.cpp)."""
    reduction = next((one for one in args[2:] if isinstance(one, int) and not isinstance(one, bool)), 1)
    return "losses", (args[0].numel() * result.element_size() if reduction else 0,)


def _square_loss(recorder: Any, args: Any, result: Any) -> Sizes:
    """The differences, and the loss of each number (measured with 4096 x 4096 numbers)."""
    what, sizes = _loss(recorder, args, result)
    return what, sizes * 2


def _loss_of_logits(recorder: Any, args: Any, result: Any) -> Sizes:
    """log(sigmoid(x)), and the loss of each number (source: binary_cross_entropy_with_logits of Loss.cpp)."""
    one = bytes_of(args[0])
    return "losses", (one, one if result.dim() == 0 else 0)


# ---- others ----


def _fourier(recorder: Any, args: Any, result: Any) -> Sizes:
    """A workspace as large as the result: assumed. A transform to real numbers overwrites its input, which is copied (source: SpectralOps.cpp)."""
    return TRANSFORM, (bytes_of(args[0]) if not result.is_complex() else 0, bytes_of(result))


def _roll(recorder: Any, args: Any, result: Any) -> Sizes:
    """An input that is not contiguous is copied (source: roll_cuda of TensorTransformations.cu; measured)."""
    return "roll", (0 if args[0].is_contiguous() else bytes_of(args[0]),)


def _distances(recorder: Any, args: Any, result: Any) -> Sizes:
    """Both sets of points with two more columns, and -2 times the first (source: _euclidean_dist of Distance.cpp)."""
    a, b = args[0], args[1]
    more = lambda one: bytes_of(one) // max(1, one.shape[-1]) * (one.shape[-1] + 2)  # noqa: E731
    return "distances", (bytes_of(a), more(a), more(b))


RULES: "Dict[str, Callable[[Any, Any, Any], Sizes]]" = {
    "convolution": _convolutions.forward,
    "_scaled_dot_product_flash_attention_backward": _flash_backward,
    "_scaled_dot_product_cudnn_attention_backward": _cudnn_backward,
    "_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "embedding_dense_backward": _embedding_backward,
    "sort": _sort,
    "_index_put_impl_": _index_put,
    "index_put_": _index_put,
    "multinomial": _multinomial,
    "_softmax_backward_data": _softmax_backward,
    "_softmax": _softmax,
    "_log_softmax": _softmax,
    "_safe_softmax": _safe_softmax,
    "logsumexp": _logsumexp,
    "sum": _reduction,
    "mean": _reduction,
    "amax": _reduction,
    "amin": _reduction,
    "linalg_vector_norm": _reduction,
    "norm": _reduction,
    "_foreach_norm": _foreach_norm,
    "native_layer_norm": _norm,
    "_fused_rms_norm": _norm,
    "native_layer_norm_backward": _norm_backward,
    "_fused_rms_norm_backward": _norm_backward,
    "native_batch_norm_backward": _batch_norm_backward,
    "mse_loss": _square_loss,
    "smooth_l1_loss": _loss,
    "huber_loss": _loss,
    "binary_cross_entropy_with_logits": _loss_of_logits,
    "_fft_c2c": _fourier,
    "_fft_r2c": _fourier,
    "_fft_c2r": _fourier,
    "_euclidean_dist": _distances,
    "roll": _roll,
}
