"""stowage.tune with real PyTorch programs on simulated GPUs: the batch it picks beside the largest that runs, and steps that fail later.

usage: tune_programs.py [NAME...]     all programs unless named

The programs run on fake tensors, with shapes and without memory. Each request goes to the allocator of tune_simulated.py, which raises
when the simulated device is full. "largest": bisected, each time a fresh process that does 20 steps of varying length. The batch that tune
picks then does 100 steps with other lengths in a fresh process, and 20 in the one that tuned.
"""

import contextlib
import random
import sys
import time

import estimate_programs as models
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from tune_simulated import Allocator, Metered, SimulatedOut, largest, near

import stowage
from stowage import _estimate, _gpus

CUDA = "cuda"


# ---- the device ----


class Process(Metered):
    """A fresh process on a device of `total` bytes; also the meter that tune reads."""

    def __init__(self, make, total):
        self._make, self.total = make, total

    def __enter__(self):
        self.memory, self._blocks, self.failed = Allocator(self.total), {}, 0
        self._stack = contextlib.ExitStack()
        recorder, _ = self._stack.enter_context(_estimate._faked(torch, _gpus.find(None, "80G"), {}))
        numbers = iter(range(1, 1 << 60))

        def alloc(size, where, guessed=False):
            block = next(numbers)
            self._blocks[block] = self.memory.alloc(size)
            recorder._sizes[block] = size
            recorder._next = block
            return block

        def free(block, where=0):
            if recorder._sizes.pop(block, None) is not None:
                self.memory.free(self._blocks.pop(block))

        recorder.alloc, recorder.free = alloc, free
        recorder._where = lambda: 0
        recorder.launched = lambda *given: None
        try:
            made = self._make()
        except BaseException:
            self._stack.close()
            raise
        self.step, self.evaluate = made if isinstance(made, tuple) else (made, None)
        return self

    def __exit__(self, *error):
        self.step = self.evaluate = None
        self._stack.close()

    def varied(self, n, lengths, steps, stop=True):
        """Returns how many steps fail. `lengths` gives the part of the longest input of each step; the first two and the last have all of it."""
        failed = 0
        for at in range(steps):
            try:
                self.step(n, 1.0 if at in (0, 1, steps - 1) else lengths(at))
                if self.evaluate is not None and at % 10 == 0:
                    self.evaluate(n)
            except SimulatedOut:
                failed += 1
                if stop:
                    break
        return failed

    # ---- what the meter offers ----

    def name(self):
        return "simulated"

    def available(self):
        return self.total


# ---- programs: each returns step(n, part) or (step, evaluate); `part` of the longest input ----


def ids(n, length, vocab):
    return torch.randint(0, vocab, (n, length), device=CUDA)


def long(part, most, least=3):
    return max(least, int(most * part))


