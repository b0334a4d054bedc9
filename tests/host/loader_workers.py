# expect: host_workers | worker | num_workers
# limit: 900M
import torch
from torch.utils.data import DataLoader, Dataset


class Reviews(Dataset):
    def __init__(self):
        self.samples = [{"text": f"review number {i} is good", "stars": i % 5, "user": i} for i in range(400_000)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        sample = self.samples[i]
        return torch.tensor([sample["stars"], sample["user"]])


if __name__ == "__main__":
    loader = DataLoader(Reviews(), batch_size=512, shuffle=True, num_workers=6)
    for epoch in range(20):
        for batch in loader:
            pass
