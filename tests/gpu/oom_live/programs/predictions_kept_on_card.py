# limit: 2G
# cause: leak
# fixes: KEEP
# needs: torch
import os
import torch
from torch import nn

keep = os.environ.get("KEEP") == "1"
encoder = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 4096)).cuda().eval()
features = []
with torch.no_grad():
    for i in range(400):
        batch = torch.randn(512, 512, device="cuda")
        z = encoder(batch)
        features.append(z.cpu() if keep else z)
print("features", len(features))
