"""Programs that are larger than a limit: what `stowage run --spill` is measured with.

usage: gpu_spill.py NAME [STEPS]. Prints one JSON line: milliseconds of each step, a digest of the results, peak live bytes.
Each is written as users write such programs; none uses Stowage.
"""
import hashlib
import json
import os
import sys
import time

name = sys.argv[1]
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 12


def report(times, values, peak):
    digest = hashlib.sha256(repr(values).encode()).hexdigest()[:16]
    print(json.dumps(dict(name=name, ms=[round(t, 1) for t in times], digest=digest, values=[float(f'{v:.7g}') for v in values], peak_gib=round(peak / 2**30, 2))),
          flush=True)


def timed(step, sync):
    times, values = [], []
    for i in range(steps):
        sync()
        start = time.perf_counter()
        value = step(i)
        sync()
        times.append((time.perf_counter() - start) * 1000)
        values.append(value)
    return times, values


def run_torch(step):
    import torch
    times, values = timed(step, torch.cuda.synchronize)
    report(times, [float(v) for v in values], torch.cuda.max_memory_allocated())


def llama(layers=32):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(hidden_size=4096, num_hidden_layers=layers, intermediate_size=11008, num_attention_heads=32,
                                             num_key_value_heads=32, vocab_size=32000, max_position_embeddings=4096))
    model = model.to_empty(device="cuda")
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.02) if p.dim() > 1 else p.fill_(1)
        for n, b in model.named_buffers():
            if "inv_freq" in n:
                d = b.shape[0] * 2
                b.copy_(1.0 / (10000**(torch.arange(0, d, 2, device=b.device).float() / d)))
    return model.eval()


def prompt():
    """Runs a prompt of 512 tokens through a 7B model."""
    import torch
    model = llama()

    def step(i):
        x = torch.randint(0, 32000, (1, 512), generator=torch.Generator().manual_seed(i)).cuda()
        with torch.no_grad():
            return model(x).logits.float().abs().mean().item()

    run_torch(step)


def token():
    """Generates token after token with a 7B model: a step is eight tokens."""
    import torch
    model = llama()
    x = torch.randint(0, 32000, (1, 64), generator=torch.Generator().manual_seed(0)).cuda()

    def step(i):
        with torch.no_grad():
            return model.generate(x + i, max_new_tokens=8, do_sample=False, pad_token_id=0).sum().item()

    run_torch(step)


