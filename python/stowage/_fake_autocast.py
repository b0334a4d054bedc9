"""CUDA autocast for fake tensors.

PyTorch's autocast casts the tensors that its C++ code believes to be on a GPU. The fake tensors of an estimate hide their device
from C++ (`_fake_record`), so that it does not call a driver. This file registers the same casts, for the operators that PyTorch
has them for,
as long as an estimate runs.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import Any, Callable, Dict, Iterator, Tuple

#: Operators that run in the lower precision (AT_FORALL_LOWER_PRECISION_FP of ATen/autocast_mode.h).
_LOWER = frozenset(
    "_convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution cudnn_convolution "
    "cudnn_convolution_transpose prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul "
    "linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell "
    "_scaled_dot_product_flash_attention scaled_dot_product_attention".split()
)
#: Operators that run in the widest type of their inputs (AT_FORALL_PROMOTE).
_WIDEST = frozenset("addcdiv addcmul atan2 bilinear cross dot vdot grid_sample index_put tensordot scatter_add".split())
#: Operators whose result becomes float32 without a copy of their input (AT_FORALL_FP32_SET_OPT_DTYPE).
_RESULT = frozenset("prod softmax log_softmax cumprod cumsum linalg_vector_norm linalg_matrix_norm sum".split())
#: Operators with a kernel from float16 to float32 (source: SoftMax.cpp).
_FROM_HALF: "Dict[str, Callable[[Any], Any]]" = {
    "softmax": lambda torch: torch.ops.aten._softmax,
    "log_softmax": lambda torch: torch.ops.aten._log_softmax,
}
#: Operators that autocast forbids.
_BANNED = frozenset(("binary_cross_entropy",))


class Casts:
    """The casts of one estimate, with the cache of cast parameters."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._cache: "Dict[int, Tuple[Any, Any]]" = {}
        key = getattr(torch._C.DispatchKey, "AutocastCUDA", None)  # PyTorch 1.13 does not have it in Python
        self._keys = torch._C.DispatchKeySet(key) if key is not None else None

    def clear(self) -> None:
        """Forgets the cast parameters, as at the end of the outermost autocast."""
        self._cache.clear()

    def _eligible(self, one: Any) -> bool:
        torch = self._torch
        return isinstance(one, torch.Tensor) and one.dtype.is_floating_point and one.dtype is not torch.float64 and one.device.type == "cuda"

    def _cast(self, one: Any, kind: Any) -> Any:
        if isinstance(one, (list, tuple)):
            return type(one)(self._cast(part, kind) for part in one) if type(one) in (list, tuple) else one
        if not self._eligible(one) or one.dtype is kind:
            return one
        keep = one.requires_grad and one.is_leaf and kind is not self._torch.float32 and self._torch.is_autocast_cache_enabled()
        if not keep or one._is_view() or one.dtype is not self._torch.float32:
            return one.to(kind)
        known = self._cache.get(id(one))
        if known is None or known[0] is not one:
            known = self._cache[id(one)] = (one, one.to(kind))
        return known[1]

    def _kernel(self, op: Any, name: str) -> Any:
        torch = self._torch

        def run(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(self._keys):
                if name in _LOWER:
                    kind = torch.get_autocast_gpu_dtype()
                elif name in _WIDEST:
                    kinds = [one.dtype for one in torch.utils._pytree.tree_flatten((args, kwargs))[0] if self._eligible(one)]
                    kind = torch.float32 if torch.float32 in kinds else torch.get_autocast_gpu_dtype()
                elif name in _RESULT:
                    if kwargs.get("dtype") is None and self._eligible(args[0]) and args[0].dtype is not torch.float32:
                        given = [one.name for one in op._schema.arguments]
                        at = given.index("dtype") if "dtype" in given else -1
                        chosen = 0 <= at < len(args) and args[at] is not None  # cross_entropy names its input's type, and gets it
                        if not chosen and args[0].dtype is torch.float16 and name in _FROM_HALF:  # one kernel, without a copy in float32
                            return _FROM_HALF[name](torch)(args[0], args[1], True)
                        if at >= len(args) or at < 0:
                            kwargs["dtype"] = torch.float32
                        elif args[at] is None:
                            args = (*args[:at], torch.float32, *args[at + 1 :])
                    return op(*args, **kwargs)
                else:
                    kind = torch.float32
                # C++ compilers evaluate arguments from the last to the first, and so the casts are recorded.
                last_first = [self._cast(one, kind) for one in reversed(args)]
                return op(*reversed(last_first), **{key: self._cast(one, kind) for key, one in kwargs.items()})

        return run

    @contextlib.contextmanager
    def registered(self) -> "Iterator[None]":
        """Applies the casts inside the `with`."""
        torch = self._torch
        if self._keys is None:
            yield
            return
        library = torch.library.Library("aten", "IMPL")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for full in torch._C._dispatch_get_all_op_names():
                    if not full.startswith("aten::") or not torch._C._dispatch_has_kernel_for_dispatch_key(full, "AutocastCUDA"):
                        continue
                    name, _, overload = full[6:].partition(".")
                    if name in _BANNED:
                        continue
                    op = getattr(getattr(torch.ops.aten, name), overload or "default")
                    library.impl(full[6:], self._kernel(op, name), "AutocastCUDA", **_override(library))
            yield
        finally:
            library._destroy() if hasattr(library, "_destroy") else None
            self.clear()


def _override(library: Any) -> "Dict[str, bool]":
    import inspect

    return {"allow_override": True} if "allow_override" in inspect.signature(library.impl).parameters else {}
