#!/usr/bin/env python3
"""Programs that run out of memory on a device under a limit: is the first cause right, and does the first fix make them finish?

usage: run.py STOWAGE [--dry] [--simulated] [--jobs N] [--seconds N] [--only NAME,…] [--json FILE]

Each program of programs/ names in its head the limit it runs under, the causes that are right (the first is the true one), the
environment variables that apply a fix, and the packages it needs. It runs under `stowage run --vram-limit`, must fail, and is explained.
The first fix is applied by its variable (FIXES below) and the program runs again under the same limit. If the first fix has no variable,
the first that has one is applied and counted apart. Prints a row for each program (cause, the user's line, the fix, whether the program
then finished), then totals. Exit status 0: at least 90% of the first causes are right and at least 85% of the first fixes make the
program finish.

About 20 s for a program and its fix; 6 at a time took 157 s on a machine with 16 cores. --seconds bounds the whole: a program that
has not started by then is skipped, and one that runs is stopped. Programs with the longest imports start first.

Several at a time disturb each other where NVML does not list them (a container with PIDs of its own): the shim then measures a context
by what is used on the whole GPU, so programs that start together count each other's memory and have up to 0.8 GiB less under their limit.
There a fix that fails again must be repeated with --jobs 1.

--simulated needs no device, but PyTorch 2.1 or newer: programs run on tensors without memory (simulated.py), and a replay of PyTorch's
allocator under the limit decides what is refused. Programs that use another library are skipped, and what kernels really need is
not known: a fix that finishes there may fail on a device.

--dry needs no device: it checks the heads, that each program compiles and reads the variables it names, and that FIXES knows them.
"""
import argparse
import concurrent.futures
import importlib.util
import json
import os
import re
import signal
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
    (r"\.item\(\)|\.detach\(\)", "DETACH"),
    (r"training's batch size", "EVALBATCH"),
    (r"16-bit weights and an 8-bit optimizer", "HALF OPT8"),
    (r"fused=True", "FUSED"),
    (r"state.*in 8 bits", "OPT8"),
    (r"state on the host|keep the state on the host", "HOST_STATE"),
    (r"adapters over 16-bit", "ADAPTERS HALF"),
    (r"train adapters|LoRA", "ADAPTERS"),
    (r"map_location", "MAPCPU"),
    (r"keep the copy on the host|make the model once", "EMACPU"),
    (r"do not (keep|make|let what)|\.cpu\(\)", "KEEP"),
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


def run(stowage, program, setting, folder, end):
    """Runs a program under its limit. Returns its exit status (124: stopped at the time limit), what it wrote, its seconds, its environment."""
    env = environment(setting)
    env["XDG_STATE_HOME"] = folder
    began = time.monotonic()
    child = subprocess.Popen([stowage, "run", "--vram-limit", program.limit, "--", sys.executable, str(program.path)], env=env,
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        said = child.communicate(timeout=max(1, min(100, end - began)))[1]
        code = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        code, said = 124, "timeout"
    return code, said, time.monotonic() - began, env


def simulate(program, setting, folder, end):
    """Does the same without a device, and leaves run.stow and error.txt in the folder."""
    began = time.monotonic()
    env = environment(setting)
    command = [sys.executable, str(HERE / "simulated.py"), str(program.path), program.limit, folder]
    try:
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=max(1, min(300, end - began)))
    except subprocess.TimeoutExpired:
        return 124, "timeout", time.monotonic() - began, env
    return done.returncode, done.stdout + done.stderr, time.monotonic() - began, env


def missing(program, simulated):
    if simulated:
        return next((name for name in program.needs if name in ("cupy", "jax")), "") and "simulation of that library"
    return next((name for name in program.needs if importlib.util.find_spec(name) is None), "")


def own_line(program, answered):
    """Returns the line of the program that the answer names first, or "-"."""
    texts = [answered["headline"]] + [e for c in answered["causes"][:1] for e in c["evidence"]]
    found = re.search(rf"{re.escape(program.path.name)}:(\d+)|line (\d+) of {re.escape(program.path.name)}", "\n".join(texts))
    return (found.group(1) or found.group(2)) if found else "-"


