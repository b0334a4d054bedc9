#!/usr/bin/env python3
"""Record programs that run out of memory, each for a known cause, to compare `stowage explain` with the known cause.

usage: record_causes.py FOLDER [--measure | --estimates] [NAME...]      (needs torch and one device of 16 GiB or more; downloads nothing)

Writes FOLDER/NAME.pickle.gz (PyTorch's snapshot, the error text under "error") and FOLDER/causes.json, a list of
{name, causes, model, settings, stacks, limit_bytes, failed, bytes}. A name is CAUSE-MODEL[-expandable][-nostacks]; one with
two causes is CAUSE+CAUSE-MODEL. With --measure the programs of MEASURED run twice more without a limit, as they are and with
their fix, and FOLDER/fixes.json has the peak of each: what the savings of a fix are compared with. With --estimates nothing is recorded:
FOLDER/estimates.json says what autocast and recomputing save of a batch.

Every program is its own process, forked from this one, which never touches the device itself.
"""
import copy, ctypes, functools, gc, gzip, json, os, pickle, signal, sys, tempfile, time, traceback

import torch
import torch._dynamo  # else the first optimizer of every child imports it
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

MIB = 1 << 20
ENTRIES = 60_000
OWN = {os.path.basename(__file__)}  # files whose programs these are; PROGRAMS of another file may be put in place of ours
for name in ("kaiming_uniform_", "xavier_uniform_", "uniform_", "normal_"):
    setattr(nn.init, name, lambda tensor, *_, **__: tensor)  # the numbers do not matter; their making is slow


# ---- models: each is (module, batch(n) -> inputs, loss(outputs) -> scalar) --------------------------------------------------
class Mlp(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.enter = nn.Linear(512, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.leave = nn.Linear(width, 1000)

    def forward(self, x):
        x = F.relu(self.enter(x))
        for layer in self.hidden:
            x = F.relu(layer(x))
        return self.leave(x)


class Cnn(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.Sequential(*[
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()) for _ in range(depth)])
        self.head = nn.Linear(width, 100)

    def forward(self, x):
        return self.head(self.blocks(F.relu(self.stem(x))).mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.heads = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), heads

    def forward(self, x):
        n, t, w = x.shape
        q, k, v = (y.view(n, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.before(x)).chunk(3, -1))
        weights = (q @ k.transpose(-1, -2)).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(n, t, w))
        return x + self.down(F.gelu(self.up(self.after(x))))


class Transformer(nn.Module):
    def __init__(self, width, depth, vocabulary=8000):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Attention(width, 8) for _ in range(depth))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        x = self.token(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Rnn(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.cell = nn.LSTM(256, width, depth, batch_first=True)
        self.head = nn.Linear(width, 256)

    def forward(self, x, state=None):
        y, state = self.cell(x, state)
        self.state = state
        return self.head(y)


class Unet(nn.Module):
    """The shape of a diffusion network: down, middle, up, with skips and a time embedding."""

    def __init__(self, width, depth):
        super().__init__()
        self.clock, self.enter = nn.Linear(64, width), nn.Conv2d(4, width, 3, padding=1)
        sizes = [width * 2**min(i, 2) for i in range(depth + 1)]
        self.down = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in zip(sizes, sizes[1:]))
        self.middle = nn.Conv2d(sizes[-1], sizes[-1], 3, padding=1)
        self.up = nn.ModuleList(nn.Conv2d(b + a, a, 3, padding=1) for a, b in reversed(list(zip(sizes, sizes[1:]))))
        self.leave = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x):
        x = self.enter(x) + self.clock(torch.ones(len(x), 64, device=x.device))[:, :, None, None]
        skips = []
        for layer in self.down:
            skips.append(x)
            x = F.silu(layer(x))
        x = F.silu(self.middle(x))
        for layer in self.up:
            x = F.interpolate(x, scale_factor=2)
            x = F.silu(layer(torch.cat([x, skips.pop()], 1)))
        return self.leave(x)


