"""stowage.tune with real steps on simulated GPUs: the batch it picks beside the largest that runs, and steps that fail later.

usage: tune_simulated.py [FIRST [LAST]]     5 programs for each seed from FIRST to LAST, 0 to 7 unless given

"largest": bisected, each time a fresh process that does 100 steps of varying length. "longest_only": bisected over three steps with the
longest input. The batch that tune picks then does 100 steps with other lengths, in a fresh process again.

The allocator rounds, splits, joins and caches blocks as CUDACachingAllocator does, and returns cached segments before it fails. A program
is a model in outline: weights, activations that the backward pass frees in reverse order, temporaries, and the state of an optimizer.
"""

import bisect
import contextlib
import random
import sys

import stowage

MIB = 1 << 20
GIB = 1 << 30


class SimulatedOut(RuntimeError):
    pass


class _Segment:
    __slots__ = ("size", "free", "ends", "small")

    def __init__(self, size, small):
        self.size, self.small = size, small
        self.free, self.ends = {}, {}  # offset: bytes, end: offset of free blocks; neighbours are joined


class Allocator:
    """Segments of 2 MiB for small blocks, 20 MiB below 10 MiB, multiples of 2 MiB above; the smallest free block that is large enough."""

    def __init__(self, limit):
        self.limit, self.reserved, self.peak = limit, 0, 0
        self._segments, self._free = set(), {True: [], False: []}  # (bytes, number, segment, offset), sorted
        self._numbers, self.requests = {}, []  # (address, bytes as requested), 0 bytes: freed

    def _add(self, segment, offset, size):
        bisect.insort(self._free[segment.small], (size, self._numbers[segment], offset, segment), key=lambda one: one[:3])
        segment.free[offset], segment.ends[offset + size] = size, offset

    def _take(self, segment, offset):
        size = segment.free.pop(offset)
        del segment.ends[offset + size]
        pool = self._free[segment.small]
        at = bisect.bisect_left(pool, (size, self._numbers[segment], offset), key=lambda one: one[:3])
        del pool[at]
        return size

    def alloc(self, size):
        asked, size = size, max(512, -(-size // 512) * 512)
        small = size <= MIB
        pool = self._free[small]
        at = bisect.bisect_left(pool, (size, -1, -1), key=lambda one: one[:3])
        if at == len(pool):
            wanted = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            if self.reserved + wanted > self.limit:
                self.empty()
            if self.reserved + wanted > self.limit:
                raise SimulatedOut("CUDA out of memory (simulated)")
            segment = _Segment(wanted, small)
            self._segments.add(segment)
            self._numbers[segment] = len(self._numbers)
            self.reserved += wanted
            self.peak = max(self.peak, self.reserved)
            self._add(segment, 0, wanted)
            at = bisect.bisect_left(pool, (size, -1, -1), key=lambda one: one[:3])
        _, _, offset, segment = pool[at]
        there = self._take(segment, offset)
        if there - size >= (512 if small else MIB + 1):
            self._add(segment, offset + size, there - size)
        else:
            size = there
        self.requests.append((self.address(segment, offset), asked))
        return segment, offset, size, asked

    def address(self, segment, offset):
        return self._numbers[segment] << 40 | offset

    def free(self, block):
        segment, offset, size, _ = block
        self.requests.append((self.address(segment, offset), 0))
        after = segment.free.get(offset + size)
        if after is not None:
            self._take(segment, offset + size)
            size += after
        before = segment.ends.get(offset)
        if before is not None:
            size += self._take(segment, before)
            offset = before
        self._add(segment, offset, size)

    def empty(self):
        """Returns cached segments that no block uses, as empty_cache() does."""
        for segment in [one for one in self._segments if one.free.get(0) == one.size]:
            self._take(segment, 0)
            self._segments.discard(segment)
            self.reserved -= segment.size

    def held(self):
        """Returns the blocks that are allocated: (address, bytes as requested, stream)."""
        live = {}
        for address, size in self.requests:
            if size:
                live[address] = size
            else:
                del live[address]
        return [(address, live[address], 0) for address in sorted(live)]

    @contextlib.contextmanager
    def recording(self):
        """Yields a list that has the requests made inside the `with` once it ends; 0 bytes: freed."""
        found, before = [], len(self.requests)
        try:
            yield found
        finally:
            found += [(address, size, 0) for address, size in self.requests[before:]]


class Metered:
    """What tune's meter offers, of a program whose `memory` is an Allocator."""

    def is_out(self, error):
        return isinstance(error, SimulatedOut)

    def clear(self):
        self.memory.empty()

    def reserved(self):
        return self.memory.reserved

    def gather(self, size):
        try:
            self.memory.free(self.memory.alloc(size))
        except SimulatedOut:
            return False
        return True

    @contextlib.contextmanager
    def limited(self, limit_bytes):
        before, self.memory.limit = self.memory.limit, min(self.memory.limit, limit_bytes)
        try:
            yield
        finally:
            self.memory.limit = before

    def peak(self, run):
        self.memory.peak = self.memory.reserved
        run()
        return self.memory.peak

    def held(self):
        return self.memory.held()

    def recording(self):
        return self.memory.recording()


class Program(Metered):
    """A model on a simulated device; also the meter that tune reads. `step(n)` runs with the longest input."""

    def __init__(self, seed, kind):
        draw = random.Random(f"{kind} {seed}")
        self.kind, self.total = kind, draw.choice([4, 6, 8, 11, 16, 24]) * GIB
        self.layers, self.longest = draw.randrange(4, 40), draw.choice([128, 256, 384, 512, 777, 1024])
        heavy = {"weights": draw.uniform(0.5, 0.8), "activations": draw.uniform(0.02, 0.1)}.get(kind, draw.uniform(0.05, 0.5))
        self.weights = [max(1024, int(heavy * self.total / 4 / self.layers * draw.uniform(0.5, 1.5))) for _ in range(self.layers)]
        target = draw.randrange(3, 200) if kind != "weights" else draw.randrange(2, 40)  # samples, about
        sample = (1 - heavy) * self.total / target
        parts = [draw.uniform(0.2, 2) for _ in range(self.layers * 3)]
        scale = sample / sum(parts) / self.longest
        self.parts = [max(0.25, part * scale) for part in parts]  # bytes per sample and token
        self.squares = draw.uniform(0, 0.6) * scale / self.longest if kind == "lengths" else 0.0  # grows with the square of the length
        self.temporary = draw.choice([0.3, 1.0, 2.5])
        self.evaluates = kind == "evaluation"
        self.odd = draw.randrange(1, 64) * 1000 if kind == "fragments" else 0
        self.seed = seed
        self.start()

    def start(self):
        """A fresh process: nothing is allocated but the weights."""
        self.memory, self.state, self.steps = Allocator(self.total), None, 0
        self.kept = [self.memory.alloc(size) for size in self.weights]
        self.fraction = self.total

    def _sizes(self, n, length):
        for at, part in enumerate(self.parts):
            size = int(n * length * (part + self.squares * length * (at % 3 == 0)))
            yield size + (self.odd * (at % 5) * n if self.odd else 0)

    def run(self, n, length):
        """A training step. What it holds is freed if it fails, as by the end of an exception."""
        memory, live, held = self.memory, [], []
        try:
            for at, size in enumerate(self._sizes(n, length)):
                if at % 4 == 1:
                    held.append(memory.alloc(int(size * self.temporary) + 1))
                live.append(memory.alloc(size))
                while held:
                    memory.free(held.pop())
            for at in range(len(live)):
                gradient = memory.alloc(max(1, live[-1][3]))
                memory.free(live.pop())
                memory.free(gradient)
                if at % 3 == 2:
                    held.append(memory.alloc(self.weights[len(held)]))
            if self.state is None:
                made = []
                self.state = made
                for size in self.weights:
                    made += [memory.alloc(size), memory.alloc(size)]
        except SimulatedOut:
            if self.state is not None and len(self.state) < 2 * len(self.weights):
                held, self.state = held + self.state, None
            raise
        finally:
            for one in live + held:
                memory.free(one)

    def step(self, n):
        self.steps += 1
        self.run(n, self.longest)

    def evaluate(self, n):
        """A longer input without gradients: two activations at a time."""
        before = None
        try:
            for size in self._sizes(n, self.longest * 3):
                now = self.memory.alloc(size)
                if before is not None:
                    self.memory.free(before)
                before = now
        finally:
            if before is not None:
                self.memory.free(before)

    def all_of(self, n):
        """One training step, and an evaluation if the program has one."""
        self.step(n)
        if self.evaluates:
            self.evaluate(n)

    # ---- what the meter offers ----

    def name(self):
        return f"simulated {self.kind}"

    def available(self):
        return min(self.total, self.fraction)

    # ---- the truth ----

    def runs(self, n):
        """Returns True if a fresh process does three steps of n samples, all with the longest input."""
        self.start()
        try:
            for _ in range(3):
                self.all_of(n)
        except SimulatedOut:
            return False
        return True

    def failures(self, n, name, steps=100):
        """Returns how many of the first `steps` steps of a fresh process fail: other lengths, and batches that are not full."""
        failed, draw = 0, random.Random(f"{name} {self.kind} {self.seed}")
        self.start()
        for at in range(steps):
            full = at < 2 or draw.random() < 0.3
            length = self.longest if full else draw.randrange(max(1, self.longest // 4), self.longest + 1)
            try:
                self.run(n if draw.random() < 0.9 else max(1, draw.randrange(n + 1)), length)
                if self.evaluates and at % 10 == 0:
                    self.evaluate(n)
            except SimulatedOut:
                failed += 1
        return failed


def largest(runs, near=0):
    """Returns the largest batch with which a fresh process runs, by bisection that begins at `near`; 0 if none."""
    good, bad = 0, max(1, near)
    while runs(bad):
        good, bad = bad, max(bad + 2, bad * 9 // 8 if near else 2 * bad)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if runs(middle) else (good, middle)
    return good


KINDS = ("weights", "activations", "evaluation", "lengths", "fragments")


def near(found, best):
    return best - found <= 1 or found >= 0.95 * best


def main():
    first, last = (*map(int, sys.argv[1:3]), 0, 7)[:2] if len(sys.argv) > 2 else (0, 7)
    programs = close = close_longest = failing = most_steps = 0
    for seed in range(first, last + 1):
        for kind in KINDS:
            program = Program(seed, kind)
            longest = largest(program.runs)
            best = largest(lambda n: program.failures(n, "bisected") == 0)  # noqa: B023
            if best == 0:
                continue
            program.start()
            named = {"evaluate": program.evaluate} if program.evaluates else {}
            found = stowage.tune(program.step, batch=2, meter=program, **named).largest_batch or 0
            steps = program.steps
            failed = program.failures(found, "later") if found else 0
            programs, close, close_longest = programs + 1, close + near(found, best), close_longest + near(found, longest)
            failing, most_steps = failing + (failed > 0), max(most_steps, steps)
            print(
                f"{kind} seed {seed}, {program.total >> 30} GiB: picked {found} largest {best} short {100 * (1 - found / best):.1f}%"
                f" longest_only {longest} short {100 * (1 - found / longest):.1f}% failed {failed}/100 steps {steps}",
                flush=True,
            )
    print(
        f"case=tune_simulated programs={programs} within_5%_or_one={close} of_longest_only={close_longest} with_failed_steps={failing} steps_most={most_steps}"
    )


if __name__ == "__main__":
    main()
