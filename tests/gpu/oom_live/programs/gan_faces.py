# limit: 3G
# cause: batch_too_big
# fixes: BATCH
# needs: torch
import os
import torch
from torch import nn

bs = int(os.environ.get("BATCH", 384))
G = nn.Sequential(
    nn.ConvTranspose2d(128, 256, 4, 1, 0), nn.BatchNorm2d(256), nn.ReLU(),
    nn.ConvTranspose2d(256, 128, 4, 4, 0), nn.BatchNorm2d(128), nn.ReLU(),
    nn.ConvTranspose2d(128, 64, 4, 4, 0), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 3, 3, padding=1), nn.Tanh()).cuda()
D = nn.Sequential(
    nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 4, 2, 1), nn.LeakyReLU(0.2),
    nn.Conv2d(128, 256, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(256 * 64, 1)).cuda()
opt_g, opt_d = (torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (G, D))
bce = nn.BCEWithLogitsLoss()
for step in range(3):
    real = torch.rand(bs, 3, 64, 64, device="cuda") * 2 - 1
    fake = G(torch.randn(bs, 128, 1, 1, device="cuda"))
    d_loss = bce(D(real), torch.ones(bs, 1, device="cuda")) + bce(D(fake.detach()), torch.zeros(bs, 1, device="cuda"))
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
    g_loss = bce(D(fake), torch.ones(bs, 1, device="cuda"))
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
print("gan", d_loss.item(), g_loss.item())
