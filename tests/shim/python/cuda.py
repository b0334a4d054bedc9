"""CUDA from Python with ctypes alone: what the tests of the shim need from a driver."""
import ctypes

MIB = 1 << 20
driver = ctypes.PyDLL("libcuda.so.1")  # holds the interpreter's lock while it calls
released = ctypes.CDLL("libcuda.so.1")  # lets it go, as frameworks do


def start():
    context, device = ctypes.c_void_p(), ctypes.c_int()
    assert driver.cuInit(0) == 0
    assert driver.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert driver.cuCtxSetCurrent(context) == 0


def alloc(size, by=driver):
    """Returns its address, or None without memory."""
    address = ctypes.c_uint64()
    code = by.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
    assert code in (0, 2), code
    return address.value if code == 0 else None


def free(address):
    assert driver.cuMemFree_v2(ctypes.c_uint64(address)) == 0


def look():
    """Queries what a framework queries before it has a context: the device's size."""
    size = ctypes.c_size_t()
    assert driver.cuInit(0) == 0
    assert driver.cuDeviceTotalMem_v2(ctypes.byref(size), 0) == 0
    return size.value
