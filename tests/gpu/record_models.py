"""Models and data for record_set5.py: what a student would train, small, with numbers that do not matter."""
import os

import torch
import transformers
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

DEVICE = os.environ.get("FRESH_DEVICE", "cuda")
transformers.PreTrainedModel._init_weights = lambda self, module: None


def noise(*shape):
    return torch.randn(*shape, device=DEVICE)


def tokens(n, length, words):
    return torch.randint(0, words, (n, length), device=DEVICE)


def classes(n, count=10):
    return torch.randint(0, count, (n,), device=DEVICE)


class Pictures(Dataset):
    """Pictures on the host with a class, or with a mask."""

    def __init__(self, count, side, masks=False):
        self.count, self.picture, self.mask = count, torch.rand(3, side, side), torch.zeros(side, side, dtype=torch.long)
        self.masks = masks

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return self.picture, self.mask if self.masks else i % 10


class LanguageModel(nn.Module):
    def __init__(self, words, width, depth=2):
        super().__init__()
        self.embed, self.decode = nn.Embedding(words, width), nn.Linear(width, words)
        self.rnn = nn.LSTM(width, width, depth, batch_first=True)

    def forward(self, ids, hidden=None):
        output, hidden = self.rnn(self.embed(ids), hidden)
        return self.decode(output), hidden


def double_conv(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
                         nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, width=32, classes=4):
        super().__init__()
        self.enc1, self.enc2, self.enc3 = double_conv(3, width), double_conv(width, 2 * width), double_conv(2 * width, 4 * width)
        self.up2, self.up1 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.dec2, self.dec1 = double_conv(4 * width, 2 * width), double_conv(2 * width, width)
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(F.max_pool2d(e1, 2))
        e3 = self.enc3(F.max_pool2d(e2, 2))
        d2 = self.dec2(torch.cat([self.up2(e3), e2], 1))
        return self.out(self.dec1(torch.cat([self.up1(d2), e1], 1)))


class Vae(nn.Module):
    def __init__(self, width=64, latent=128):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.ReLU(),
                                     nn.Flatten())
        self.mu, self.logvar = nn.Linear(2 * width * 256, latent), nn.Linear(2 * width * 256, latent)
        self.expand = nn.Linear(latent, 2 * width * 256)
        self.decoder = nn.Sequential(nn.Unflatten(1, (2 * width, 16, 16)), nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.ReLU(),
                                     nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Sigmoid())

    def decode(self, z):
        return self.decoder(self.expand(z))

    def forward(self, x):
        h = self.encoder(x)
        mu, logvar = self.mu(h), self.logvar(h)
        return self.decode(mu + torch.randn_like(mu) * (0.5 * logvar).exp()), mu, logvar


def perceptron(sizes, end=None):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1], *([end] if end else []))


class Sage(nn.Module):
    """Mean of the neighbours, over an edge list."""

    def __init__(self, inputs, width, outputs, depth=3):
        super().__init__()
        sizes = [inputs] + [width] * (depth - 1) + [outputs]
        self.own = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.near = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x, edges):
        source, target = edges
        for own, near in zip(self.own, self.near):
            messages = near(x)[source]
            x = F.relu(own(x).index_add(0, target, messages))
        return x


