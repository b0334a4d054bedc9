"""Two 1000 x 1000 matrices in float32 and half, their product, their bytes."""
import torch


def main():
    for kind in (torch.float32, torch.float16):
        a = torch.randn(1000, 1000, device="cuda", dtype=kind)
        b = torch.randn(1000, 1000, device="cuda", dtype=kind)
        c = a @ b
        print(kind, c.element_size() * c.nelement())


if __name__ == "__main__":
    main()
