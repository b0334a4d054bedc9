"""Shared by the data benchmarks: runs ours and a peer in turn, in a control group if memory is limited, and prints one line for each."""

import os
import statistics
import subprocess
import sys


def line(case, mine, peer, theirs, unit, more=""):
    """Prints a line; ratio is ours divided by the peer's (for rates, higher is better)."""
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
    """Runs a Python program in a separate process and returns its output."""
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=600,
                          preexec_fn=group.enter if group else None, **more)
    if done.returncode != 0:
        raise SystemExit(f"{os.path.basename(sys.argv[0])}: {done.stderr[-600:]}")
    return done.stdout


class Group:
    """A control group with a memory limit that includes the page cache, version 1 or 2; `folder` is None if it cannot be created."""

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
        """Moves the calling process into the group."""
        if self.folder:
            with open(self.folder + "/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))

    def close(self):
        if self.folder:
            os.rmdir(self.folder)