def finetune():
    """Trains all weights of a 774M model in float32 with AdamW."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(n_embd=1280, n_layer=36, n_head=20, n_positions=1024, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    model = model.cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(i):
        x = torch.randint(0, 50257, (4, 512), generator=torch.Generator().manual_seed(i)).cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=x, labels=x).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach().item()

    run_torch(step)


def vit():
    """Trains ViT-L/16 at 384, batch 64."""
    import torch
    import torchvision
    model = torchvision.models.vit_l_16(image_size=384).cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=.01)

    def step(i):
        x = torch.randn(64, 3, 384, 384, device="cuda", generator=torch.Generator("cuda").manual_seed(i))
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).float().logsumexp(1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach().item()

    run_torch(step)


def gpt_varlen():
    """Trains a 124M GPT in bfloat16 autocast; batch and length change in every step."""
    import random
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    random.seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_embd=768, n_layer=12, n_head=12, n_positions=2048, attn_implementation="eager"))
    model = model.cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(i):
        x = torch.randint(0, 50257, (random.choice([4, 8, 12, 16]), random.randrange(64, 1024)), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=x, labels=x).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach().item()

    run_torch(step)


def unet():
    """Runs a half-precision U-Net over one large image."""
    import torch
    from torch import nn

    def block(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b),
                             nn.ReLU())

    class Net(nn.Module):

        def __init__(self, width=48, depth=5):
            super().__init__()
            widths = [width * 2**i for i in range(depth)]
            self.down = nn.ModuleList([block(3 if i == 0 else widths[i - 1], widths[i]) for i in range(depth)])
            self.up = nn.ModuleList([nn.ConvTranspose2d(widths[i], widths[i - 1], 2, 2) for i in range(depth - 1, 0, -1)])
            self.join = nn.ModuleList([block(2 * widths[i - 1], widths[i - 1]) for i in range(depth - 1, 0, -1)])
            self.out = nn.Conv2d(width, 2, 1)

        def forward(self, x):
            kept = []
            for i, down in enumerate(self.down):
                x = down(x if i == 0 else nn.functional.max_pool2d(x, 2))
                kept.append(x)
            for up, join, skip in zip(self.up, self.join, kept[-2::-1]):
                x = join(torch.cat([up(x), skip], 1))
            return self.out(x)

    torch.manual_seed(0)
    net = Net().cuda().half().eval()

    def step(i):
        x = torch.randn(1, 3, 4096, 4096, device="cuda", dtype=torch.half, generator=torch.Generator("cuda").manual_seed(i))
        with torch.no_grad():
            return net(x).float().mean().item()

    run_torch(step)


def gan():
    """Trains two networks with their optimizers in turn."""
    import torch
    from torch import nn
    torch.manual_seed(0)

    def net(width, inputs, outputs):
        layers = [nn.Linear(inputs, width), nn.ReLU()]
        for _ in range(7):
            layers += [nn.Linear(width, width), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(width, outputs)).cuda()

    one, other = net(7168, 512, 3072), net(7168, 3072, 1)
    optimizers = [torch.optim.Adam(n.parameters(), lr=1e-5) for n in (one, other)]
    loss_of = nn.functional.binary_cross_entropy_with_logits

    def step(i):
        g = torch.Generator("cuda").manual_seed(i)
        z = torch.randn(4096, 512, device="cuda", generator=g)
        real = torch.randn(4096, 3072, device="cuda", generator=g)
        optimizers[1].zero_grad()
        d = loss_of(other(real), torch.ones(4096, 1, device="cuda")) + loss_of(other(one(z).detach()), torch.zeros(4096, 1, device="cuda"))
        d.backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        loss = loss_of(other(one(z)), torch.ones(4096, 1, device="cuda"))
        loss.backward()
        optimizers[0].step()
        return loss.detach().item()

    run_torch(step)


def lora():
    """Trains small matrices beside frozen weights."""
    import torch
    from torch import nn
    model = llama(12)
    model.train()
    trained = []
    for p in model.parameters():
        p.requires_grad_(False)
    torch.manual_seed(0)

    class Lora(nn.Module):

        def __init__(self, base):
            super().__init__()
            self.base = base
            self.a = nn.Parameter(torch.randn(8, base.in_features, device="cuda") * 0.01)
            self.b = nn.Parameter(torch.zeros(base.out_features, 8, device="cuda"))
            trained.extend([self.a, self.b])

        def forward(self, x):
            return self.base(x) + x @ self.a.T @ self.b.T

    for layer in model.model.layers:
        for part in ("q_proj", "v_proj"):
            setattr(layer.self_attn, part, Lora(getattr(layer.self_attn, part)))
    optimizer = torch.optim.AdamW(trained, lr=1e-4)

    def step(i):
        x = torch.randint(0, 32000, (2, 256), generator=torch.Generator().manual_seed(i)).cuda()
        loss = model(input_ids=x, labels=x).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach().item()

    run_torch(step)


def lstm():
    """Trains an LSTM: four layers of 1536, batch 256, 160 time steps."""
    import torch
    from torch import nn
    torch.manual_seed(0)
    net = nn.LSTM(1024, 1536, 4, batch_first=True).cuda()
    head = nn.Linear(1536, 10).cuda()
    optimizer = torch.optim.Adam(list(net.parameters()) + list(head.parameters()), lr=1e-4)

    def step(i):
        x = torch.randn(256, 160, 1024, device="cuda", generator=torch.Generator("cuda").manual_seed(i))
        loss = head(net(x)[0][:, -1]).logsumexp(1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach().item()

    run_torch(step)


def embedding():
    """Reads random rows of a table."""
    import torch
    torch.manual_seed(0)
    table = torch.randn(28_000_000, 64, device="cuda")

    def step(i):
        g = torch.Generator("cuda").manual_seed(i)
        rows = torch.randint(0, table.shape[0], (1 << 20,), device="cuda", generator=g)
        return table[rows].sum(0).mean().item()

    run_torch(step)


def jax_mlp():
    """JAX: computes value and gradient of a residual network of 24 layers."""
    import jax
    import jax.numpy as jnp

    def init(key):
        return [jax.random.normal(k, (4096, 4096), jnp.float32) * 0.01 for k in jax.random.split(key, 24)]

    def loss(parameters, x):
        for w in parameters:
            x = x + jnp.tanh(x @ w)
        return jnp.mean(x * x)

    parameters = init(jax.random.PRNGKey(0))
    grad = jax.jit(jax.value_and_grad(loss))
    update = jax.jit(lambda p, g: jax.tree_util.tree_map(lambda a, b: a - 1e-3 * b, p, g), donate_argnums=0)
    state = dict(p=parameters)

    def step(i):
        x = jax.random.normal(jax.random.PRNGKey(i), (4096, 4096), jnp.float32)
        value, g = grad(state["p"], x)
        state["p"] = update(state["p"], g)
        return float(value)

    times, values = timed(step, lambda: jax.block_until_ready(state["p"]))
    report(times, values, jax.local_devices()[0].memory_stats()["peak_bytes_in_use"])


def cupy():
    """CuPy: multiplies matrices that together are larger than the limit."""
    import cupy as cp
    cp.random.seed(0)
    matrices = [cp.random.standard_normal((12288, 12288), dtype=cp.float32) * 0.01 for _ in range(14)]

    def step(i):
        x = matrices[i % 14][:, :4096].copy()
        for m in matrices:
            x = m @ x
            x /= cp.abs(x).max()
        return float(cp.abs(x).mean())

    times, values = timed(step, cp.cuda.Device().synchronize)
    report(times, values, cp.get_default_memory_pool().used_bytes())


if name not in ("jax_mlp", "cupy"):
    import torch
    torch.manual_seed(0)
globals()[name]()
