# limit: 2G
# cause: leak
# fixes: KEEP
# needs: torch
import os
import torch
from torch import nn

keep = os.environ.get("KEEP") == "1"
seen = []
net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 8)).cuda()
net[2].register_forward_hook(lambda module, args, out: seen.append(out.detach().cpu() if keep else out.detach()))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(300):
    x = torch.randn(1024, 512, device="cuda")
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("seen", len(seen))
