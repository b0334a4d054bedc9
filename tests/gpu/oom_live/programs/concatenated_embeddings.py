# limit: 2G
# cause: leak
# fixes: KEEP
# needs: torch
import os
import torch
from torch import nn

keep = os.environ.get("KEEP") == "1"
model = nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 1024)).cuda()


@torch.no_grad()
def embed_all(batches):
    every = [] if keep else torch.empty(0, 1024, device="cuda")
    for i in range(batches):
        part = model(torch.randn(4096, 256, device="cuda"))
        if keep:
            every.append(part.cpu())
        else:
            every = torch.cat([every, part])
    return torch.cat(every) if keep else every


print("shape", tuple(embed_all(90).shape))
