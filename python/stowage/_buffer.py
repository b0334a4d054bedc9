"""Buffers of the library as NumPy arrays and torch tensors, without a copy; released with the last array over them."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

from ._array import ArrayInfo, numpy_type, shape_of
from ._gpu import no_such_type


class _Buffer:
    """One buffer of the library, released when no array uses it any more."""

    __slots__ = ("__array_interface__", "_address", "_release")

    def __init__(self, address: int, interface: Dict[str, Any], release: Callable[[int], int]) -> None:
        self.__array_interface__ = interface
        self._address = address
        self._release = release

    def __del__(self) -> None:
        self._release(self._address)


class Buffers:
    """The NumPy type and shape of one file's buffers."""

    def __init__(self, info: ArrayInfo, seen_as: "Optional[Tuple[Any, Tuple[int, ...]]]" = None) -> None:
        self.seen_as = seen_as  #: the type and shape of rows that the library has as bytes
        self.dtype, self.is_bfloat16 = numpy_type(info.dtype.decode())
        self.row_shape = shape_of(info)[1:]
        self.kind = "<u2" if self.is_bfloat16 else self.dtype.str

    def array(self, address: int, rows: int, release: Any) -> Any:
        import numpy

        interface = {"version": 3, "data": (address, False), "shape": (rows, *self.row_shape), "typestr": self.kind}
        made = numpy.asarray(_Buffer(address, interface, release))
        if self.seen_as is not None:
            return made.view(self.seen_as[0]).reshape(rows, *self.seen_as[1])
        return made if made.dtype == self.dtype else made.view(self.dtype)

    def tensor(self, array: Any) -> Any:
        import torch

        if self.is_bfloat16:
            return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
        try:
            return torch.from_numpy(array)
        except TypeError as reason:
            raise no_such_type(self.dtype, reason) from None
