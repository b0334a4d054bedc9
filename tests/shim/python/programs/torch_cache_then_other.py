"""Frees PyTorch's blocks, which its cache keeps, and then asks with another library."""
import cuda
import torch


class OutOfMemoryError(MemoryError):
    """As CuPy's."""


def asked(size):
    address = cuda.alloc(size)
    if address is None:
        raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes (allocated so far: {10 << 20:,} bytes).")
    return address


cuda.start()
blocks = [torch.cuda.empty(9 << 20) for part in range(6)]
for block in blocks:
    torch.cuda.free(block)
spectrum = asked(10 << 20)
field = asked(36 << 20)
