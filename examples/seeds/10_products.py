"""x @ y of two 1000 x 1000 in a loop without a backward pass, then a 1000 x 1000 x 100 tensor. As usually written, nothing
requires a gradient and locals are freed: nothing is kept. With gradients and a summed loss, every product is kept."""
import torch


def product():
    x, y = torch.randn(1000, 1000, device="cuda"), torch.randn(1000, 1000, device="cuda")
    return (x @ y).sum()


def main():
    for _ in range(100):
        product()
    big = torch.randn(1000, 1000, 100, device="cuda")
    print(big.numel())


def fails():
    x = torch.randn(1000, 1000, device="cuda", requires_grad=True)
    total = 0
    for _ in range(1000):
        y = torch.randn(1000, 1000, device="cuda")
        total = total + torch.relu(x @ y).square().sum()
    total.backward()


if __name__ == "__main__":
    main()
