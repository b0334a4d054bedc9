"""A chain of elementwise operations, everything deleted, then a 1000 x 1000 x 100 tensor. As
usually written, it fits. With every result kept in a list, memory grows with each one."""
import torch


def main():
    x = torch.randn(1000, 1000, device="cuda")
    y = x * 2
    z = y + 3
    w = z.sqrt().abs()
    del x, y, z, w
    big = torch.randn(1000, 1000, 100, device="cuda")
    print(big.numel())


def fails():
    results = []
    x = torch.randn(1000, 1000, device="cuda")
    for i in range(1000):
        y = torch.sin(x) * i
        results.append(y)


if __name__ == "__main__":
    main()
