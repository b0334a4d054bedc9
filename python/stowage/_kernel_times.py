"""About how long an operator takes on the device, for the simulated times of `stowage.tune`.

A roofline: the larger of the time for its bytes and the time for its arithmetic, with a factor for operators that were measured to be slower. The figures are those of an H200, as are the costs of the
bus and of page calls in the residency simulator (src/residency/cost.c): only both together show what spilling costs. On a smaller
GPU both
the kernels and the bus are slower.
"""

from __future__ import annotations

from typing import Any, List

#: Bytes per ns: most kernels of a 7B model reach 2.5 to 5 TB/s (measured, src/residency/cost.c).
_BYTES_PER_NS = 3000.0
#: Floating-point operations per ns: three quarters of the 67 TFLOPS of float32, half of the 989 TFLOPS of 16 bits (NVIDIA's data sheet).
_WIDE_PER_NS, _NARROW_PER_NS = 50_000.0, 500_000.0
#: The shortest kernel.
_LEAST_NS = 2000
#: Host time between two launches of eager PyTorch, from Python and autograd: 17 to 24 us per operator in programs whose steps wait for the
#: host (measured beside an H200, PyTorch 2.11: LoRA, generation, a small Llama).
HOST_NS = 16000
#: How many times longer than their bytes these operators take (measured: sums over 16 programs).
_SLOWER = {
    "native_layer_norm": 1.8,
    "native_layer_norm_backward": 3.3,
    "native_group_norm": 3.0,
    "native_group_norm_backward": 1.9,
    "native_batch_norm": 1.8,
    "_log_softmax": 2.2,
    "_log_softmax_backward_data": 1.7,
    "_to_copy": 1.4,
    "sum": 3.3,
    "cumsum": 30.0,
}


def _count(tensor: Any) -> int:
    total = 1
    for one in tensor.shape:
        total *= int(one)
    return total


def _operations(name: str, inputs: "List[Any]", outputs: "List[Any]") -> float:
    """Returns the floating-point operations of a matrix product, a convolution or attention; 0 for all others."""
    if not outputs or not inputs:
        return 0.0
    if name in ("mm", "bmm"):
        return 2.0 * _count(outputs[0]) * int(inputs[0].shape[-1])
    if name in ("addmm", "baddbmm") and len(inputs) > 1:
        return 2.0 * _count(outputs[0]) * int(inputs[1].shape[-1])
    if name == "convolution" and len(inputs) > 1:
        return 2.0 * _count(outputs[0]) * _count(inputs[1]) / max(1, int(inputs[1].shape[0]))
    if name == "convolution_backward" and len(inputs) > 2:
        return 4.0 * _count(inputs[0]) * _count(inputs[2]) / max(1, int(inputs[2].shape[0]))
    if "attention" in name and len(inputs) > 2 and inputs[0].dim() == 4:
        backward = 2.5 if "backward" in name else 1.0
        query, key = inputs[0], inputs[1]
        length = max(int(key.shape[1]), int(key.shape[2]))
        return backward * 4.0 * _count(query) * length
    return 0.0


def device_ns(name: str, args: Any, result: Any, inputs: "List[Any]", outputs: "List[Any]") -> int:
    """Returns about how many nanoseconds the operator takes."""
    moved = sum(_count(one) * one.element_size() for one in (*inputs, *outputs))
    work = _operations(name, inputs, outputs)
    rate = _NARROW_PER_NS if outputs and outputs[0].element_size() <= 2 else _WIDE_PER_NS
    return int(max(_LEAST_NS, moved / _BYTES_PER_NS * _SLOWER.get(name, 1.0), work / rate))
