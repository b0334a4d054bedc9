# limit: 5G
# cause: batch_too_big
# fixes: BATCH LENGTH
# needs: torch transformers
import os
import torch
from transformers import GPT2Config, GPT2LMHeadModel

per_device_train_batch_size = int(os.environ.get("BATCH", 32))
length = int(os.environ.get("LENGTH", 512))
config = GPT2Config(n_layer=6, n_head=8, n_embd=512, n_positions=1024)
model = GPT2LMHeadModel(config).cuda()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
for step in range(3):
    input_ids = torch.randint(0, config.vocab_size, (per_device_train_batch_size, length), device="cuda")
    loss = model(input_ids=input_ids, labels=input_ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("loss", loss.item())
