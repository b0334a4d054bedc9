"""Runs every verb that prints on files with hostile names: no terminal control sequence may pass.

terminal.py FOLDER, with $STOWAGE. Each case runs into a pipe and into a pseudo-terminal. Prints ok and FAIL lines.
"""

import json
import os
import pickle
import pty
import struct
import subprocess
import sys
import unicodedata
import zipfile

stowage, folder = os.environ["STOWAGE"], sys.argv[1]
os.chdir(folder)
# Escape sequences (title, clear, colour), C1 as a character, bidi and isolate, separators, a tag, a newline that forges a line.
EVIL = "n\x1b]0;pwned\x07\x1b[2J\x1b[31mEVIL\x9b31m\x85\u202eabc\u2066\u061c\u2028\u2029\U000e0041\r\x08\x7f\nstowage: forged"
BYTES = EVIL.encode() + b"\x9b31m\xff\xed\xa0\x80\xc0\xaf"
STYLES = [b"\x1b[%dm" % n for n in (0, 1, 2, 31, 32, 33)] + [b"\r\x1b[K"]
cases, bad = 0, []


def unsafe(said, terminal):
    """Returns the part that a terminal would interpret, or None."""
    if b"\x1b[31mEVIL" in said or b"\nstowage: forged" in said:
        return "a name arrived as it was"
    if terminal:
        said = said.replace(b"\r\n", b"\n")
        for style in STYLES:
            said = said.replace(style, b"")
    try:
        text = said.decode()
    except UnicodeDecodeError as error:
        return f"bytes that are not UTF-8: {error}"
    for letter in text:
        if letter in "\n\t":
            continue
        if unicodedata.category(letter) in ("Cc", "Zl", "Zp") or unicodedata.bidirectional(letter) in (
            "LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI") or "\U000e0000" <= letter <= "\U000e007f":
            return f"U+{ord(letter):04X}"
    return None


def on_terminal(arguments):
    """Returns what the command writes to a terminal, both streams."""
    ours, its = pty.openpty()
    started = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=its, stderr=its, env=dict(os.environ, TERM="xterm"))
    os.close(its)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        said += part
    os.close(ours)
    started.wait(60)
    return said


def run(*arguments, text=b"", says=True):
    """Runs a case both ways; `says`: the output must contain the hostile name, so that the case tests something."""
    global cases
    done = subprocess.run([stowage, *arguments], input=text, capture_output=True, timeout=60)
    for kind, said in (("pipe", done.stdout + done.stderr), ("terminal", on_terminal([stowage, *arguments]) if not text else b"")):
        cases += 1
        why = unsafe(said, kind == "terminal")
        if done.returncode < 0:
            why = f"ended by signal {-done.returncode}"
        if why is None and says and kind == "pipe" and b"EVIL" not in said:
            why = "the name is not printed: this case tests nothing"
        if why is not None:
            bad.append(f"{' '.join(map(ascii, arguments))} ({kind}): {why}: {said[:300]!r}")


def write(name, data):
    with open(name, "wb") as file:
        file.write(data)
    return name


