"""Runs each verb once per call that can fail, with that call failing.

  sweep.py STOWAGE FAULTS SAMPLES [--kind alloc|io] [--most N] [--seed S] [--slice I/N] [--only TEXT] [--calls KINDS]
           [--verbs I/N]

FAULTS is the folder with libfailing_malloc.so and failing_io. With --kind alloc allocations fail. With --kind io system calls
fail: opens, reads, writes, renames and syncs, closes, stats, file maps, new processes, each group with the errors of IO_FAULTS.
Every call fails, or N of each verb and group at equal distances from a start that the seed chooses, or with --slice every Nth
from the Ith: alone, then with all later ones. --only takes the name of a verb, or a part of several names;
--calls the kinds of system calls, with commas; --verbs every Nth verb from the Ith.

Each outcome must be the answer of an undisturbed run, or a refusal: a code other than 0, a message, and for every output file the
old bytes or the whole new ones. Prints one line "ok NAME" or "FAIL NAME: why" for each verb, and the counts.
"""
import argparse
import hashlib
import io
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

TORCH_ERROR = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "23.65 GiB of which 1.50 GiB is free. Including non-PyTorch memory, this process has 22.00 GiB memory in use. Of "
    "the allocated memory 16.00 GiB is allocated by PyTorch, and 5.00 GiB is reserved by PyTorch but unallocated.")
TIMEOUT_S = 60
CODES_MAX = 125  # above: killed by a signal, or not started
UNAVAILABLE = 99  # of failing_io: the kernel does not allow it
LEFT_BY_A_REFUSAL = (".partial", ".resume", ".resume~", ".scratch")  # what --resume goes on with
OLD = b"old\n"  # what output files held before
IO_FAULTS = [("open", "EMFILE"), ("read", "EIO"), ("read", "EINTR"), ("read", "short"), ("write", "ENOSPC"),
             ("write", "EINTR"), ("write", "short"), ("sync", "EIO"), ("close", "EIO"), ("stat", "EIO"), ("map", "ENOMEM"),
             ("process", "EAGAIN")]


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
    for part in range(2):  # one table, and one array, in two files
        rows = "".join("%d,t%d,2024-01-%02d\n" % (i, i % 7, i % 28 + 1) for i in range(100))
        write("p%d.csv" % part, ("a,b,c\n" + rows).encode())
        write("n%d.npy" % part, npy("<i8", (100, 30), numbers))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("p.csv", "junk\n#c\na,b,c\n" + rows)
    write("p0.csv.zip", packed.getvalue())
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
    shutil.copy(os.path.join(data, "causes", "batch_too_big-transformer.pickle.gz"), path("batch.pickle.gz"))
    folder_of_run(path("run"), os.path.join(data, "weights_too_big.pickle.gz"))
    shutil.copy(os.path.join(data, "causes", "graph_kept-mlp.pickle.gz"), path("graph.pickle.gz"))
    shutil.copy(os.path.join(data, "..", "fuzz", "corpus", "stow", "multi_p5"), path("small.stow"))
    shutil.copy(os.path.join(data, "..", "fuzz", "corpus", "gguf", "two"), path("a.gguf"))


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
    ("tune_batch", ["tune", "batch.pickle.gz", "--vram", "1400M"]),
    ("tune_batch_json", ["tune", "--json", "batch.pickle.gz", "--vram", "1400M"]),
    ("convert_stow", ["convert", "weights.pickle.gz", "out.stow"]),
    ("convert_perfetto", ["convert", "weights.pickle.gz", "out.json"]),
    ("convert_pftrace", ["convert", "weights.pickle.gz", "out.pftrace"]),
    ("convert_csv", ["convert", "--to", "csv", "weights.pickle.gz", "out.csv"]),
    ("convert_pickle", ["convert", "weights.pickle.gz", "out.pickle"]),
    ("inspect_npy", ["inspect", "a.npy"]),
    ("inspect_npz", ["inspect", "a.npz"]),
    ("inspect_csv", ["inspect", "--json", "a.csv"]),
    ("inspect_csv_text", ["inspect", "p0.csv.zip", "--skip", "1", "--comment", "#", "--na", "x,y", "--type", "a=text", "--encoding", "latin-1"]),
    ("inspect_csv_several", ["inspect", "p*.csv"]),
    ("shrink_csv_several", ["shrink", "p0.csv", "p1.csv", "-o", "out.npz", "--tolerance", "a=1e-3"]),
    ("shrink_npy_several", ["shrink", "n*.npy", "-o", "out.npy"]),
    ("inspect_safetensors", ["inspect", "a.safetensors"]),
    ("inspect_model", ["inspect", "model", "--vram", "1K"]),
    ("inspect_diff", ["inspect", "--diff", "model", "model"]),
    ("shrink_model", ["shrink", "model", "-o", "out.model", "--quantize", "int8"]),
    ("shrink_torch", ["shrink", "state.pt", "-o", "out.safetensors", "--dtype", "f16"]),
    ("shrink_resume", ["shrink", "a.npy", "-o", "out.npy", "--resume"]),
    ("merge", ["merge", "model", "adapter", "-o", "out.safetensors"]),
    ("shrink_npy", ["shrink", "a.npy", "-o", "out.npy"]),
    ("shrink_npz", ["shrink", "a.npz", "-o", "out.npz"]),
    ("shrink_csv", ["shrink", "a.csv", "-o", "out.npz"]),
    ("shrink_sparse", ["shrink", "sparse.npy", "-o", "out.npz"]),
    ("inspect_gguf", ["inspect", "a.gguf"]),
    ("replay_stow", ["replay", "small.stow"]),
    ("convert_tensorboard", ["convert", "--to", "tensorboard", "runs.pickle.gz", "out.tfevents"]),
    ("info", ["info", "--device", "sim:4G"]),
    ("info_json", ["info", "--json", "--device", "sim:4G"]),
    ("doctor", ["doctor", "--device", "sim:4G"]),
    ("top", ["top", "--once", "--json"]),
    ("completion", ["completion", "bash"]),
    ("help", ["help", "shrink"]),
    ("run", ["run", "--", "/bin/echo", "done"]),
    ("run_limit", ["run", "--vram-limit", "1G", "--ram-limit", "2G", "--", "/bin/echo", "done"]),
    ("run_environment", ["run", "--environment", "--vram-limit", "1G"]),
]
# What these print depends on the moment: only that they end, with an answer or a message, is checked.
LIVE = {"info", "info_json", "doctor", "top"}


