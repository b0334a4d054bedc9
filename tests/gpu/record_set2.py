#!/usr/bin/env python3
"""The second set: programs that run out of memory, each for a known cause, to test `stowage explain` on programs that its rules were
not written for. Other models, idioms and shapes than record_causes.py, written without looking at the rules.

usage: record_set2.py FOLDER [NAME...]      (needs torch and one device; uses transformers and cupy where they are; see record_causes.py)
"""
import contextlib, copy, os, sys, tempfile

import torch
from torch import nn
from torch.nn import functional as F

import record_causes as base
from record_causes import MIB, came_to, driver_alloc, limit, optimizer_of, weight_bytes

DEVICE = "cuda"
try:
    import transformers
    from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration, ViTConfig, ViTForImageClassification
    transformers.PreTrainedModel._init_weights = lambda self, module: None  # the numbers do not matter
except Exception:
    transformers = None


def turns(count):
    return range(count)


def used():
    return torch.cuda.max_memory_allocated()


# ---- models ------------------------------------------------------------------------------------------------------------
class Patches(nn.Module):
    """A vision transformer, by hand."""

    def __init__(self, width=384, depth=6, classes=100):
        super().__init__()
        self.cut = nn.Conv2d(3, width, 8, 8)
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 6, 4 * width, batch_first=True), depth)
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        return self.head(self.body(self.cut(images).flatten(2).transpose(1, 2)).mean(1))


def vision(width=384, depth=6):
    if transformers:
        net = ViTForImageClassification(ViTConfig(hidden_size=width, num_hidden_layers=depth, num_attention_heads=6, image_size=96,
                                                  patch_size=8, intermediate_size=4 * width, num_labels=100))
        return net, lambda x: net(x).logits
    net = Patches(width, depth)
    return net, net


