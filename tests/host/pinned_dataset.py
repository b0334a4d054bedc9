# expect: host_pinned | dataset | pin_memory
# limit: 3G
# needs: device
import torch

dataset = []
for i in range(1000):
    dataset.append(torch.ones(8 << 20).pin_memory())
    batch = dataset[-1].cuda(non_blocking=True)