# ---- data files ----
header = json.dumps({EVIL: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
run("inspect", write("a.safetensors", struct.pack("<Q", len(header)) + header + bytes(8)))
run("inspect", "--json", "a.safetensors")
header = json.dumps({"t": {"dtype": "F32" + EVIL, "shape": [2], "data_offsets": [0, 8]}}).encode()
run("inspect", write("b.safetensors", struct.pack("<Q", len(header)) + header + bytes(8)), says=False)
gguf = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", len(BYTES)) + BYTES + struct.pack("<IQIQ", 1, 2, 0, 0)
run("inspect", write("a.gguf", gguf + bytes(-len(gguf) % 32) + bytes(8)), says=False)
gguf = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", len(EVIL.encode())) + EVIL.encode() + struct.pack("<IQIQ", 1, 2, 0, 0)
run("inspect", write("b.gguf", gguf + bytes(-len(gguf) % 32) + bytes(8)))


def npy(descr, count=3, width=8):
    text = ("{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }" % (descr, count)).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text + bytes(count * width)


with zipfile.ZipFile("a.npz", "w") as archive:
    archive.writestr(EVIL + ".npy", npy("<i8"))
for extra in ((), ("--json",)):
    run("inspect", *extra, "a.npz")
    run("shrink", *extra, "a.npz", "-o", "out.npz")
    run("shrink", *extra, "a.npz", "-o", "out.npz", "--dry-run")
run("inspect", write("c.npy", npy(EVIL.replace("\n", ""))), says=False)
run("inspect", write("d.npy", npy("<i8")[:-9]), says=False)
# Tables with C0 controls at their beginning are not recognized as text, so the controls come later.
quoted = b'"' + bytes(byte for byte in BYTES if byte >= 0x20 or byte in b"\r\n") + b'"'
rows = b"".join(b"%d,x%d\n" % (i, i % 3) for i in range(30))
write("a.csv", quoted + b",b\n" + rows)
for extra in ((), ("--json",)):
    run("inspect", *extra, "a.csv")
    run("shrink", *extra, "a.csv", "-o", "out.npz")
run("inspect", write("b.csv", b"a,b\n1,2\n" + BYTES.replace(b"\n", b"") + b",4,5\n"), says=False)
run("shrink", write("c.csv", b"a,b\n1,2\n\x1b[31mEVIL,4\n3," + quoted + b"\n"), "-o", "out.npy", says=False)

try:
    import h5py
except ImportError:
    print("skip terminal: names in HDF5: h5py is not installed")
else:
    with h5py.File("a.h5", "w") as file:
        file[EVIL] = [1, 2, 3]
    run("inspect", "a.h5")
    run("inspect", "--json", "a.h5")
    run("shrink", "a.h5", "-o", "out.npz")

# ---- recordings ----
frames = [{"filename": EVIL + ".py", "name": EVIL, "line": 3}]
events, segments = [], []
for i in range(6):
    at = 0x7F0000000000 + i * (2 << 20)
    more = {"stream": 0, "frames": frames, "user_metadata": EVIL, "compile_context": EVIL}
    events.append({"action": "segment_alloc", "addr": at, "size": 2 << 20, "time_us": i * 10, **more})
    events.append({"action": "alloc", "addr": at, "size": 1 << 20, "time_us": i * 10 + 1, **more})
    blocks = [{"address": at, "size": 1 << 20, "requested_size": 1 << 20, "state": "active_allocated", "frames": frames},
              {"address": at + (1 << 20), "size": 1 << 20, "requested_size": 0, "state": "inactive", "frames": []}]
    segments.append({"device": 0, "address": at, "total_size": 2 << 20, "allocated_size": 1 << 20, "active_size": 1 << 20,
                     "requested_size": 1 << 20, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
                     "is_expandable": False, "frames": frames, "blocks": blocks})
events.append({"action": "oom", "device_free": 0, "size": 1 << 30, "stream": 0, "time_us": 100, "frames": frames})
snapshot = {"segments": segments, "device_traces": [events],
            "external_annotations": [{"device": 0, "time_us": 5, "name": EVIL, "stage": "START"}],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": EVIL, EVIL: EVIL}}
write("a.pickle", pickle.dumps(snapshot, protocol=4))
run("explain", "a.pickle")
run("explain", "--json", "a.pickle")
run("report", "--text", "a.pickle")
run("report", "--json", "a.pickle")
run("report", "--text", "a.pickle", "a.pickle")
run("report", "a.pickle", "-o", "-", says=False)
for verb in ("replay", "tune"):
    run(verb, "a.pickle", says=False)
    run(verb, "--json", "a.pickle", says=False)
run("convert", "a.pickle", "a.stow", says=False)
run("convert", "--json", "a.pickle", "a.stow", says=False)
run("report", "--text", "a.stow")
run("explain", "a.stow")
run("convert", "a.pickle", "-", "--to", "perfetto", says=False)
write("b.pickle", pickle.dumps({**snapshot, "segments": EVIL}, protocol=4))
run("explain", "b.pickle", says=False)
write("c.pickle", b"\x80\x04c" + BYTES.replace(b"\n", b"") + b"\nEVIL\n.")
run("explain", "c.pickle", says=False)
write("a.rmm", b"Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00:000001," + BYTES.replace(b"\n", b"") + b",0x7f,1024,0\n")
run("report", "--text", "a.rmm", says=False)
write("mini.csv", b"id,lower,upper,size\n" + BYTES.replace(b"\n", b"").replace(b",", b"") + b",0,10,1024\n")
run("report", "--text", "mini.csv", says=False)
message = b"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB " \
          b"of which 1.00 GiB is free. Process 7 has 14.00 GiB memory in use. " + BYTES + b'\n  File "' + BYTES + b'", line 3, in f\n'
run("explain", "--message", "-", text=message, says=False)
run("explain", write("failure.txt", message), says=False)

# ---- names of files, verbs, options, processes ----
evil_path = EVIL.replace("/", "")
for verb in (("inspect",), ("report",), ("explain",), ("replay",), ("convert", "x.stow"), ("shrink", "-o", "x.npy")):
    run(verb[0], evil_path, *verb[1:])
write(evil_path + ".npy", npy("<i8"))
for extra in ((), ("--json",)):
    run("inspect", *extra, evil_path + ".npy")
    run("shrink", *extra, evil_path + ".npy", "-o", evil_path + "-out.npy")
os.rename("a.pickle", evil_path + ".pickle")
run("report", "--text", evil_path + ".pickle")
run("report", evil_path + ".pickle", "-o", evil_path + ".html")
run("convert", evil_path + ".pickle", evil_path + ".stow")
run(EVIL)
run("inspect", "--" + EVIL)
run("inspect", "--memory", EVIL, "c.npy")
run("inspect", "--dtype", EVIL, "c.npy")
os.environ["XDG_STATE_HOME"] = os.path.join(folder, "state")
os.symlink("/bin/false", "./" + evil_path)
run("run", "--", "./" + evil_path, says=False)
run("explain", "--last", says=False)
run("run", "--", "./" + evil_path + "-nowhere")

for line in bad:
    print(line)
name = "nothing_a_terminal_obeys_arrives"
print(f"FAIL {name}" if bad else f"ok {name}: {cases} outputs")
sys.exit(1 if bad else 0)
