"""Snapshots made for tests, in PyTorch's form: a training loop of any length, and hostile names."""
import pickle
import random

PAGE = 2 << 20


class Maker:
    """Makes events as PyTorch records them, with an allocator that has a free list for each size class."""

    def __init__(self, seed=7):
        self.random = random.Random(seed)
        self.events, self.segments, self.free = [], [], {}
        self.next, self.clock = 0x7f0000000000, 1_700_000_000_000_000

    def event(self, action, addr, size, frames=None):
        self.clock += self.random.randrange(1, 40)
        e = {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": self.clock}
        if frames is not None:
            e["frames"] = frames
        self.events.append(e)

    def alloc(self, size, frames=None):
        block = (size + 511) & ~511
        if not self.free.get(block):
            total = max(PAGE, (block + PAGE - 1) & ~(PAGE - 1))
            self.event("segment_alloc", self.next, total)
            self.segments.append((self.next, total))
            self.free[block] = [self.next + i for i in range(total - block, -1, -block)]
            self.next += total + PAGE
        addr = self.free[block].pop()
        self.event("alloc", addr, size, frames)
        return addr, size, block, frames

    def release(self, held):
        addr, size, block, frames = held
        self.event("free_requested", addr, size, frames)
        self.event("free_completed", addr, size, frames)
        self.free[block].append(addr)

    def snapshot(self, annotations=(), **more):
        return {"segments": [], "device_traces": [self.events], "external_annotations": list(annotations), **more}


def frame(name, file, line):
    return {"name": name, "filename": file, "line": line}


def training(events, layers=24):
    """Makes a loop of layers with activations of changing length, a small remainder in each step, and one failure at the end."""
    m = Maker()
    main = frame("main", "train.py", 40)
    forward = [[frame("forward", "/x/site-packages/torch/nn/modules/linear.py", 134), frame(f"layer_{i}", "model.py", 10 + i), main] for i in range(layers)]
    other = [frame("loss", "train.py", 52), main]
    kept = [frame("log", "train.py", 60), main]
    weights = [m.alloc(m.random.randrange(1, 64) << 18, [frame("build", "model.py", 5), main]) for _ in range(layers)]
    marks = []
    while len(m.events) < events - 6 * layers - 20:
        length = m.random.choice([64, 128, 256, 512])
        live = []
        for i in range(layers):
            live.append(m.alloc(length * 4096, forward[i]))
            short = m.alloc(length * 1024 + 4096 * i, forward[i])
            m.release(short)
        m.release(m.alloc(4, other))
        m.alloc(1000, kept)
        for held in reversed(live):
            m.release(held)
        for stage in ("START", "END"):
            marks.append({"stage": stage, "name": "Optimizer.step#SGD.step", "device": 0, "time_us": m.clock})
            m.clock += 5
    m.event("oom", 123 << 20, 1 << 30, other)
    for held in weights:
        m.release(held)
    return m.snapshot(marks, error="CUDA out of memory. Tried to allocate 1.00 GiB.", allocator_settings={"expandable_segments": False})


HOSTILE = "</script><img src=x onerror=\"window.ran=1\"><svg onload=window.ran=1>"


def hostile():
    m = Maker()
    frames = [frame(HOSTILE, HOSTILE + ".py", 1), frame("javascript:window.ran=1", "'\"><script>window.ran=1</script>", 2)]
    held = [m.alloc(100000 * (i + 1), frames) for i in range(20)]
    for h in held[:10]:
        m.release(h)
    marks = [{"stage": "START", "name": "step " + HOSTILE, "device": 0, "time_us": 1_700_000_000_000_000 + 10 * i} for i in range(5)]
    m.event("oom", 0, 1 << 30, frames)
    return m.snapshot(marks, error=HOSTILE, allocator_settings={HOSTILE: HOSTILE})


def named(name, file="train.py", line=7):
    """Makes a few allocations of one function, under a caller."""
    m = Maker()
    for i in range(4):
        m.alloc(1 << 20 << i, [frame(name, file, line), frame("main", "main.py", 3)])
    return m.snapshot()


def write(path, snapshot):
    with open(path, "wb") as out:
        pickle.dump(snapshot, out, protocol=4)
