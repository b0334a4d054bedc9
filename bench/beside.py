"""What the data benchmarks share: ours and a peer side by side in turns, in a control group where memory is limited, one line for each."""

import os
import statistics
import subprocess
import sys


def line(case, mine, peer, theirs, unit, more=""):
    """ratio: ours over the peer's; of rates, higher is better."""
    print(f"case={case} ours={mine:.4g} peer={peer}:{theirs:.4g} ratio={mine / theirs:.3g} unit={unit}{more}", flush=True)


def in_turns(runs, times):
    """Returns the results of `runs`, one list each. Runs them in turn, so that other load affects all equally."""
    given = [[] for _ in runs]
    for _ in range(times):
        for run, values in zip(runs, given):
            values.append(run())
    return given


def middle(values):
    return statistics.median(values)


def python(code, *words, group=None, **more):
    """What a Python program of its own prints."""
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=600,
                          preexec_fn=group.enter if group else None, **more)
    if done.returncode != 0:
        raise SystemExit(f"{os.path.basename(sys.argv[0])}: {done.stderr[-600:]}")
    return done.stdout


class Group:
    """A control group with a memory limit, page cache and all, version 1 or 2; `folder` None where there can be none."""

    def __init__(self, limit):
        self.folder = None
        for root, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            folder = f"{root}/stowage-bench-{os.getpid()}"
            try:
                if root == "/sys/fs/cgroup" and "memory" not in open(root + "/cgroup.subtree_control").read():
                    continue
                os.mkdir(folder)
                with open(f"{folder}/{name}", "w") as file:
                    file.write(str(limit))
                self.folder = folder
                return
            except OSError:
                try:
                    os.rmdir(folder)
                except OSError:
                    pass

    def enter(self):
        """Moves the calling process there."""
        if self.folder:
            with open(self.folder + "/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))

    def close(self):
        if self.folder:
            os.rmdir(self.folder)
