# limit: 3G
# cause: batch_too_big
# fixes: BATCH
# needs: torch
import os
import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 128, 4, 2, 1), nn.ReLU(), nn.Conv2d(128, 16, 3, 1, 1))
        self.dec = nn.Sequential(nn.Conv2d(8, 128, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.ReLU(), nn.Conv2d(64, 3, 3, 1, 1))

    def forward(self, x):
        mean, log = self.enc(x).chunk(2, 1)
        return self.dec(mean + torch.randn_like(mean) * (log / 2).exp()), mean, log


def main(batch_size):
    vae = VAE().cuda()
    optimizer = torch.optim.AdamW(vae.parameters(), lr=1e-3)
    for _ in range(3):
        x = torch.rand(batch_size, 3, 128, 128, device="cuda")
        y, mean, log = vae(x)
        loss = F.mse_loss(y, x) - 0.5 * (1 + log - mean**2 - log.exp()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("vae", loss.item())


main(int(os.environ.get("BATCH", 256)))
