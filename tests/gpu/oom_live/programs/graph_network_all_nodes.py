# limit: 3G
# cause: batch_too_big one_spike
# fixes: BATCH
# needs: torch
import os
import torch
from torch import nn

nodes = int(os.environ.get("BATCH", 400_000))


class GNN(nn.Module):
    def __init__(self, width=256, depth=4):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 40)

    def forward(self, x, source, target):
        for layer in self.layers:
            mixed = torch.zeros_like(x).index_add_(0, target, x[source])
            x = torch.relu(layer(mixed))
        return self.out(x)


model = GNN().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
x = torch.randn(nodes, 256, device="cuda")
source, target = torch.randint(0, nodes, (2, 3 * nodes), device="cuda")
y = torch.randint(0, 40, (nodes,), device="cuda")
for epoch in range(3):
    loss = nn.functional.cross_entropy(model(x, source, target), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("epoch", epoch, loss.item())
