"""A Linear layer under no_grad."""
import torch


def main():
    layer = torch.nn.Linear(1000, 1000).cuda()
    with torch.no_grad():
        y = layer(torch.randn(64, 1000, device="cuda"))
    print(y.requires_grad)


if __name__ == "__main__":
    main()
