#!/usr/bin/env bash
# Compares stowage convert with Python: everything that Python pickles is read in every protocol and shape, and Python reads
# everything that is written. Python computes the counts from the same objects.
. "$(dirname "$0")/../guards/lib.bash"
export STOWAGE=$stowage DATA=$source_dir/tests/samples
if ! has python3; then skip "convert: no python3 to compare with"; finish; fi
cd "$folder" || exit 1

cat > common.py << 'END'
import csv, gzip, io, json, os, pickle, pickletools, struct, subprocess, sys

def convert(*arguments, fails=False, stdin=None):
    done = subprocess.run([os.environ["STOWAGE"], "convert", *arguments], capture_output=True, input=stdin, timeout=60)
    assert (done.returncode != 0) == fails, (arguments, done)
    return done

def summary(source, target="out.stow"):
    return json.loads(convert("--json", source, target).stdout)["input"]

def dump(value, name, protocol=4):
    with open(name, "wb") as f:
        pickle.dump(value, f, protocol=protocol)
    return name

def load(name):
    return pickle.load(gzip.open(os.path.join(os.environ["DATA"], name)))

class Plain(pickle.Unpickler):  # what imports, calls or builds needs a name first
    def find_class(self, module, name):
        raise AssertionError((module, name))

def back(name):
    convert(name, "back.pickle")
    raw = open("back.pickle", "rb").read()
    if len(raw) <= 1 << 18:
        used = {op.name for op, _, _ in pickletools.genops(raw)}
        assert not used & {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "NEWOBJ"}, used
        assert pickletools.dis(raw, io.StringIO()) is None  # raises where stack or memo is amiss
    return Plain(io.BytesIO(raw)).load()  # a large one: the same without a look at each opcode, which takes seconds in Python

def same(a, b):
    for trace in a["device_traces"]:
        for entry in trace:
            entry.setdefault("frames", [])
    assert a.keys() == b.keys(), (a.keys(), b.keys())
    for key in a:
        assert a[key] == b[key], key

def frame(line):
    return {"name": "f", "filename": "a.py", "line": line}

def entry(action, addr, size, time, **more):
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time, **more}
END

test_py() { # NAME: the program is standard input
  { echo "from common import *"; cat; } > test.py
  check "$1" python3 test.py
}

test_py snapshots_come_back_equal_in_python << 'END'
names = ("leak", "oom_gpt_15gib_stacks", "fragmentation", "cache_held", "gpt_varlen_expandable")
if not os.environ.get("STOWAGE_TEST_LONG"):  # every second one
    names = names[int(os.environ.get("STOWAGE_TEST_SEED") or 0) % 2::2]
for name in names:
    original = load(name + ".pickle.gz")
    same(original, back(os.path.join(os.environ["DATA"], name + ".pickle.gz")))
    convert(os.path.join(os.environ["DATA"], name + ".pickle.gz"), "trace.stow")
    same(original, back("trace.stow"))
END

test_py every_protocol_and_pickler_reads_the_same << 'END'
original = load("one_spike.pickle.gz")
wanted = None
for protocol in (2, 3, 4, 5):
    for pickler in (pickle.Pickler, pickle._Pickler):
        out = io.BytesIO()
        pickler(out, protocol).dump(original)
        for raw in (out.getvalue(), pickletools.optimize(out.getvalue())):
            for name, data in (("p.pickle", raw), ("p.pickle.gz", gzip.compress(raw)),
                               ("m.pickle.gz", gzip.compress(raw[:999]) + gzip.compress(raw[999:]))):
                open(name, "wb").write(data)
                same(original, back(name))
                got = summary(name)
                got.pop("path")
                assert wanted in (None, got), (protocol, pickler, name, got)
                wanted = got
END

test_py several_devices_are_merged_by_time_and_distinguished << 'END'
traces = [[entry("alloc", 512 * i, 8, 10 * i) for i in range(1, 3000)],
          [entry("alloc", 512 * i, 9, 7 * i) for i in range(1, 2500)], [], [entry("oom", 0, 5, 4)]]
del traces[3][0]["addr"]
traces[3][0]["device_free"] = 77
snapshot = {"segments": [], "device_traces": traces, "external_annotations":
            [{"name": "step", "stage": s, "device": 1, "time_us": t} for s, t in (("START", 50), ("END", 90))]}
dump(snapshot, "many.pickle")
rows = list(csv.DictReader(io.StringIO(convert("--to", "csv", "many.pickle", "-").stdout.decode())))
assert len(rows) == sum(map(len, traces)) + 2
times = [int(row["time_ns"]) for row in rows]
assert times == sorted(times)
for device, trace in enumerate(traces):
    mine = [r for r in rows if int(r["device"]) == device and not r["kind"].startswith("mark")]
    assert [int(r["time_ns"]) for r in mine] == [e["time_us"] * 1000 for e in trace]
    assert [int(r["address"]) for r in mine] == [e.get("addr", 77) for e in trace]
