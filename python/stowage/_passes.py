"""Passes of a program recorded at a few batch sizes, and replayed at any other.

A pass is one training step or one evaluation: the blocks it requests and frees, in order. A program requests the same blocks at every
batch size; only their bytes change. So each block gets a line through the recorded sizes (a parabola where a line misses), and a whole
run of the program at another batch, beginning with a fresh process, goes through the exact replay of PyTorch's allocator.
"""

from __future__ import annotations

import random
import struct
from typing import AbstractSet, Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from . import _analysis

FIRST, STEP, EVALUATION = "first", "step", "evaluation"  #: kinds of passes; the first step makes the optimizer's state

_ALLOC, _FREE, _OLD = 0, 1, 2  # an event allocates a block, frees one of this pass, or frees one of an earlier pass
_HELD = -1  # the "pass" of blocks that were there before the first one

_RUN, _LOOK = 4, 48  # matching: so many blocks in a row show that two passes agree again; how far ahead to look for them
_CLOSE = 1024  # bytes by which blocks of the same request may differ

#: Runs that are replayed for a batch, and the steps of each. Lengths and batches vary, which divides the cache differently each time; a
#: division that makes steps fail can come late. Programs with many requests in a step get fewer steps.
_RUNS, _STEPS_LEAST, _STEPS_MOST, _REQUESTS_MOST = 24, 24, 100, 1_000_000
_RUNS_HERE, _STEPS_HERE = 4, 24  # the same as the next steps of this process
_GATHERED = (0.0, 15 / 16, 7 / 8, 3 / 4, 1 / 2)  # parts of the unreserved memory that one segment takes before them
_FULL = 0.35  # share of the steps that are as large as the batch
_SMALL, _LEAST = 0.15, 0.2  # share of the steps that are smaller than this part of the batch, as the last one of an epoch can be
_EVALUATES = (1, 4, 10)  # steps for each evaluation
_MORE = 0.005  # by which two thirds of the runs have a larger batch: which of two equal blocks is taken depends on addresses, which differ
_FINE = 0.88  # from this part of the largest batch of which two steps fit, sizes are asked one by one, or in steps of 1%

_RECORD = struct.Struct("=QQQIIHBBI")  # stow_trace_record
_RECORD_ALLOC, _RECORD_FREE = 0, 2
_MIX = 0x85EBCA6B  # spreads the bits of a number
_OPTIONAL_LEAST = 1 << 20  # bytes of a workspace that a kernel may do without, at least

#: A request: (address, bytes, stream); bytes is 0 if it frees the block at that address, the address 0 if the request failed.
Request = Tuple[int, int, int]

#: Passes, one after the other: (kind, batch of most blocks, batch of the others). A batch that is not whole stands for a shorter input. Some
#: blocks grow with the square of the length or in steps; which ones is not known, so in some runs any quarter does, the same in all passes.
#: In a program whose steps differ at the same batch, any half does, another one in each pass, and in every second run.
Run = List[Tuple[str, float, float]]


class Pass(NamedTuple):
    """One recorded pass."""

    kind: str
    batch: int
    sizes: "List[int]"  # bytes of each block, in the order of allocation
    streams: "List[int]"
    events: "List[Tuple[int, Any]]"  # (_ALLOC or _FREE, block), (_OLD, (pass, block))


