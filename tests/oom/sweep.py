"""Runs each verb once per allocation, with that allocation failing.

  sweep.py STOWAGE LIBRARY DATA [--most N] [--seed S] [--only TEXT]

For each verb every allocation fails, or N of them at equal distances from a start that the seed chooses: alone, then with all later ones.
Each outcome must be that of an undisturbed run, or a refusal: a nonzero exit code, a message, and no incomplete output file. Prints one
line "ok NAME" or "FAIL NAME: why" for
each verb, and the counts.
"""
import argparse
import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

TORCH_ERROR = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "23.65 GiB of which 1.50 GiB is free. Including non-PyTorch memory, this process has 22.00 GiB memory in use. Of "
    "the allocated memory 16.00 GiB is allocated by PyTorch, and 5.00 GiB is reserved by PyTorch but unallocated.")
TIMEOUT_S = 60
CODES_MAX = 125  # above: killed by a signal, or not started


def npy(descr, shape, data):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %r, }" % (descr, shape)
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data


def npz(path, members):
    import zipfile
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in members.items():
            z.writestr(name + ".npy", data)


def folder_of_run(folder, snapshot):
    """Writes what stowage run leaves of a command that ran out of memory: how it ended, the error's text, PyTorch's snapshot."""
    import gzip
    os.mkdir(folder)
    with open(os.path.join(folder, "end"), "w", encoding="ascii") as f:
        f.write("code 1\nsignal 0\ncommand python train.py\nkernel 0\n")
    with open(os.path.join(folder, "4711.error"), "w", encoding="ascii") as f:
        f.write(TORCH_ERROR)
    with gzip.open(snapshot) as f, open(os.path.join(folder, "4711.pickle"), "wb") as out:
        out.write(f.read())


