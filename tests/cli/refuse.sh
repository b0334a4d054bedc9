#!/usr/bin/env bash
# Files that must be refused, one per line of the list: each with the file's name and a reason, never with a crash.
. "$(dirname "$0")/../guards/lib.bash"
export STOWAGE=$stowage
. "$source_dir/tests/cli/numpy.bash"
require_numpy refuse
cd "$folder" || exit 1

# shellcheck disable=SC2034 # numpy.bash puts it before each program
prelude=$(cat << 'END'
import io, struct, zipfile

def refused(name, data, *reasons, words=()):
    with open(name, "wb") as f:
        f.write(data)
    for verb in (["inspect"], ["shrink", "-o", "out.npz"]):
        said = stowage(*verb, name, *words, fails=True)
        assert name in said and any(r in said for r in reasons), (reasons, said)
        assert os.path.getsize(name) == len(data) and not os.path.exists("out.npz")

def npy(header, data=b"", version=(1, 0), length=None):
    text = header.encode("latin1")
    n = len(text) if length is None else length
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version[0] == 1 else "<I", n) + text + data

def head(descr="'<f8'", order="False", shape="(2,)", extra=""):
    return "{'descr': %s, 'fortran_order': %s, 'shape': %s, %s}\n" % (descr, order, shape, extra)

def saved(array):
    b = io.BytesIO()
    np.save(b, array)
    return b.getvalue()

def archive(members, **options):
    b = io.BytesIO()
    with zipfile.ZipFile(b, "w", **options) as z:
        for name, data in members:
            z.writestr(name, data)
    return b.getvalue()
END
)

test_py npy_headers << 'END'
good = b"\0" * 16
refused("a.npy", npy("{" + " " * 10001 + head()[1:], good), "header")
refused("a.npy", npy("{'descr': '<f8', 'shape': (2,), }\n", good), "fortran_order")
refused("a.npy", npy(head(extra="'more': 1"), good), "more", "key")
refused("a.npy", npy(head(extra="'descr': '<f8'"), good), "duplicate key", "descr")
refused("a.npy", npy(head(shape="(-2,)"), good), "shape", "negative")
refused("a.npy", npy(head(shape="(4294967296, 4294967296, 2)"), good), "64 bits")
refused("a.npy", npy(head(shape="(3,)"), good), "bytes")
refused("a.npy", npy(head(descr="'|V0'", shape="(9223372036854775807,)"), b""), "values of zero bytes")
refused("a.npy", npy(head(descr="'|O'"), good), "Python objects")
refused("a.npy", npy(head(descr="[('a', '|O')]"), good), "objects", "structured")
refused("a.npy", npy(head(shape="(" + "1, " * 65 + ")"), good[:8]), "dimensions")
refused("a.npy", npy(head(order="2"), good), "fortran_order")
refused("a.npy", npy(head(), good, version=(4, 0)), "version")
refused("a.npy", b"\x93NUMPY\x01\x00\xff\xff{", "header", "ends")
refused("a.npy", npy(head(), b"\0" * 15), "bytes")
refused("a.npy", b"\x93NUMPY\x01\x00", "ends inside its header, at byte 8")
for a, name in ((np.ones(3, "c16"), "complex128"), (np.array(["a"]), "<U1"), (np.zeros(3, "M8[s]"), "datetime64[s]")):
    np.save("a.npy", a)
    assert f"a.npy: {name} cannot be converted to float32" in stowage("shrink", "a.npy", "-o", "out.npy", "--dtype", "float32", fails=True)
END

test_py archives << 'END'
x = saved(np.arange(10.0))
plain = archive([("x.npy", x)])
refused("a.npz", archive([("x.npy", x + b"12345678")]), "npy header declares")
refused("a.npz", archive([("x.npy", x), ("x.npy", x)]), "two members have the same name")
refused("a.npz", archive([("../x.npy", x)]), "slash", "..")
refused("a.npz", archive([("/x.npy", x)]), "absolute")
broken = bytearray(plain)
broken[plain.index(x) + len(x) - 1] ^= 1
refused("a.npz", bytes(broken), "checksum")
central = plain.index(b"PK\x01\x02")
for at, value, reason in ((8, 1, "encrypted"), (10, 99, "compression"), (34, 1, "multi-disk")):
    b = bytearray(plain)
    b[central + at:central + at + 2] = struct.pack("<H", value)
    refused("a.npz", bytes(b), reason)