class Passes:
    """What was recorded so far. `held` are the blocks that live before the first pass, in the order of their addresses."""

    def __init__(self, held: "Iterable[Request]") -> None:
        self._held: "List[Tuple[int, int]]" = []
        self._live: "Dict[int, Tuple[int, int]]" = {}
        self.list: "List[Pass]" = []
        self._gathered: "Dict[int, int]" = {}  # passes: bytes of the segment that was reserved before it
        self._past_of, self._past_is = -1, (b"", 0, {})  # type: int, Tuple[bytes, int, Dict[Any, Tuple[int, int, int]]]
        self._places: "List[Dict[int, Any]]" = []  # of each pass: block -> role
        for address, size, stream in held:
            self._live[address] = (_HELD, len(self._held))
            self._held.append((size, stream))
        self._forms: "Dict[str, _Form]" = {}
        self._regular: "Optional[bool]" = None
        self.declines = False  #: a request failed and its pass went on, as a convolution does with a smaller workspace

    def add(self, kind: str, batch: int, requests: "Iterable[Request]", whole: bool = True) -> None:
        """Adds a pass. One that failed is not `whole`: only what it leaves behind counts."""
        made = Pass(kind, batch, [], [], [])
        number = len(self.list)
        for address, size, stream in requests:
            if address == 0:
                self.declines |= whole
            elif size > 0:
                self._live[address] = (number, len(made.sizes))
                made.events.append((_ALLOC, len(made.sizes)))
                made.sizes.append(size)
                made.streams.append(stream)
            elif address in self._live:
                owner = self._live.pop(address)
                made.events.append((_FREE, owner[1]) if owner[0] == number else (_OLD, owner))
        self.list.append(made if whole else made._replace(kind="failed"))
        self._forms, self._past_of, self._regular = {}, -1, None

    def between(self, held: "Iterable[Request]", gathered: int) -> None:
        """Notes what is still allocated before the next pass, and the bytes of the segment that was reserved for it."""
        there = {address for address, _, _ in held}
        for address in [one for one in self._live if one not in there]:  # freed between passes, as by the end of an exception
            owner = self._live.pop(address)
            if self.list:
                self.list[-1].events.append((_FREE, owner[1]) if owner[0] == len(self.list) - 1 else (_OLD, owner))
        self._gathered[len(self.list)] = gathered
        self._forms, self._past_of, self._regular = {}, -1, None

    def count(self) -> int:
        """Returns the requests of a step."""
        return len(self._form(STEP).events)

    def regular(self) -> bool:
        """Returns True if the steps with the same batch requested the same number of blocks."""
        if self._regular is None:
            counts: "Dict[int, int]" = {}
            self._regular = all(counts.setdefault(one.batch, len(one.sizes)) == len(one.sizes) for one in self.list if one.kind == STEP)
        return self._regular

    def _form(self, kind: str) -> "_Form":
        if not self._forms:
            self._forms = _forms(self.list, self._places)
        return self._forms[kind]

    @staticmethod
    def _free_segment(number: int, size: int) -> "List[bytes]":
        return [_RECORD.pack(number, size, 0, 0, 0, 0, kind, 0, 0) for kind in (_RECORD_ALLOC, _RECORD_FREE)] if size > 0 else []

    def _past(self) -> "Tuple[bytes, int, Dict[Any, Tuple[int, int, int]]]":
        """Returns the requests of this process so far, the last number used, and what is live: by role, else by pass and block."""
        if self._past_of != len(self.list):
            self._form(STEP)
            pack, out, number = _RECORD.pack, [], 0
            live: "Dict[Any, Tuple[int, int, int]]" = {}
            for at, (size, stream) in enumerate(self._held):
                number += 512
                live[(_HELD, at)] = one = (number, size, stream)
                out.append(pack(*one, 0, 0, 0, _RECORD_ALLOC, 0, 0))
            for at, made in enumerate(self.list):
                number += 512
                out += self._free_segment(number, self._gathered.get(at, 0))
                for what, block in made.events:
                    if what == _ALLOC:
                        number += 512
                        live[(at, block)] = one = (number, made.sizes[block], made.streams[block])
                        out.append(pack(*one, 0, 0, 0, _RECORD_ALLOC, 0, 0))
                    else:
                        out.append(pack(*live.pop((at, block) if what == _FREE else block), 0, 0, 0, _RECORD_FREE, 0, 0))
            named = {self._places[at].get(block, (at, block)) if at != _HELD else (at, block): one for (at, block), one in live.items()}
            self._past_of, self._past_is = len(self.list), (b"".join(out), number, named)
        return self._past_is

    def requests(self, run: "Run", salt: int = 0, here: "Optional[int]" = None) -> bytes:
        """Returns the requests of a process that does this run, as an array of stow_trace_record: of a fresh one, or (`here`) of this one
        with what it did before and a free segment of so many bytes. `salt` chooses the quarter of the blocks that have the other size."""
        pack, out, number = _RECORD.pack, [], 0
        kept: "Dict[Any, Tuple[int, int, int]]" = {}  # (kind, block) or (_HELD, block): what an earlier pass left behind
        if here is not None:
            past, number, named = self._past()
            kept.update(named)
            out += [past, *self._free_segment(number + 512, here)]
            number += 512
        else:
            for at, (size, stream) in enumerate(self._held):
                number += 512
                out.append(pack(number, size, stream, 0, 0, 0, _RECORD_ALLOC, 0, 0))
                kept[(_HELD, at)] = (number, size, stream)
        for kind, batch, other in run:
            form = self._form(kind)
            sizes, streams = form.sizes(batch), form.streams
            if other != batch:
                mask, mixed = (3, salt) if self.regular() else (1, int(other * 4096) * _MIX)
                sizes = [b if (at * 0x9E3779B1 ^ mixed) >> 16 & mask == 0 else a for at, (a, b) in enumerate(zip(sizes, form.sizes(other)))]
            mine: "List[Optional[Tuple[int, int, int]]]" = [None] * len(sizes)
            optional = form.workspaces() if self.declines else frozenset()
            for what, block in form.events:
                if what != _OLD and block in optional and sizes[block] >= _OPTIONAL_LEAST:
                    continue
                if what == _ALLOC:
                    number += 512
                    mine[block] = one = (number, sizes[block], streams[block])
                    out.append(pack(*one, 0, 0, 0, _RECORD_ALLOC, 0, 0))
                else:
                    gone = mine[block] if what == _FREE else kept.pop(block, None)
                    if what == _FREE:
                        mine[block] = None
                    if gone is not None:
                        out.append(pack(*gone, 0, 0, 0, _RECORD_FREE, 0, 0))
            for block, left in enumerate(mine):
                if left is None:
                    continue
                role = form.roles[block]
                gone = left
                if role in form.carried:
                    gone, kept[role] = kept.get(role), left  # the one before is replaced
                elif kind == FIRST:
                    continue  # the optimizer's state, workspaces: stays
                if gone is not None:
                    out.append(pack(*gone, 0, 0, 0, _RECORD_FREE, 0, 0))
        return b"".join(out)


