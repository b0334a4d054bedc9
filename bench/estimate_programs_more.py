"""Training and inference programs for gpu_estimate_bench.py that were written without looking at the code of stowage.estimate.

Each function in PROGRAMS makes its model on DEVICE and returns a function that runs step i. With SMALL the sizes suit a CPU
(tests/long/estimate_models.py measures them there).
"""

import contextlib
import copy
import math
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

DEVICE = "cuda"
SMALL = False
PROGRAMS = {}


def program(make):
    PROGRAMS[make.__name__] = make
    return make


def size(device, cpu):
    return cpu if SMALL else device


def autocast(dtype=torch.bfloat16):
    return torch.autocast(DEVICE, dtype=dtype)


def update(optimizer, loss):
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


# ---- diffusion ----


class ResBlock(nn.Module):
    def __init__(self, into, out, time):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(16, into), nn.Conv2d(into, out, 3, padding=1)
        self.n2, self.c2 = nn.GroupNorm(16, out), nn.Conv2d(out, out, 3, padding=1)
        self.time, self.drop = nn.Linear(time, 2 * out), nn.Dropout(0.1)
        self.skip = nn.Conv2d(into, out, 1) if into != out else nn.Identity()

    def forward(self, x, t):
        y = self.c1(F.silu(self.n1(x)))
        scale, shift = self.time(F.silu(t))[:, :, None, None].chunk(2, 1)
        y = self.n2(y) * (1 + scale) + shift
        return self.skip(x) + self.c2(self.drop(F.silu(y)))


class PixelAttention(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.norm, self.qkv, self.out, self.heads = nn.GroupNorm(16, width), nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1), heads

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, 3, self.heads, c // self.heads, h * w).transpose(-1, -2).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(-1, -2).reshape(b, c, h, w))