b = bytearray(plain)
b[central + 42:central + 46] = struct.pack("<I", len(plain) * 2)
refused("a.npz", bytes(b), "past", "local", "end")
refused("a.npz", plain[:-10], "end record", "truncated")
deflated = archive([("x.npy", saved(np.zeros(10000)))], compression=zipfile.ZIP_DEFLATED)
c = deflated.index(b"PK\x01\x02")
b = bytearray(deflated)
b[c + 24:c + 28] = struct.pack("<I", 500)
refused("a.npz", bytes(b), "size", "bytes", "declare", "local")
END

test_py sparse_matrices << 'END'
m = sp.csr_matrix(np.eye(4) * 2)
def matrix(**changes):
    parts = dict(indices=m.indices, indptr=m.indptr, format=np.array(b"csr"), shape=np.array([4, 4]), data=m.data)
    parts.update(changes)
    return archive([(k + ".npy", saved(v)) for k, v in parts.items()])
open("ok.npz", "wb").write(matrix())
assert inspect("ok.npz")["sparse"] == "csr"
refused("a.npz", matrix(indices=np.array([0, 1, 2, 4])), "entry 3 is 4")
refused("a.npz", matrix(indices=np.array([0, 1, 2, -1])), "entry 3 is -1")
refused("a.npz", matrix(indices=np.array([0., 1, 2, 3])), "integers")
refused("a.npz", matrix(indptr=np.array([0, 2, 1, 3, 4])), "less than")
refused("a.npz", matrix(indptr=np.array([1, 1, 2, 3, 4])), "not 0")
refused("a.npz", matrix(indptr=np.array([0, 1, 2, 4])), "needs 5")
refused("a.npz", matrix(indptr=np.array([0, 1, 2, 3, 5])), "ends with 5")
refused("a.npz", matrix(shape=np.array([-4, 4])), "negative")
refused("a.npz", matrix(format=np.array(b"lil")), "lil", ".tocsr()")
refused("a.npz", archive([(k, saved(v)) for k, v in (("data.npy", m.data), ("shape.npy", np.array([4, 4])), ("format.npy", np.array(b"csr")),
                          ("offsets.npy", m.indices))]), "has no indices")
def other(format, places, data):
    parts = dict(format=np.array(format), shape=np.array([4, 6]), data=data, **places)
    return archive([(k + ".npy", saved(v)) for k, v in parts.items()])
two = np.array([0, 1])
for places, data, reason in ((dict(row=[0, 4], col=two), [1.0, 2], "row.npy: entry 1 is 4; the matrix allows 0 to 3"), (dict(row=two, col=[-1, 0]), [1.0, 2], "col.npy: entry 0 is -1"),
                             (dict(row=two, col=[0]), [1.0, 2], "1 indices for 2"), (dict(row=two, col=two), [[1.0, 2]], "not one-dimensional")):
    refused("a.npz", other(b"coo", {k: np.array(v) for k, v in places.items()}, np.array(data)), reason)
def many(**changes):
    parts = dict(coords=np.array([[0, 1], [1, 0], [2, 2]]), format=np.array(b"coo"), shape=np.array([2, 2, 3]), data=np.array([1.0, 2]))
    parts.update(changes)
    return archive([(k + ".npy", saved(v)) for k, v in parts.items()])
open("ok.npz", "wb").write(many())
assert inspect("ok.npz")["shape"] == [2, 2, 3]
for changes, reason in ((dict(coords=np.array([[0, 2], [1, 0], [2, 2]])), "entry 1 of row 0 is 2; the array allows 0 to 1"), (dict(coords=np.array([[0, 1], [1, 0], [-1, 2]])), "entry 0 of row 2 is -1"),
                        (dict(coords=np.zeros((2, 2), int)), "not 3 rows of 2 integers"), (dict(coords=np.zeros((3, 2))), "not 3 rows of 2 integers"), (dict(shape=np.array([2, -2, 3])), "negative"),
                        (dict(shape=np.zeros(0, int)), "0 dimensions"), (dict(shape=np.ones(65, int)), "65 dimensions"), (dict(data=np.ones((2, 2))), "has two dimensions, not 3")):
    refused("a.npz", many(**changes), reason)
