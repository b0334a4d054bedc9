#!/usr/bin/env python3
"""Replay the requests of recordings with the driver's stream-ordered pool, and record what it reserves.

usage: record_async.py OUT.json TRACE.pickle.gz...      (needs a device and libcuda only)

One fresh pool for each, kept whole (release threshold 2^64-1, as PyTorch sets it), one stream. OUT.json: a list of {trace,
peak_reserved_bytes, growth: [[event, bytes asked, reserved after, address]...], addresses} with an entry wherever the reserve grew
and the address of every allocation, and "probes": small experiments. Compare peak_reserved_bytes with `stowage replay TRACE --policy
cuda_async`.
"""
import ctypes, gzip, json, pickle, random, sys

cu = ctypes.CDLL("libcuda.so.1")
u64, ptr = ctypes.c_uint64, ctypes.c_void_p


def ok(code, what):
    if code:
        raise SystemExit(f"{what}: CUDA error {code}")


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class PoolProps(ctypes.Structure):
    _fields_ = [("allocType", ctypes.c_int), ("handleTypes", ctypes.c_int), ("location", Location), ("security", ptr),
                ("maxSize", ctypes.c_size_t), ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 54)]


RELEASE_THRESHOLD, RESERVED, USED = 4, 5, 7


class Pool:
    def __init__(self):
        props = PoolProps(allocType=1, location=Location(1, 0))
        self.pool, self.stream = ptr(), ptr()
        ok(cu.cuMemPoolCreate(ctypes.byref(self.pool), ctypes.byref(props)), "cuMemPoolCreate")
        ok(cu.cuMemPoolSetAttribute(self.pool, RELEASE_THRESHOLD, ctypes.byref(u64(2**64 - 1))), "release threshold")
        ok(cu.cuStreamCreate(ctypes.byref(self.stream), 1), "cuStreamCreate")

    def attribute(self, which):
        value = u64()
        ok(cu.cuMemPoolGetAttribute(self.pool, which, ctypes.byref(value)), "cuMemPoolGetAttribute")
        return value.value

    def alloc(self, size):
        address = u64()
        code = cu.cuMemAllocFromPoolAsync(ctypes.byref(address), ctypes.c_size_t(size), self.pool, self.stream)
        return address.value if code == 0 else None

    def free(self, address):
        ok(cu.cuMemFreeAsync(u64(address), self.stream), "cuMemFreeAsync")

    def close(self):
        ok(cu.cuStreamSynchronize(self.stream), "cuStreamSynchronize")
        ok(cu.cuMemPoolDestroy(self.pool), "cuMemPoolDestroy")
        ok(cu.cuStreamDestroy_v2(self.stream), "cuStreamDestroy")


def replay(path):
    snapshot = pickle.load(gzip.open(path))
    events = max(snapshot["device_traces"], key=len)
    pool, live, growth, reserved, refused, addresses = Pool(), {}, [], 0, 0, []
    for i, e in enumerate(events):
        if e["action"] == "alloc":
            address = pool.alloc(e["size"])
            if address is None:
                refused += 1
                continue
            live[e["addr"]] = address
            addresses.append(address)
            now = pool.attribute(RESERVED)
            if now != reserved:
                growth.append([i, e["size"], now, address])
                reserved = now
        elif e["action"] == "free_completed" and e["addr"] in live:
            pool.free(live.pop(e["addr"]))
    result = dict(trace=path.split("/")[-1], peak_reserved_bytes=max((g[2] for g in growth), default=0), refused=refused,
                  growth=growth, addresses=addresses)
    for address in live.values():
        pool.free(address)
    pool.close()
    return result


