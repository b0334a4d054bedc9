"""Run by weights_bench.sh: makes a model file and times shrink and its peers on it."""

import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from beside import in_turns, line  # noqa: E402
from weights_file import make, make_adapter  # noqa: E402

STOWAGE = os.environ["STOWAGE"]
MEGABYTES = int(os.environ.get("STOWAGE_BENCH_MB", "1024"))


def run(words, out):
    """Returns the seconds and peak resident bytes of one run. Programs print the peak themselves, because wait4 includes this process
    before exec."""
    began = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True)
    took = time.monotonic() - began
    if done.returncode != 0:
        raise SystemExit(f"weights_bench: {words} failed: {done.stderr[-300:]}")
    os.unlink(out)
    peak = re.search(r'"peak_memory_bytes": (\d+)', done.stdout)
    return took, int(peak.group(1)) if peak else 0


def best(runs, times=5):
    return [(min(t for t, _ in each), max(m for _, m in each)) for each in in_turns(runs, times)]


LOAD_SAVE = """
import sys, torch
from safetensors.torch import load_file, save_file
save_file({k: v.to(torch.bfloat16) for k, v in load_file(sys.argv[1]).items()}, sys.argv[2])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print('"peak_memory_bytes": %d' % (int(peak.split()[1]) << 10))
"""

size = make("in.safetensors", MEGABYTES)
rate = size / 1e9
shrink = lambda *words: lambda: run([STOWAGE, "shrink", "in.safetensors", "-o", "out.safetensors", "--json", "--no-sync", "--memory", "64M", *words], "out.safetensors")
copy = lambda: run(["cp", "in.safetensors", "copy.safetensors"], "copy.safetensors")
(ours, memory), (theirs, _) = best([shrink("--dtype", "bf16"), copy])
line("model_to_bf16_beside_cp", rate / ours, "cp", rate / theirs, "GB/s", f" peak_mb={memory >> 20}")
(ours, _), (theirs, _) = best([shrink(), copy])
line("model_copied_beside_cp", rate / ours, "cp", rate / theirs, "GB/s")
make_adapter("adapter", MEGABYTES, 16)
merge = lambda: run([STOWAGE, "merge", "in.safetensors", "adapter", "-o", "out.safetensors", "--json", "--memory", "64M"], "out.safetensors")
disk = lambda: run(["dd", "if=in.safetensors", "of=copy.safetensors", "bs=4M", "conv=fsync"], "copy.safetensors")
(ours, memory), (theirs, _) = best([merge, disk], 3)
line("merge_beside_disk", rate / ours, "dd_fsync", rate / theirs, "GB/s", f" peak_mb={memory >> 20}")
try:
    import safetensors.torch  # noqa: F401
    import torch  # noqa: F401
except ImportError:
    print("case=model_to_bf16_beside_safetensors peer=safetensors:missing")
else:
    theirs = lambda: run([sys.executable, "-c", LOAD_SAVE, "in.safetensors", "peer.safetensors"], "peer.safetensors")
    (ours, memory), (peer, peer_memory) = best([shrink("--dtype", "bf16"), theirs], 3)
    line("model_to_bf16_beside_safetensors", rate / ours, "safetensors", rate / peer, "GB/s")
    line("model_to_bf16_memory", memory / 1e6, "safetensors", peer_memory / 1e6, "MB")
