#!/usr/bin/env bash
# data_bench.sh BUILD: inspect and shrink beside NumPy, SciPy, pandas and cp, one thread each, the same file, warm. Prints
#   case=NAME ours=N peer=NAME:N ratio=N unit=UNIT        (ratio: ours over the peer's; speeds: higher is better)
# Peers come from $STOWAGE_BENCH_PYTHON, or python3; a line without its peer says so. $STOWAGE_BENCH_MB sizes the files (256).
set -euo pipefail
build=$(cd "$1" && pwd)
export STOWAGE=$build/stowage OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for python in "${STOWAGE_BENCH_PYTHON:-python3}" /usr/bin/python3; do
  if "$python" -c 'import numpy' 2> /dev/null; then
    exec_python=$python
    break
  fi
done
if [ -z "${exec_python:-}" ]; then echo "data_bench: no python3 with numpy to make the files and to compare with"; exit 0; fi
exec "$exec_python" - << 'END'
import importlib.util, json, os, resource, shutil, subprocess, sys, time

import numpy as np

stowage, mb = os.environ["STOWAGE"], int(os.environ.get("STOWAGE_BENCH_MB", "256"))
rng = np.random.default_rng(1)


def best(run, times=5):
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def ours(*words):
    return lambda: subprocess.run([stowage, *words], check=True, stdout=subprocess.DEVNULL)


def peer(code):
    """A Python program of its own, so that its start and its imports are not counted: it prints its seconds."""
    def run():
        program = "import time, resource\n" + code + "\nprint(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
        return float(out[0]), int(out[1]) * 1024
    results = [run() for _ in range(3)]
    return min(r[0] for r in results), min(r[1] for r in results)


def line(case, mine, name, theirs, unit):
    print(f"case={case} ours={mine:.4g} peer={name}:{theirs:.4g} ratio={mine / theirs:.3g} unit={unit}", flush=True)


def timed(setup, code):
    return setup + "\nbest = []\nfor _ in range(3):\n start = time.perf_counter()\n " + code.replace("\n", "\n ") + \
        "\n best.append(time.perf_counter() - start)\nseconds = min(best)"


n = mb * 1024 * 1024 // 8
a = rng.standard_normal(n).astype("f4").astype("f8")
np.save("a.npy", a)
gb = a.nbytes / 1e9
seconds, _ = peer(timed("import numpy as np", "a = np.load('a.npy')\na.min(), a.max()"))
line("inspect_f64", gb / best(ours("inspect", "a.npy")), "numpy_load_min_max", gb / seconds, "GB/s")

os.sync()
cp = best(lambda: shutil.os.system("cp a.npy c.npy"))
line("f64_to_f32_file", gb / best(ours("shrink", "a.npy", "-o", "b.npy", "--dtype", "f32")), "cp", gb / cp, "GB/s")
cp = best(lambda: shutil.os.system("cp a.npy c.npy && sync c.npy"), 3)
line("f64_to_f32_file", gb / best(ours("shrink", "a.npy", "-o", "b.npy", "--dtype", "f32"), 3), "cp_and_sync", gb / cp, "GB/s")
line("f64_smallest_file", gb / best(ours("shrink", "a.npy", "-o", "b.npy"), 3), "cp_and_sync", gb / cp, "GB/s")

f = a.astype("f4")
np.save("a.npy", f)
f16 = f.astype("f2").astype("f4")
np.save("h.npy", f16)
seconds, _ = peer(timed("import numpy as np", "np.save('b.npy', np.load('h.npy').astype('f2'))"))
line("f32_to_f16_file", f.nbytes / 1e9 / best(ours("shrink", "h.npy", "-o", "b.npy", "--dtype", "f16"), 3), "numpy", f.nbytes / 1e9 / seconds, "GB/s")
del a, f, f16

if importlib.util.find_spec("scipy"):
    for dtype in ("f4", "f8"):
        rows = mb * 1024 * 1024 // 1000 // np.dtype(dtype).itemsize
        d = rng.standard_normal((rows, 1000)).astype(dtype)
        d[rng.random(d.shape) > 0.05] = 0
        np.save("d.npy", d)
        seconds, _ = peer(timed("import numpy as np, scipy.sparse as sp",
                                "sp.save_npz('s.npz', sp.csr_matrix(np.load('d.npy')), compressed=False)"))
        line(f"dense_to_csr_{dtype}", d.nbytes / 1e9 / best(ours("shrink", "d.npy", "-o", "o.npz"), 3), "scipy", d.nbytes / 1e9 / seconds, "GB/s")
        line(f"csr_bytes_{dtype}", os.path.getsize("o.npz"), "scipy", os.path.getsize("s.npz"), "bytes")
        del d
else:
    print("case=dense_to_csr peer=scipy:missing")

with open("t.csv", "w") as out:
    out.write("id,x,y,z,label\n")
    rows = mb * 1024 * 1024 // 4 // 70
    v = rng.standard_normal((rows, 3))
    for i in range(rows):
        out.write("%d,%r,%r,%.6f,%d\n" % (i, float(v[i, 0]), float(v[i, 1]), v[i, 2], i % 10))
size = os.path.getsize("t.csv") / 1e6
mine = best(ours("shrink", "t.csv", "-o", "t.npy", "--memory", "16M"), 3)
peak = json.loads(subprocess.run([stowage, "shrink", "--json", "t.csv", "-o", "t.npy", "--memory", "16M"], check=True,
                                 capture_output=True).stdout)["peak_memory_bytes"]
if importlib.util.find_spec("pandas"):
    seconds, memory = peer(timed("import numpy as np, pandas as pd", "np.save('p.npy', pd.read_csv('t.csv').to_numpy())"))
    line("csv_to_npy", size / mine, "pandas", size / seconds, "MB/s")
    line("csv_to_npy_memory", peak / 2**20, "pandas", memory / 2**20, "MiB")
else:
    print(f"case=csv_to_npy ours={size / mine:.4g} peer=pandas:missing unit=MB/s")
    print(f"case=csv_to_npy_memory ours={peak / 2**20:.4g} peer=pandas:missing unit=MiB")
END
