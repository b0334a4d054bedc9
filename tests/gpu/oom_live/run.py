#!/usr/bin/env python3
"""Programs that run out of memory on a card under a limit: is the first cause right, and does the first fix make them finish?

usage: run.py STOWAGE [--dry] [--jobs N] [--only WORDS] [--json FILE]

Each program of programs/ names in its head the limit it runs under, the causes that are right (the first is the true one), the
environment variables that apply a fix, and the packages it needs. It runs under `stowage run --vram-limit`, must fail, and is explained.
The first fix is applied by its variable (FIXES below) and the program runs again under the same limit. If the first fix has no variable,
the first that has one is applied and counted apart. Prints a line for each program, then totals. Exit status 0: at least 90% of the first
causes are right and at least 85% of the first fixes make the program finish.

--dry needs no card: it checks the heads, that each program compiles and reads the variables it names, and that FIXES knows them.
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CAUSES = """other_process outside_framework cache_held limit fragmentation graph_kept no_grad_missing leak loaded_twice eval_batch_bigger
one_spike weights_too_big optimizer_state batch_too_big""".split()

# (words of a fix, variable, its value). A group in the words is the value; otherwise it is "1".
FIXES = [
    (r"use a batch of (\d+)", "BATCH"),
    (r"run at most (\d+) ", "BATCH"),
    (r"use 1/(\d+) of the batch", "BATCH/"),
    (r"smaller images: (\d+)x", "SIZE"),
    (r"smaller inputs: at most (\d+)%", "SIZE%"),
    (r"shorter sequences: (\d+)", "LENGTH"),
    (r"no_grad|inference_mode", "NOGRAD"),
    (r"\.item\(\)|loss\.detach\(\)", "DETACH"),
    (r"training's batch size", "EVALBATCH"),
    (r"16-bit weights and an 8-bit optimizer", "HALF OPT8"),
    (r"fused=True", "FUSED"),
    (r"state.*in 8 bits", "OPT8"),
    (r"state on the host|keep the state on the host", "HOST_STATE"),
    (r"adapters over 16-bit", "ADAPTERS HALF"),
    (r"train adapters|LoRA", "ADAPTERS"),
    (r"map_location", "MAPCPU"),
    (r"keep the copy on the host|make the model once", "EMACPU"),
    (r"do not (keep|make)", "KEEP"),
    (r"expandable_segments:True", "EXPANDABLE"),
    (r"max_split_size_mb:(\d+)", "SPLIT"),
    (r"empty_cache", "EMPTY_CACHE"),
    (r"keep the table on the host", "HOST"),
    (r"layers on the host", "HOST"),
    (r"weights to 8 bits", "QUANT8"),
    (r"weights to 4 bits", "QUANT4"),
    (r"in parts|one block of rows|chunk", "PARTS"),
    (r"recompute activations|checkpoint", "CHECKPOINT"),
    (r"in 16 bits|half\(\)|bfloat16\)|float16", "HALF"),
    (r"autocast", "AMP"),
    (r"smaller batch|half the batch|batch size", "BATCH/"),
]
VARIABLES = {name.rstrip("/%") for _, names in FIXES for name in names.split()}
ALLOCATOR = ("EXPANDABLE", "SPLIT")  # set through PyTorch's own variable


class Program:
    def __init__(self, path):
        self.path, self.name, self.text = path, path.stem, path.read_text()
        head = dict(re.findall(r"^# (limit|cause|fixes|needs): (.+)$", self.text, re.M))
        self.limit, self.causes = head["limit"], head["cause"].split()
        self.fixes, self.needs = head["fixes"].split(), head["needs"].split()

    def default(self, variable):
        found = re.search(rf'"{variable}", ([\d_]+)', self.text)
        return int(found.group(1)) if found else None

    def check(self):
        """Returns what is wrong with its header or its text; "" if nothing is."""
        compile(self.text, str(self.path), "exec")
        kit = (HERE / "kit.py").read_text() if "kit import" in self.text else ""
        wrong = [f"unknown cause {c}" for c in self.causes if c not in CAUSES]
        wrong += [f"no fix is known for {f}" for f in self.fixes if f not in VARIABLES]
        wrong += [f"does not read {f}" for f in self.fixes if f not in ALLOCATOR and f'"{f}"' not in self.text + kit]
        if not re.fullmatch(r"[\d.]+[GM]", self.limit):
            wrong.append(f"limit {self.limit}")
        return "; ".join(wrong)

    def setting(self, change):
        """Returns the variables that apply a fix to this program, or None."""
        for words, names in FIXES:
            found = re.search(words, change)
            if not found:
                continue
            made = {}
            for name in names.split():
                plain = name.rstrip("/%")
                if plain not in self.fixes:
                    break
                value = found.group(1) if found.groups() and (found.group(1) or "").isdigit() else None
                if name.endswith("/"):
                    value = str(max(1, (self.default(plain) or 1) // int(value or 2)))
                elif name.endswith("%"):
                    value = str(int((self.default(plain) or 1) * (int(value or 50) / 100) ** (1 / 3)) // 8 * 8)
                made[plain] = value or "1"
            else:
                return self.with_batch(made, change)
        return None

    def with_batch(self, made, change):
        """Adds the batch that some fixes name."""
        batch = re.search(r"then a batch of (\d+)", change)
        if batch and "BATCH" in self.fixes:
            made["BATCH"] = batch.group(1)
        return made


def environment(setting):
    made = dict(os.environ, **{k: v for k, v in setting.items() if k not in ALLOCATOR})
    conf = {"EXPANDABLE": "expandable_segments:True", "SPLIT": f"max_split_size_mb:{setting.get('SPLIT')}"}
    for name in ALLOCATOR:
        if name in setting:
            made["PYTORCH_ALLOC_CONF"] = made["PYTORCH_CUDA_ALLOC_CONF"] = conf[name]
    return made


def run(stowage, program, setting, folder):
    env = environment(setting)
    env["XDG_STATE_HOME"] = folder
    began = time.monotonic()
    try:
        done = subprocess.run([stowage, "run", "--vram-limit", program.limit, "--", sys.executable, str(program.path)],
                              env=env, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL)
        code, said = done.returncode, done.stderr
    except subprocess.TimeoutExpired:
        code, said = 124, "timeout"
    return code, said, time.monotonic() - began, env


def missing(program):
    for name in program.needs:
        if subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True).returncode != 0:
            return name
    return ""


def judge(stowage, program):
    """Returns a dict with the results of one program."""
    lacks = missing(program)
    if lacks:
        return {"name": program.name, "skip": f"no {lacks}"}
    with tempfile.TemporaryDirectory() as folder:
        code, said, seconds, env = run(stowage, program, {}, folder)
        if code == 0:
            return {"name": program.name, "skip": "did not fail: its limit is wrong for this card"}
        shown = subprocess.run([stowage, "explain", "--last", "--json"], env=env, capture_output=True, text=True, timeout=60)
        try:
            answered = json.loads(shown.stdout)
        except ValueError:
            return {"name": program.name, "skip": "no explanation: " + (shown.stderr or said)[-300:]}
        cause = answered["causes"][0]["id"] if answered["causes"] else "none"
        changes = [fix["change"] for fix in answered["fixes"]]
        settings = [program.setting(change) for change in changes]
        chosen = next((i for i, s in enumerate(settings) if s is not None), None)
        result = {"name": program.name, "cause": cause, "true": program.causes, "right": cause in program.causes, "fixes": changes,
                  "chosen": chosen, "setting": settings[chosen] if chosen is not None else None, "finishes": False,
                  "headline": answered["headline"], "seconds": seconds}
        if chosen is not None:
            code, said, seconds, _ = run(stowage, program, settings[chosen], folder)
            result["finishes"] = code == 0
            result["seconds"] += seconds
            if code != 0:
                result["then"] = said[-400:]
        return result


def line(result):
    if "skip" in result:
        return f"skip {result['name']}: {result['skip']}"
    cause = "right" if result["right"] else f"WRONG (is {result['true'][0]})"
    if result["chosen"] is None:
        fix = "no fix that the program has: " + (result["fixes"][0] if result["fixes"] else "none")
    else:
        words = " ".join(f"{k}={v}" for k, v in result["setting"].items())
        fix = f"fix {result['chosen'] + 1} ({words}) {'finishes' if result['finishes'] else 'FAILS AGAIN'}"
    return f"{result['name']}: {result['cause']} {cause}; {fix}; {result['seconds']:.0f} s"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("stowage")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    given = parser.parse_args()
    programs = [Program(p) for p in sorted((HERE / "programs").glob("*.py")) if given.only in p.stem]
    if given.dry:
        wrong = [f"{p.name}: {p.check()}" for p in programs if p.check()]
        print("\n".join(wrong) or f"{len(programs)} programs: heads, variables and syntax are right")
        return 1 if wrong else 0
    began = time.monotonic()
    results = []
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(judge, given.stowage, p) for p in programs]):
            results.append(done.result())
            print(line(results[-1]), flush=True)
    if given.json:
        Path(given.json).write_text(json.dumps(results, indent=1))
    answered = [r for r in results if "skip" not in r]
    right = sum(r["right"] for r in answered)
    first = sum(r["finishes"] and r["chosen"] == 0 for r in answered)
    any_fix = sum(r["finishes"] for r in answered)
    print(f"{len(answered)} programs in {time.monotonic() - began:.0f} s, {len(results) - len(answered)} skipped: first cause right {right}; "
          f"first fix finishes {first}; first fix with a variable finishes {any_fix}")
    return 0 if answered and right >= 0.9 * len(answered) and first >= 0.85 * len(answered) else 1


if __name__ == "__main__":
    sys.exit(main())
