"""Six programs for tune_programs.py, written after tune's search was finished and scored at first sight.

usage: tune_programs_later.py [NAME...]     all programs unless named
"""

import sys

import torch
import torch.nn.functional as F
import tune_programs
from torch import nn
from tune_programs import CUDA, ids, long


class Residual(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True), nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b))
        self.skip = nn.Identity() if a == b and stride == 1 else nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


def images():
    """A small ResNet with BatchNorm, autocast, SGD with momentum; evaluated after each epoch on larger images."""
    plan = [(56, 56, 1), (56, 56, 1), (56, 120, 2), (120, 120, 1), (120, 248, 2), (248, 248, 1)]
    model = nn.Sequential(nn.Conv2d(3, 56, 3, 2, 1), nn.BatchNorm2d(56), nn.ReLU(), *(Residual(*one) for one in plan), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(248, 101)).to(CUDA)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)

    def step(n, part=1.0):
        size = long(part**0.5, 160, 48)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(torch.randn(n, 3, size, size, device=CUDA))
        F.cross_entropy(out.float(), torch.randint(0, 101, (n,), device=CUDA), label_smoothing=0.1).backward()
        optimizer.step()
        optimizer.zero_grad()

    def evaluate(n):
        model.eval()
        with torch.no_grad():
            model(torch.randn(n, 3, 192, 192, device=CUDA)).softmax(-1)
        model.train()

    return step, evaluate


def summaries():
    """Encoder and decoder with cross attention and relative biases; source and target lengths vary together and apart."""

    class Attention(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads, self.q, self.kv, self.out = heads, nn.Linear(width, width, bias=False), nn.Linear(width, 2 * width, bias=False), nn.Linear(width, width, bias=False)
            self.bias = nn.Parameter(torch.zeros(heads, 64))

        def forward(self, x, y):
            q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            k, v = self.kv(y).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
            far = (torch.arange(x.shape[1], device=CUDA)[:, None] - torch.arange(y.shape[1], device=CUDA)[None]).clamp(-32, 31) + 32
            scores = (q @ k.transpose(-1, -2) + self.bias[:, far]).softmax(-1)
            return self.out((F.dropout(scores, 0.1) @ v).transpose(1, 2).flatten(2))

    class Layer(nn.Module):
        def __init__(self, width, crosses):
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
            self.own, self.cross = Attention(width, 6), Attention(width, 6) if crosses else None
            self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

        def forward(self, x, seen=None):
            y = self.norms[0](x)
            x = x + self.own(y, y)
            if self.cross is not None:
                x = x + self.cross(self.norms[1](x), seen)
            return x + self.down(F.relu(self.up(self.norms[2](x))))

    words = nn.Embedding(11003, 288).to(CUDA)
    into, out = (nn.ModuleList(Layer(288, crosses) for _ in range(3)).to(CUDA) for crosses in (False, True))
    optimizer = torch.optim.AdamW([*words.parameters(), *into.parameters(), *out.parameters()])

    def step(n, part=1.0):
        x, target = words(ids(n, long(part, 350), 11003)), ids(n, long(part**0.7, 120), 11003)
        for layer in into:
            x = layer(x)
        y = words(target)
        for layer in out:
            y = layer(y, x)
        F.cross_entropy((y @ words.weight.t()).flatten(0, 1), target.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def forger():
    """A generator and a discriminator with an optimizer each; two steps of one for each of the other."""
    up = [nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.LeakyReLU(0.2)) for a, b in ((180, 120), (120, 90), (90, 60))]
    maker = nn.Sequential(nn.Linear(96, 180 * 64), nn.Unflatten(1, (180, 8, 8)), *up, nn.Conv2d(60, 3, 3, padding=1), nn.Tanh()).to(CUDA)
    down = [nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Conv2d(a, b, 4, 2, 1)), nn.LeakyReLU(0.2)) for a, b in ((3, 64), (64, 128), (128, 200))]
    judge = nn.Sequential(*down, nn.Flatten(), nn.Linear(200 * 64, 1)).to(CUDA)
    a, b = torch.optim.Adam(maker.parameters(), 2e-4, betas=(0.5, 0.99)), torch.optim.RMSprop(judge.parameters(), 1e-4)

    def step(n, part=1.0):
        n = max(2, int(n * part))
        for _ in range(2):
            with torch.no_grad():
                made = maker(torch.randn(n, 96, device=CUDA))
            b.zero_grad()
            (F.relu(1 - judge(torch.randn(n, 3, 64, 64, device=CUDA))).mean() + F.relu(1 + judge(made)).mean()).backward()
            b.step()
        a.zero_grad()
        (-judge(maker(torch.randn(n, 96, device=CUDA)))).mean().backward()
        a.step()

    return step


