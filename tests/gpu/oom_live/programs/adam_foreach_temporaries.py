# limit: 3.4G
# cause: optimizer_state
# fixes: FUSED OPT8 HOST_STATE
# needs: torch
import os
import sys
import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from kit import optimizer_for

net = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(10)]).cuda()
optimizer = optimizer_for(net, lr=1e-4)
for i in range(2):
    x = torch.randn(8, 4096, device="cuda")
    net(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("done")