for offsets, data, reason in (([6], [[1.0] * 6], "entry 0 is 6; the matrix allows -3 to 5"), ([-4], [[1.0] * 6], "entry 0 is -4"), ([0, 1], [[1.0] * 6], "2 indices for 1"),
                              ([0], [1.0] * 6, "not a row for each diagonal")):
    refused("a.npz", other(b"dia", dict(offsets=np.array(offsets)), np.array(data)), reason)
for indices, indptr, shape, reason in ((two, [0, 1, 2], (2, 2, 4), "do not divide"), (two, [0, 1, 2], (2, 0, 2), "do not divide"), (two, [0, 1, 2], (2, 2), "not blocks"),
                                       ([0, 3], [0, 1, 2], (2, 2, 2), "entry 1 is 3; the matrix allows 0 to 2"), (two, [0, 2], (2, 2, 2), "needs 3"),
                                       (two, [0, 1, 3], (2, 2, 2), "ends with 3, but 2")):
    refused("a.npz", other(b"bsr", dict(indices=np.array(indices), indptr=np.array(indptr)), np.ones(shape)), reason)
END

test_py model_headers << 'END'
def tensors(text, data=b"\0" * 8, length=None):
    t = text.encode()
    return struct.pack("<Q", len(t) if length is None else length) + t + data
one = '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
open("ok.safetensors", "wb").write(tensors(one))
inspect("ok.safetensors")
def bad(text, *reasons, data=b"\0" * 8):
    refused("a.safetensors", tensors(text, data), *reasons)
bad(one[:-1] + ',"a":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}}', "twice", "duplicate")
bad(one.replace("F32", "F33"), "unknown type")
bad(one.replace("[2]", "[2.5]"), "whole", "integer", "number", "2.5")
bad(one.replace("[0,8]", "[0,4]"), "disagree")
bad(one, "bytes", "end", data=b"\0" * 9)
bad(one.replace("[0,8]", "[1,9]"), "begin", "hole", "0", data=b"\0" * 9)
refused("a.safetensors", b"\x01\x00\x00\x00\x00\x00\x00\x00{" + b"\xff" * 8, "JSON", "UTF-8", "ends", "header")
for length in (2**63, 10**9, 1000):
    refused("a.safetensors", tensors(one, length=length), f"the safetensors header has {length} bytes")
long = "{" + '"__metadata__":{"k":"%s"},' % ("x" * 9_000_000) + one[1:]
refused("a.safetensors", tensors(long), "the header needs 8789 KiB, but the budget has 2048 KiB for it; raise --memory 5 times", words=("--memory", "16M"))
stowage("inspect", "a.safetensors", "--memory", "80M")
def gguf(keys=b"", tensors=b"", key_count=0, tensor_count=0, data=b""):
    return b"GGUF" + struct.pack("<IQQ", 3, tensor_count, key_count) + keys + tensors + data
def string(text):
    return struct.pack("<Q", len(text)) + text
def tensor(name, dims, kind, offset):
    return string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, offset)
refused("a.gguf", gguf(string(b"k") + struct.pack("<IIQ", 9, 9, 1), key_count=1), "nested lists")
refused("a.gguf", gguf(string(b"k") + struct.pack("<IB", 7, 2), key_count=1), "bool", "0 or 1")
refused("a.gguf", gguf(tensors=tensor(b"t", [33], 8, 0), tensor_count=1), "block", "multiple")
refused("a.gguf", gguf(tensors=tensor(b"t", [2**40, 2**40], 0, 0), tensor_count=1), "63 bits")
refused("a.gguf", gguf(tensors=tensor(b"t", [64], 0, 0), tensor_count=1), "end", "bytes")
two = tensor(b"t", [1], 0, 0) + tensor(b"t", [1], 0, 32)
refused("a.gguf", gguf(tensors=two, tensor_count=2, data=b"\0" * 200), "twice", "two", "duplicate")
refused("a.gguf", gguf(tensor_count=2**60), "tensors", "end", "budget")
END

test_py tables << 'END'
def table(text, *reasons):
    refused("a.csv", text.encode() if isinstance(text, str) else text, *reasons)