def molecules():
    """Edges with weights by attention: gather, softmax over the edges of a node by scatter, sum by scatter."""

    class Layer(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.message, self.score, self.keep = nn.Linear(2 * width + 8, width), nn.Linear(width, 1), nn.GRUCell(width, width)

        def forward(self, x, edges, kind):
            message = F.silu(self.message(torch.cat([x[edges[0]], x[edges[1]], kind], 1)))
            weight = self.score(message).exp()
            total = torch.zeros(len(x), 1, device=CUDA).scatter_add(0, edges[1][:, None], weight)
            sent = torch.zeros_like(x).index_add(0, edges[1], message * (weight / (total[edges[1]] + 1e-6)))
            return self.keep(sent, x)

    into, layers, out = nn.Linear(31, 160).to(CUDA), nn.ModuleList(Layer(160) for _ in range(4)).to(CUDA), nn.Linear(160, 12).to(CUDA)
    optimizer = torch.optim.AdamW([*into.parameters(), *layers.parameters(), *out.parameters()])

    def step(n, part=1.0):
        nodes = n * long(part, 90, 8)
        edges, kind = torch.randint(0, nodes, (2, 5 * nodes), device=CUDA), torch.randn(5 * nodes, 8, device=CUDA)
        x = into(torch.randn(nodes, 31, device=CUDA))
        for layer in layers:
            x = layer(x, edges, kind)
        pooled = torch.zeros(n, 160, device=CUDA).index_add(0, torch.randint(0, n, (nodes,), device=CUDA), x)
        F.mse_loss(out(pooled), torch.randn(n, 12, device=CUDA)).backward()
        nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def speech():
    """Convolutions before a bidirectional LSTM of three layers, and a large output."""
    front = nn.Sequential(nn.Conv1d(80, 256, 5, 2, 2), nn.GELU(), nn.Conv1d(256, 256, 5, padding=2), nn.GELU()).to(CUDA)
    body, head = nn.LSTM(256, 320, 3, batch_first=True, bidirectional=True, dropout=0.2).to(CUDA), nn.Linear(640, 1501).to(CUDA)
    optimizer = torch.optim.Adam([*front.parameters(), *body.parameters(), *head.parameters()])

    def step(n, part=1.0):
        x = front(torch.randn(n, 80, long(part, 700, 20), device=CUDA)).transpose(1, 2)
        out = head(body(x)[0]).log_softmax(-1)
        (-out[..., 0]).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def low_rank():
    """Adapters of rank 16 beside frozen half-precision weights, three passes for each optimizer step."""

    class Adapted(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.base = nn.Linear(a, b, bias=False).to(torch.bfloat16).requires_grad_(False)
            self.down, self.up = nn.Linear(a, 16, bias=False), nn.Linear(16, b, bias=False)

        def forward(self, x):
            return self.base(x) + self.up(self.down(F.dropout(x, 0.05).float())).to(x.dtype)

    class Layer(nn.Module):
        def __init__(self, width, hidden):
            super().__init__()
            self.qkv, self.out = Adapted(width, 3 * width), Adapted(width, width)
            self.gate, self.up, self.down = Adapted(width, hidden), Adapted(width, hidden), Adapted(hidden, width)
            self.norms = nn.ModuleList(nn.RMSNorm(width).to(torch.bfloat16).requires_grad_(False) for _ in range(2))

        def forward(self, x):
            q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, 8, -1)).permute(2, 0, 3, 1, 4)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            y = self.norms[1](x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    words = nn.Embedding(16001, 512).to(CUDA).to(torch.bfloat16).requires_grad_(False)
    layers = nn.ModuleList(Layer(512, 1376) for _ in range(5)).to(CUDA)
    optimizer = torch.optim.AdamW([one for one in layers.parameters() if one.requires_grad], 1e-4)

    def step(n, part=1.0):
        for _ in range(3):
            x = ids(n, long(part, 512), 16001)
            y = words(x)
            for layer in layers:
                y = layer(y)
            (F.cross_entropy((y @ words.weight.t()).float().flatten(0, 1), x.flatten()) / 3).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


tune_programs.PROGRAMS = {
    "images": (images, 90, "uniform"),
    "summaries": (summaries, 34, "uniform"),
    "forger": (forger, 120, "full"),
    "molecules": (molecules, 150, "short"),
    "speech": (speech, 60, "rising"),
    "low_rank": (low_rank, 18, "two"),
}

if __name__ == "__main__":
    sys.exit(tune_programs.main())
