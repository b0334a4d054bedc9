# limit: 2G
# cause: no_grad_missing
# fixes: NOGRAD
# needs: torch
import contextlib
import os
import torch
from torch import nn

guard = torch.no_grad if os.environ.get("NOGRAD") == "1" else contextlib.nullcontext
model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 16)).cuda()
optimizer = torch.optim.AdamW(model.parameters())


def train_epoch():
    for _ in range(10):
        x, y = torch.randn(1024, 1024, device="cuda"), torch.randn(1024, 16, device="cuda")
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def evaluate():
    model.eval()
    outputs = []
    with guard():
        for _ in range(120):
            outputs.append(model(torch.randn(1024, 1024, device="cuda")))
    model.train()
    return torch.cat([o.detach() for o in outputs])


train_epoch()
print("evaluated", evaluate().shape[0])
