#!/usr/bin/env python3
"""Record the training loop that `make demo` replays: a small GPT with checkpointed blocks at changing batch and length.

usage: record_demo.py FOLDER [WIDTH...]      (needs torch and a device of 40 GiB or more; downloads nothing)

Writes FOLDER/demo-WIDTH.pickle.gz for each width, PyTorch's own snapshot with Python stacks, and prints what each needed. The
one kept is the one whose live bytes fit a 16 GiB device and whose reserved bytes do not.
"""
import gzip, json, os, pickle, random, subprocess, sys


def record(path, width):
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm_attention, self.norm_feed = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def attention(self, x):
            b, n, w = x.shape
            q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-2, -1) / (w // self.heads) ** 0.5
            scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1), -1e4)
            return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, w))

        def forward(self, x):
            x = x + self.attention(self.norm_attention(x))
            return x + self.down(F.gelu(self.up(self.norm_feed(x))))

    class Gpt(nn.Module):
        def __init__(self, width, depth, heads, vocabulary=50257):
            super().__init__()
            self.embed, self.place = nn.Embedding(vocabulary, width), nn.Embedding(2048, width)
            self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
            self.head = nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens):
            x = self.embed(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return self.head(x)

    torch.manual_seed(0)
    random.seed(0)
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, context="alloc", stacks="python")
    model = Gpt(width, 18, width // 64).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(16):
        tokens = torch.randint(0, 50257, (random.choice([2, 4, 8]), random.randrange(128, 2048)), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    stats = torch.cuda.memory_stats()
    snapshot = torch.cuda.memory._snapshot()
    here = os.path.dirname(os.path.abspath(__file__)) + "/"
    known = set()

    def shorten(frames):  # the script's own folder is nobody's business
        for frame in frames:
            if id(frame) not in known:
                known.add(id(frame))
                frame["filename"] = frame["filename"].replace(here, "")

    for trace in snapshot["device_traces"]:
        for entry in trace:
            shorten(entry.get("frames", ()))
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            shorten(block.get("frames", ()))
    with gzip.GzipFile(path, "wb", 9, mtime=0) as file:
        file.write(pickle.dumps(snapshot, 4))
    print(json.dumps({"width": width, "events": sum(map(len, snapshot["device_traces"])), "bytes": os.path.getsize(path),
                      "live_gib": round(stats["allocated_bytes.all.peak"] / 2**30, 3),
                      "reserved_gib": round(stats["reserved_bytes.all.peak"] / 2**30, 3)}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--one":
        record(sys.argv[2], int(sys.argv[3]))
    else:
        for width in map(int, sys.argv[2:] or ["640", "768", "896", "1024"]):
            subprocess.run([sys.executable, __file__, "--one", f"{sys.argv[1]}/demo-{width}.pickle.gz", str(width)], check=True)
