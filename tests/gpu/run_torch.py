#!/usr/bin/env python3
"""One small PyTorch program in one of several variants, to run bare and under `stowage run`.

usage: run_torch.py CASE [GIB or STEPS]      (needs torch and a device; downloads nothing)

Prints one JSON line: digest (of the results, bit for bit), steps_ms, and, under the shim, how its count of memory compares with the
driver's own figure. CASE: train (a transformer over changing lengths), graphs, compile, reduce, cudnn, ipc,
loader, uneven (small steps and large ones in turn), hold (GIB of live tensors, used in turn), oom (asks until refused), steps (timing).
"""
import ctypes, hashlib, json, os, random, sys, time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch

MIB = 1 << 20


class Shim:
    """What the shim in this process reports, if there is one."""

    def __init__(self):
        process = ctypes.CDLL(None)
        self.there = hasattr(process, "stow_shim_bytes")
        if self.there:
            self.ask = process.stow_shim_bytes
            self.ask.restype, self.ask.argtypes = ctypes.c_uint64, [ctypes.c_uint, ctypes.c_char_p]
            process.stow_shim_real.restype, process.stow_shim_real.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
            # The driver's own figure, bypassing the shim.
            self.info = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(process.stow_shim_real(b"cuMemGetInfo_v2"))

    def kinds(self):
        names = "plain pages pools arrays managed graphs context spilled pinned ipc".split()
        return {n: self.ask(0, n.encode()) for n in names}

    def counted(self):
        return self.ask(0, None) - self.ask(0, b"context")

    def used(self):
        left, total = ctypes.c_size_t(), ctypes.c_size_t()
        assert self.info(ctypes.addressof(left), ctypes.addressof(total)) == 0
        return total.value - left.value


def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().float().cpu().numpy().tobytes())
    return h.hexdigest()[:16]


def model(width=512, layers=4):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda()


def step(m, opt, x):
    loss = m(x).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad(set_to_none=True)
    return loss


def train(steps=12, wrap=lambda m: m, fixed=False):
    m = model()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3)
    f, r = wrap(m), random.Random(0)
    for i in range(steps):
        n = 128 if fixed else r.randrange(32, 512)
        loss = step(f, opt, torch.randn(16, n, 512, device="cuda"))
    return digest(loss, *m.parameters())


def uneven():
    m = model(1024, 8)
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3)
    for n in (64, 512, 64, 64, 512, 64):
        loss = step(m, opt, torch.randn(32, n, 1024, device="cuda"))
    return digest(loss, *m.parameters())


def graphs():
    x = torch.zeros(1 << 20, device="cuda")
    w = torch.randn(1 << 20, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            y = (x * w + 1).sin()
    torch.cuda.current_stream().wait_stream(side)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = x
        for _ in range(4):
            y = (y * w + 1).sin()
        big = torch.empty(64 << 20, device="cuda", dtype=torch.uint8).fill_(1)
    for i in range(5):
        x.fill_(i)
        g.replay()
    return digest(y, big[:16])


def cudnn():
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    conv = torch.nn.Conv2d(16, 32, 3, padding=1).cuda()
    torch.nn.init.constant_(conv.weight, 0.5)
    torch.nn.init.constant_(conv.bias, 0.0)
    # Whole numbers: the sum is exact in any order, whichever algorithm the benchmark picks.
    x = torch.randint(0, 4, (8, 16, 64, 64), device="cuda", generator=torch.Generator("cuda").manual_seed(1)).float()
    return digest(conv(x))


def double(queue, back):
    t = queue.get()
    back.put(digest(t * 2))
    del t
    queue.get()


def ipc():
    # With expandable segments, sharing needs pidfd_getfd, which containers may forbid: use plain segments here.
    import torch.multiprocessing as mp

    ctx = mp.get_context("spawn")
    queue, back = ctx.Queue(), ctx.Queue()
    child = ctx.Process(target=double, args=(queue, back))
    child.start()
    t = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
    queue.put(t)
    answer = back.get(timeout=120)
    queue.put(None)
    child.join(60)
    assert child.exitcode == 0 and answer == digest(t * 2), (child.exitcode, answer)
    return answer


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.full((64, 1024), float(i))


def loader():
    sums = []
    data = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True)
    for batch in data:
        sums.append(batch.to("cuda", non_blocking=True).sum(dim=(1, 2)))
    return digest(torch.cat(sums))


def hold(gib):
    piece = 128 * MIB
    live = [torch.full((piece // 4,), float(i), device="cuda") for i in range(int(gib * 1024 * MIB // piece))]
    for turn in range(2):
        for i, t in enumerate(live):
            t.add_(live[(i + 1) % len(live)][0] * 0 + turn + 1)
    return digest(torch.stack([t[::4096].sum() for t in live]))


def oom():
    live = []
    try:
        while True:
            live.append(torch.empty(64 * MIB, device="cuda", dtype=torch.uint8))
    except torch.cuda.OutOfMemoryError as error:
        held, used = len(live) * 64, SHIM.used() if SHIM.there else 0
        print(json.dumps({"held_mib": held, "used_mib": used // MIB, "error": str(error)[:160]}))
        sys.exit(1)


def steps(width, rows, count):
    """Returns the milliseconds of each step; the steps are the same in every run."""
    m = model(width, 6)
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4)
    r, times = random.Random(0), []
    for i in range(10 + count):
        x = torch.randn(rows, r.randrange(64, 512), width, device="cuda")
        torch.cuda.synchronize()
        start = time.perf_counter()
        step(m, opt, x)
        torch.cuda.synchronize()
        times.append(round((time.perf_counter() - start) * 1000, 4))
    return times[10:]


SHIM = Shim()


def main():
    case, gib = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    out = {"case": case, "shim": SHIM.there}
    torch.use_deterministic_algorithms(case not in ("cudnn", "steps"))
    torch.zeros(1, device="cuda")
    if case == "oom":
        oom()
    run = {
        "train": train, "uneven": uneven, "graphs": graphs, "cudnn": cudnn, "ipc": ipc, "loader": loader, "hold": lambda: hold(gib),
        "compile": lambda: train(4, torch.compile, True),
        "reduce": lambda: train(4, lambda m: torch.compile(m, mode="reduce-overhead"), True),
    }
    if case == "steps":
        count = int(sys.argv[2])
        out["steps_ms"] = steps(1024, 16, count)
        out["small_ms"] = steps(256, 1, 2 * count)  # bound by the host
    else:
        out["digest"] = run[case]()
    if SHIM.there and case in ("train", "graphs"):
        # Everything is loaded now, so the driver's own memory no longer changes.
        torch.cuda.synchronize()
        before = SHIM.kinds()["context"]
        run[case]()
        torch.cuda.synchronize()
        out["context_moved_mib"] = (SHIM.kinds()["context"] - before) / MIB
    if SHIM.there:
        # Returns how the count changes compared with the driver's own figure, after everything that loads lazily is loaded. Cached memory
        # would hide changes.
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before_used, before = SHIM.used(), SHIM.counted()
        extra = [torch.empty(301 * MIB, dtype=torch.uint8, device="cuda").fill_(0) for _ in range(5)]
        torch.cuda.synchronize()
        out["used_mib"] = (SHIM.used() - before_used) / MIB
        out["counted_mib"] = (SHIM.counted() - before) / MIB
        out["kinds_mib"] = {k: round(v / MIB, 1) for k, v in SHIM.kinds().items() if v}
        del extra
    print(json.dumps(out))


if __name__ == "__main__":
    main()