class _Form:
    """The passes of one kind: the events of the one with the largest batch, and each block's bytes by batch."""

    def __init__(self, of: Pass, number: int) -> None:
        self.streams, self.events, self.number = of.streams, of.events, number
        self.points: "List[Dict[int, int]]" = [{of.batch: size} for size in of.sizes]
        self.roles: "List[Tuple[str, int]]" = [(of.kind, block) for block in range(len(of.sizes))]
        self.carried: "set[Any]" = set()  # roles that a later pass frees
        self.constant: "set[int]" = set()  # blocks that do not depend on the batch
        self._lines: "List[Any]" = []
        self._workspaces: "Optional[AbstractSet[int]]" = None

    def workspaces(self) -> "AbstractSet[int]":
        """Returns the blocks that are freed before anything else is requested: only one kernel uses them."""
        if self._workspaces is None:
            self._workspaces = {a[1] for a, b in zip(self.events, self.events[1:]) if a[0] == _ALLOC and b == (_FREE, a[1])}
        return self._workspaces

    def sizes(self, batch: float) -> "List[int]":
        if not self._lines:
            self._lines = [_line(points) if at not in self.constant else (max(points.values()), 0.0) for at, points in enumerate(self.points)]
        return [
            max(1, int(one[0] + one[1] * batch + 0.5)) if type(one) is tuple else max(1, int(_between(one, batch) + 0.5)) for one in self._lines
        ]


