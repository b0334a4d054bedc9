# limit: 3G
# cause: no_grad_missing
# fixes: NOGRAD BATCH
# needs: torch
import os
import torch
from torch import nn

BATCH = int(os.environ.get("BATCH", 192))


def predict(model, images):
    model.eval()
    if os.environ.get("NOGRAD") == "1":
        with torch.no_grad():
            return model(images).softmax(-1)
    return model(images).softmax(-1)


blocks = []
for _ in range(12):
    blocks += [nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()]
model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()
images = torch.rand(BATCH, 3, 96, 96).cuda()
out = predict(model, images)
print(out.argmax(-1)[:5].tolist())