def model(kind, size=1):
    """A model of about size x 25 MiB of weights."""
    wide = lambda w: max(int(w * size**0.5) // 64 * 64, 64)
    if kind == "mlp":
        return Mlp(wide(1024), 5), lambda n: torch.randn(n * 16, 512, device="cuda"), lambda y: y.logsumexp(1).mean()
    if kind == "cnn":
        return (Cnn(wide(256), 10), lambda n: torch.randn(n, 3, 64, 64, device="cuda"),
                lambda y: F.cross_entropy(y, torch.zeros(len(y), dtype=torch.long, device="cuda")))
    if kind == "transformer":
        return (Transformer(wide(320), 4), lambda n: torch.randint(0, 8000, (n, 256), device="cuda"),
                lambda y: F.cross_entropy(y.flatten(0, 1), torch.zeros(y.shape[0] * y.shape[1], dtype=torch.long, device="cuda")))
    if kind == "rnn":
        return Rnn(wide(768), 2), lambda n: torch.randn(n, 64, 256, device="cuda"), lambda y: y.square().mean()
    return Unet(wide(128), 3), lambda n: torch.randn(n, 4, 64, 64, device="cuda"), lambda y: F.mse_loss(y, torch.randn_like(y))


# A batch whose forward pass keeps 25 to 200 MiB, by model.
SMALL = {"mlp": 64, "cnn": 1, "transformer": 4, "rnn": 16, "unet": 4}


def weight_bytes(net):
    return sum(p.numel() * p.element_size() for p in net.parameters())


def limit(size):
    """Limits what PyTorch may reserve; nothing is limited while measuring."""
    RUN["limit_bytes"] = int(size)
    if not RUN["measuring"]:
        torch.cuda.set_per_process_memory_fraction(int(size) / torch.cuda.get_device_properties(0).total_memory)


def train_step(net, optimizer, x, loss):
    loss(net(x)).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def driver_alloc(size):
    """Allocates memory that PyTorch does not know about."""
    torch.cuda.current_stream()
    address = ctypes.c_uint64()
    code = ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
    return code


def hold(leave):
    """Starts another process that takes all device memory except `leave` bytes. Call it before this process uses the device."""
    ready, held = os.pipe()
    RUN["holder"] = os.fork()
    if RUN["holder"] == 0:
        signal.alarm(120)
        try:
            torch.cuda.init()
            driver_alloc(torch.cuda.mem_get_info()[0] - leave - 600 * MIB)  # 600: what our own context will take
            os.write(held, b"x")
            signal.pause()
        finally:
            os._exit(1)
    os.close(held)
    os.read(ready, 1)


class Lean(torch.optim.Optimizer):
    """An optimizer whose change() says what it keeps of a weight and how the weight changes."""

    def __init__(self, params, lr=1e-4):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.change(p, self.state[p], group["lr"])


class EightBits(Lean):
    """State in 8 bits: what bitsandbytes keeps, without the package."""

    def change(self, p, state, lr):
        if not state:
            state["m"] = torch.zeros(p.shape, dtype=torch.int8, device=p.device)
            state["v"] = torch.zeros(p.shape, dtype=torch.uint8, device=p.device)
        p.add_(p.grad, alpha=-lr)


class OnHost(Lean):
    """State on the host: the gradient goes there, the change comes back."""

    def change(self, p, state, lr):
        if not state:
            state["m"], state["v"] = torch.zeros(p.shape), torch.zeros(p.shape)
        grad = p.grad.cpu()
        state["m"].lerp_(grad, 0.1)
        state["v"].lerp_(grad.square(), 0.001)
        p.add_((state["m"] / (state["v"].sqrt() + 1e-8)).to(p.device), alpha=-lr)


def optimizer_of(fixed, make):
    """Returns the function that makes the optimizer, changed as `fixed` says: state in 8 bits or on the host, a step without temporaries."""
    changed = {"8bit": EightBits, "host": OnHost, "fused": functools.partial(make, fused=True),
               "foreach": functools.partial(make, foreach=False)}
    return changed.get(fixed, make)


def came_to(sizes, step):
    """Runs the sizes up to the first that does not fit."""
    for at, size in enumerate(sizes):
        try:
            step(size)
        except torch.cuda.OutOfMemoryError:
            break
    gc.collect()
    torch.cuda.empty_cache()
    return sizes[:at + 1]


# ---- programs: each fails for the cause it is named after. `fixed`: with the change that mends it --------------------------
def weights_too_big(kind, fixed, how="cuda"):
    net, _, _ = model(kind, 24)
    limit(weight_bytes(net) * (1.2 if kind == "rnn" else 0.8))  # an LSTM puts its weights into one piece: they are there twice
    if fixed:
        net = net.half()
    if how == "cuda":
        net = net.cuda()
    elif how == "to":
        net = net.to("cuda")
    else:  # built on the device
        del net
        torch.set_default_dtype(torch.float16 if fixed else torch.float32)
        with torch.device("cuda"):
            net = model(kind, 24)[0]


def recomputing(net):
    """Activation checkpointing around each block."""
    blocks = {"Cnn": lambda: net.blocks, "Transformer": lambda: net.layers, "Mlp": lambda: net.hidden}[type(net).__name__]()
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def batch_too_big(kind, fixed, growing=True, amp=False, recompute=False):
    net, batch, loss = model(kind)
    net = net.cuda()
    if recompute:
        recomputing(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    limit(weight_bytes(net) * 6 + 700 * MIB)
    sizes = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048] if growing else [512] * 2

    def step(n):
        x = batch(n)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
            value = loss(net(x))
        value.backward()
        del x, value
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    if RUN["measuring"]:
        sizes = [256 if fixed else 512] * 2
    elif fixed:  # that part of each, as far as it came
        sizes = [max(n // fixed, 1) for n in came_to(sizes, step)]
    for n in sizes:
        step(n)


def one_spike_distances(kind, fixed):
    net, batch, loss = model(kind)
    net = net.cuda().eval()
    with torch.no_grad():
        rows = torch.cat([net(batch(8)).flatten(1)[:, :128] for _ in range(4)])
        rows = rows.repeat(40000 // len(rows), 1)
        limit(torch.cuda.memory_reserved() + 2000 * MIB)
        if fixed:
            nearest = torch.cat([torch.cdist(part, rows).argmin(1) for part in rows.split(1000)])
        else:
            nearest = torch.cdist(rows, rows).argmin(1)


def one_spike_onehot(kind, fixed):
    net, batch, loss = model(kind)
    net = net.cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    limit(weight_bytes(net) * 3 + 1200 * MIB)
    for _ in range(4):
        train_step(net, optimizer, batch(4), loss)
    seen = torch.randint(0, 50000, (20000,), device="cuda")
    if fixed:
        counts = sum(F.one_hot(part, 50000).float().sum(0) for part in seen.split(200))
    else:
        counts = F.one_hot(seen, 50000).float().sum(0)


def one_spike_scores(kind, fixed):
    net, batch, loss = model(kind)
    net = net.cuda()
    optimizer = torch.optim.Adam(net.parameters())
    limit(weight_bytes(net) * 8 + 600 * MIB)
    for _ in range(3):
        train_step(net, optimizer, batch(2), loss)
    words = torch.randn(1, 8, 24000, 64, device="cuda")
    if fixed:
        seen = torch.cat([torch.softmax(part @ words.transpose(-1, -2), -1) @ words for part in words.split(100, 2)], 2)
    else:
        seen = torch.softmax(words @ words.transpose(-1, -2), -1) @ words


def optimizer_state(kind, fixed, make=lambda p, **more: torch.optim.AdamW(p, lr=1e-4, **more), share=0.6, states=2):
    net, batch, loss = model(kind, 16)
    weights = weight_bytes(net)
    net = net.cuda()
    if fixed and RUN["measuring"]:
        make = lambda p: torch.optim.SGD(p, lr=1e-4)
    optimizer = optimizer_of(fixed, make)(net.parameters())
    limit(weights * (2 + states * share) + 250 * MIB)
    for _ in range(3):
        x = batch(1)
        train_step(net, optimizer, x[..., :8, :8] if kind == "cnn" else x, loss)


def graph_kept_sum(kind, fixed):
    net, batch, loss = model(kind)
    net = net.cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    train_step(net, optimizer, batch(SMALL[kind]), loss)
    limit(torch.cuda.max_memory_allocated() * 1.2 + 700 * MIB)
    total = 0
    for _ in range(20 if RUN["measuring"] else 400):
        value = loss(net(batch(SMALL[kind])))
        total = total + (value.item() if fixed else value)
    return total


def graph_kept_list(kind, fixed):
    net, batch, loss = model(kind)
    net = net.cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    limit(weight_bytes(net) * 4 + 1500 * MIB)
    for _ in range(3):
        losses = []
        for _ in range(20 if RUN["measuring"] else 400):
            value = loss(net(batch(SMALL[kind])))
            if fixed:
                value.backward()
            losses.append(value.detach() if fixed else value)
        torch.stack(losses).mean().backward() if not fixed else None
        optimizer.step()
        optimizer.zero_grad()


def graph_kept_state(kind, fixed):
    """The state of a recurrent network carried from chunk to chunk with its history."""
    net, batch, loss = model("rnn")
    net = net.cuda()
    limit(weight_bytes(net) * 4 + 500 * MIB)
    state, value = None, 0
    for _ in range(20 if RUN["measuring"] else 400):
        value = value + loss(net(batch(16), state))
        state = net.state
        if fixed:
            value.backward()
            value, state = 0, tuple(s.detach() for s in state)


def no_grad_missing(kind, fixed, first_train=True, keep=lambda y: y):
    net, batch, loss = model(kind)
    net = net.cuda()
    if first_train:
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        for _ in range(3):
            train_step(net, optimizer, batch(SMALL[kind]), loss)
    limit(max(torch.cuda.max_memory_allocated(), weight_bytes(net)) * 1.3 + 900 * MIB)
    net.eval()
    outputs = []
    with torch.set_grad_enabled(not fixed):
        for _ in range(20 if RUN["measuring"] else 400):
            y = keep(net(batch(SMALL[kind])))
            outputs.append(y.cpu() if fixed == "cpu" else y)
    return outputs


def eval_batch_bigger(kind, fixed, inference=False):
    net, batch, loss = model(kind)
    net = net.cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for _ in range(4):
        train_step(net, optimizer, batch(8), loss)
    limit(torch.cuda.max_memory_allocated() * 1.4 + 200 * MIB)
    net.eval()
    with torch.inference_mode() if inference else torch.no_grad():
        for n in [8] * 16 if fixed else [8192 if kind in ("mlp", "rnn") else 2048]:
            value = loss(net(batch(n)))
    return value


def leak_outputs(kind, fixed):
    net, batch, loss = model(kind)
    net = net.cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    kept = []
    for step in range(25 if RUN["measuring"] else 300):
        y = net(batch(SMALL[kind]))
        value = loss(y)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        y = y.detach()
        kept.append(y.cpu() if fixed else y.repeat(1 + 4 * MIB // (y.numel() * 4), *[1] * (y.dim() - 1)))
        if step == 2:
            limit(torch.cuda.max_memory_allocated() * 1.15 + 300 * MIB)


def leak_batches(kind, fixed):
    net, batch, loss = model(kind)
    net = net.cuda()
    optimizer = torch.optim.Adam(net.parameters())
    seen = {}
    for step in range(25 if RUN["measuring"] else 300):
        x = batch(32)
        train_step(net, optimizer, x, loss)
        seen[step] = None if fixed else (x, torch.zeros(5 * MIB // 4, device="cuda"))
        if step == 2:
            limit(torch.cuda.max_memory_allocated() * 1.1 + 150 * MIB)


def leak_hook(kind, fixed):
    """A forward hook that files away what it sees."""
    net, batch, loss = model(kind)
    net = net.cuda()
    seen = []
    last = [m for m in net.modules() if not list(m.children())][-2]

    def remember(module, inputs, output):
        output = output[0] if isinstance(output, tuple) else output
        seen.append(output.detach().float().mean().item() if fixed else output.detach().clone())

    last.register_forward_hook(remember)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    for step in range(25 if RUN["measuring"] else 300):
        train_step(net, optimizer, batch(SMALL[kind] * 2), loss)
        if step == 2:
            limit(torch.cuda.max_memory_allocated() * 1.1 + 130 * MIB)


def loaded_twice_file(kind, fixed):
    net, batch, loss = model(kind, 12)
    with tempfile.NamedTemporaryFile() as file:
        torch.save(net.state_dict(), file.name)
        weights = weight_bytes(net)
        net = net.cuda()
        limit(weights * 5.5 + 200 * MIB)
        saved = torch.load(file.name, map_location="cpu" if fixed else "cuda")
        net.load_state_dict(saved)
    optimizer = optimizer_of(fixed, torch.optim.AdamW)(net.parameters(), lr=1e-4)
    for _ in range(3):
        train_step(net, optimizer, batch(1), loss)
    return saved


def loaded_twice_copy(kind, fixed):
    net, batch, loss = model(kind, 12)
    net = net.cuda()
    limit(weight_bytes(net) * 5.5 + 200 * MIB)
    best = {k: v.cpu() for k, v in net.state_dict().items()} if fixed else copy.deepcopy(net)
    optimizer = optimizer_of(fixed, torch.optim.Adam)(net.parameters(), lr=1e-4)
    for _ in range(3):
        train_step(net, optimizer, batch(1), loss)
    return best


def loaded_twice_at_once(kind, fixed):
    """The second copy itself does not fit."""
    net, batch, loss = model(kind, 20)
    weights = weight_bytes(net)
    net = net.cuda()
    limit(weights * 1.6)
    saved = {k: v.cpu() if fixed else v.clone() for k, v in net.state_dict().items()}
    net.load_state_dict(saved)


def fragmentation_interleaved(kind, fixed):
    """Buffers of changing size, every second one given back, then one large request."""
    net, batch, loss = model(kind)
    net = net.cuda().eval()
    limit(weight_bytes(net) + 1800 * MIB)
    with torch.no_grad():
        net(batch(2))
        torch.cuda.empty_cache()
        room = [torch.empty(300 * MIB, dtype=torch.uint8, device="cuda") for _ in range(5)]
        del room
        kept = [torch.empty((9 + i % 3) * MIB, dtype=torch.uint8, device="cuda") for i in range(130)]
        kept = kept[::3]
        return kept, torch.empty(650 * MIB, dtype=torch.uint8, device="cuda")


def fragmentation_sequences(kind, fixed):
    """Caches of many sequences, of which most are done: what they leave is between those that are not."""
    net, batch, loss = model(kind)
    net = net.cuda().eval()
    limit(weight_bytes(net) + 1600 * MIB)
    with torch.no_grad():
        net(batch(1))
        torch.cuda.empty_cache()
        warm = [torch.zeros(256 * MIB, dtype=torch.uint8, device="cuda") for _ in range(5)]
        del warm
        caches = {}
        for sequence in range(40):
            caches[sequence] = torch.zeros((20 + sequence * 7 % 13) * MIB, dtype=torch.uint8, device="cuda")
        for sequence in list(caches):
            if sequence % 4:
                del caches[sequence]
        joined = torch.zeros(600 * MIB, dtype=torch.uint8, device="cuda")
    return caches, joined


def cache_held(kind, fixed, size=20 << 30):
    net, batch, loss = model(kind)
    net = net.cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    train_step(net, optimizer, batch(8), loss)
    free, total = torch.cuda.mem_get_info()
    many = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(max((free - size // 3) >> 30, 1))]
    del many
    if fixed:
        torch.cuda.empty_cache()
    code = driver_alloc(size)
    if code:
        raise RuntimeError(f"cuMemAlloc of {size / (1 << 30):.2f} GiB outside PyTorch failed with {code}: out of memory")


def until_full(kind):
    net, batch, loss = model(kind)
    net = net.cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for _ in range(4):
        train_step(net, optimizer, batch({"mlp": 1024, "rnn": 1024}.get(kind, 64)), loss)


def leave_free(kind):
    """Leaves less free memory than a few steps of `until_full` need."""
    return {"mlp": 350, "cnn": 900, "transformer": 700, "rnn": 320, "unet": 500}[kind] * MIB


def other_process(kind, fixed):
    until_full(kind)


def outside_framework(kind, fixed):
    torch.zeros(1, device="cuda")
    if not fixed:
        driver_alloc(torch.cuda.mem_get_info()[0] - leave_free(kind))
    until_full(kind)


def lowered_limit(kind, fixed):
    """Fits, until somebody lowers the limit."""
    net, batch, loss = model(kind)
    net = net.cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for step in range(9):
        train_step(net, optimizer, batch(16), loss)
        if step == 5:
            torch.cuda.empty_cache()
            if fixed:
                torch.cuda.set_per_process_memory_fraction(fixed)
            else:
                limit(torch.cuda.max_memory_allocated() * 0.8)


def leak_and_twice(kind, fixed):
    """A second copy of the weights, and outputs that pile up."""
    net, batch, loss = model(kind, 4)
    net = net.cuda()
    saved = {k: v.cpu() for k, v in net.state_dict().items()} if fixed == "loaded_twice" else copy.deepcopy(net.state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    kept = []
    for step in range(200):
        y = net(batch(8))
        loss(y).backward()
        optimizer.step()
        optimizer.zero_grad()
        y = y.detach()
        kept.append(y.cpu() if fixed == "leak" else y.repeat(1 + 8 * MIB // (y.numel() * 4), *[1] * (y.dim() - 1)))
        if step == 2:
            limit(torch.cuda.max_memory_allocated() * 1.1 + 150 * MIB)
    return saved


def batch_and_other(kind, fixed):
    """A batch that grows on a device that another process half fills."""
    net, batch, loss = model(kind)
    net = net.cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    for n in (8, 16, 32, 64, 128, 256):  # alone on the device, all of them fit
        train_step(net, optimizer, batch(n), loss)


HELD = {other_process: leave_free, batch_and_other: lambda kind: 3000 * MIB}


def momentum(p):
    return torch.optim.SGD(p, lr=1e-3, momentum=0.9)


# cause: [(model, program, its arguments, marks)]. Marks: x expandable segments, n no stacks, a stacks of frees too.
PROGRAMS = {
    "weights_too_big": [("mlp", weights_too_big, {}, ""), ("transformer", weights_too_big, dict(how="to"), "x"),
                        ("rnn", weights_too_big, dict(how="made"), ""), ("unet", weights_too_big, dict(how="to"), "n")],
    "batch_too_big": [("cnn", batch_too_big, {}, ""), ("transformer", batch_too_big, dict(growing=False), "a"),
                      ("unet", batch_too_big, dict(growing=False, amp=True), "x"), ("mlp", batch_too_big, {}, "n"),
                      ("rnn", batch_too_big, {}, "")],
    "one_spike": [("mlp", one_spike_distances, {}, ""), ("cnn", one_spike_onehot, {}, "x"),
                  ("transformer", one_spike_scores, {}, "a"), ("unet", one_spike_onehot, {}, "n")],
    "optimizer_state": [("transformer", optimizer_state, {}, ""),
                        ("mlp", optimizer_state, dict(make=lambda p, **more: torch.optim.Adam(p, **{"foreach": False, **more})), "x"),
                        ("cnn", optimizer_state, dict(make=momentum, states=1, share=0.5), "a"),
                        ("unet", optimizer_state, dict(make=lambda p, **more: torch.optim.Adam(p, **{"fused": True, **more})), "n")],
    "graph_kept": [("cnn", graph_kept_sum, {}, ""), ("transformer", graph_kept_list, {}, "a"),
                   ("rnn", graph_kept_state, {}, "x"), ("mlp", graph_kept_sum, {}, "")],
    "no_grad_missing": [("cnn", no_grad_missing, {}, ""), ("transformer", no_grad_missing, dict(first_train=False), "x"),
                        ("mlp", no_grad_missing, dict(keep=lambda y: y.softmax(-1)), "a"),
                        ("unet", no_grad_missing, dict(first_train=False), "")],
    "eval_batch_bigger": [("cnn", eval_batch_bigger, {}, ""), ("transformer", eval_batch_bigger, dict(inference=True), "a"),
                          ("unet", eval_batch_bigger, {}, "x"), ("mlp", eval_batch_bigger, {}, "n")],
    "leak": [("mlp", leak_outputs, {}, ""), ("rnn", leak_batches, {}, "x"), ("cnn", leak_hook, {}, ""),
             ("transformer", leak_outputs, {}, "n")],
    "loaded_twice": [("transformer", loaded_twice_file, {}, ""), ("mlp", loaded_twice_copy, {}, "x"),
                     ("cnn", loaded_twice_at_once, {}, "a"), ("rnn", loaded_twice_file, {}, "n")],
    "fragmentation": [("mlp", fragmentation_interleaved, {}, ""), ("transformer", fragmentation_sequences, {}, "a"),
                      ("unet", fragmentation_interleaved, {}, "n")],
    "cache_held": [("mlp", cache_held, {}, ""), ("transformer", cache_held, dict(size=9 << 30), "x"),
                   ("unet", cache_held, dict(size=40 << 30), "n")],
    "other_process": [("cnn", other_process, {}, ""), ("transformer", other_process, {}, "x"), ("mlp", other_process, {}, "n")],
    "outside_framework": [("unet", outside_framework, {}, ""), ("rnn", outside_framework, {}, "x"),
                          ("transformer", outside_framework, {}, "n")],
    "limit": [("cnn", lowered_limit, {}, ""), ("transformer", lowered_limit, {}, "x"), ("mlp", lowered_limit, {}, "")],
    "leak+loaded_twice": [("mlp", leak_and_twice, {}, ""), ("unet", leak_and_twice, {}, "x")],
    "batch_too_big+other_process": [("cnn", batch_and_other, {}, ""), ("transformer", batch_and_other, {}, "x")],
}
MEASURED = ["weights_too_big-mlp", "batch_too_big-transformer", "batch_too_big-unet-expandable", "one_spike-mlp",
            "one_spike-transformer", "optimizer_state-transformer", "optimizer_state-cnn", "graph_kept-cnn",
            "no_grad_missing-cnn", "no_grad_missing-transformer-expandable", "leak-mlp", "leak-cnn",
            "loaded_twice-transformer", "loaded_twice-mlp-expandable"]
# Fixes whose saving is estimated: the arguments that apply them.
ESTIMATED = [(kind, change, {change: True}) for kind in ("cnn", "transformer", "mlp") for change in ("amp", "recompute")]
RUN = dict(limit_bytes=0, measuring=False, holder=0)


def names():
    for cause, programs in PROGRAMS.items():
        for kind, program, arguments, marks in programs:
            name = f"{cause}-{kind}" + "-expandable" * ("x" in marks) + "-nostacks" * ("n" in marks)
            yield name, cause, kind, program, arguments, marks


def shorten(snapshot):
    """Drops what no reader uses, the folders of this machine, and names that would reveal the answer."""
    helpers = {"record", "in_child", "main", "<module>"}
    telling = {f.__name__ for programs in PROGRAMS.values() for _, f, _, _ in programs}
    done = {}

    def frames(of):
        if id(of) not in done:
            kept = []
            for f in of:
                own = os.path.basename(f["filename"]) in OWN
                if own and f["name"] in helpers:
                    continue
                at = f["filename"].find("site-packages/")
                kept.append(dict(name="main" if own and f["name"] in telling else f["name"], line=f["line"],
                                 filename="train.py" if own else
                                 f["filename"][at:] if at >= 0 else os.path.basename(f["filename"])))
            done[id(of)] = (kept, of)  # `of` is kept too, so that its id stays its own
        return done[id(of)][0]

    for trace in snapshot["device_traces"]:
        for e in trace:
            e.pop("compile_context", None), e.pop("user_metadata", None)
            if "frames" in e:
                e["frames"] = frames(e["frames"])
    for s in snapshot["segments"]:
        for holder in [s] + s["blocks"]:
            if "frames" in holder:
                holder["frames"] = frames(holder["frames"])
    return snapshot


def settle(marks):
    if "x" in marks:
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")


def record(name, cause, kind, program, arguments, marks, out):
    if program in HELD:
        hold(HELD[program](kind))
    torch.cuda.init()
    settle(marks)
    context = None if "n" in marks else "all" if "a" in marks else "alloc"
    torch.cuda.memory._record_memory_history(max_entries=ENTRIES, context=context, stacks="python")
    error = ""
    try:
        program(kind, False, **arguments)
    except Exception as e:
        error = f"{type(e).__name__}: {e}"
    gc.collect()
    snapshot = shorten(torch.cuda.memory._snapshot())
    snapshot["error"] = error
    path = f"{out}/{name}.pickle.gz"
    with gzip.GzipFile(path, "wb", 9, mtime=0) as f:
        pickle.dump(snapshot, f, 4)
    return dict(name=name, causes=cause.split("+"), model=kind, settings="expandable_segments:True" if "x" in marks else "",
                stacks="n" not in marks, limit_bytes=RUN["limit_bytes"], failed=bool(error), error=error[:160],
                events=sum(len(t) for t in snapshot["device_traces"]), bytes=os.path.getsize(path), torch=torch.__version__,
                device=torch.cuda.get_device_name())


def measure(name, program, kind, arguments, marks, fixed):
    settle(marks)
    RUN["measuring"] = True
    torch.cuda.memory._record_memory_history(enabled=None)
    program(kind, fixed, **arguments)
    return dict(name=name, fixed=fixed, peak_bytes=torch.cuda.max_memory_allocated(), limit_bytes=RUN["limit_bytes"],
                reserved_bytes=torch.cuda.max_memory_reserved())


def in_child(call, *arguments, seconds=25):
    """Returns what `call` returns in a separate process; None if it failed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        code = 1
        try:
            os.write(write, json.dumps(call(*arguments)).encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        if RUN["holder"]:
            os.kill(RUN["holder"], signal.SIGKILL)
            os.waitpid(RUN["holder"], 0)
        sys.stderr.flush()
        os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as f:
        text = f.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def estimates(out):
    results = []
    for kind in ("cnn", "transformer", "mlp"):
        plain = in_child(measure, f"batch_too_big-{kind}", batch_too_big, kind, dict(growing=False), "", False)
        for changed, change, arguments in ESTIMATED:
            if changed == kind and plain is not None:
                with_it = in_child(measure, f"batch_too_big-{kind}", batch_too_big, kind, dict(growing=False, **arguments), "", False)
                if with_it is not None:
                    results.append(dict(name=plain["name"], change=change, peak_bytes=plain["peak_bytes"], changed_bytes=with_it["peak_bytes"]))
                    print(results[-1], flush=True)
    with open(out + "/estimates.json", "w") as f:
        json.dump(results, f, indent=1)


def main():
    asked = [a for a in sys.argv[1:] if not a.startswith("--")]
    out, chosen = asked[0], asked[1:]
    os.makedirs(out, exist_ok=True)
    started, results, fixes = time.time(), [], []
    if "--estimates" in sys.argv:
        return estimates(out)
    for name, cause, kind, program, arguments, marks in names():
        if chosen and name not in chosen:
            continue
        began = time.time()
        result = in_child(record, name, cause, kind, program, arguments, marks, out)
        if result is None:
            print(f"{name}: no result", flush=True)
            continue
        results.append(result)
        wrong = "" if result["failed"] else "  DID NOT FAIL"
        print(f"{name}: {result['bytes']} B, {result['events']} events, {time.time() - began:.1f} s{wrong}  "
              f"{result['error'][:110]}", flush=True)
        with open(out + "/causes.json", "w") as f:
            json.dump(results, f, indent=1)
    if "--measure" in sys.argv:
        for name, cause, kind, program, arguments, marks in names():
            if name in MEASURED and (not chosen or name in chosen):
                for fixed in (False, True):
                    result = in_child(measure, name, program, kind, arguments, marks, fixed)
                    print(f"measured {name} fixed={fixed}: {result}", flush=True)
                    fixes += [result] if result else []
        with open(out + "/fixes.json", "w") as f:
            json.dump(fixes, f, indent=1)
    print(f"{len(results)} recordings, {sum(r['failed'] for r in results)} failed as meant, "
          f"{sum(r['bytes'] for r in results) >> 10} KiB, {time.time() - started:.0f} s")


if __name__ == "__main__":
    main()
