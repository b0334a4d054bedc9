# limit: 3G
# cause: eval_batch_bigger
# fixes: EVALBATCH
# needs: torch
import os
import torch
from torch import nn

TRAIN_BATCH = 32
eval_batch = TRAIN_BATCH if os.environ.get("EVALBATCH") == "1" else 512


def build():
    layers = [nn.Conv2d(3, 96, 3, padding=1), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(96, 96, 3, padding=1), nn.BatchNorm2d(96), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10))


def train(model, optimizer):
    model.train()
    for _ in range(6):
        x, y = torch.randn(TRAIN_BATCH, 3, 112, 112, device="cuda"), torch.randint(0, 10, (TRAIN_BATCH,), device="cuda")
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def validate(model):
    model.eval()
    right = 0
    with torch.no_grad():
        for _ in range(2):
            x, y = torch.randn(eval_batch, 3, 112, 112, device="cuda"), torch.randint(0, 10, (eval_batch,), device="cuda")
            right += (model(x).argmax(1) == y).sum().item()
    return right


model = build().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for epoch in range(2):
    train(model, optimizer)
    print("right", validate(model))
