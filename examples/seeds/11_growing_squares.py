"""Square tensors of growing size made and deleted, then a 1000 x 1000 x 100 tensor. As usually
written, each is freed before the next. With small tensors kept in between, the free memory is fragmented."""
import torch

MIB = 1 << 20


def main():
    for side in range(100, 3000, 100):
        x = torch.randn(side, side, device="cuda")
        del x
    big = torch.randn(1000, 1000, 100, device="cuda")
    print(big.numel())


def fails():
    large = [torch.empty(300 * MIB, dtype=torch.uint8, device="cuda") for _ in range(6)]
    del large
    squares = [torch.empty((10 + i % 4) * MIB, dtype=torch.uint8, device="cuda") for i in range(140)]
    squares = squares[::4]
    big = torch.empty(900 * MIB, dtype=torch.uint8, device="cuda")
    return squares, big


if __name__ == "__main__":
    main()
