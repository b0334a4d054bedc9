# limit: 3G
# cause: batch_too_big
# fixes: BATCH HALF
# needs: torch
import os
import torch
from torch import nn

n_images = int(os.environ.get("BATCH", 256))


class Denoiser(nn.Module):
    def __init__(self, c=96):
        super().__init__()
        self.inp = nn.Conv2d(4, c, 3, padding=1)
        self.mid = nn.ModuleList(nn.Sequential(nn.GroupNorm(8, c), nn.SiLU(), nn.Conv2d(c, c, 3, padding=1)) for _ in range(6))
        self.out = nn.Conv2d(c, 4, 3, padding=1)

    def forward(self, x, t):
        h = self.inp(x) + t
        for block in self.mid:
            h = h + block(h)
        return self.out(h)


@torch.inference_mode()
def sample(model, n, steps=5):
    dtype = next(model.parameters()).dtype
    x = torch.randn(n, 4, 128, 128, device="cuda", dtype=dtype)
    for i in range(steps):
        x = x - 0.1 * model(x, i / steps)
    return x


model = Denoiser().cuda().eval()
if os.environ.get("HALF") == "1":
    model = model.half()
done = 0
while done < 256:
    done += len(sample(model, min(n_images, 256 - done)))
print("images", done)