table("a,b\n1,2\n3,4,5\n", "line 3: 3 fields, but the lines before it have 2")
table("a,b\n1,2\n" * 1 + "1,2\n" * 9000 + "1,2,3\n", "line 9003: 3 fields, but the lines before it have 2")
table("a,b\n1,\"x\n", "unclosed quote")
table("a,b\n1,\"x\"y\n", "line 2: text after a closing quote")
table("a\n".encode("utf-16") + b"a", "UTF-16")
table(b"", "empty")
import bz2, gzip, lzma, pickle
refused("a.bin", bz2.compress(b"a,b\n1,2\n"), "bunzip2")
refused("a.bin", lzma.compress(b"a,b\n1,2\n")[:-9], "xz", "truncated")
refused("a.bin", b"\x28\xb5\x2f\xfd" + bytes(20), "zstd", "truncated")
refused("a.bin", b"PAR1" + bytes(20) + b"PAR1", "Parquet")
refused("a.bin", pickle.dumps([1, 2]), "a pickle, which could run code; save its arrays with numpy.save; a memory snapshot of PyTorch is shown by stowage report")
refused("a.pickle.gz", gzip.compress(pickle.dumps([1, 2])), "a pickle, which could run code; save its arrays with numpy.save; a memory snapshot of PyTorch is shown by stowage report")
refused("a.stow", b"\x89STOW\r\n\x1a\x01\x00" + bytes(500), "a recording of memory; stowage report shows it")
cut = gzip.compress(b"a,b\n" + b"1,2\n" * 20000)
table(cut[:len(cut) // 2], "truncated", "ends")
for number, expected in (("18446744073709551616", "text"), ("18446744073709551615", "uint64"), ("-9223372036854775809", "text"), ("1e400", "text"),
                         ("-1.8e308", "text"), ("1.7e308", "float64")):
    open("n.csv", "w").write(f"x\n{number}\n")
    assert inspect("n.csv")["columns"][0]["dtype"] == expected, number
END

test_py files_that_change_and_folders_that_are_not_there << 'END'
import threading, time
np.save("a.npy", np.arange(3_000_000.0) / 7)
size = os.path.getsize("a.npy")
def change(how):
    stop = threading.Event()
    def work():
        while not stop.is_set():
            how()
            time.sleep(0.0005)
    t = threading.Thread(target=work)
    t.start()
    said = subprocess.run([os.environ["STOWAGE"], "shrink", "a.npy", "-o", "b.npy"], capture_output=True, text=True)
    stop.set()
    t.join()
    assert said.returncode in (1, 2) and "a.npy" in said.stderr, said
    assert not os.path.exists("b.npy"), "half a file has the name"
def grow():
    with open("a.npy", "ab") as f:
        f.write(b"12345678")
change(grow)
os.truncate("a.npy", size)
change(lambda: os.truncate("a.npy", size // 2))
np.save("a.npy", np.arange(10.0))
assert "cannot write" in stowage("shrink", "a.npy", "-o", "nowhere/b.npy", fails=True, code=1)
assert "cannot open" in stowage("inspect", "nowhere.npy", fails=True)
assert "folder without a model" in stowage("inspect", ".", fails=True, code=2)
assert "not a regular file" in stowage("inspect", "/dev/null", fails=True, code=2)
if os.getuid() != 0:
    os.mkdir("shut", 0o500)
    assert "cannot write" in stowage("shrink", "a.npy", "-o", "shut/b.npy", fails=True, code=1)
END

test_py random_bytes_in_every_format_never_crash << 'END'
seeds = {"a.npy": saved(np.arange(50.0)), "a.npz": archive([("x.npy", saved(np.arange(50.0)))], compression=zipfile.ZIP_DEFLATED),
         "a.csv": b"a,b,c\n" + b"1,2.5,\"x, y\"\n,NA,z\n" * 40}
for name, data in seeds.items():
    for trial in range(60):
        b = bytearray(data)
        for _ in range(int(rng.integers(1, 6))):
            at = int(rng.integers(0, len(b)))
            if rng.random() < 0.3:
                del b[at:at + int(rng.integers(1, 20))]
            else:
                b[at] = int(rng.integers(0, 256))
            if not b:
                b = bytearray(b"\0")
        open(name, "wb").write(b)
        for words in (["inspect", name], ["shrink", name, "-o", "o.npz"]):
            done = subprocess.run([os.environ["STOWAGE"], *words, "--memory", "8M"], capture_output=True, text=True, timeout=20)
            assert done.returncode in (0, 1, 2), (done, bytes(b))
END

finish
