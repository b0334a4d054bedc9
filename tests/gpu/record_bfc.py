#!/usr/bin/env python3
"""Make JAX's allocator (XLA's BFC, growing as needed) allocate and free, and record what it does.

usage: record_bfc.py FOLDER      (needs jax and a device)

FOLDER/arrays.csv: a random program of arrays made and deleted, in RMM's log form, which `stowage replay arrays.csv --policy bfc`
reads; FOLDER/bfc.json: {arrays: {pool_bytes, peak_bytes_in_use, …}, train: {…}}, peak_reserved_bytes of the replay must be within 3% of
pool_bytes. FOLDER/train.csv is the same for a real training loop, taken from the allocator's own
verbose log (TF_CPP_VMODULE=bfc_allocator=…) where this jaxlib prints one.
"""
import json, os, random, re, subprocess, sys

HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"


def stats(device):
    s = device.memory_stats()
    return {k: int(v) for k, v in s.items()}


def arrays(out):
    import jax
    import jax.numpy as jnp

    device = jax.devices()[0]
    rng = random.Random(1)
    sizes = sorted({max(256, int(2 ** rng.uniform(9, 29)) // 4 * 4) for _ in range(90)})
    make = {n: jax.jit(lambda n=n: jnp.zeros((n // 4,), jnp.float32)) for n in sizes}
    for n in sizes:  # compile first, and let go of what that made
        make[n]().delete()
    before, live, log, curve = stats(device), [], [], []
    for step in range(6000):
        full = sum(a.nbytes for a in live) > (12 << 30)
        if live and (full or rng.random() < 0.48):
            a = live.pop(rng.randrange(len(live)))
            log.append(f"0,{step},free,{a.unsafe_buffer_pointer():#x},{a.nbytes},0\n")
            a.delete()
        else:
            a = make[rng.choice(sizes)]()
            a.block_until_ready()
            live.append(a)
            log.append(f"0,{step},allocate,{a.unsafe_buffer_pointer():#x},{a.nbytes},0\n")
        s = stats(device)
        if not curve or curve[-1][1] != s.get("pool_bytes"):
            curve.append([step, s.get("pool_bytes"), s["bytes_in_use"]])
    with open(out + "/arrays.csv", "w") as f:
        f.write(HEADER + "".join(log))
    return dict(before=before, after=stats(device), curve=curve)


def train():
    import jax
    import jax.numpy as jnp

    device = jax.devices()[0]
    rng = random.Random(2)

    def loss(p, x):
        for w in p[:-1]:
            x = jnp.tanh(x @ w)
        return ((x @ p[-1]) ** 2).mean()

    step = jax.jit(lambda p, x: jax.tree.map(lambda a, g: a - 1e-3 * g, p, jax.grad(loss)(p, x)))
    key = jax.random.key(0)
    p = [jax.random.normal(key, (2048, 2048)) * 0.02 for _ in range(8)]
    for _ in range(24):
        p = step(p, jnp.ones((rng.choice([512, 1024, 3000, 4096, 9000]), 2048)))
    jax.block_until_ready(p)
    return dict(after=stats(device))


def read_log(text):
    """Yields (action, pointer, bytes) of each line that the verbose allocator prints."""
    for line in text.splitlines():
        m = re.search(r"\[mem-debug\] (Alloc|Dealloc)ateRaw,GPU_\d+_bfc,(\d+),(0x[0-9a-f]+)", line)
        if m:
            yield "allocate" if m.group(1) == "Alloc" else "free", m.group(3), int(m.group(2))


def main():
    if sys.argv[1] == "--child":
        print(json.dumps(arrays(sys.argv[3]) if sys.argv[2] == "arrays" else train()))
        return
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    results = {}
    for what in ("arrays", "train"):
        env = dict(os.environ, XLA_PYTHON_CLIENT_PREALLOCATE="false", XLA_PYTHON_CLIENT_ALLOCATOR="bfc")
        if what == "train":
            env.update(TF_CPP_MIN_LOG_LEVEL="0", TF_CPP_MAX_VLOG_LEVEL="0", TF_CPP_VMODULE="bfc_allocator=4")
        run = subprocess.run([sys.executable, __file__, "--child", what, out], env=env, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, timeout=240)
        if run.returncode:
            print(what, "ended with", run.returncode, run.stderr[-1500:])
            continue
        results[what] = json.loads(run.stdout.splitlines()[-1])
        print(what, results[what]["after"], flush=True)
        if what == "train":
            with open(out + "/train.log", "w") as f:
                f.write("\n".join(l for l in run.stderr.splitlines() if "bfc_allocator" in l)[:8_000_000])
            lines = [f"0,{i},{a},{p},{n},0\n" for i, (a, p, n) in enumerate(read_log(run.stderr))]
            with open(out + "/train.csv", "w") as f:
                f.write(HEADER + "".join(lines))
            print("train.csv:", len(lines), "lines")
    with open(out + "/bfc.json", "w") as f:
        json.dump(results, f, indent=1)


main()
