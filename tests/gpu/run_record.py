#!/usr/bin/env python3
"""PyTorch programs that run out of memory under a limit of 4 GiB, or name ranges. usage: run_record.py NAME"""
import sys

import torch
from torch import nn


class Mlp(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


model = Mlp(2048, 8).cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-4)


def step(rows):
    loss = model(torch.randn(rows, 2048, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def graph_kept():
    total = 0
    while True:
        loss = model(torch.randn(4096, 2048, device="cuda")).square().mean()
        loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total = total + loss


def graph_unused():
    total = 0
    while True:
        total = total + model(torch.randn(4096, 2048, device="cuda")).square().mean()


def leak():
    kept = []
    while True:
        step(1024)
        kept.append(torch.randn(4096, 2048, device="cuda"))


def batch_too_big():
    for rows in (1024, 1024, 1024, 60_000):
        step(rows)


def ranges():
    for turn in range(1, 4):
        with torch.profiler.record_function("my_forward"):
            step(1024 * turn)
        torch.cuda.nvtx.range_push("my_range")
        torch.randn(9_000_000 * turn, device="cuda")
        torch.cuda.nvtx.range_pop()
    stats = torch.cuda.memory_stats()
    print("blocks", stats["allocation.all.allocated"], stats["allocation.all.freed"])


globals()[sys.argv[1]]()
