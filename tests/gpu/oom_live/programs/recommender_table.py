# limit: 4G
# cause: weights_too_big
# fixes: HOST HALF
# needs: torch
import os
import torch
from torch import nn

host = os.environ.get("HOST") == "1"
half = os.environ.get("HALF") == "1"


class Recommender(nn.Module):
    def __init__(self, items=6_000_000, width=256):
        super().__init__()
        dtype = torch.bfloat16 if half else torch.float32
        self.items = nn.Embedding(items, width, device="cpu" if host else "cuda", dtype=dtype, _freeze=True)
        self.score = nn.Linear(width, 1, device="cuda", dtype=dtype)

    def forward(self, ids):
        rows = self.items(ids.cpu()).cuda() if host else self.items(ids)
        return self.score(rows).squeeze(-1)


model = Recommender()
ids = torch.randint(0, 6_000_000, (4096,), device="cuda")
print("scores", model(ids).float().mean().item())
