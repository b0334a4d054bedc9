"""The long test: faults, kills, fuzzing and hostile files, in seeded slices, for as long as it is given.

  torture.py BUILD [--fuzz FUZZ_BUILD] [--seconds N] [--seed S] [--jobs N] [--state FOLDER] [--parts NAMES] [--slices N]

A slice is a few seconds of one part, made from the part's name, a number and the seed. The folder build/torture keeps which
slices are done, so a later call goes on where this one stopped, also after Ctrl-C. Counts belong to one build: a changed command
or library starts them again at zero, with the slices after those already done. --parts limits it to some parts (a list with
commas), --slices to that many slices of each.

Prints per part and per name (verb, format or fuzz target) how many cases it tried and how many findings there are; the last line
sums up all calls with this build and names its commit. A finding is kept in the folder with the command that shows it again. The
exit code is 1 if this build has a finding.
"""
import argparse
import concurrent.futures
import glob
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "faults"))
from sweep import VERBS  # noqa: E402

SLICES_ALLOC, SLICES_IO = 40, 8  # of each verb; together they try every call
KILLS, HOSTILE, TABLES, FUZZ_S = 100, 44, 25, 15  # of one slice
# Scripts that attack one place each: planted links, lying ledgers, full disks, secrets, control sequences, libraries of others.
# Those of Python, which need NumPy: servers that lie, and background threads without file descriptors, home folder or parent.
ATTACKS_PYTHON = ["remote", "background"]
ATTACKS = ["shim/ledger", "shim/namespaces", "shim/clocks", "cli/files", "cli/secure", "cli/refuse", "cli/hdf5", "cli/resume", "guards/terminal",
           "guards/files"]
SLICE_S_MAX = 1200
stopping = threading.Event()


def python(*words):
    return [sys.executable, *words]


class Part:
    """One way to torture. slice(n) gives (name, command), or None when everything has been tried."""

    def __init__(self, share, names, slice_of, count):
        self.share, self.names, self.slice, self.count = share, names, slice_of, count


def last_number(pattern):
    def count(text):
        found = re.findall(pattern, text)
        return sum(int(n) for n in found)
    return count


def number_of(seed, n):
    """The seed of slice n: another seed gives other cases, not the same ones a few slices later."""
    return str((seed * 1_000_003 + n) % (1 << 31))


def sweep_part(stowage, faults, samples, kind, slices, share, seed):
    """Every (verb, slice) once, in an order that the seed chooses."""
    order = [(verb, i) for verb, _ in VERBS for i in range(slices)]
    random.Random("%s %d" % (kind, seed)).shuffle(order)

    def slice_of(n):
        if n >= len(order):
            return None
        verb, i = order[n]
        return verb, python(os.path.join(ROOT, "tests", "faults", "sweep.py"), stowage, faults, samples, "--kind", kind,
                            "--only", verb, "--slice", "%d/%d" % (i, slices))
    return Part(share, [v for v, _ in VERBS], slice_of, last_number(r"(?m)^(\d+) faults, \d+ wrong"))


