"""Record the seeds that use a device, as usually written and as they fail, under a limit of 2 GiB (13 as usually written: 10 GiB),
and explain each.

usage: record.py FOLDER      (needs torch and a device; `stowage` on the path explains what was recorded)
"""
import glob, gzip, importlib.util, os, pickle, signal, subprocess, sys

import torch
import torch._dynamo  # else the first optimizer of every child imports it

FOLDER = os.path.dirname(os.path.abspath(__file__))
HOST = ("01", "02", "04", "05", "06", "08")


def child(path, which, out):
    sys.path.insert(0, FOLDER)
    spec = importlib.util.spec_from_file_location("seed", path)
    seed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(seed)
    limit = (10 if "13_" in path and which == "main" else 2) << 30
    torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
    torch.cuda.memory._record_memory_history(max_entries=100_000, context="all", stacks="python")
    error = ""
    try:
        getattr(seed, which)()
    except Exception as e:
        error = f"{type(e).__name__}: {e}"
    snapshot = torch.cuda.memory._snapshot()
    for trace in snapshot["device_traces"]:
        for event in trace:
            for f in event.get("frames", ()):
                at = f["filename"].find("site-packages/")
                f["filename"] = f["filename"][at:] if at >= 0 else os.path.basename(f["filename"])
    if error:
        snapshot["error"] = error
    with gzip.GzipFile(out, "wb", 9, mtime=0) as f:
        pickle.dump(snapshot, f, 4)


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    for path in sorted(glob.glob(FOLDER + "/[0-9][0-9]_*.py")):
        name = os.path.basename(path)[:-3]
        if name[:2] in HOST:
            continue
        for which in ("main", "fails"):
            if "def " + which not in open(path).read():
                continue
            file = f"{out}/{name}{'' if which == 'main' else '-fails'}.pickle.gz"
            if (pid := os.fork()) == 0:  # a process each; torch is imported once
                signal.alarm(60)
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                child(path, which, file)
                os._exit(0)
            os.waitpid(pid, 0)
            result = subprocess.run(["stowage", "explain", file, "--short"], capture_output=True, text=True)
            print(f"{os.path.basename(file)}: {result.stdout.strip() or result.stderr.strip()}", flush=True)


if __name__ == "__main__":
    main()
