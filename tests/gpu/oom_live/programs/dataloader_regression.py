# limit: 3G
# cause: batch_too_big
# fixes: BATCH
# needs: torch
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(60_000, 1024), torch.randn(60_000, 1))
loader = DataLoader(data, batch_size=int(os.environ.get("BATCH", 30_000)), shuffle=True)
model = nn.Sequential(*[m for _ in range(10) for m in (nn.Linear(1024, 1024), nn.LayerNorm(1024), nn.ReLU())], nn.Linear(1024, 1)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def train_one_epoch():
    for inputs, targets in loader:
        inputs, targets = inputs.cuda(), targets.cuda()
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


print("loss", train_one_epoch())
