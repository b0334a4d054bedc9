#!/usr/bin/env python3
"""One small program of another framework, for running bare and under `stowage run`.

usage: run_others.py jax|cupy|cupy_async|numba     (settings of the framework come from the environment)
       run_others.py jax|cupy|cupy_async past N    N arrays of 256 MiB at once, and what a kernel makes of each

Prints one JSON line like run_torch.py's.
"""
import ctypes, hashlib, json, os, sys

MIB = 1 << 20
process = ctypes.CDLL(None)
SHIM = hasattr(process, "stow_shim_bytes")


def figures():
    """Returns (the driver's used bytes, the shim's count) for the context of this thread."""
    process.stow_shim_bytes.restype, process.stow_shim_bytes.argtypes = ctypes.c_uint64, [ctypes.c_uint, ctypes.c_char_p]
    process.stow_shim_real.restype, process.stow_shim_real.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    driver.cuCtxGetCurrent(ctypes.byref(context))
    if not context:
        assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and driver.cuCtxSetCurrent(context) == 0
    left, total = ctypes.c_size_t(), ctypes.c_size_t()
    # The driver's own figure, bypassing the shim.
    info = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(process.stow_shim_real(b"cuMemGetInfo_v2"))
    assert info(ctypes.addressof(left), ctypes.addressof(total)) == 0
    count = process.stow_shim_bytes(0, None) - process.stow_shim_bytes(0, b"context")
    return total.value - left.value, count


def digest(array):
    import numpy

    return hashlib.sha256(numpy.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def use_jax():
    import jax, jax.numpy as np

    def work(n):
        x = np.arange(n * n, dtype=np.float32).reshape(n, n) % 7
        return jax.jit(lambda a: (a @ a.T).sum(axis=0))(x)

    keep = []
    return digest(work(1024)), lambda: keep.append(np.ones((301 * MIB // 4,), np.float32).block_until_ready())


def use_cupy(asynchronous=False):
    import cupy

    if asynchronous:
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    x = cupy.arange(1 << 20, dtype=cupy.float32) % 7
    keep = []

    def more():
        keep.append(cupy.ones(301 * MIB, dtype=cupy.uint8))
        cupy.cuda.Device().synchronize()

    return digest(cupy.asnumpy((x * 2 + 1).reshape(1024, 1024).sum(axis=0))), more


def use_numba():
    import numpy
    from numba import cuda

    keep = []
    x = cuda.to_device(numpy.arange(1 << 20, dtype=numpy.float32))
    return digest(x.copy_to_host()), lambda: keep.append(cuda.device_array(301 * MIB, dtype=numpy.uint8))


def past(which, count):
    """Holds all arrays; kernels write and read them."""
    if which == "jax":
        import jax, jax.numpy as np

        total = jax.jit(lambda a: (a * 2).reshape(64, -1).sum(axis=1))
        host = jax.device_get
    else:
        import cupy as np

        if which == "cupy_async":
            np.cuda.set_allocator(np.cuda.MemoryAsyncPool().malloc)
        total, host = (lambda a: (a.reshape(64, -1).sum(axis=1) * 2)), np.asnumpy
    held = [np.full((1 << 26,), i % 7, dtype=np.float32) for i in range(count)]
    held = [a + np.float32(1) for a in held[: count // 4]] + held[count // 4 :]
    return digest([host(total(a)) for a in held])


def main():
    which = sys.argv[1]
    if sys.argv[2:3] == ["past"]:
        print(json.dumps({"case": f"{which} past", "shim": SHIM, "digest": past(which, int(sys.argv[3]))}))
        return
    out = {"case": which, "shim": SHIM}
    result, more = {"jax": use_jax, "cupy": use_cupy, "cupy_async": lambda: use_cupy(True), "numba": use_numba}[which]()
    out["digest"] = result
    if SHIM:
        more()
        used, counted = figures()
        for _ in range(5):
            more()
        used_after, counted_after = figures()
        out["used_mib"], out["counted_mib"] = (used_after - used) / MIB, (counted_after - counted) / MIB
    print(json.dumps(out))


if __name__ == "__main__":
    main()
