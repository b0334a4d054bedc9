"""What the rules for kernels share: how they state the blocks that a kernel allocates, and the arithmetic of sizes."""

from __future__ import annotations

from typing import Any, Tuple, Union

#: What it is, and the blocks. Those in a tuple of their own are freed before the next is allocated.
Sizes = Tuple[str, Tuple[Union[int, Tuple[int, ...]], ...]]


def round_up(number: int, to: int) -> int:
    """Returns the next multiple of `to`.

    >>> round_up(13, 8)
    16
    """
    return (number + to - 1) // to * to


def bytes_of(tensor: Any) -> int:
    """Returns the bytes of a tensor's numbers, also of those that share memory."""
    return int(tensor.numel() * tensor.element_size())