def judge(stowage, program, end, simulated):
    """Returns a dict with the results of one program."""
    lacks = missing(program, simulated)
    if lacks:
        return {"name": program.name, "skip": f"no {lacks}"}
    if time.monotonic() > end - 5:
        return {"name": program.name, "skip": "no time left"}
    with tempfile.TemporaryDirectory() as folder:
        try_it = (lambda setting: simulate(program, setting, folder, end)) if simulated else (lambda setting: run(stowage, program, setting, folder, end))
        code, said, seconds, env = try_it({})
        if simulated and code not in (0, 10, 124):
            return {"name": program.name, "skip": "cannot be simulated: " + said.strip()[-200:]}
        if code == 124:
            return {"name": program.name, "skip": f"stopped after {seconds:.0f} s"}
        if code == 0:
            return {"name": program.name, "skip": "did not fail: its limit is wrong for this device"}
        what = [f"{folder}/run.stow", "--message", f"{folder}/error.txt"] if simulated else ["--last"]
        shown = subprocess.run([stowage, "explain", *what, "--json"], env=env, capture_output=True, text=True, timeout=60)
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
                  "headline": answered["headline"], "line": own_line(program, answered), "seconds": seconds}
        if chosen is not None:
            code, said, seconds, _ = try_it(settings[chosen])
            if code == 124:
                return {"name": program.name, "skip": f"the fixed program was stopped after {seconds:.0f} s"}
            result["finishes"] = code == 0
            result["seconds"] += seconds
            if code != 0:
                result["then"] = said[-400:]
        return result


def row(result):
    """Returns one row of the table; a second line says what went wrong."""
    if "skip" in result:
        return f"{result['name']:<30} skip: {result['skip']}"
    cause = result["cause"] + ("" if result["right"] else f", WRONG: {result['true'][0]}")
    if result["chosen"] is None:
        fix, ends = (result["fixes"] or ["none"])[0][:60], "NO VARIABLE"
    else:
        fix = f"{result['chosen'] + 1}: " + " ".join(f"{k}={v}" for k, v in result["setting"].items())
        ends = "finishes" if result["finishes"] else "FAILS AGAIN"
    text = f"{result['name']:<30} {cause:<26} {result['line']:>4}  {fix:<26} {ends:<11} {result['seconds']:3.0f} s"
    if result["right"] and result["finishes"] and result["chosen"] == 0:
        return text
    return text + "\n    " + result["headline"][:150] + "".join("\n    " + change[:110] for change in result["fixes"][:2])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("stowage")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    given = parser.parse_args()
    wanted = given.only.split(",")
    programs = [Program(p) for p in sorted((HERE / "programs").glob("*.py")) if any(word in p.stem for word in wanted)]
    if given.dry:
        wrong = [f"{p.name}: {p.check()}" for p in programs if p.check()]
        print("\n".join(wrong) or f"{len(programs)} programs: heads, variables and syntax are right")
        return 1 if wrong else 0
    began = time.monotonic()
    results = []
    programs.sort(key=lambda p: "transformers" not in p.needs and "jax" not in p.needs)
    print(f"{'program':<30} {'first cause':<26} {'line':>4}  {'fix':<26} then")
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        waiting = [pool.submit(judge, given.stowage, p, began + given.seconds, given.simulated) for p in programs]
        for done in concurrent.futures.as_completed(waiting):
            results.append(done.result())
            print(row(results[-1]), flush=True)
    if given.json:
        Path(given.json).write_text(json.dumps(results, indent=1))
    answered = [r for r in results if "skip" not in r]
    right = sum(r["right"] for r in answered)
    first = sum(r["finishes"] and r["chosen"] == 0 for r in answered)
    any_fix = sum(r["finishes"] for r in answered)
    lines = sum(r["line"] != "-" for r in answered)
    print(f"{len(answered)} programs in {time.monotonic() - began:.0f} s, {len(results) - len(answered)} skipped: first cause right {right}; "
          f"line of the program named {lines}; first fix finishes {first}; first fix with a variable finishes {any_fix}")
    return 0 if answered and right >= 0.9 * len(answered) and first >= 0.85 * len(answered) else 1


if __name__ == "__main__":
    sys.exit(main())
