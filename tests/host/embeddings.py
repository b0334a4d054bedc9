# expect: host_leak | all_embeddings
# limit: 600M
import torch
from torch import nn

encoder = nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 4096))
encoder.eval()
all_embeddings = []
with torch.no_grad():
    for i in range(100000):
        batch = torch.randn(64, 256)
        all_embeddings.append(encoder(batch))
result = torch.cat(all_embeddings)
print(result.shape)
