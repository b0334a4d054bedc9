"""Gives files made by hand to break readers to every verb that reads them.

  crafted.py STOWAGE

hostile.py changes valid files at random. These files have one thought each: a length of 2^63, shapes whose product overflows, a
bomb, nesting, names with control characters, paths that leave the folder, code in a pickle. Each verb must end by itself within
20 s with code 0, 1 or 2 and an answer or a message, keep its memory near the budget, print no control or bidirectional
character, write an output only if it succeeds and nothing elsewhere. Prints "ok crafted_FORMAT: N cases" or "FAIL crafted_FORMAT: why".
"""
import io
import json
import os
import pickle
import re
import shutil
import struct
import sys
import tempfile
import zipfile
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hostile import DATA, RECORDING, judge, watch  # noqa: E402

EVIL = "n\x1b]0;pwned\x07\x1b[2J\u009b31m\u202eevil\u2066"
RAW = re.compile(b"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")
BIG = (1 << 64) - 1


def safetensors():
    def file(head, data=b"", length=None):
        head = head if isinstance(head, bytes) else json.dumps(head).encode()
        return struct.pack("<Q", len(head) if length is None else length) + head + data

    def tensor(shape, begin, end, dtype="F32"):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    one = b'"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
    yield from (b"", b"1234567", file({}, length=1 << 63), file({}, length=BIG), file(b""), file(b"[" * 100000), file(b'{"a":' * 100000),
                file(b"{" + b" " * 3000000 + b"}"), file(b"{" + one + b"," + one.replace(b"F32", b"F64") + b"}", bytes(8)),
                file(b"{" + one + b"} more", bytes(8)), file(b'{"a\\u0000b"' + one[3:] + b"}", bytes(8)),
                file(b'{"a\xff\xc0\xaf"' + one[3:] + b"}", bytes(8)), file(b'{"a\\ud800"' + one[3:] + b"}", bytes(8)),
                file(b'{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,-8]}}', bytes(8)),
                file(b'{"a":{"dtype":"F32","shape":[2e999],"data_offsets":[0,8e0]}}', bytes(8)))
    for tensors in ({"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, {"a": tensor([2], 8, 0)}, {"a": tensor([1 << 32, 1 << 32], 0, 0)},
                    {"a": tensor([0, 1 << 63], 0, 0)}, {"a": tensor([2], BIG - 7, BIG)}, {"a": tensor([1] * 5000, 0, 4)},
                    {EVIL: tensor([2], 0, 8), "__metadata__": {EVIL: EVIL}}, {"a": tensor([2], 0, 8, EVIL)},
                    {"../../../escaped": tensor([2], 0, 8)}, {"__metadata__": [1], "a": tensor([2], 0, 8)}, {"x" * 500000: tensor([2], 0, 8)}):
        yield file(tensors, bytes(12))


def gguf():
    def file(tensors, pairs, body, version=3):
        return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + body

    def text(t):
        return struct.pack("<Q", len(t.encode())) + t.encode()

    def pair(key, kind, value):
        return text(key) + struct.pack("<I", kind) + value

    def tensor(name, dims, kind=0, offset=0):
        return text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, kind, offset)

    def padded(body):
        return body + bytes(-(24 + len(body)) % 32) + bytes(64)
    yield from (file(1 << 60, 0, b""), file(0, 1 << 60, b""), file(BIG, BIG, b""), file(0, 1, struct.pack("<Q", 1 << 63) + b"x"),
                file(0, 1, pair("a", 9, struct.pack("<IQ", 8, 1 << 60))), file(0, 1, pair("a", 9, struct.pack("<IQ", 0, 1 << 63))),
                file(0, 1, pair("a", 9, struct.pack("<IQ", 9, 1) * 50000)), file(0, 1, pair("a", 99, b"")), file(1, 0, bytes(64), 1),
                file(1, 0, bytes(64), 99))
    for alignment in (0, 3, 1 << 31, (1 << 32) - 1):
        yield file(1, 1, padded(pair("general.alignment", 4, struct.pack("<I", alignment)) + tensor("t", [8])))
    for info in (tensor("t", [1] * 1000), tensor("t", [1 << 32, 1 << 32]), tensor("t", [8], 0, BIG - 31), tensor("t", [8], 4000),
                 tensor("t", [0, 1 << 63]), tensor("t", [7], 2), tensor(EVIL, [8])):
        yield file(1, 0, padded(info))
    yield file(2, 0, padded(tensor("t", [8]) * 2))
    yield file(1, 2, padded(pair("general.name", 8, text(EVIL)) + pair(EVIL, 8, text(EVIL)) + tensor("t", [8])))


