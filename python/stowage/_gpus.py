"""GPUs that `estimate` knows: memory, compute capability, and what the driver and the libraries take in addition to the program's
tensors.

`measured` is True for figures measured on that GPU; the rest are marked "assumed" in every answer. Sizes are what
`torch.cuda.get_device_properties(0).total_memory` reports, which is less than the size on the box.
"""

from __future__ import annotations

import re
from typing import Any, Dict, NamedTuple, Optional, Tuple

from ._library import Invalid, format_size, parse_size

_MIB = 1 << 20
_GIB = 1 << 30

#: CUDA context and loaded kernels. Measured on an H200 (driver 580, PyTorch 2.11): a process whose allocator had reserved
#: 14.955 GiB used 15.62 GiB. The same figure as REPLAY_CONTEXT_BYTES of the replay.
_CONTEXT_BYTES = 680 * _MIB


class Gpu(NamedTuple):
    """One kind of GPU."""

    name: str
    total_bytes: int  #: as the driver reports it
    capability: "Tuple[int, int]"
    multiprocessors: int
    measured: bool  #: workspaces and context were measured on this GPU

    @property
    def context_bytes(self) -> int:
        """Returns what the CUDA context and loaded kernels take."""
        return _CONTEXT_BYTES

    @property
    def threads_per_multiprocessor(self) -> int:
        """Returns the most threads on one multiprocessor (CUDA C++ Programming Guide, "Compute Capabilities")."""
        return 1024 if self.capability == (7, 5) else 1536 if self.capability in ((8, 6), (8, 9), (12, 0)) else 2048

    @property
    def available_bytes(self) -> int:
        """Returns what PyTorch's allocator can reserve on an otherwise unused GPU."""
        return max(0, self.total_bytes - self.context_bytes)

    @property
    def cublas_bytes(self) -> int:
        """Returns the cuBLAS workspace, one for each thread that multiplies matrices.

        PyTorch's default for CUBLAS_WORKSPACE_CONFIG: 32 MiB on compute capability 9 (measured on an H200: two blocks of
        33,554,432 B in a training step, one of the main thread and one of the backward thread), ":4096:2:16:8" elsewhere.
        """
        return 32 * _MIB if self.capability[0] >= 9 else 4096 * 1024 * 2 + 16 * 1024 * 8

    @property
    def cublaslt_bytes(self) -> int:
        """Returns the workspace of a matrix product with a bias (measured on an H200: one block of 1,048,576 B)."""
        return 1 * _MIB


def _gib(size: float) -> int:
    return int(size * _GIB)


#: name: total GiB as the driver reports it, capability, multiprocessors, measured.
_TABLE: "Dict[str, Tuple[float, Tuple[int, int], int, bool]]" = {
    "H200": (139.80, (9, 0), 132, True),
    "H100": (79.11, (9, 0), 132, False),
    "B200": (178.35, (10, 0), 148, False),
    "A100-80G": (79.14, (8, 0), 108, False),
    "A100-40G": (39.38, (8, 0), 108, False),
    "A100": (39.38, (8, 0), 108, False),
    "A6000": (47.53, (8, 6), 84, False),
    "A10": (22.05, (8, 6), 72, False),
    "A10G": (22.05, (8, 6), 80, False),
    "L4": (22.03, (8, 9), 58, False),
    "L40S": (44.39, (8, 9), 142, False),
    "T4": (14.74, (7, 5), 40, False),
    "P100": (15.89, (6, 0), 56, False),
    "V100": (15.77, (7, 0), 80, False),
    "V100-32G": (31.73, (7, 0), 80, False),
    "RTX 2080 Ti": (10.75, (7, 5), 68, False),
    "RTX 3060": (11.76, (8, 6), 28, False),
    "RTX 3080": (9.77, (8, 6), 68, False),
    "RTX 3090": (23.68, (8, 6), 82, False),
    "RTX 4060 Ti": (15.57, (8, 9), 34, False),
    "RTX 4070": (11.72, (8, 9), 46, False),
    "RTX 4080": (15.70, (8, 9), 76, False),
    "RTX 4090": (23.64, (8, 9), 128, False),
    "RTX 5090": (31.36, (12, 0), 170, False),
}


def _plain(name: str) -> str:
    return re.sub(r"nvidia|geforce|tesla|quadro|rtx|gb|[^a-z0-9]", "", name.lower().replace("gb", "g"))


def names() -> "list[str]":
    """Returns the names that `find` accepts."""
    return sorted(_TABLE)


def find(name: "Optional[str]" = None, vram: "str | int | None" = None) -> Gpu:
    """Returns the GPU of that name, or one with `vram` bytes of memory; with both, that GPU with another size.

    >>> find("NVIDIA GeForce RTX 4090").capability
    (8, 9)
    >>> find(vram="16G").total_bytes >> 30
    16
    >>> find("T5")
    Traceback (most recent call last):
        ...
    stowage._library.Invalid: gpu: "T5" is not known; give the size of its memory, vram="16G", or one of A10, A100, ...
    """
    size = parse_size(vram, "vram") if vram is not None else 0
    if name is None:
        if not size:
            raise Invalid('estimate: name the GPU (gpu="T4") or its memory (vram="16G")')
        return _checked(Gpu(f"GPU with {format_size(size)}", size, (8, 0), 108, False))
    wanted = _plain(str(name))
    for known, (total, capability, processors, measured) in _TABLE.items():
        if _plain(known) == wanted:
            return _checked(Gpu(known, size or _gib(total), capability, processors, measured))
    raise Invalid(f'gpu: "{name}" is not known; give the size of its memory, vram="16G", or one of {", ".join(names())}')


def _checked(gpu: Gpu) -> Gpu:
    if gpu.total_bytes <= gpu.context_bytes:
        raise Invalid(f"vram: {format_size(gpu.total_bytes)} is less than the CUDA context of {format_size(gpu.context_bytes)}")
    return gpu


def as_json(gpu: Gpu) -> "Dict[str, Any]":
    """Returns the GPU for a result's dict."""
    return {
        "name": gpu.name,
        "total_bytes": gpu.total_bytes,
        "context_bytes": gpu.context_bytes,
        "available_bytes": gpu.available_bytes,
        "capability": f"{gpu.capability[0]}.{gpu.capability[1]}",
        "figures": "measured" if gpu.measured else "assumed",
    }
