# limit: 3G
# cause: optimizer_state
# fixes: OPT8 HOST_STATE
# needs: torch
import os
import sys
import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from kit import optimizer_for

model = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(12)]).cuda()
optimizer = optimizer_for(model, lr=1e-4)
for step in range(2):
    loss = model(torch.randn(16, 4096, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("steps", step + 1)
