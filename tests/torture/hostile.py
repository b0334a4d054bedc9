"""Gives hostile files to every verb that reads files, and watches its memory, its time and its answer.

  hostile.py STOWAGE SAMPLES COUNT [SEED]

Each file is a valid one of some format with a few fields changed by someone who knows the format: a number in a header becomes
2^63 or -1, a length or an offset an edge value, a part is repeated, cut out, cut off or taken from another file. Then every verb that
takes the format reads it with a budget of 32 MiB. It must end within 20 s of CPU time, by itself, with an answer or a message, leave the input
unchanged, keep its memory near the budget and write an output only if it succeeds. Prints "ok FORMAT: …" or "FAIL FORMAT: why".
"""
import gzip
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "faults"))
from sweep import make_inputs  # noqa: E402

BUDGET = "32M"
RSS_MAX_KIB = (32 + 96) << 10  # the budget, the program itself and its libraries
SECONDS_MAX = 20
EDGES = [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 47, 1 << 60, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
NUMBERS = [b"-1", b"0", b"1", b"4294967296", b"9223372036854775807", b"18446744073709551615", b"1e999", b"nan", b"1" * 400, b"", b"0x10", b"None"]
DATA = [["inspect", "--memory", BUDGET, "IN"], ["inspect", "--json", "--memory", BUDGET, "IN"],
        ["shrink", "--memory", BUDGET, "IN", "-o", "OUT"]]
RECORDING = [["explain", "IN"], ["replay", "IN", "--vram", "1G"], ["report", "--json", "IN"], ["tune", "IN"], ["convert", "IN", "OUT"]]
# Format: input, its ending, its verbs, the ending of an output.
FORMATS = {"npy": ("a.npy", ".npy", DATA, ".npy"), "npz": ("a.npz", ".npz", DATA, ".npz"), "csv": ("a.csv", ".csv", DATA, ".npz"),
           "safetensors": ("a.safetensors", ".safetensors", DATA, ".safetensors"), "gguf": ("a.gguf", ".gguf", DATA, ".safetensors"),
           "torch": ("state.pt", ".pt", DATA, ".safetensors"), "hdf5": ("a.h5", ".h5", DATA, ".npz"),
           "snapshot": ("small.pickle", ".pickle", RECORDING, ".stow"), "stow": ("small.stow", ".stow", RECORDING, ".json"),
           "rmm": ("rmm.csv", ".csv", RECORDING, ".stow"),
           "message": ("error.txt", ".txt", [["explain", "--message", "IN"], ["explain", "--json", "--message", "IN"]], "")}


def change(data, others, rng):
    """One change, as one who knows where the numbers are would make it."""
    data = bytearray(data)
    if not data:
        return data
    kind, at = rng.randrange(8), rng.randrange(len(data))
    if kind in (0, 1):  # a number in text: mostly in the header, where there are most
        found = [m.span() for m in re.finditer(rb"-?[0-9]+", bytes(data[:4096]))]
        if found:
            start, end = rng.choice(found)
            data[start:end] = rng.choice(NUMBERS)
            return data
    if kind in (1, 2, 3):  # a binary number at its natural alignment; the first and last parts hold the tables
        size = rng.choice([1, 2, 4, 8])
        place = rng.choice([at, rng.randrange(min(len(data), 256)), len(data) - 1 - rng.randrange(min(len(data), 128))])
        place -= place % size if rng.random() < 0.7 else 0
        data[place:place + size] = struct.pack("<Q", rng.choice(EDGES))[:size]
    elif kind == 4:
        data = data[:at]
    elif kind == 5:
        length = rng.randrange(1, 200)
        data[at:at] = data[at:at + length] * rng.choice([1, 2, 50])
    elif kind == 6:
        del data[at:at + rng.randrange(1, 64)]
    else:
        other = rng.choice(others)
        begin = rng.randrange(len(other) or 1)
        data[at:at] = other[begin:begin + rng.randrange(1, 300)]
    return data


def watch(words, folder, env):
    """(code or None for a hang, output, peak KiB), of the command and of the processes it waited for."""
    with tempfile.TemporaryFile() as out:
        job = subprocess.Popen(words, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)

        def late(*_):
            os.killpg(job.pid, signal.SIGKILL)
            raise TimeoutError
        signal.signal(signal.SIGALRM, late)
        # The limit is CPU time, because the machine may be busy. A command that waits without using the CPU is ended by the alarm.
        resource.prlimit(job.pid, resource.RLIMIT_CPU, (SECONDS_MAX, SECONDS_MAX))
        signal.alarm(6 * SECONDS_MAX)
        try:
            status, usage = os.wait4(job.pid, 0)[1:]
        except TimeoutError:
            os.waitpid(job.pid, 0)
            return None, b"", 0
        finally:
            signal.alarm(0)
            job.returncode = 0  # waited for here
        out.seek(0)
        code = os.waitstatus_to_exitcode(status)
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            return None, b"", 0
        return code, out.read(1 << 16), usage.ru_maxrss


def judge(code, said, peak_kib, wrote):
    if code is None:
        return "no end in %d s" % SECONDS_MAX
    if code < 0 or code > 2:
        return "code %d" % code
    if not said.strip():
        return "code %d without a word" % code
    if code != 0 and wrote:
        return "code %d, but wrote an output" % code
    if b"Sanitizer" in said:
        return "a sanitizer's report"
    return "%d MiB of memory" % (peak_kib >> 10) if peak_kib > RSS_MAX_KIB else None


def add_hdf5(folder):
    """Writes a.h5 with h5py, where some Python here has it."""
    program = ("import h5py, numpy as np\nwith h5py.File('a.h5', 'w') as f:\n"
               "    f.create_dataset('x', data=np.arange(3000).reshape(100, 30), chunks=(10, 30), compression='gzip', shuffle=True)\n"
               "    f.create_dataset('y', data=np.linspace(0, 1, 500)); f['z'] = np.arange(20, dtype='i2')\n")
    for python in ("python3", "/usr/bin/python3"):
        if subprocess.run([python, "-c", program], cwd=folder, stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return True
    return False


def main():
    stowage, samples, count = os.path.abspath(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    rng = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 0)
    failed, tried = 0, {}
    top = tempfile.mkdtemp()
    try:
        folder = os.path.join(top, "w")
        os.mkdir(folder)
        make_inputs(folder, samples)
        with gzip.open(os.path.join(samples, "causes", "weights_too_big-mlp.pickle.gz")) as f, \
                open(os.path.join(folder, "small.pickle"), "wb") as out:
            out.write(f.read())
        formats = {k: v for k, v in FORMATS.items() if k != "hdf5" or add_hdf5(folder)}
        good = {}
        for name, (file, *_rest) in formats.items():
            with open(os.path.join(folder, file), "rb") as f:
                good[name] = f.read()
        env = dict(os.environ, XDG_STATE_HOME=top, XDG_CACHE_HOME=top, LC_ALL="C")
        for number in range(count):
            name = sorted(formats)[number % len(formats)]
            _, ending, verbs, out_ending = formats[name]
            data = bytes(good[name])
            for _ in range(rng.choice([1, 1, 2, 4])):
                data = bytes(change(data, list(good.values()), rng))
            path, out = os.path.join(folder, "hostile" + ending), os.path.join(folder, "hostile-out" + out_ending)
            with open(path, "wb") as f:
                f.write(data)
            for verb in verbs:
                words = [stowage] + [{"IN": path, "OUT": out}.get(w, w) for w in verb]
                code, said, peak = watch(words, folder, env)
                tried[name] = tried.get(name, 0) + 1
                with open(path, "rb") as f:
                    kept = f.read() == data
                problem = judge(code, said, peak, os.path.exists(out)) or (None if kept else "the input was changed")
                if problem:
                    failed += 1
                    kept_as = os.path.join(os.environ.get("TORTURE_KEEP", tempfile.gettempdir()), "hostile-%d-%d%s" % (os.getpid(), failed, ending))
                    shutil.copy(path, kept_as)
                    print("FAIL %s: %s: %s; the file is %s" % (name, " ".join(verb), problem, kept_as))
                for left in os.listdir(folder):
                    if left.startswith("hostile-out"):
                        os.unlink(os.path.join(folder, left))
    finally:
        shutil.rmtree(top, ignore_errors=True)
    for name, cases in sorted(tried.items()):
        print("ok %s: %d cases" % (name, cases))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
