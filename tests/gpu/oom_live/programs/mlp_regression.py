# limit: 3G
# cause: batch_too_big
# fixes: BATCH CHECKPOINT
# needs: torch
import os
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

BATCH = int(os.environ.get("BATCH", 49152))
CHECKPOINT = os.environ.get("CHECKPOINT") == "1"
device = "cuda"

layers = nn.ModuleList(nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(8)).to(device)
head = nn.Linear(2048, 1).to(device)
opt = torch.optim.Adam([*layers.parameters(), *head.parameters()], lr=1e-4)


def model(x):
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=False) if CHECKPOINT else layer(x)
    return head(x)


for step in range(3):
    x = torch.randn(BATCH, 2048, device=device)
    y = torch.randn(BATCH, 1, device=device)
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("done", loss.item())
