"""Writes .stow traces from docs/trace-format.md alone, without the library: a test of the document.

    w = Writer(open("a.stow", "wb"))
    w.fact("source", "stow")
    w.event(ALLOC, time_ns, addr, size)
    w.event(LAUNCH, time_ns, first_addr, device_ns, tag=w.name("gemm"))
    w.close()
"""
import struct
import zlib

ALLOC, FREE_REQUESTED, FREE = 0, 1, 2
MARK_BEGIN, MARK_END = 9, 10
LAUNCH, TOUCH = 13, 14
FACTS, NAMES, EVENTS, END = 1, 2, 5, 8
CHUNK_EVENTS = 8192


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def signed(value):
    value &= (1 << 64) - 1
    if value >> 63:
        value -= 1 << 64
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def text(value):
    raw = value.encode()
    return varint(len(raw)) + raw


def runs(values):
    out, i = bytearray(), 0
    while i < len(values):
        n = i
        while n < len(values) and values[n] == values[i]:
            n += 1
        out += varint(values[i]) + varint(n - i)
        i = n
    return bytes(out)


class Writer:
    """Writes chunks uncompressed; `stowage convert` compresses them."""

    def __init__(self, file):
        self.file, self.sequence, self.events, self.event_count = file, 0, [], 0
        self.names, self.new_names, self.facts = {}, [], []
        head = b"\x89STOW\r\n\x1a" + struct.pack("<HH", 1, 16)
        file.write(head + struct.pack("<I", zlib.crc32(head)))

    def chunk(self, kind, payload):
        head = b"SCHK" + struct.pack("<HHIII", kind, 1, len(payload), len(payload), self.sequence)
        self.file.write(head + struct.pack("<I", zlib.crc32(payload, zlib.crc32(head))) + payload)
        self.sequence += 1

    def fact(self, key, value):
        self.facts.append((key, str(value)))

    def name(self, value):
        if value not in self.names:
            self.names[value] = len(self.names) + 1
            self.new_names.append(value)
        return self.names[value]

    def event(self, kind, time_ns, addr=0, size=0, tag=0):
        self.events.append((kind, time_ns, addr, size, tag))
        self.event_count += 1
        if len(self.events) == CHUNK_EVENTS:
            self.flush()

    def flush(self):
        if self.facts:
            self.chunk(FACTS, varint(1) + varint(len(self.facts)) + b"".join(text(k) + text(v) for k, v in self.facts))
        if self.new_names:
            first = len(self.names) - len(self.new_names) + 1
            self.chunk(NAMES, varint(first) + varint(len(self.new_names)) + b"".join(map(text, self.new_names)))
        if self.events:
            out = bytearray(varint(self.event_count - len(self.events) + 1) + varint(len(self.events)))
            out += bytes(e[0] for e in self.events)
            for column in (1, 2):
                before = 0
                for e in self.events:
                    out += signed(e[column] - before)
                    before = e[column]
            for e in self.events:
                out += varint(e[3])
            zero = [0] * len(self.events)
            for column in (zero, zero, [e[4] for e in self.events], zero, zero, zero):
                out += runs(column)  # stream, stack, tag, thread, device, tier
            self.chunk(EVENTS, bytes(out))
        self.facts, self.new_names, self.events = [], [], []

    def close(self):
        self.flush()
        self.chunk(END, varint(self.event_count) + varint(0))
        self.file.close()
