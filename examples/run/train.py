#!/usr/bin/env python3
"""Trains a model that needs more memory than its limit.

    python3 examples/run/train.py                                            without Stowage
    stowage run --vram-limit 3G -- python3 examples/run/train.py             runs out of memory and prints why
    stowage run --vram-limit 3G --spill auto -- python3 examples/run/train.py   finishes; the last line shows where memory was

Needs PyTorch and a GPU. About 4 GiB of weights, gradients and optimizer state are live.
"""
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(16)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(5):
    x = torch.randn(512, 4096, device="cuda")
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"step {step}: loss {loss.item():.6f}")
