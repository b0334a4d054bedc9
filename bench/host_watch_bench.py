#!/usr/bin/env python3
"""host_watch_bench.py STOWAGE [ROUNDS]: what watching host memory costs a program, in its own CPU time.

Runs a pure Python loop, a NumPy loop and a loop that builds objects, each bare and under `stowage run`, in turn. Prints the ratio of
the least user + system times of the program itself; the noise line compares the bare runs with each other.
"""
import json
import os
import statistics
import subprocess
import sys

PROGRAMS = {
    "python loop": """
total = 0
table = [0] * 1000
for i in range(12_000_000):
    total += table[i % 1000] ^ i
""",
    "numpy loop": """
import numpy as np
a = np.random.rand(2000, 2000)
for i in range(120):
    a = np.sqrt(a * 1.0001 + 0.5)
    b = [np.zeros(200_000) for _ in range(8)]
""",
    "growing objects": """
rows = []
for i in range(1_500_000):
    rows.append({"id": i, "value": i * 0.5, "name": str(i)})
""",
}
TIMED = "\nimport json, os, resource, sys\nu = resource.getrusage(resource.RUSAGE_SELF)\nprint(json.dumps(u.ru_utime + u.ru_stime))\n"


def once(before, program):
    done = subprocess.run([*before, sys.executable, "-c", program + TIMED], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return json.loads(done.stdout)


def main():
    stowage, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 9
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    for name, program in PROGRAMS.items():
        bare, again, watched = [], [], []
        for _ in range(rounds):
            bare.append(once([], program))
            watched.append(once([stowage, "run", "--"], program))
            again.append(once([], program))
        cost = min(watched) / min(bare + again) - 1
        pairs = statistics.median(w / ((b + a) / 2) for w, b, a in zip(watched, bare, again)) - 1
        noise = abs(min(bare) / min(again) - 1)
        print(f"host watch, {name}: {min(bare + again):.2f} s bare, cost {cost:+.1%} (pairs {pairs:+.1%}, noise {noise:.1%}, {rounds} rounds)")


main()
