#!/usr/bin/env python3
"""The sixth set, held back while rules were changed for the fifth: other programs, models and idioms (set6_steps.py, set6_kept.py and,
if something else holds the device's memory, here).

usage: record_set6.py FOLDER [NAME...]      (needs torch, transformers and one device; uses numba and cupy where they are;
                                             see record_causes.py)
"""
import copy, os

import torch
from torch.nn import functional as F

import set6_kept as kept
import set6_steps as steps
import record_causes as base
from record_models import (DEVICE, Eps, LanguageModel, Sage, Speech, Video, classes, ctc, gpt2, llama, noise, tokens)
from set6_steps import Field, Gan, update
from record_causes import MIB, driver_alloc, limit, weight_bytes


# ---- cache_held, other_process, outside_framework, limit --------------------------------------------------------------------
def fill(leave, piece):
    """Allocates and frees all device memory except `leave` bytes, in pieces."""
    taken = [torch.empty(piece, dtype=torch.uint8, device=DEVICE) for _ in range((torch.cuda.mem_get_info()[0] - leave) // piece)]
    return len(taken)


def solver_after_training(*_, size=8 << 30):
    net = Sage(64, 128, 8).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    for nodes in (1000, 5000, 20000):
        update(optimizer, net(noise(nodes, 64), torch.randint(0, nodes, (2, 4 * nodes), device=DEVICE)).square().mean())
    fill(size // 2, 3 << 30)
    code = driver_alloc(size)
    if code:
        raise MemoryError(f"solver: could not get {size} bytes on device 0: CUDA_ERROR_OUT_OF_MEMORY ({code})")


def cupy_after_sampling(*_, size=20 << 30):
    model = llama(512, 4).to(DEVICE).eval()
    with torch.inference_mode():
        for _ in range(3):
            model(input_ids=tokens(8, 128, 6000)).logits.argmax(-1)
        fill(size // 3, 1 << 30)
    import cupy
    return cupy.ones(size // 4, dtype=cupy.float32).sum()


def rays_on_shared_device(*_):
    net = Field(128, 6).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(4):
        update(optimizer, net(noise(4096, 3)).square().mean())


def answers_on_shared_device(*_):
    model = llama(1024, 12).to(DEVICE).eval()
    with torch.inference_mode():
        for _ in range(3):
            model(input_ids=tokens(16, 256, 6000)).logits.argmax(-1)


def outside(leave):
    """Fills the device except for `leave` bytes with arrays of another library."""
    torch.zeros(1, device=DEVICE)
    try:
        from numba import cuda
        return cuda.device_array(torch.cuda.mem_get_info()[0] - leave, dtype="uint8")
    except ImportError:
        return driver_alloc(torch.cuda.mem_get_info()[0] - leave)


def simulate_and_denoise(*_):
    field = outside(700 * MIB)
    net = Eps(96, 4).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(3):
        update(optimizer, net(noise(64, 3, 64, 64), classes(64, 1000)).square().mean())
    return field


def decoder_beside_speech(*_):
    torch.zeros(1, device=DEVICE)
    driver_alloc(torch.cuda.mem_get_info()[0] - 800 * MIB)
    net = Speech(512).to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        update(optimizer, ctc(net(noise(32, 80, 1200))))


def quota_from_the_third_fold(*_):
    def fold():
        model = LanguageModel(4000, 512).to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(5):
            ids = tokens(64, 48, 4000)
            logits, _ = model(ids)
            update(optimizer, F.cross_entropy(logits.flatten(0, 1), ids.flatten()))

    for number in range(4):
        if number == 2:
            torch.cuda.empty_cache()
            limit(torch.cuda.max_memory_allocated() * 0.8)
        fold()


def quota_while_training(*_):
    gan, images = Gan(64), noise(64, 3, 64, 64)
    for step in range(12):
        if step == 8:
            torch.cuda.empty_cache()
            limit(torch.cuda.max_memory_allocated() * 0.72)
        gan.iterate(images)


# ---- two causes ------------------------------------------------------------------------------------------------------------
def whole_text_on_shared_device(*_):
    model = LanguageModel(2000, 512).to(DEVICE)
    optimizer, hidden, losses = torch.optim.Adam(model.parameters()), None, []
    for _ in range(400):
        ids = tokens(64, 32, 2000)
        logits, hidden = model(ids, hidden)
        losses.append(F.cross_entropy(logits.flatten(0, 1), ids.flatten()))
    update(optimizer, sum(losses))


def clips_beside_decoder(*_):
    torch.zeros(1, device=DEVICE)
    driver_alloc(torch.cuda.mem_get_info()[0] - 2500 * MIB)
    net = Video(24, 3).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for size in (1, 2, 4, 8, 16, 32, 64):
        update(optimizer, F.cross_entropy(net(noise(size, 3, 16, 96, 96)), classes(size, 101)))


def reference_and_adam(*_):
    model = gpt2(1024, 10).to(DEVICE)
    start = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
    limit(weight_bytes(model) * 4.2)
    for _ in range(3):
        ids = tokens(2, 48, 5000)
        update(optimizer, model(input_ids=ids, labels=ids).loss)
    return start


base.HELD = {rays_on_shared_device: lambda kind: 900 * MIB, answers_on_shared_device: lambda kind: 500 * MIB,
             whole_text_on_shared_device: lambda kind: 1800 * MIB}
base.OWN |= {os.path.basename(__file__), "set6_steps.py", "set6_kept.py"}
base.PROGRAMS = {
    "weights_too_big": [("llama", steps.made_on_device, {}, ""), ("nerf", steps.radiance, {}, "x"),
                        ("mixer", steps.mixer_for_pictures, {}, "a")],
    "batch_too_big": [("lora", steps.adapters, {}, ""), ("nerf", steps.rays_at_once, {}, ""),
                      ("speech", steps.longer_and_longer, {}, "n"), ("gan", steps.wasserstein, {}, "x")],
    "one_spike": [("unet", steps.full_size_maps, {}, ""), ("style", steps.texture, {}, "x"), ("factors", steps.recommend, {}, "n")],
    "optimizer_state": [("mixer", steps.mixer_nadam, {}, "x"), ("moe", steps.second_order, {}, ""),
                        ("diffusion", steps.wide_denoiser, {}, "n")],
    "graph_kept": [("pinn", kept.heat_equation, {}, ""), ("gan", kept.watched_gan, {}, "x"), ("siamese", kept.pairs, {}, "a")],
    "no_grad_missing": [("nerf", kept.train_and_render, {}, ""), ("llama", kept.score_answers, {}, "x"),
                        ("vae", kept.sample_quality, {}, "")],
    "eval_batch_bigger": [("gnn", steps.sampled_subgraphs, {}, ""), ("speech", steps.dev_set_in_one, {}, "x"),
                          ("vit", steps.fit_and_score, {}, "a")],
    "leak": [("encoder", kept.prefetched, {}, ""), ("diffusion", kept.films, {}, "x"), ("llama", kept.conversations, {}, ""),
             ("siamese", kept.hard_examples, {}, "n")],
    "loaded_twice": [("lstm", kept.averaged_weights, {}, ""), ("bert", kept.test_model_beside, {}, "x")],
    "fragmentation": [("points", kept.scenes_of_points, {}, "n"), ("unet", kept.large_picture, {}, "")],
    "cache_held": [("gnn", solver_after_training, {}, ""), ("llama", cupy_after_sampling, {}, "x")],
    "other_process": [("nerf", rays_on_shared_device, {}, ""), ("llama", answers_on_shared_device, {}, "x")],
    "outside_framework": [("diffusion", simulate_and_denoise, {}, ""), ("speech", decoder_beside_speech, {}, "n")],
    "limit": [("lstm", quota_from_the_third_fold, {}, ""), ("gan", quota_while_training, {}, "x")],
    "graph_kept+other_process": [("lstm", whole_text_on_shared_device, {}, "")],
    "batch_too_big+outside_framework": [("video", clips_beside_decoder, {}, "")],
    "loaded_twice+optimizer_state": [("gpt2", reference_and_adam, {}, "x")],
}

if __name__ == "__main__":
    base.main()
