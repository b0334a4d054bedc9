# expect: graph_kept | losses | item()
# limit: 700M
import torch
from torch import nn

model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
criterion = nn.CrossEntropyLoss()


def validate(steps):
    losses = []
    for step in range(steps):
        x = torch.randn(256, 512)
        y = torch.randint(0, 10, (256,))
        loss = criterion(model(x), y)
        losses.append(loss)
    return sum(losses) / len(losses)


print(validate(5000))
