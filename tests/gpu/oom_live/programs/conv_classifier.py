# limit: 4G
# cause: batch_too_big
# fixes: BATCH AMP
# needs: torch
import contextlib
import os
import torch
import torch.nn as nn

batch_size = int(os.environ.get("BATCH", 256))
amp = os.environ.get("AMP") == "1"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.classifier = nn.Linear(128, 100)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def main():
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for i in range(4):
        images = torch.randn(batch_size, 3, 128, 128).cuda()
        labels = torch.randint(0, 100, (batch_size,)).cuda()
        context = torch.autocast("cuda", dtype=torch.bfloat16) if amp else contextlib.nullcontext()
        with context:
            loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("ok", loss.item())


main()
