"""A three-layer net trained at batch 16 with Adam. With a batch of 400,000 its activations do not fit."""
import torch
from torch import nn


def train(size, steps):
    net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(steps):
        x, y = torch.randn(size, 784, device="cuda"), torch.randint(0, 10, (size,), device="cuda")
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(float(loss))


def main():
    train(16, 100)


def fails():
    train(400_000, 2)


if __name__ == "__main__":
    main()