def trained(model, loss, optimizer="adamw", accumulate=1, amp=None, clip=None, set_to_none=True):
    model = model.to(CUDA).train()
    weights = [one for one in model.parameters() if one.requires_grad]
    made = torch.optim.AdamW(weights, lr=1e-3) if optimizer == "adamw" else torch.optim.SGD(weights, lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda") if amp is torch.float16 else None

    def step(n, part=1.0):
        for _ in range(accumulate):
            with torch.autocast("cuda", dtype=amp or torch.bfloat16, enabled=amp is not None):
                found = loss(model, n, part)
            (scaler.scale(found) if scaler else found).backward()
        if clip:
            nn.utils.clip_grad_norm_(weights, clip)
        if scaler:
            scaler.step(made)
            scaler.update()
        else:
            made.step()
        made.zero_grad(set_to_none=set_to_none)

    return step, model


def gpt_lengths():
    def loss(model, n, part):
        x = ids(n, long(part, 611), 8003)
        return F.cross_entropy(model(x).flatten(0, 1), x.flatten())

    return trained(models.GPT(layers=2, width=408, heads=6, vocab=8003, dropout=0.1), loss, amp=torch.bfloat16)[0]


def gpt_accumulated():
    def loss(model, n, part):
        x = ids(n, long(part, 384), 12001)
        return F.cross_entropy(model(x).flatten(0, 1), x.flatten())

    return trained(models.GPT(layers=2, width=320, heads=5, vocab=12001), loss, "sgd", accumulate=3, set_to_none=False)[0]


def convolutions():
    body = nn.Sequential(
        *[nn.Conv2d(3, 48, 7, 2, 3), nn.BatchNorm2d(48), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)],
        *[layer for w in (48, 48, 48) for layer in (nn.Conv2d(w, w, 3, padding=1), nn.BatchNorm2d(w), nn.ReLU())],
        *[nn.Conv2d(48, 144, 3, 2, 1), nn.GroupNorm(12, 144), nn.SiLU(), nn.Conv2d(144, 144, 5, padding=2, groups=12), nn.SiLU()],
        *[nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(144, 37)],
    )

    def loss(model, n, part):
        size = long(part**0.5, 271, 33)
        return F.cross_entropy(model(torch.randn(n, 3, size, size, device=CUDA)), torch.randint(0, 37, (n,), device=CUDA))

    return trained(body, loss, "sgd")[0]


