# limit: 4G
# cause: one_spike
# fixes: PARTS
# needs: torch
import os
import torch

parts = os.environ.get("PARTS") == "1"
points = torch.randn(50_000, 64, device="cuda")
centres = torch.randn(200, 64, device="cuda")


def nearest(points):
    if not parts:
        distances = torch.cdist(points, points)
        distances.fill_diagonal_(float("inf"))
        return distances.min(1).indices
    found = []
    for start in range(0, len(points), 1024):
        d = torch.cdist(points[start : start + 1024], points)
        d[torch.arange(len(d)), torch.arange(start, start + len(d))] = float("inf")
        found.append(d.min(1).indices)
    return torch.cat(found)


labels = torch.cdist(points, centres).argmin(1)
print("clusters", labels.unique().numel(), "neighbour", nearest(points)[:3].tolist())
