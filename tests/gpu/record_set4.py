#!/usr/bin/env python3
"""The fourth set: programs that run out of memory, each for a known cause, to test `stowage explain`. Written without looking at its
rules, with other models, idioms and shapes than record_causes.py and record_set2.py.

usage: record_set4.py FOLDER [NAME...]      (needs torch, transformers and one device; uses numba and jax where they are;
                                               see record_causes.py)
"""
import copy, functools, os, tempfile

import torch
import transformers
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import record_causes as base
from record_causes import MIB, EightBits, driver_alloc, limit, weight_bytes

DEVICE = "cuda"
transformers.PreTrainedModel._init_weights = lambda self, module: None  # the numbers do not matter


def used():
    return torch.cuda.max_memory_allocated()


# ---- data and models -------------------------------------------------------------------------------------------------------
class Pictures(Dataset):
    def __init__(self, count, side=64):
        self.count, self.picture = count, torch.rand(3, side, side)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if i >= self.count:
            raise IndexError(i)
        return self.picture, i % 10


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(x + self.bn2(self.conv2(y)))


class ResNet(nn.Module):
    def __init__(self, width=64, depth=4, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.stages = nn.Sequential(*[Residual(width) for _ in range(depth)])
        self.fc = nn.Linear(width, classes)

    def features(self, x):
        return self.stages(self.stem(x)).mean((2, 3))

    def forward(self, x):
        return self.fc(self.features(x))


class Block(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(width), nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


class Audio(nn.Module):
    """One-dimensional convolutions over a waveform."""

    def __init__(self, width=128, depth=6):
        super().__init__()
        self.front = nn.Conv1d(1, width, 15, stride=4, padding=7)
        self.body = nn.Sequential(*[nn.Sequential(nn.Conv1d(width, width, 9, padding=4), nn.BatchNorm1d(width), nn.ReLU())
                                    for _ in range(depth)])
        self.classify = nn.Linear(width, 35)

    def forward(self, wave):
        return self.classify(self.body(self.front(wave)).mean(2))


class PointNet(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.point = nn.Sequential(nn.Conv1d(3, width, 1), nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(),
                                   nn.Conv1d(width, 4 * width, 1))
        self.embed = nn.Linear(4 * width, 256)

    def forward(self, cloud):
        return self.embed(self.point(cloud).amax(2))


class Detector(nn.Module):
    """A backbone, lateral connections and a head on every level."""

    def __init__(self, width=64, levels=4):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 2, 3)
        self.down = nn.ModuleList(nn.Sequential(nn.Conv2d(width, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU(), Residual(width))
                                  for _ in range(levels))
        self.lateral = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(levels))
        self.boxes, self.scores = nn.Conv2d(width, 36, 3, padding=1), nn.Conv2d(width, 9, 3, padding=1)

    def forward(self, x):
        x, levels = self.stem(x), []
        for layer, side in zip(self.down, self.lateral):
            x = layer(x)
            levels.append(side(x))
        return [(self.boxes(level), self.scores(level)) for level in levels]


class Denoiser(nn.Module):
    def __init__(self, width=64, depth=4):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.into = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(Residual(width) for _ in range(depth))
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, t):
        h = self.into(x) + self.time(t[:, None])[:, :, None, None]
        for block in self.blocks:
            h = block(h)
        return self.out(h)


def llama(width=512, depth=4, words=8000):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=words, hidden_size=width, intermediate_size=width * 11 // 4, num_hidden_layers=depth,
        num_attention_heads=width // 64, num_key_value_heads=width // 64, max_position_embeddings=2048))


def bert(width=768, depth=8):
    return transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=20000, hidden_size=width, num_hidden_layers=depth, num_attention_heads=width // 64, intermediate_size=4 * width))


def noise(*shape):
    return torch.randn(*shape, device=DEVICE)


def words(n, length, vocabulary=8000):
    return torch.randint(0, vocabulary, (n, length), device=DEVICE)


# ---- weights_too_big -------------------------------------------------------------------------------------------------------
def load_for_inference(kind, fixed):
    net = llama(1280, 14, 16000)
    limit(weight_bytes(net) * 0.7)
    if fixed:
        net = net.half()
    net = net.to(DEVICE).eval()
    with torch.no_grad():
        net(words(1, 16))


class LinearRegression(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        return self.linear(x)


def one_layer_weights(kind, fixed):
    model = LinearRegression(18000, 15000)
    limit(weight_bytes(model) * 0.75)
    if fixed:
        model.half()
    model.cuda() if DEVICE == "cuda" else model.to(DEVICE)


class Recommender(nn.Module):
    """A table for every feature, made where it will be used."""

    def __init__(self, rows, width, dtype=torch.float32):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(n, width, device=DEVICE, dtype=dtype) for n in rows)
        self.top = nn.Sequential(nn.Linear(width, 64, device=DEVICE, dtype=dtype), nn.ReLU(),
                                 nn.Linear(64, 1, device=DEVICE, dtype=dtype))


def tables_on_device(kind, fixed):
    rows = [20000 + 17000 * (i * 7 % 13) for i in range(26)]
    limit(sum(rows) * 128 * 4 * 0.7)
    Recommender(rows, 128, torch.float16 if fixed else torch.float32)


# ---- batch_too_big ---------------------------------------------------------------------------------------------------------
def deep_stack(kind, fixed, rows=32768):
    """Forty layers, all alike."""
    model = nn.Sequential(*[Block(512, 1024) for _ in range(40)], nn.Linear(512, 10)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    limit(weight_bytes(model) * 5 + 4000 * MIB)
    if fixed:
        rows //= fixed
    for epoch in range(2):
        x, y = noise(rows, 512), torch.zeros(rows, dtype=torch.long, device=DEVICE)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


def full_batch(kind, fixed, rows=400000):
    """One layer, all the data at once."""
    model = nn.Linear(1024, 1024).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    limit(4200 * MIB)
    for _ in range(4):
        x = noise(rows // fixed if fixed else rows, 1024)
        optimizer.zero_grad()
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()


def train_audio(net, optimizer, scaler, clips, accumulate=4):
    for step in range(8):
        wave = noise(clips, 1, 16000)
        label = torch.zeros(clips, dtype=torch.long, device=DEVICE)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(net(wave), label) / accumulate
        scaler.scale(loss).backward()
        if (step + 1) % accumulate == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def speech_commands(kind, fixed, clips=384):
    net = Audio(128, 8).to(DEVICE)
    limit(3500 * MIB)
    train_audio(net, torch.optim.AdamW(net.parameters()), torch.amp.GradScaler("cuda"), clips // fixed if fixed else clips)


class DetectionTrainer:
    def __init__(self, batch_size):
        self.model = Detector(96).to(DEVICE)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.batch_size = batch_size

    def training_step(self):
        outputs = self.model(noise(self.batch_size, 3, 512, 640))
        return sum(F.smooth_l1_loss(b, torch.zeros_like(b)) + s.sigmoid().mean() for b, s in outputs)

    def fit(self, steps):
        for _ in range(steps):
            loss = self.training_step()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def detection(kind, fixed, size=64):
    limit(3200 * MIB)
    DetectionTrainer(max(size // fixed, 1) if fixed else size).fit(3)


# ---- one_spike -------------------------------------------------------------------------------------------------------------
def info_nce(a, b):
    logits = F.normalize(a, dim=1) @ F.normalize(b, dim=1).t() / 0.1
    return F.cross_entropy(logits, torch.zeros(len(a), dtype=torch.long, device=DEVICE))


@torch.no_grad()
def knn_accuracy(queries, bank, fixed):
    parts = queries.split(500) if fixed else [queries]
    return torch.cat([(part @ bank.t()).topk(20).indices[:, 0] for part in parts])


def contrastive(kind, fixed):
    encoder = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 128)).to(DEVICE)
    optimizer = torch.optim.AdamW(encoder.parameters())
    bank = noise(60000, 128)
    limit(1500 * MIB)
    for step in range(12):
        views = noise(512, 1024), noise(512, 1024)
        loss = info_nce(encoder(views[0]), encoder(views[1]))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return knn_accuracy(noise(30000, 128), bank, fixed)


def propagate(edges, x, fixed):
    """A x, with A as a dense matrix."""
    n, out = len(x), []
    step = 1000 if fixed else n
    for at in range(0, n, step):
        adjacency = torch.zeros(step, n, device=DEVICE)
        adjacency[edges[0] % step, edges[1]] = 1
        out.append(adjacency @ x)
        del adjacency
    return torch.cat(out)


def graph_convolution(kind, fixed):
    nodes = 36000
    edges, x = torch.randint(0, nodes, (2, 400000), device=DEVICE), noise(nodes, 64)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 7)).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    limit(2000 * MIB)
    for epoch in range(3):
        h = propagate(edges, x, fixed)
        loss = F.cross_entropy(net(h), torch.zeros(nodes, dtype=torch.long, device=DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def box_iou(a, b):
    corner = torch.max(a[:, None, :2], b[None, :, :2])
    other = torch.min(a[:, None, 2:], b[None, :, 2:])
    return (other - corner).clamp(min=0).prod(2)


def assign(anchors, truth, fixed):
    parts = anchors.split(1024) if fixed else [anchors]
    return torch.cat([box_iou(part, truth).amax(1) for part in parts])


def crowded_picture(kind, fixed):
    """All pictures hold a few objects, one holds thousands."""
    net = Detector(64).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    anchors = torch.rand(120000, 4, device=DEVICE)
    limit(2200 * MIB)
    for objects in (12, 7, 30, 4, 5000, 9):
        matched = assign(anchors, torch.rand(objects, 4, device=DEVICE), fixed)
        loss = sum(b.square().mean() + s.mean() for b, s in net(noise(2, 3, 256, 256))) + matched.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


# ---- optimizer_state -------------------------------------------------------------------------------------------------------
def finetune_bert(kind, fixed):
    model = bert().to(DEVICE).train()
    optimizer = EightBits(model.parameters()) if fixed else torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / 10)) if not fixed else None
    limit(weight_bytes(model) * 3 + 120 * MIB)
    for step in range(4):
        loss = model(words(4, 48), labels=torch.zeros(4, dtype=torch.long, device=DEVICE)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if scheduler:
            scheduler.step()
        optimizer.zero_grad()


class TwoTower(nn.Module):
    def __init__(self, sizes, width):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, width, sparse=True) for n in sizes)

    def forward(self, ids):
        return sum(table(ids % table.num_embeddings) for table in self.tables)


def sparse_embeddings(kind, fixed):
    model = TwoTower([500000, 250000, 150000, 100000], 256).to(DEVICE)
    limit(weight_bytes(model) * 1.7)
    optimizer = EightBits(model.parameters()) if fixed else torch.optim.Adagrad(model.parameters(), lr=0.05)
    for _ in range(3):
        model(words(64, 4, 1000000)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


class ConvNext(nn.Module):
    def __init__(self, width=512, depth=36):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.mix = nn.ModuleList(nn.Conv2d(width, width, 7, padding=3, groups=width) for _ in range(depth))
        self.mlp = nn.ModuleList(Block(width, 4 * width) for _ in range(depth))
        self.head = nn.Linear(width, 1000)

    def forward(self, x):
        x = self.patch(x)
        for mix, mlp in zip(self.mix, self.mlp):
            x = mlp(mix(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.head(x.mean((2, 3)))


class LitClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = ConvNext()

    def training_step(self, batch, index):
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def configure_optimizers(self, fixed):
        return EightBits(self.parameters()) if fixed else torch.optim.RAdam(self.parameters(), lr=1e-3)


def fit(module, data, fixed, epochs=1):
    optimizer = module.configure_optimizers(fixed)
    for _ in range(epochs):
        for index, (x, y) in enumerate(data):
            loss = module.training_step((x.to(DEVICE), y.to(DEVICE)), index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def lightning_radam(kind, fixed):
    module = LitClassifier().to(DEVICE)
    limit(weight_bytes(module) * 3.4 + 80 * MIB)
    fit(module, DataLoader(Pictures(12, 32), 4), fixed)


# ---- graph_kept ------------------------------------------------------------------------------------------------------------
def total_loss(kind, fixed):
    model = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)).to(DEVICE)
    limit(weight_bytes(model) + 900 * MIB)
    data = [(noise(1024, 784), torch.zeros(1024, dtype=torch.long, device=DEVICE)) for _ in range(8)] * 10
    total = 0
    for x, y in data:
        loss = F.cross_entropy(model(x), y)
        total = total + (loss.item() if fixed else loss)
    return total / len(data)


def list_of_losses(kind, fixed):
    """A whole slide cut in patches; the losses of its patches are averaged."""
    model = ResNet(64, 4).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    limit(1600 * MIB)
    for slide in range(2):
        losses = []
        for x, y in DataLoader(Pictures(640), 16):
            loss = F.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
            if fixed:
                loss.backward()
            losses.append(loss.detach() if fixed else loss)
        loss = torch.stack(losses).mean()
        if not fixed:
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class Distiller:
    """Trains on one loss and logs another."""

    def __init__(self, fixed):
        self.student, self.teacher = Audio(64, 4).to(DEVICE), Audio(64, 4).to(DEVICE).eval()
        self.optimizer = torch.optim.AdamW(self.student.parameters())
        self.logs, self.fixed = {"loss": 0.0, "consistency": 0.0}, fixed

    def step(self, wave):
        with torch.no_grad():
            target = self.teacher(wave)
        loss = F.mse_loss(self.student(wave), target)
        consistency = F.mse_loss(self.student(wave + 0.1 * torch.randn_like(wave)), target)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.logs["loss"] += loss.item()
        self.logs["consistency"] += consistency.item() if self.fixed else consistency


def distill(kind, fixed):
    trainer = Distiller(fixed)
    limit(1400 * MIB)
    for _ in range(40):
        trainer.step(noise(24, 1, 16000))


# ---- no_grad_missing -------------------------------------------------------------------------------------------------------
def validate(model, data, fixed):
    model.eval()
    outputs, targets = [], []
    with torch.set_grad_enabled(not fixed):
        for x, y in data:
            out = model(x.to(DEVICE))
            outputs.append(out.cpu() if fixed == "cpu" else out)
            targets.append(y)
    return (torch.cat(outputs).argmax(1).cpu() == torch.cat(targets)).float().mean()


def resnet_validation(kind, fixed):
    model = ResNet(64, 4).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    limit(1500 * MIB)
    for epoch in range(2):
        model.train()
        for x, y in DataLoader(Pictures(96), 24):
            loss = F.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        validate(model, DataLoader(Pictures(600), 24), fixed)


def decode(model, ids, count):
    out = model(ids, use_cache=True)
    past, generated = out.past_key_values, [ids]
    for _ in range(count):
        token = out.logits[:, -1:].argmax(-1)
        generated.append(token)
        out = model(token, past_key_values=past, use_cache=True)
        past = out.past_key_values
    return torch.cat(generated, 1)


def chat(kind, fixed):
    model = llama().to(DEVICE).eval()
    limit(2200 * MIB)
    prompt = words(32, 128)
    if fixed:
        with torch.inference_mode():
            decode(model, prompt, 48)
    else:
        decode(model, prompt, 48)


def embed_clouds(kind, fixed):
    net = PointNet().to(DEVICE).eval()
    limit(1200 * MIB)
    features = {}
    for name in range(60):
        with torch.set_grad_enabled(not fixed):
            vector = net(noise(8, 3, 2048))
        features[name] = vector.cpu() if fixed == "cpu" else vector
    return features


# ---- eval_batch_bigger -----------------------------------------------------------------------------------------------------
@torch.no_grad()
def evaluate(model, data):
    model.eval()
    right = 0
    for x, y in data:
        right += (model(x.to(DEVICE)).logits.argmax(1) == y.to(DEVICE)).sum().item()
    return right


def vit_with_big_validation(kind, fixed):
    model = transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536, image_size=64, patch_size=8,
        num_labels=10)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    limit(1100 * MIB)
    for x, y in DataLoader(Pictures(64), 16):
        loss = model(x.to(DEVICE), labels=y.to(DEVICE)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    evaluate(model, DataLoader(Pictures(2048), 16 if fixed else 2048))


class Evaluator:
    """Averages over flipped pictures, all in one forward pass."""

    def __init__(self, net):
        self.net = net.eval()

    def __call__(self, pictures):
        with torch.inference_mode():
            views = torch.cat([pictures, pictures.flip(2), pictures.flip(3), pictures.flip(2, 3)])
            return self.net(views, torch.zeros(len(views), device=DEVICE)).chunk(4)[0]


def restoration(kind, fixed):
    net = Denoiser(64, 4).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    limit(1300 * MIB)
    for _ in range(6):
        clean = noise(6, 3, 96, 96)
        loss = F.mse_loss(net(clean + 0.1 * torch.randn_like(clean), torch.rand(6, device=DEVICE)), clean)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    judge = Evaluator(net)
    for size in [1] * 40 if fixed else [64]:
        judge(noise(size, 3, 96, 96))


# ---- leak ------------------------------------------------------------------------------------------------------------------
def causal_mask(length, heads):
    return torch.full((heads, length, length), float("-inf"), device=DEVICE).triu(1)


class Decoder(nn.Module):
    def __init__(self, mask, width=512, heads=8):
        super().__init__()
        self.embed, self.qkv = nn.Embedding(8000, width), nn.Linear(width, 3 * width)
        self.mlp, self.mask, self.heads = Block(width, 2048), mask, heads

    def forward(self, ids):
        n, t = ids.shape
        q, k, v = (y.view(n, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.embed(ids)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / 8 + self.mask(t, self.heads)
        return self.mlp((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def cached_masks(kind, fixed):
    """A cache of masks, keyed by length, on texts of any length."""
    net = Decoder(functools.lru_cache(maxsize=1 if fixed else None)(causal_mask)).to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    limit(1100 * MIB)
    for step in range(70):
        loss = net(words(2, 640 + step * 53 % 307)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class StreamingServer:
    """Keeps the state of every user; nobody ever logs out."""

    def __init__(self, fixed):
        self.net, self.sessions, self.fixed = nn.GRU(256, 1024, 2, batch_first=True).to(DEVICE).eval(), {}, fixed

    @torch.inference_mode()
    def handle(self, user, chunk):
        out, state = self.net(chunk, self.sessions.get(user))
        self.sessions[user] = state
        if self.fixed:
            self.sessions.pop(user)
        return out[:, -1].argmax(-1)


def sessions(kind, fixed):
    server = StreamingServer(fixed)
    limit(700 * MIB)
    for request in range(160):
        server.handle(request, noise(512, 8, 256))


class ImageLog:
    def __init__(self):
        self.pictures = []

    def add(self, step, pictures):
        self.pictures.append((step, pictures))


def sampled_pictures(kind, fixed):
    generator = nn.Sequential(nn.ConvTranspose2d(64, 64, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(64, 64, 4, 2, 1), nn.ReLU(),
                              nn.ConvTranspose2d(64, 3, 4, 2, 1)).to(DEVICE)
    optimizer, log = torch.optim.Adam(generator.parameters()), ImageLog()
    limit(1100 * MIB)
    for step in range(100):
        fake = generator(noise(96, 64, 8, 8))
        fake.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            shown = generator(noise(400, 64, 8, 8))
        log.add(step, shown.cpu() if fixed else shown)


# ---- loaded_twice ----------------------------------------------------------------------------------------------------------
class ModelServer:
    """Serves a model and can swap it for a newer one."""

    def __init__(self, build, path):
        self.build, self.net = build, None
        self.reload(path, False)

    def reload(self, path, first_drop):
        if first_drop:
            self.net = None
        net = self.build().to(DEVICE)
        net.load_state_dict(torch.load(path, map_location="cpu"))
        self.net = net.eval()

    @torch.no_grad()
    def predict(self, ids):
        return self.net(ids).logits[:, -1]


def hot_swap(kind, fixed):
    build = functools.partial(llama, 768, 10, 4000)
    with tempfile.NamedTemporaryFile() as file:
        net = build()
        torch.save(net.state_dict(), file.name)
        limit(weight_bytes(net) * 1.5 + 60 * MIB)
        server = ModelServer(build, file.name)
        for _ in range(2):
            server.predict(words(4, 32, 4000))
        server.reload(file.name, bool(fixed))
        server.predict(words(4, 32, 4000))


class ResumableTrainer:
    def __init__(self, net):
        self.net = net.to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-4)

    def resume(self, path, where):
        self.checkpoint = torch.load(path, map_location=where)
        self.net.load_state_dict(self.checkpoint["model"])
        self.first_step = self.checkpoint["step"]

    def train(self, steps, batch):
        for _ in range(steps):
            loss = self.net(batch()).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()


def resume_with_ema(kind, fixed):
    net = nn.Sequential(*[Block(1024, 4096) for _ in range(10)])
    with tempfile.NamedTemporaryFile() as file:
        torch.save({"model": net.state_dict(), "ema": copy.deepcopy(net.state_dict()), "step": 1000}, file.name)
        limit(weight_bytes(net) * 5.3 + 100 * MIB)
        trainer = ResumableTrainer(net)
        trainer.resume(file.name, "cpu" if fixed else DEVICE)
    trainer.train(3, lambda: noise(64, 1024))


# ---- fragmentation ---------------------------------------------------------------------------------------------------------
class Serving:
    """Every request brings a key/value cache of its own length."""

    def __init__(self):
        self.net, self.caches = nn.Sequential(Block(1024, 4096), Block(1024, 4096)).to(DEVICE).eval(), {}

    def warm_up(self):
        with torch.no_grad():
            self.net(noise(24000, 1024))

    def open(self, request, tokens):
        self.caches[request] = torch.zeros(2, 16, tokens, 512, dtype=torch.half, device=DEVICE)

    def close(self, request):
        del self.caches[request]


def requests_of_all_lengths(kind, fixed):
    server = Serving()
    server.warm_up()
    limit(torch.cuda.memory_reserved() + 20 * MIB)
    for request in range(26):
        server.open(request, 700 + request * 389 % 601)
    for request in range(26):
        if request % 5 != 1:
            server.close(request)
    server.open("long", 20000)


def slide_features(kind, fixed):
    """Features of a slide, tile by tile; the empty tiles are dropped, then what is left is laid on one canvas."""
    net = Block(768, 3072).to(DEVICE).eval()
    with torch.no_grad():
        net(noise(48000, 768))
        limit(torch.cuda.memory_reserved() + 20 * MIB)
        tiles = {}
        for at in range(58):
            tiles[at] = torch.rand(48, 96 + at * 13 % 29, 700 + at * 31 % 1201, device=DEVICE)
        for at in range(58):
            if at % 4 != 1:
                del tiles[at]
        canvas = torch.zeros(48, 2048, 2048, device=DEVICE)
        for at, tile in tiles.items():
            canvas[:, :tile.shape[1], :tile.shape[2]] += tile


# ---- cache_held, other_process, outside_framework, limit --------------------------------------------------------------------
def outside(size):
    """So many bytes through another library of the same process."""
    try:
        from numba import cuda
    except Exception:
        code = driver_alloc(size)
        if code:
            raise RuntimeError(f"cuMemAlloc of {size / (1 << 30):.2f} GiB outside PyTorch failed with {code}: out of memory")
        return None
    return cuda.device_array(size, dtype="uint8")


def sweep_then_kernel(kind, fixed, size=24 << 30):
    """A sweep over batch sizes with PyTorch, then a kernel written with another library."""
    net = Audio(64, 3).to(DEVICE).eval()
    with torch.no_grad():
        for clips in (16, 32, 64):
            net(noise(clips, 1, 16000))
        free = torch.cuda.mem_get_info()[0]
        for part in (4, 2, 1):
            work = [torch.empty((free - size // 2) // part // 8, dtype=torch.uint8, device=DEVICE) for _ in range(8)]
            del work
    if fixed:
        torch.cuda.empty_cache()
    return outside(size)


def render_after_training(kind, fixed, size=12 << 30):
    net = Denoiser(64, 3).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(3):
        net(noise(8, 3, 64, 64), torch.zeros(8, device=DEVICE)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    features = [torch.empty(2 << 30, dtype=torch.uint8, device=DEVICE)
                for _ in range((torch.cuda.mem_get_info()[0] - size // 2) >> 31)]
    features.clear()
    if fixed:
        torch.cuda.empty_cache()
    code = driver_alloc(size)
    if code:
        raise RuntimeError(f"renderer: cuMemAlloc({size}) failed: CUDA_ERROR_OUT_OF_MEMORY")


def tagger(steps=4, size=256):
    net = nn.Sequential(nn.Embedding(8000, 512), Block(512, 2048), Block(512, 2048), nn.Linear(512, 50)).to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(steps):
        ids = words(size, 256)
        loss = F.cross_entropy(net(ids).flatten(0, 1), ids.flatten() % 50)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def crowded_device(kind, fixed):
    tagger()


@torch.inference_mode()
def answer_beside_another(kind, fixed):
    net = llama(768, 6).to(DEVICE).eval()
    for _ in range(3):
        net(words(64, 256)).logits.argmax(-1)


def after_numba(kind, fixed):
    torch.zeros(1, device=DEVICE)
    grid = None if fixed else outside(torch.cuda.mem_get_info()[0] - 900 * MIB)
    tagger()
    return grid


def beside_jax(kind, fixed):
    """JAX takes its share of the device with the first array."""
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.01" if fixed else "0.99"
    try:
        import jax.numpy as jnp
        kept = jnp.ones((1024, 1024)).sum().block_until_ready()
    except ImportError:
        kept = None if fixed else driver_alloc(torch.cuda.mem_get_info()[0] - 1200 * MIB)
    torch.zeros(1, device=DEVICE)
    tagger(size=2048)
    return kept


class Worker:
    """Runs jobs, and may be asked to leave memory for others."""

    def __init__(self):
        self.net = PointNet().to(DEVICE)
        self.optimizer = torch.optim.Adam(self.net.parameters())

    def job(self):
        self.net(noise(48, 3, 2048)).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def leave_room(self, share):
        torch.cuda.empty_cache()
        limit(used() * share)


def asked_to_share(kind, fixed):
    worker = Worker()
    for _ in range(5):
        worker.job()
    if not fixed:
        worker.leave_room(0.7)
    for _ in range(3):
        worker.job()


def second_run(kind, fixed):
    """The same training twice, the second time under a cap."""

    def train():
        net = bert(384, 4).to(DEVICE).train()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
        for _ in range(4):
            net(words(48, 128), labels=torch.zeros(48, dtype=torch.long, device=DEVICE)).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    train()
    if not fixed:
        torch.cuda.empty_cache()
        limit(used() * 0.75)
    train()


# ---- two causes --------------------------------------------------------------------------------------------------------------
def evaluate_checkpoint(kind, fixed):
    """The checkpoint stays on the device beside the model, and the evaluation builds graphs."""
    net = llama(768, 8, 4000)
    with tempfile.NamedTemporaryFile() as file:
        torch.save(net.state_dict(), file.name)
        state = torch.load(file.name, map_location="cpu" if fixed else DEVICE)
    net.to(DEVICE).load_state_dict(state)
    limit(weight_bytes(net) * 2 + 900 * MIB)
    net.eval()
    scores = []
    with torch.set_grad_enabled(not fixed):
        for _ in range(60):
            ids = words(4, 128, 4000)
            scores.append(net(ids, labels=ids).loss)
    return state, scores


def history_beside_another(kind, fixed):
    net = Audio(32, 2).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    history = []
    for _ in range(160):
        wave = noise(320, 1, 16000)
        net(wave).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        history.append(wave.cpu() if fixed else wave)


def checkpoint_and_adam(kind, fixed):
    net = bert(640, 8)
    net.to(DEVICE).train()
    before = {k: v.detach().cpu() if fixed else v.detach().clone() for k, v in net.state_dict().items()}
    optimizer = EightBits(net.parameters()) if fixed else torch.optim.Adam(net.parameters())
    limit(weight_bytes(net) * 3.6 + 100 * MIB)
    for _ in range(3):
        net(words(4, 48), labels=torch.zeros(4, dtype=torch.long, device=DEVICE)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return before


base.HELD = {crowded_device: lambda kind: 1000 * MIB, answer_beside_another: lambda kind: 600 * MIB,
             history_beside_another: lambda kind: 2200 * MIB}
base.OWN |= {os.path.basename(__file__)}
base.PROGRAMS = {
    "weights_too_big": [("llama", load_for_inference, {}, ""), ("linear", one_layer_weights, {}, "a"),
                        ("recommender", tables_on_device, {}, "x")],
    "batch_too_big": [("deep", deep_stack, {}, ""), ("linear", full_batch, {}, ""), ("audio", speech_commands, {}, "x"),
                      ("detector", detection, {}, "n")],
    "one_spike": [("contrastive", contrastive, {}, ""), ("gcn", graph_convolution, {}, "x"), ("detector", crowded_picture, {}, "a")],
    "optimizer_state": [("bert", finetune_bert, {}, ""), ("towers", sparse_embeddings, {}, "x"), ("convnext", lightning_radam, {}, "n")],
    "graph_kept": [("mlp", total_loss, {}, ""), ("resnet", list_of_losses, {}, "a"), ("audio", distill, {}, "x")],
    "no_grad_missing": [("resnet", resnet_validation, {}, ""), ("llama", chat, {}, ""), ("pointnet", embed_clouds, {}, "x")],
    "eval_batch_bigger": [("vit", vit_with_big_validation, {}, ""), ("denoiser", restoration, {}, "x")],
    "leak": [("decoder", cached_masks, {}, ""), ("gru", sessions, {}, "x"), ("generator", sampled_pictures, {}, "n")],
    "loaded_twice": [("llama", hot_swap, {}, "x"), ("blocks", resume_with_ema, {}, "")],
    "fragmentation": [("serving", requests_of_all_lengths, {}, ""), ("slide", slide_features, {}, "n")],
    "cache_held": [("audio", sweep_then_kernel, {}, ""), ("denoiser", render_after_training, {}, "x")],
    "other_process": [("tagger", crowded_device, {}, ""), ("llama", answer_beside_another, {}, "x")],
    "outside_framework": [("tagger", after_numba, {}, ""), ("jax", beside_jax, {}, "")],
    "limit": [("pointnet", asked_to_share, {}, ""), ("bert", second_run, {}, "a")],
    "loaded_twice+no_grad_missing": [("llama", evaluate_checkpoint, {}, "")],
    "leak+other_process": [("audio", history_beside_another, {}, "")],
    "loaded_twice+optimizer_state": [("bert", checkpoint_and_adam, {}, "x")],
}

if __name__ == "__main__":
    base.main()
