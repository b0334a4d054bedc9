"""Shared by the benchmarks of small costs: runs several commands at the same time on one core and compares their CPU times.

Runs one after another differ by more than 5% on a machine that does other work. Commands that share a core at the same time see the
same clock, the same caches and the same neighbours, so their CPU times can be compared to a percent.
"""
import os
import signal
import statistics
import subprocess
import sys
import time

DEADLINE_SECONDS = 300
# Appended to a program that defines work(scale). It waits for a line of input after its imports: all start their work together.
TIMED = """
import resource, sys
def spent():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return u.ru_utime + u.ru_stime
print("READY", flush=True)
sys.stdin.readline()
begin = spent()
work(float(sys.argv[1]) if len(sys.argv) > 1 else 1)
print("SPENT", spent() - begin, flush=True)
"""


def wait_for(running, word):
    """Returns the rest of the line that begins with `word`; None if the program ends before it prints one."""
    for line in running.stdout:
        if line.startswith(word):
            return line[len(word):].strip()
    return None


def together(commands, core=None):
    """Runs the commands at once on one core. Returns the CPU seconds that each prints for its work, or None if one failed."""
    core = min(os.sched_getaffinity(0)) if core is None else core
    running = []
    began = time.monotonic()
    alarm = signal.signal(signal.SIGALRM, lambda *_: [os.killpg(one.pid, signal.SIGKILL) for one in running if one.poll() is None])
    signal.alarm(DEADLINE_SECONDS)
    try:
        for command in commands:
            running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                            start_new_session=True, preexec_fn=lambda: os.sched_setaffinity(0, {core})))
        if None in [wait_for(one, "READY") for one in running]:
            return None
        for one in running:
            one.stdin.write("go\n")
            one.stdin.flush()
        found = [wait_for(one, "SPENT") for one in running]
        return None if None in found else [float(text) for text in found]
    finally:
        for one in running:
            one.stdin.close()
            if time.monotonic() - began > DEADLINE_SECONDS and one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()
            one.stdout.close()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, alarm)


def interval(values):
    """The 95% interval of the median, from the order of the values (binomial); the whole range below six values."""
    values, n = sorted(values), len(values)
    skip = int(n / 2 - 0.98 * n**0.5)
    return (values[skip], values[-1 - skip]) if n >= 6 and skip >= 0 else (values[0], values[-1])


def compare(case, commands, rounds, bounds):
    """commands: {name: command}, the first one bare. Runs them together `rounds` times, bare twice, in changing order.

    Prints a case= line for each: the median of its CPU time over the bare one's, that median's 95% interval, and the same of bare
    over bare. bounds: {name: the most it may be}: holds if the interval lies below it, exceeded if it lies above, else undecided."""
    names = [*commands, "bare again"]
    all_of = {**commands, "bare again": next(iter(commands.values()))}
    bare, times = names[0], {name: [] for name in names}
    for turn in range(rounds):
        order = names[turn % len(names):] + names[:turn % len(names)]
        found = together([all_of[name] for name in order])
        if found is None:
            print(f"case={case} not-run ({' or '.join(order)} failed)", flush=True)
            return
        for name, seconds in zip(order, found):
            times[name].append(seconds)
    # A round with two bare runs compares each command with their mean.
    base = [(a + b) / 2 for a, b in zip(times[bare], times["bare again"])]
    same = [a / b for a, b in zip(times["bare again"], times[bare])]
    low, high = interval(same)
    noise = f"noise={statistics.median(same):.3f}({low:.3f}..{high:.3f})"
    for name in names[1:-1]:
        ratios = [a / b for a, b in zip(times[name], base)]
        low, high = interval(ratios)
        bound = bounds.get(name)
        verdict = "" if bound is None else f" bound={bound} {'holds' if high <= bound else 'exceeded' if low > bound else 'undecided'}"
        print(f"case={case} ours={statistics.median(times[name]):.4g} peer=bare:{statistics.median(base):.4g} what={name.replace(' ', '_')} "
              f"ratio={statistics.median(ratios):.3f} interval={low:.3f}..{high:.3f} {noise} rounds={rounds} unit=cpu_s{verdict}", flush=True)


if __name__ == "__main__":
    sys.exit("together.py is a module of profile_bench.py and host_watch_bench.py")
