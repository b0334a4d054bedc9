"""15 awkward programs, written without looking at the code of stowage.estimate.

Each function in MODELS makes its tensors on `dev` and returns a function that runs one step.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn

MODELS = {}


def model(make):
    MODELS[make.__name__] = make
    return make


def train(params, forward, opt=torch.optim.AdamW, **kw):
    o = opt(params, lr=1e-3, **kw)
    def step():
        o.zero_grad()
        loss = forward()
        loss.backward()
        o.step()
    return step


@model
def control_flow(dev):
    """data-dependent number of iterations and early exit"""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.out = nn.Linear(512, 512), nn.Linear(512, 512), nn.Linear(512, 1)
        def forward(self, x):
            h = self.a(x)
            for i in range(6):
                if h.abs().mean() < 1e-6:
                    break
                h = torch.tanh(self.b(h)) if h.sum() > 0 else F.relu(self.b(h)) + 0.1
            return self.out(h).pow(2).mean()
    m = M().to(dev)
    return train(m.parameters(), lambda: m(torch.randn(2048, 512, device=dev)))


@model
def item_reads(dev):
    """.item(), float(), int(), tolist() of losses and lengths; loss scale by value"""
    m = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)).to(dev)
    seen = []
    def forward():
        x = torch.randn(1024, 256, device=dev)
        y = m(x)
        n = int(torch.tensor(700, device=dev).item())
        loss = (y[:n] - x[:n]).pow(2).mean()
        seen.append(loss.item())
        scale = float(y.detach().abs().max())
        if scale > 1e30:
            raise ValueError("diverged")
        _ = y.detach()[0, :3].tolist()
        return loss / max(scale, 1.0)
    return train(m.parameters(), forward)


@model
def custom_autograd(dev):
    """an autograd.Function that saves tensors and one that recomputes"""
    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * torch.sigmoid(x)
            ctx.save_for_backward(x)
            return y
        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            s = torch.sigmoid(x)
            return g * (s * (1 + x * (1 - s)))
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.ModuleList(nn.Linear(768, 768) for _ in range(6))
        def forward(self, x):
            for l in self.l:
                x = Swish.apply(l(x))
            return x.square().mean()
    m = M().to(dev)
    return train(m.parameters(), lambda: m(torch.randn(2048, 768, device=dev)))


@model
def packed_rnn(dev):
    """pack_padded_sequence / pad_packed_sequence around a GRU"""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.r, self.o = nn.Embedding(5000, 128), nn.GRU(128, 256, 2, batch_first=True), nn.Linear(256, 5000)
        def forward(self, x, lengths):
            p = nn.utils.rnn.pack_padded_sequence(self.e(x), lengths, batch_first=True, enforce_sorted=False)
            h, _ = self.r(p)
            h, _ = nn.utils.rnn.pad_packed_sequence(h, batch_first=True)
            return self.o(h).float().logsumexp(-1).mean()
    m = M().to(dev)
    lengths = torch.tensor([40 - i for i in range(16)])
    return train(m.parameters(), lambda: m(torch.randint(0, 5000, (16, 40), device=dev), lengths))


@model
def boolean_mask(dev):
    """loss over masked positions: logits[mask]"""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.l, self.h = nn.Embedding(8000, 256), nn.Linear(256, 256), nn.Linear(256, 8000)
        def forward(self, x, mask):
            h = torch.relu(self.l(self.e(x)))
            logits = self.h(h[mask])
            return F.cross_entropy(logits, x[mask])
    m = M().to(dev)
    def forward():
        x = torch.randint(0, 8000, (16, 128), device=dev)
        mask = torch.rand(16, 128, device=dev) < 0.15
        return m(x, mask)
    return train(m.parameters(), forward)


@model
def inplace_views(dev):
    """in-place writes through views, index_put, copy_ into slices, expand"""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(512, 1024), nn.Linear(1024, 512)
        def forward(self, x):
            h = self.a(x)
            out = torch.zeros(x.shape[0], 2048, device=x.device)
            out[:, :1024] = h
            out[:, 1024:].copy_(h * 2)
            out.view(-1, 2, 1024)[:, 1].mul_(0.5).add_(1)
            out[torch.arange(0, x.shape[0], 2, device=x.device)] = 0.0
            y = self.b(out.view(-1, 1024))
            return (y + y.mean(0).expand_as(y)).square().mean()
    m = M().to(dev)
    return train(m.parameters(), lambda: m(torch.randn(1024, 512, device=dev)))


@model
def buffers_in_forward(dev):
    """register_buffer in the first forward, causal masks, rotary caches that grow"""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.o = nn.Linear(256, 768), nn.Linear(256, 256)
        def forward(self, x):
            t = x.shape[1]
            if not hasattr(self, "mask"):
                self.register_buffer("mask", torch.full((t, t), float("-inf"), device=x.device).triu(1), persistent=False)
                self.register_buffer("freq", torch.outer(torch.arange(t, device=x.device).float(), 1.0 / 10000 ** (torch.arange(0, 256, 2, device=x.device) / 256)), persistent=False)
            q, k, v = self.qkv(x).chunk(3, -1)
            q = torch.cat([q[..., :128] * self.freq.cos(), q[..., 128:] * self.freq.sin()], -1)
            a = (q @ k.transpose(-2, -1) / 16 + self.mask).softmax(-1)
            return self.o(a @ v).square().mean()
    m = M().to(dev)
    return train(m.parameters(), lambda: m(torch.randn(16, 256, 256, device=dev)))


@model
def sparse_embedding(dev):
    """nn.Embedding(sparse=True) with SparseAdam beside a dense optimizer"""
    e = nn.Embedding(50000, 128, sparse=True).to(dev)
    l = nn.Linear(128, 50).to(dev)
    o1, o2 = torch.optim.SparseAdam(e.parameters(), lr=1e-3), torch.optim.SGD(l.parameters(), lr=0.1, momentum=0.9)
    def step():
        o1.zero_grad()
        o2.zero_grad()
        x = torch.randint(0, 50000, (512, 20), device=dev)
        loss = F.cross_entropy(l(e(x).mean(1)), torch.randint(0, 50, (512,), device=dev))
        loss.backward()
        o1.step()
        o2.step()
    return step


@model
def linalg(dev):
    """cholesky, solve, svd, eigh, inv, slogdet with gradients"""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.eye(128).repeat(8, 1, 1) + 0.01 * torch.randn(8, 128, 128))
        def forward(self, x):
            a = self.w @ self.w.transpose(-2, -1) + 0.1 * torch.eye(128, device=x.device)
            c = torch.linalg.cholesky(a)
            y = torch.linalg.solve(a, x)
            u, sv, vh = torch.linalg.svd(self.w, full_matrices=False)
            ev = torch.linalg.eigvalsh(a)
            sign, logdet = torch.linalg.slogdet(a)
            return y.square().mean() + sv.sum() * 1e-3 + ev.sum() * 1e-3 + logdet.mean() + torch.linalg.inv(a).square().mean() + c.diagonal(dim1=-2, dim2=-1).log().sum()
    m = M().to(dev)
    return train(m.parameters(), lambda: m(torch.randn(8, 128, 64, device=dev)), opt=torch.optim.SGD)


@model
def complex_fft(dev):
    """complex weights, rfft/irfft, complex multiply (FNO layer)"""
    class Spectral(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(32, 32, 33, dtype=torch.cfloat) * 0.02)
        def forward(self, x):
            f = torch.fft.rfft(x)
            f = torch.einsum("bim,iom->bom", f[..., :33], self.w)
            return torch.fft.irfft(F.pad(f, (0, x.shape[-1] // 2 + 1 - 33)), n=x.shape[-1])
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Conv1d(1, 32, 1), nn.Conv1d(32, 1, 1)
            self.l = nn.ModuleList(Spectral() for _ in range(4))
        def forward(self, x):
            h = self.up(x)
            for l in self.l:
                h = F.gelu(h + l(h))
            return self.down(h).abs().mean()
    m = M().to(dev)
    return train(m.parameters(), lambda: m(torch.randn(32, 1, 1024, device=dev)), opt=torch.optim.Adam)


@model
def tied_weights(dev):
    """the output layer shares the embedding; the same block is applied four times"""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(16000, 384)
            self.block = nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True, dropout=0.1, norm_first=True)
            self.head = nn.Linear(384, 16000, bias=False)
            self.head.weight = self.e.weight
        def forward(self, x):
            h = self.e(x)
            for _ in range(4):
                h = self.block(h)
            return F.cross_entropy(self.head(h).flatten(0, 1), x.flatten())
    m = M().to(dev)
    return train(m.parameters(), lambda: m(torch.randint(0, 16000, (8, 128), device=dev)))


@model
def hooks(dev):
    """forward hooks that keep features, full backward hooks, tensor hooks, post-accumulate hooks that step"""
    m = nn.Sequential(*[nn.Sequential(nn.Linear(640, 640), nn.GELU()) for _ in range(6)]).to(dev)
    kept = {}
    for i, b in enumerate(m):
        b.register_forward_hook(lambda mod, a, out, i=i: kept.__setitem__(i, out))
        b.register_full_backward_hook(lambda mod, gi, go: None)
    def clip(g):
        return g.clamp(-1, 1)
    for p in m.parameters():
        if p.dim() == 2:
            p.register_hook(clip)
        if hasattr(p, "register_post_accumulate_grad_hook"):
            def drop(p):
                p.data.add_(p.grad, alpha=-1e-3)
                p.grad = None
            p.register_post_accumulate_grad_hook(drop)
    def step():
        x = torch.randn(1024, 640, device=dev)
        y = m(x)
        (y.square().mean() + sum(k.abs().mean() for k in kept.values())).backward()
        kept.clear()
    return step


@model
def custom_optimizer(dev):
    """an optimizer of its own: Lion-like with per-parameter state and a lookahead copy, param groups"""
    class Lion(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, dict(lr=lr, b1=0.9, b2=0.99))
        @torch.no_grad()
        def step(self):
            for g in self.param_groups:
                for p in g["params"]:
                    if p.grad is None:
                        continue
                    st = self.state[p]
                    if not st:
                        st["m"] = torch.zeros_like(p)
                        st["slow"] = p.detach().clone()
                        st["n"] = 0
                    st["n"] += 1
                    u = (st["m"] * g["b1"] + p.grad * (1 - g["b1"])).sign_()
                    p.add_(u, alpha=-g["lr"])
                    st["m"].mul_(g["b2"]).add_(p.grad, alpha=1 - g["b2"])
                    if st["n"] % 5 == 0:
                        st["slow"].lerp_(p, 0.5)
                        p.copy_(st["slow"])
    m = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).to(dev)
    o = Lion([{"params": [p for p in m.parameters() if p.dim() > 1]}, {"params": [p for p in m.parameters() if p.dim() == 1]}], lr=1e-4)
    def step():
        o.zero_grad(set_to_none=True)
        m(torch.randn(512, 1024, device=dev)).square().mean().backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        o.step()
    return step


@model
def ema_copies(dev):
    """teacher as an EMA deep copy, swa_utils.AveragedModel, cosine loss to the teacher"""
    s = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 128)).to(dev)
    t = copy.deepcopy(s).requires_grad_(False)
    avg = torch.optim.swa_utils.AveragedModel(s)
    o = torch.optim.SGD(s.parameters(), lr=0.1, momentum=0.9)
    def step():
        x = torch.randn(32, 3, 64, 64, device=dev)
        with torch.no_grad():
            target = t(x)
        loss = 1 - F.cosine_similarity(s(x), target).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        with torch.no_grad():
            for a, b in zip(t.parameters(), s.parameters()):
                a.mul_(0.99).add_(b, alpha=0.01)
        avg.update_parameters(s)
    return step


@model
def frozen_parts(dev):
    """a frozen encoder under no_grad, half frozen blocks, a gradient that stops in the middle, topk/sort/unique-free routing"""
    enc = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.LayerNorm(512), nn.GELU()) for _ in range(4)]).to(dev).requires_grad_(False)
    head = nn.ModuleList(nn.Linear(512, 512) for _ in range(4)).to(dev)
    for p in head[0].parameters():
        p.requires_grad_(False)
    gate = nn.Linear(512, 4).to(dev)
    params = [p for p in [*head.parameters(), *gate.parameters()] if p.requires_grad]
    def forward():
        x = torch.randn(1024, 512, device=dev)
        with torch.no_grad():
            h = enc(x)
        top, idx = gate(h).softmax(-1).topk(2, -1)
        y = sum(top[:, k:k + 1] * torch.stack([e(h) for e in head], 1).gather(1, idx[:, k, None, None].expand(-1, 1, 512)).squeeze(1) for k in range(2))
        return F.mse_loss(y, h.detach())
    return train(params, forward)