def make_inputs(folder, data):
    """Makes small files: the sweep costs their number of allocations times the time of one run."""
    def path(name):
        return os.path.join(folder, name)

    def write(name, content):
        with open(path(name), "wb") as f:
            f.write(content)

    numbers = struct.pack("<3000q", *range(3000))
    sparse = [0.0] * 10000
    sparse[305], sparse[5060] = 2.0, 1.0
    write("a.npy", npy("<i8", (100, 30), numbers))
    write("sparse.npy", npy("<f8", (100, 100), struct.pack("<10000d", *sparse)))
    npz(path("a.npz"), {"x": npy("<i8", (500,), numbers[:4000]),
                        "y": npy("<f8", (40,), struct.pack("<40d", *[i * 0.37 for i in range(40)]))})
    write("a.csv", ("a,b,c\n" + "".join("%d,%s,t%d\n" % (i, i * 0.5, i % 7) for i in range(300))).encode())
    head = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    write("a.safetensors", struct.pack("<Q", len(head)) + head + bytes(8))
    names = ["model.layers.0.up_proj.weight", "base_model.model.model.layers.0.up_proj.lora_A.weight",
             "base_model.model.model.layers.0.up_proj.lora_B.weight"]
    for inner, shapes in [("model", [(names[0], 8, 32)]), ("adapter", [(names[1], 2, 32), (names[2], 8, 2)])]:
        os.mkdir(path(inner))
        at, facts = 0, []
        for name, rows, columns in shapes:
            size = 4 * rows * columns
            facts.append('"%s":{"dtype":"F32","shape":[%d,%d],"data_offsets":[%d,%d]}' % (name, rows, columns, at, at + size))
            at += size
        head = ("{" + ",".join(facts) + "}").encode()
        file = "adapter_model.safetensors" if inner == "adapter" else "model.safetensors"
        write(os.path.join(inner, file), struct.pack("<Q", len(head)) + head + struct.pack("<f", 0.5) * (at // 4))
    write("model/config.json", b'{"torch_dtype": "float32"}')
    write("adapter/adapter_config.json", b'{"peft_type": "LORA", "r": 2, "lora_alpha": 4}')
    shutil.copy(os.path.join(data, "..", "fuzz", "corpus", "torch", "state_dict"), path("state.pt"))
    write("error.txt", TORCH_ERROR.encode())
    write("host.txt", b"numpy.core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB for an array with shape "
                      b"(100000, 100000) and data type float64\n")
    write("rmm.csv", b"Thread,Time,Action,Pointer,Size,Stream\n"
          b"1,00:00:00:000001,allocate,0x7f0000000000,1048576,0x0\n"
          b"1,00:00:00:000002,allocate,0x7f0000200000,3145728,0x0\n"
          b"1,00:00:00:000003,free,0x7f0000000000,1048576,0x0\n")
    shutil.copy(os.path.join(data, "weights_too_big.pickle.gz"), path("weights.pickle.gz"))
    shutil.copy(os.path.join(data, "seeds", "11_growing_squares.pickle.gz"), path("runs.pickle.gz"))
    shutil.copy(os.path.join(data, "causes", "leak-mlp.pickle.gz"), path("leak.pickle.gz"))
    folder_of_run(path("run"), os.path.join(data, "weights_too_big.pickle.gz"))
    shutil.copy(os.path.join(data, "causes", "graph_kept-mlp.pickle.gz"), path("graph.pickle.gz"))


VERBS = [
    ("explain_failure", ["explain", "weights.pickle.gz"]),
    ("explain_json", ["explain", "--json", "weights.pickle.gz"]),
    ("explain_short", ["explain", "--short", "weights.pickle.gz"]),
    ("explain_runs", ["explain", "runs.pickle.gz"]),
    ("explain_leak", ["explain", "leak.pickle.gz"]),
    ("explain_graph", ["explain", "graph.pickle.gz"]),
    ("explain_message", ["explain", "--message", "error.txt"]),
    ("explain_message_host", ["explain", "--message", "host.txt"]),
    ("explain_both", ["explain", "runs.pickle.gz", "--message", "error.txt"]),
    ("explain_run", ["explain", "run"]),
    ("replay", ["replay", "weights.pickle.gz", "--vram", "8G"]),
    ("replay_rmm", ["replay", "rmm.csv"]),
    ("replay_json", ["replay", "--json", "runs.pickle.gz"]),
    ("report_json", ["report", "--json", "runs.pickle.gz"]),
    ("report_text", ["report", "--text", "weights.pickle.gz"]),
    ("report_html", ["report", "weights.pickle.gz", "-o", "out.html"]),
    ("report_two", ["report", "--text", "runs.pickle.gz", "weights.pickle.gz"]),
    ("report_run", ["report", "--json", "run"]),
    ("tune", ["tune", "weights.pickle.gz"]),
    ("tune_json", ["tune", "--json", "--vram", "4G", "rmm.csv"]),
    ("convert_stow", ["convert", "weights.pickle.gz", "out.stow"]),
    ("convert_perfetto", ["convert", "weights.pickle.gz", "out.json"]),
    ("convert_pftrace", ["convert", "weights.pickle.gz", "out.pftrace"]),
    ("convert_csv", ["convert", "--to", "csv", "weights.pickle.gz", "out.csv"]),
    ("convert_pickle", ["convert", "weights.pickle.gz", "out.pickle"]),
    ("inspect_npy", ["inspect", "a.npy"]),
    ("inspect_npz", ["inspect", "a.npz"]),
    ("inspect_csv", ["inspect", "--json", "a.csv"]),
    ("inspect_safetensors", ["inspect", "a.safetensors"]),
    ("inspect_model", ["inspect", "model", "--vram", "1K"]),
    ("inspect_diff", ["inspect", "--diff", "model", "model"]),
    ("shrink_model", ["shrink", "model", "-o", "out.model", "--quantize", "int8"]),
    ("shrink_torch", ["shrink", "state.pt", "-o", "out.safetensors", "--dtype", "f16"]),
    ("merge", ["merge", "model", "adapter", "-o", "out.safetensors"]),
    ("shrink_npy", ["shrink", "a.npy", "-o", "out.npy"]),
    ("shrink_npz", ["shrink", "a.npz", "-o", "out.npz"]),
    ("shrink_csv", ["shrink", "a.csv", "-o", "out.npz"]),
    ("shrink_sparse", ["shrink", "sparse.npy", "-o", "out.npz"]),
]


def steady(text):
    """Removes text that differs from run to run: memory and time used."""
    text = re.sub(rb'"(peak_memory_bytes|memory_bytes|seconds|host_bytes|usable_bytes)": [0-9.]+', b"", text)
    return re.sub(rb"(peak memory|of memory|available|in memory|took|[0-9.]+ m?s\b)[^\n]*", b"", text)


class Sweep:
    def __init__(self, stowage, library, folder):
        self.stowage, self.library, self.folder = stowage, library, folder
        self.inputs = set(os.listdir(folder))
        self.env = dict(os.environ, XDG_STATE_HOME=folder + "-state", XDG_CACHE_HOME=folder + "-cache", LC_ALL="C")
        self.env.pop("LD_PRELOAD", None)

    def run(self, words, at, rest):
        for name in set(os.listdir(self.folder)) - self.inputs:
            path = os.path.join(self.folder, name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        count = self.folder + "-count"
        env = dict(self.env, LD_PRELOAD=self.library, OOM_AT=str(at), OOM_REST=str(rest), OOM_COUNT=count)
        try:
            done = subprocess.run([self.stowage] + words, capture_output=True, env=env, cwd=self.folder,
                                  stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            return "hangs", b"", b"", {}
        files = {}
        for name in sorted(set(os.listdir(self.folder)) - self.inputs):
            path = os.path.join(self.folder, name)
            if os.path.isfile(path):
                with open(path, "rb") as f:
                    files[name] = hashlib.sha256(f.read()).hexdigest()
        return done.returncode, steady(done.stdout), done.stderr, files

    def count(self):
        with open(self.folder + "-count", encoding="ascii") as f:
            return int(f.read())

    @staticmethod
    def judge(good, got):
        """Returns None if the outcome is allowed, otherwise what is wrong; and whether it was a refusal."""
        code, out, err, files = got
        if code == "hangs":
            return "hangs", False
        if code < 0 or code > CODES_MAX:
            return "ends with code %d" % code, False
        if code == good[0]:
            if out != good[1]:
                return "another answer", False
            return (None if files == good[3] else "another file"), False
        if not err.strip():
            return "refused without a message", True
        broken = [n for n, h in files.items() if not n.endswith(".partial") and good[3].get(n) != h]
        return ("refused, but left %s" % ", ".join(broken) if broken else None), True


def sweep_verb(sweep, name, words, most, seed):
    good = sweep.run(words, 0, 0)
    if good[0] != 0:
        print("FAIL %s: code %s without a fault: %s" % (name, good[0], good[2].decode(errors="replace")[-300:]))
        return 0, 1
    total, refused, wrong = sweep.count(), 0, []
    every = -(-total // most) if most else 1
    first = 1 + zlib.crc32(("%s %d" % (name, seed)).encode()) % every
    tried = 0
    for rest in (0, 1):
        for at in range(first, total + 1, every):
            problem, was_refused = sweep.judge(good, got := sweep.run(words, at, rest))
            tried += 1
            refused += was_refused
            if problem:
                wrong.append("allocation %d%s: %s (code %s%s)" % (at, " and later" if rest else "", problem, got[0],
                             ", " + got[2].decode(errors="replace").strip()[-120:] if got[2].strip() else ""))
    print("  %s: %d allocations, %d faults, %d refused, %d wrong" % (name, total, tried, refused, len(wrong)))
    for line in wrong[:5]:
        print("    " + line)
    if wrong:
        print("FAIL %s: %d of %d faults gave %s" % (name, len(wrong), tried, wrong[0]))
    else:
        print("ok %s" % name)
    sys.stdout.flush()
    return tried, len(wrong)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("stowage")
    p.add_argument("library")
    p.add_argument("data")
    p.add_argument("--most", type=int, default=0)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--only", default="")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as top:
        folder = os.path.join(top, "w")
        os.mkdir(folder)
        make_inputs(folder, a.data)
        sweep = Sweep(os.path.abspath(a.stowage), os.path.abspath(a.library), folder)
        tried = wrong = 0
        for name, words in VERBS:
            if a.only not in name:
                continue
            t, w = sweep_verb(sweep, name, words, a.most, a.seed)
            tried, wrong = tried + t, wrong + w
        print("%d faults, %d wrong" % (tried, wrong))
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
