"""Host copies: registers with the shim which device memory equals bytes of a file, so that spilling need not copy it out.

The files are mapped for the life of the process, which takes addresses but no memory: a tensor's memory can change hands (a
parameter made from it, a state_dict) without notice, so there is no moment at which a mapping is known to be unused. A file that is
loaded again uses its old mapping.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Dict, Iterable, Optional, Tuple

from ._enable import shim_functions

_Key = Tuple[int, int, int, int]
_mapped: "Dict[_Key, Tuple[Any, int]]" = {}


def _key(path: str) -> _Key:
    facts = os.stat(path)
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


def _address(path: str) -> int:
    """Returns where the file is mapped."""
    key = _key(path)
    if key not in _mapped:
        with open(path, "rb") as file:
            # A private mapping, because ctypes takes the address of writable memory only; nothing writes to it.
            whole = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        _mapped[key] = whole, ctypes.addressof(ctypes.c_char.from_buffer(whole))
    return _mapped[key][1]


def mark(copies: "Iterable[Tuple[int, int, str, int]]") -> int:
    """Marks ranges (device address, bytes, path, offset in the file). Returns the bytes marked; 0 without the shim."""
    shim: "Optional[Any]" = shim_functions()
    if shim is None or not hasattr(shim, "stow_shim_host_valid"):
        return 0
    function = shim.stow_shim_host_valid
    function.argtypes, function.restype = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p], ctypes.c_int
    done = 0
    for address, count, path, offset in copies:
        try:
            at = _address(path)
        except (OSError, ValueError, TypeError, BufferError):  # removed in the meantime, or not a file that can be mapped
            continue
        if count > 0 and function(address, count, at + offset):
            done += count
    return done