marks = [r for r in rows if r["kind"].startswith("mark")]
assert [(r["kind"], r["tag"], r["device"]) for r in marks] == [("mark_begin", "step", "1"), ("mark_end", "step", "1")]
END

test_py old_fields_are_understood << 'END'
old = {"segments": [{"device": 0, "address": 4096, "total_size": 2048, "stream": 0, "segment_type": "small",
       "allocated_size": 512, "active_size": 512, "blocks": [
           {"size": 512, "state": "active_allocated", "history": [{"addr": 4096, "real_size": 100, "frames": [frame(3)]},
                                                                 {"addr": 4096, "real_size": 9, "frames": []}]},
           {"size": 1536, "state": "inactive"}]}], "device_traces": [[]]}
dump(old, "old.pickle")
assert summary("old.pickle")["unknown_fields"] == 0
blocks = back("old.pickle")["segments"][0]["blocks"]
assert [(b["address"], b["size"], b["requested_size"], b["state"]) for b in blocks] == [
    (4096, 512, 100, "active_allocated"), (4608, 1536, 0, "inactive")]
assert blocks[0]["frames"] == [frame(3)]
dump(old["segments"], "segments.pickle")  # torch.cuda.memory_snapshot()
assert back("segments.pickle")["segments"] == back("old.pickle")["segments"]
END

test_py new_fields_are_counted_and_passed_over << 'END'
new = load("one_spike.pickle.gz")
plain = summary(os.path.join(os.environ["DATA"], "one_spike.pickle.gz"))
for e in new["device_traces"][0]:
    e["pool_id"] = (0, 1)
    e["forward_frames"] = ["a", ["b", {"c": [1, 2]}]]
for s in new["segments"]:
    s["numa_node"] = None
new["host_segments"] = [dict(new["segments"][0])] * 1 + [dict(new["segments"][1], blocks=[])]
new["host_traces"] = [[entry("alloc", 1, 2, 3), entry("alloc", 2, 2, 4)]]
new["version"] = 2**200
dump(new, "new.pickle")
got = summary("new.pickle")
assert got["unknown_fields"] == 6, got
assert got["skipped_events"] == 2, got  # of host_traces
assert got["bad_values"] == 1, got  # host_segments shares a list of blocks with segments
for key in ("events", "events_by_kind", "segments", "blocks", "stacks"):
    assert got[key] == plain[key], key
END

test_py wrong_values_are_counted_and_the_rest_is_used << 'END'
trace = [entry("alloc", 512, 8, 1), entry("alloc", -1, 8, 2), entry("alloc", 512, "8", 3), entry("teleport", 1, 1, 4),
         entry("alloc", 1024, 8, 2**63), entry("free_completed", 999, 8, 6, frames=[frame(1), "x", frame(2)])]
dump({"segments": [{"total_size": -5, "blocks": []}], "device_traces": [trace]}, "wrong.pickle")
got = summary("wrong.pickle")
assert (got["events"], got["skipped_events"], got["segments"]) == (2, 4, 0), got
assert got["bad_values"] == 5, got
END

test_py a_pickle_that_would_run_code_does_not << 'END'
class Evil:
    def __reduce__(self):
        return os.system, ("touch ran",)
for protocol in (2, 4):
    dump({"segments": [Evil()]}, "evil.pickle", protocol)
    words = convert("evil.pickle", "out.stow", fails=True).stderr.decode()
    assert "would run code" in words and "byte" in words, words
    assert not os.path.exists("ran") and not os.path.exists("evil.stow")
END

test_py perfetto_and_csv_say_the_same_as_the_snapshot << 'END'
source = os.path.join(os.environ["DATA"], "gpt_varlen_limit36.5.pickle.gz")
trace = load("gpt_varlen_limit36.5.pickle.gz")["device_traces"][0]
live = peak = 0
for e in trace:
    live += {"alloc": e["size"], "free_completed": -e["size"]}.get(e["action"], 0)
    peak = max(peak, live)
convert(source, "trace.json")
events = json.load(open("trace.json"))["traceEvents"]
assert max(e["args"]["live_bytes"] for e in events if e["ph"] == "C") == peak
assert sum(e["ph"] == "B" for e in events) == sum(e["ph"] == "E" for e in events) == 42
convert(source, "trace.csv")
rows = list(csv.DictReader(open("trace.csv")))
assert [r["kind"] for r in rows if not r["kind"].startswith("mark")] == [e["action"] for e in trace]
END