def probes():
    """Runs small experiments, each a list of [action, size, address, reserved, used] on a new pool."""
    mib, out = 1 << 20, {}
    scripts = {
        "small": [1, 512, 513, 1000, 4096, 65536, 1 * mib, 1 * mib + 1, 2 * mib, 2 * mib + 512],
        "growing": [s * mib for s in (1, 3, 8, 20, 31, 32, 33, 64, 65, 100, 129, 500, 1000, 1001)],
        "one_of_each": [s for k in range(9, 31) for s in (1 << k, (1 << k) + 512)],
        # a negative number frees the allocation of that index (1-based)
        "reuse_exact": [64 * mib, 64 * mib, -1, 64 * mib],
        "reuse_smaller": [64 * mib, 64 * mib, -1, 40 * mib, 24 * mib, 16 * mib],
        "merge": [40 * mib, 40 * mib, 40 * mib, 40 * mib, -2, -3, 80 * mib, 16 * mib],
        "merge_ends": [16 * mib, 16 * mib, 16 * mib, 16 * mib, -1, -3, -2, 48 * mib],
        "best_fit": [100 * mib, 8 * mib, 60 * mib, 8 * mib, 80 * mib, 8 * mib, -1, -3, -5, 50 * mib, 70 * mib, 90 * mib],
        "tail": [100 * mib, 100 * mib, -2, 150 * mib, 150 * mib],
        "holes": [64 * mib] * 8 + [-1, -3, -5, -7, 128 * mib, 256 * mib],
        "holes_small": [10 * mib] * 12 + [-1, -3, -5, -7, -9, -11, 20 * mib, 11 * mib, 10 * mib, 5 * mib],
        "mixed_small": [512, 3 * mib, 512, 3 * mib, 512, 3 * mib, -2, -4, -6, 3 * mib, 1 * mib, 2048],
        "ties": [8 * mib] * 9 + [-2, -4, -6, -8, 8 * mib, 8 * mib, 8 * mib],
        "ties_backwards": [8 * mib] * 9 + [-8, -6, -4, -2, 8 * mib, 8 * mib, 8 * mib],
        "ties_after_a_miss": [8 * mib] * 9 + [-2, -4, -6, -8, 50 * mib, 8 * mib, 8 * mib, 8 * mib],
        "fit_of_near_sizes": [s * mib for k in (40, 36, 44, 34, 50, 60, 33) for s in (k, 1)] + [-1, -3, -5, -7, -9, -11, -13]
        + [s * mib for s in (33, 33, 33, 33, 33, 33)],
        "fit_after_a_miss": [s * mib for k in (40, 36, 44, 34, 50, 60, 33) for s in (k, 1)] + [-1, -3, -5, -7, -9, -11, -13]
        + [s * mib for s in (200, 33, 33, 33, 33, 33, 33)],
        "small_after_large_free": [20 * mib, 1 * mib, 80 * mib, 1 * mib, -1, -3, 4 * mib, 4 * mib, 4 * mib],
        "big": [2000 * mib, 1500 * mib, -1, 1999 * mib, 2001 * mib, -2, 1400 * mib],
    }
    for seed in range(6):
        rng, script, live = random.Random(seed), [], []
        sizes = [rng.randrange(1, 90 if seed < 3 else 8) * (mib if seed % 2 else 300_000) for _ in range(12)]
        for _ in range(300):
            if live and rng.random() < 0.47:
                script.append(-live.pop(rng.randrange(len(live))))
            else:
                script.append(rng.choice(sizes))
                live.append(sum(s > 0 for s in script))
        scripts[f"random_{seed}"] = script
    for name, script in scripts.items():
        pool, made, log = Pool(), [], []
        for size in script:
            if size < 0:
                pool.free(made[-size - 1])
                log.append(["free", size, made[-size - 1], pool.attribute(RESERVED), pool.attribute(USED)])
                made[-size - 1] = None
            else:
                made.append(pool.alloc(size))
                log.append(["alloc", size, made[-1], pool.attribute(RESERVED), pool.attribute(USED)])
        for address in made:
            if address is not None:
                pool.free(address)
        pool.close()
        out[name] = log
    return out


def main():
    ok(cu.cuInit(0), "cuInit")
    device, context = ctypes.c_int(), ptr()
    ok(cu.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    ok(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    ok(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    result = [replay(path) for path in sys.argv[2:]]
    for r in result:
        print(r["trace"], "peak reserved", r["peak_reserved_bytes"] / 2**30, "GiB, grew", len(r["growth"]), "times", flush=True)
    with open(sys.argv[1], "w") as f:
        json.dump(dict(traces=result, probes=probes()), f)


main()
