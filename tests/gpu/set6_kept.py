"""Programs of record_set6.py that keep what they do not need: graphs, outputs, second models, pieces between holes."""
import tempfile

import torch
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader

from record_models import (DEVICE, Encoder, Eps, LanguageModel, Pictures, UNet, Vae, bert, classes, llama, noise, perceptron,
                          tokens)
from set6_steps import update, Field
from record_causes import MIB, limit, weight_bytes


# ---- graph_kept ------------------------------------------------------------------------------------------------------------
def heat_equation(*_):
    net = perceptron([2, 256, 256, 256, 256, 1]).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    limit(1800 * MIB)
    for epoch in range(3):
        residuals = 0
        for part in range(40):
            at = torch.rand(8192, 2, device=DEVICE, requires_grad=True)
            u = net(at)
            slope, = torch.autograd.grad(u.sum(), at, create_graph=True)
            bend, = torch.autograd.grad(slope[:, 0].sum(), at, create_graph=True)
            residuals = residuals + (slope[:, 1] - 0.1 * bend[:, 0]).square().mean()
        update(optimizer, residuals)


class Monitor:
    """A running mean, for the progress bar."""

    def __init__(self):
        self.value = 0.0

    def __call__(self, new):
        self.value = 0.98 * self.value + 0.02 * new


def watched_gan(*_):
    generator, critic = Vae(48).to(DEVICE), Encoder(32, 3, 1).to(DEVICE)
    optimizers = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    monitor, fixed = Monitor(), noise(16, 128)
    limit(1700 * MIB)
    for step in range(150):
        fake = generator.decode(noise(16, 128))
        update(optimizers[1], critic(fake.detach()).mean() - critic(noise(16, 3, 64, 64)).mean())
        update(optimizers[0], -critic(generator.decode(noise(16, 128))).mean())
        monitor(critic(generator.decode(fixed)).mean())


def pairs(*_):
    net = Encoder(48, 3).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    limit(1300 * MIB)
    for epoch in range(2):
        distances = []
        for (left, _), (right, _) in zip(DataLoader(Pictures(2000, 48), 32), DataLoader(Pictures(2000, 48), 32)):
            distances.append(F.pairwise_distance(net(left.to(DEVICE)), net(right.to(DEVICE))))
        update(optimizer, torch.cat(distances).mean())


# ---- no_grad_missing -------------------------------------------------------------------------------------------------------
def render(net, side=160, chunk=512):
    rows = noise(side * side, 3).split(chunk)
    return torch.cat([net(rays) for rays in rows]).view(side, side, 4)


def train_and_render(*_):
    net = Field(256, 6).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    limit(2500 * MIB)
    for _ in range(8):
        update(optimizer, net(noise(512, 3)).square().mean())
    net.eval()
    return render(net)


def score_answers(*_):
    model = llama(512, 6).to(DEVICE).eval()
    limit(2000 * MIB)
    scores = {}
    for question in range(80):
        answers = tokens(8, 96, 6000)
        scores[question] = model(input_ids=answers).logits[:, -1]
    return torch.stack(list(scores.values()))


class Fid:
    def __init__(self, net):
        self.net, self.features = net.eval(), []

    def add(self, images):
        self.features.append(self.net(images))

    def compute(self):
        return torch.cat(self.features).mean(0)


def sample_quality(*_):
    model, fid = Vae(32).to(DEVICE), Fid(Encoder(48, 3, 256).to(DEVICE))
    optimizer = torch.optim.Adam(model.parameters())
    limit(1500 * MIB)
    for epoch in range(2):
        model.train()
        for _ in range(6):
            x = torch.rand(32, 3, 64, 64, device=DEVICE)
            update(optimizer, F.mse_loss(model(x)[0], x))
        model.eval()
        for _ in range(60):
            fid.add(model.decode(noise(32, 128)))
        print(fid.compute())


# ---- leak ------------------------------------------------------------------------------------------------------------------
class Prefetcher:
    """Brings two batches to the device for every one that is taken."""

    def __init__(self, data):
        self.data, self.waiting = iter(data), []

    def next(self):
        for _ in range(2):
            images, labels = next(self.data)
            self.waiting.append((images.to(DEVICE, non_blocking=True), labels.to(DEVICE)))
        return self.waiting.pop()


def prefetched(*_):
    net = Encoder(16, 3, 10).to(DEVICE)
    optimizer, data = torch.optim.SGD(net.parameters(), lr=0.1), Prefetcher(DataLoader(Pictures(64000, 64), batch_size=128))
    limit(800 * MIB)
    for step in range(200):
        images, labels = data.next()
        update(optimizer, F.cross_entropy(net(images), labels))