def _forms(passes: "List[Pass]", places: "List[Dict[int, Any]]") -> "Dict[str, _Form]":
    """Returns the form of each kind, and in `places` the role of each block of each pass."""
    forms: "Dict[str, _Form]" = {}
    places[:] = [{} for _ in passes]
    for kind in (STEP, EVALUATION):
        numbers = [at for at, one in enumerate(passes) if one.kind == kind]
        if not numbers:
            continue
        largest = max(numbers, key=lambda at: (passes[at].batch, at))
        form = forms[kind] = _Form(passes[largest], largest)
        places[largest] = dict(enumerate(form.roles))
        for at in numbers:
            if at == largest:
                continue
            one = passes[at]
            for block, same in enumerate(_same_blocks(one, passes[largest])):
                if same >= 0:
                    form.points[block].setdefault(one.batch, one.sizes[same])
                    places[at][same] = form.roles[block]
    for number, first in enumerate(passes):
        if first.kind == FIRST:
            forms[FIRST] = form = _Form(first, number)
            _join_first(form, first, forms.get(STEP), passes, places)
            places[number] = dict(enumerate(form.roles))
    carried = set()
    for form in forms.values():
        events: "List[Tuple[int, Any]]" = []
        for what, named in form.events:
            if what == _OLD:
                owner, old = named
                role = (_HELD, old) if owner == _HELD else places[owner].get(old)
                if role is None:
                    continue
                carried.add(role)
                events.append((_OLD, role))
            else:
                events.append((what, named))
        form.events = events
    for form in forms.values():
        form.carried = carried
    return forms


def _join_first(form: _Form, first: Pass, step: "Optional[_Form]", passes: "List[Pass]", places: "List[Dict[int, Any]]") -> None:
    """Gives the blocks of the first step the bytes of the same blocks in later ones. What only it has does not depend on the batch."""
    form.constant = set(range(len(first.sizes)))
    if step is None:
        return
    nearest = min((at for at, one in enumerate(passes) if one.kind == STEP), key=lambda at: abs(passes[at].batch - first.batch))
    later = passes[nearest]
    ratio = later.batch / first.batch
    for block, same in enumerate(_same_blocks(first, later) if ratio >= 1 else _same_blocks(later, first)):
        mine, other = (same, block) if ratio >= 1 else (block, same)
        role = places[nearest].get(other)
        if mine >= 0 and other >= 0 and role is not None:
            form.constant.discard(mine)
            form.points[mine] = step.points[role[1]]
            form.roles[mine] = role


def _same_blocks(few: Pass, many: Pass) -> "List[int]":
    """Returns for each block of `many`, which has the larger batch, the same block of `few`, or -1. Kernels request more or fewer temporary
    blocks at another batch. What passes leave behind, as gradients, shows where they agree."""
    ratio, kept = many.batch / few.batch, [[-1, *_kept(one), len(one.sizes)] for one in (few, many)]
    if len(kept[0]) != len(kept[1]):
        return matched(few.sizes, many.sizes, ratio, set(kept[0]), set(kept[1]))
    found = [-1] * len(many.sizes)
    for a, a_end, b, b_end in zip(kept[0], kept[0][1:], kept[1], kept[1][1:]):
        for at, same in enumerate(matched(few.sizes[a + 1:a_end], many.sizes[b + 1:b_end], ratio), b + 1):
            found[at] = a + 1 + same if same >= 0 else -1
        if b >= 0:
            found[b] = a
    return found


def _kept(one: Pass) -> "List[int]":
    """Returns the blocks that a pass leaves behind."""
    freed = {block for what, block in one.events if what == _FREE}
    return [block for block in range(len(one.sizes)) if block not in freed]


