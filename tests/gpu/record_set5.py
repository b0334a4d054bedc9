#!/usr/bin/env python3
"""The fifth set: programs that run out of memory, each for a known cause, to test `stowage explain`. Written without looking at its
rules, with other models and idioms than the earlier sets. Models: record_models.py; programs: set5_steps.py, set5_kept.py and,
if something else holds the device's memory, here.

usage: record_set5.py FOLDER [NAME...]      (needs torch, transformers and one device; uses jax and cupy where they are;
                                              see record_causes.py)
"""
import os, subprocess, sys, tempfile

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

import set5_kept as kept
import set5_steps as steps
import record_causes as base
from record_models import (DEVICE, Encoder, Eps, Pictures, Sage, UNet, Vae, bert, classes, noise, perceptron, t5, tokens,
                          vit)
from record_causes import MIB, driver_alloc, limit, weight_bytes


# ---- cache_held, other_process, outside_framework, limit --------------------------------------------------------------------
def features_then_jax(*_, size=16 << 30):
    """Features with PyTorch, whose memory is free again; the rest of the work is done with JAX."""
    net = Encoder().to(DEVICE).eval()
    with torch.no_grad():
        features = net(noise(256, 3, 32, 32)).cpu()
        room = torch.cuda.mem_get_info()[0] - size // 2
        for parts in (9, 7, 5):
            banks = [torch.empty(room // parts, dtype=torch.uint8, device=DEVICE) for _ in range(parts)]
            del banks
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax.numpy as jnp
    grid = jnp.zeros((size // 4 >> 10, 1024), dtype=jnp.float32)
    return features, grid.sum().block_until_ready()


EVALUATE = """
import ctypes, sys
cuda, context, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
cuda.cuInit(0); cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); cuda.cuCtxSetCurrent(context)
if cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(sys.argv[1]))):
    sys.exit("evaluate.py: CUDA error: out of memory (cudaErrorMemoryAllocation)")
"""


def train_then_evaluate_apart(*_, size=10 << 30):
    """The training starts a program of its own for the evaluation."""
    model = Vae().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(4):
        output, mu, logvar = model(noise(64, 3, 64, 64))
        (output.mean() + mu.square().mean() + logvar.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    for images in (1 << 31, 1 << 32):
        cached = [torch.empty(images, dtype=torch.uint8, device=DEVICE)
                  for _ in range((torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - (4 << 30)) // images)]
        cached.clear()
        torch.cuda.synchronize()
    done = subprocess.run([sys.executable, "-c", EVALUATE, str(size)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())


def paint(count=48, steps=3):
    net = Eps(96, 4).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(steps):
        x = noise(count, 3, 64, 64)
        F.mse_loss(net(x, torch.zeros(count, dtype=torch.long, device=DEVICE)), x).backward()
        optimizer.step()
        optimizer.zero_grad()


def paint_on_shared_device(*_):
    paint()


def classify_on_shared_device(*_):
    model = bert(512, 6).to(DEVICE).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    for _ in range(4):
        model(input_ids=tokens(64, 128, 12000), labels=classes(64, 2)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class Physics:
    """A simulator with buffers of its own on the device."""

    def __init__(self, leave):
        torch.cuda.init()
        torch.zeros(1, device=DEVICE)
        driver_alloc(torch.cuda.mem_get_info()[0] - leave)


def walkers(*_):
    world = Physics(500 * MIB)
    policy = perceptron([512, 2048, 2048, 64]).to(DEVICE)
    optimizer = torch.optim.Adam(policy.parameters())
    for _ in range(4):
        policy(noise(16384, 512)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return world


def graph_with_cupy(*_):
    """The graph is prepared with CuPy, whose pool keeps it."""
    torch.zeros(1, device=DEVICE)
    import cupy
    table = cupy.zeros((torch.cuda.mem_get_info()[0] - 700 * MIB) // 8, dtype=cupy.float64)
    model = Sage(128, 512, 40).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        model(noise(40000, 128), torch.randint(0, 40000, (2, 200000), device=DEVICE)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return table


def cap_for_the_demo(*_):
    """From the third epoch on, a part of the device is promised to somebody else."""
    model = UNet(32).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(4):
        if epoch == 2:
            torch.cuda.empty_cache()
            limit(torch.cuda.max_memory_allocated() * 0.75)
        for images, masks in DataLoader(Pictures(48, 128, masks=True), batch_size=16):
            loss = F.cross_entropy(model(images.to(DEVICE)), masks.to(DEVICE))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def translate(model, batches):
    for _ in range(batches):
        ids = tokens(24, 96, 8000)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-1e-4)
            p.grad = None


def cap_in_the_second_stage(*_):
    model = t5().to(DEVICE).train()
    translate(model, 4)
    torch.cuda.empty_cache()
    limit(torch.cuda.max_memory_allocated() * 0.7)
    translate(model, 4)


# ---- two causes ------------------------------------------------------------------------------------------------------------
def whole_validation_with_graphs(*_):
    """Trained in batches of eight, validated in one of 256, with gradients on."""
    model = UNet(16).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    limit(1200 * MIB)
    for images, masks in DataLoader(Pictures(48, 128, masks=True), batch_size=8):
        loss = F.cross_entropy(model(images.to(DEVICE)), masks.to(DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    for images, masks in DataLoader(Pictures(256, 128, masks=True), batch_size=256):
        print((model(images.to(DEVICE)).argmax(1) == masks.to(DEVICE)).float().mean())


def old_weights_and_large_batches(*_):
    model = vit(768, 8)
    with tempfile.NamedTemporaryFile() as file:
        torch.save(model.state_dict(), file.name)
        weights = torch.load(file.name, map_location=DEVICE)
    model.load_state_dict(weights)
    model.to(DEVICE).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    limit(weight_bytes(model) * 3 + 900 * MIB)
    for size in (8, 16, 32, 64, 128, 256):
        loss = model(pixel_values=noise(size, 3, 64, 64), labels=classes(size)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights


def episodes_beside_physics(*_):
    world = Physics(1500 * MIB)
    policy = perceptron([512, 1024, 64]).to(DEVICE)
    optimizer, seen = torch.optim.Adam(policy.parameters()), []
    for _ in range(200):
        state = noise(8192, 512)
        policy(state).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(state)
    return world


base.HELD = {paint_on_shared_device: lambda kind: 900 * MIB, classify_on_shared_device: lambda kind: 700 * MIB}
base.in_child.__kwdefaults__["seconds"] = 45  # XLA asks again and again before it gives up
base.OWN |= {os.path.basename(__file__), "set5_steps.py", "set5_kept.py"}
base.PROGRAMS = {
    "weights_too_big": [("t5", steps.summarize, {}, ""), ("clip", steps.two_encoders, {}, "x"),
                        ("bert", steps.classifier_of_texts, {}, "n")],
    "batch_too_big": [("unet", steps.segment_scans, {}, ""), ("gpt2", steps.pretrain, {}, "a"), ("video", steps.actions, {}, "x"),
                      ("simclr", steps.two_views_growing, {}, "n")],
    "one_spike": [("gp", steps.gaussian_process, {}, ""), ("speech", steps.transcribe, {}, "x")],
    "optimizer_state": [("gan", steps.adversaries, {}, ""), ("vit", steps.finetune_pictures, {}, "x"),
                        ("lstm", steps.words_amsgrad, {}, "n")],
    "graph_kept": [("charlm", kept.read_book, {}, ""), ("vae", kept.faces, {}, "x"), ("gnn", kept.molecules, {}, "a")],
    "no_grad_missing": [("speech", kept.letters, {}, ""), ("bert", kept.label_reviews, {}, ""), ("diffusion", kept.draw, {}, "a"),
                        ("siamese", kept.gallery, {}, "x")],
    "eval_batch_bigger": [("lstm", steps.words_then_test, {}, ""), ("simclr", steps.linear_probe, {}, "x"),
                          ("distill", steps.distilled, {}, "n")],
    "leak": [("moco", kept.momentum_contrast, {}, "x"), ("unet", kept.segment_and_score, {}, "a"), ("moe", kept.mixture, {}, ""),
             ("ppo", kept.policy_updates, {}, "n")],
    "loaded_twice": [("vit", kept.resume_training, {}, ""), ("gpt2", kept.start_from_pretrained, {}, "x")],
    "fragmentation": [("index", kept.search_documents, {}, ""), ("speech", kept.utterances, {}, "n")],
    "cache_held": [("simclr", features_then_jax, {}, ""), ("vae", train_then_evaluate_apart, {}, "x")],
    "other_process": [("diffusion", paint_on_shared_device, {}, "x"), ("bert", classify_on_shared_device, {}, "n")],
    "outside_framework": [("walkers", walkers, {}, ""), ("gnn", graph_with_cupy, {}, "x")],
    "limit": [("unet", cap_for_the_demo, {}, ""), ("t5", cap_in_the_second_stage, {}, "x")],
    "eval_batch_bigger+no_grad_missing": [("unet", whole_validation_with_graphs, {}, "")],
    "batch_too_big+loaded_twice": [("vit", old_weights_and_large_batches, {}, "x")],
    "leak+outside_framework": [("walkers", episodes_beside_physics, {}, "")],
}

if __name__ == "__main__":
    base.main()
