"""perfetto_check.py TRACE SNAPSHOT: parses a .pftrace with the protobuf definitions of PyPI's package perfetto, and compares every
allocation, free, counter, call stack and heap profile with the PyTorch snapshot it was made from."""
import collections
import gzip
import pickle
import sys

from google.protobuf.message import Message
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto


def unknown(message, path="Trace"):
    """Yields the names of fields that the definitions do not have: a round trip through known fields keeps the size."""
    copy = type(message)()
    copy.CopyFrom(message)
    before = message.ByteSize()
    copy.DiscardUnknownFields()
    if copy.ByteSize() != before:
        for field, value in message.ListFields():
            for part in value if isinstance(value, collections.abc.Sequence) and not isinstance(value, (str, bytes)) else [value]:
                if isinstance(part, Message):
                    unknown(part, f"{path}.{field.name}")
        raise SystemExit(f"unknown fields in {path}")


trace = proto.Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())
with gzip.open(sys.argv[2]) as file:
    events = pickle.load(file)["device_traces"][0]  # our own recording
unknown(trace)

strings, paths, frames, stacks, names, annotations = {}, {}, {}, {}, {}, {}
tracks, counters, begun, ended, dumps, slices = {}, collections.defaultdict(list), [], [], [], collections.Counter()
assert trace.packet[0].sequence_flags & 1, "the first packet does not clear the state"
for packet in trace.packet:
    assert packet.trusted_packet_sequence_id == 1
    data = packet.interned_data
    strings.update((s.iid, s.str.decode()) for s in data.function_names)
    paths.update((s.iid, s.str.decode()) for s in data.source_paths)
    names.update((n.iid, n.name) for n in data.event_names)
    annotations.update((n.iid, n.name) for n in data.debug_annotation_names)
    frames.update((f.iid, (strings[f.function_name_id], paths[f.source_path_iid], f.line_number)) for f in data.frames)
    stacks.update((s.iid, [frames[i] for i in s.frame_ids]) for s in data.callstacks)
    if packet.HasField("track_descriptor"):
        tracks[packet.track_descriptor.uuid] = packet.track_descriptor
    if packet.HasField("profile_packet"):
        dumps += list(packet.profile_packet.process_dumps)
    if not packet.HasField("track_event"):
        continue
    event = packet.track_event
    track = tracks[event.track_uuid]
    values = {annotations[a.name_iid]: a.pointer_value if a.HasField("pointer_value") else a.uint_value for a in event.debug_annotations}
    if event.type == proto.TrackEvent.TYPE_COUNTER:
        assert track.counter.unit == proto.CounterDescriptor.UNIT_SIZE_BYTES
        counters[track.name].append(event.counter_value)
    elif track.name == "allocations" and event.flow_ids:
        begun.append((values["address"], values["bytes"], stacks[event.callstack_iid] if event.callstack_iid else [], names[event.name_iid], event.flow_ids[0]))
    elif track.name == "allocations":
        ended.append((values["address"], values["bytes"], list(event.terminating_flow_ids)))
    else:
        slices[event.type, names.get(event.name_iid, "")] += 1

wanted = [e for e in events if e["action"] == "alloc"]
assert len(begun) == len(wanted), (len(begun), len(wanted))
for (address, size, stack, name, _), e in zip(begun, wanted):
    assert (address, size) == (e["addr"], e["size"]), (address, size, e)
    assert stack == [(f["name"], f["filename"], f["line"]) for f in reversed(e.get("frames", []))], (stack, e)
    assert not stack or any(name.startswith(f[0] + " ") or name == f[0] for f in stack), (name, stack)
assert [(a, s) for a, s, _ in ended] == [(e["addr"], e["size"]) for e in events if e["action"] == "free_completed"]
flows = {flow for *_, flow in begun}
assert all(set(f) <= flows for *_, f in ended) and len(flows) == len(begun)
live = peak = 0
for e in events:
    live += {"alloc": e["size"], "free_completed": -e["size"]}.get(e["action"], 0)
    peak = max(peak, live)
assert max(counters["live bytes"]) == peak, (max(counters["live bytes"]), peak)
held = [sum(s.self_allocated - s.self_freed for s in d.samples) for d in dumps]
assert len(held) == 2 and max(held) == held[0] and all(s.callstack_id in stacks for d in dumps for s in d.samples), held
failures = sum(e["action"] == "oom" for e in events)
assert slices[proto.TrackEvent.TYPE_INSTANT, "out of memory"] == failures, slices
print(f"{len(trace.packet)} packets, {len(begun)} allocations, {len(stacks)} stacks, {failures} failures")