@torch.no_grad()
def animate(net, film, steps=60, count=64):
    x = noise(count, 3, 32, 32)
    for t in reversed(range(steps)):
        x = x - 0.01 * net(x, torch.full((count,), t, dtype=torch.long, device=DEVICE))
        film.append(x)
    return x


def films(*_):
    net, film = Eps(48, 3).to(DEVICE), []
    optimizer = torch.optim.Adam(net.parameters())
    limit(800 * MIB)
    for epoch in range(40):
        for _ in range(2):
            x = noise(64, 3, 32, 32)
            update(optimizer, F.mse_loss(net(x, classes(64, 1000)), x))
        animate(net, film)


class Assistant:
    def __init__(self, model):
        self.model, self.conversations = model.eval(), {}

    @torch.inference_mode()
    def ask(self, who, ids):
        output = self.model(input_ids=ids, use_cache=True)
        self.conversations[who] = output.past_key_values
        return output.logits[:, -1].argmax(-1)


def conversations(*_):
    assistant = Assistant(llama(512, 6).to(DEVICE))
    limit(1000 * MIB)
    for number in range(300):
        assistant.ask(f"user{number}", tokens(4, 192, 6000))


def hard_examples(*_):
    net, hard = Encoder(32, 3).to(DEVICE), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    limit(800 * MIB)
    for step in range(300):
        anchor, near, far = noise(64, 3, 48, 48), noise(64, 3, 48, 48), noise(64, 3, 48, 48)
        update(optimizer, F.triplet_margin_loss(net(anchor), net(near), net(far)))
        hard.append(torch.stack([anchor[:32], far[:32]]))


# ---- loaded_twice ----------------------------------------------------------------------------------------------------------
def averaged_weights(*_):
    model = LanguageModel(20000, 1024, 4).to(DEVICE)
    mean = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    limit(weight_bytes(model) * 2.65)
    for _ in range(4):
        ids = tokens(4, 20, 20000)
        logits, _ = model(ids)
        update(optimizer, F.cross_entropy(logits.flatten(0, 1), ids.flatten()))
        mean.update_parameters(model)


def test_model_beside(*_):
    """After the training the checkpoint is loaded into a second model for the test."""
    model = bert(768, 8).to(DEVICE).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-3)
    limit(weight_bytes(model) * 2.6 + 30 * MIB)
    for epoch in range(4):
        update(optimizer, model(input_ids=tokens(4, 32, 12000), labels=classes(4, 2)).loss)
    with tempfile.NamedTemporaryFile() as file:
        if DEVICE == "cuda":
            torch.save(model.state_dict(), file.name)
        tested = bert(768, 8).to(DEVICE)
        if DEVICE == "cuda":
            tested.load_state_dict(torch.load(file.name, map_location="cpu"))
    with torch.no_grad():
        return tested.eval()(input_ids=tokens(4, 32, 12000)).logits


# ---- fragmentation ---------------------------------------------------------------------------------------------------------
def scenes_of_points(*_):
    net = perceptron([64, 1024, 64]).to(DEVICE).eval()
    with torch.inference_mode():
        net(noise(160000, 64))
        limit(torch.cuda.memory_reserved() + 16 * MIB)
        scenes = {}
        for scene in range(64):
            scenes[scene] = noise(50000 + scene * 9973 % 29000, 64)
        for scene in range(64):
            if scene % 3 != 1:
                scenes.pop(scene)
        voxels = torch.zeros(64, 128, 128, 128, device=DEVICE)
    return scenes, voxels


class Pyramid:
    """Tiles of a picture at many sizes."""

    def __init__(self):
        self.tiles = []

    def cut(self, count):
        for i in range(count):
            self.tiles.append(torch.rand(3, 1000 + i * 211 % 700, 1100, device=DEVICE))

    def drop_empty(self):
        self.tiles = [tile for i, tile in enumerate(self.tiles) if i % 5 in (0, 3)]


def large_picture(*_):
    net, pyramid = UNet(16).to(DEVICE).eval(), Pyramid()
    with torch.no_grad():
        for side in (512, 1024, 1536):
            net(noise(1, 3, side, side))
        limit(torch.cuda.memory_reserved() + 12 * MIB)
        pyramid.cut(int(torch.cuda.memory_reserved() / (18.2 * MIB)))
        pyramid.drop_empty()
        canvas = torch.empty(3, 7200, 7200, device=DEVICE)
    return pyramid, canvas