def matched(
    few: "List[int]", many: "List[int]", ratio: float, few_kept: "AbstractSet[int]" = frozenset(), many_kept: "AbstractSet[int]" = frozenset()
) -> "List[int]":
    """Returns for each block of `many` the same block of `few`, or -1. `many` was recorded with a batch `ratio` times as large. A block that
    is kept is not the same as one that is not.

    >>> matched([100, 7000, 100], [100, 14000, 100], 2)
    [0, 1, 2]
    >>> matched([9000] * 8, [9000] * 4 + [500] + [9000] * 4, 1)
    [0, 1, 2, 3, -1, 4, 5, 6, 7]
    """
    if len(few) == len(many):
        return [at if (at in few_kept) == (at in many_kept) else -1 for at in range(len(many))]
    most = ratio * ratio

    def same(a: int, b: int) -> bool:
        return (a in few_kept) == (b in many_kept) and few[a] <= many[b] + _CLOSE and many[b] <= few[a] * most + _CLOSE

    def again(a: int, b: int) -> "Optional[Tuple[int, int]]":
        """Returns the nearest places from which both agree."""
        for skipped in range(1, 2 * _LOOK):
            for i in range(skipped + 1):
                x, y = a + i, b + skipped - i
                count = min(_RUN, len(few) - x, len(many) - y)
                if count > 0 and all(same(x + k, y + k) for k in range(count)):
                    return x, y
        return None

    found, a, b = [-1] * len(many), 0, 0
    while a < len(few) and b < len(many):
        if same(a, b):
            found[b] = a
            a, b = a + 1, b + 1
            continue
        place = again(a, b)
        if place is None:
            break
        a, b = place
    return found


def _line(points: "Dict[int, int]") -> Any:
    """Returns (bytes that stay, bytes per sample) if the points are on a line, else the sorted points."""
    known = sorted(points.items())
    if len(known) == 1:
        return known
    (a, low), (b, high) = known[0], known[-1]
    slope = (high - low) / (b - a)
    if all(abs(low + slope * (x - a) - size) <= _CLOSE for x, size in known[1:-1]):
        return (low - slope * a, slope)
    return known


def _between(known: "List[Tuple[int, int]]", batch: float) -> float:
    """Returns the bytes at `batch` from points that are not on a line.

    >>> [_between([(1, 10), (2, 40), (4, 160)], batch) for batch in (3, 6)]
    [100.0, 360.0]
    >>> _between([(4, 100)], 8), _between([(4, 100)], 2)
    (200.0, 100.0)
    """
    if len(known) == 1:
        return max(1.0, batch / known[0][0]) * known[0][1]
    if batch > known[-1][0] and len(known) >= 3:
        (x0, y0), (x1, y1), (x2, y2) = known[-3:]
        first = (y1 - y0) / (x1 - x0)
        bend = ((y2 - y1) / (x2 - x1) - first) / (x2 - x0)
        return max(y0 + first * (batch - x0) + bend * (batch - x0) * (batch - x1), float(y2))
    at = 1
    while at < len(known) - 1 and known[at][0] < batch:
        at += 1
    (a, low), (b, high) = known[at - 1], known[at]
    return low + (high - low) / (b - a) * (batch - a)


# ---- replaying ----


