# expect: graph_kept | running | item()
# limit: 700M
import torch

weights = [torch.randn(1024, 1024, requires_grad=True) for _ in range(4)]
running = 0
for batch in range(4000):
    h = torch.randn(512, 1024)
    for w in weights:
        h = torch.tanh(h @ w)
    loss = h.pow(2).mean()
    running += loss
    if batch % 100 == 99:
        print("batch", batch, float(running))