test_py pftrace_has_every_allocation_with_its_call_stack << 'END'
# Our own reader: protobuf fields by number (perfetto/protos/trace). tests/long/perfetto.sh uses Perfetto's own definitions.
def fields(data):
    at = 0
    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        key = number()
        if key & 7 == 0:
            value = number()
        elif key & 7 == 1:
            value, at = struct.unpack_from("<Q", data, at)[0], at + 8
        else:
            assert key & 7 == 2, key
            length = number()
            value, at = data[at:at + length], at + length
        yield key >> 3, value
trace = load("leak.pickle.gz")["device_traces"][0]
convert(os.path.join(os.environ["DATA"], "leak.pickle.gz"), "leak.pftrace")
functions, frames, stacks, begun, ended, dumps = {}, {}, {}, [], 0, []
for one, packet in fields(open("leak.pftrace", "rb").read()):
    assert one == 1
    packet = list(fields(packet))
    for field, value in packet:
        if field == 12:
            for kind, item in fields(value):
                item = list(fields(item))
                if kind == 5: functions[item[0][1]] = item[1][1].decode()
                if kind == 6: frames[item[0][1]] = (functions[dict(item)[2]], dict(item).get(6))
                if kind == 7: stacks[item[0][1]] = [frames[v] for f, v in item if f == 2]
        if field == 11:
            event = dict(fields(value))
            notes = [dict(fields(v)) for f, v in fields(value) if f == 4]
            if 47 in event: begun.append((notes[1][7], notes[0][3], stacks[event[56]] if 56 in event else []))
            ended += 48 in event
        if field == 37:
            for sample in [dict(fields(v)) for f, v in fields(dict(fields(value))[5]) if f == 2]:
                dumps.append(sample[2] - sample[3])
wanted = [e for e in trace if e["action"] == "alloc"]
assert begun == [(e["addr"], e["size"], [(f["name"], f["line"]) for f in reversed(e.get("frames", []))]) for e in wanted]
assert ended == sum(e["action"] == "free_completed" for e in trace) and dumps
END

test_py tensorboard_reads_its_events << 'END'
# First our own reader: records with their masked CRC32C, then protobuf fields by number (tensorflow/core/util/event.proto,
# framework/summary.proto): Event {1 wall_time, 2 step, 3 file_version, 5 summary}, Summary {1 value}, Value {1 tag, 2 simple}.
table = []
for i in range(256):
    for _ in range(8):
        i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
    table.append(i)
