#!/usr/bin/env python3
"""The seventh set, held back like the sixth: variants of what was wrong in the fifth, and some of everything.

usage: record_set7.py FOLDER [NAME...]      (needs torch, transformers and one device; uses jax where it is; see record_causes.py)
"""
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import record_causes as base
from record_models import (DEVICE, Encoder, LanguageModel, Mixer, Pictures, Sage, Speech, UNet, Vae, bert, classes, ctc, gpt2, llama,
                          noise, perceptron, t5, tokens, vit)
from record_causes import MIB, driver_alloc, limit, weight_bytes


def fit(model, optimizer, batches, loss_of):
    for batch in batches:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()


# ---- one_spike -------------------------------------------------------------------------------------------------------------
def patches_of_a_large_picture(*_):
    net = perceptron([768, 1024, 768]).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    limit(3500 * MIB)
    fit(net, optimizer, (noise(256, 768) for _ in range(12)), lambda net, x: F.mse_loss(net(x), x))
    picture = torch.rand(1, 3, 2048, 2048, device=DEVICE)
    with torch.no_grad():
        columns = F.unfold(picture, 16)
        return net(columns[0, :, ::64].t())


def all_pairs(left, right):
    return (F.normalize(left, dim=1)[:, None] * F.normalize(right, dim=1)[None]).sum(-1)


