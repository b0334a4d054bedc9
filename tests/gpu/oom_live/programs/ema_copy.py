# limit: 3.4G
# cause: loaded_twice
# fixes: EMACPU
# needs: torch
import copy
import os
import torch
from torch import nn

on_host = os.environ.get("EMACPU") == "1"
model = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(20)]).cuda()
ema = copy.deepcopy(model.cpu() if on_host else model)
model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randn(32, 4096, device="cuda")
    loss = model(x).square().mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-1e-3)
        p.grad = None
    for a, b in zip(ema.parameters(), model.parameters()):
        a.data.mul_(0.999).add_(b.data.to(a.device), alpha=0.001)
print("ema", loss.item())