def npy_file(descr, shape, data=b"", version=(1, 0), length=None):
    head = descr if shape is None else "{'descr': %s, 'fortran_order': False, 'shape': %s, }\n" % (descr, shape)
    head = head.encode("utf-8")
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version[0] == 1 else "<I", len(head) if length is None else length) + head + data


def npy():
    for descr, shape in (("'<f8'", "(4294967296, 4294967296)"), ("'<f8'", "(2305843009213693952,)"), ("'<f8'", "(-1,)"), ("'|O'", "(3,)"),
                         ("'|V2147483647'", "(2,)"), ("'|V0'", "(9223372036854775807,)"), ("'<U1000000000'", "(1,)"), ("'<f8'", "(0, 9223372036854775807)"),
                         ("'<i1'", "(" + "1," * 5000 + ")"), ("'<f8'", "(%s,)" % ("9" * 5000)), ("'<M8[999999999999s]'", "(1,)"),
                         ("[('a','<f8'),('b',[('c','<i4',(1000000,1000000))])]", "(1,)")):
        yield npy_file(descr, shape, bytes(8))
    yield from (npy_file("[" * 50000, "(1,)", version=(2, 0)), npy_file("'<f8'", "(" * 100000, version=(2, 0)),
                npy_file("'<f8'", "(1,)", version=(2, 0), length=(1 << 32) - 1), npy_file("'<f8'", "(1,)", bytes(8), (9, 9)),
                npy_file("__import__('os').system('touch escaped')", None), npy_file("'<f8'", "(1000,)", bytes(80)),
                npy_file("[('%s', '<f8')]" % EVIL, "(1,)", bytes(8), (3, 0)))


def npz():
    member = npy_file("'|u1'", "(10,)", bytes(10))

    def file(name=b"a.npy", count=1, flag=0, method=0, crc=None, size=None, packed=None, offset=0, begin=None, entries=1, data=member):
        crc = zlib.crc32(member) if crc is None else crc
        local = struct.pack("<IHHHHHIIIHH", 0x04034b50, 20, flag, method, 0, 0, crc, len(data), len(member), len(name), 0) + name + data
        entry = struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 20, 20, flag, method, 0, 0, crc, len(data) if packed is None else packed,
                            len(member) if size is None else size, len(name), 0, 0, 0, 0, 0, offset) + name
        return local + entry * entries + struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, count, count, len(entry) * entries,
                                                     len(local) if begin is None else begin, 0)
    yield from (file(b"../../../escaped.npy"), file(b"/escaped.npy"), file(flag=1), file(crc=1), file(method=99), file(size=0xfffffffe),
                file(packed=0xfffffffe), file(offset=0xfffffff0), file(count=65535), file(begin=0xfffffff0), file(EVIL.encode() + b".npy"),
                file(b"\xff\xfe\x9b31m.npy"), file(b"a\x00b.npy"), file(b""), file(b"a/"), file(count=2000, entries=2000),
                file(size=0xffffffff, packed=0xffffffff, offset=0xffffffff))
    bomb = npy_file("'|u1'", "(300000000,)")
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = squeeze.compress(bomb + bytes(1 << 20)) + squeeze.flush()
    yield file(method=8, size=len(bomb) + 300000000, data=packed)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as z:
        for name, data in (("format", npy_file("'|S3'", "()", b"csr")), ("shape", npy_file("'<i8'", "(2,)", struct.pack("<2q", 1 << 40, 1 << 40))),
                           ("data", npy_file("'<f8'", "(2,)", bytes(16))), ("indices", npy_file("'<i8'", "(2,)", struct.pack("<2q", 1 << 60, -1))),
                           ("indptr", npy_file("'<i8'", "(3,)", struct.pack("<3q", 0, 1 << 62, -5)))):
            z.writestr(name + ".npy", data)
    yield archive.getvalue()