def match_products(*_):
    towers = Encoder(32, 3, 256).to(DEVICE), perceptron([300, 512, 256]).to(DEVICE)
    optimizer = torch.optim.Adam([p for tower in towers for p in tower.parameters()])
    limit(1800 * MIB)
    for step in range(10):
        scores = F.normalize(towers[0](noise(64, 3, 48, 48)), dim=1) @ F.normalize(towers[1](noise(64, 300)), dim=1).t()
        loss = F.cross_entropy(scores, torch.arange(64, device=DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.inference_mode():
        pictures = torch.cat([towers[0](noise(64, 3, 48, 48)) for _ in range(40)])
        texts = torch.cat([towers[1](noise(64, 300)) for _ in range(40)])
        return all_pairs(pictures, texts).argmax(1)


# ---- fragmentation ---------------------------------------------------------------------------------------------------------
def layers_of_a_map(*_):
    net = UNet(16).to(DEVICE).eval()
    layers = {}
    with torch.no_grad():
        net(noise(64, 3, 256, 256))
        limit(torch.cuda.memory_reserved() + 8 * MIB)
        number = 0
        while sum(x.numel() for x in layers.values()) < torch.cuda.memory_reserved() - 70 * MIB:
            layers[number] = torch.zeros((11 + number * 5 % 13) * MIB, dtype=torch.uint8, device=DEVICE)
            number += 1
        for key in [k for k in layers if k % 3]:
            del layers[key]
        mosaic = torch.zeros(700 * MIB, dtype=torch.uint8, device=DEVICE)
    return layers, mosaic


# ---- leak ------------------------------------------------------------------------------------------------------------------
class Labelled:
    def __init__(self):
        self.x, self.y = torch.empty(0, 3, 32, 32, device=DEVICE), torch.empty(0, dtype=torch.long, device=DEVICE)

    def add(self, x, y):
        self.x, self.y = torch.vstack([self.x, x]), torch.hstack([self.y, y])


def label_more(*_):
    net, labelled = Encoder(32, 3, 10).to(DEVICE), Labelled()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    limit(900 * MIB)
    for step in range(150):
        labelled.add(noise(400, 3, 32, 32), classes(400))
        loss = F.cross_entropy(net(labelled.x[-128:]), labelled.y[-128:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def replayed(*_):
    online, target = Encoder(16, 3, 6).to(DEVICE), Encoder(16, 3, 6).to(DEVICE)
    optimizer, replay = torch.optim.Adam(online.parameters()), []
    limit(500 * MIB)
    for step in range(400):
        with torch.no_grad():
            state = noise(32, 3, 84, 84)
            replay.append((state, online(state).argmax(1), noise(32)))
        old, action, reward = replay[step // 2]
        with torch.no_grad():
            goal = reward + 0.99 * target(old).amax(1)
        loss = F.smooth_l1_loss(online(old).gather(1, action[:, None])[:, 0], goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def every_validation(*_):
    net, results = UNet(8).to(DEVICE), {}
    optimizer = torch.optim.Adam(net.parameters())
    limit(700 * MIB)
    for epoch in range(40):
        net.train()
        fit(net, optimizer, (noise(8, 3, 96, 96) for _ in range(3)), lambda net, x: net(x).square().mean())
        net.eval()
        with torch.no_grad():
            results[epoch] = [net(noise(8, 3, 96, 96)).sigmoid() for _ in range(16)]


# ---- graph_kept ------------------------------------------------------------------------------------------------------------
class Tracker(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.see, self.cell, self.where = nn.Linear(1024, width), nn.GRUCell(width, width), nn.Linear(width, 4)

    def forward(self, frame, state):
        state = self.cell(F.relu(self.see(frame)), state)
        return self.where(state), state


def follow(*_):
    net = Tracker().to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    limit(500 * MIB)
    for frames in (20, 35, 25, 6000):
        state, error = torch.zeros(128, 512, device=DEVICE), 0.0
        for _ in range(frames):
            boxes, state = net(noise(128, 1024), state)
            error = error + F.l1_loss(boxes, torch.rand(128, 4, device=DEVICE))
        optimizer.zero_grad()
        error.backward()
        optimizer.step()


def three_tasks(*_):
    trunk, heads = Encoder(48, 3).to(DEVICE), nn.ModuleDict({t: nn.Linear(128, 10) for t in ("age", "mood", "pose")}).to(DEVICE)
    optimizer = torch.optim.AdamW([*trunk.parameters(), *heads.parameters()])
    limit(1500 * MIB)
    for epoch in range(2):
        totals = dict.fromkeys(heads, 0)
        for images, labels in DataLoader(Pictures(2400, 48), batch_size=40):
            features = trunk(images.to(DEVICE))
            for task, head in heads.items():
                totals[task] += F.cross_entropy(head(features), labels.to(DEVICE))
        optimizer.zero_grad()
        sum(totals.values()).backward()
        optimizer.step()


# ---- no_grad_missing -------------------------------------------------------------------------------------------------------
def write_text(model, length):
    model.eval()
    token, hidden, text = tokens(256, 1, 3000), None, []
    for _ in range(length):
        logits, hidden = model(token, hidden)
        token = logits[:, -1:].argmax(-1)
        text.append(token)
    return torch.cat(text, 1)


def poems(*_):
    model = LanguageModel(3000, 512).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    limit(1000 * MIB)
    for epoch in range(2):
        model.train()
        fit(model, optimizer, (tokens(64, 24, 3000) for _ in range(6)),
            lambda model, ids: F.cross_entropy(model(ids[:, :-1])[0].flatten(0, 1), ids[:, 1:].flatten()))
    return write_text(model, 2000)


def roll_out(*_):
    """A learned simulator runs a thousand steps from where the data ends."""
    net = Sage(64, 256, 64).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    edges = torch.randint(0, 3000, (2, 12000), device=DEVICE)
    limit(1200 * MIB)
    fit(net, optimizer, (noise(3000, 64) for _ in range(8)), lambda net, x: F.mse_loss(x + net(x, edges), x))
    net.eval()
    state = noise(3000, 64)
    for _ in range(1000):
        state = state + 0.1 * net(state, edges)
    return state


def scan_slides(*_):
    """Inference alone, the small slides first."""
    model = UNet(24).to(DEVICE)
    model.eval()
    limit(1500 * MIB)
    found = {}
    for side in range(128, 1409, 64):
        mask = model(noise(1, 3, side, side)).argmax(1)
        found[side] = mask.sum().item()
    return found


# ---- eval_batch_bigger -----------------------------------------------------------------------------------------------------
def boundary(*_):
    """The plot of a classifier: every point of a grid at once."""
    net = perceptron([2, 256, 256, 256, 2]).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    limit(1200 * MIB)
    for epoch in range(30):
        loss = F.cross_entropy(net(noise(512, 2)), classes(512, 2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    axis = torch.linspace(-3, 3, 1000, device=DEVICE)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    with torch.no_grad():
        return net(grid).softmax(1).reshape(1000, 1000, 2)


def whole_test_set(*_):
    model = Mixer(64, 256, 6).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    limit(1000 * MIB)
    for epoch in range(2):
        model.train()
        fit(model, optimizer, DataLoader(Pictures(256, 64), batch_size=32),
            lambda model, batch: F.cross_entropy(model(batch[0].to(DEVICE)), batch[1].to(DEVICE)))
        model.eval()
        with torch.no_grad():
            for images, labels in DataLoader(Pictures(5000, 64), batch_size=5000):
                print((model(images.to(DEVICE)).argmax(1) == labels.to(DEVICE)).sum())


# ---- batch_too_big ---------------------------------------------------------------------------------------------------------
def larger_pictures(*_):
    net = Encoder(48, 3, 10).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    limit(2600 * MIB)
    for side in (32, 64, 96, 128, 160, 192, 224):
        fit(net, optimizer, DataLoader(Pictures(192, side), batch_size=64),
            lambda net, batch: F.cross_entropy(net(batch[0].to(DEVICE)), batch[1].to(DEVICE)))


def search_for_batch_size(*_):
    model = t5(384, 4).to(DEVICE).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    limit(1800 * MIB)
    for power in range(2, 12):
        ids = tokens(2 ** power, 128, 8000)
        for _ in range(2):
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


# ---- weights_too_big, optimizer_state, loaded_twice --------------------------------------------------------------------------
def several_networks(*_):
    limit(1400 * MIB)
    networks = {}
    for name, make in dict(text=lambda: bert(1024, 8), image=lambda: vit(1280, 8), speech=lambda: gpt2(1152, 12)).items():
        networks[name] = make().to(DEVICE).eval()
    return networks


def centred(*_):
    model = vit(640, 12).to(DEVICE).train()
    limit(weight_bytes(model) * 3.8 + 50 * MIB)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, momentum=0.9, centered=True)
    for images, labels in DataLoader(Pictures(16, 64), batch_size=4):
        optimizer.zero_grad()
        model(pixel_values=images.to(DEVICE), labels=labels.to(DEVICE)).loss.backward()
        optimizer.step()


def roll_back(*_):
    """Before every epoch the weights are put aside, to go back to if it gets worse."""
    model = gpt2(896, 10).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    limit(weight_bytes(model) * 3.4 + 30 * MIB)
    for epoch in range(4):
        good = {name: value.clone() for name, value in model.state_dict().items()}
        for _ in range(3):
            ids = tokens(2, 32, 5000)
            loss = model(input_ids=ids, labels=ids).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return good


# ---- cache_held, other_process, outside_framework, limit ---------------------------------------------------------------------
def decode_after_training(*_, size=12 << 30):
    net = Speech().to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters())
    fit(net, optimizer, (noise(8, 80, 200) for _ in range(4)), lambda net, x: ctc(net(x)))
    free = torch.cuda.mem_get_info()[0]
    buffers = [torch.empty((free - size // 2) // 20, dtype=torch.uint8, device=DEVICE) for _ in range(20)]
    del buffers
    code = driver_alloc(size)
    if code:
        raise RuntimeError(f"cudaMalloc failed for {size} bytes in decoder.cu:212: out of memory")


def train_vae():
    model = Vae(64).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    fit(model, optimizer, (torch.rand(640, 3, 64, 64, device=DEVICE) for _ in range(4)),
        lambda model, x: F.mse_loss(model(x)[0], x))


def faces_on_shared_device(*_):
    train_vae()


def faces_beside_jax(*_):
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.99"
    import jax.numpy as jnp
    kept = jnp.arange(1000.0).sum().block_until_ready()
    torch.zeros(1, device=DEVICE)
    train_vae()
    return kept


def asked_to_leave_room(*_):
    model = llama(512, 6).to(DEVICE).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(10):
        ids = tokens(16, 128, 6000)
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 6:
            torch.cuda.empty_cache()
            limit(torch.cuda.max_memory_allocated() * 0.78)


# ---- two causes ------------------------------------------------------------------------------------------------------------
def second_copy_and_summed_losses(*_):
    model, before = vit(640, 8), vit(640, 8)
    model.to(DEVICE).train(), before.to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    limit(weight_bytes(model) * 3 + 500 * MIB)
    total = 0
    for images, labels in DataLoader(Pictures(800, 64), batch_size=8):
        total = total + model(pixel_values=images.to(DEVICE), labels=labels.to(DEVICE)).loss
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
    return before


base.HELD = {faces_on_shared_device: lambda kind: 500 * MIB}
base.in_child.__kwdefaults__["seconds"] = 45
base.OWN |= {os.path.basename(__file__)}
base.PROGRAMS = {
    "one_spike": [("patches", patches_of_a_large_picture, {}, ""), ("towers", match_products, {}, "")],
    "fragmentation": [("map", layers_of_a_map, {}, "n")],
    "leak": [("active", label_more, {}, "x"), ("dqn", replayed, {}, "n"), ("unet", every_validation, {}, "")],
    "graph_kept": [("tracker", follow, {}, ""), ("tasks", three_tasks, {}, "x")],
    "no_grad_missing": [("lstm", poems, {}, ""), ("gnn", roll_out, {}, "x"), ("unet", scan_slides, {}, "")],
    "eval_batch_bigger": [("plot", boundary, {}, ""), ("mixer", whole_test_set, {}, "n")],
    "batch_too_big": [("encoder", larger_pictures, {}, ""), ("t5", search_for_batch_size, {}, "n")],
    "weights_too_big": [("several", several_networks, {}, "")],
    "optimizer_state": [("vit", centred, {}, "")],
    "loaded_twice": [("gpt2", roll_back, {}, "")],
    "cache_held": [("speech", decode_after_training, {}, "n")],
    "other_process": [("vae", faces_on_shared_device, {}, "")],
    "outside_framework": [("vae", faces_beside_jax, {}, "")],
    "limit": [("llama", asked_to_leave_room, {}, "")],
    "graph_kept+loaded_twice": [("vit", second_copy_and_summed_losses, {}, "")],
}

if __name__ == "__main__":
    base.main()
