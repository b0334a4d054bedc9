#!/usr/bin/env python3
"""profile_bench.py STOWAGE [ROUNDS [PROGRAM…]]: the CPU time of programs under `stowage run`, `stowage run --profile`, memray and scalene.

Prints for each program (all of them, or those whose names contain a given word):
- a case= line for `run` and for `run --profile`: its CPU time over the bare one's, run together on one core (together.py), with the
  interval of the median and the bound: 1.02 for the watch of `run`, 1.05 for `--profile` of a training loop, 1.3 of a Python loop.
- the peers, if this Python has them: the least CPU time of two runs over the least bare one.
- for the pure Python loop, if valgrind is installed: the instructions of its thread (callgrind), those of three times the work less
  those of one time, so that the start does not count. They do not depend on what else the machine does. Reports to the watch run on
  another thread, at times that depend on the clock, and are not counted.
"""
import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import together

PROGRAMS = {
    "pure Python loop": """
def work(scale):
    total, table = 0, [0] * 1000
    for i in range(int(1_500_000 * scale)):
        total += table[i % 1000] ^ i
        pair = (i, i + 1)
        total += len(str(pair[1])) + hash(pair) % 7
""",
    "objects loop": """
def work(scale):
    out = {}
    for i in range(int(600_000 * scale)):
        out[i % 1000] = [i, i * 0.5, {"a": i}, str(i)]
""",
    "NumPy training loop": """
import numpy as np
def work(scale):
    rng = np.random.default_rng(0)
    x, y = rng.random((4096, 256)), rng.random((4096, 10))
    first, second = rng.random((256, 256)) * 0.01, rng.random((256, 10)) * 0.01
    for step in range(int(1000 * scale)):
        at = step * 128 % 4096
        batch, wanted = x[at:at + 128], y[at:at + 128]
        hidden = np.maximum(batch @ first, 0)
        error = hidden @ second - wanted
        back = (error @ second.T) * (hidden > 0)
        second -= 1e-4 * hidden.T @ error
        first -= 1e-4 * batch.T @ back
""",
    # PyTorch imports much of itself in the first step: that belongs to the start, not to the loop.
    "PyTorch training loop": """
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x, y = torch.rand(4096, 256), torch.randint(0, 10, (4096,))
def work(scale):
    for step in range(int(300 * scale)):
        at = step * 128 % 4096
        loss = torch.nn.functional.cross_entropy(model(x[at:at + 128]), y[at:at + 128])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
work(0.01)
""",
    "PyTorch start": """
def work(scale):
    import torch
    model = torch.nn.Linear(256, 512)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.rand(128, 256)).sum().backward()
    optimizer.step()
""",
}
NEEDS = {"PyTorch training loop": "torch", "PyTorch start": "torch"}
BOUNDS = {"NumPy training loop": 1.05, "PyTorch training loop": 1.05}  # of run --profile; 1.3 for the loops of Python
WATCH_BOUND = 1.02
DEADLINE_SECONDS = 60
PEER_ROUNDS = 2


def peers(program, folder):
    python = sys.executable
    if importlib.util.find_spec("memray"):
        yield "memray", [python, "-m", "memray", "run", "-q", "-f", "-o", f"{folder}/memray.bin", program]
        yield "memray, small objects too", [python, "-m", "memray", "run", "-q", "-f", "--trace-python-allocators", "-o",
                                            f"{folder}/memray.bin", program]
    if importlib.util.find_spec("scalene"):
        version = importlib.metadata.version("scalene")
        how = ["--json"] if version.startswith("1.") else ["run"]
        yield f"scalene {version}", [python, "-m", "scalene", *how, "--outfile", f"{folder}/scalene.json", program]


def once(command):
    """Returns the CPU seconds of the work, or None. A profiler that does not end in time is ended with its children."""
    with tempfile.NamedTemporaryFile("w") as out:
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        times = []
        for _ in range(DEADLINE_SECONDS * 10):
            try:
                running.wait(0.1)
            except subprocess.TimeoutExpired:
                pass
            with open(out.name, encoding="utf-8", errors="replace") as file:  # an offset of its own
                times = [float(line.split()[1]) for line in file if line.startswith("SPENT") and line.endswith("\n")]
            if times or running.returncode is not None:
                break
        try:
            running.wait(5)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(running.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        running.wait()
    return times[0] if times else None


def counted(command, program, scale):
    """The instructions of a program's first thread; None if valgrind cannot run it."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*command, "valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={folder}/out", sys.executable,
                        program, str(scale)], stdin=subprocess.DEVNULL, capture_output=True, env={**os.environ, "PYTHONHASHSEED": "0"})
        try:
            with open(f"{folder}/out-01", encoding="utf-8", errors="replace") as file:
                return int(re.search(r"^totals: (\d+)", file.read(), re.MULTILINE)[1])
        except (OSError, TypeError):  # no file, or no total in it
            return None


def count_instructions(stowage, program):
    if shutil.which("valgrind") is None:
        return
    counts = {}
    for label, command in (("bare", []), ("stowage run", [stowage, "run", "--quiet", "--"]), ("stowage run --profile", [stowage, "run", "--quiet", "--profile", "--"])):
        one, three = (counted(command, program, 0.015 * times) for times in (1, 3))
        if one is None or three is None:
            print(f"  {label}: valgrind did not run it")
            return
        counts[label] = three - one
    for label in ("stowage run", "stowage run --profile"):
        print(f"  {label:28} {counts[label] / counts['bare']:6.3f}x instructions", flush=True)


def main():
    stowage, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 15
    words, dead = sys.argv[3:], set()  # dead: peers that did not end with a program, not tried with it again
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, text in PROGRAMS.items():
            if words and not any(word in name for word in words):
                continue
            case = "profile_" + name.lower().replace(" ", "_")
            if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
                print(f"case={case} not-run (no {NEEDS[name]} in {sys.executable})")
                continue
            program = f"{folder}/program.py"
            with open(program, "w", encoding="utf-8") as file:
                file.write(text + together.TIMED)
            bare = [sys.executable, program]
            together.compare(case, {"bare": bare, "run": [stowage, "run", "--quiet", "--", *bare],
                                    "run --profile": [stowage, "run", "--quiet", "--profile", "--", *bare]}, rounds,
                             {"run": WATCH_BOUND, "run --profile": BOUNDS.get(name, 1.3)})
            alone, others = [], {}
            for _ in range(PEER_ROUNDS):
                alone.append(once(bare))
                for label, command in peers(program, folder):
                    spent = None if (name, label) in dead else once(command)
                    others.setdefault(label, []).append(spent)
                    if spent is None:
                        dead.add((name, label))
            for label, times in others.items():
                known = [t for t in times if t is not None]
                print(f"  {label:28} {min(known) / min(alone):5.2f}x" if known else f"  {label:28} failed, or took more than {DEADLINE_SECONDS} s", flush=True)
            if name == "pure Python loop":
                count_instructions(stowage, program)


main()
