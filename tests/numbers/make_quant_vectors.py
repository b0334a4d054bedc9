#!/usr/bin/env python3
"""make_quant_vectors.py LIBGGML_BASE > quant_vectors.h

Makes the expected bytes of quant_test.c: our inputs, quantized by the reference functions of ggml
(libggml-base.so of the Python package llama-cpp-python) and by the package compressed-tensors
(needs torch). quant_test.c makes the same inputs; their hash is in the file.
"""
import ctypes
import sys

import numpy as np

KINDS = (("q8_0", "quantize_row_q8_0_ref", 32, 34), ("q4_0", "quantize_row_q4_0_ref", 32, 18),
         ("q4_k", "quantize_row_q4_K_ref", 256, 144), ("q6_k", "quantize_row_q6_K_ref", 256, 210))
LISTED, HASHED = 8, 1024  # blocks of 256 values


def splitmix(start, count):
    """The first `count` numbers of harness_random from the state `start`."""
    with np.errstate(over="ignore"):
        z = np.uint64(start) + np.uint64(0x9E3779B97F4A7C15) * np.arange(1, count + 1, dtype=np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def block(index):
    """256 values; the same as fill_block of quant_test.c. Every step is exact."""
    r = splitmix(index * 1000, 257)
    scale = np.float32(2.0) ** np.float32(int(r[256] % np.uint64(60)) - 50)
    r = r[:256]
    bits = (r >> np.uint64(32)).astype(np.uint32)
    parts = sum(((r >> np.uint64(k)) & np.uint64(0xFFFF)).astype(np.int64) for k in (0, 16, 32, 48))
    bell = (parts - 131070).astype(np.float32)  # below 2^18 in size: exact
    style = index % 8
    if style == 0:
        return bell * np.float32(2.0 ** -22)
    if style == 1:
        return bell * scale
    if style == 2:
        return np.where(r % np.uint64(16) == 0, bell, np.float32(0)) * np.float32(2.0 ** -20)
    if style == 3:
        return (bits & np.uint32(0x807FFFFF)).view(np.float32)  # subnormal
    if style == 4:
        return (bits & np.uint32(0xBFFFFFFF)).view(np.float32)  # any size up to 2
    if style == 5:
        return np.full(256, scale, np.float32)
    if style == 6:
        return ((r % np.uint64(17)).astype(np.float32) - np.float32(8)) * scale
    return bell * np.where(r % np.uint64(64) == 1, np.float32(2.0 ** -14), np.float32(2.0 ** -22))


def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def array(name, data):
    print(f"static const uint8_t {name}[{len(data)}] = {{")
    for at in range(0, len(data), 20):
        print("    " + " ".join(f"0x{b:02x}," for b in data[at:at + 20]))
    print("};")


def main():
    ggml = ctypes.CDLL(sys.argv[1])
    values = np.ascontiguousarray(np.concatenate([block(i) for i in range(HASHED)]), np.float32)
    print("/* Made by make_quant_vectors.py: what ggml and compressed-tensors make of the inputs of")
    print(" * quant_test.c. Do not edit. */")
    print("/* clang-format off */")
    print(f"#define LISTED_BLOCKS {LISTED}\n#define HASHED_BLOCKS {HASHED}")
    print(f"#define INPUT_HASH UINT64_C(0x{fnv(values.tobytes()):016x})")
    for name, function, per_block, size in KINDS:
        out = (ctypes.c_uint8 * (values.size // per_block * size))()
        getattr(ggml, function)(values.ctypes.data_as(ctypes.c_void_p), out, ctypes.c_int64(values.size))
        data = bytes(out)
        print(f"#define {name.upper()}_HASH UINT64_C(0x{fnv(data):016x})")
        array(f"{name}_listed", data[:LISTED * 256 // per_block * size])

    import torch
    from compressed_tensors.quantization import QuantizationArgs, QuantizationStrategy, QuantizationType
    from compressed_tensors.quantization.lifecycle.forward import quantize
    from compressed_tensors.quantization.utils import calculate_qparams
    weights = torch.from_numpy(values[:LISTED * 256].reshape(LISTED, 256).copy())
    for name, kind in (("int8", QuantizationType.INT), ("fp8", QuantizationType.FLOAT)):
        args = QuantizationArgs(num_bits=8, type=kind, symmetric=True, strategy=QuantizationStrategy.CHANNEL)
        scale, zero = calculate_qparams(weights.amin(1, keepdim=True), weights.amax(1, keepdim=True), args)
        q = quantize(weights, scale, zero, args, dtype=args.pytorch_dtype())
        array(f"{name}_listed", q.view(torch.uint8).numpy().tobytes())
        array(f"{name}_scales", scale.to(torch.float32).numpy().tobytes())
    print("/* clang-format on */")


main()
