# limit: 4G
# cause: batch_too_big one_spike
# fixes: SIZE HALF
# needs: torch
import os
import torch
from torch import nn

side = int(os.environ.get("SIZE", 288))
half = os.environ.get("HALF") == "1"
unet = nn.Sequential(
    nn.Conv3d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv3d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv3d(32, 4, 1)).cuda().eval()
scan = torch.rand(1, 1, side, side, side, device="cuda")
if half:
    unet, scan = unet.half(), scan.half()
with torch.inference_mode():
    organs = unet(scan).argmax(1)
print("organs", organs.unique().tolist())
