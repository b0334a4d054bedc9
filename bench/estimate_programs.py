"""The programs of gpu_estimate_bench.py: common models with the ways people train and run them.

CASES has a function for each. It makes its model on DEVICE and returns a function that runs step i.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

DEVICE = "cuda"


# ---- models ----


class Attention(nn.Module):
    """Causal or full attention; kind "sdpa" or "eager"; grouped heads as Llama has them."""

    def __init__(self, width, heads, kv_heads=None, causal=True, kind="sdpa", bias=True, dropout=0.0):
        super().__init__()
        self.heads, self.kv, self.causal, self.kind, self.drop = heads, kv_heads or heads, causal, kind, dropout
        self.size = width // heads
        self.q = nn.Linear(width, width, bias=bias)
        self.k = nn.Linear(width, self.kv * self.size, bias=bias)
        self.v = nn.Linear(width, self.kv * self.size, bias=bias)
        self.o = nn.Linear(width, width, bias=bias)

    def forward(self, x, memory=None, cache=None, bias=None, rotary=None):
        b, n, w = x.shape
        source = x if memory is None else memory
        q = self.q(x).view(b, n, self.heads, self.size).transpose(1, 2)
        k = self.k(source).view(b, -1, self.kv, self.size).transpose(1, 2)
        v = self.v(source).view(b, -1, self.kv, self.size).transpose(1, 2)
        if rotary is not None:
            q, k = rotate(q, rotary), rotate(k, rotary)
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            cache[:] = [k, v]
        if self.kv != self.heads:
            k, v = k.repeat_interleave(self.heads // self.kv, 1), v.repeat_interleave(self.heads // self.kv, 1)
        if self.kind == "sdpa":
            y = F.scaled_dot_product_attention(
                q, k, v, attn_mask=bias, is_causal=self.causal and n > 1 and bias is None, dropout_p=self.drop if self.training else 0.0
            )
        else:
            scores = q @ k.transpose(-1, -2) / self.size**0.5
            if bias is not None:
                scores = scores + bias
            if self.causal and n > 1:
                scores = scores.masked_fill(torch.ones(n, k.shape[2], dtype=torch.bool, device=x.device).triu(1), float("-inf"))
            y = F.dropout(scores.softmax(-1), self.drop, self.training) @ v
        return self.o(y.transpose(1, 2).reshape(b, n, w))


def rotate(x, angles):
    a, b = x.chunk(2, -1)
    cos, sin = angles[0][: x.shape[2]], angles[1][: x.shape[2]]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, width, heads, dropout=0.0, **kw):
        super().__init__()
        self.a, self.b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout=dropout, **kw)
        self.up, self.down, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(dropout)

    def forward(self, x, cache=None):
        x = x + self.drop(self.attention(self.a(x), cache=cache))
        return x + self.drop(self.down(F.gelu(self.up(self.b(x)))))


class GPT(nn.Module):
    def __init__(self, layers=8, width=768, heads=12, vocab=32000, length=2048, ckpt=False, **kw):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, **kw) for _ in range(layers))
        self.norm, self.head, self.ckpt = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False), ckpt

    def forward(self, ids, caches=None, at=0):
        x = self.tokens(ids) + self.places(torch.arange(at, at + ids.shape[1], device=ids.device))
        for i, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if self.ckpt else block(x, caches[i] if caches is not None else None)
        return self.head(self.norm(x))


class RMS(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        return self.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv, hidden):
        super().__init__()
        self.a, self.b = RMS(width), RMS(width)
        self.attention = Attention(width, heads, kv, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, rotary, cache=None):
        x = x + self.attention(self.a(x), rotary=rotary, cache=cache)
        y = self.b(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers=8, width=1024, heads=16, kv=4, hidden=2816, vocab=32000, ckpt=False):
        super().__init__()
        self.tokens, self.norm = nn.Embedding(vocab, width), RMS(width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, kv, hidden) for _ in range(layers))
        self.head, self.ckpt, self.size = nn.Linear(width, vocab, bias=False), ckpt, width // heads

    def forward(self, ids, caches=None, at=0):
        x = self.tokens(ids)
        steps = torch.arange(at, at + ids.shape[1], device=ids.device).float()
        angles = torch.outer(steps, 1e4 ** (-torch.arange(0, self.size, 2, device=ids.device).float() / self.size))
        rotary = (angles.cos(), angles.sin())
        for i, block in enumerate(self.blocks):
            x = checkpoint(block, x, rotary, use_reentrant=False) if self.ckpt else block(x, rotary, caches[i] if caches is not None else None)
        return self.head(self.norm(x))


class Lora(nn.Module):
    def __init__(self, base, rank=16):
        super().__init__()
        self.base = base
        kw = {"device": base.weight.device, "dtype": base.weight.dtype}
        self.a = nn.Parameter(torch.randn(rank, base.in_features, **kw) * 0.01)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank, **kw))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.a), self.b)


def with_lora(model):
    for one in model.parameters():
        one.requires_grad_(False)
    for block in model.blocks:
        block.attention.q, block.attention.v = Lora(block.attention.q), Lora(block.attention.v)
    return model


class Bottleneck(nn.Module):
    def __init__(self, into, width, stride):
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(into, width, 1, bias=False), nn.BatchNorm2d(width)
        self.c2, self.n2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.c3, self.n3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.short = None
        if stride != 1 or into != 4 * width:
            self.short = nn.Sequential(nn.Conv2d(into, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = F.relu(self.n1(self.c1(x)), inplace=True)
        y = F.relu(self.n2(self.c2(y)), inplace=True)
        y = self.n3(self.c3(y))
        y += x if self.short is None else self.short(x)
        return F.relu(y, inplace=True)


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        parts, into = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                parts.append(Bottleneck(into, width, stride if i == 0 else 1))
                into = 4 * width
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        self.body, self.head = nn.Sequential(*parts), nn.Linear(2048, 1000)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean((2, 3)))


class Double(nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(into, out, 3, padding=1), nn.GroupNorm(8, out), nn.SiLU(), nn.Conv2d(out, out, 3, padding=1), nn.GroupNorm(8, out), nn.SiLU()
        )

    def forward(self, x):
        return self.body(x)


class UNet(nn.Module):
    def __init__(self, width=64, ckpt=False):
        super().__init__()
        w = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList([Double(3, w[0]), Double(w[0], w[1]), Double(w[1], w[2]), Double(w[2], w[3])])
        self.up = nn.ModuleList([nn.ConvTranspose2d(w[i + 1], w[i], 2, 2) for i in (2, 1, 0)])
        self.join = nn.ModuleList([Double(2 * w[i], w[i]) for i in (2, 1, 0)])
        self.out, self.ckpt = nn.Conv2d(w[0], 3, 1), ckpt

    def _run(self, part, x):
        return checkpoint(part, x, use_reentrant=False) if self.ckpt else part(x)

    def forward(self, x):
        kept = []
        for i, part in enumerate(self.down):
            x = self._run(part, x)
            if i < 3:
                kept.append(x)
                x = F.max_pool2d(x, 2)
        for up, join in zip(self.up, self.join):
            x = self._run(join, torch.cat([up(x), kept.pop()], 1))
        return self.out(x)


class T5Block(nn.Module):
    def __init__(self, width, heads, decoder):
        super().__init__()
        self.n1, self.n2, self.n3 = RMS(width), RMS(width), RMS(width)
        self.own = Attention(width, heads, causal=decoder, kind="eager", bias=False, dropout=0.1)
        self.cross = Attention(width, heads, causal=False, kind="eager", bias=False, dropout=0.1) if decoder else None
        self.up, self.down, self.drop = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False), nn.Dropout(0.1)

    def forward(self, x, bias, memory=None):
        x = x + self.drop(self.own(self.n1(x), bias=bias))
        if self.cross is not None:
            x = x + self.drop(self.cross(self.n2(x), memory=memory))
        return x + self.drop(self.down(self.drop(F.relu(self.up(self.n3(x))))))


class T5(nn.Module):
    def __init__(self, layers=6, width=512, heads=8, vocab=32000):
        super().__init__()
        self.tokens, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab, bias=False)
        self.near = nn.Embedding(32, heads)
        self.encoder = nn.ModuleList(T5Block(width, heads, False) for _ in range(layers))
        self.decoder = nn.ModuleList(T5Block(width, heads, True) for _ in range(layers))

    def _bias(self, n, device):
        at = torch.arange(n, device=device)
        return self.near((at[None] - at[:, None]).clamp(-16, 15) + 16).permute(2, 0, 1)[None]

    def forward(self, ids, target):
        x, bias = self.tokens(ids), self._bias(ids.shape[1], ids.device)
        for block in self.encoder:
            x = block(x, bias)
        y, bias = self.tokens(target), self._bias(target.shape[1], ids.device)
        for block in self.decoder:
            y = block(y, bias, x)
        return self.head(y)


class ViT(nn.Module):
    def __init__(self, layers=12, width=768, heads=12, patch=16, ckpt=False, native=False):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        if native:  # PyTorch's own layer, over multi_head_attention_forward
            make = lambda: nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, batch_first=True, norm_first=True)  # noqa: E731
        else:
            make = lambda: Block(width, heads, causal=False)  # noqa: E731
        self.blocks = nn.ModuleList(make() for _ in range(layers))
        self.head, self.ckpt = nn.Linear(width, 1000), ckpt

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.ckpt else block(x)
        return self.head(x.mean(1))


class Lstm(nn.Module):
    def __init__(self, width=1024, layers=2, vocab=20000, both=False):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.body = nn.LSTM(width, width, layers, batch_first=True, bidirectional=both)
        self.head = nn.Linear(width * (2 if both else 1), vocab)

    def forward(self, ids):
        return self.head(self.body(self.tokens(ids))[0])


class MambaBlock(nn.Module):
    """A selective scan written with cumulative sums: gates from the input, a state per channel, a short causal convolution."""

    def __init__(self, width):
        super().__init__()
        inner = 2 * width
        self.norm, self.into, self.out = RMS(width), nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)
        self.conv = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.step, self.b, self.c = nn.Linear(inner, inner), nn.Linear(inner, 16, bias=False), nn.Linear(inner, 16, bias=False)

    def forward(self, x):
        y, gate = self.into(self.norm(x)).chunk(2, -1)
        y = F.silu(self.conv(y.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        step = F.softplus(self.step(y))
        decay = torch.cumsum(-step.float(), 1)
        state = torch.cumsum((y * step * torch.exp(-decay)), 1) * torch.exp(decay)
        mix = (self.b(y) * self.c(y)).sum(-1, keepdim=True)
        return x + self.out((state * mix).to(y.dtype) * F.silu(gate))


class Mamba(nn.Module):
    def __init__(self, layers=6, width=768, vocab=32000):
        super().__init__()
        self.tokens, self.norm = nn.Embedding(vocab, width), RMS(width)
        self.blocks, self.head = nn.ModuleList(MambaBlock(width) for _ in range(layers)), nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


# ---- programs: each makes its model and returns a function that runs step i ----


def ids(batch, length, vocab=20000):
    return torch.randint(0, vocab, (batch, length), device=DEVICE)


def next_token(model, i, batch, length):
    b, n = shape(i, batch, length)
    x = ids(b, n)
    return F.cross_entropy(model(x).flatten(0, 1), x.flatten())


def shape(i, batch, length):
    """Returns the shape of step i: a list has one value per step, used in turn."""
    return (batch[i % len(batch)] if isinstance(batch, list) else batch), (length[i % len(length)] if isinstance(length, list) else length)


def images(model, i, batch, size):
    b, n = shape(i, batch, size)
    return F.cross_entropy(model(torch.randn(b, 3, n, n, device=DEVICE)), torch.randint(0, 1000, (b,), device=DEVICE))


def dense(model, i, batch, size):
    b, n = shape(i, batch, size)
    x = torch.randn(b, 3, n, n, device=DEVICE)
    return F.mse_loss(model(x), x)


def pairs(model, i, batch, length):
    b, n = shape(i, batch, length)
    y = ids(b, max(16, n // 2))
    return F.cross_entropy(model(ids(b, n), y).flatten(0, 1), y.flatten())


def train(model_fn, loss, batch, length, optimizer="adamw", amp=None, accumulate=1, clip=False, dtype=None, last=False, **kw):
    def make():
        model = model_fn().to(DEVICE)
        if dtype is not None:
            model = model.to(dtype)
        if last:
            model = model.to(memory_format=torch.channels_last)
        model.train()
        parameters = [one for one in model.parameters() if one.requires_grad]
        made = torch.optim.AdamW(parameters, lr=1e-4, **kw) if optimizer == "adamw" else torch.optim.SGD(parameters, lr=0.1, momentum=0.9, **kw)
        scaler = torch.amp.GradScaler("cuda") if amp is torch.float16 else None

        def step(i):
            for part in range(accumulate):
                with torch.autocast("cuda", dtype=amp or torch.bfloat16, enabled=amp is not None):
                    found = loss(model, i * accumulate + part, batch, length)
                (scaler.scale(found) if scaler else found).backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            if scaler:
                scaler.step(made)
                scaler.update()
            else:
                made.step()
            made.zero_grad(set_to_none=True)

        return step

    return make


def infer(model_fn, call, batch, length, dtype=None, amp=None):
    def make():
        model = model_fn().to(DEVICE).eval()
        if dtype is not None:
            model = model.to(dtype)

        def step(i):
            with torch.no_grad(), torch.autocast("cuda", dtype=amp or torch.bfloat16, enabled=amp is not None):
                call(model, i, batch, length)

        return step

    return make


def generate(model_fn, batch, prompt, new, dtype):
    def make():
        model = model_fn().to(DEVICE).eval().to(dtype)

        def step(i):
            with torch.no_grad():
                caches = [[] for _ in model.blocks]
                x = ids(*shape(i, batch, prompt))
                at = 0
                for _ in range(new):
                    out = model(x, caches, at)
                    at += x.shape[1]
                    x = out[:, -1:].argmax(-1)

        return step

    return make


BF, HF = torch.bfloat16, torch.float16
half_images = lambda m, i, b, n: m(torch.randn(b, 3, n, n, device=DEVICE, dtype=next(m.parameters()).dtype))  # noqa: E731
tokens = lambda m, i, b, n: m(ids(*shape(i, b, n)))  # noqa: E731


def lora_model(**kw):
    return lambda: with_lora(Llama(**kw).to(DEVICE).to(BF))


CASES = {
    "gpt_fp32_sgd": train(GPT, next_token, 8, 512, "sgd"),
    "gpt_fp32_adamw": train(GPT, next_token, 4, 1024),
    "gpt_fp32_adamw_long": train(GPT, next_token, 2, 2048),
    "gpt_bf16_adamw": train(GPT, next_token, 16, 512, amp=BF),
    "gpt_bf16_sgd": train(GPT, next_token, 8, 1024, "sgd", amp=BF),
    "gpt_bf16_ckpt": train(lambda: GPT(layers=12, ckpt=True), next_token, 16, 1024, amp=BF),
    "gpt_fp32_ckpt_sgd": train(lambda: GPT(layers=12, ckpt=True), next_token, 8, 512, "sgd"),
    "gpt_fp16_scaler": train(GPT, next_token, 8, 1024, amp=HF),
    "gpt_bf16_accumulate": train(GPT, next_token, [4, 8, 4], 768, amp=BF, accumulate=3),
    "gpt_bf16_varlen": train(GPT, next_token, [8, 12, 4], [512, 300, 1111], amp=BF),
    "gpt_fp32_varlen": train(GPT, next_token, [4, 6, 2], [400, 713, 1500]),
    "gpt_bf16_fused": train(GPT, next_token, 8, 512, amp=BF, fused=True),
    "gpt_bf16_no_foreach": train(GPT, next_token, 8, 512, amp=BF, foreach=False),
    "gpt_bf16_eager_dropout": train(lambda: GPT(kind="eager", dropout=0.1), next_token, 8, 512, amp=BF),
    "gpt_fp32_clip": train(GPT, next_token, 4, 512, clip=True),
    "gpt_pure_bf16": train(GPT, next_token, 8, 1024, dtype=BF),
    "gpt_infer_fp32": infer(GPT, tokens, 16, 1024),
    "gpt_infer_bf16": infer(GPT, tokens, 32, [1024, 777, 1500], dtype=BF),
    "gpt_generate_fp16": generate(lambda: GPT(layers=12), [16, 32], [64, 200], 12, HF),
    "llama_lora": train(lora_model(), next_token, 4, 1024),
    "llama_lora_varlen": train(lora_model(layers=12), next_token, [4, 8, 2], [512, 300, 1700]),
    "llama_lora_ckpt": train(lora_model(layers=12, ckpt=True), next_token, 8, 1024),
    "llama_fp32_adamw": train(Llama, next_token, 4, 512),
    "llama_bf16_sgd": train(Llama, next_token, 8, 512, "sgd", amp=BF),
    "llama_infer_bf16": infer(lambda: Llama(layers=16), tokens, 16, 1024, dtype=BF),
    "llama_generate_bf16": generate(lambda: Llama(layers=16), 32, [128, 300], 12, BF),
    "resnet_fp32_sgd": train(ResNet50, images, 64, 224, "sgd"),
    "resnet_fp32_adamw_small": train(ResNet50, images, 32, 160),
    "resnet_bf16_sgd": train(ResNet50, images, 128, 224, "sgd", amp=BF),
    "resnet_bf16_last": train(ResNet50, images, 128, 224, "sgd", amp=BF, last=True),
    "resnet_fp32_sizes": train(ResNet50, images, [32, 64, 48], [288, 160, 224], "sgd"),
    "resnet_infer_fp32": infer(ResNet50, half_images, 128, 224),
    "resnet_infer_fp16": infer(ResNet50, half_images, 256, 224, dtype=HF),
    "unet_fp32_adamw": train(UNet, dense, 8, 256),
    "unet_bf16_adamw": train(UNet, dense, 16, 256, amp=BF),
    "unet_fp32_ckpt": train(lambda: UNet(ckpt=True), dense, 8, 256),
    "unet_infer_fp32": infer(UNet, half_images, 16, 256),
    "t5_fp32_adamw": train(T5, pairs, 8, 512),
    "t5_bf16_adamw": train(T5, pairs, 16, 512, amp=BF),
    "t5_bf16_varlen": train(T5, pairs, [16, 8, 12], [300, 700, 450], amp=BF),
    "vit_fp32_sgd": train(ViT, images, 32, 224, "sgd"),
    "vit_bf16_adamw": train(ViT, images, 64, 224, amp=BF),
    "vit_bf16_ckpt": train(lambda: ViT(ckpt=True), images, 128, 224, amp=BF),
    "vit_native_bf16": train(lambda: ViT(native=True), images, 32, 224, amp=BF),
    "vit_infer_fp16": infer(ViT, half_images, 128, 224, dtype=HF),
    "lstm_fp32_adamw": train(Lstm, next_token, 32, 256),
    "lstm_bf16_adamw": train(Lstm, next_token, 64, 256, amp=BF),
    "lstm_both_sgd": train(lambda: Lstm(both=True), next_token, 32, 256, "sgd"),
    "mamba_fp32_adamw": train(Mamba, next_token, 4, 512),
    "mamba_bf16_adamw": train(Mamba, next_token, 8, 512, amp=BF),
    "mamba_infer_fp32": infer(Mamba, tokens, 16, 512),
}


def add_transformers():
    """Adds programs over transformers, if it is installed."""
    try:
        from transformers import BartConfig, BartForConditionalGeneration, BertConfig, BertForMaskedLM
        from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration
    except Exception as reason:
        print(f"# no transformers here: {type(reason).__name__}: {reason}"[:200])
        return

    def hf_loss(model, i, batch, length):
        x = ids(*shape(i, batch, length))
        return model(input_ids=x, labels=x).loss

    gpt2 = lambda: GPT2LMHeadModel(GPT2Config(n_embd=768, n_layer=8, n_head=12, attn_implementation="eager"))  # noqa: E731
    llama = lambda: LlamaForCausalLM(  # noqa: E731
        LlamaConfig(hidden_size=1024, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4, intermediate_size=2816, attn_implementation="sdpa")
    )
    t5 = lambda: T5ForConditionalGeneration(  # noqa: E731
        T5Config(decoder_start_token_id=0, pad_token_id=0, d_model=512, d_ff=2048, num_layers=6, num_heads=8, vocab_size=32128)
    )
    CASES["hf_gpt2_bf16"] = train(gpt2, hf_loss, [8, 4, 6], [512, 900, 333], amp=BF)
    CASES["hf_llama_bf16"] = train(llama, hf_loss, 4, 1024, amp=BF)
    CASES["hf_llama_pure_bf16"] = train(llama, hf_loss, [4, 2], [512, 1024], dtype=BF)
    CASES["hf_t5_bf16"] = train(t5, hf_loss, [8, 4], [512, 300], amp=BF)
    bart = lambda: BartForConditionalGeneration(BartConfig(d_model=512, encoder_layers=6, decoder_layers=6, encoder_ffn_dim=2048, decoder_ffn_dim=2048))  # noqa: E731
    bert = lambda: BertForMaskedLM(BertConfig(num_hidden_layers=8))  # noqa: E731
    CASES["hf_bart_bf16"] = train(bart, hf_loss, [8, 4], [512, 300], amp=BF)
    CASES["hf_bert_fp32"] = train(bert, hf_loss, 16, 384)

    def saving():
        model = llama()
        model.gradient_checkpointing_enable()
        return model

    CASES["hf_llama_ckpt_bf16"] = train(saving, hf_loss, 8, 1024, amp=BF)

    def writing(model_fn, batch, prompt, new):
        def make():
            model = model_fn().to(DEVICE).to(BF).eval()

            def step(i):
                x = ids(*shape(i, batch, prompt))
                model.generate(x, attention_mask=torch.ones_like(x), min_new_tokens=new, max_new_tokens=new, do_sample=False, pad_token_id=0)

            return step

        return make

    CASES["hf_llama_generate"] = writing(llama, [16, 8], [200, 500], 16)
    CASES["hf_t5_generate"] = writing(t5, 16, 300, 16)
    try:
        from peft import LoraConfig, get_peft_model
    except Exception as reason:
        print(f"# no peft here: {type(reason).__name__}: {reason}"[:200])
        return
    adapted = lambda: get_peft_model(llama(), LoraConfig(r=16, target_modules=["q_proj", "v_proj"], lora_dropout=0.05))  # noqa: E731
    CASES["peft_lora_bf16"] = train(adapted, hf_loss, 8, 512, amp=BF)
