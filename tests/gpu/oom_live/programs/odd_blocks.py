# limit: 3G
# cause: fragmentation
# fixes: EXPANDABLE SPLIT
# needs: torch
import torch

MB = 1 << 20
cache = {}
# A cache of tiles of many sizes, of which every second one goes out of date.
for i in range(96):
    cache[i] = torch.empty((20 + i % 7) * MB, dtype=torch.uint8, device="cuda")
for i in range(0, 96, 2):
    del cache[i]
panorama = torch.empty(700 * MB, dtype=torch.uint8, device="cuda")
print("panorama", panorama.numel())
