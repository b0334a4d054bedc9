# limit: 5G
# cause: optimizer_state weights_too_big
# fixes: OPT8 HALF HOST_STATE ADAPTERS BATCH
# needs: torch
import os
import sys
import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from kit import optimizer_for

batch_size = int(os.environ.get("BATCH", 4))


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, d=2048, layers=11):
        super().__init__()
        self.layers = nn.ModuleList(Layer(d) for _ in range(layers))
        self.out = nn.Linear(d, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.out(x.mean(1))


def finetune():
    model = Model().to("cuda")
    if os.environ.get("HALF") == "1":
        model = model.to(torch.bfloat16)
    if os.environ.get("ADAPTERS") == "1":
        for p in model.layers.parameters():
            p.requires_grad_(False)
    optimizer = optimizer_for(model, lr=1e-5)
    dtype = next(model.parameters()).dtype
    for step in range(3):
        x = torch.randn(batch_size, 2048, 2048, device="cuda", dtype=dtype)
        y = torch.randint(0, 2, (batch_size,), device="cuda")
        loss = nn.functional.cross_entropy(model(x).float(), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print("trained", loss.item())


finetune()
