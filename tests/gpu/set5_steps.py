"""Programs of record_set5.py of which one step, or one part of a step, is too large for the memory there is."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from record_models import (DEVICE, Encoder, LanguageModel, Pictures, Speech, UNet, Video, bert, classes, gpt2, noise, perceptron,
                          t5, tokens, vit)
from record_causes import MIB, limit, weight_bytes


# ---- weights_too_big -------------------------------------------------------------------------------------------------------
def summarize(*_):
    limit(1100 * MIB)
    model = t5(1024, 12, 30000).to(DEVICE).eval()
    with torch.inference_mode():
        model.generate(tokens(1, 64, 30000), max_new_tokens=8)


class ImageText(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.image = vit(1024, 10).to(device)
        self.text = gpt2(1280, 16, 20000).to(device)
        self.scale = nn.Parameter(torch.ones((), device=device))


def two_encoders(*_):
    limit(1300 * MIB)
    model = ImageText(DEVICE)
    return torch.optim.AdamW(model.parameters())


def classifier_of_texts(*_):
    model = bert(1024, 24)
    limit(900 * MIB)
    model.to(DEVICE)
    model.eval()


# ---- batch_too_big ---------------------------------------------------------------------------------------------------------
def segment_scans(*_):
    model, criterion = UNet(48).to(DEVICE), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    limit(2500 * MIB)
    for epoch in range(3):
        for images, masks in DataLoader(Pictures(96, 256, masks=True), batch_size=24, shuffle=True):
            images, masks = images.to(DEVICE), masks.to(DEVICE)
            optimizer.zero_grad()
            loss = criterion(model(images), masks)
            loss.backward()
            optimizer.step()


def pretrain(*_, micro=48, accumulate=8):
    model = gpt2().to(DEVICE).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4)
    limit(3000 * MIB)
    for step in range(16):
        ids = tokens(micro, 512, 5000)
        loss = model(input_ids=ids, labels=ids).loss / accumulate
        loss.backward()
        if step % accumulate == accumulate - 1:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


class ClipTrainer:
    def __init__(self, model):
        self.model, self.scaler = model.to(DEVICE), torch.amp.GradScaler("cuda", enabled=DEVICE == "cuda")
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def run_epoch(self, clips, labels, batch_size):
        for at in range(0, len(clips), batch_size):
            video = clips[at:at + batch_size].to(DEVICE)
            with torch.autocast(DEVICE, dtype=torch.float16):
                loss = F.cross_entropy(self.model(video), labels[at:at + batch_size].to(DEVICE))
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()


def actions(*_):
    limit(2000 * MIB)
    trainer = ClipTrainer(Video(32, 4))
    clips, labels = torch.rand(1, 3, 16, 112, 112).expand(48, -1, -1, -1, -1), torch.zeros(48, dtype=torch.long)
    for epoch in range(2):
        trainer.run_epoch(clips, labels, 24)


def nt_xent(a, b):
    z = F.normalize(torch.cat([a, b]), dim=1)
    similar = z @ z.t() / 0.5
    return F.cross_entropy(similar, torch.arange(len(z), device=DEVICE).roll(len(a)))


def two_views_growing(*_):
    """Larger batches as the training goes on."""
    net = Encoder().to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-4)
    limit(2200 * MIB)
    for epoch, size in enumerate([64, 128, 256, 512, 1024]):
        for _ in range(4):
            x = noise(size, 3, 32, 32)
            loss = nt_xent(net(x + 0.1 * torch.randn_like(x)), net(x.flip(3)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


# ---- one_spike -------------------------------------------------------------------------------------------------------------
def rbf(a, b, length=1.0):
    difference = a[:, None, :] - b[None, :, :]
    return torch.exp(-difference.square().sum(-1) / (2 * length ** 2))


def gaussian_process(*_):
    features = perceptron([784, 512, 128]).to(DEVICE)
    optimizer = torch.optim.Adam(features.parameters())
    limit(2000 * MIB)
    for _ in range(10):
        loss = F.mse_loss(features(noise(256, 784)), noise(256, 128))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        points = features(noise(2500, 784))
        kernel = rbf(points, points) + 1e-3 * torch.eye(2500, device=DEVICE)
        return torch.linalg.cholesky(kernel)


def spectra(wave, size=1024):
    frames = wave.unfold(0, size, 1) * torch.hann_window(size, device=DEVICE)
    return torch.fft.rfft(frames).abs()


def transcribe(*_):
    model = Speech().to(DEVICE).eval()
    limit(3000 * MIB)
    with torch.no_grad():
        for seconds in (1, 2, 1, 3, 190):
            mel = spectra(noise(16000 * seconds))[::160, :80]
            model(mel.t()[None])


# ---- optimizer_state -------------------------------------------------------------------------------------------------------
def adversaries(*_):
    generator = perceptron([128, 4096, 4096, 4096, 4096, 4096, 784], nn.Tanh()).to(DEVICE)
    critic = perceptron([784, 2048, 2048, 2048, 1]).to(DEVICE)
    opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    limit(weight_bytes(generator) * 3.1 + weight_bytes(critic) * 4)
    for _ in range(5):
        real, fake = noise(64, 784), generator(noise(64, 128))
        opt_d.zero_grad()
        (F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()).backward()
        opt_d.step()
        opt_g.zero_grad()
        F.softplus(-critic(fake)).mean().backward()
        opt_g.step()


def finetune_pictures(*_):
    model = vit(768, 12).to(DEVICE).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.05)
    limit(weight_bytes(model) * 3.2 + 60 * MIB)
    for images, labels in DataLoader(Pictures(16, 64), batch_size=4):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = model(pixel_values=images.to(DEVICE), labels=labels.to(DEVICE)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def words_amsgrad(*_):
    model = LanguageModel(30000, 1024, 3).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=True)
    limit(weight_bytes(model) * 3.7)
    for _ in range(4):
        ids = tokens(4, 17, 30000)
        logits, _ = model(ids[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


# ---- eval_batch_bigger -----------------------------------------------------------------------------------------------------
@torch.no_grad()
def perplexity(model, text):
    model.eval()
    logits, _ = model(text[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()).exp()


def words_then_test(*_):
    model = LanguageModel(8000, 512).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    limit(1200 * MIB)
    for epoch in range(2):
        model.train()
        for _ in range(6):
            text = tokens(20, 36, 8000)
            logits, _ = model(text[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
            optimizer.zero_grad()
        print(perplexity(model, tokens(2000, 36, 8000)))


def linear_probe(*_):
    net = Encoder().to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-4)
    limit(1500 * MIB)
    for _ in range(8):
        x = noise(128, 3, 32, 32)
        loss = nt_xent(net(x), net(x.flip(3)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    test = Pictures(10000, 32)
    for images, labels in DataLoader(test, batch_size=len(test)):
        with torch.no_grad():
            features = net(images.to(DEVICE))
    return features


def distilled(*_):
    teacher, student = Encoder(64, 3, 10).to(DEVICE).eval(), Encoder(32, 3, 10).to(DEVICE)
    optimizer = torch.optim.AdamW(student.parameters())
    limit(900 * MIB)
    for epoch in range(2):
        student.train()
        for _ in range(5):
            x = noise(32, 3, 32, 32)
            with torch.no_grad():
                target = teacher(x).softmax(-1)
            loss = F.kl_div(student(x).log_softmax(-1), target, reduction="batchmean")
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        student.eval()
        with torch.no_grad():
            x, y = noise(6000, 3, 32, 32), classes(6000)
            print((student(x).argmax(1) == y).sum() / (teacher(x).argmax(1) == y).sum())