def csv():
    yield from (b'a,b\n"' + b"x" * 2000000, b",".join(b"c%d" % i for i in range(30000)) + b"\n" + b"1," * 29999 + b"1\n", b"a,b\n1,\x002\n" * 50,
                "a,b\n1,2\n".encode("utf-16"), (EVIL + ",b\n1," + EVIL + "\n").encode(), b"\xff\x9b31m,b\n1,2\n", b"," * 500000, b"\n" * 500000,
                b"a\n1e999999999999\n-1e-99999999\n" + b"9" * 50000 + b"\n", b"a,b\n1\n1,2,3,4,5\n", b"a\n" + b'""' * 500000)


def snapshot():
    frames = [{"filename": EVIL + ".py", "line": 3, "name": EVIL + "</script><script>alert(1)</script>"}]

    def event(action, addr, size, time, **more):
        return dict({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time, "frames": frames}, **more)

    def file(events, segments=(), **more):
        return pickle.dumps(dict({"segments": list(segments), "device_traces": [events]}, **more), protocol=4)
    laugh = b"\x80\x04K\x01\x94" + b"".join(b"h%ch%c\x86\x94" % (i, i) for i in range(60)) + b"."
    nested = b"\x80\x04]\x94" + b"".join(b"]\x94(" + (b"j" + struct.pack("<I", i)) * 20 + b"e" for i in range(100)) + b"."
    yield from (b'cos\nsystem\n(S"touch escaped"\ntR.', b"\x80\x02" + b"(" * 200000 + b"t" * 200000 + b".", laugh, nested,
                b"\x80\x02" + b"]" * 100000 + b"a" * 99999 + b".", b"\x80\x02}q\x00X\x08\x00\x00\x00segmentsh\x00s.",
                b"\x80\x02\x8b\xff\xff\xff\x7fx.", b"\x80\x02\x8b\xfb\xff\xff\xffx.", b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"x.",
                b"\x80\x02j\xff\xff\xff\xff.", b"\x80\x02Nr\xff\xff\xff\xff.", b"Np18446744073709551615\n.", b"\x80\xffN.",
                b"I" + b"9" * 500000 + b"\n.", b"\x80\x020000.", b"(" * 500000 + b".")
    yield from (file([event("alloc", 1 << 40, 1 << 30, 1), event("oom", 0, 1 << 62, 2, device_free=5)]),
                file([event("alloc", -1, -(1 << 62), 1), event("free_completed", -1, -5, 2)]),
                file([event("alloc", BIG - 4095, 1 << 63, 1), event("alloc", 1 << 80, 1 << 80, 2)]),
                file([event("alloc", 4096 * i, 4096, (1 << 63) - 1 - i * (1 << 58)) for i in range(30)]), file([event(EVIL, 4096, 4096, 1)] * 20),
                file([dict(event("alloc", 4096 * i, 4096, i), stream=BIG - i) for i in range(2000)]),
                file([{"action": ["x"], "addr": "y", "size": None, "frames": 5}]),
                file([], [{"address": 1 << 63, "total_size": 1 << 63, "blocks": [{"size": 1 << 62, "state": "active_allocated"}] * 100,
                           "device": 10**9, "stream": 0, "segment_type": EVIL, "allocated_size": -1}]),
                file([event("alloc", 4096, 4096, 1)], allocator_settings={"PYTORCH_CUDA_ALLOC_CONF": EVIL}))


