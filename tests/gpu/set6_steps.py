"""Programs of record_set6.py of which one step, or one part of a step, is too large for the memory there is."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from record_models import (DEVICE, Encoder, Eps, Experts, Mixer, Pictures, Sage, Speech, UNet, Vae, classes, ctc, llama, noise,
                          perceptron, tokens, vit)
from record_causes import MIB, limit, weight_bytes


def update(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# ---- weights_too_big -------------------------------------------------------------------------------------------------------
def made_on_device(*_):
    limit(1000 * MIB)
    with torch.device(DEVICE):
        model = llama(1536, 12)
    return model(tokens(1, 8, 6000))


class HashGrid(nn.Module):
    """A table of features for every resolution, at most four million entries each."""

    def __init__(self, levels=16, entries=1 << 22, features=4):
        super().__init__()
        sizes = [min(int(16 * 1.5 ** level) ** 3, entries) for level in range(levels)]
        self.tables = nn.ParameterList(nn.Parameter(torch.zeros(size, features, device=DEVICE)) for size in sizes)
        self.mlp = perceptron([levels * features, 64, 4]).to(DEVICE)


def radiance(*_):
    limit(450 * MIB)
    return HashGrid()


def mixer_for_pictures(*_):
    model = Mixer(64, 1536, 24)
    print(sum(p.numel() for p in model.parameters()))
    limit(1300 * MIB)
    for part in model.children():
        part.to(DEVICE)


# ---- batch_too_big ---------------------------------------------------------------------------------------------------------
class Adapter(nn.Module):
    def __init__(self, linear, rank=8):
        super().__init__()
        self.linear, self.down = linear, nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x))


def adapters(*_):
    model = llama(512, 8)
    for p in model.parameters():
        p.requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.q_proj, layer.self_attn.v_proj = Adapter(layer.self_attn.q_proj), Adapter(layer.self_attn.v_proj)
    model.to(DEVICE).train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
    limit(2800 * MIB)
    for step in range(6):
        ids = tokens(48, 256, 6000)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()


class Field(nn.Module):
    def __init__(self, width=256, depth=8):
        super().__init__()
        self.mlp = perceptron([63] + [width] * depth + [4])

    def forward(self, rays, samples=64):
        points = rays[:, None, :].expand(-1, samples, -1).reshape(-1, 3)
        waves = torch.cat([points] + [f(points * 2 ** i) for i in range(10) for f in (torch.sin, torch.cos)], 1)
        return self.mlp(waves).view(len(rays), samples, 4).sigmoid().mean(1)


def rays_at_once(*_):
    net = Field().to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
    limit(4000 * MIB)
    for step in range(10):
        update(optimizer, F.mse_loss(net(noise(10240, 3))[:, :3], torch.rand(10240, 3, device=DEVICE)))


def longer_and_longer(*_):
    """Utterances in buckets, the short ones first."""
    net = Speech().to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters())
    limit(1500 * MIB)
    for frames in (200, 400, 800, 1200, 1600, 2400, 3200, 4800):
        for _ in range(3):
            update(optimizer, ctc(net(noise(48, 80, frames))))


class Gan:
    def __init__(self, batch):
        self.generator, self.critic, self.batch = Vae(64).to(DEVICE), Encoder(32, 3, 1).to(DEVICE), batch
        self.optimizers = [torch.optim.RMSprop(net.parameters(), lr=5e-5) for net in (self.generator, self.critic)]

    def iterate(self, real):
        fake = self.generator.decode(noise(self.batch, 128))
        update(self.optimizers[1], self.critic(fake.detach()).mean() - self.critic(real).mean())
        update(self.optimizers[0], -self.critic(fake).mean())


def wasserstein(*_):
    gan = Gan(512)
    limit(2000 * MIB)
    for images, _ in DataLoader(Pictures(2048, 64), batch_size=512):
        gan.iterate(images.to(DEVICE))


# ---- one_spike -------------------------------------------------------------------------------------------------------------
def full_size_maps(*_):
    net = UNet(16, 150).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    limit(2500 * MIB)
    for epoch in range(2):
        for images, masks in DataLoader(Pictures(32, 64, masks=True), batch_size=4):
            update(optimizer, F.cross_entropy(net(images.to(DEVICE)), masks.to(DEVICE)))
        with torch.no_grad():
            logits = net(noise(1, 3, 64, 64))
            shown = F.interpolate(logits, size=(4096, 4096), mode="bilinear").argmax(1)
    return shown


def whiten(features):
    flat = features.flatten(1)
    flat = flat - flat.mean(0)
    covariance = flat.t() @ flat / len(flat)
    return torch.diagonal(covariance)


def texture(*_):
    net = nn.Sequential(*list(Encoder(64, 2).children())[:-1]).to(DEVICE).eval()
    limit(2500 * MIB)
    image = noise(8, 3, 48, 48).requires_grad_()
    optimizer = torch.optim.Adam([image])
    for step in range(5):
        update(optimizer, net(image).square().mean())
    with torch.no_grad():
        return whiten(net(image))


def recommend(*_):
    users, items = nn.Embedding(200000, 64).to(DEVICE), nn.Embedding(30000, 64).to(DEVICE)
    optimizer = torch.optim.SGD([*users.parameters(), *items.parameters()], lr=0.1)
    limit(2000 * MIB)
    for _ in range(20):
        u, i = classes(4096, 200000), classes(4096, 30000)
        update(optimizer, ((users(u) * items(i)).sum(1) - 1).square().mean())
    with torch.no_grad():
        return (users.weight @ items.weight.t()).topk(10).indices


# ---- optimizer_state -------------------------------------------------------------------------------------------------------
def mixer_nadam(*_):
    model = Mixer(64, 1024, 16).to(DEVICE)
    limit(weight_bytes(model) * 3.3 + 40 * MIB)
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3)
    for images, labels in DataLoader(Pictures(32, 64), batch_size=8):
        update(optimizer, F.cross_entropy(model(images.to(DEVICE)), labels.to(DEVICE)))


def second_order(*_):
    """L-BFGS keeps a hundred directions, each as large as the weights."""
    net = nn.Sequential(nn.Linear(64, 1024), Experts(1024, 1024, 4), nn.Linear(1024, 1)).to(DEVICE)
    for p in net.parameters():
        p.data.uniform_(-0.03, 0.03)
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=10, history_size=100, tolerance_grad=0, tolerance_change=0)
    x, y = noise(512, 64), noise(512, 1)
    limit(900 * MIB)

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss

    for epoch in range(8):
        optimizer.step(closure)


def wide_denoiser(*_):
    net = Eps(1024, 6).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    limit(weight_bytes(net) * 3.2 + 120 * MIB)
    for _ in range(3):
        update(optimizer, net(noise(2, 3, 16, 16), classes(2, 1000)).square().mean())


# ---- eval_batch_bigger -----------------------------------------------------------------------------------------------------
def sampled_subgraphs(*_):
    """Trained on small pieces of the graph, tested on all of it."""
    net, nodes = Sage(128, 256, 40).to(DEVICE), 120000
    x, edges = noise(nodes, 128), torch.randint(0, nodes, (2, 1500000), device=DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    limit(1200 * MIB)
    for _ in range(10):
        part = torch.randint(0, 2000, (2, 10000), device=DEVICE)
        update(optimizer, F.cross_entropy(net(x[:2000], part), classes(2000, 40)))
    net.eval()
    with torch.no_grad():
        return net(x, edges).argmax(1)


@torch.inference_mode()
def error_rate(net, spectrograms):
    net.eval()
    return net(spectrograms).argmax(-1).float().mean()


def dev_set_in_one(*_):
    net = Speech().to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters())
    limit(1500 * MIB)
    for epoch in range(2):
        net.train()
        for _ in range(6):
            update(optimizer, ctc(net(noise(12, 80, 400))))
        error_rate(net, noise(1200, 80, 400))


class Classifier:
    def __init__(self):
        self.model = vit(384, 8).to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def fit(self, data):
        self.model.train()
        for images, labels in data:
            update(self.optimizer, self.model(pixel_values=images.to(DEVICE), labels=labels.to(DEVICE)).loss)

    @torch.no_grad()
    def score(self, data):
        self.model.eval()
        return sum((self.model(pixel_values=x.to(DEVICE)).logits.argmax(1) == y.to(DEVICE)).sum() for x, y in data)


def fit_and_score(*_):
    classifier = Classifier()
    limit(1300 * MIB)
    for epoch in range(2):
        classifier.fit(DataLoader(Pictures(96, 64), batch_size=16))
        print(classifier.score(DataLoader(Pictures(6000, 64), batch_size=3000)))