def unet_checkpointed():
    def loss(model, n, part):
        size = long(part**0.5, 192 // 8, 4) * 8
        x = torch.randn(n, 3, size, size, device=CUDA)
        return F.mse_loss(model(x), x)

    return trained(models.UNet(ckpt=True), loss)[0]


def lstm_packed():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.body = nn.Embedding(9001, 300), nn.LSTM(300, 257, 2, batch_first=True, bidirectional=True)
            self.head = nn.Linear(514, 63)

        def forward(self, x):
            return self.head(self.body(self.words(x))[0])

    def loss(model, n, part):
        x = ids(n, long(part, 173), 9001)
        return F.cross_entropy(model(x).flatten(0, 1), x.flatten() % 63)

    return trained(Tagger(), loss)[0]


def tables():
    """A recommender: large tables whose gradients are dense, a small network."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(count, 48) for count in (190_001, 70_003, 1009, 77))
            self.net = nn.Sequential(nn.Linear(4 * 48 + 13, 511), nn.ReLU(), nn.Linear(511, 203), nn.ReLU(), nn.Linear(203, 1))

        def forward(self, many, dense):
            return self.net(torch.cat([table(many[:, :, at]).sum(1) for at, table in enumerate(self.tables)] + [dense], 1))

    def loss(model, n, part):
        x = torch.randint(0, 77, (64 * n, long(part, 40), 4), device=CUDA)
        return F.binary_cross_entropy_with_logits(model(x, torch.randn(64 * n, 13, device=CUDA)).flatten(), torch.rand(64 * n, device=CUDA))

    return trained(Model(), loss)[0]


def evaluated_larger():
    """Trains on small images; evaluates on larger ones, twice as many at a time, and keeps the outputs."""

    def loss(model, n, part):
        size = long(part**0.5, 8, 3) * 16
        return F.cross_entropy(model(torch.randn(n, 3, size, size, device=CUDA)), torch.randint(0, 1000, (n,), device=CUDA))

    step, model = trained(models.ViT(layers=3, width=312, heads=6, ckpt=True), loss, amp=torch.bfloat16)

    def evaluate(n):
        model.eval()
        with torch.no_grad():
            kept = [model(torch.randn(2 * n, 3, 320, 320, device=CUDA)) for _ in range(2)]
            torch.cat(kept).softmax(-1).argmax(-1)
        model.train()

    return step, evaluate


def contrastive():
    """Every sample is compared with every other: memory grows with the square of the batch."""
    body = nn.Sequential(nn.Linear(700, 901), nn.GELU(), nn.Linear(901, 901), nn.GELU(), nn.Linear(901, 128))

    def loss(model, n, part):
        a, b = (F.normalize(model(torch.randn(16 * n, 700, device=CUDA)), dim=-1) for _ in range(2))
        scores = a @ b.t() / 0.07
        there = torch.arange(len(a), device=CUDA)
        return F.cross_entropy(scores, there) + F.cross_entropy(scores.t(), there)

    return trained(body, loss)[0]


def translation():
    def loss(model, n, part):
        # A short source has a long target; the longest input, with which tune runs, has the longest of both.
        source, target = ids(n, long(part, 333), 6007), ids(n, long(1.0 if part == 1 else min(1.0, 1.2 - part), 290), 6007)
        return F.cross_entropy(model(source, target).flatten(0, 1), target.flatten())

    return trained(models.T5(layers=2, width=256, heads=8, vocab=6007), loss, clip=1.0)[0]


def adversaries():
    """Two networks and two optimizers in one step."""
    maker = nn.Sequential(nn.ConvTranspose2d(100, 320, 4), nn.ReLU(), nn.ConvTranspose2d(320, 96, 4, 4), nn.ReLU(), nn.ConvTranspose2d(96, 3, 4, 4), nn.Tanh()).to(CUDA)
    judge = nn.Sequential(nn.Conv2d(3, 96, 4, 4), nn.LeakyReLU(0.2), nn.Conv2d(96, 320, 4, 4), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(320 * 16, 1)).to(CUDA)
    a, b = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())

    def step(n, part=1.0):
        n = max(1, int(n * part))
        real, noise = torch.randn(n, 3, 64, 64, device=CUDA), torch.randn(n, 100, 1, 1, device=CUDA)
        b.zero_grad()
        (F.softplus(-judge(real)).mean() + F.softplus(judge(maker(noise).detach())).mean()).backward()
        b.step()
        a.zero_grad()
        F.softplus(-judge(maker(noise))).mean().backward()
        a.step()

    return step


def adapters():
    def loss(model, n, part):
        x = ids(n, long(part, 450), 5003)
        return F.cross_entropy(model(x).flatten(0, 1).float(), x.flatten())

    made = models.with_lora(models.Llama(layers=2, width=384, heads=6, kv=2, hidden=1031, vocab=5003).to(CUDA).to(torch.bfloat16))
    return trained(made, loss)[0]


def states():
    def loss(model, n, part):
        x = ids(n, long(part, 300), 7001)
        return F.cross_entropy(model(x).flatten(0, 1), x.flatten())

    return trained(models.Mamba(layers=2, width=264, vocab=7001), loss, amp=torch.float16)[0]


def graphs():
    """Message passing over graphs of different sizes: nodes and edges vary from step to step."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.out = nn.Linear(19, 210), nn.Linear(210, 5)
            self.layers = nn.ModuleList(nn.Linear(420, 210) for _ in range(5))

        def forward(self, x, edges):
            x = self.into(x)
            for at, layer in enumerate(self.layers):
                sent = torch.cat([x[edges[0]], x[edges[1]]], 1)
                message = checkpoint(layer, sent, use_reentrant=False) if at % 2 else layer(sent)
                x = torch.zeros_like(x).index_add(0, edges[1], message.relu()) + x
            return self.out(x)

    def loss(model, n, part):
        nodes = n * long(part, 230)
        return model(torch.randn(nodes, 19, device=CUDA), torch.randint(0, nodes, (2, nodes * 7), device=CUDA)).square().mean()

    return trained(Net(), loss)[0]


def averaged():
    """Keeps the last outputs, and an average of the weights that is replaced in each step."""

    def loss(model, n, part):
        x = torch.randn(n, long(part, 500), 222, device=CUDA)
        out = model(x)
        kept["last"] = out.detach()
        return out.square().mean()

    kept = {}
    step, model = trained(nn.Sequential(*(nn.TransformerEncoderLayer(222, 6, 777, batch_first=True) for _ in range(2))), loss, clip=0.5)

    def whole(n, part=1.0):
        step(n, part)
        now = [one.detach() for one in model.parameters()]
        kept["mean"] = [0.9 * a + 0.1 * b for a, b in zip(kept.get("mean", now), now)]

    return whole


def writing():
    """Generation with a cache that grows, without gradients."""
    model = models.GPT(layers=2, width=384, heads=6, vocab=9001).to(CUDA).half().eval()

    def step(n, part=1.0):
        with torch.no_grad():
            caches, at, x = [[] for _ in model.blocks], 0, ids(n, long(part, 400), 9001)
            for _ in range(12):
                out = model(x, caches, at)
                at += x.shape[1]
                x = out[:, -1:].argmax(-1)

    return step


#: name: (program, batch that the device is made for, lengths)
PROGRAMS = {
    "gpt_lengths": (gpt_lengths, 37, "uniform"),
    "gpt_accumulated": (gpt_accumulated, 21, "two"),
    "convolutions": (convolutions, 83, "uniform"),
    "unet_checkpointed": (unet_checkpointed, 19, "two"),
    "lstm_packed": (lstm_packed, 140, "rising"),
    "tables": (tables, 61, "short"),
    "evaluated_larger": (evaluated_larger, 45, "uniform"),
    "contrastive": (contrastive, 130, "two"),
    "translation": (translation, 29, "uniform"),
    "adversaries": (adversaries, 210, "full"),
    "adapters": (adapters, 52, "short"),
    "states": (states, 33, "rising"),
    "graphs": (graphs, 71, "short"),
    "averaged": (averaged, 26, "uniform"),
    "writing": (writing, 90, "uniform"),
}


def lengths(kind, seed):
    """Returns the part of the longest input at step i."""
    draw = random.Random(f"{kind} {seed}")
    return {
        "uniform": lambda i: draw.uniform(0.15, 1),
        "two": lambda i: draw.choice([0.3, 1.0]),
        "short": lambda i: min(1.0, draw.lognormvariate(-1.2, 0.7)),
        "rising": lambda i: 0.2 + 0.8 * ((i + seed) % 12) / 11,
        "full": lambda i: 1.0 if draw.random() < 0.8 else draw.random(),
    }[kind]


def simulated_device(make, target):
    """Returns the size of a device that is about right for `target` samples."""
    with Process(make, 1 << 50) as process:
        for _ in range(2):
            process.step(target, 1.0)
            if process.evaluate is not None:
                process.evaluate(target)
        return process.memory.peak


def main():
    close = failing = here = most = 0
    names = sys.argv[1:] or list(PROGRAMS)
    for name in names:
        make, target, kind = PROGRAMS[name]
        total, began = simulated_device(make, target), time.process_time()
        with Process(make, total) as process:
            named = {"evaluate": process.evaluate} if process.evaluate is not None else {}
            ran = []

            def step(n):
                ran.append(n)
                process.step(n, 1.0)  # noqa: B023

            found = stowage.tune(step, batch=2, meter=process, **named).largest_batch or 0
            took = time.process_time() - began
            later_here = process.varied(found, lengths(kind, 3), 20, stop=False)

        def runs(n):
            try:
                with Process(make, total) as fresh:  # noqa: B023
                    return fresh.varied(n, lengths(kind, 1), 20) == 0  # noqa: B023
            except SimulatedOut:
                return False

        best = largest(runs, found)
        with Process(make, total) as process:
            later = process.varied(found, lengths(kind, 2), 100, stop=False)
        close, failing, here, most = close + near(found, best), failing + (later > 0), here + (later_here > 0), max(most, len(ran))
        print(
            f"{name}, {total / (1 << 30):.2f} GiB: picked {found} largest {best} short {100 * (1 - found / max(1, best)):.1f}% failed {later}/100"
            f" in the same process {later_here}/20 steps {len(ran)} took {took:.1f} s",
            flush=True,
        )
    print(f"case=tune_programs programs={len(names)} within_5%_or_one={close} with_failed_steps={failing} in_the_same_process={here} steps_most={most}")


if __name__ == "__main__":
    main()