def rmm():
    head = b"Thread,Time,Action,Pointer,Size,Stream\n"
    yield from (head + b"1,00:00:00:000001,allocate,0x7f0000000000,18446744073709551615,0x0\n",
                head + b"1,00:00:00:000001,allocate,0x7f0000000000,1152921504606846976,0x0\n1,00:00:00:000002,free,0x7f0000000000,1152921504606846976,0x0\n",
                head + b"1,99:99:99:999999,allocate,0x1,4096,0x0\n", head + b"-1,00:00:00:000001,allocate,-1,-1,-1\n",
                head + ("1,00:00:00:000001," + EVIL + ",0x1,4096," + EVIL + "\n").encode(),
                b"id,lower,upper,size\n" + b"b,0,9223372036854775807,9223372036854775807\n" * 100, b"id,lower,upper,size\nx,9,1,-5\n",
                ("id,lower,upper,size\n" + EVIL + ",0,5,100\n").encode())


def message():
    yield from (("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 " + EVIL + " GiB.\n").encode(),
                ('  File "' + EVIL + '.py", line 3, in ' + EVIL + "\nMemoryError: Unable to allocate 10.0 GiB for an array with shape (" + EVIL +
                 ",) and data type " + EVIL + "\n").encode(),
                b"CUDA out of memory. Tried to allocate " * 20000, b"\0" * 1000 + b"MemoryError\n",
                b"CUDA out of memory. Tried to allocate " + b"9" * 10000 + b".99 GiB. GPU 0 has a total capacity of -5e999 GiB of which nan GiB is free")


MESSAGE = [["explain", "--message", "IN"], ["explain", "--json", "--message", "IN"]]
TEXT = [["explain", "IN"], ["report", "--text", "IN"]]
FORMATS = [(safetensors, ".safetensors", DATA, ".safetensors"), (gguf, ".gguf", DATA, ".safetensors"), (npy, ".npy", DATA, ".npy"),
           (npz, ".npz", DATA, ".npz"), (csv, ".csv", DATA, ".npz"), (snapshot, ".pickle", RECORDING + TEXT[1:], ".stow"),
           (rmm, ".csv", RECORDING + TEXT[1:], ".stow"), (message, ".txt", MESSAGE, "")]


def main():
    stowage, failed = os.path.abspath(sys.argv[1]), False
    for make, ending, verbs, out_ending in FORMATS:
        top = tempfile.mkdtemp()
        folder = os.path.join(top, "a", "b", "c")
        os.makedirs(folder)
        env = dict(os.environ, XDG_STATE_HOME=folder + "/state", XDG_CACHE_HOME=folder + "/cache", LC_ALL="C.UTF-8")
        cases, problems = 0, []
        path, out = os.path.join(folder, "in" + ending), os.path.join(folder, "out" + out_ending)
        for number, data in enumerate(make()):
            with open(path, "wb") as f:
                f.write(data)
            for verb in verbs:
                if os.path.exists(out):
                    os.unlink(out)
                code, said, peak = watch([stowage] + [{"IN": path, "OUT": out}.get(w, w) for w in verb], folder, env)
                cases += 1
                problem = judge(code, said, peak, os.path.exists(out)) or ("prints a control character" if RAW.search(said) else None)
                if problem:
                    problems.append("file %d: %s: %s" % (number, " ".join(verb), problem))
        problems += ["wrote " + os.path.join(where, n) for where, _, names in os.walk(top) for n in names if "escaped" in n]
        shutil.rmtree(top, ignore_errors=True)
        failed = failed or bool(problems)
        print("FAIL crafted_%s: %s" % (make.__name__, "; ".join(problems[:5])) if problems else "ok crafted_%s: %d cases" % (make.__name__, cases), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
