# limit: 4G
# cause: batch_too_big
# fixes: BATCH LENGTH
# needs: torch
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = int(os.environ.get("BATCH", 24))
LENGTH = int(os.environ.get("LENGTH", 512))
VOCAB = 50257


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.ln1(x)).chunk(3, -1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, d=512, layers=6):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(1024, d)
        self.blocks = nn.ModuleList(Block(d, 8) for _ in range(layers))
        self.norm, self.lm_head = nn.LayerNorm(d), nn.Linear(d, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.norm(x))


gpt = GPT().cuda()
optim = torch.optim.AdamW(gpt.parameters(), lr=3e-4)
for it in range(3):
    ids = torch.randint(0, VOCAB, (BATCH, LENGTH), device="cuda")
    logits = gpt(ids[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
    loss.backward()
    optim.step()
    optim.zero_grad(set_to_none=True)
print("finished", float(loss))