def masked(data):
    c = 0xFFFFFFFF
    for byte in data:
        c = c >> 8 ^ table[(c ^ byte) & 255]
    c ^= 0xFFFFFFFF
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF
assert masked(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
def records(raw):
    at = 0
    while at < len(raw):
        length, crc = struct.unpack_from("<QI", raw, at)
        data = raw[at + 12:at + 12 + length]
        assert crc == masked(raw[at:at + 8]) and struct.unpack_from("<I", raw, at + 12 + length)[0] == masked(data)
        yield data
        at += 16 + length
def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at
def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind, start = key & 7, at
        if kind == 0: value, at = varint(data, at)
        elif kind == 1: value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif kind == 5: value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            assert kind == 2, key
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        assert at <= len(data)
        yield key >> 3, value
source = os.path.join(os.environ["DATA"], "oom_gpt_15gib_stacks.pickle.gz")
convert(source, "x.tfevents")
curves, steps, versions = {}, [], []
for record in records(open("x.tfevents", "rb").read()):
    event = dict(fields(record))
    assert set(event) <= {1, 2, 3, 5}, event
    versions += [event[3]] if 3 in event else []
    if 5 in event:
        steps.append(event.get(2, 0))
        for number, value in fields(event[5]):
            assert number == 1
            value = dict(fields(value))
            curves.setdefault(value[1].decode(), []).append(value[2])
assert versions == [b"brain.Event:2"]
assert len(steps) == 1764 and steps == sorted(steps), len(steps)
live, reserved = curves.pop("memory/device 0/live_bytes"), curves.pop("memory/device 0/reserved_bytes")
assert not curves and len(live) == len(reserved) == len(steps)
assert abs(max(live) / 2**30 - 14.85) < 0.01 and abs(max(reserved) / 2**30 - 14.955) < 0.01
# Then TensorBoard's own reader, if it is installed.
import importlib.util
if importlib.util.find_spec("tensorboard"):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    os.makedirs("logs")
    os.rename("x.tfevents", "logs/events.out.tfevents.1.x")
    seen = EventAccumulator("logs", size_guidance={"scalars": 0, "tensors": 0})
    seen.Reload()
    tags = seen.Tags()
    for name, wanted in (("memory/device 0/live_bytes", live), ("memory/device 0/reserved_bytes", reserved)):
        if name in tags["scalars"]:
            got = [(point.step, point.value) for point in seen.Scalars(name)]
        else: # newer ones turn scalars into tensors as they read
            got = [(point.step, point.tensor_proto.float_val[0]) for point in seen.Tensors(name)]
        assert got == list(zip(steps, wanted)), name
END
python3 -c 'import tensorboard' 2> /dev/null || skip "convert: tensorboard_reads_its_events by TensorBoard itself: it is not installed"

# PyTorch's own viewer, loaded from its file: importing the rest of PyTorch takes seconds and is not needed.
export VIEWER=
for python in python3 /usr/bin/python3; do
  [ -n "$VIEWER" ] || VIEWER=$("$python" -c 'if 1:
    import importlib.util, os
    torch = importlib.util.find_spec("torch")
    found = [os.path.join(path, "cuda/_memory_viz.py") for path in torch.submodule_search_locations] if torch else []
    print(*[path for path in found if os.path.exists(path)][:1])' 2> /dev/null)
done
if [ -z "$VIEWER" ]; then
  skip "convert: pytorchs_viewer_opens_what_is_written: no PyTorch with torch/cuda/_memory_viz.py is installed"
else
  test_py pytorchs_viewer_opens_what_is_written << 'END'
import importlib.util
spec = importlib.util.spec_from_file_location("viewer", os.environ["VIEWER"])
viewer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(viewer)
as_text = {"format_flamegraph": lambda lines: lines}
old = not hasattr(viewer, "segsum")  # before PyTorch 2.0: takes the list of segments
def bytes_of(lines):
    return sum(int(line.rsplit(" ", 1)[1]) for line in lines.splitlines())
for name in ("leak", "oom_gpt_15gib_stacks", "gpt_varlen_expandable", "cache_held"):
    convert(os.path.join(os.environ["DATA"], name + ".pickle.gz"), "trace.stow")
    snapshot = back("trace.stow")
    reserved = sum(segment["total_size"] for segment in snapshot["segments"])
    given = snapshot["segments"] if old else snapshot
    for view in (viewer.memory, viewer.segments):
        assert bytes_of(view(given, **as_text)) == reserved, name
    assert viewer.compare([], snapshot["segments"], **as_text).count("\n") > 0
    if old:
        assert viewer.stats(given)["total_size"].value == reserved
        continue
    assert f"segments: {len(snapshot['segments'])}\n" in viewer.segsum(snapshot)
    viewer.trace(snapshot)
    for plot in (viewer.trace_plot, viewer.segment_plot):
        assert "<html" in plot(snapshot).lower() or "<script" in plot(snapshot).lower()
END
fi

test_py segments_are_rebuilt_where_there_are_none << 'END'
open("log.csv", "w").write("Thread,Time,Action,Pointer,Size,Stream\n1,00:00:01,allocate,0x10000,1000,0\n"
                           "1,00:00:02,allocate,0x20000,5,3\n1,00:00:03,free,0x10000,1000,0\n")
snapshot = back("log.csv")
assert [(s["address"], s["total_size"], s["blocks"][0]["requested_size"]) for s in snapshot["segments"]] == [(0x20000, 512, 5)]
for name in ("leak", "gpt_varlen_expandable", "gpt_varlen_limit36.5"):
    original = load(name + ".pickle.gz")
    dump({"segments": [], "device_traces": original["device_traces"]}, "bare.pickle")
    def shape(value):
        return sorted((s["address"], s["total_size"], [(b["address"], b["state"]) for b in s["blocks"] if b["state"] != "inactive"])
                      for s in value["segments"])
    assert shape(back("bare.pickle")) == shape(original), name
END

test_py standard_streams_and_failures_leave_no_halves << 'END'
raw = open(os.path.join(os.environ["DATA"], "one_spike.pickle.gz"), "rb").read()
trace = convert("--to", "stow", "-", "-", stdin=raw).stdout
assert trace[:5] == b"\x89STOW"
assert len(convert("--to", "csv", "-", "-", stdin=trace).stdout.splitlines()) == 16
open("kept.stow", "wb").write(b"old")
convert("missing.pickle", "kept.stow", fails=True)
open("cut.pickle", "wb").write(gzip.decompress(raw)[:-9])
assert b"truncated" in convert("cut.pickle", "kept.stow", fails=True).stderr
assert open("kept.stow", "rb").read() == b"old"
assert not [f for f in os.listdir(".") if f.startswith("kept.stow.")]
convert("-", "-", fails=True)
assert b"--to" in convert("-", "out.unknown", fails=True, stdin=raw).stderr
END
finish