def attacks_part(build, stowage):
    """Each script once; then everything has been tried."""
    commands = [("crafted", python(os.path.join(HERE, "crafted.py"), stowage))]
    commands += [(name, ["env", "STOWAGE_BUILD=" + build, "STOWAGE_COMMAND=" + stowage, "bash", os.path.join(ROOT, "tests", name + ".sh")])
                 for name in ATTACKS]
    numpy = [p for p in ("/usr/bin/python3", sys.executable)
             if os.path.exists(p) and subprocess.run([p, "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode == 0]
    commands += [("python/" + name, ["env", "STOWAGE_COMMAND=" + stowage, "STOWAGE_LIBRARY=" + os.path.join(build, "libstowage.so"),
                                     "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=" + os.path.join(ROOT, "python"),
                                     numpy[0], os.path.join(ROOT, "python", "tests", "run.py"), name])
                 for name in ATTACKS_PYTHON if numpy]
    return Part(1, [name for name, _ in commands], lambda n: commands[n] if n < len(commands) else None,
                lambda text: len(re.findall(r"(?m)^ok ", text)))


def parts_of(build, fuzz, seed):
    stowage, faults = os.path.join(build, "stowage"), os.path.join(build, "tests", "faults")
    samples = os.path.join(ROOT, "tests", "samples")
    kills, hostile = os.path.join(HERE, "kills.py"), os.path.join(HERE, "hostile.py")
    parts = {
        "alloc": sweep_part(stowage, faults, samples, "alloc", SLICES_ALLOC, 3, seed),
        "io": sweep_part(stowage, faults, samples, "io", SLICES_IO, 3, seed),
        "hostile": Part(2, [], lambda n: ("", python(hostile, stowage, samples, str(HOSTILE), number_of(seed, n))),
                        last_number(r"(?m)^ok \S+: (\d+) cases")),
        "csv": Part(1, [], lambda n: ("csv", python(os.path.join(ROOT, "tests", "cli", "csv_random.py"), stowage, str(TABLES), number_of(seed, n))),
                    last_number(r"(?m)^(\d+) tables of seed")),
    }
    parts["attacks"] = attacks_part(build, stowage)
    for what, share in (("shrink", 3), ("run", 1), ("programs", 1)):
        parts["kill_" + what] = Part(
            share, [], lambda n, what=what: (what, python(kills, what, stowage, str(KILLS), number_of(seed, n))), last_number(r"(\d+) kills"))
    targets = sorted(f[:-5] for f in os.listdir(os.path.join(fuzz, "tests", "fuzz")) if f.endswith("_fuzz")) if fuzz else []
    if targets:
        parts["fuzz"] = Part(4, targets, lambda n: (targets[n % len(targets)], [os.path.join(ROOT, "tools", "fuzz.sh"), fuzz, str(FUZZ_S),
                             "--seed", number_of(seed, n + 1), targets[n % len(targets)]]), last_number(r"Done (\d+) runs"))
    return parts


def build_name(build, fuzz):
    """A hash of what is tortured."""
    sums = hashlib.sha256()
    files = [os.path.join(build, "stowage")] + sorted(glob.glob(os.path.join(build, "libstowage*.so")))
    if fuzz:
        folder = os.path.join(fuzz, "tests", "fuzz")
        files += [os.path.join(folder, f) for f in sorted(os.listdir(folder)) if f.endswith("_fuzz")]
    for path in files:
        with open(path, "rb") as f:
            sums.update(f.read())
    return sums.hexdigest()[:16]


def commit_name():
    """The commit of the source tree, with "-dirty" if files of it are changed; "unknown" outside a repository."""
    try:
        said = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return "unknown"
    return said.stdout.decode().strip() or "unknown"


class State:
    """What is done, in FOLDER/state.json, written whole after every slice."""

    def __init__(self, folder, build, seed):
        self.path = os.path.join(folder, "state.json")
        self.lock = threading.Lock()
        os.makedirs(folder, exist_ok=True)
        try:
            with open(self.path, encoding="utf-8") as f:
                self.all = json.load(f)
        except FileNotFoundError:
            self.all = {"next": {}, "seed": seed}
        except ValueError as error:
            print("%s is damaged (%s): beginning again" % (self.path, error))
            self.all = {"next": {}, "seed": seed}
        if self.all.get("seed") != seed:
            self.all = {"next": {}, "seed": seed}
        if self.all.get("build") != build:
            # The sweeps try every call again; the rest goes on with new seeds.
            after = {k: v for k, v in self.all["next"].items() if k not in ("alloc", "io", "attacks")}
            self.all = {"build": build, "seed": seed, "next": after, "cases": {}, "seconds": {}, "findings": [], "undone": [], "calls": 0}
        self.all["calls"] = self.all.get("calls", 0) + 1
        self.all["commit"] = commit_name()

    def save(self):
        with open(self.path + "~", "w", encoding="utf-8") as f:
            json.dump(self.all, f, indent=1, sort_keys=True)
        os.replace(self.path + "~", self.path)

    def take(self, part):
        """The number of the next slice of a part; one that was cut off by the end of a call comes first."""
        for again in self.all["undone"]:
            if again[0] == part:
                self.all["undone"].remove(again)
                return again[1]
        number = self.all["next"].get(part, 0)
        self.all["next"][part] = number + 1
        return number


def run_slice(part, command, folder):
    """(cases, finding or None, done, seconds). The command's process group ends with it."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as own:  # slices run side by side
        return run_command(part, command, folder, own, begun)


def run_command(part, command, folder, own, begun):
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=own,
                           start_new_session=True, env=dict(os.environ, TORTURE_KEEP=folder))
    while True:
        try:
            text = job.communicate(timeout=0.5)[0].decode(errors="replace")
            break
        except subprocess.TimeoutExpired:
            late = time.monotonic() - begun > SLICE_S_MAX
            if stopping.is_set() or late:
                os.killpg(job.pid, signal.SIGTERM)
                try:
                    job.communicate(timeout=5)
                except subprocess.TimeoutExpired:
                    os.killpg(job.pid, signal.SIGKILL)
                    job.communicate()
                return 0, "no end in %d s" % SLICE_S_MAX if late else None, late, time.monotonic() - begun
    cases = part.count(text)
    lines = [line for line in text.split("\n") if line.startswith("FAIL")]
    finding = None
    if lines or job.returncode != 0:
        finding = "; ".join(lines) or "code %d: %s" % (job.returncode, text[-300:])
    return cases, finding, True, time.monotonic() - begun


def work(state, parts, options, end):
    """Takes slices until the time is over; always of the part that is furthest behind its share."""
    while not stopping.is_set() and time.monotonic() < end:
        with state.lock:
            open_parts = [p for p in parts if p not in state.finished and state.taken.get(p, 0) < options.slices]
            if not open_parts:
                return
            name = min(open_parts, key=lambda p: (state.all["seconds"].get(p, 0) + state.running.get(p, 0)) / parts[p].share)
            number = state.take(name)
            chosen = parts[name].slice(number)
            if chosen is None:
                state.all["next"][name] = number
                state.finished.add(name)
                continue
            state.taken[name] = state.taken.get(name, 0) + 1
            state.running[name] = state.running.get(name, 0) + 10
        cases, finding, done, seconds = run_slice(parts[name], chosen[1], options.state)
        with state.lock:
            state.running[name] -= 10
            if not done:
                state.all["undone"].append([name, number])
            else:
                counts = state.all["cases"].setdefault(name, {})
                counts[chosen[0]] = counts.get(chosen[0], 0) + cases
                state.all["seconds"][name] = state.all["seconds"].get(name, 0) + seconds
            if finding:
                state.all["findings"].append({"part": name, "slice": number, "what": finding[:2000], "again": " ".join(chosen[1])})
                print("FINDING %s %d: %s\n  again: %s" % (name, number, finding[:400], " ".join(chosen[1])), flush=True)
            state.save()


def tell(state, parts):
    total = 0
    for name, part in parts.items():
        counts = state.all["cases"].get(name, {})
        cases = sum(counts.values())
        total += cases
        found = sum(f["part"] == name for f in state.all["findings"])
        left = any(part == name for part, _ in state.all["undone"])
        whole = ", complete" if name in state.finished and not left else ""
        print("%-13s %9d cases in %6.0f s, %d findings%s" % (name, cases, state.all["seconds"].get(name, 0), found, whole))
        if len(counts) > 1:
            print("  " + ", ".join("%s %d" % item for item in sorted(counts.items())))
    print("%d cases in %.2f hours of work, %d findings, calls: %d, commit: %s" %
          (total, sum(state.all["seconds"].values()) / 3600, len(state.all["findings"]), state.all["calls"], state.all["commit"]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--fuzz", default="")
    p.add_argument("--seconds", type=float, default=7200)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--state", default=os.path.join(ROOT, "build", "torture"))
    p.add_argument("--parts", default="")
    p.add_argument("--slices", type=int, default=1 << 60)
    options = p.parse_args()
    build, fuzz = os.path.abspath(options.build), os.path.abspath(options.fuzz) if options.fuzz else ""
    options.state = os.path.abspath(options.state)
    parts = parts_of(build, fuzz, options.seed)
    if options.parts:
        unknown = set(options.parts.split(",")) - set(parts)
        if unknown:
            p.error("no part %s; there are %s" % (", ".join(sorted(unknown)), ", ".join(parts)))
        parts = {k: parts[k] for k in options.parts.split(",")}
    state = State(options.state, build_name(build, fuzz), options.seed)
    state.finished, state.running, state.taken = set(), {}, {}
    for sig in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sig, lambda *_: stopping.set())
    end = time.monotonic() + options.seconds
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for future in [pool.submit(work, state, parts, options, end) for _ in range(options.jobs)]:
            future.result()
    state.save()
    tell(state, parts)
    return len(state.all["findings"]) > 0


if __name__ == "__main__":
    sys.exit(main())
