"""More programs for tune_programs.py, written before tune's code was read: loops that are put together in unusual ways.

usage: tune_programs_more.py [NAME...]     all programs unless named
"""

import sys

import torch
import torch.nn.functional as F
import tune_programs
from torch import nn
from torch.utils.checkpoint import checkpoint
from tune_programs import CUDA, ids, long
from tune_simulated import SimulatedOut


def layers(*widths, last=True):
    parts = [part for a, b in zip(widths, widths[1:]) for part in (nn.Linear(a, b), nn.GELU())]
    return nn.Sequential(*(parts if last else parts[:-1])).to(CUDA)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.a, self.b = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out, self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.a(x)).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.b(x))))


def two_optimizers():
    """A table with SGD every step, layers with Adam every second step."""
    table, body = nn.Embedding(20011, 96).to(CUDA), layers(96, 512, 512, 96)
    fast, slow, count = torch.optim.SGD(table.parameters(), 0.1), torch.optim.Adam(body.parameters()), [0]

    def step(n, part=1.0):
        body(table(ids(n, long(part, 200), 20011))).pow(2).mean().backward()
        fast.step()
        fast.zero_grad()
        count[0] += 1
        if count[0] % 2 == 0:
            slow.step()
            slow.zero_grad()

    return step


def two_players():
    """A generator and a critic in turn; the critic's gradient is a part of its loss."""
    maker, critic = layers(64, 512, 1024, 3072, last=False), layers(3072, 1024, 512, 1, last=False)
    first, second = torch.optim.Adam(maker.parameters()), torch.optim.Adam(critic.parameters())

    def step(n, part=1.0):
        real, made = torch.randn(n, 3072, device=CUDA), maker(torch.randn(n, 64, device=CUDA))
        mixed = (real + made.detach()).requires_grad_()
        slope = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
        (critic(made.detach()).mean() - critic(real).mean() + slope.norm(2, 1).mean()).backward()
        second.step()
        second.zero_grad()
        (-critic(made).mean()).backward()
        first.step()
        first.zero_grad()
        second.zero_grad()

    return step