class Replayed:
    """Answers for any batch from the passes that were recorded. `settings` are those of PYTORCH_ALLOC_CONF."""

    def __init__(self, passes: Passes, settings: "Optional[str]") -> None:
        self.passes, self._settings = passes, settings
        self._known: "Dict[int, bool]" = {}
        self._for: Any = None

    def _changed(self, limits: "Tuple[int, ...]") -> None:
        """Forgets the answers if they were for other limits or for fewer passes."""
        if self._for != (len(self.passes.list), limits):
            self._known, self._for = {}, (len(self.passes.list), limits)

    def fits(self, batch: int, limits: "Tuple[int, ...]") -> bool:
        """Returns True if a fresh process with this batch finishes under these limits, with inputs and batches that vary.

        A run can fail under one limit and finish under a smaller one, where the cache is returned to the driver earlier.
        """
        self._changed(limits)
        if batch not in self._known:
            each = max(1, self.passes.count())
            steps = max(_STEPS_LEAST, min(_STEPS_MOST, _REQUESTS_MOST // _RUNS // each))
            self._known[batch] = all(self._finishes(batch, seed, steps, limits[seed % len(limits)]) for seed in range(_RUNS))
        return self._known[batch]

    def gathered(self, batch: int, limit: int, unreserved: int) -> "Optional[int]":
        """Returns the bytes of one segment with which this process finishes steps with this batch, if it is reserved before them; 0 if it
        finishes without; None if no size was found."""
        for part in _GATHERED:
            size = int(part * unreserved) >> 21 << 21
            if all(self._finishes(batch, seed, _STEPS_HERE, limit, size) for seed in range(_RUNS_HERE)):
                return size
        return None

    def _finishes(self, batch: int, seed: int, steps: int, limit: int, here: "Optional[int]" = None) -> bool:
        asked = batch if seed % 3 == 2 or steps <= 2 else batch * (1 + _MORE)
        run = _varied(asked, seed, steps, self._evaluates(), 4 if self.passes.regular() else 2)
        if here is not None:
            run[0] = (STEP, asked, asked)
        return bool(self._replay(self.passes.requests(run, seed * _MIX, here), 0, limit)["finishes"])

    def needs(self, batch: int) -> int:
        """Returns the smallest limit under which a fresh process does steps with this batch."""
        kinds = [FIRST, EVALUATION, STEP, EVALUATION, STEP] if self._evaluates() else [FIRST, STEP, STEP]
        found = self._replay(self.passes.requests([(kind, batch, batch) for kind in kinds]), 1, 0)
        return int(found["min_limit_bytes"] or found["peak_reserved_bytes"])

    def largest(self, below: int, limits: "Tuple[int, ...]") -> int:
        """Returns the largest batch below `below` that fits; 0 if none does. A few steps find about where it is."""
        good, bad = 0, 1
        while bad < below and self._finishes(bad, 0, 2, limits[0]):
            good, bad = bad, min(2 * bad, below)
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if self._finishes(middle, 0, 2, limits[0]) else (good, middle)
        # Whether a batch fits is not monotonic: the sizes of segments jump. So near the largest each size is asked.
        fine = good
        while good > 0 and not self.fits(good, limits):
            bad = good
            good = max(0, good - (max(1, good // 100) if good > fine * _FINE else max(1, fine // 10)))
        while bad - good > max(1, good // 200):
            middle = (good + bad) // 2
            good, bad = (middle, bad) if self.fits(middle, limits) else (good, middle)
        return good

    def _evaluates(self) -> bool:
        return any(one.kind == EVALUATION for one in self.passes.list)

    def _replay(self, events: bytes, flags: int, limit: int) -> "Dict[str, Any]":
        expandable = self._settings is not None and "expandable_segments:true" in self._settings.lower().replace(" ", "")
        options = _analysis.ReplayOptions(limit_bytes=limit)
        options.settings = self._settings.encode("utf-8", "replace") if self._settings else None
        return _analysis.replay_events(events, "torch_expandable" if expandable else "torch_default", flags, options)


def _varied(batch: float, seed: int, steps: int, evaluates: bool, squares: int) -> Run:
    """Returns a run whose steps are as large as the batch or smaller, the same for each seed. In one of `squares` runs some blocks grow with
    the square of the length."""
    draw, every = random.Random(seed), _EVALUATES[seed % len(_EVALUATES)]
    evaluation: "Run" = [(EVALUATION, batch, batch)] if evaluates else []
    run: "Run" = [(FIRST, batch, batch), *evaluation, (STEP, batch, batch)]
    for at in range(steps):
        kind = draw.random()
        part = 1.0 if kind < _FULL else draw.uniform(0, _LEAST) if kind > 1 - _SMALL else draw.uniform(_LEAST, 1)
        run.append((STEP, batch * part, batch * (part * part if seed % squares == squares - 1 else part)))
        run += evaluation if at % every == 0 else []
    return run
