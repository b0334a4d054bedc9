"""Batches on a GPU: torch tensors or CuPy arrays, filled by the library's copies.

The library reads into its own pinned memory and copies from it on a separate stream. The device memory belongs to torch or CuPy, so
that their streams, statistics and pools include it.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_uint64, c_void_p
from typing import Any, Dict, List, Optional, Tuple

from ._heap import Block, Heap
from ._library import StowageError, Unsupported, call, declare, lib


declare(
    {
        "stow_device_open": (c_int, [POINTER(c_void_p), c_char_p]),
        "stow_heap_record_stream": (c_int, [c_void_p, c_uint64, c_void_p]),
    }
)

_devices: Dict[int, c_void_p] = {}
_lock = threading.Lock()


def device_handle(index: int) -> c_void_p:
    """Returns the library's handle of a GPU, opened once: buffers can outlive their batches."""
    with _lock:
        if index not in _devices:
            handle = c_void_p()
            call("stow_device_open", byref(handle), str(index).encode())
            _devices[index] = handle
        return _devices[index]


class TorchGpu:
    """Tensors on one GPU."""

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
        """Allocates memory for a batch. Returns it and its address."""
        with self._torch.cuda.stream(self._stream):
            made = [self._torch.empty(shape, dtype=kind, device=self._device) for shape, kind in zip(shapes, kinds)]
        return made, [tensor.data_ptr() for tensor in made]

    def mark(self) -> Any:
        """Returns an event after everything submitted to our stream so far."""
        done = self._torch.cuda.Event()
        done.record(self._stream)
        return done

    def hand_over(self, tensors: List[Any], done: Any) -> None:
        """Makes the program's current stream wait for the batch."""
        current = self._torch.cuda.current_stream(self._device)
        current.wait_event(done)
        for tensor in tensors:
            tensor.record_stream(current)


class _OnHeap:
    """A heap block for torch; freed with the last tensor that uses it."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.__cuda_array_interface__ = {
            "version": 3,
            "data": (block.address, False),
            "shape": (block.nbytes,),
            "typestr": "|u1",
        }


class HeapGpu(TorchGpu):
    """Puts torch tensors into the memory of a Stowage heap."""

    def __init__(self, heap: Heap) -> None:
        import torch

        super().__init__(torch.device("cuda", _index_of(heap)))
        self._heap = heap

    def empty(self, shapes: List[Tuple[int, ...]], kinds: List[Any]) -> Tuple[List[Any], List[int]]:
        torch, made, places = self._torch, [], []
        for shape, kind in zip(shapes, kinds):
            count = 1
            for n in shape:
                count *= n
            size = count * torch.empty(0, dtype=kind).element_size()
            block = self._heap.block(max(1, size), stream=self.stream, tag="batches")
            whole = torch.as_tensor(_OnHeap(block), device=self._device)
            made.append(whole[:size].view(kind).view(shape))
            places.append(block.address)
        return made, places

    def hand_over(self, tensors: List[Any], done: Any) -> None:
        current = self._torch.cuda.current_stream(self._device)
        current.wait_event(done)
        for tensor in tensors:  # torch's record_stream covers only torch's own memory
            call("stow_heap_record_stream", self._heap.handle, tensor.data_ptr(), current.cuda_stream or None)


class CupyGpu:
    """CuPy arrays on one GPU, if torch is not installed."""

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
            # CuPy reuses memory in the order of the stream that allocated it, the program's. Our stream waits for that.
            self._stream.wait_event(self._cupy.cuda.get_current_stream().record())
            made = [self._cupy.empty(shape, dtype=kind) for shape, kind in zip(shapes, kinds)]
        return made, [array.data.ptr for array in made]

    def mark(self) -> Any:
        return self._stream.record()

    def hand_over(self, _arrays: List[Any], done: Any) -> None:
        with self._cupy.cuda.Device(self.index):
            self._cupy.cuda.get_current_stream().wait_event(done)


def _index_of(heap: Heap) -> int:
    """Returns the index of a heap's GPU, as CUDA_VISIBLE_DEVICES counts."""
    props = heap.props()
    if props.kind != b"cuda":
        raise Unsupported(f"batches for a heap on {props.name.decode()}: torch has no tensors there; leave device out")
    return int(props.index)


def no_such_type(dtype: Any, reason: BaseException) -> TypeError:
    return TypeError(f"torch has no {dtype}: convert on the way, as dtype='int64' ({reason})")


def destination(device: Any) -> Tuple[bool, Any]:
    """Returns whether batches are torch tensors in host memory, and the GPU if there is one."""
    if device is None:
        return False, None
    if isinstance(device, Heap) or str(device).partition(":")[0] == "cuda":
        return False, _open_gpu(device)
    try:
        import torch
    except ImportError as reason:
        raise Unsupported(f"device={device!r} returns torch tensors, but torch is not installed; leave it out") from reason
    kind = torch.device(device).type
    if kind != "cpu":
        raise Unsupported(f"device={device!r}: batches come as torch tensors of cpu or cuda; move them from cpu yourself")
    return True, None


def _open_gpu(device: Any) -> Any:
    """Returns the GPU for `device="cuda"`, "cuda:1", a torch.device or a heap; with torch, or with CuPy if torch is not installed."""
    if isinstance(device, Heap):
        return HeapGpu(device)
    try:
        import torch
    except ImportError:
        return _open_cupy(str(device))
    if not torch.cuda.is_available():
        raise Unsupported(f"device={str(device)!r} needs a GPU, but torch finds none; leave it out, or use device='cpu'")
    return TorchGpu(torch.device(device))


def _open_cupy(name: str) -> CupyGpu:
    number = name.partition(":")[2]
    try:
        return CupyGpu(int(number) if number else None)
    except ImportError:
        raise Unsupported(
            f"device={name!r} returns torch tensors or CuPy arrays, but neither is installed; leave it out"
        ) from None
    except StowageError:
        raise
    except Exception as reason:  # CuPy's own numbering is the driver's
        raise Unsupported(f"device={name!r} needs a GPU, but CuPy finds none: {reason}") from reason
