#!/usr/bin/env python3
"""Record a training loop of changing shapes under many allocator settings, to compare replays with a GPU.

usage: record_torch.py FOLDER [NAME...]      (needs torch and a device; downloads nothing)

Writes FOLDER/NAME.pickle.gz (PyTorch's own snapshot) and FOLDER/torch.json, a list of {name, settings, limit_bytes,
peak_reserved_bytes, peak_allocated_bytes, retries, ooms}. Compare, for each: `stowage replay NAME.pickle.gz --check`, the same
with --vram-limit limit_bytes, and peak_reserved_bytes with what it prints. "async" has no snapshot, since that backend keeps
none: its peak_reserved_bytes is what `stowage replay plain.pickle.gz --policy cuda_async` is compared with (within 3%).
"""
import gzip, json, os, pickle, random, subprocess, sys

# name: (settings, limit as a multiple of the plain run's peak allocated bytes, or 0)
RUNS = {
    "plain": ("", 0),
    "limited": ("", 1.12),
    "split": ("max_split_size_mb:64", 0),
    "split_limited": ("max_split_size_mb:32", 1.08),
    "rounded": ("roundup_power2_divisions:4", 0),
    "rounded_list": ("roundup_power2_divisions:[32:8,64:4,128:2,>:1]", 0),
    "collected": ("garbage_collection_threshold:0.6", 1.25),
    "collected_split": ("garbage_collection_threshold:0.7,max_split_size_mb:48", 1.2),
    "expandable": ("expandable_segments:True", 0),
    "expandable_limited": ("expandable_segments:True", 1.03),
    "expandable_rounded": ("expandable_segments:True,roundup_power2_divisions:8", 1.15),
    "fails": ("", 0.9),
    "expandable_fails": ("expandable_segments:True", 0.9),
    "async": ("backend:cudaMallocAsync", 0),
}


def loop(torch, steps):
    """A small GPT at changing batch and length; each third step also works on a second stream, each fifth empties the cache."""
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)
    random.seed(0)
    width, heads, vocab = 384, 6, 16000

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            n, t, _ = x.shape
            q, k, v = (y.view(n, t, heads, -1).transpose(1, 2) for y in self.qkv(self.a(x)).chunk(3, -1))
            w = (q @ k.transpose(-1, -2) / 8).softmax(-1)
            x = x + self.out((w @ v).transpose(1, 2).reshape(n, t, width))
            return x + self.down(F.gelu(self.up(self.b(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.place = nn.Embedding(vocab, width), nn.Embedding(1024, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(4)])
            self.head = nn.Linear(width, vocab)

        def forward(self, ids):
            return self.head(self.blocks(self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))))

    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    side = torch.cuda.Stream()
    for step in range(steps):
        ids = torch.randint(0, vocab, (random.choice([2, 4, 6, 8]), random.randrange(64, 768)), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(ids)
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids.flatten())
        loss.backward()
        if step % 3 == 2:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                kept = [(logits.detach()[:, : 16 * (j + 1)].float() * 2).sum() for j in range(6)]
                torch.cuda._sleep(20_000_000)
                kept.append(logits.detach() * 1)
            logits.record_stream(side)
        del logits, loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 3 == 2:
            torch.cuda.current_stream().wait_stream(side)
            del kept
        if step % 5 == 4:
            torch.cuda.empty_cache()


def child(name, limit, out):
    import torch

    settings = RUNS[name][0]
    if limit:
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
    recorded = "async" not in name
    if recorded:
        torch.cuda.memory._record_memory_history(max_entries=2_000_000, context=None)
    try:
        loop(torch, 12)
    except torch.OutOfMemoryError as e:
        print("  ", str(e)[:200], file=sys.stderr)
    torch.cuda.synchronize()
    s = torch.cuda.memory_stats()
    if recorded:
        snapshot = torch.cuda.memory._snapshot()
        for trace in snapshot["device_traces"]:
            for e in trace:
                e.pop("compile_context", None), e.pop("user_metadata", None)
        with gzip.GzipFile(out + "/" + name + ".pickle.gz", "wb", 9, mtime=0) as f:
            pickle.dump(snapshot, f, 4)
    print(json.dumps(dict(name=name, settings=settings, limit_bytes=limit, torch=torch.__version__,
                          device=torch.cuda.get_device_name(), peak_reserved_bytes=s["reserved_bytes.all.peak"],
                          peak_allocated_bytes=s["allocated_bytes.all.peak"], retries=s.get("num_alloc_retries", 0),
                          ooms=s.get("num_ooms", 0))), flush=True)


def main():
    if sys.argv[1] == "--child":
        return child(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    out, names = sys.argv[1], sys.argv[2:] or list(RUNS)
    os.makedirs(out, exist_ok=True)
    results, allocated = [], 0
    for name in ["plain"] + [n for n in names if n != "plain"]:
        settings, multiple = RUNS[name]
        limit = int(multiple * allocated) >> 20 << 20
        env = dict(os.environ, PYTORCH_ALLOC_CONF=settings, PYTORCH_CUDA_ALLOC_CONF=settings)
        run = subprocess.run([sys.executable, __file__, "--child", name, str(limit), out], env=env, text=True,
                             stdout=subprocess.PIPE, timeout=240)
        if run.returncode:
            print(name, "ended with", run.returncode)
            continue
        result = json.loads(run.stdout.splitlines()[-1])
        if name == "plain":
            allocated = result["peak_allocated_bytes"]
        results.append(result)
        print(json.dumps(result), flush=True)
    with open(out + "/torch.json", "w") as f:
        json.dump(results, f, indent=1)


main()