class DiffusionUNet(nn.Module):
    def __init__(self, width=64, channels=4):
        super().__init__()
        time = 4 * width
        self.width, self.time = width, nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        wide = [width, 2 * width, 4 * width]
        self.down, self.pool, into, kept = nn.ModuleList(), nn.ModuleList(), width, [width]
        for level, out in enumerate(wide):
            for _ in range(2):
                self.down.append(nn.ModuleList([ResBlock(into, out, time), PixelAttention(out) if level else nn.Identity()]))
                into = out
                kept.append(out)
            self.pool.append(nn.Conv2d(out, out, 3, 2, 1))
        self.middle = nn.ModuleList([ResBlock(into, into, time), PixelAttention(into), ResBlock(into, into, time)])
        self.up = nn.ModuleList()
        for level, out in reversed(list(enumerate(wide))):
            for _ in range(2):
                self.up.append(nn.ModuleList([ResBlock(into + kept.pop(), out, time), PixelAttention(out) if level else nn.Identity()]))
                into = out
        self.norm, self.last = nn.GroupNorm(16, into), nn.Conv2d(into, channels, 3, padding=1)

    def forward(self, x, t):
        rates = torch.exp(-math.log(10000) * torch.arange(self.width // 2, device=x.device) / (self.width // 2))
        angles = t[:, None].float() * rates[None]
        t = self.time(torch.cat([angles.sin(), angles.cos()], -1).to(x.dtype))
        x, kept = self.first(x), []
        for i, (block, attention) in enumerate(self.down):
            x = attention(block(x, t))
            kept.append(x)
            if i % 2:
                x = self.pool[i // 2](x)
        x = self.middle[2](self.middle[1](self.middle[0](x, t)), t)
        for i, (block, attention) in enumerate(self.up):
            if i % 2 == 0:
                x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = attention(block(torch.cat([x, kept.pop()], 1), t))
        return self.last(F.silu(self.norm(x)))


def diffusion(dtype):
    model = DiffusionUNet(size(128, 32)).to(DEVICE)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    signal = torch.linspace(0.99, 0.01, 1000, device=DEVICE)
    batch, side = size(32, 2), size(64, 32)

    def step(i):
        x = torch.randn(batch, 4, side, side, device=DEVICE)
        t = torch.randint(0, 1000, (batch,), device=DEVICE)
        noise = torch.randn_like(x)
        a = signal[t][:, None, None, None]
        with autocast(dtype) if dtype else contextlib.nullcontext():
            loss = F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for kept, now in zip(average.parameters(), model.parameters()):
                kept.lerp_(now, 0.01)

    return step


@program
def diffusion_bf16_ema():
    return diffusion(torch.bfloat16)


@program
def diffusion_fp32_ema():
    return diffusion(None)


@program
def diffusion_sampling_fp16():
    model = DiffusionUNet(size(128, 32)).to(DEVICE).half().eval()
    batch, side = size(16, 2), size(64, 32)

    @torch.inference_mode()
    def step(i):
        x = torch.randn(batch, 4, side, side, device=DEVICE, dtype=torch.float16)
        for t in range(4):
            both = torch.cat([x, x])  # guided and free at once
            guided, free = model(both, torch.full((2 * batch,), 999 - t, device=DEVICE)).chunk(2)
            x = x - 0.1 * (free + 7.5 * (guided - free))

    return step


# ---- encoder and decoder ----


@program
def seq2seq_native_bf16():
    """nn.Transformer with padding masks, label smoothing, and weights shared by embeddings and head."""
    width, vocab, batch, length = size(512, 64), size(32000, 500), size(16, 2), size(256, 32)
    body = nn.Transformer(width, 8, size(6, 2), size(6, 2), 4 * width, 0.1, batch_first=True).to(DEVICE)
    words = nn.Embedding(vocab, width).to(DEVICE)
    parameters = [*body.parameters(), *words.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-4)

    def step(i):
        x = torch.randint(1, vocab, (batch, length), device=DEVICE)
        y = torch.randint(1, vocab, (batch, length // 2), device=DEVICE)
        hidden = torch.zeros(batch, length, dtype=torch.bool, device=DEVICE)
        hidden[:, -4:] = True
        with autocast():
            causal = nn.Transformer.generate_square_subsequent_mask(y.shape[1], device=DEVICE)
            out = body(words(x), words(y), tgt_mask=causal, src_key_padding_mask=hidden, memory_key_padding_mask=hidden, tgt_is_causal=True)
            loss = F.cross_entropy(F.linear(out, words.weight).transpose(1, 2), y, label_smoothing=0.1)
        update(optimizer, loss)

    return step


class Rel(nn.Module):
    """T5's attention: no scaling, a learned bias per head and distance, added by the first layer and passed on."""

    def __init__(self, width, heads, first):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.heads, self.table = heads, nn.Embedding(32, heads) if first else None

    def forward(self, x, memory, bias):
        b, n, w = x.shape
        split = lambda t: t.view(b, -1, self.heads, w // self.heads).transpose(1, 2)  # noqa: E731
        q, k, v = split(self.q(x)), split(self.k(memory)), split(self.v(memory))
        scores = torch.matmul(q, k.transpose(3, 2))
        if bias is None:
            if self.table is None:
                bias = torch.zeros(1, self.heads, n, memory.shape[1], device=x.device, dtype=scores.dtype)
            else:
                far = torch.arange(memory.shape[1], device=x.device)[None] - torch.arange(n, device=x.device)[:, None]
                bias = self.table(far.clamp(-16, 15) + 16).permute(2, 0, 1).unsqueeze(0)
        scores = scores + bias
        weights = F.dropout(F.softmax(scores.float(), -1).type_as(scores), 0.1, self.training)
        return self.o(torch.matmul(weights, v).transpose(1, 2).reshape(b, n, w)), bias


@program
def t5_adafactor_ckpt():
    width, heads, vocab, layers = size(768, 64), size(12, 4), size(32128, 500), size(8, 2)

    class Layer(nn.Module):
        def __init__(self, first, cross):
            super().__init__()
            self.own, self.cross = Rel(width, heads, first), Rel(width, heads, False) if cross else None
            self.norms = nn.ModuleList(nn.RMSNorm(width, 1e-6) for _ in range(3))
            self.wi0, self.wi1, self.wo = nn.Linear(width, 2 * width, False), nn.Linear(width, 2 * width, False), nn.Linear(2 * width, width, False)

        def forward(self, x, memory, bias):
            y = self.norms[0](x)
            y, bias = self.own(y, y, bias)
            x = x + F.dropout(y, 0.1, self.training)
            if self.cross is not None:
                x = x + F.dropout(self.cross(self.norms[1](x), memory, None)[0], 0.1, self.training)
            y = self.norms[2](x)
            return x + self.wo(F.gelu(self.wi0(y), approximate="tanh") * self.wi1(y)), bias

    words = nn.Embedding(vocab, width).to(DEVICE)
    encoder = nn.ModuleList(Layer(i == 0, False) for i in range(layers)).to(DEVICE)
    decoder = nn.ModuleList(Layer(i == 0, True) for i in range(layers)).to(DEVICE)
    head = nn.Linear(width, vocab, bias=False).to(DEVICE)
    everything = nn.ModuleList([words, encoder, decoder, head])
    optimizer = torch.optim.Adafactor(everything.parameters(), lr=1e-3)
    batch, length = size(8, 2), size(512, 32)

    def step(i):
        x = torch.randint(0, vocab, (batch, length), device=DEVICE)
        y = torch.randint(0, vocab, (batch, length // 4), device=DEVICE)
        with autocast():
            m, bias = words(x), None
            for layer in encoder:
                m, bias = checkpoint(layer, m, None, bias, use_reentrant=False)
            z, bias = words(y), None
            for layer in decoder:
                z, bias = checkpoint(layer, z, m, bias, use_reentrant=False)
            loss = F.cross_entropy(head(z).float().view(-1, vocab), y.view(-1))
        update(optimizer, loss)

    return step


# ---- mixture of experts ----


class Experts(nn.Module):
    """Two experts per token with a fixed capacity, dispatched by one-hot products as in GShard."""

    def __init__(self, width, experts):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 4 * width) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, 4 * width, width) * 0.02)
        self.experts = experts

    def forward(self, x):
        b, n, w = x.shape
        flat = x.reshape(-1, w)
        capacity = 2 * flat.shape[0] // self.experts
        chances = self.gate(flat).float().softmax(-1)
        weight, chosen = chances.topk(2, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        mask = F.one_hot(chosen, self.experts)  # tokens, 2, experts
        place = (mask.view(-1, self.experts).cumsum(0) - 1).view_as(mask)
        mask = mask * (place < capacity)
        slot = (place * mask).sum(-1).clamp(max=capacity - 1)
        send = torch.zeros(self.experts * capacity, w, device=x.device, dtype=flat.dtype)
        index = chosen * capacity + slot
        kept = mask.sum(-1).to(flat.dtype)
        for k in range(2):
            send = send.index_add(0, index[:, k], flat * kept[:, k : k + 1])
        out = torch.bmm(F.gelu(torch.bmm(send.view(self.experts, capacity, w), self.up)), self.down).view(-1, w)
        y = sum(out[index[:, k]] * (weight[:, k] * kept[:, k])[:, None] for k in range(2))
        self.balance = (chances.mean(0) * mask.float().sum(1).mean(0)).sum() * self.experts
        return y.view(b, n, w).to(x.dtype)


class MoeLayer(nn.Module):
    def __init__(self, width, heads, experts):
        super().__init__()
        self.a, self.b, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.out, self.moe = nn.Linear(width, 3 * width), nn.Linear(width, width), Experts(width, experts)

    def forward(self, x):
        b, n, w = x.shape
        q, k, v = self.qkv(self.a(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, w))
        return x + self.moe(self.b(x))


def moe(dtype):
    width, vocab = size(512, 64), size(16000, 500)
    layers = nn.ModuleList(MoeLayer(width, 8, size(8, 4)) for _ in range(size(6, 2))).to(DEVICE)
    words, head = nn.Embedding(vocab, width).to(DEVICE), nn.Linear(width, vocab).to(DEVICE)
    everything = nn.ModuleList([layers, words, head])
    optimizer = torch.optim.AdamW(everything.parameters(), lr=1e-4)
    batch, length = size(8, 2), size(512, 32)

    def step(i):
        x = torch.randint(0, vocab, (batch, length), device=DEVICE)
        with autocast(dtype) if dtype else contextlib.nullcontext():
            y = words(x)
            for layer in layers:
                y = layer(y)
            loss = F.cross_entropy(head(y).view(-1, vocab), x.view(-1)) + 0.01 * sum(layer.moe.balance for layer in layers)
        update(optimizer, loss)

    return step


@program
def moe_bf16_adamw():
    return moe(torch.bfloat16)


@program
def moe_fp32_adamw():
    return moe(None)


# ---- convolutions ----


class NextBlock(nn.Module):
    def __init__(self, width, drop):
        super().__init__()
        self.depth, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width, 1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale, self.drop = nn.Parameter(1e-6 * torch.ones(width)), drop

    def forward(self, x):
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        y = (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)
        if self.training and self.drop:
            y = y * torch.empty(x.shape[0], 1, 1, 1, device=x.device, dtype=y.dtype).bernoulli_(1 - self.drop) / (1 - self.drop)
        return x + y


class ConvNeXt(nn.Module):
    def __init__(self, depths, widths):
        super().__init__()
        self.stem, self.stages = nn.Conv2d(3, widths[0], 4, 4), nn.ModuleList()
        for i, (depth, width) in enumerate(zip(depths, widths)):
            parts = [] if i == 0 else [nn.GroupNorm(1, widths[i - 1]), nn.Conv2d(widths[i - 1], width, 2, 2)]
            self.stages.append(nn.Sequential(*parts, *[NextBlock(width, 0.1) for _ in range(depth)]))
        self.norm, self.head = nn.LayerNorm(widths[-1]), nn.Linear(widths[-1], 1000)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.head(self.norm(x.mean((2, 3))))


def convnext(dtype, last):
    model = ConvNeXt(size([3, 3, 9, 3], [1, 1, 1, 1]), size([96, 192, 384, 768], [16, 32, 32, 64])).to(DEVICE)
    if last:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler(DEVICE, enabled=dtype is torch.float16)
    batch, side = size(64, 2), size(224, 64)

    def step(i):
        x = torch.randn(batch, 3, side, side, device=DEVICE)
        if last:
            x = x.contiguous(memory_format=torch.channels_last)
        y = torch.randint(0, 1000, (batch,), device=DEVICE)
        with autocast(dtype) if dtype else contextlib.nullcontext():
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)

    return step


@program
def convnext_fp16_scaler_clip():
    return convnext(torch.float16, True)


@program
def convnext_fp32():
    return convnext(None, False)


@program
def volumes_bf16_dice():
    """A small 3D segmentation network: Conv3d, InstanceNorm3d, trilinear upsampling, Dice loss."""
    w = size(32, 8)

    def pair(a, b):
        return nn.Sequential(
            nn.Conv3d(a, b, 3, padding=1), nn.InstanceNorm3d(b, affine=True), nn.LeakyReLU(0.01, inplace=True),
            nn.Conv3d(b, b, 3, padding=1), nn.InstanceNorm3d(b, affine=True), nn.LeakyReLU(0.01, inplace=True),
        )  # fmt: skip

    net = nn.ModuleDict({"a": pair(1, w), "b": pair(w, 2 * w), "c": pair(2 * w, 4 * w), "d": pair(6 * w, 2 * w), "e": pair(3 * w, w), "out": nn.Conv3d(w, 4, 1)})
    net = net.to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.99, nesterov=True)
    batch, side = 2, size(96, 16)

    def step(i):
        x = torch.randn(batch, 1, side, side, side, device=DEVICE)
        y = torch.randint(0, 4, (batch, side, side, side), device=DEVICE)
        with autocast():
            a = net["a"](x)
            b = net["b"](F.max_pool3d(a, 2))
            c = net["c"](F.max_pool3d(b, 2))
            d = net["d"](torch.cat([F.interpolate(c, scale_factor=2, mode="trilinear"), b], 1))
            e = net["e"](torch.cat([F.interpolate(d, scale_factor=2, mode="trilinear"), a], 1))
            out = net["out"](e)
        chance = out.float().softmax(1)
        truth = F.one_hot(y, 4).permute(0, 4, 1, 2, 3).float()
        overlap = (chance * truth).sum((2, 3, 4))
        dice = 1 - (2 * overlap / (chance.sum((2, 3, 4)) + truth.sum((2, 3, 4)) + 1e-5)).mean()
        (dice + F.cross_entropy(out.float(), y)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@program
def gan_gradient_penalty():
    """Two networks, two optimizers, and a penalty on a gradient that is differentiated again."""
    w = size(64, 8)
    maker = nn.Sequential(
        nn.ConvTranspose2d(128, 8 * w, 4), nn.BatchNorm2d(8 * w), nn.ReLU(True),
        nn.ConvTranspose2d(8 * w, 4 * w, 4, 2, 1), nn.BatchNorm2d(4 * w), nn.ReLU(True),
        nn.ConvTranspose2d(4 * w, 2 * w, 4, 2, 1), nn.BatchNorm2d(2 * w), nn.ReLU(True),
        nn.ConvTranspose2d(2 * w, w, 4, 2, 1), nn.BatchNorm2d(w), nn.ReLU(True),
        nn.ConvTranspose2d(w, 3, 4, 2, 1), nn.Tanh(),
    ).to(DEVICE)  # fmt: skip
    judge = nn.Sequential(
        nn.Conv2d(3, w, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(w, 2 * w, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Conv2d(2 * w, 4 * w, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(4 * w, 1, 8),
    ).to(DEVICE)  # fmt: skip
    first, second = torch.optim.Adam(maker.parameters(), 1e-4, (0.5, 0.9)), torch.optim.RMSprop(judge.parameters(), 1e-4)
    batch = size(128, 4)

    def step(i):
        real = torch.randn(batch, 3, 64, 64, device=DEVICE)
        with torch.no_grad():
            fake = maker(torch.randn(batch, 128, 1, 1, device=DEVICE))
        mixed = torch.lerp(real, fake, torch.rand(batch, 1, 1, 1, device=DEVICE)).requires_grad_(True)
        (slope,) = torch.autograd.grad(judge(mixed).sum(), mixed, create_graph=True)
        penalty = ((slope.flatten(1).norm(2, dim=1) - 1) ** 2).mean()
        (judge(fake).mean() - judge(real).mean() + 10 * penalty).backward()
        second.step()
        second.zero_grad()
        (-judge(maker(torch.randn(batch, 128, 1, 1, device=DEVICE))).mean()).backward()
        first.step()
        first.zero_grad()
        second.zero_grad()

    return step


# ---- recurrent ----


@program
def lstm_lm_truncated():
    """A language model with weights shared by embedding and head, dropout, and a state that is passed from step to step."""
    width, vocab, batch, length = size(1024, 64), size(20000, 500), size(64, 2), size(128, 16)
    words, body, drop = nn.Embedding(vocab, width), nn.LSTM(width, width, 3, dropout=0.3), nn.Dropout(0.3)
    head = nn.Linear(width, vocab)
    head.weight = words.weight
    model = nn.ModuleList([words, body, drop, head]).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    state = [None]

    def step(i):
        x = torch.randint(0, vocab, (length, batch), device=DEVICE)
        y, kept = body(drop(words(x)), state[0])
        state[0] = tuple(one.detach() for one in kept)
        loss = F.nll_loss(F.log_softmax(head(drop(y)), -1).flatten(0, 1), x.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        optimizer.zero_grad()

    return step


@program
def gru_attention_loop():
    """A GRU encoder and a decoder of cells in a Python loop that looks at the encoder in each step."""
    width, vocab, batch, length = size(512, 32), size(8000, 300), size(64, 2), size(48, 8)
    words = nn.Embedding(vocab, width)
    encoder, cell = nn.GRU(width, width, bidirectional=True, batch_first=True), nn.GRUCell(3 * width, width)
    look, score, head = nn.Linear(3 * width, width), nn.Linear(width, 1), nn.Linear(3 * width, vocab)
    model = nn.ModuleList([words, encoder, cell, look, score, head]).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=True)

    def step(i):
        x, y = (torch.randint(0, vocab, (batch, length), device=DEVICE) for _ in range(2))
        memory, last = encoder(words(x))
        h, losses = last.sum(0), []
        for t in range(length):
            scores = score(torch.tanh(look(torch.cat([memory, h[:, None].expand(-1, length, -1)], -1)))).squeeze(-1)
            context = torch.bmm(scores.softmax(-1)[:, None], memory)[:, 0]
            h = cell(torch.cat([words(y[:, t]), context], -1), h)
            losses.append(F.cross_entropy(head(torch.cat([h, context], -1)), y[:, t]))
        torch.stack(losses).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


# ---- graphs and tables ----


@program
def gnn_scatter_attention():
    """Graph attention with index_add_, scatter_reduce and gather over a million edges."""
    nodes, edges, width, heads = size(100_000, 200), size(1_000_000, 1000), size(128, 16), 4

    class Conv(nn.Module):
        def __init__(self):
            super().__init__()
            self.value, self.a, self.b = nn.Linear(width, width), nn.Linear(width, heads), nn.Linear(width, heads)

        def forward(self, x, source, target):
            v = self.value(x).view(-1, heads, width // heads)
            score = F.leaky_relu(self.a(x)[source] + self.b(x)[target], 0.2)
            top = torch.full((nodes, heads), -1e9, device=x.device).scatter_reduce(0, target[:, None].expand_as(score), score, "amax")
            weight = (score - top[target]).exp()
            total = torch.zeros(nodes, heads, device=x.device).index_add(0, target, weight)
            weight = weight / (total[target] + 1e-9)
            out = torch.zeros(nodes, heads, width // heads, device=x.device).index_add(0, target, v[source] * weight[..., None])
            return F.elu(out.view(nodes, width)) + x

    layers = nn.ModuleList(Conv() for _ in range(3)).to(DEVICE)
    head = nn.Linear(width, 40).to(DEVICE)
    optimizer = torch.optim.Adam([*layers.parameters(), *head.parameters()], lr=1e-3)
    x = torch.randn(nodes, width, device=DEVICE)
    source, target = torch.randint(0, nodes, (2, edges), device=DEVICE)
    truth = torch.randint(0, 40, (nodes,), device=DEVICE)

    def step(i):
        y = x
        for layer in layers:
            y = layer(y, source, target)
        F.cross_entropy(head(y), truth).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@program
def recommender_bags_adagrad():
    """Embedding bags with offsets, pairwise products of features, Adagrad."""
    tables, rows, width, batch = size(16, 4), size(200_000, 500), size(64, 8), size(8192, 32)
    bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables)).to(DEVICE)
    bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU()).to(DEVICE)
    pairs = (tables + 1) * tables // 2
    top = nn.Sequential(nn.Linear(width + pairs, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 1)).to(DEVICE)
    everything = nn.ModuleList([bags, bottom, top])
    optimizer = torch.optim.Adagrad(everything.parameters(), lr=0.01)
    above = torch.triu_indices(tables + 1, tables + 1, 1, device=DEVICE)

    def step(i):
        x = bottom(torch.randn(batch, 13, device=DEVICE))
        offsets = torch.arange(0, 4 * batch, 4, device=DEVICE)
        found = [bag(torch.randint(0, rows, (4 * batch,), device=DEVICE), offsets) for bag in bags]
        features = torch.stack([x, *found], 1)
        products = torch.bmm(features, features.transpose(1, 2))[:, above[0], above[1]]
        loss = F.binary_cross_entropy_with_logits(top(torch.cat([x, products], 1))[:, 0], torch.rand(batch, device=DEVICE).round())
        update(optimizer, loss)

    return step


# ---- language models trained in other ways ----


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.a, self.b, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, n, w = x.shape
        q, k, v = (one.view(b, n, self.heads, -1).transpose(1, 2) for one in self.qkv(self.a(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, w))
        return x + self.down(F.gelu(self.up(self.b(x))))


class Language(nn.Module):
    def __init__(self, layers, width, vocab, heads=8, ckpt=False):
        super().__init__()
        self.words, self.layers = nn.Embedding(vocab, width), nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.head, self.vocab, self.ckpt = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False), vocab, ckpt

    def forward(self, x):
        y = self.words(x)
        for layer in self.layers:
            y = checkpoint(layer, y, use_reentrant=True) if self.ckpt else layer(y)
        return self.head(self.norm(y))

    def loss(self, x):
        return F.cross_entropy(self(x).flatten(0, 1), x.flatten())


def language(**kw):
    return Language(size(8, 2), size(768, 64), size(32000, 500), **kw).to(DEVICE)


def text(batch=None, length=None):
    return torch.randint(0, size(32000, 500), (batch or size(8, 2), length or size(512, 32)), device=DEVICE)


class LowRank(nn.Module):
    def __init__(self, base, rank, alpha=32):
        super().__init__()
        self.base, self.scale, self.drop = base, alpha / rank, nn.Dropout(0.05)
        self.down, self.up = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(self.drop(x.to(self.down.weight.dtype)))).to(x.dtype) * self.scale


@program
def lora_all_linear_fp32_adapters():
    """Frozen bfloat16 weights with reentrant checkpoints; float32 adapters on every linear layer; inputs made to need gradients."""
    model = language(ckpt=True).to(torch.bfloat16).requires_grad_(False)
    for layer in model.layers:
        for name in ("qkv", "out", "up", "down"):
            setattr(layer, name, LowRank(getattr(layer, name), 16).to(DEVICE))
    model.words.register_forward_hook(lambda module, inputs, out: out.requires_grad_(True))
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-4)

    def step(i):
        with autocast():
            loss = model.loss(text(size(16, 2)))
        update(optimizer, loss)

    return step


class ByteAdam(torch.optim.Optimizer):
    """Adam whose two states are bytes with one scale per block of 256 numbers."""

    def __init__(self, parameters, lr=1e-4):
        super().__init__(parameters, {"lr": lr})

    @staticmethod
    def pack(x):
        x = F.pad(x.flatten(), (0, -x.numel() % 256)).view(-1, 256)
        scale = x.abs().amax(1, keepdim=True).clamp(min=1e-12)
        return (x / scale * 127).round().to(torch.int8), scale

    @staticmethod
    def unpack(state, like):
        return (state[0].float() * (state[1] / 127)).flatten()[: like.numel()].view_as(like)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                kept = self.state[p]
                if not kept:
                    kept["m"], kept["v"] = self.pack(torch.zeros_like(p)), self.pack(torch.zeros_like(p))
                m = self.unpack(kept["m"], p).mul_(0.9).add_(p.grad, alpha=0.1)
                v = self.unpack(kept["v"], p).mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                p.addcdiv_(m, v.abs().sqrt_().add_(1e-8), value=-group["lr"])
                kept["m"], kept["v"] = self.pack(m), self.pack(v)


@program
def byte_optimizer():
    model = language()
    optimizer = ByteAdam(model.parameters())

    def step(i):
        model.loss(text()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@program
def accumulate_zero_in_place():
    """Four passes of different length per step; gradients are zeroed in place and so stay allocated."""
    model = language()
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-4)

    def step(i):
        for part in range(4):
            with autocast():
                loss = model.loss(text(size(4, 2), size(256, 16) * (1 + (i + part) % 3))) / 4
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    return step


@program
def scaler_two_groups_eval():
    """float16 with a scaler, an evaluation without gradients after each step, losses kept as tensors."""
    model = language()
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1}, {"params": [p for p in model.parameters() if p.dim() < 2]}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95))
    scaler, seen = torch.amp.GradScaler(DEVICE), []

    def step(i):
        model.train()
        with autocast(torch.float16):
            loss = model.loss(text())
        seen.append(loss.detach())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        model.eval()
        with torch.no_grad(), autocast(torch.float16):
            seen.append(model.loss(text(size(24, 2))))

    return step


@program
def compiled_language():
    """torch.compile: the estimate follows its graphs and is approximate."""
    model = language()
    compiled = torch.compile(model.loss)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(i):
        with autocast():
            loss = compiled(text())
        update(optimizer, loss)

    return step


@program
def data_parallel_one_rank():
    """DistributedDataParallel with one rank: gradients are also in buckets."""
    from torch import distributed

    if not distributed.is_initialized():
        store = distributed.FileStore(os.path.join(tempfile.mkdtemp(), "store"), 1)
        distributed.init_process_group("nccl" if DEVICE == "cuda" else "gloo", store=store, rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(language(), device_ids=[0] if DEVICE == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(i):
        x = text()
        F.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@program
def optimizer_state_on_host():
    """The optimizer works on copies in host memory; only weights and gradients are on the device."""
    model = language()
    masters = [p.detach().to("cpu", copy=True).requires_grad_(True) for p in model.parameters()]
    optimizer = torch.optim.AdamW(masters, lr=1e-4)

    def step(i):
        with autocast():
            loss = model.loss(text())
        loss.backward()
        for master, p in zip(masters, model.parameters()):
            master.grad = p.grad.to("cpu")
            p.grad = None
        optimizer.step()
        with torch.no_grad():
            for master, p in zip(masters, model.parameters()):
                p.copy_(master)

    return step


@program
def activations_on_host():
    model = language()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(i):
        with torch.autograd.graph.save_on_cpu(pin_memory=False), autocast():
            loss = model.loss(text(size(16, 2)))
        update(optimizer, loss)

    return step


@program
def distilled_language():
    """A frozen teacher, a student, and a divergence between their logits."""
    teacher = language().requires_grad_(False).eval()
    student = Language(size(4, 1), size(512, 32), size(32000, 500)).to(DEVICE)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-4, fused=DEVICE == "cuda")

    def step(i):
        x = text()
        with autocast():
            with torch.no_grad():
                truth = teacher(x)
            out = student(x)
            loss = F.kl_div(F.log_softmax(out / 2, -1), F.log_softmax(truth / 2, -1), log_target=True, reduction="batchmean")
        update(optimizer, loss)

    return step


@program
def two_towers_contrastive():
    """Images and texts, one matrix of similarities; the hidden states of the text are pooled by index."""
    width = size(512, 32)
    images = nn.Sequential(nn.Conv2d(3, width, size(16, 8), size(16, 8)), nn.Flatten(2))
    see, read = nn.ModuleList(Layer(width, 8) for _ in range(size(6, 1))), nn.ModuleList(Layer(width, 8) for _ in range(size(6, 1)))
    words, scale = nn.Embedding(size(32000, 500), width), nn.Parameter(torch.tensor(2.6))
    model = nn.ModuleList([images, see, read, words]).to(DEVICE)
    model.register_parameter("scale", nn.Parameter(scale.data.to(DEVICE)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = size(128, 4)

    def step(i):
        x, t = torch.randn(batch, 3, size(224, 32), size(224, 32), device=DEVICE), text(batch, size(64, 16))
        with autocast():
            x = images(x).transpose(1, 2)
            for layer in see:
                x = layer(x)
            y = words(t)
            for layer in read:
                y = layer(y)
            a = F.normalize(x.mean(1), dim=-1)
            b = F.normalize(y[torch.arange(batch, device=DEVICE), t.argmax(-1)], dim=-1)
            scores = model.scale.exp() * a @ b.t()
            truth = torch.arange(batch, device=DEVICE)
            loss = (F.cross_entropy(scores, truth) + F.cross_entropy(scores.t(), truth)) / 2
        update(optimizer, loss)

    return step


@program
def beam_search_static_cache():
    """Generation into a cache of fixed size, with beams that are reordered after each token."""
    layers, width, heads, vocab = size(12, 2), size(1024, 64), 8, size(32000, 500)
    blocks = nn.ModuleList(Layer(width, heads) for _ in range(layers)).to(DEVICE).half().eval()
    words, head = nn.Embedding(vocab, width).to(DEVICE).half(), nn.Linear(width, vocab, bias=False).to(DEVICE).half()
    batch, beams, most = size(16, 2), 4, size(512, 16)

    @torch.inference_mode()
    def step(i):
        rows = batch * beams
        caches = [torch.zeros(2, rows, heads, most, width // heads, device=DEVICE, dtype=torch.float16) for _ in blocks]
        x, at = torch.randint(0, vocab, (rows, most // 2), device=DEVICE), 0
        for _ in range(6):
            y, n = words(x), x.shape[1]
            for k, block in enumerate(blocks):
                q, key, value = (one.view(rows, n, heads, -1).transpose(1, 2) for one in block.qkv(block.a(y)).chunk(3, -1))
                caches[k][0][:, :, at : at + n], caches[k][1][:, :, at : at + n] = key, value
                seen = caches[k][:, :, :, : at + n]
                z = F.scaled_dot_product_attention(q, seen[0], seen[1], is_causal=n > 1)
                y = y + block.out(z.transpose(1, 2).reshape(rows, n, width))
                y = y + block.down(F.gelu(block.up(block.b(y))))
            at += n
            chances = F.log_softmax(head(y[:, -1]).float(), -1).view(batch, -1)
            top = chances.topk(beams).indices
            order = (top // vocab + torch.arange(batch, device=DEVICE)[:, None] * beams).view(-1)
            x = (top % vocab).view(-1, 1)
            for cache in caches:
                cache.copy_(cache.index_select(1, order))

    return step
