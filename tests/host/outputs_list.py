# expect: graph_kept | outputs | detach
# limit: 800M
import torch
net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(1000, 1000), torch.nn.GELU()) for _ in range(6)])
def predict(batches):
    outputs = []
    for b in range(batches):
        out = net(torch.randn(200, 1000))
        outputs.append(out)
    return torch.cat(outputs)
print(predict(2000).shape)
