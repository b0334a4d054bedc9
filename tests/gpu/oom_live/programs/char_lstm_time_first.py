# limit: 3G
# cause: batch_too_big
# fixes: BATCH LENGTH
# needs: torch
import os
import torch
from torch import nn

batch_size = int(os.environ.get("BATCH", 512))
length = int(os.environ.get("LENGTH", 256))


class CharModel(nn.Module):
    def __init__(self, vocab=128, width=1024):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width, width, num_layers=2)
        self.out = nn.Linear(width, vocab)

    def forward(self, ids):
        y, _ = self.lstm(self.embed(ids))
        return self.out(y)


model = CharModel().cuda()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for i in range(2):
    ids = torch.randint(0, 128, (length, batch_size), device="cuda")
    logits = model(ids[:-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("bits", loss.item())
