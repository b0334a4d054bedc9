"""A cache of mapped pages like that of a framework: freed pages stay mapped until the cache is released."""
import ctypes

from cuda import MIB, driver

BYTES = 4 * MIB


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Prop(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location), ("rest", ctypes.c_uint64 * 2)]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class Cache:
    def __init__(self, places=32):
        self.base, self.mapped, self.used = ctypes.c_uint64(), {}, set()
        zero = ctypes.c_uint64(0)
        assert driver.cuMemAddressReserve(ctypes.byref(self.base), ctypes.c_size_t(places * BYTES), ctypes.c_size_t(0), zero, zero) == 0

    def at(self, place):
        return ctypes.c_uint64(self.base.value + place * BYTES)

    def take(self, *places):
        for place in places:
            self.used.add(place)
            if place in self.mapped:
                continue
            handle, zero = ctypes.c_uint64(), ctypes.c_uint64(0)
            prop, access = Prop(1, 0, Location(1, 0)), Access(Location(1, 0), 3)
            size = ctypes.c_size_t(BYTES)
            assert driver.cuMemCreate(ctypes.byref(handle), size, ctypes.byref(prop), zero) == 0
            assert driver.cuMemMap(self.at(place), size, ctypes.c_size_t(0), handle, zero) == 0
            assert driver.cuMemSetAccess(self.at(place), size, ctypes.byref(access), ctypes.c_size_t(1)) == 0
            self.mapped[place] = handle

    def give(self, *places):
        self.used.difference_update(places)

    def let_go(self):
        for place in [p for p in self.mapped if p not in self.used]:
            assert driver.cuMemUnmap(self.at(place), ctypes.c_size_t(BYTES)) == 0
            assert driver.cuMemRelease(self.mapped.pop(place)) == 0

    def fill(self, place, value):
        assert driver.cuMemsetD8Async(self.at(place), ctypes.c_ubyte(value), ctypes.c_size_t(BYTES), None) == 0

    def byte(self, place):
        return ctypes.c_ubyte.from_address(self.at(place).value).value


def on_host(place, cache):
    """Queries the stand-in behind the shim."""
    driver.stow_shim_real.restype = ctypes.c_void_p
    location = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)(driver.stow_shim_real(b"standin_location"))
    return location(cache.at(place)) != 1
