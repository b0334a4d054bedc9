"""A DataLoader at batch 32 that deletes its batch and empties the cache each step."""
import torch
from torch.utils.data import DataLoader, TensorDataset


def main():
    data = DataLoader(TensorDataset(torch.randn(1000, 100), torch.randint(0, 10, (1000,))), batch_size=32)
    for x, y in data:
        x, y = x.cuda(), y.cuda()
        del x, y
        torch.cuda.empty_cache()
    print(torch.cuda.memory_allocated())


if __name__ == "__main__":
    main()
