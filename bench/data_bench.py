"""The comparison of data_bench.sh, in the folder for the files."""

import importlib.util, json, os, subprocess, sys, time

import numpy as np

from beside import Group, in_turns, line

stowage, mb = os.environ["STOWAGE"], int(os.environ.get("STOWAGE_BENCH_MB", "256"))
rng = np.random.default_rng(1)
every_core = os.sched_getaffinity(0)
one_core = {max(every_core)}
os.sched_setaffinity(0, one_core)  # for peers too, which inherit it: pandas 3.1 reads with a second thread where it has a second core


def seconds(words):
    start = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def ours(*words, threads=1):
    return [stowage, *words, "--threads", str(threads)]


class Peer:
    """A Python program that keeps running, so that its start and its imports do not count. Each line it reads is one round."""
    def __init__(self, setup, code):
        program = ("import sys, time, resource\n" + setup + "\nfor line in sys.stdin:\n start = time.perf_counter()\n "
                   + code.replace("\n", "\n ") + "\n took = time.perf_counter() - start\n"
                   " print(took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, flush=True)\n")
        self.process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.memory = 0

    def __call__(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        took, self.memory = self.process.stdout.readline().split()
        return float(took)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


OUTPUTS = ("b.npy", "c.npy", "n.npy", "o.npy", "o.npz", "s.npz", "t.npy", "p.npy")


def afresh():
    """Removes old outputs first: ext4 waits for the disk when a new file replaces an old one."""
    for name in OUTPUTS:
        if os.path.exists(name):
            os.unlink(name)


def turns(*runs, times=5):
    def fresh(run):
        afresh()
        return run() if callable(run) else seconds(run)

    given = in_turns([lambda run=run: fresh(run) for run in runs], times)
    for run in runs:
        if isinstance(run, Peer):
            run.close()
    return [min(values) for values in given]


def rates(case, amount, mine, name, theirs, unit="GB/s"):
    line(case, amount / mine, name, amount / theirs, unit)


def scaling(case, amount, words, unit="GB/s", times=7):
    """Runs one thread and two in turn; `busy` is the number of cores that the best run of each used."""
    best = {}
    os.sched_setaffinity(0, every_core)
    for _ in range(times):
        for threads in (1, 2):
            afresh()
            start = time.perf_counter()
            process = subprocess.Popen(ours(*words, threads=threads), stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            took = time.perf_counter() - start
            process.returncode = status
            if status != 0:
                raise SystemExit(f"data_bench: {words} failed")
            best[threads] = min(best.get(threads, (1e9, 0)), (took, (usage.ru_utime + usage.ru_stime) / took))
    os.sched_setaffinity(0, one_core)
    (one, one_busy), (two, two_busy) = best[1], best[2]
    line(f"{case}_2_threads", amount / two, "one_thread", amount / one, unit, f" busy={one_busy:.2f},{two_busy:.2f}")


# ---- inspect, casts ----
n = mb * 1024 * 1024 // 8
a = rng.standard_normal(n).astype("f4").astype("f8")
np.save("a.npy", a)
gb = a.nbytes / 1e9
mine, theirs = turns(ours("inspect", "a.npy"), Peer("import numpy as np", "a = np.load('a.npy')\na.min(), a.max()"))
rates("inspect_f64", gb, mine, "numpy_load_min_max", theirs)
scaling("inspect_f64", gb, ("inspect", "a.npy"))

cast = ("shrink", "a.npy", "-o", "b.npy", "--dtype", "f32")
mine, theirs = turns(ours(*cast, "--no-sync"), ["cp", "a.npy", "c.npy"], times=9)
rates("f64_to_f32_file", gb, mine, "cp", theirs)
scaling("f64_to_f32_file", gb, (*cast, "--no-sync"))
scaling("shrink_dry_run", gb, ("shrink", "a.npy", "-o", "b.npy", "--dry-run"))
mine, theirs = turns(ours(*cast), ["sh", "-c", "cp a.npy c.npy && sync c.npy"], times=3)
rates("f64_to_f32_file_synced", gb, mine, "cp_and_sync", theirs)
mine, theirs = turns(ours("shrink", "a.npy", "-o", "b.npy", "--no-sync"), ["cp", "a.npy", "c.npy"])
rates("f64_smallest_file", gb, mine, "cp", theirs)

f = a.astype("f4")
f = f.astype("f2").astype("f4")
np.save("h.npy", f)
gb = f.nbytes / 1e9
del a
rate = max(float(subprocess.run([os.environ["CAST_BENCH"], "h.npy", "f16"], check=True, capture_output=True).stdout) for _ in range(3))
theirs, = turns(Peer("import numpy as np\na = np.load('h.npy'); out = a.astype('f2')", "np.copyto(out, a, casting='unsafe')"))
line("f32_to_f16_memory", rate, "numpy_copyto", gb / theirs, "GB/s")
mine, theirs = turns(ours("shrink", "h.npy", "-o", "b.npy", "--dtype", "f16", "--no-sync"),
                     Peer("import numpy as np", "np.save('n.npy', np.load('h.npy').astype('f2'))"))
rates("f32_to_f16_file", gb, mine, "numpy", theirs)
del f

# ---- sparse ----
if importlib.util.find_spec("scipy"):
    for dtype in ("f4", "f8"):
        rows = mb * 1024 * 1024 // 1000 // np.dtype(dtype).itemsize
        d = rng.standard_normal((rows, 1000)).astype(dtype)
        d[rng.random(d.shape) > 0.05] = 0
        np.save("d.npy", d)
        gb = d.nbytes / 1e9
        del d
        mine, theirs = turns(ours("shrink", "d.npy", "-o", "o.npz", "--no-sync"),
                             Peer("import numpy as np, scipy.sparse as sp", "sp.save_npz('s.npz', sp.csr_matrix(np.load('d.npy')), compressed=False)"), times=9)
        rates(f"dense_to_csr_{dtype}", gb, mine, "scipy", theirs)
        subprocess.run(ours("shrink", "d.npy", "-o", "o.npz", "--no-sync"), check=True, stdout=subprocess.DEVNULL)
        line(f"csr_bytes_{dtype}", os.path.getsize("o.npz"), "scipy", os.path.getsize("s.npz"), "bytes")
else:
    print("case=dense_to_csr peer=scipy:missing")

# ---- tables ----
with open("t.csv", "w") as out:
    out.write("id,x,y,z,label\n")
    rows = mb * 1024 * 1024 // 4 // 70
    v = rng.standard_normal((rows, 3))
    for i in range(rows):
        out.write("%d,%r,%r,%.6f,%d\n" % (i, float(v[i, 0]), float(v[i, 1]), v[i, 2], i % 10))
size = os.path.getsize("t.csv") / 1e6
table = ("shrink", "t.csv", "-o", "t.npy", "--memory", "16M", "--no-sync")
peak = json.loads(subprocess.run([stowage, *table, "--json"], check=True, capture_output=True).stdout)["peak_memory_bytes"]
if importlib.util.find_spec("pandas"):
    peer = Peer("import numpy as np, pandas as pd", "np.save('p.npy', pd.read_csv('t.csv').to_numpy())")
    mine, theirs = turns(ours(*table), peer, times=9)
    rates("csv_to_npy", size, mine, "pandas", theirs, "MB/s")
    line("csv_to_npy_memory", peak / 2**20, "pandas", int(peer.memory) / 2**20, "MiB")
    os.sched_setaffinity(0, every_core)
    mine, theirs = turns(ours(*table, threads=2), Peer("import numpy as np, pandas as pd", "np.save('p.npy', pd.read_csv('t.csv').to_numpy())"))
    rates("csv_to_npy_all_cores", size, mine, "pandas", theirs, "MB/s")
    os.sched_setaffinity(0, one_core)
else:
    mine, = turns(ours(*table))
    print(f"case=csv_to_npy ours={size / mine:.4g} peer=pandas:missing unit=MB/s")
    print(f"case=csv_to_npy_memory ours={peak / 2**20:.4g} peer=pandas:missing unit=MiB")
with open("t.csv", "rb") as once, open("w.csv", "wb") as out:  # as large as the other files: of 50 ms the start would be a part
    out.write(once.readline())
    body = once.read()
    for _ in range(4):
        out.write(body)
size = os.path.getsize("w.csv") / 1e6
scaling("csv_to_npy", size, ("shrink", "w.csv", *table[2:]), "MB/s")
scaling("inspect_csv", size, ("inspect", "w.csv"), "MB/s")
for name in os.listdir("."):
    os.unlink(name)

# ---- memory: each job at --memory 64M on files larger than that; only the last value needs the wide type ----
BUDGET, BOUND = 64, 80


def write_npy(path, rows, sparse):
    with open(path, "wb") as out:
        np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": (rows, 1000)})
        for at in range(0, rows, 1000):
            block = rng.standard_normal((min(1000, rows - at), 1000), dtype="f4").astype("f8")
            if sparse:
                block[rng.random(block.shape, dtype="f4") > 0.05] = 0
            block[-1, -1] = 0.1 if at + 1000 >= rows else block[-1, -1]
            out.write(block.data)


def write_csv(path, size):
    chunk = "".join("%d,%r,%.6f\n" % (i, float(x), x) for i, x in enumerate(rng.standard_normal(1_000_000))).encode()
    with open(path, "wb") as out:
        while out.tell() < size:
            out.write(chunk)
        out.write(b"1,0.1,9007199254740992\n")


def held(group, name, words):
    start = time.perf_counter()
    done = subprocess.run([stowage, *words, "--memory", f"{BUDGET}M", "--json"], check=True, capture_output=True, preexec_fn=group.enter)
    facts = json.loads(done.stdout)
    took, peak = time.perf_counter() - start, facts["peak_memory_bytes"] / 2**20
    small = facts["smallest_dtype"] if name == "inspect_npy" else facts.get("arrays", facts.get("columns"))[0].get("to", "-")
    print(f"case=memory_{name} ours={peak:.4g} bound={BOUND} unit=MiB held={'yes' if peak <= BOUND else 'NO'} "
          f"by={'control_group' if group.folder else 'VmHWM'} seconds={took:.1f} type={small}", flush=True)


os.sched_setaffinity(0, every_core)
budget_gb = float(os.environ.get("STOWAGE_BENCH_BUDGET_GB", "1"))
if budget_gb > 0:
    group = Group(BOUND << 20)
    rows = int(budget_gb * 1e9 / 8000)
    write_npy("big.npy", rows, False)
    held(group, "inspect_npy", ["inspect", "big.npy"])
    held(group, "shrink_npy", ["shrink", "big.npy", "-o", "o.npy"])
    held(group, "shrink_npy_f32", ["shrink", "big.npy", "-o", "o.npy", "--dtype", "f32", "--tolerance", "1e-6"])
    os.unlink("o.npy")
    write_npy("big.npy", rows, True)
    held(group, "shrink_csr", ["shrink", "big.npy", "-o", "o.npz"])
    os.unlink("big.npy")
    os.unlink("o.npz")
    write_csv("big.csv", budget_gb * 1e9)
    held(group, "inspect_csv", ["inspect", "big.csv"])
    held(group, "shrink_csv", ["shrink", "big.csv", "-o", "o.npy"])
    os.unlink("o.npy")
    held(group, "shrink_csv_npz", ["shrink", "big.csv", "-o", "o.npz"])
    group.close()