def language(width=384, depth=6, words=6000, length=512):
    """A causal language model; ids -> loss."""
    if transformers:
        net = GPT2LMHeadModel(GPT2Config(vocab_size=words, n_positions=length, n_embd=width, n_layer=depth, n_head=width // 64))
        return net, lambda ids: net(ids, labels=ids).loss
    net = base.Transformer(width, depth, words)
    return net, lambda ids: F.cross_entropy(net(ids).flatten(0, 1), ids.flatten())


class Resample(nn.Module):
    """A diffusion network: residual blocks, attention in the middle."""

    def __init__(self, width=96):
        super().__init__()
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        self.down1, self.down2 = self.block(width, 2 * width), self.block(2 * width, 4 * width)
        self.look = nn.MultiheadAttention(4 * width, 4, batch_first=True)
        self.up2, self.up1 = self.block(6 * width, 2 * width), self.block(3 * width, width)
        self.leave = nn.Conv2d(width, 4, 3, padding=1)

    @staticmethod
    def block(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(8, b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1), nn.SiLU())

    def forward(self, x, t):
        a = self.enter(x) + t[:, None, None, None]
        b = self.down1(F.avg_pool2d(a, 2))
        c = self.down2(F.avg_pool2d(b, 2))
        n, w, h, _ = c.shape
        flat = c.flatten(2).transpose(1, 2)
        c = c + self.look(flat, flat, flat, need_weights=False)[0].transpose(1, 2).reshape(n, w, h, -1)
        b = self.up2(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1))
        return self.leave(self.up1(torch.cat([F.interpolate(b, scale_factor=2.0), a], 1)))


class Generator(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.net = nn.Sequential(nn.ConvTranspose2d(64, width, 4), nn.BatchNorm2d(width), nn.ReLU(True),
                                 nn.ConvTranspose2d(width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(True),
                                 nn.ConvTranspose2d(width, width // 2, 4, 2, 1), nn.BatchNorm2d(width // 2), nn.ReLU(True),
                                 nn.ConvTranspose2d(width // 2, 3, 4, 2, 1), nn.Tanh())

    def forward(self, z):
        return self.net(z[:, :, None, None])


def critic(width=128):
    return nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2),
                         nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(4 * width * 16, 1))


class Policy(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.see = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Flatten(),
                                 nn.Linear(64 * 81, width), nn.ReLU())
        self.act, self.value = nn.Linear(width, 6), nn.Linear(width, 1)

    def forward(self, frames):
        seen = self.see(frames)
        return self.act(seen), self.value(seen)


def images(n, side=96):
    return torch.rand(n, 3, side, side, device=DEVICE)


def tokens(n, length=128, words=6000):
    return torch.randint(0, words, (n, length), device=DEVICE)


# ---- trainers ----------------------------------------------------------------------------------------------------------
class LitModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.model, self.call = vision()

    def training_step(self, batch, index):
        x, y = batch
        return F.cross_entropy(self.call(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


class Trainer:
    """The shape of a training framework: the loop is far from the user's step."""

    def __init__(self, epochs=1):
        self.epochs = epochs

    def fit(self, module, loader):
        module.to(DEVICE)
        self.optimizer = module.configure_optimizers()
        for _ in range(self.epochs):
            self.run_epoch(module, loader)

    def run_epoch(self, module, loader):
        for index, batch in enumerate(loader):
            loss = module.training_step(batch, index)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


class HfTrainer:
    """…and of another: arguments, compute_loss, training_step, evaluate."""

    def __init__(self, model, loss, optimizer, eval_every=0, eval_size=8, eval_length=128, grad_in_eval=False):
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.eval_every, self.eval_size, self.eval_length, self.grad_in_eval = eval_every, eval_size, eval_length, grad_in_eval
        self.predictions = []

    def compute_loss(self, inputs):
        return self.loss(inputs)

    def training_step(self, inputs):
        self.model.train()
        loss = self.compute_loss(inputs)
        loss.backward()
        return loss.detach()

    def evaluation_loop(self):
        self.model.eval()
        with contextlib.nullcontext() if self.grad_in_eval else torch.no_grad():
            losses = [self.compute_loss(tokens(self.eval_size, self.eval_length)) for _ in turns(2)]
        return sum(losses) / len(losses)

    def train(self, steps, size=8, length=128):
        for step in turns(steps):
            self.training_step(tokens(size, length))
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if self.eval_every and step % self.eval_every == self.eval_every - 1:
                self.evaluation_loop()


# ---- weights -----------------------------------------------------------------------------------------------------------
def experts_on_device(kind, fixed):
    def expert():
        one = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024))
        return one.half() if fixed else one

    limit(16 * 33.6 * MIB * 0.7)
    experts = nn.ModuleList([expert().to(DEVICE) for _ in range(16)])
    return experts


def from_meta(kind, fixed):
    with torch.device("meta"):
        net = language(1024, 12, 30000)[0]
    if fixed:
        net = net.half()
    limit(sum(p.numel() for p in net.parameters()) * 4 * 0.75)
    net.to_empty(device=DEVICE)


def many_layers(kind, fixed):
    layers = nn.Sequential(*[nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(40)])
    limit(weight_bytes(layers) * 0.7)
    if fixed:
        layers = layers.half()
    return layers.to(DEVICE)


# ---- batch -------------------------------------------------------------------------------------------------------------
def lightning_fit(kind, fixed, size=1024):
    limit(1900 * MIB)
    size //= fixed or 1
    loader = [(images(size), torch.zeros(size, dtype=torch.long, device=DEVICE)) for _ in range(2)]
    Trainer().fit(LitModule(), loader)


def diffusion_sizes(kind, fixed):
    net = Resample().to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    limit(1600 * MIB)

    def step(side, size=16):
        clean = torch.randn(size, 4, side, side, device=DEVICE)
        t = torch.rand(len(clean), device=DEVICE)
        noise = torch.randn_like(clean)
        loss = F.mse_loss(net(clean + noise * t[:, None, None, None], t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    sides = [16, 16, 32, 32, 64, 64, 128, 256]
    for side in came_to(sides, step) if fixed else sides:  # …as far as it came
        step(side, max(16 // (fixed or 1), 1))


def adversarial(kind, fixed, size=2048):
    make, judge = Generator().to(DEVICE), critic().to(DEVICE)
    opt_g, opt_d = torch.optim.Adam(make.parameters(), 2e-4), torch.optim.Adam(judge.parameters(), 2e-4)
    limit(1500 * MIB)
    size //= fixed or 1
    for _ in turns(3):
        real, noise = images(size, 32), torch.randn(size, 64, device=DEVICE)
        fake = make(noise)
        loss_d = F.softplus(judge(fake.detach())).mean() + F.softplus(-judge(real)).mean()
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
        loss_g = F.softplus(-judge(fake)).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()


class Lora(nn.Module):
    def __init__(self, linear, rank=8):
        super().__init__()
        self.linear, self.down, self.up = linear, nn.Linear(linear.in_features, rank, bias=False), nn.Linear(rank, linear.out_features, bias=False)

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x))


def lora_finetune(kind, fixed):
    net = base.Transformer(512, 6)
    for p in net.parameters():
        p.requires_grad = False
    for layer in net.layers:
        layer.qkv, layer.up = Lora(layer.qkv), Lora(layer.up)
    net = net.to(DEVICE)
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-4)
    limit(weight_bytes(net) + 1200 * MIB)

    def step(size):
        ids = tokens(size, 256)
        F.cross_entropy(net(ids).flatten(0, 1), ids.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    sizes = [2, 4, 8, 16, 32, 64, 128, 256]
    for size in [max(n // fixed, 1) for n in came_to(sizes, step)] if fixed else sizes:
        step(size)


def accumulate(kind, fixed, micro=96):
    net, loss = language()
    net = net.to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    limit(weight_bytes(net) * 4 + 900 * MIB)
    micro = max(micro // (fixed or 1), 1)
    for _ in turns(2):
        for _ in range(4):
            backward_of(net, loss, tokens(micro, 256))
        optimizer.step()
        optimizer.zero_grad()


def backward_of(net, loss, ids):
    with torch.autocast("cuda", torch.bfloat16):
        value = loss(ids) / 4
    value.backward()


# ---- spikes ------------------------------------------------------------------------------------------------------------
def recall_at(embeddings, k, fixed):
    if fixed:
        return torch.cat([(part @ embeddings.T).topk(k).indices for part in embeddings.split(500)])
    return (embeddings @ embeddings.T).topk(k).indices


def retrieval(kind, fixed):
    net, call = vision(192, 3)
    net = net.to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in turns(4):
        F.cross_entropy(call(images(32)), torch.zeros(32, dtype=torch.long, device=DEVICE)).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        bank = torch.cat([call(images(64)) for _ in range(10)])
        bank = F.normalize(bank.repeat(40, 1), dim=1)
        limit(torch.cuda.memory_reserved() + 1500 * MIB)
        return recall_at(bank, 10, fixed)


def graph_mask(kind, fixed, nodes=30000):
    limit(2500 * MIB)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(DEVICE)
    features = torch.randn(nodes, 64, device=DEVICE)
    edges = torch.randint(0, nodes, (2, nodes * 4), device=DEVICE)
    for _ in turns(3):
        hidden = net(features)
        part = 1000 if fixed else nodes
        for start in range(0, nodes, part):
            adjacency = torch.zeros(part, nodes, device=DEVICE)
            mine = (edges[0] >= start) & (edges[0] < start + part)
            adjacency[edges[0][mine] - start, edges[1][mine]] = 1
            mixed = adjacency @ hidden
            mixed.square().mean().backward(retain_graph=True)


def pairwise(kind, fixed):
    net = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 64)).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    limit(1400 * MIB)
    for _ in turns(5):
        net(torch.randn(4096, 32, device=DEVICE)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        points = net(torch.randn(6000, 32, device=DEVICE))
        if fixed:
            return sum((part[:, None, :] - points[None, :, :]).square().sum(-1).sqrt().mean() for part in points.split(60))
        return (points[:, None, :] - points[None, :, :]).square().sum(-1).sqrt().mean()


# ---- optimizers --------------------------------------------------------------------------------------------------------
class Sophia(torch.optim.Optimizer):
    """An optimizer of the user's own."""

    def __init__(self, params, lr=1e-4):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"], state["h"] = torch.zeros_like(p), torch.zeros_like(p)
                state["m"].lerp_(p.grad, 0.1)
                state["h"].lerp_(p.grad.square(), 0.01)
                p.addcdiv_(state["m"], state["h"].clamp(min=1e-6), value=-group["lr"])


def hf_adam(kind, fixed):
    net, loss = language(768, 12, 20000)
    net = net.to(DEVICE)
    limit(weight_bytes(net) * 3.1 + 200 * MIB)
    HfTrainer(net, loss, optimizer_of(fixed, torch.optim.AdamW)(net.parameters(), lr=1e-4)).train(3, 1, 64)


def own_optimizer(kind, fixed):
    net = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.ReLU()) for _ in range(24)]).to(DEVICE)
    optimizer = optimizer_of(fixed, Sophia)(net.parameters())
    limit(weight_bytes(net) * 3.2 + 100 * MIB)
    for _ in turns(3):
        loss = net(torch.randn(16, 2048, device=DEVICE)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def two_groups(kind, fixed):
    net, loss = language(640, 10, 16000)
    net = net.to(DEVICE)
    decay = [p for p in net.parameters() if p.dim() > 1]
    other = [p for p in net.parameters() if p.dim() <= 1]
    make = optimizer_of(fixed, lambda groups, lr: torch.optim.Adam(groups, lr, amsgrad=True))
    optimizer = make([dict(params=decay), dict(params=other)], 1e-4)
    limit(weight_bytes(net) * 3.6 + 250 * MIB)
    for _ in turns(4):
        loss(tokens(2, 64)).backward()
        optimizer.step()
        optimizer.zero_grad()


# ---- graphs ------------------------------------------------------------------------------------------------------------
class Reinforce:
    def __init__(self):
        self.policy = Policy().to(DEVICE)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), 1e-3)
        self.saved_log_probs, self.rewards = [], []

    def select_action(self, state):
        logits, _ = self.policy(state)
        log_probs = F.log_softmax(logits, 1)
        action = log_probs.argmax(1)
        self.saved_log_probs.append(log_probs.gather(1, action[:, None]).sum())
        return action

    def finish_episode(self):
        torch.stack(self.saved_log_probs).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.saved_log_probs.clear()


def episodes(kind, fixed):
    agent = Reinforce()
    limit(weight_bytes(agent.policy) * 4 + 700 * MIB)
    for _ in turns(2):
        for step in turns(600):
            agent.select_action(torch.rand(64, 4, 84, 84, device=DEVICE))
            if fixed:
                agent.finish_episode()
        if not fixed:
            agent.finish_episode()


class Meter:
    def __init__(self):
        self.sum, self.count = 0, 0

    def update(self, value):
        self.sum = self.sum + value
        self.count += 1


def auxiliary_meter(kind, fixed):
    """The main loss is run backward; another one is only averaged, with its graph."""
    body, main, other = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()), nn.Linear(64, 10), nn.Conv2d(64, 3, 1)
    body, main, other = body.to(DEVICE), main.to(DEVICE), other.to(DEVICE)
    optimizer = torch.optim.SGD([*body.parameters(), *main.parameters()], 0.1)
    meter = Meter()
    limit(900 * MIB)
    for _ in turns(300):
        x = images(8, 64)
        F.cross_entropy(main(body(x).mean((2, 3))), torch.zeros(8, dtype=torch.long, device=DEVICE)).backward()
        optimizer.step()
        optimizer.zero_grad()
        rebuilt = F.mse_loss(other(body(x)), x)
        meter.update(rebuilt.item() if fixed else rebuilt)


def unrolled(kind, fixed):
    """Meta-learning: the inner steps are kept for an outer backward pass that comes too late."""
    weights = [torch.randn(256, 256, device=DEVICE, requires_grad=True) for _ in range(4)]
    limit(700 * MIB)
    fast, outer = weights, 0
    for step in turns(500):
        x = torch.randn(512, 256, device=DEVICE)
        for w in fast:
            x = torch.tanh(x @ w)
        loss = x.square().mean()
        grads = torch.autograd.grad(loss, fast, create_graph=not fixed)
        fast = [w - 0.1 * g for w, g in zip(fast, grads)]
        if fixed:
            fast = [w.detach().requires_grad_() for w in fast]
        outer = outer + (loss.item() if fixed else loss)


# ---- evaluation --------------------------------------------------------------------------------------------------------
def evaluate(net, batches, fixed):
    net.eval()
    logits = []
    with torch.set_grad_enabled(not fixed):
        for x in batches:
            logits.append(net(x))
    return torch.cat(logits)


def train_then_evaluate(kind, fixed):
    net = Patches(288, 4).to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
    for epoch in turns(2):
        net.train()
        for _ in turns(3):
            F.cross_entropy(net(images(16)), torch.zeros(16, dtype=torch.long, device=DEVICE)).backward()
            optimizer.step()
            optimizer.zero_grad()
        limit(used() * 1.3 + 600 * MIB)
        evaluate(net, (images(16) for _ in turns(300)), fixed)


def extract_features(kind, fixed):
    backbone = nn.Sequential(*[nn.Sequential(nn.Conv2d(3 if i == 0 else 96, 96, 3, padding=1), nn.BatchNorm2d(96), nn.ReLU()) for i in range(6)],
                             nn.AdaptiveAvgPool2d(4), nn.Flatten()).to(DEVICE).eval()
    limit(1100 * MIB)
    with torch.inference_mode(fixed):
        features = torch.cat([backbone(images(8, 64)) for _ in turns(400)])
    return features


class Validating(HfTrainer):
    @torch.no_grad()
    def evaluation_loop(self):
        self.model.eval()
        return [self.compute_loss(tokens(self.eval_size, self.eval_length)).item() for _ in turns(2)]


def validate_in_loop(kind, fixed):
    net, loss = language()
    net = net.to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
    trainer = Validating(net, loss, optimizer, eval_every=3, eval_size=8 if fixed else 1024)
    Validating(net, loss, optimizer).train(2)
    limit(used() * 1.3 + 200 * MIB)
    trainer.train(9)


def longer_text(kind, fixed):
    net = base.Transformer(384, 4)
    net = net.to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
    for _ in turns(4):
        ids = tokens(8, 128)
        F.cross_entropy(net(ids).flatten(0, 1), ids.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    limit(used() * 1.3 + 200 * MIB)
    with torch.inference_mode():
        perplexity(net, tokens(8, 128 if fixed else 4096))


def perplexity(net, ids):
    return F.cross_entropy(net(ids).flatten(0, 1), ids.flatten()).exp()


def whole_images(kind, fixed):
    net = base.Unet(64, 2).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), 1e-4)
    for _ in turns(5):
        crop = torch.randn(8, 4, 64, 64, device=DEVICE)
        F.mse_loss(net(crop), crop).backward()
        optimizer.step()
        optimizer.zero_grad()
    limit(used() * 1.4 + 150 * MIB)
    with torch.no_grad():
        whole = torch.randn(8, 4, 64 if fixed else 1024, 64 if fixed else 1024, device=DEVICE)
        return F.mse_loss(net(whole), whole)


# ---- leaks -------------------------------------------------------------------------------------------------------------
class ReplayBuffer:
    def __init__(self):
        self.storage = []

    def push(self, state, action, reward):
        self.storage.append((state, action, reward))

    def sample(self, n):
        return torch.cat([self.storage[i % len(self.storage)][0] for i in range(n)])


def deep_q(kind, fixed):
    net = Policy().to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    buffer = ReplayBuffer()
    for step in turns(600):
        state = torch.rand(16, 4, 84, 84, device=DEVICE)
        with torch.no_grad():
            action = net(state)[0].argmax(1)
        buffer.push(state.cpu() if fixed else state, action, torch.rand(16, device=DEVICE))
        logits, value = net(buffer.sample(2).to(DEVICE))
        (logits.square().mean() + value.square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 3:
            limit(used() * 1.2 + 350 * MIB)


class ActivationRecorder:
    def __init__(self, net, names, fixed):
        self.seen = {name: [] for name in names}
        self.fixed = fixed
        for name, module in net.named_modules():
            if name in self.seen:
                module.register_forward_hook(self.hook(name))

    def hook(self, name):
        def keep(module, inputs, output):
            self.seen[name].append(output.detach().cpu() if self.fixed else output.detach() * 1.0)
        return keep


def watched_layers(kind, fixed):
    net = base.Transformer(256, 4).to(DEVICE)
    ActivationRecorder(net, ["layers.1", "layers.3"], fixed)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
    for step in turns(300):
        ids = tokens(8, 128)
        F.cross_entropy(net(ids).flatten(0, 1), ids.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 3:
            limit(used() * 1.1 + 160 * MIB)


class Metrics:
    predictions = []  # of the class: outlives every epoch

    def update(self, logits):
        Metrics.predictions.append(logits)


def collected_predictions(kind, fixed):
    net, call = vision(192, 4)
    net = net.to(DEVICE)
    head = nn.Linear(100, 20000).to(DEVICE)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], 0.1)
    metrics = Metrics()
    for step in turns(300):
        logits = head(call(images(32)))
        F.cross_entropy(logits, torch.zeros(32, dtype=torch.long, device=DEVICE)).backward()
        optimizer.step()
        optimizer.zero_grad()
        metrics.update(logits.detach().argmax(1).cpu() if fixed else logits.detach())
        if step == 3:
            limit(used() * 1.15 + 120 * MIB)


def gradient_history(kind, fixed):
    net = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    history = []
    for step in turns(400):
        F.cross_entropy(net(torch.randn(256, 512, device=DEVICE)), torch.zeros(256, dtype=torch.long, device=DEVICE)).backward()
        history.append([p.grad.norm().item() if fixed else p.grad.clone() for p in net.parameters()])
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        if step == 3:
            limit(used() * 1.2 + 250 * MIB)


# ---- twice -------------------------------------------------------------------------------------------------------------
def resume(path, fixed):
    return torch.load(path, map_location="cpu" if fixed else DEVICE)


def resumed(kind, fixed):
    net, loss = language(768, 10, 16000)
    with tempfile.NamedTemporaryFile() as file:
        torch.save({"model": net.state_dict(), "epoch": 3}, file.name)
        net = net.to(DEVICE)
        limit(weight_bytes(net) * 4.6 + 200 * MIB)
        checkpoint = resume(file.name, fixed)
        net.load_state_dict(checkpoint["model"])
    optimizer = optimizer_of(fixed, torch.optim.AdamW)(net.parameters(), 1e-4)
    for _ in turns(2):
        loss(tokens(1, 64)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return checkpoint


class EarlyStopping:
    def __init__(self, fixed):
        self.best, self.fixed = None, fixed

    def __call__(self, net):
        self.best = {name: value.cpu() if self.fixed else value.detach().clone() for name, value in net.state_dict().items()}


def best_weights(kind, fixed):
    net = base.Unet(192, 3).to(DEVICE)
    optimizer = optimizer_of(fixed, torch.optim.Adam)(net.parameters(), 1e-4)
    stopping = EarlyStopping(fixed)
    x = torch.randn(1, 4, 32, 32, device=DEVICE)
    limit(weight_bytes(net) * 4.4 + 60 * MIB)
    for epoch in turns(3):
        F.mse_loss(net(x), x).backward()
        stopping(net)
        optimizer.step()
        optimizer.zero_grad()


def teacher_again(kind, fixed):
    net = base.Mlp(2048, 10).to(DEVICE)
    limit(weight_bytes(net) * 4.7 + 40 * MIB)
    if not fixed:
        again = base.Mlp(2048, 10).to(DEVICE)
    optimizer = optimizer_of(fixed, torch.optim.Adam)(net.parameters(), 1e-4)
    for _ in turns(3):
        x = torch.randn(64, 512, device=DEVICE)
        net(x).logsumexp(1).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


# ---- the device ----------------------------------------------------------------------------------------------------------
class FeatureBank:
    def __init__(self):
        self.rows = []

    def add(self, size):
        self.rows.append(torch.empty(size, dtype=torch.uint8, device=DEVICE))

    def dedupe(self, keep):
        self.rows = [row for i, row in enumerate(self.rows) if i % keep == 0]


def feature_bank(kind, fixed):
    net = Patches(192, 2).to(DEVICE).eval()
    limit(weight_bytes(net) + 1500 * MIB)
    with torch.no_grad():
        net(images(4))
        torch.cuda.empty_cache()
        maps = [torch.empty(200 * MIB, dtype=torch.uint8, device=DEVICE) for _ in range(6)]
        del maps
        bank = FeatureBank()
        for i in range(100):
            bank.add((10 + i * 5 % 4) * MIB)
        bank.dedupe(4)
        return bank, torch.empty(500 * MIB, dtype=torch.uint8, device=DEVICE)


def ragged(kind, fixed):
    """Requests served side by side; long ones stay, short ones go, then a long prompt comes."""
    limit(2000 * MIB)
    warm = torch.zeros(900 * MIB, dtype=torch.uint8, device=DEVICE), torch.zeros(900 * MIB, dtype=torch.uint8, device=DEVICE)
    del warm
    requests = [torch.zeros((6 + i * 11 % 30) * MIB, dtype=torch.uint8, device=DEVICE) for i in range(80)]
    for i in range(80):
        if i % 5:
            requests[i] = None
    return requests, torch.zeros(1000 * MIB, dtype=torch.uint8, device=DEVICE)


def hungry(steps=3, size=48):
    net, loss = language()
    net = net.to(DEVICE)
    HfTrainer(net, loss, torch.optim.AdamW(net.parameters(), 1e-4)).train(steps, size, 256)


def beside_another(kind, fixed):
    hungry()


def evaluation_beside_another(kind, fixed):
    net = Patches(288, 4).to(DEVICE)
    return evaluate(net, (images(16) for _ in turns(2000)), fixed)


def with_cupy(kind, fixed):
    torch.zeros(1, device=DEVICE)
    if not fixed:
        size = torch.cuda.mem_get_info()[0] - 900 * MIB
        try:
            import cupy
            table = cupy.empty(size, dtype=cupy.uint8)
        except ImportError:
            driver_alloc(size)
    hungry()


def with_driver(kind, fixed):
    torch.zeros(1, device=DEVICE)
    if not fixed:
        driver_alloc(torch.cuda.mem_get_info()[0] - 600 * MIB)
    adversarial("gan", False, 512)


def cupy_after_torch(kind, fixed, size=30 << 30):
    net, call = vision()
    net = net.to(DEVICE).eval()
    free, _ = torch.cuda.mem_get_info()
    with torch.no_grad():
        call(images(64))
        scratch = [torch.empty(2 << 30, dtype=torch.uint8, device=DEVICE) for _ in range((free - size // 2) >> 31)]
        del scratch
    if fixed:
        torch.cuda.empty_cache()
    import cupy
    cupy.cuda.set_allocator(None)
    return cupy.empty(size, dtype=cupy.uint8)


def lowered(kind, fixed):
    net, call = vision()
    net = net.to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
    for phase in range(2):
        for _ in turns(3):
            F.cross_entropy(call(images(64)), torch.zeros(64, dtype=torch.long, device=DEVICE)).backward()
            optimizer.step()
            optimizer.zero_grad()
        if phase == 0:
            torch.cuda.empty_cache()
            if fixed:
                torch.cuda.set_per_process_memory_fraction(fixed)
            else:
                limit(used() * 0.75)


def graph_and_checkpoint(kind, fixed):
    net, loss = language(512, 6, 12000)
    with tempfile.NamedTemporaryFile() as file:
        torch.save(net.state_dict(), file.name)
        net = net.to(DEVICE)
        saved = torch.load(file.name, map_location="cpu" if fixed == "loaded_twice" else DEVICE)
        net.load_state_dict(saved)
    limit(weight_bytes(net) * 2 + 900 * MIB)
    history = []
    for _ in turns(300):
        value = loss(tokens(4, 128))
        history.append(value.item() if fixed == "graph_kept" else value)
    return saved, history


# ---- a third set, made after the second had been looked at -----------------------------------------------------------------
def load_model(width=768, depth=8):
    return T5ForConditionalGeneration(T5Config(d_model=width, d_ff=4 * width, d_kv=64, num_layers=depth, num_heads=width // 64,
                                               vocab_size=24000, decoder_start_token_id=0, pad_token_id=0))


def seq2seq(kind, fixed):
    net = load_model()
    limit(weight_bytes(net) * 0.7)
    if fixed:
        net = net.half()
    return net.to(DEVICE)


class Segmenter:
    def __init__(self):
        self.net = base.Unet(96, 3).to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), 1e-4)

    def dice(self, x):
        mask = self.net(x).sigmoid()
        return 1 - (2 * (mask * x).sum() + 1) / (mask.sum() + x.sum() + 1)

    def step(self, x):
        self.optimizer.zero_grad()
        loss = self.dice(x)
        loss.backward()
        self.optimizer.step()


def sanity_then_train(kind, fixed, size=512):
    runner = Segmenter()
    limit(1300 * MIB)
    runner.step(torch.rand(2, 4, 64, 64, device=DEVICE))  # does it run at all?
    for _ in turns(3):
        runner.step(torch.rand(max(size // (fixed or 1), 1), 4, 64, 64, device=DEVICE))


def two_views(kind, fixed, size=2048):
    encoder = nn.Sequential(nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                            nn.Linear(128, 128)).to(DEVICE)
    optimizer = torch.optim.SGD(encoder.parameters(), 0.1, momentum=0.9)
    limit(1200 * MIB)
    size = max(size // (fixed or 1), 1)
    for _ in turns(3):
        x = images(size, 64)
        a, b = F.normalize(encoder(x), dim=1), F.normalize(encoder(x.flip(3)), dim=1)
        F.cross_entropy(a @ b.T / 0.1, torch.arange(size, device=DEVICE)).backward()
        optimizer.step()
        optimizer.zero_grad()


def compute_metric(vectors, fixed):
    if fixed:
        return sum((vectors[i:i + 64, None] * vectors[None]).sum(-1).abs().mean() for i in range(0, len(vectors), 64))
    return torch.einsum("id,jd->ijd", vectors, vectors).sum(-1).abs().mean()


def metric_in_loop(kind, fixed):
    net = base.Rnn(256, 1).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    limit(1000 * MIB)
    for step in turns(6):
        y = net(torch.randn(64, 32, 256, device=DEVICE))
        y.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 4:
            with torch.no_grad():
                compute_metric(y.detach().flatten(0, 1), fixed)


def other_optimizer(kind, fixed):
    module = LitModule()
    module.model, module.call = vision(768, 10)
    module.configure_optimizers = lambda: optimizer_of(fixed, torch.optim.NAdam)(module.parameters(), lr=1e-4)
    limit(weight_bytes(module) * 3.2 + 150 * MIB)
    Trainer(3).fit(module, [(images(4), torch.zeros(4, dtype=torch.long, device=DEVICE))])


def train_one_epoch(net, optimizer, fixed):
    total_loss = 0.0
    for _ in turns(300):
        ids = tokens(4, 128)
        loss = F.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
        if fixed:
            loss.backward()
            loss = loss.item()
        total_loss += loss
    if not fixed:
        total_loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def epoch_sum(kind, fixed):
    net = base.Transformer(256, 3).to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
    limit(weight_bytes(net) * 4 + 900 * MIB)
    for _ in turns(2):
        train_one_epoch(net, optimizer, fixed)


def retained(kind, fixed):
    """backward(retain_graph=True), and the losses in a list for a plot."""
    net = base.Cnn(96, 5).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    curve = []
    limit(1000 * MIB)
    for _ in turns(200):
        loss = F.cross_entropy(net(images(4, 64)), torch.zeros(4, dtype=torch.long, device=DEVICE))
        loss.backward(retain_graph=not fixed)
        optimizer.step()
        optimizer.zero_grad()
        curve.append(loss.item() if fixed else loss)


def validate(net, loss_of, fixed):
    net.eval()
    val_loss = 0
    with torch.set_grad_enabled(not fixed):
        for _ in turns(200):
            val_loss = val_loss + loss_of(tokens(4, 128))
    return val_loss / 200


def epochs_with_validation(kind, fixed):
    net, loss_of = language(256, 4)
    net = net.to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
    for epoch in turns(2):
        net.train()
        for _ in turns(6):
            loss_of(tokens(4, 128)).backward()
            optimizer.step()
            optimizer.zero_grad()
        limit(used() * 1.3 + 500 * MIB)
        validate(net, loss_of, fixed)


def predict(net, dataset, size):
    with torch.no_grad():
        return torch.cat([net(part).argmax(1) for part in dataset.split(size)])


def predict_all(kind, fixed):
    net = base.Cnn(96, 5).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in turns(4):
        F.cross_entropy(net(images(16, 64)), torch.zeros(16, dtype=torch.long, device=DEVICE)).backward()
        optimizer.step()
        optimizer.zero_grad()
    dataset = images(4000, 64)
    limit(used() * 1.2 + 200 * MIB + 4000 * 3 * 4096 * 4)
    predict(net, dataset, 16 if fixed else 4000)


class Watching(nn.Module):
    def __init__(self, width=256, fixed=False):
        super().__init__()
        self.mix, self.fixed, self.maps = nn.MultiheadAttention(width, 4, batch_first=True), fixed, []
        self.head = nn.Linear(width, width)

    def forward(self, x):
        y, weights = self.mix(x, x, x, average_attn_weights=False)
        self.maps.append(weights.detach().mean().cpu() if self.fixed else weights.detach())
        return self.head(y)


def attention_maps(kind, fixed):
    net = Watching(256, fixed).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    for step in turns(300):
        net(torch.randn(8, 256, 256, device=DEVICE)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 3:
            limit(used() * 1.2 + 300 * MIB)


def neighbour_cache(kind, fixed):
    layers = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64)).to(DEVICE)
    optimizer = torch.optim.SGD(layers.parameters(), 0.1)
    cache = {}
    for step in turns(400):
        nodes = torch.randn(8000, 128, device=DEVICE)
        layers(nodes).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        cache[step % 4 if fixed else step] = nodes
        if step == 5:
            limit(used() * 1.2 + 200 * MIB)


def state_first(kind, fixed):
    """The checkpoint is read to the device, then the model goes there too."""
    net, call = vision(768, 10)
    with tempfile.NamedTemporaryFile() as file:
        torch.save(net.state_dict(), file.name)
        state = torch.load(file.name, map_location="cpu" if fixed else DEVICE)
    net.load_state_dict(state)
    limit(weight_bytes(net) * 1.6)
    net.to(DEVICE)
    return state


base.HELD = {beside_another: lambda kind: 1100 * MIB, evaluation_beside_another: lambda kind: 2500 * MIB}
base.OWN |= {os.path.basename(__file__)}
base.PROGRAMS = {
    "weights_too_big": [("moe", experts_on_device, {}, ""), ("gptmeta", from_meta, {}, "x"), ("encoder", many_layers, {}, "n")],
    "batch_too_big": [("vit", lightning_fit, {}, ""), ("diffusion", diffusion_sizes, {}, "x"), ("gan", adversarial, {}, "a"),
                      ("lora", lora_finetune, {}, "n"), ("gpt", accumulate, {}, "")],
    "one_spike": [("vit", retrieval, {}, ""), ("graph", graph_mask, {}, "x"), ("points", pairwise, {}, "n")],
    "optimizer_state": [("gpt", hf_adam, {}, ""), ("deep", own_optimizer, {}, "x"), ("gpt", two_groups, {}, "n")],
    "graph_kept": [("policy", episodes, {}, ""), ("autoencoder", auxiliary_meter, {}, "x"), ("meta", unrolled, {}, "a")],
    "no_grad_missing": [("vit", train_then_evaluate, {}, ""), ("backbone", extract_features, {}, "x")],
    "eval_batch_bigger": [("gpt", validate_in_loop, {}, ""), ("lm", longer_text, {}, "x"), ("unet", whole_images, {}, "n")],
    "leak": [("dqn", deep_q, {}, ""), ("lm", watched_layers, {}, "x"), ("vit", collected_predictions, {}, "n"), ("mlp", gradient_history, {}, "a")],
    "loaded_twice": [("gpt", resumed, {}, ""), ("unet", best_weights, {}, "x"), ("wide", teacher_again, {}, "n")],
    "fragmentation": [("bank", feature_bank, {}, ""), ("serving", ragged, {}, "n")],
    "cache_held": [("vit", cupy_after_torch, {}, ""), ("vit", cupy_after_torch, dict(size=50 << 30), "x")],
    "other_process": [("gpt", beside_another, {}, ""), ("gpt", beside_another, {}, "n")],
    "outside_framework": [("gpt", with_cupy, {}, "x"), ("gan", with_driver, {}, "")],
    "limit": [("vit", lowered, {}, ""), ("vit", lowered, {}, "x")],
    "no_grad_missing+other_process": [("vit", evaluation_beside_another, {}, "")],
    "graph_kept+loaded_twice": [("gpt", graph_and_checkpoint, {}, "x")],
}
for cause, programs in {
        "weights_too_big": [("t5", seq2seq, {}, "")],
        "batch_too_big": [("segmenter", sanity_then_train, {}, ""), ("simclr", two_views, {}, "x")],
        "one_spike": [("rnn", metric_in_loop, {}, "a")],
        "optimizer_state": [("vit", other_optimizer, {}, "a")],
        "graph_kept": [("lm", epoch_sum, {}, "x"), ("cnn", retained, {}, "")],
        "no_grad_missing": [("gpt", epochs_with_validation, {}, "")],
        "eval_batch_bigger": [("cnn", predict_all, {}, "")],
        "leak": [("attention", attention_maps, {}, "x"), ("gnn", neighbour_cache, {}, "n")],
        "loaded_twice": [("vit", state_first, {}, "a")]}.items():
    base.PROGRAMS[cause] += programs

if __name__ == "__main__":
    base.main()