def steady(text):
    """Without what differs from run to run: how much memory and time this one took."""
    text = re.sub(rb'"(peak_memory_bytes|memory_bytes|seconds|host_bytes|usable_bytes)": [0-9.]+', rb'"\1": 0', text)
    return re.sub(rb"(peak memory|of memory|available|in memory|took|[0-9.]+ m?s\b)[^\n]*", b"", text)


def without_figures(text):
    """Without the figures above. They are missing where the kernel's file about this process cannot be read."""
    return re.sub(rb',?\s*"(peak_memory_bytes|memory_bytes|seconds|host_bytes|usable_bytes)": 0', b"", text)


def own_processes():
    """The words before a command that hide the processes of the machine from it; none where the kernel does not allow it."""
    for more in ([], ["--user", "--map-root-user"]):
        words = ["unshare", *more, "--pid", "--fork", "--mount-proc", "--kill-child"]
        try:
            if subprocess.run(words + ["true"], capture_output=True, check=False).returncode == 0:
                return words
        except OSError:
            break
    return []


class Sweep:
    """Runs one verb with one fault; `faults` is the folder of what makes calls fail, `folder` holds the inputs."""

    def __init__(self, stowage, faults, folder):
        self.stowage, self.faults, self.folder = stowage, faults, folder
        self.inputs = set(os.listdir(folder))
        self.env = dict(os.environ, XDG_STATE_HOME=folder + "-state", XDG_CACHE_HOME=folder + "-cache", LC_ALL="C")
        self.env.pop("LD_PRELOAD", None)
        self.alone = own_processes()

    def command(self, words, fault, at, rest):
        """The words and variables of one run; a fault is (kind, error), the kind "alloc" for allocations."""
        count = self.folder + "-count"
        if fault[0] == "alloc":
            library = os.path.join(self.faults, "libfailing_malloc.so")
            return ([self.stowage] + words,
                    dict(self.env, LD_PRELOAD=library, OOM_AT=str(at), OOM_REST=str(rest), OOM_COUNT=count))
        # Otherwise top makes thousands of calls on a busy machine, as many per process as for one.
        alone = self.alone if words[0] == "top" else []
        return alone + [os.path.join(self.faults, "failing_io"), *fault, str(at), str(rest), count, self.stowage] + words, self.env

    def outputs(self):
        return sorted(set(os.listdir(self.folder)) - self.inputs)

    def run(self, words, fault, at, rest, old=()):
        for name in self.outputs():
            path = os.path.join(self.folder, name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        for name in old:
            with open(os.path.join(self.folder, name), "wb") as f:
                f.write(OLD)
        command, env = self.command(words, fault, at, rest)
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=self.folder,
                               stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            out, err = job.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            job.communicate()
            return "hangs", b"", b"", {}
        files = {}
        for name in self.outputs():
            path = os.path.join(self.folder, name)
            if os.path.isfile(path):
                with open(path, "rb") as f:
                    files[name] = hashlib.sha256(f.read()).hexdigest()
        return job.returncode, steady(out), err, files

    def count(self):
        with open(self.folder + "-count", encoding="ascii") as f:
            return int(f.read())

    @staticmethod
    def judge(good, got, fault, old, live, resumes):
        """None if the outcome is allowed, else what is wrong with it; and whether it was a refusal."""
        code, out, err, files = got
        if fault[0] == "sync":  # a file that could not be removed stays
            files = {n: h for n, h in files.items() if n in good[3] or not n.startswith("out.")}
        if code == "hangs":
            return "hangs", False
        if code == 127 and b"error while loading shared libraries" in err:
            code = 1  # the loader refuses
        if code in (126, 127) and b"stowage run: " in err:
            code = 1  # the command was not found, or not executed
        if code < 0 or code > CODES_MAX:
            return "ends with code %d" % code, False
        if live:
            return (None if out.strip() or err.strip() else "no answer and no message"), code != good[0]
        if code == good[0]:
            if out != good[1] and (fault[1] in ("EINTR", "short") or without_figures(out) != without_figures(good[1])):
                return "another answer", False
            return (None if files == good[3] else "another file"), False
        if not err.strip():
            return "refused without a message", True
        before = hashlib.sha256(OLD).hexdigest()
        broken = [n for n, h in files.items() if n in good[3] and h not in (good[3][n], before if n in old else None)]
        broken += [n for n in old if n not in files]
        broken += [n for n in files if n not in good[3] and not (resumes and n.endswith(LEFT_BY_A_REFUSAL))]
        return ("refused, but left or lost %s" % ", ".join(broken) if broken else None), True


def part(text):
    """I/N as two numbers."""
    return tuple(map(int, text.split("/")))


def chosen(total, most, slices, name, seed):
    """Which of the calls 1 to `total` fail."""
    if slices:
        return range(1 + (slices[0] + seed) % slices[1], total + 1, slices[1])
    every = max(1, -(-total // most)) if most else 1
    return range(1 + zlib.crc32(("%s %d" % (name, seed)).encode()) % every, total + 1, every)


def sweep_verb(sweep, name, words, faults, options):
    calls = tried = refused = 0
    wrong = []
    old = [w for w in words if w.startswith("out.") and name != "shrink_model"]  # a model becomes a folder
    words = words + ["--force"] if words[0] == "shrink" else words
    for fault in faults:
        good = sweep.run(words, fault, 0, 0, old)
        if good[0] == UNAVAILABLE and fault[0] != "alloc":
            print("skip %s: the kernel does not let failing_io answer system calls" % name)
            return 0, 0
        if good[0] != 0:
            print("FAIL %s: code %s without a fault: %s" % (name, good[0], good[2].decode(errors="replace")[-300:]))
            return 0, 1
        total = sweep.count()
        calls += total
        for rest in (0, 1):
            if rest and fault[1] == "EINTR":
                continue  # nothing ends then, as it must not
            for at in chosen(total, options.most, options.slice, name + fault[0], options.seed):
                got = sweep.run(words, fault, at, rest, old)
                problem, was_refused = sweep.judge(good, got, fault, old, name in LIVE, "--resume" in words)
                tried += 1
                refused += was_refused
                if problem:
                    wrong.append("%s %d%s: %s (code %s%s)" % (" ".join(fault), at, " and later" if rest else "", problem, got[0],
                                 ", " + got[2].decode(errors="replace").strip()[-120:] if got[2].strip() else ""))
    print("  %s: %d calls, %d faults, %d refused, %d wrong" % (name, calls, tried, refused, len(wrong)))
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
    p.add_argument("faults")
    p.add_argument("samples")
    p.add_argument("--kind", choices=["alloc", "io"], default="alloc")
    p.add_argument("--most", type=int, default=0)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--slice", type=part)
    p.add_argument("--only", default="")
    p.add_argument("--calls", default="")
    p.add_argument("--verbs", type=part, default=(0, 1))
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as top:
        folder = os.path.join(top, "w")
        os.mkdir(folder)
        make_inputs(folder, a.samples)
        sweep = Sweep(os.path.abspath(a.stowage), os.path.abspath(a.faults), folder)
        names = [name for name, _ in VERBS]
        only = [a.only] if a.only in names else [name for name in names if a.only in name]
        tried = wrong = 0
        for name, words in VERBS[a.verbs[0] % a.verbs[1]::a.verbs[1]]:
            if name not in only:
                continue
            faults = [f for f in IO_FAULTS if not a.calls or f[0] in a.calls.split(",")] if a.kind == "io" else [("alloc", "")]
            t, w = sweep_verb(sweep, name, words, faults, a)
            tried, wrong = tried + t, wrong + w
        print("%d faults, %d wrong" % (tried, wrong))
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
