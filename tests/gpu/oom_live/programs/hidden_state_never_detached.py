# limit: 2G
# cause: graph_kept leak
# fixes: DETACH
# needs: torch
import os
import torch
from torch import nn

detach = os.environ.get("DETACH") == "1"
rnn = nn.GRU(256, 512, num_layers=2, batch_first=True).cuda()
readout = nn.Linear(512, 256).cuda()
optimizer = torch.optim.Adam([*rnn.parameters(), *readout.parameters()])
hidden = torch.zeros(2, 128, 512, device="cuda")
losses = []
for chunk in range(80):
    x = torch.randn(128, 32, 256, device="cuda")
    out, hidden = rnn(x, hidden.detach() if detach else hidden)
    loss = (readout(out) - x).square().mean()
    if detach:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    else:
        losses.append(loss)
print("chunks", len(losses))
