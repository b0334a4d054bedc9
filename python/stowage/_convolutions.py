"""What convolutions allocate besides their results: copies in another order, and the workspaces that cuDNN chooses.

PyTorch asks cuDNN's heuristics for the kernels of a convolution and runs the first (source: try_configs of cudnn/Conv_v8.cpp), so the
workspace depends on the shapes alone. Kernels for tensor cores want channels-last order and channels in multiples of 16 bytes: images in
another order are copied into the workspace. Partial sums of the weight's gradient are there as well. All figures are measured: PyTorch
2.11 with cuDNN 9 on an H200 (bench/estimate_operators.py).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Tuple

from ._kernel_sizes import Sizes, bytes_of, round_up

CONVOLUTION = "cuDNN convolution workspace"


class Shape(NamedTuple):
    """A convolution as cuDNN sees it; a transposed one has its input and output exchanged."""

    width: int  #: bytes of one number
    half: bool  #: float16, not bfloat16
    images: int
    x_pixels: int  #: of all images together
    y_pixels: int
    into: int  #: channels
    out: int
    groups: int
    taps: int  #: pixels of the kernel
    strided: bool
    last: bool  #: channels-last order
    multiprocessors: int


def shape_of(recorder: Any, x: Any, weight: Any, y: Any, stride: Any, transposed: bool, groups: int) -> Shape:
    torch = recorder.torch
    last = is_last(torch, x) or is_last(torch, weight)
    if transposed:
        x, y = y, x
    taps = math.prod(weight.shape[2:])
    return Shape(
        width=x.element_size(),
        half=x.dtype is torch.float16,
        images=int(x.shape[0]),
        x_pixels=int(x.numel() // max(1, x.shape[1])),
        y_pixels=int(y.numel() // max(1, y.shape[1])),
        into=int(x.shape[1]),
        out=int(y.shape[1]),
        groups=int(groups),
        taps=int(taps),
        strided=any(int(n) != 1 for n in stride),
        last=last,
        multiprocessors=recorder.gpu.multiprocessors,
    )


_TILE = 128 * 128 * 4  #: bytes of a block's part of a product, in float32
_SMALL = 7 << 19  #: partial sums of a small weight, at most
_FEW = 4  #: channels of an image or a latent: kernels of their own


def workspace(shape: Shape, which: str) -> int:
    """Returns the bytes of cuDNN's workspace for "forward", "input" (the input's gradient) or "weight" (the weight's)."""
    into, out, weight = _channels_last(shape)
    sums = 147 if which != "weight" else 663 + _partial_sums(shape)
    if shape.taps == 1 and not shape.strided and shape.groups == 1:
        if shape.last:
            return sums
        each = shape.x_pixels // max(1, shape.images)
        if each % 4 or (which == "weight" and each % (16 // shape.width)):  # 7 x 7: rows that no vector load takes
            return into + out + sums
        # A product of matrices for each image. The weight's gradient has one part for each.
        return shape.images * shape.out * shape.into * 4 if which == "weight" else 0
    if shape.into <= _FEW:
        return _of_few(shape, which, into, out, weight)
    if shape.last:
        return sums
    if shape.taps == 1:
        weight = 0  # the same in both orders
        if shape.width == 4 and which == "forward" and shape.into <= 256 and shape.into != shape.out:
            return into + shape.into * shape.out * 4 if shape.out > shape.into else 0
    return into + out + weight + sums


def _of_few(shape: Shape, which: str, into: int, out: int, weight: int) -> int:
    """The same for the first layer of a network, with up to four channels.

    A small kernel of three takes images as they are, and in float32 one of any size with a single channel (measured: ten taps, 512 outputs).
    """
    sums = 147
    if which == "weight":
        sums = (18 << 20) if shape.width == 4 else 8 * weight if shape.taps > 64 else 6121616 if shape.taps > 27 else 1 << 20
    if shape.half and which == "forward":  # padded to four
        into, weight = into // 2, weight // 2
    if shape.last:
        return into + weight + (out if which == "input" and shape.width == 4 else 0) + sums
    small = shape.taps <= 9 and shape.into < _FEW
    if shape.width == 4:
        return 0 if small or shape.into == 1 or which == "input" else into + out + weight + sums
    return 0 if small and which == "forward" else into + out + weight + sums


def _channels_last(shape: Shape) -> "Tuple[int, int, int]":
    """Returns the bytes of input, output and weight in channels-last order, with channels in multiples of 16 bytes.

    Three channels in float32 are not padded.
    """
    to = 16 // shape.width if shape.width == 2 or shape.into >= 4 else 1
    into, out = round_up(shape.into, to), round_up(shape.out, to)
    weight = out * round_up(shape.into // shape.groups, to if shape.groups == 1 else 1) * shape.taps
    return shape.x_pixels * into * shape.width, shape.y_pixels * out * shape.width, weight * shape.width


def _partial_sums(shape: Shape) -> int:
    """Returns the bytes of partial sums of the weight's gradient in float32.

    The gradient is a product over all pixels of the output. Blocks of 128 x 128 (64 x 64 with few outputs) share it among all
    multiprocessors, if each part has a few thousand pixels. Measured: in float32 exact for widths that are multiples of 64, in 16 bits
    within a factor of two.
    """
    columns = shape.into // shape.groups * shape.taps
    if shape.out <= 32:
        return min(min(shape.multiprocessors, shape.y_pixels // 1000) * shape.out * columns * 4, _SMALL)
    side = 64 if shape.out <= 64 else 128
    tiles, tile = -(-shape.out // side) * -(-columns // side), side * side * 4
    if shape.width == 4:
        if tiles > shape.multiprocessors:
            return shape.multiprocessors * _TILE if tiles <= 2 * shape.multiprocessors and shape.y_pixels >= 3000 else 0
        return min(shape.multiprocessors // tiles, shape.y_pixels // 3000) * tiles * tile
    parts = min(shape.multiprocessors * 10 // 11 // tiles, shape.y_pixels // 8000)
    return parts * shape.out * columns * 4 if parts > 1 else 0


def _uses_cudnn(recorder: Any, x: Any, weight: Any, y: Any, groups: int) -> bool:
    """Returns False where cuDNN takes the images as they are: on GPUs without tensor cores for the type, and where PyTorch has its own kernel.

    One filter per channel runs in a kernel of PyTorch, except in float16 and in channels-last order (source: use_cudnn_depthwise of
    Convolution.cpp).
    """
    torch = recorder.torch
    if recorder.gpu.capability < ((7, 0) if x.element_size() == 2 else (8, 0)):
        return False
    one_each = groups > 1 and groups == x.shape[1] and y.shape[1] % groups == 0
    return not one_each or x.dtype is torch.float16 or is_last(torch, x)


def in_order(recorder: Any, name: str, args: Any, result: Any) -> Any:
    """Returns the results of a convolution in the order that cuDNN gives them; fake tensors have that of the CPU's kernels."""
    torch = recorder.torch
    x, weight = args[1:3] if name == "convolution_backward" else args[:2]
    order = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if order is None or not (is_last(torch, x) or is_last(torch, weight)):
        return result

    def turned(one: Any) -> Any:
        image = isinstance(one, torch.Tensor) and one.dim() == x.dim()
        return one.to(memory_format=order) if image and not is_last(torch, one) else one

    return turned(result) if isinstance(result, torch.Tensor) else tuple(turned(one) for one in result)


def forward(recorder: Any, args: Any, result: Any) -> Sizes:
    """Operands that are not contiguous are copied (source: cudnn/ConvShared.cpp), and then the workspace."""
    x, weight, groups = args[0], args[1], args[8]
    size = 0
    if _uses_cudnn(recorder, x, weight, result, groups):
        transposed = bool(args[6])
        size = workspace(shape_of(recorder, x, weight, result, args[3], transposed, groups), "input" if transposed else "forward")
    return CONVOLUTION, (*_format_copies(recorder, x, weight), size)


def backward(recorder: Any, args: Any, result: Any, where: int) -> None:
    """Records a backward pass in the order of its kernels: the input's gradient and its workspace, then the weight's, then the bias's."""
    grad, x, weight, groups = args[0], args[1], args[2], args[9]
    sizes = _format_copies(recorder, x, weight, grad)
    copies = [recorder.alloc(size, where) for size in sizes if size > 0]
    shape = shape_of(recorder, x, weight, grad, args[4], bool(args[7]), groups) if _uses_cudnn(recorder, x, weight, grad, groups) else None
    for part, which in zip(result, ("forward" if args[7] else "input", "weight", "")):
        if part is None:
            continue
        recorder.saw(part, where)
        size = workspace(shape, which) if which and shape is not None else 0
        if size > 0:
            block = recorder.alloc(size, where, guessed=True)
            recorder.note_hidden(CONVOLUTION, size + sum(sizes))
            recorder.free(block, where)
    for block in copies:
        recorder.free(block, where)


def is_last(torch: Any, tensor: Any) -> bool:
    """Returns True for an image whose channels are the fastest dimension, and not only because others have one element.

    Never for a row of three dimensions: PyTorch makes it contiguous (source: _convolution and convolution_backward of Convolution.cpp).
    """
    last = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d if tensor.dim() == 5 else None
    return bool(last is not None and tensor.is_contiguous(memory_format=last) and not tensor.is_contiguous())


def _format_copies(recorder: Any, x: Any, weight: Any, grad: Any = None) -> "Tuple[int, ...]":
    """Returns the sizes of the operands that are copied to the order the convolution runs in: channels-last if an operand has it.

    (Source: cudnn_conv_suggest_memory_format and the calls of contiguous() around it.)
    """
    torch = recorder.torch
    last = is_last(torch, x) or is_last(torch, weight)
    given = (x, weight) if grad is None else (grad, x, weight)
    return tuple(bytes_of(one) for one in given if not _is_in_order(torch, one, last))


def _is_in_order(torch: Any, tensor: Any, last: bool) -> bool:
    if not last:
        return bool(tensor.is_contiguous())
    either = tensor.shape[1] == 1 or all(n == 1 for n in tensor.shape[2:])  # one channel or one pixel: both orders are the same
    return is_last(torch, tensor) or bool(either and tensor.is_contiguous())
