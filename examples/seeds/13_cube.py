"""A 1024 x 1024 x 1024 randn (4 GB), its sine, both deleted, empty_cache. On a smaller device this one request fails."""
import torch


def main(side=1024):
    x = torch.randn(side, side, side, device="cuda")
    y = torch.sin(x)
    del x, y
    torch.cuda.empty_cache()
    print(torch.cuda.memory_allocated())


def fails():
    net = torch.nn.Linear(512, 512).cuda()
    for _ in range(4):
        net(torch.randn(64, 512, device="cuda")).sum().backward()
    main()


if __name__ == "__main__":
    main()
