# limit: 4G
# cause: batch_too_big one_spike
# fixes: SIZE HALF
# needs: torch
import os
import torch
from torch import nn

size = int(os.environ.get("SIZE", 4096))
half = os.environ.get("HALF") == "1"

net = nn.Sequential(
    nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
    nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 21, 1)).cuda().eval()
photo = torch.rand(1, 3, size, size, device="cuda")
if half:
    net, photo = net.half(), photo.half()
with torch.no_grad():
    mask = net(photo).argmax(1)
print("mask", tuple(mask.shape))
