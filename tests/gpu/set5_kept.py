"""Programs of record_set5.py that keep what they do not need: graphs, outputs, second models, pieces between holes."""
import collections, itertools, tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from record_models import (DEVICE, Encoder, Eps, Experts, LanguageModel, Pictures, Sage, Speech, UNet, Vae, bert, classes, ctc,
                          gpt2, noise, perceptron, tokens, vit)
from record_causes import MIB, limit, weight_bytes


# ---- graph_kept ------------------------------------------------------------------------------------------------------------
class CharTrainer:
    """Reads a chapter in chunks and learns from it as a whole."""

    def __init__(self):
        self.model = LanguageModel(100, 512, 2).to(DEVICE)
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=1e-3)

    def chapter(self, text, chunk=32):
        hidden, loss = None, 0
        for at in range(0, text.shape[1] - chunk, chunk):
            logits, hidden = self.model(text[:, at:at + chunk], hidden)
            loss += F.cross_entropy(logits.flatten(0, 1), text[:, at + 1:at + chunk + 1].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def read_book(*_):
    trainer = CharTrainer()
    limit(1000 * MIB)
    for length in (129, 257, 9000, 129):
        print(trainer.chapter(tokens(64, length, 100)))


def faces(*_):
    """The parts of the loss go back one after the other, and are kept for the curves."""
    model, curves = Vae().to(DEVICE), collections.defaultdict(list)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    limit(1600 * MIB)
    for images, _ in itertools.chain.from_iterable(DataLoader(Pictures(512, 64), batch_size=64) for _ in range(8)):
        images = images.to(DEVICE)
        output, mu, logvar = model(images)
        recon = F.mse_loss(output, images)
        kl = -0.5 * (1 + logvar - mu.square() - logvar.exp()).mean()
        optimizer.zero_grad()
        recon.backward(retain_graph=True)
        kl.backward(retain_graph=True)
        optimizer.step()
        curves["recon"].append(recon)
        curves["kl"].append(kl)


def molecules(*_):
    model = Sage(64, 256, 1).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    limit(700 * MIB)
    batch_loss = torch.zeros((), device=DEVICE)
    for number in range(1, 401):
        nodes = 1500 + number * 37 % 500
        x, edges = noise(nodes, 64), torch.randint(0, nodes, (2, 4 * nodes), device=DEVICE)
        energy = model(x, edges).sum()
        batch_loss = batch_loss + (energy - 1.0) ** 2 / 256
        if number % 256 == 0:
            batch_loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            batch_loss = torch.zeros((), device=DEVICE)


# ---- no_grad_missing -------------------------------------------------------------------------------------------------------
def validate_speech(model, batches):
    model.eval()
    guesses = []
    for _ in range(batches):
        guesses.append(model(noise(16, 80, 400)))
    return sum(g.argmax(-1).sum() for g in guesses)


def letters(*_):
    model = Speech().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    limit(900 * MIB)
    for epoch in range(3):
        model.train()
        for _ in range(5):
            loss = ctc(model(noise(16, 80, 400)))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        validate_speech(model, 60)


def predict(model, texts):
    labels = []
    for ids in texts:
        logits = model(input_ids=ids.to(DEVICE)).logits
        labels += logits.argmax(-1).tolist() if DEVICE != "meta" else [logits.shape]
    return labels


def label_reviews(*_):
    """No training here: the reviews are labelled, the short ones first."""
    model = bert(512, 8).to(DEVICE).eval()
    limit(1700 * MIB)
    predict(model, [torch.randint(0, 12000, (32, length)) for length in range(32, 513, 32)])


class Sampler:
    def __init__(self, net, steps):
        self.net, self.steps, self.beta = net.eval(), steps, torch.linspace(1e-4, 0.02, steps, device=DEVICE)

    def sample(self, count):
        x = noise(count, 3, 32, 32)
        for t in reversed(range(self.steps)):
            at = torch.full((count,), t, dtype=torch.long, device=DEVICE)
            x = (x - self.beta[t] * self.net(x, at)) / (1 - self.beta[t]).sqrt() + self.beta[t].sqrt() * torch.randn_like(x)
        return x


def draw(*_):
    net = Eps().to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    limit(1500 * MIB)
    for _ in range(6):
        x, target, t = noise(32, 3, 32, 32), noise(32, 3, 32, 32), torch.randint(0, 1000, (32,), device=DEVICE)
        loss = F.mse_loss(net(x + target, t), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    Sampler(net, 200).sample(16)


def gallery(*_):
    net = Encoder(64, 3).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    limit(1400 * MIB)
    for _ in range(8):
        anchor, near, far = (net(noise(32, 3, 64, 64)) for _ in range(3))
        loss = F.triplet_margin_loss(anchor, near, far)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    vectors = torch.cat([net(images.to(DEVICE)) for images, _ in DataLoader(Pictures(3000, 64), batch_size=32)])
    return vectors @ vectors.t()


# ---- leak ------------------------------------------------------------------------------------------------------------------
class Queue:
    """Keys of earlier batches, as negatives."""

    def __init__(self, width):
        self.keys = torch.zeros(0, width, device=DEVICE)

    @torch.no_grad()
    def push(self, keys):
        self.keys = torch.cat([self.keys, F.normalize(keys, dim=1)])


def momentum_contrast(*_):
    net = Encoder(32, 3, 2048).to(DEVICE)
    optimizer, queue = torch.optim.SGD(net.parameters(), lr=0.03), Queue(2048)
    limit(1000 * MIB)
    for _ in range(200):
        x = noise(512, 3, 24, 24)
        q, k = net(x), net(x.flip(2)).detach()
        loss = F.mse_loss(F.normalize(q, dim=1), F.normalize(k, dim=1)) + (q @ queue.keys[:1024].t()).exp().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue.push(k)


def intersection(predictions, masks):
    return sum(((p == m) & (m > 0)).sum() for p, m in zip(predictions, masks))


def segment_and_score(*_):
    model = UNet(16).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    limit(700 * MIB)
    for epoch in range(2):
        predictions, targets = [], []
        for images, masks in DataLoader(Pictures(1920, 128, masks=True), batch_size=16):
            images, masks = images.to(DEVICE), masks.to(DEVICE)
            logits = model(images)
            loss = F.cross_entropy(logits, masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            predictions.append(logits.detach().softmax(1))
            targets.append(masks)
        print(intersection([p.argmax(1) for p in predictions], targets))


class Watched(Experts):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.routed = []

    def forward(self, x):
        chosen = self.gate(x).argmax(-1)
        self.routed.append((chosen, x.detach().clone()))
        return super().forward(x)


def mixture(*_):
    net = nn.Sequential(nn.Embedding(5000, 512), Watched(512, 1024, 4), nn.Linear(512, 500)).to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    limit(1100 * MIB)
    for step in range(150):
        ids = tokens(32, 128, 5000)
        loss = F.cross_entropy(net(ids).flatten(0, 1), ids.flatten() % 500)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def policy_updates(*_):
    """Every update makes a rollout; what came before is never thrown away."""
    policy = perceptron([1024, 512, 512, 18]).to(DEVICE)
    optimizer, memory = torch.optim.Adam(policy.parameters(), lr=3e-4), []
    limit(600 * MIB)
    for update in range(80):
        with torch.no_grad():
            for _ in range(8):
                seen = noise(256, 1024)
                memory.append((seen, policy(seen).argmax(-1), torch.rand(256, device=DEVICE)))
        for seen, action, reward in memory[-8:]:
            loss = -(policy(seen).log_softmax(-1).gather(1, action[:, None])[:, 0] * reward).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


# ---- loaded_twice ----------------------------------------------------------------------------------------------------------
def resume_training(*_):
    """The checkpoint holds the weights and Adam's state, and is looked into again at the end."""
    model = vit(768, 10)
    moments = {i: {"step": torch.tensor(100.0), "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
               for i, p in enumerate(model.parameters())}
    model.to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=DEVICE == "cuda")
    with tempfile.NamedTemporaryFile() as file:
        torch.save({"model": model.state_dict() if DEVICE == "cuda" else {}, "epoch": 7,
                    "optimizer": {"state": moments, "param_groups": optimizer.state_dict()["param_groups"]}}, file.name)
        limit(weight_bytes(model) * 4.5)
        checkpoint = torch.load(file.name, map_location=DEVICE)
    model.load_state_dict(checkpoint["model"], strict=DEVICE == "cuda")
    optimizer.load_state_dict(checkpoint["optimizer"])
    for epoch in range(checkpoint["epoch"], checkpoint["epoch"] + 2):
        loss = model(pixel_values=noise(4, 3, 64, 64), labels=classes(4)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return checkpoint["epoch"]


def start_from_pretrained(*_):
    pretrained = gpt2(768, 12).to(DEVICE)
    model = gpt2(768, 12).to(DEVICE)
    model.load_state_dict(pretrained.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    limit(weight_bytes(model) * 2.6)
    for _ in range(3):
        ids = tokens(2, 64, 5000)
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


# ---- fragmentation ---------------------------------------------------------------------------------------------------------
class Index:
    """Parts of an index of documents, put on the device as they are asked for."""

    def __init__(self):
        self.parts = collections.OrderedDict()

    def get(self, part):
        if part not in self.parts:
            self.parts[part] = torch.rand(9000 + part * 2663 % 4999, 512, device=DEVICE)
        return self.parts[part]

    def keep(self, wanted):
        for part in list(self.parts):
            if part not in wanted:
                del self.parts[part]


def search_documents(*_):
    encoder, index = perceptron([512, 2048, 512]).to(DEVICE), Index()
    with torch.no_grad():
        encoder(noise(130000, 512))
        limit(torch.cuda.memory_reserved() + 10 * MIB)
        query = encoder(noise(4, 512))
        best = torch.stack([(query @ index.get(part).t()).amax(1) for part in range(94)])
        index.keep(set(range(0, 94, 3)))
        joined = torch.zeros(330000, 512, device=DEVICE)
    return best, joined


def utterances(*_):
    """Spectrograms of all lengths; the short ones are set aside, then the long ones are padded into one batch."""
    net = Speech(128).to(DEVICE).eval()
    with torch.no_grad():
        work = [torch.empty(200 * MIB, dtype=torch.uint8, device=DEVICE) for _ in range(6)]
        del work
        limit(torch.cuda.memory_reserved() + 30 * MIB)
        clips = [noise(80, 32000 + number * 7919 % 41000) for number in range(68)]
        clips = [clip for number, clip in enumerate(clips) if number % 4 == 2]
        padded = torch.zeros(len(clips), 80, 110000, device=DEVICE)
        for row, clip in zip(padded, clips):
            row[:, :clip.shape[1]] = clip
        net(padded[:, :, :400])