def large_evaluation():
    """Trains on crops, evaluates on whole images with four times the samples."""
    body = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 5, 1)).to(CUDA)
    optimizer = torch.optim.SGD(body.parameters(), 0.1)

    def step(n, part=1.0):
        size = long(part**0.5, 64, 16)
        body(torch.randn(n, 3, size, size, device=CUDA)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    def evaluate(n):
        with torch.no_grad():
            body(torch.randn(4 * n, 3, 160, 160, device=CUDA)).argmax(1)

    return step, evaluate


def accumulates_itself():
    """The step splits its batch into parts of five and adds their gradients up."""
    body = layers(256, 2048, 2048, 256)
    optimizer = torch.optim.AdamW(body.parameters())

    def step(n, part=1.0):
        whole = torch.randn(n, long(part, 300), 256, device=CUDA)
        for few in whole.split(5):
            body(few).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def frozen_body():
    """A frozen body in bfloat16 without gradients, and a head that is trained."""
    body, head = nn.Sequential(*[Block(256, 4) for _ in range(4)]).to(CUDA).to(torch.bfloat16).requires_grad_(False), layers(256, 64, 9, last=False)
    optimizer = torch.optim.Adam(head.parameters())

    def step(n, part=1.0):
        with torch.no_grad():
            seen = body(torch.randn(n, long(part, 257), 256, device=CUDA, dtype=torch.bfloat16))
        head(seen.float().mean(1)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def own_gradient():
    """A function of the program's own that keeps a large table of each sample for its backward pass."""

    class Kept(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            table = (x[:, :, None] * w[None, None, :]).sin()
            ctx.save_for_backward(table, w)
            return table.sum(-1)

        @staticmethod
        def backward(ctx, grad):
            table, w = ctx.saved_tensors
            back = table.cos() * grad[..., None]
            return (back * w).sum(-1), back.sum((0, 1))

    w, body = nn.Parameter(torch.randn(64, device=CUDA)), layers(1024, 1024)
    optimizer = torch.optim.SGD([w, *body.parameters()], 0.1, momentum=0.9)

    def step(n, part=1.0):
        Kept.apply(body(torch.randn(n, 1024, device=CUDA)), w).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def multiples_of_eight():
    """Pads each batch to a multiple of eight samples."""
    body = nn.Sequential(*[Block(192, 3) for _ in range(3)]).to(CUDA)
    optimizer = torch.optim.AdamW(body.parameters())

    def step(n, part=1.0):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            found = body(torch.randn(-(-n // 8) * 8, long(part, 197), 192, device=CUDA)).float().pow(2).mean()
        found.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def all_pairs():
    """Distances of all pairs of samples: memory grows with the square of the batch."""
    body = layers(512, 1024, 128)
    optimizer = torch.optim.Adam(body.parameters())

    def step(n, part=1.0):
        found = body(torch.randn(n, 512, device=CUDA))
        near = (found[:, None] - found[None]).pow(2).sum(-1)
        near.mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def state_between_batches():
    """Recurrent cells whose state goes from batch to batch, made anew when the size of the batch changes."""
    cell, out, state = nn.GRUCell(256, 512).to(CUDA), nn.Linear(512, 4001).to(CUDA), [None]
    optimizer = torch.optim.Adam([*cell.parameters(), *out.parameters()])

    def step(n, part=1.0):
        if state[0] is None or state[0].shape[0] != n:
            state[0] = torch.zeros(n, 512, device=CUDA)
        h, total = state[0], 0
        for _ in range(long(part, 24)):
            h = cell(torch.randn(n, 256, device=CUDA), h)
            total = total + F.cross_entropy(out(h), torch.zeros(n, dtype=torch.long, device=CUDA))
        total.backward()
        state[0] = h.detach()
        optimizer.step()
        optimizer.zero_grad()

    return step


def late_average():
    """An average of the weights that begins at the third step."""
    body, average, count = layers(1024, 2048, 2048, 1024), [None], [0]
    optimizer = torch.optim.AdamW(body.parameters())

    def step(n, part=1.0):
        body(torch.randn(n, long(part, 64), 1024, device=CUDA)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        count[0] += 1
        if count[0] == 3:
            average[0] = [one.detach().clone() for one in body.parameters()]
        elif count[0] > 3:
            torch._foreach_lerp_(average[0], [one.detach() for one in body.parameters()], 0.01)

    return step


def some_checkpoints():
    """Every second block is computed again in the backward pass, every third step in another order of sizes."""
    body = nn.ModuleList(Block(256, 4) for _ in range(6)).to(CUDA)
    optimizer = torch.optim.AdamW(body.parameters())

    def step(n, part=1.0):
        x = torch.randn(n, long(part, 333), 256, device=CUDA)
        for at, one in enumerate(body):
            x = checkpoint(one, x, use_reentrant=False) if at % 2 else one(x)
        x.pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def queue_of_negatives():
    """Two encoders, one of them an average, and a queue of earlier batches that fills up."""
    query, key, queue = layers(768, 1024, 128), layers(768, 1024, 128).requires_grad_(False), []
    optimizer = torch.optim.SGD(query.parameters(), 0.1, momentum=0.9)

    def step(n, part=1.0):
        a, b = query(torch.randn(n, 768, device=CUDA)), key(torch.randn(n, 768, device=CUDA))
        queue.append(b)
        del queue[:-8]
        F.cross_entropy(a @ torch.cat(queue).t(), torch.zeros(n, dtype=torch.long, device=CUDA)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def growing_cache():
    """Writes with keys and values that grow by concatenation."""
    parts = nn.ModuleList(nn.Linear(256, 768) for _ in range(3)).to(CUDA)

    @torch.no_grad()
    def step(n, part=1.0):
        caches = [None] * 3
        for _ in range(long(part, 20)):
            x = torch.randn(n, 1, 256, device=CUDA)
            for at, one in enumerate(parts):
                q, k, v = one(x).chunk(3, -1)
                k, v = (k, v) if caches[at] is None else (torch.cat([old, new], 1) for old, new in zip(caches[at], (k, v)))
                caches[at] = k, v
                x = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]

    return step


def second_order():
    """One inner step of gradient descent, differentiated through."""
    body = layers(256, 512, 512, 64)
    optimizer = torch.optim.Adam(body.parameters())

    def step(n, part=1.0):
        weights = dict(body.named_parameters())
        x = torch.randn(n, long(part, 32), 256, device=CUDA)
        inner = torch.func.functional_call(body, weights, (x,)).pow(2).mean()
        slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
        moved = {name: one - 0.1 * slope for (name, one), slope in zip(weights.items(), slopes)}
        torch.func.functional_call(body, moved, (x,)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def skips_what_is_too_large():
    """The step catches the error of a full GPU itself and skips the batch."""
    body = layers(1024, 4096, 4096, 1024)
    optimizer = torch.optim.Adam(body.parameters())

    def step(n, part=1.0):
        try:
            body(torch.randn(n, long(part, 64), 1024, device=CUDA)).pow(2).mean().backward()
            optimizer.step()
        except SimulatedOut:
            pass
        optimizer.zero_grad()

    return step


tune_programs.PROGRAMS = {
    "two_optimizers": (two_optimizers, 41, "uniform"),
    "two_players": (two_players, 300, "full"),
    "large_evaluation": (large_evaluation, 23, "uniform"),
    "accumulates_itself": (accumulates_itself, 64, "two"),
    "frozen_body": (frozen_body, 90, "short"),
    "own_gradient": (own_gradient, 120, "full"),
    "multiples_of_eight": (multiples_of_eight, 50, "uniform"),
    "all_pairs": (all_pairs, 350, "full"),
    "state_between_batches": (state_between_batches, 110, "two"),
    "late_average": (late_average, 75, "short"),
    "some_checkpoints": (some_checkpoints, 28, "rising"),
    "queue_of_negatives": (queue_of_negatives, 700, "full"),
    "growing_cache": (growing_cache, 500, "uniform"),
    "second_order": (second_order, 130, "two"),
    "skips_what_is_too_large": (skips_what_is_too_large, 60, "uniform"),
}

if __name__ == "__main__":
    sys.exit(tune_programs.main())
