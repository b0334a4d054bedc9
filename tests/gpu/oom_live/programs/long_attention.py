# limit: 3G
# cause: one_spike batch_too_big
# fixes: PARTS LENGTH
# needs: torch
import math
import os
import torch
from torch import nn

LENGTH = int(os.environ.get("LENGTH", 12288))
parts = os.environ.get("PARTS") == "1"


class Attention(nn.Module):
    def __init__(self, width=512, heads=8):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (f(x).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        out = []
        for piece in q.split(512, 2) if parts else [q]:
            weights = (piece @ k.transpose(-1, -2) / math.sqrt(d // self.heads)).softmax(-1)
            out.append(weights @ v)
        return torch.cat(out, 2).transpose(1, 2).reshape(b, t, d)


model = Attention().cuda().eval()
document = torch.randn(1, LENGTH, 512, device="cuda")
with torch.no_grad():
    print("summary", model(document).mean().item())