class Bottleneck(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.conv1, self.conv2, self.conv3 = nn.Conv2d(a, b // 2, 1), nn.Conv2d(b // 2, b // 2, 3, 2, 1), nn.Conv2d(b // 2, b, 1)
        self.bn, self.skip = nn.BatchNorm2d(b), nn.Conv2d(a, b, 1, 2)

    def forward(self, x):
        y = self.conv3(F.relu(self.conv2(F.relu(self.conv1(x)))))
        return F.relu(self.bn(y) + self.skip(x))


class Encoder(nn.Module):
    """Pictures to vectors."""

    def __init__(self, width=64, depth=3, out=128):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.layers = nn.Sequential(*[Bottleneck(width << i, width << i + 1) for i in range(depth)])
        self.project = nn.Linear(width << depth, out)

    def forward(self, x):
        return self.project(self.layers(F.relu(self.stem(x))).mean((2, 3)))


class Speech(nn.Module):
    """Convolutions over a spectrogram, a bidirectional GRU, letters."""

    def __init__(self, width=256, letters=32):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(80, width, 5, 2, 2), nn.GELU(), nn.Conv1d(width, width, 5, padding=2), nn.GELU())
        self.rnn, self.fc = nn.GRU(width, width, 2, batch_first=True, bidirectional=True), nn.Linear(2 * width, letters)

    def forward(self, spectrogram):
        return self.fc(self.rnn(self.conv(spectrogram).transpose(1, 2))[0]).log_softmax(-1)


def ctc(log_probs):
    n, t, _ = log_probs.shape
    lengths = torch.full((n,), t, dtype=torch.long), torch.full((n,), 20, dtype=torch.long)
    if DEVICE == "meta":
        return -log_probs.mean()
    return F.ctc_loss(log_probs.transpose(0, 1), torch.randint(1, 30, (n, 20), device=DEVICE), *lengths)


class Experts(nn.Module):
    """A mixture of experts; every token goes through all of them, by its weights."""

    def __init__(self, width, hidden, count):
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
                                     for _ in range(count))

    def forward(self, x):
        weights = self.gate(x).softmax(-1)
        return x + sum(weights[..., i:i + 1] * expert(x) for i, expert in enumerate(self.experts))


class Video(nn.Module):
    def __init__(self, width=32, depth=4):
        super().__init__()
        self.stem = nn.Conv3d(3, width, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv3d(width, width, 3, padding=1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm3d(width) for _ in range(depth))
        self.fc = nn.Linear(width, 101)

    def forward(self, x):
        x = self.stem(x)
        for layer, norm in zip(self.layers, self.norms):
            x = F.relu(norm(layer(x)))
        return self.fc(x.mean((2, 3, 4)))


class Eps(nn.Module):
    """Predicts the noise of a picture at a time."""

    def __init__(self, width=64, depth=4):
        super().__init__()
        self.time, self.enter = nn.Embedding(1000, width), nn.Conv2d(3, width, 3, padding=1)
        self.leave = nn.Conv2d(width, 3, 3, padding=1)
        self.layers = nn.ModuleList(nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))
                                    for _ in range(depth))

    def forward(self, x, t):
        h = self.enter(x) + self.time(t)[:, :, None, None]
        for layer in self.layers:
            h = h + layer(h)
        return self.leave(h)


class Mixer(nn.Module):
    def __init__(self, patches, width, depth):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.tokens = nn.ModuleList(perceptron([patches, 2 * patches, patches]) for _ in range(depth))
        self.channels = nn.ModuleList(perceptron([width, 4 * width, width]) for _ in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2)
        for tokens, channels in zip(self.tokens, self.channels):
            x = x + tokens(x)
            x = x + channels(x.transpose(1, 2)).transpose(1, 2)
        return self.head(x.mean(2))


def gpt2(width=512, depth=6, words=5000):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=words, n_embd=width, n_layer=depth, n_head=width // 64))


def t5(width=512, depth=6, words=8000):
    return transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=words, d_model=width, d_ff=4 * width, num_layers=depth, num_heads=width // 64, decoder_start_token_id=0))


def vit(width=384, depth=6, side=64):
    return transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=width, num_hidden_layers=depth, num_attention_heads=width // 64, intermediate_size=4 * width, image_size=side,
        patch_size=8, num_labels=10))


def bert(width=512, depth=6, words=12000):
    return transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=words, hidden_size=width, num_hidden_layers=depth, num_attention_heads=width // 64, intermediate_size=4 * width))


def llama(width=512, depth=6, words=6000):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=words, hidden_size=width, intermediate_size=width * 8 // 3, num_hidden_layers=depth,
        num_attention_heads=width // 64, num_key_value_heads=width // 64))
