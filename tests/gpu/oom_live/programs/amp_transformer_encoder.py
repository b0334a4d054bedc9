# limit: 4G
# cause: batch_too_big
# fixes: BATCH
# needs: torch
import os
import torch
from torch import nn

batch_size = int(os.environ.get("BATCH", 128))
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, dropout=0.1), 6).cuda()
head = nn.Linear(768, 5).cuda()
optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=1e-4)
scaler = torch.amp.GradScaler("cuda")
for step in range(3):
    tokens = torch.randn(batch_size, 256, 768, device="cuda")
    labels = torch.randint(0, 5, (batch_size,), device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(head(encoder(tokens).mean(1)), labels)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print("encoder", loss.item())
