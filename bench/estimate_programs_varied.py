"""Twelve more programs for gpu_estimate_bench.py: kinds of networks that no rule of stowage.estimate was written with.

As in estimate_programs_more.py, each function in PROGRAMS makes its model and returns a function that runs step i.
"""


import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import estimate_programs_more as more
from estimate_programs_more import autocast, size, update

PROGRAMS = {}


def program(make):
    PROGRAMS[make.__name__] = make
    return make


def randn(*shape, **kw):
    return torch.randn(*shape, device=more.DEVICE, **kw)


def ids(*shape, most):
    return torch.randint(0, most, shape, device=more.DEVICE)


# ---- images ----


class TextBlock(nn.Module):
    """Self-attention over pixels, attention to a text, a gated feed-forward layer: a block of a latent diffusion model."""

    def __init__(self, width, text, heads=8):
        super().__init__()
        self.heads, self.norm, self.into, self.back = heads, nn.GroupNorm(32, width), nn.Linear(width, width), nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.own_out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.q, self.kv, self.text_out = nn.Linear(width, width, bias=False), nn.Linear(text, 2 * width, bias=False), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(self.split(q), self.split(k), self.split(v)).transpose(1, 2).flatten(2)

    def forward(self, image, text):
        b, c, h, w = image.shape
        x = self.into(self.norm(image).permute(0, 2, 3, 1).reshape(b, h * w, c))
        x = x + self.own_out(self.attend(*self.own(self.norms[0](x)).chunk(3, -1)))
        x = x + self.text_out(self.attend(self.q(self.norms[1](x)), *self.kv(text).chunk(2, -1)))
        y, gate = self.up(self.norms[2](x)).chunk(2, -1)
        x = x + self.down(y * F.gelu(gate))
        return self.back(x).reshape(b, h, w, c).permute(0, 3, 1, 2) + image


class Residual(nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.a, self.b = nn.GroupNorm(32, into), nn.GroupNorm(32, out)
        self.first, self.second = nn.Conv2d(into, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(into, out, 1) if into != out else nn.Identity()

    def forward(self, x):
        return self.skip(x) + self.second(F.silu(self.b(self.first(F.silu(self.a(x))))))


@program
def latent_diffusion_fp16():
    """Samples latents with a text, then decodes them to images eight times as large."""
    w, text = size(320, 32), size(768, 32)
    first, last = nn.Conv2d(4, w, 3, padding=1), nn.Conv2d(w, 4, 3, padding=1)
    down = nn.ModuleList([Residual(w, w), TextBlock(w, text), nn.Conv2d(w, w, 3, 2, 1), Residual(w, 2 * w), TextBlock(2 * w, text), nn.Conv2d(2 * w, 2 * w, 3, 2, 1)])
    middle = nn.ModuleList([Residual(2 * w, 4 * w), TextBlock(4 * w, text), Residual(4 * w, 2 * w)])
    up = nn.ModuleList([Residual(4 * w, 2 * w), TextBlock(2 * w, text), Residual(3 * w, w), TextBlock(w, text)])
    v = size(128, 32)
    decoder = nn.Sequential(
        nn.Conv2d(4, 4 * v, 3, padding=1), Residual(4 * v, 4 * v), nn.Upsample(scale_factor=2), nn.Conv2d(4 * v, 4 * v, 3, padding=1), Residual(4 * v, 2 * v),
        nn.Upsample(scale_factor=2), nn.Conv2d(2 * v, 2 * v, 3, padding=1), Residual(2 * v, v), nn.Upsample(scale_factor=2), nn.Conv2d(v, v, 3, padding=1),
        nn.GroupNorm(32, v), nn.SiLU(), nn.Conv2d(v, 3, 3, padding=1),
    )  # fmt: skip
    model = nn.ModuleList([first, last, down, middle, up, decoder]).to(more.DEVICE).half().eval()
    batch, side = size(4, 1), size(64, 16)

    def noise(x, words):
        x = first(x)
        a = down[1](down[0](x), words)
        b = down[4](down[3](down[2](a)), words)
        y = middle[2](middle[1](middle[0](down[5](b)), words))
        y = up[1](up[0](torch.cat([F.interpolate(y, scale_factor=2), b], 1)), words)
        return last(up[3](up[2](torch.cat([F.interpolate(y, scale_factor=2), a], 1)), words))

    @torch.no_grad()
    def step(i):
        x, words = randn(batch, 4, side, side).half(), randn(2 * batch, 77, text).half()
        for _ in range(3):
            with_text, without = noise(torch.cat([x, x]), words).chunk(2)
            x = x - 0.1 * (without + 7.5 * (with_text - without))
        return model is not None and decoder(x)

    return step


@program
def convnext_bf16_last():
    """ConvNeXt in channels-last order, with scales of layers and averaged weights."""
    widths, depths = size((96, 192, 384, 768), (16, 32)), size((3, 3, 9, 3), (1, 1))

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.far, self.norm, self.up, self.down = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.scale = nn.Parameter(torch.full((width,), 1e-6))

        def forward(self, x):
            y = self.far(x).permute(0, 2, 3, 1)
            return x + (self.scale * self.down(F.gelu(self.up(self.norm(y))))).permute(0, 3, 1, 2)

    layers, into = [], 3
    for i, (width, depth) in enumerate(zip(widths, depths)):
        layers.append(nn.Conv2d(into, width, 4 if i == 0 else 2, 4 if i == 0 else 2))
        layers += [Block(width) for _ in range(depth)]
        into = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, 1000)).to(more.DEVICE).to(memory_format=torch.channels_last)
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(i):
        x = randn(size(64, 2), 3, size(224, 32), size(224, 32)).to(memory_format=torch.channels_last)
        with autocast():
            loss = F.cross_entropy(model(x), ids(len(x), most=1000), label_smoothing=0.1)
        update(optimizer, loss)
        average.update_parameters(model)

    return step


