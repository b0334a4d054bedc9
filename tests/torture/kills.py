"""Kills the command with SIGKILL at random moments and checks what it leaves.

  kills.py shrink|run|programs STOWAGE COUNT [SEED]

shrink: kills a shrink or a merge. Its output is then the old file or the whole new one. Half of the jobs are killed a
second time while they resume. `--resume` then finishes with the same bytes as an undisturbed run, and nothing else is left.
run: kills `stowage run`. None of our processes stays, a later run has the whole limit, and explain and top still answer.
programs: kills programs under one `stowage run` with a limit. The whole limit is available after each.

run and programs need the stand-in driver of the build that STOWAGE belongs to. Prints "ok NAME: …" or "FAIL NAME: why" and the
number of kills. The seed decides the order of jobs and the moments as fractions of a job's usual time.
"""
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "faults"))
from sweep import npy, npz  # noqa: E402

MIB = 1 << 20
LIMIT = 100 * MIB
DEADLINE_S = 60
LEFT = (".partial", ".resume", ".resume~", ".scratch")


class Finding(Exception):
    pass


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def ours(session, command):
    """Processes of the session that run our command."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, encoding="ascii", errors="replace") as f:
                words = f.read().rsplit(")", 1)[1].split()
            if int(words[3]) == session and words[0] not in "ZX" and os.readlink("/proc/%s/exe" % name) == command:
                found.append(int(name))
        except OSError:
            continue
    return found


def end_group(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def check_nobody_left(session, command):
    end = time.monotonic() + 10
    while left := ours(session, command):
        if time.monotonic() > end:
            raise Finding("process %d of ours is left after 10 s" % left[0])
        time.sleep(0.005)


class Jobs:
    """Starts the command in a folder, kills it after a time, and learns how long it usually takes."""

    def __init__(self, stowage, folder, env):
        self.stowage, self.folder, self.env = os.path.realpath(stowage), folder, env
        self.kills = 0

    def start(self, words, **more):
        return subprocess.Popen([self.stowage] + words, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True, **more)

    def whole(self, words):
        """Runs to the end; returns the seconds. A refusal is a finding."""
        begun = time.monotonic()
        job = self.start(words)
        try:
            said = job.communicate(timeout=DEADLINE_S)[1]
        except subprocess.TimeoutExpired:
            end_group(job.pid)
            raise Finding("%s: no end in %d s" % (" ".join(words), DEADLINE_S)) from None
        if job.returncode != 0:
            raise Finding("%s: code %d: %s" % (" ".join(words), job.returncode, said.decode(errors="replace")[-200:]))
        return time.monotonic() - begun

    def kill(self, words, after_s):
        """True if it was killed before its end."""
        job = self.start(words)
        try:
            job.wait(timeout=after_s)
        except subprocess.TimeoutExpired:
            pass
        job.kill()
        job.wait()
        job.stderr.close()
        self.kills += job.returncode == -signal.SIGKILL
        return job


# ---- shrink and merge ----

def make_data(folder):
    """Inputs that take some tens of milliseconds each."""
    def write(name, content):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(content)

    numbers = struct.pack("<60000q", *(i * 7919 % 60000 for i in range(60000)))
    thin = bytearray(8 * 200 * 300)
    for i in range(0, 60000, 997):
        struct.pack_into("<d", thin, 8 * i, 1.5)
    write("a.npy", npy("<i8", (200, 300), numbers))
    write("thin.npy", npy("<f8", (200, 300), bytes(thin)))
    npz(os.path.join(folder, "m.npz"), {"x": npy("<i8", (30000,), numbers[:240000]), "y": npy("<f8", (300, 200), bytes(thin))})
    write("t.csv", ("a,b,c\n" + "".join("%d,%s,w%d\n" % (i, i * 0.5, i % 300) for i in range(6000))).encode())
    for name, tensors in [("model.safetensors", [("w.weight", 256, 256), ("v.weight", 256, 256)]),
                          ("adapter_model.safetensors", [("base_model.model.w.lora_A.weight", 4, 256),
                                                         ("base_model.model.w.lora_B.weight", 256, 4)])]:
        inner = os.path.join(folder, name.split("_")[0].split(".")[0])
        os.mkdir(inner)
        at, facts = 0, []
        for tensor, rows, columns in tensors:
            size = 4 * rows * columns
            facts.append('"%s":{"dtype":"F32","shape":[%d,%d],"data_offsets":[%d,%d]}' % (tensor, rows, columns, at, at + size))
            at += size
        head = ("{" + ",".join(facts) + "}").encode()
        with open(os.path.join(inner, name), "wb") as f:
            f.write(struct.pack("<Q", len(head)) + head + struct.pack("<f", 0.5) * (at // 4))
    write("adapter/adapter_config.json", b'{"peft_type": "LORA", "r": 4, "lora_alpha": 8}')


SHRINKS = [["shrink", "--force", "a.npy", "-o", "out.npy"], ["shrink", "--force", "thin.npy", "-o", "out.npz"],
           ["shrink", "--force", "m.npz", "-o", "out.npz"], ["shrink", "--force", "t.csv", "-o", "out.npz"],
           ["shrink", "--force", "t.csv", "-o", "out.npz", "--threads", "3"], ["shrink", "--force", "a.npy", "-o", "out.npy", "--threads", "2"],
           ["shrink", "--force", "model", "-o", "out.safetensors", "--dtype", "f16"],
           ["merge", "model", "adapter", "-o", "out.safetensors"]]


def kill_shrinks(stowage, folder, count, rng):
    make_data(folder)
    env = dict(os.environ, STOWAGE_CHECKPOINT_MS="0", STOWAGE_CHECKPOINT_ITEMS="5000", XDG_CACHE_HOME=folder + "-cache")
    jobs = Jobs(stowage, folder, env)
    facts = []
    inputs = set(os.listdir(folder))
    for words in SHRINKS:
        seconds = statistics.median(jobs.whole(words) for _ in range(3))
        output = [w for w in words if w.startswith("out.")][0]
        facts.append((words, output, seconds, digest(os.path.join(folder, output))))
        os.unlink(os.path.join(folder, output))
    finished = 0
    while jobs.kills < count:
        words, output, seconds, whole = rng.choice(facts)
        path = os.path.join(folder, output)
        with open(path, "wb") as f:
            f.write(b"old\n")
        old = digest(path)
        for again in range(rng.choice([1, 2])):
            job = jobs.kill(words + (["--resume"] if again else []), rng.random() * 1.1 * seconds)
            if not os.path.exists(path) or digest(path) not in (old, whole):
                raise Finding("%s: killed, and the output is neither old nor whole" % " ".join(words))
            check_nobody_left(job.pid, jobs.stowage)
            strange = set(os.listdir(folder)) - inputs - {output} - {output + ending for ending in LEFT}
            if strange:
                raise Finding("%s: killed, and left %s" % (" ".join(words), ", ".join(sorted(strange))))
        jobs.whole(words + ["--resume"])
        if digest(path) != whole:
            raise Finding("%s: resumed to other bytes" % " ".join(words))
        left = set(os.listdir(folder)) - inputs - {output}
        if left:
            raise Finding("%s: resumed, and left %s" % (" ".join(words), ", ".join(sorted(left))))
        os.unlink(path)
        finished += 1
    return "%d kills, %d outputs whole after --resume" % (jobs.kills, finished)


# ---- run ----

def run_environment(stowage, folder):
    build = os.path.dirname(os.path.realpath(stowage))
    driver = os.path.join(build, "tests", "standin", "libcuda.so.1")
    env = dict(os.environ, STOWAGE_LIBCUDA=driver, STANDIN_PATH=driver, XDG_STATE_HOME=folder + "-state",
               XDG_CACHE_HOME=folder + "-cache", STOWAGE_COMMAND=stowage)
    for name in ("LD_PRELOAD", "STOWAGE_SHIM", "STOWAGE_LEDGER"):
        env.pop(name, None)
    return env, os.path.join(build, "tests", "shim", "holder")


def has_whole_limit(jobs, holder):
    done = subprocess.run([jobs.stowage, "run", "--vram-limit", str(LIMIT), "--", holder, "alloc:%d" % LIMIT, "free"],
                          env=jobs.env, cwd=jobs.folder, capture_output=True, timeout=DEADLINE_S, check=False)
    if done.stdout.split(b"\n")[0] != b"alloc:%d 0" % LIMIT:
        raise Finding("a run after the kills does not get its limit: %r %r" % (done.stdout[-200:], done.stderr[-200:]))


def kill_runs(stowage, folder, count, rng):
    env, holder = run_environment(stowage, folder)
    jobs = Jobs(stowage, folder, env)
    words = ["alloc:%d" % (60 * MIB), "alloc:%d" % (60 * MIB), "free", "page:%d" % (2 * MIB), "alloc:%d" % MIB, "free", "unpage"] * 3
    kinds = [["run", "--vram-limit", str(LIMIT), "--", holder] + words,
             ["run", "--vram-limit", str(LIMIT), "--spill", "auto", "--", holder] + words,
             ["run", "--record", "out.stow", "--", holder] + words,
             ["run", "--ram-limit", "1G", "--", holder] + words,
             ["run", "--fast-malloc", "--", "sh", "-c", '"$0" "$@" & "$0" "$@"; wait', holder] + words]
    facts = [(k, statistics.median(jobs.whole(k) for _ in range(3))) for k in kinds]
    while jobs.kills < count:
        kind, seconds = rng.choice(facts)
        job = jobs.kill(kind, rng.random() * 1.1 * seconds)
        end_group(job.pid)  # the program itself goes on without us
        check_nobody_left(job.pid, jobs.stowage)
        if rng.random() < 0.1:
            has_whole_limit(jobs, holder)
        if rng.random() < 0.1:
            for verb in (["explain", "--last"], ["top", "--once", "--json"]):
                done = subprocess.run([jobs.stowage] + verb, env=env, cwd=folder, capture_output=True, timeout=DEADLINE_S, check=False)
                if done.returncode not in (0, 1, 2) or not (done.stdout or done.stderr):
                    raise Finding("%s after a kill: code %d" % (" ".join(verb), done.returncode))
                if verb[0] == "top" and any(r.get("live") for r in json.loads(done.stdout)["runs"]):
                    raise Finding("top shows a killed run as live")
    has_whole_limit(jobs, holder)
    runs = os.path.join(folder + "-state", "stowage", "runs")
    kept = len(os.listdir(runs)) if os.path.isdir(runs) else 0
    if kept > 40:
        raise Finding("%d run folders are left of %d killed runs" % (kept, jobs.kills))
    return "%d kills, %d run folders kept" % (jobs.kills, kept)


# ---- programs of one run ----

def programs(holder, count, seed):
    """Runs under `stowage run`: starts holders, kills them, asks for the whole limit each time."""
    rng = random.Random(seed)
    words = ["alloc:%d" % (80 * MIB), "alloc:%d" % (10 * MIB), "free", "page:%d" % (4 * MIB), "free", "unpage"] * 5
    usual = []
    for _ in range(3):
        begun = time.monotonic()
        subprocess.run([holder] + words, stdout=subprocess.DEVNULL, check=False)
        usual.append(time.monotonic() - begun)
    kills = 0
    while kills < count:
        jobs = [subprocess.Popen([holder] + words, stdout=subprocess.DEVNULL) for _ in range(rng.choice([1, 1, 2, 4]))]
        time.sleep(rng.random() * 1.1 * statistics.median(usual))
        for job in jobs:
            job.kill()
            kills += job.wait() == -signal.SIGKILL
        said = subprocess.run([holder, "alloc:%d" % LIMIT], capture_output=True, check=False).stdout
        if said.split(b"\n")[0] != b"alloc:%d 0" % LIMIT:
            print("after %d kills the limit is not available: %r" % (kills, said))
            return 1
    print("%d kills" % kills)
    return 0


def kill_programs(stowage, folder, count, rng):
    env, holder = run_environment(stowage, folder)
    done = subprocess.run([stowage, "run", "--quiet", "--vram-limit", str(LIMIT), "--", sys.executable, os.path.abspath(__file__), "inside",
                           holder, str(count), str(rng.randrange(1 << 30))],
                          env=env, cwd=folder, capture_output=True, timeout=DEADLINE_S + count, check=False)
    if done.returncode != 0:
        raise Finding("%r %r" % (done.stdout[-300:], done.stderr[-300:]))
    return done.stdout.decode().strip().split("\n")[-1]


def main():
    if sys.argv[1] == "inside":
        return programs(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    what, stowage, count = sys.argv[1], os.path.realpath(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 0)
    # Every checkpoint waits for the disk, which is not what is tried here.
    memory = "/dev/shm"
    top = tempfile.mkdtemp(dir=memory if os.path.isdir(memory) and shutil.disk_usage(memory).free > 1 << 30 else None)
    folder = os.path.join(top, "w")
    os.mkdir(folder)
    try:
        said = {"shrink": kill_shrinks, "run": kill_runs, "programs": kill_programs}[what](stowage, folder, count, rng)
        print("ok kill_%s: %s" % (what, said))
        return 0
    except (Finding, subprocess.TimeoutExpired) as finding:
        print("FAIL kill_%s: %s" % (what, finding))
        return 1
    finally:
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
