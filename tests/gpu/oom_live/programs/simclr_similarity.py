# limit: 3G
# cause: batch_too_big one_spike
# fixes: BATCH
# needs: torch
import os
import torch
import torch.nn.functional as F
from torch import nn

batch_size = int(os.environ.get("BATCH", 2048))
encoder = nn.Sequential(
    nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 128)).cuda()
optimizer = torch.optim.Adam(encoder.parameters())
for step in range(3):
    x = torch.rand(batch_size, 3, 32, 32, device="cuda")
    views = torch.cat([x + 0.1 * torch.randn_like(x), x.flip(-1)])
    z = F.normalize(encoder(views), dim=1)
    sim = z @ z.T / 0.5
    sim.fill_diagonal_(-1e9)
    target = torch.arange(2 * batch_size, device="cuda").roll(batch_size)
    loss = F.cross_entropy(sim, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("contrast", loss.item())
