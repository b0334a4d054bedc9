# limit: 3G
# cause: no_grad_missing
# fixes: NOGRAD BATCH
# needs: torch transformers
import contextlib
import os
import torch
from transformers import BertConfig, BertModel

model = BertModel(BertConfig(num_hidden_layers=6, hidden_size=512, num_attention_heads=8, intermediate_size=2048)).cuda()
model.eval()
guard = torch.no_grad() if os.environ.get("NOGRAD") == "1" else contextlib.nullcontext()
batch = int(os.environ.get("BATCH", 192))
with guard:
    ids = torch.randint(0, 30000, (batch, 256), device="cuda")
    pooled = model(input_ids=ids).last_hidden_state.mean(1)
print("sentences", pooled.shape[0])
