#!/usr/bin/env python3
"""host_watch_bench.py STOWAGE [ROUNDS]: what watching host memory costs a program under `stowage run`, in CPU time.

Runs a pure Python loop, a NumPy loop, a loop that builds objects and one that builds trees, bare and under `stowage run`, together on one core
(together.py). Prints a case= line for each, with the bound of 2%, and the CPU time that the watching process itself takes for each
second.
"""
import os
import resource
import subprocess
import sys
import tempfile
import time

import together

BOUND = 1.02
PROGRAMS = {
    "python loop": """
def work(scale):
    total, table = 0, [0] * 1000
    for i in range(12_000_000):
        total += table[i % 1000] ^ i
""",
    "numpy loop": """
import numpy as np
def work(scale):
    a = np.random.rand(2000, 2000)
    for i in range(120):
        a = np.sqrt(a * 1.0001 + 0.5)
        b = [np.zeros(200_000) for _ in range(8)]
""",
    "growing objects": """
def work(scale):
    rows = []
    for i in range(1_500_000):
        rows.append({"id": i, "value": i * 0.5, "name": str(i)})
""",
    "object tree": """
class Node:
    def __init__(self, value):
        self.value, self.children = value, []
def build(depth):
    node = Node(depth)
    if depth:
        node.children = [build(depth - 1) for _ in range(4)]
    return node
def work(scale):
    for _ in range(3):
        root = build(9)
""",
}


def watcher(stowage):
    """Returns the CPU seconds of the command itself for each second of a program that holds 1 GiB and waits."""
    program = ("import time, resource\nheld = bytearray(1 << 30)\ntime.sleep(5)\nu = resource.getrusage(resource.RUSAGE_SELF)\n"
               "print(u.ru_utime + u.ru_stime)")
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([stowage, "run", "--quiet", "--", sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    after, passed = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime - float(done.stdout)) / passed


def main():
    stowage, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 15
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        for name, text in PROGRAMS.items():
            program = f"{folder}/program.py"
            with open(program, "w", encoding="utf-8") as file:
                file.write(text + together.TIMED)
            bare = [sys.executable, program]
            together.compare("host_watch_" + name.replace(" ", "_"), {"bare": bare, "run": [stowage, "run", "--quiet", "--", *bare]}, rounds,
                             {"run": BOUND})
    print(f"case=host_watch_process ours={watcher(stowage):.4f} unit=cpu_s_per_s")


main()
