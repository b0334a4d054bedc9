# limit: 2G
# cause: graph_kept
# fixes: DETACH
# needs: torch
import os
import torch
from torch import nn


class Trainer:
    def __init__(self):
        self.model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 24 * 24, 10)).cuda()
        self.opt = torch.optim.Adam(self.model.parameters())
        self.history = []

    def fit(self, steps):
        for _ in range(steps):
            x = torch.rand(256, 1, 28, 28, device="cuda")
            y = torch.randint(0, 10, (256,), device="cuda")
            out = self.model(x)
            loss = nn.functional.cross_entropy(out, y)
            self.opt.zero_grad()
            loss.backward(retain_graph=os.environ.get("DETACH") != "1")
            self.opt.step()
            self.history.append(loss.item() if os.environ.get("DETACH") == "1" else loss)


trainer = Trainer()
trainer.fit(80)
print("history", len(trainer.history))