@program
def efficientnet_fp32():
    """Inverted bottlenecks with one filter per channel, squeeze and excitation, RMSprop."""

    class Inverted(nn.Module):
        def __init__(self, into, out, kernel, stride, grow=6):
            super().__init__()
            wide = into * grow
            self.expand = nn.Sequential(nn.Conv2d(into, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU(inplace=True)) if grow > 1 else nn.Identity()
            self.deep = nn.Sequential(nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.SiLU(inplace=True))
            self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, max(1, into // 4), 1), nn.SiLU(inplace=True), nn.Conv2d(max(1, into // 4), wide, 1), nn.Sigmoid())
            self.project, self.same = nn.Sequential(nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out)), stride == 1 and into == out

        def forward(self, x):
            y = self.deep(self.expand(x))
            y = self.project(y * self.squeeze(y))
            return x + y if self.same else y

    parts, into = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU(inplace=True)], 32
    for out, count, kernel, stride, grow in size(((16, 1, 3, 1, 1), (24, 2, 3, 2, 6), (40, 2, 5, 2, 6), (80, 3, 3, 2, 6), (112, 3, 5, 1, 6), (192, 4, 5, 2, 6)), ((16, 1, 3, 1, 1), (24, 1, 5, 2, 6))):
        for i in range(count):
            parts.append(Inverted(into, out, kernel, stride if i == 0 else 1, grow))
            into = out
    model = nn.Sequential(*parts, nn.Conv2d(into, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.SiLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000)).to(more.DEVICE)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.9)

    def step(i):
        x = randn(size(64, 2), 3, size(224, 32), size(224, 32))
        F.cross_entropy(model(x), ids(len(x), most=1000)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@program
def swin_bf16():
    """Attention in windows that move by half a window in every second layer, with a bias by position, and merged patches."""
    width, window, heads = size(96, 16), size(7, 4), size(3, 2)

    class Windowed(nn.Module):
        def __init__(self, width, heads, shift):
            super().__init__()
            self.heads, self.shift, self.a, self.b = heads, shift, nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out, self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.bias = nn.Parameter(torch.zeros(heads, window * window, window * window))

        def forward(self, x):
            b, h, w, c = x.shape
            y = torch.roll(self.a(x), (-self.shift, -self.shift), (1, 2)) if self.shift else self.a(x)
            y = y.view(b, h // window, window, w // window, window, c).transpose(2, 3).reshape(-1, window * window, c)
            q, k, v = self.qkv(y).view(len(y), -1, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
            scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-1, -2) + self.bias
            y = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(len(y), -1, c))
            y = y.view(b, h // window, w // window, window, window, c).transpose(2, 3).reshape(b, h, w, c)
            x = x + (torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y)
            return x + self.down(F.gelu(self.up(self.b(x))))

    class Merge(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.join = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

        def forward(self, x):
            return self.join(self.norm(torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)))

    patches, layers = nn.Conv2d(3, width, 4, 4), []
    for level, depth in enumerate(size((2, 2, 6, 2), (2,))):
        layers += [Merge(width * 2 ** (level - 1))] if level else []
        layers += [Windowed(width * 2**level, heads * 2**level, window // 2 if i % 2 else 0) for i in range(depth)]
    top = width * 2 ** size(3, 0)
    model = nn.ModuleList([patches, nn.Sequential(*layers), nn.LayerNorm(top), nn.Linear(top, 1000)]).to(more.DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(i):
        x = randn(size(48, 2), 3, size(224, 64), size(224, 64))
        with autocast():
            y = model[3](model[2](model[1](model[0](x).permute(0, 2, 3, 1))).mean((1, 2)))
            loss = F.cross_entropy(y, ids(len(x), most=1000))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


@program
def video_network_bf16():
    """A residual network of volumes, for clips of 16 frames."""

    class Block(nn.Module):
        def __init__(self, into, out, stride):
            super().__init__()
            self.body = nn.Sequential(nn.Conv3d(into, out, 3, stride, 1, bias=False), nn.BatchNorm3d(out), nn.ReLU(inplace=True), nn.Conv3d(out, out, 3, 1, 1, bias=False), nn.BatchNorm3d(out))
            self.skip = nn.Sequential(nn.Conv3d(into, out, 1, stride, bias=False), nn.BatchNorm3d(out)) if into != out else nn.Identity()

        def forward(self, x):
            return F.relu(self.body(x) + self.skip(x), inplace=True)

    w = size(64, 8)
    model = nn.Sequential(
        nn.Conv3d(3, w, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False), nn.BatchNorm3d(w), nn.ReLU(inplace=True), Block(w, w, 1), Block(w, 2 * w, 2), Block(2 * w, 4 * w, 2), Block(4 * w, 8 * w, 2),
        nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8 * w, 400),
    ).to(more.DEVICE)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)

    def step(i):
        x = randn(size(8, 1), 3, size(16, 4), size(112, 32), size(112, 32))
        with autocast():
            loss = F.cross_entropy(model(x), ids(len(x), most=400))
        update(optimizer, loss)

    return step


@program
def wasserstein_clipped():
    """A generator of 128 x 128 images and a critic with clipped weights, three steps of the critic for one of the generator."""
    w = size(64, 8)
    made = []
    for i, (into, out) in enumerate(((100, 16 * w), (16 * w, 8 * w), (8 * w, 4 * w), (4 * w, 2 * w), (2 * w, w))):
        made += [nn.ConvTranspose2d(into, out, 4, 1 if i == 0 else 2, 0 if i == 0 else 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(True)]
    generator = nn.Sequential(*made, nn.ConvTranspose2d(w, 3, 4, 2, 1), nn.Tanh()).to(more.DEVICE)
    seen = [nn.Conv2d(3, w, 4, 2, 1), nn.LeakyReLU(0.2, True)]
    for into, out in ((w, 2 * w), (2 * w, 4 * w), (4 * w, 8 * w), (8 * w, 16 * w)):
        seen += [nn.Conv2d(into, out, 4, 2, 1, bias=False), nn.InstanceNorm2d(out, affine=True), nn.LeakyReLU(0.2, True)]
    critic = nn.Sequential(*seen, nn.Conv2d(16 * w, 1, 4)).to(more.DEVICE)
    first, second = (torch.optim.RMSprop(one.parameters(), lr=5e-5) for one in (generator, critic))
    batch = size(128, 2)

    def step(i):
        for _ in range(3):
            second.zero_grad()
            with torch.no_grad():
                fake = generator(randn(batch, 100, 1, 1))
            (critic(fake).mean() - critic(randn(batch, 3, 128, 128)).mean()).backward()
            second.step()
            with torch.no_grad():
                for one in critic.parameters():
                    one.clamp_(-0.01, 0.01)
        first.zero_grad()
        (-critic(generator(randn(batch, 100, 1, 1))).mean()).backward()
        first.step()

    return step


# ---- sound ----


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.q, self.kv, self.out = heads, nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x, memory, mask=None, causal=False):
        split = lambda one: one.view(one.shape[0], one.shape[1], self.heads, -1).transpose(1, 2)  # noqa: E731
        k, v = self.kv(memory).chunk(2, -1)
        y = F.scaled_dot_product_attention(split(self.q(x)), split(k), split(v), attn_mask=mask, is_causal=causal)
        return self.out(y.transpose(1, 2).flatten(2))


class Coder(nn.Module):
    """A layer of an encoder, or of a decoder that looks at an encoder."""

    def __init__(self, width, heads, looks=False):
        super().__init__()
        self.own, self.look = Attention(width, heads), Attention(width, heads) if looks else None
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, memory=None, mask=None):
        y = self.norms[0](x)
        x = x + self.own(y, y, mask, self.look is not None)
        if self.look is not None:
            x = x + self.look(self.norms[1](x), memory)
        return x + self.down(F.gelu(self.up(self.norms[2](x))))


@program
def whisper_bf16():
    """Spectrograms through two convolutions and an encoder; a decoder writes the text."""
    width, heads, layers, vocab = size(512, 32), size(8, 2), size(6, 1), size(51865, 200)
    ears = nn.Sequential(nn.Conv1d(80, width, 3, padding=1), nn.GELU(), nn.Conv1d(width, width, 3, stride=2, padding=1), nn.GELU())
    encoder, decoder = (nn.ModuleList(Coder(width, heads, looks) for _ in range(layers)) for looks in (False, True))
    words, places, norm = nn.Embedding(vocab, width), nn.Parameter(torch.zeros(448, width)), nn.LayerNorm(width)
    model = nn.ModuleList([ears, encoder, decoder, words, norm]).to(more.DEVICE)
    model.register_parameter("places", nn.Parameter(places.data.to(more.DEVICE)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(i):
        sound, text = randn(size(16, 2), 80, size(3000, 64)), ids(size(16, 2), size(224, 16), most=vocab)
        with autocast():
            memory = ears(sound).transpose(1, 2)
            for layer in encoder:
                memory = layer(memory)
            y = words(text) + model.places[: text.shape[1]]
            for layer in decoder:
                y = layer(y, memory)
            loss = F.cross_entropy((norm(y) @ words.weight.t()).flatten(0, 1).float(), text.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


@program
def waves_fp32():
    """Raw sound through seven convolutions, a position from a grouped convolution, and an encoder that guesses what was masked."""
    w, width, heads, layers = size(512, 16), size(768, 32), size(12, 2), size(6, 1)
    parts, into = [], 1
    for i, (kernel, stride) in enumerate(((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))):
        parts += [nn.Conv1d(into, w, kernel, stride, bias=False), *([nn.GroupNorm(w, w)] if i == 0 else []), nn.GELU()]
        into = w
    ears, project, norm = nn.Sequential(*parts), nn.Linear(w, width), nn.LayerNorm(w)
    where, encoder = nn.Conv1d(width, width, 128, padding=64, groups=16), nn.ModuleList(Coder(width, heads) for _ in range(layers))
    guess, target = nn.Linear(width, 256), nn.Linear(w, 256)
    model = nn.ModuleList([ears, project, norm, where, encoder, guess, target]).to(more.DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step(i):
        sound = randn(size(8, 1), 1, size(160000, 8000))
        found = norm(ears(sound).transpose(1, 2))
        x = F.dropout(project(found), 0.1)
        x = x * (torch.rand(x.shape[:2], device=x.device) > 0.3)[..., None]
        x = x + F.gelu(where(x.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)
        for layer in encoder:
            x = layer(x)
        near = F.cosine_similarity(guess(x)[:, :, None], torch.stack([target(found).roll(n, 1) for n in range(0, 20, 2)], 2), -1) / 0.1
        F.cross_entropy(near.flatten(0, 1), torch.zeros(near.shape[0] * near.shape[1], dtype=torch.long, device=x.device)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


# ---- text ----


@program
def bert_padded_fp16():
    """Sentences of other lengths in each batch, with a mask of what is padding, float16 and a scaler."""
    width, heads, layers, vocab = size(768, 32), size(12, 2), size(8, 1), size(30522, 200)
    words, places, body, norm = nn.Embedding(vocab, width), nn.Embedding(512, width), nn.ModuleList(Coder(width, heads) for _ in range(layers)), nn.LayerNorm(width)
    head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, vocab))
    model = nn.ModuleList([words, places, body, norm, head]).to(more.DEVICE)
    optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=1e-4), torch.amp.GradScaler(more.DEVICE)

    def step(i):
        batch, length = size(24, 2), size((384, 512, 250), (16, 24, 20))[i % 3]
        text, lengths = ids(batch, length, most=vocab), ids(batch, most=length)
        mask = (torch.arange(length, device=more.DEVICE)[None] <= lengths[:, None])[:, None, None, :].expand(-1, -1, length, -1)
        with autocast(torch.float16):
            x = words(text) + places(torch.arange(length, device=more.DEVICE))
            for layer in body:
                x = layer(x, mask=mask)
            loss = F.cross_entropy(head(norm(x)).flatten(0, 1), text.flatten(), ignore_index=0)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


@program
def mixture_grouped_bf16():
    """Eight gated experts, each takes its best tokens; attention with grouped heads and rotated positions; all in bfloat16."""
    width, heads, pairs, layers, vocab, experts, hidden = size(1024, 32), size(16, 4), size(4, 2), size(4, 1), size(32000, 200), 8, size(1792, 32)
    each = width // heads

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(width, experts, bias=False)
            self.up, self.side, self.down = (nn.Parameter(torch.randn(experts, *shape) * 0.02) for shape in ((width, hidden), (width, hidden), (hidden, width)))

        def forward(self, x):
            flat = x.flatten(0, 1)
            share, chosen = self.gate(flat).float().softmax(-1).t().topk(len(flat) // 4, -1)
            given = flat[chosen]
            made = (F.silu(given @ self.up) * (given @ self.side)) @ self.down
            return torch.zeros_like(flat).index_add(0, chosen.flatten(), (made * share[..., None].to(made.dtype)).flatten(0, 1)).view_as(x)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.experts = nn.RMSNorm(width), nn.RMSNorm(width), Experts()
            self.q, self.kv, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * pairs * each, bias=False), nn.Linear(width, width, bias=False)

        def forward(self, x, turn):
            b, n, _ = x.shape
            y = self.a(x)
            q, (k, v) = self.q(y).view(b, n, heads, each).transpose(1, 2), self.kv(y).view(b, n, 2, pairs, each).permute(2, 0, 3, 1, 4)
            rotated = lambda one: one * turn[0] + torch.cat([-one[..., each // 2 :], one[..., : each // 2]], -1) * turn[1]  # noqa: E731
            y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
            x = x + self.out(y.transpose(1, 2).flatten(2))
            return x + self.experts(self.b(x))

    words, body, norm, head = nn.Embedding(vocab, width), nn.ModuleList(Layer() for _ in range(layers)), nn.RMSNorm(width), nn.Linear(width, vocab, bias=False)
    model = nn.ModuleList([words, body, norm, head]).to(more.DEVICE).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=more.DEVICE == "cuda")

    def step(i):
        text = ids(size(8, 2), size(1024, 16), most=vocab)
        angles = torch.outer(torch.arange(text.shape[1], device=more.DEVICE), 10000 ** -torch.linspace(0, 1, each // 2, device=more.DEVICE)).repeat(1, 2)
        turn, x = (angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)), words(text)
        for layer in body:
            x = layer(x, turn)
        F.cross_entropy(head(norm(x)).float().flatten(0, 1), text.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@program
def adapters_on_bytes():
    """Frozen weights of one byte each, multiplied out for each layer; adapters are trained, with checkpoints."""
    width, layers, vocab, rank = size(2048, 32), size(12, 1), size(32000, 200), size(16, 4)

    class Widened(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, packed, scale):
            ctx.save_for_backward(packed, scale)
            return x @ (packed.to(torch.bfloat16) * scale).t()

        @staticmethod
        def backward(ctx, grad):
            packed, scale = ctx.saved_tensors
            return grad @ (packed.to(torch.bfloat16) * scale), None, None

    class Adapted(nn.Module):
        def __init__(self, into, out):
            super().__init__()
            self.register_buffer("packed", torch.zeros(out, into, dtype=torch.int8))
            self.register_buffer("scale", torch.ones(out, 1, dtype=torch.bfloat16))
            self.a, self.b = nn.Parameter(torch.zeros(rank, into)), nn.Parameter(torch.zeros(out, rank))

        def forward(self, x):
            low = F.dropout(x, 0.05).to(self.a.dtype) @ self.a.t() @ self.b.t()
            return Widened.apply(x, self.packed, self.scale) + low.to(x.dtype)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.RMSNorm(width), nn.RMSNorm(width)
            self.qkv, self.out, self.up, self.side, self.down = Adapted(width, 3 * width), Adapted(width, width), Adapted(width, 3 * width), Adapted(width, 3 * width), Adapted(3 * width, width)

        def forward(self, x):
            b, n, _ = x.shape
            q, k, v = self.qkv(self.a(x)).view(b, n, 3, -1, width // 16).permute(2, 0, 3, 1, 4)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            y = self.b(x)
            return x + self.down(F.silu(self.up(y)) * self.side(y))

    words, body, head = nn.Embedding(vocab, width, dtype=torch.bfloat16).requires_grad_(False), nn.ModuleList(Layer() for _ in range(layers)), nn.Linear(width, vocab, bias=False, dtype=torch.bfloat16).requires_grad_(False)
    model = nn.ModuleList([words, body, head]).to(more.DEVICE)
    for layer in body:
        layer.a.to(torch.bfloat16).requires_grad_(False), layer.b.to(torch.bfloat16).requires_grad_(False)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-4)

    def step(i):
        text = ids(size(4, 1), size((1024, 700), (16, 12))[i % 2], most=vocab)
        x = words(text).requires_grad_()
        for layer in body:
            x = checkpoint(layer, x, use_reentrant=False)
        F.cross_entropy(head(x).float().flatten(0, 1), text.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


# ---- tables ----


@program
def clicks_with_tables():
    """26 tables of different sizes, products of all pairs of their rows, and layers above; the tables are trained with SGD, the rest with Adam."""
    width, batch = size(64, 8), size(16384, 16)
    counts = [size(int(1000 * 1.35**n), 50) for n in range(26)]
    tables = nn.ModuleList(nn.EmbeddingBag(n, width, mode="sum") for n in counts).to(more.DEVICE)

    def layers(*widths):
        return nn.Sequential(*(part for a, b in zip(widths, widths[1:]) for part in (nn.Linear(a, b), nn.ReLU()))).to(more.DEVICE)

    numbers, above = layers(13, 512, 256, width), nn.Sequential(layers(width + 27 * 26 // 2, 1024, 1024, 512), nn.Linear(512, 1)).to(more.DEVICE)
    slow, fast = torch.optim.SGD(tables.parameters(), lr=0.1), torch.optim.Adam([*numbers.parameters(), *above.parameters()], lr=1e-3)
    rows, columns = torch.tril_indices(27, 27, -1, device=more.DEVICE)

    def step(i):
        x = [numbers(randn(batch, 13))] + [table(ids(batch, 4, most=n)) for table, n in zip(tables, counts)]
        every = torch.stack(x, 1)
        products = torch.bmm(every, every.transpose(1, 2))[:, rows, columns]
        found = above(torch.cat([x[0], products], 1)).squeeze(1)
        F.binary_cross_entropy_with_logits(found, (torch.rand(batch, device=more.DEVICE) > 0.5).float()).backward()
        for one in (slow, fast):
            one.step()
            one.zero_grad()

    return step
