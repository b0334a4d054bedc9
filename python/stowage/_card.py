"""Batches on their way to a card: torch's tensors or CuPy's arrays there, filled by the library's own copies.

The library reads into pinned memory of its own and copies from it on a stream beside the program's; the memory on the card
is torch's or CuPy's, so that their streams, statistics and pools know it (which are the library's where it stands beneath them).
"""

from __future__ import annotations

import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_void_p
from typing import Any, Dict, List, Optional, Tuple

from ._library import StowageError, Unsupported, call, declare

declare({"stow_device_open": (c_int, [POINTER(c_void_p), c_char_p])})

_devices: Dict[int, c_void_p] = {}
_lock = threading.Lock()


def device_handle(index: int) -> c_void_p:
    """The library's handle of a card, opened once: buffers may outlive the batches they came from."""
    with _lock:
        if index not in _devices:
            handle = c_void_p()
            call("stow_device_open", byref(handle), str(index).encode())
            _devices[index] = handle
        return _devices[index]


class TorchCard:
    """Tensors on one card."""

    def __init__(self, device: Any) -> None:
        import torch

        self._torch = torch
        self.index: int = torch.cuda.current_device() if device.index is None else device.index
        self._device = torch.device("cuda", self.index)
        self._stream = torch.cuda.Stream(self._device)
        self.stream: int = self._stream.cuda_stream

    def kind(self, dtype: Any, is_bfloat16: bool) -> Any:
        import numpy

        if is_bfloat16:
            return self._torch.bfloat16
        try:
            return self._torch.from_numpy(numpy.empty(0, dtype)).dtype
        except TypeError as reason:
            raise no_such_type(dtype, reason) from None

    def empty(self, shapes: List[Tuple[int, ...]], kinds: List[Any]) -> Tuple[List[Any], List[int]]:
        """Memory for a batch, and where it is."""
        with self._torch.cuda.stream(self._stream):
            made = [self._torch.empty(shape, dtype=kind, device=self._device) for shape, kind in zip(shapes, kinds)]
        return made, [tensor.data_ptr() for tensor in made]

    def mark(self) -> Any:
        """The point behind everything submitted to our stream so far."""
        done = self._torch.cuda.Event()
        done.record(self._stream)
        return done

    def hand_over(self, tensors: List[Any], done: Any) -> None:
        """What the program submits from now on, where it is now, sees the batch."""
        current = self._torch.cuda.current_stream(self._device)
        current.wait_event(done)
        for tensor in tensors:
            tensor.record_stream(current)


class CupyCard:
    """CuPy's arrays on one card, where there is no torch."""

    def __init__(self, index: Optional[int]) -> None:
        import cupy  # type: ignore[import-not-found]

        self._cupy = cupy
        self.index: int = cupy.cuda.runtime.getDevice() if index is None else index
        with cupy.cuda.Device(self.index):
            self._stream = cupy.cuda.Stream(non_blocking=True)
        self.stream: int = self._stream.ptr

    def kind(self, dtype: Any, is_bfloat16: bool) -> Any:
        if is_bfloat16:
            raise Unsupported("CuPy has no bfloat16: convert on the way, as dtype='float16' or 'float32'")
        return dtype

    def empty(self, shapes: List[Tuple[int, ...]], kinds: List[Any]) -> Tuple[List[Any], List[int]]:
        with self._cupy.cuda.Device(self.index):
            # CuPy gives memory again in the order of the stream it was asked for on: the program's. Ours comes after that.
            self._stream.wait_event(self._cupy.cuda.get_current_stream().record())
            made = [self._cupy.empty(shape, dtype=kind) for shape, kind in zip(shapes, kinds)]
        return made, [array.data.ptr for array in made]

    def mark(self) -> Any:
        return self._stream.record()

    def hand_over(self, _arrays: List[Any], done: Any) -> None:
        with self._cupy.cuda.Device(self.index):
            self._cupy.cuda.get_current_stream().wait_event(done)


def no_such_type(dtype: Any, reason: BaseException) -> TypeError:
    return TypeError(f"torch has no {dtype}: convert on the way, as dtype='int64' ({reason})")


def open_card(device: Any) -> Any:
    """For `device="cuda"`, "cuda:1" or a torch.device: a card with torch, or with CuPy where there is no torch."""
    try:
        import torch
    except ImportError:
        return _open_cupy(str(device))
    if not torch.cuda.is_available():
        raise Unsupported(f"device={str(device)!r} needs a card, and torch finds none; leave it out, or device='cpu'")
    return TorchCard(torch.device(device))


def _open_cupy(name: str) -> CupyCard:
    number = name.partition(":")[2]
    try:
        return CupyCard(int(number) if number else None)
    except ImportError:
        raise Unsupported(
            f"device={name!r} gives tensors of torch or arrays of CuPy, and neither is installed; leave it out"
        ) from None
    except StowageError:
        raise
    except Exception as reason:  # CuPy's own, of the driver's
        raise Unsupported(f"device={name!r} needs a card, and CuPy finds none: {reason}") from reason
