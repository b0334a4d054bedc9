# limit: 2G
# cause: graph_kept
# fixes: DETACH
# needs: torch
import os
import torch
from torch import nn

detach = os.environ.get("DETACH") == "1"
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
total_loss = 0
for epoch in range(60):
    data = torch.randn(2048, 1024, device="cuda")
    target = torch.randint(0, 10, (2048,), device="cuda")
    val = torch.randn(2048, 1024, device="cuda")
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(data), target).backward()
    optimizer.step()
    val_loss = nn.functional.cross_entropy(model(val), target)
    total_loss += val_loss.item() if detach else val_loss
print("mean validation loss", float(total_loss) / 60)
