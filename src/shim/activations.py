"""Moves the tensors that a PyTorch training step saves for its backward pass to pinned host memory and back (trim.c).

Part of the same script as trim.py, which calls arm_activations() once and step_ended() after each optimizer step. Nothing happens
until the device was short of memory. The parts, from the bottom up:

  Pinned       pinned buffers, created once and kept
  Policy       which saved storages leave, when they come back, and in what order; no torch, no CUDA
  Cuda         the copies: two lanes (lanes.py). Its interface is what Policy calls; tests have others
  Activations  the saved-tensor hooks: what may be moved at all, views, versions, lifetimes

Results are bit-equal: a storage comes back with the same bytes, and every tensor on it with its size, stride and offset.
"""
import atexit
import bisect
import collections
import contextlib
import functools
import importlib
import os
import sys
import threading

MOVED_MIN_BYTES = 1 << 20  # smaller tensors stay on the device
CHUNK_MAX_BYTES = 64 << 20  # the largest pinned buffer; PyTorch rounds pinned requests to powers of two, so all are
SMALLER_CLASSES = 3  # a buffer may consist of parts down to an eighth of its size
NEWEST_KEPT = 4  # saved storages that are in use by the operations that run now
MARK_EVERY = 8  # saved storages; a mark is a call of the driver
PLAN_STEPS = 4  # steps that predict how much the next one moves
REFERENCE_STEPS = 16  # the largest of as many steps shows in what order one saves: a small one saves fewer tensors that count

COMING_PART = 8  # of the target: entries that are fetched ahead
NEXT_PART = 32  # of the target: the next entry comes in although there is no space, if it is not larger
SWING_PART = 64  # each saved or used tensor reduces the remembered rise by this part of it
HELD_CHECKED = 4  # storages that were in use are checked again for each saved tensor
USED_CHECKED = 4  # of as many uses in a step that moves nothing, one measures
BUS_BYTES_PER_US = 50000
REST_PART = 8  # of what the reference step saved: after as much, a step that will fit saves the rest without hooks
REST_SPACE = 16  # of the target: such a step leaves that part of it free
WORK_PART, PASSING_WORK_PART = 8, 16  # of the limit: space to work in; the second one while weights pass through vram, which need it twice
SPACE_PART = 4  # of the ceiling: entries are fetched ahead as long as that part of it stays free


class Pinned:
    """Pinned buffers in classes: powers of two, and the size of a page. `create(bytes)` returns the address of one and its class, which may
    be smaller, or None."""

    def __init__(self, create):
        self.create, self.created_bytes = create, 0
        self.free = collections.defaultdict(collections.deque)  # class size -> (address, last reader's event)

    @staticmethod
    def class_of(size):
        """Returns the smallest class that holds `size` bytes, or the largest one."""
        return min(CHUNK_MAX_BYTES, max(MOVED_MIN_BYTES, 1 << (size - 1).bit_length()))

    def free_class(self, kind):
        """Returns a class with a free buffer, for `kind`: the smallest that holds it, or the largest if that is no small part of it."""
        classes = [c for c, free in self.free.items() if free and c >= kind >> SMALLER_CLASSES]
        return min((c for c in classes if c >= kind), default=max(classes, default=None))

    def take(self, size):
        """Returns buffers for `size` bytes as a list of (address, event or None, class size), or None if no more can be made. Creating a
        buffer takes as long as copying it ten times, so free ones of other classes are used before."""
        taken, rest = [], size
        while rest > 0:
            kind = self.class_of(rest)
            free = self.free_class(kind)
            if free is not None:  # the one that was returned first: its reader is most likely done
                taken.append((*self.free[free].popleft(), free))
                rest -= free
                continue
            made = self.create(kind)
            if made is None:
                for address, event, size_class in taken:
                    self.free[size_class].appendleft((address, event))
                return None
            address, kind = made
            self.created_bytes += kind
            taken.append((address, None, kind))
            rest -= kind
        return taken

    def give(self, buffers, event):
        """Takes buffers back. `event` comes after the last copy that reads them, or is None."""
        for address, _, kind in buffers:
            self.free[kind].append((address, event))


HERE, LEAVING, AWAY, COMING, DEAD = "here", "leaving", "away", "coming", "dead"


class Entry:
    """One saved storage.

    HERE: only on the device. LEAVING: being copied to the host, still valid on the device. AWAY: only on the host. COMING: on the
    host, and on the device or being copied there. DEAD: no saved tensor needs it any more."""

    def __init__(self, size):
        self.bytes, self.state, self.seq = size, HERE, 0


class Policy:
    """Keeps the device below `target_bytes`. The oldest saved storage leaves first, because the backward pass reads it last.

    The bus does the work: levels() -> bytes of the device in use, and the most since the last call; busy(entry) -> the program itself still uses the storage,
    copy_out(entry) -> False if there is no buffer, release(entry), copy_in(entry), wait_in(entry), drop(entry) for the device
    copy of a COMING entry, forget(entry). All copies are asynchronous; release and wait_in order them with the program's work.
    """

    def __init__(self, bus, target_bytes):
        self.bus, self.target_bytes = bus, target_bytes
        self.here, self.leaving = collections.deque(), collections.deque()  # oldest first
        self.held = collections.deque()  # entries of `here` that the program was using when it was their turn
        self.away = []  # (seq, entry), sorted
        # COMING entries in the order they were used or fetched: they can be dropped without a copy.
        self.back, self.coming = collections.OrderedDict(), collections.OrderedDict()
        self.level = self.leaving_bytes = self.coming_bytes = self.seq = self.swing = self.uses = 0
        self.alive_bytes = self.near_bytes = 0  # of all entries, and of those that are on the device
        self.last_near = self.last_away = 0  # after the last event: of entries on the device, and of those that are not
        self.gone = False  # entries left the device in this event
        self.stopped = False  # no pinned buffers left: tried again in the next step
        self.plans = collections.deque(maxlen=PLAN_STEPS)
        self.references = collections.deque(maxlen=REFERENCE_STEPS)
        self.reference = None  # of the largest of them: (cumulative bytes at each event, other memory that it still needed)
        self.may_rest = True
        self.begin_step()

    # ---- steps ----

    def begin_step(self):
        self.out_bytes = self.in_bytes = self.issued_bytes = self.saved_bytes = self.demanded = self.peak_bytes = self.need_bytes = 0
        self.sums, self.alive, self.others, self.stopped, self.base_bytes = [], [], [], False, None
        self.level, self.plan, self.resting = None, max(self.plans, default=0), False

    def end_step(self):
        """Ends a step and returns its figures."""
        figures = dict(out_bytes=self.out_bytes, in_bytes=self.in_bytes, saved_bytes=self.saved_bytes, demanded=self.demanded,
                       other_bytes=max(self.others, default=0), peak_bytes=self.peak_bytes, need_bytes=self.need_bytes, base_bytes=self.base_bytes, rested=self.resting)
        self.plans.append(self.out_bytes)
        if self.sums and not self.resting:
            self.references.append((self.sums, self.needs()))
            self.reference = max(reversed(self.references), key=lambda reference: reference[0][-1])
        self.begin_step()
        return figures

    def needs(self):
        """Returns, for each event of the step, how much memory beside the storages saved before the step needed from there on, while at least
        half of them were alive. Gradients fill the device later, when there is space."""
        half, most, needs = max(self.alive) // 2, 0, []
        for alive, other in zip(reversed(self.alive), reversed(self.others)):
            most = max(most, other) if alive >= half else most
            needs.append(most)
        return needs[::-1]

    def measure(self, expected_bytes):
        """Reads how much is allocated, and notes by how much that exceeds what the saved storages explain."""
        now, most = self.bus.levels()
        if self.base_bytes is None:
            self.base_bytes, most = max(0, now - expected_bytes), now
        rise = 0 if self.level is None else most - self.level - expected_bytes
        self.swing = max(rise, self.swing - self.swing // SWING_PART)
        self.level = now
        self.peak_bytes = max(self.peak_bytes, most)
        self.need_bytes = max(self.need_bytes, most + self.last_away)
        self.sums.append(self.saved_bytes)
        self.alive.append(self.alive_bytes)
        # A storage that is saved is there already, and nothing could leave for it.
        other = max(0, most - self.base_bytes - max(self.last_near, self.near_bytes), now - self.base_bytes - self.near_bytes)
        self.others.append(other + expected_bytes)

    def settle(self):
        """Called after each event. If entries left the device in it, the most that was allocated before is no longer comparable."""
        self.last_near, self.last_away = self.near_bytes, self.alive_bytes - self.near_bytes
        if self.gone:
            self.bus.levels()
            self.gone = False

    def ceiling(self):
        """Returns the highest level now: the target, minus what the reference step needed later than here beside its saved storages (the
        logits of a language model), scaled by how much larger this step is."""
        if self.reference is None or not self.sums or len(self.sums) >= len(self.reference[0]):
            return self.target_bytes
        sums, needs = self.reference
        before = sums[len(self.sums) - 1]
        scale = self.saved_bytes / before if before > 0 else 1
        ahead = int(needs[len(self.sums)] * scale) - max(0, self.level - self.base_bytes - self.near_bytes)
        return self.target_bytes - min(max(0, ahead), max(0, self.target_bytes - self.base_bytes) // 2)

    def other_most(self):
        """Returns what the reference step needed beside its saved storages."""
        return self.reference[1][0] if self.reference is not None else 0

    def expected(self):
        """Returns how much this step will still save: what the reference step saved after as many tensors, scaled by how much larger this
        one is. None: not known."""
        if self.reference is None or len(self.sums) > len(self.reference[0]):
            return None
        sums = self.reference[0]
        before = sums[len(self.sums) - 1]
        return (sums[-1] - before) * self.saved_bytes // before if before > 0 else None

    def rest(self):
        """Returns whether this step will fit, with space left: then the rest of it need not be reported. Each report takes as long as a
        kernel takes to start."""
        more = self.expected()
        if not self.may_rest or self.resting or more is None or self.issued_bytes > 0:
            return False
        sums = self.reference[0]
        if len(self.sums) <= NEWEST_KEPT or sums[len(self.sums) - 1] * REST_PART < sums[-1]:
            return False
        peak = self.level + more + self.target_bytes - self.ceiling()
        if peak > self.target_bytes - self.target_bytes // REST_SPACE:
            return False
        self.peak_bytes, self.resting = max(self.peak_bytes, peak), True
        return True

    # ---- what the program does ----

    def saved(self, entry):
        """Called when a storage was saved for the backward pass."""
        self.seq += 1
        entry.seq = self.seq
        self.saved_bytes += entry.bytes
        self.alive_bytes += entry.bytes
        self.near_bytes += entry.bytes
        self.here.append(entry)
        self.measure(entry.bytes)
        self.push_out()
        self.settle()

    def used(self, entry):
        """Called when the backward pass needs an entry. On return it is valid on the device, in the order of the caller's stream."""
        self.uses += 1
        if entry.state == HERE and not self.away and self.uses % USED_CHECKED != 0:
            return
        self.measure(0)
        if entry.state == AWAY:
            self.demanded += 1
            self.attempt(self.make_room, entry.bytes)
            self.fetch(entry)
        if entry.state == COMING:
            self.bus.wait_in(entry)
            self.came(entry)
            self.back[entry.seq] = entry
            self.back.move_to_end(entry.seq)
        if self.level > self.ceiling():
            self.attempt(self.make_room, 0, entry)
        if self.away:
            self.attempt(self.pull_in, entry.seq)
        self.settle()

    def attempt(self, function, *arguments):
        """Calls a function that only affects speed: the program does not see its errors."""
        try:
            function(*arguments)
        except Exception as error:
            shim_log(f"activations: {function.__name__}: {error!r}")

    def died(self, entry):
        """Called when no saved tensor refers to the entry any more."""
        if entry.state == DEAD:
            return
        if entry.state == AWAY:
            del self.away[bisect.bisect_left(self.away, (entry.seq,))]
        else:
            self.near_bytes -= entry.bytes
            if entry.state == LEAVING:
                self.leaving_bytes -= entry.bytes
            if self.level is not None and not self.bus.busy(entry):
                self.level -= entry.bytes
        self.alive_bytes -= entry.bytes
        self.back.pop(entry.seq, None)
        self.came(entry)
        entry.state = DEAD
        self.bus.forget(entry)
        if len(self.held) > 64:
            self.held = collections.deque(e for e in self.held if e.state == HERE)
        while self.here and self.here[-1].state != HERE:
            self.here.pop()

    # ---- out ----

    def push_out(self):
        ceiling, more = self.ceiling(), self.expected()
        plan = self.plan if more is None else self.out_bytes + max(0, self.level + more - ceiling)
        self.copy_ahead(self.level - ceiling + self.target_bytes // 8, plan)
        if self.level > ceiling:
            self.make_room(0)

    def enough(self, wanted_bytes, plan_bytes):
        return self.stopped or (self.leaving_bytes >= wanted_bytes and self.issued_bytes >= plan_bytes)

    def copy_ahead(self, wanted_bytes, plan_bytes):
        """Starts copies until `wanted_bytes` could leave at once and this step has started `plan_bytes`."""
        for _ in range(min(len(self.held), HELD_CHECKED)):
            if self.enough(wanted_bytes, plan_bytes):
                return
            self.start_out(self.held.popleft())
        while len(self.here) > NEWEST_KEPT and not self.enough(wanted_bytes, plan_bytes):
            self.start_out(self.here.popleft())

    def start_out(self, entry):
        if entry.state != HERE:
            return
        if self.bus.busy(entry):
            self.held.append(entry)
        elif self.bus.copy_out(entry):
            entry.state = LEAVING
            self.leaving.append(entry)
            self.leaving_bytes += entry.bytes
            self.issued_bytes += entry.bytes
        else:
            self.stopped = True
            self.held.append(entry)

    def make_room(self, size, needed=None):
        """Releases device memory of entries that are also on the host until `size` bytes fit, except `needed`."""
        ceiling = self.ceiling() - size
        while self.level > ceiling and len(self.back) > NEWEST_KEPT:  # the one that was used first
            self.drop(self.back.popitem(last=False)[1])
        while self.level > ceiling and self.coming:  # the one that is used last
            last = next(reversed(self.coming.values()))
            if len(self.coming) == 1 and last.bytes <= self.target_bytes // NEXT_PART:
                break  # it is needed next
            self.came(last)
            self.drop(last)
        if self.level > ceiling:
            self.copy_ahead(self.level - ceiling, 0)
        kept = []
        while self.level > ceiling and self.leaving:
            entry = self.leaving.popleft()
            if entry.state != LEAVING:
                continue
            if entry is needed or self.bus.busy(entry):
                kept.append(entry)
                continue
            self.bus.release(entry)
            self.leaving_bytes -= entry.bytes
            self.out_bytes += entry.bytes
            self.put_away(entry)
        self.leaving.extendleft(reversed(kept))

    def drop(self, entry):
        self.bus.drop(entry)
        self.put_away(entry)

    def put_away(self, entry):
        entry.state = AWAY
        self.gone = True
        self.level -= entry.bytes
        self.near_bytes -= entry.bytes
        bisect.insort(self.away, (entry.seq, entry))

    # ---- in ----

    def fetch(self, entry):
        self.bus.copy_in(entry)
        del self.away[bisect.bisect_left(self.away, (entry.seq,))]
        entry.state = COMING
        self.level += entry.bytes
        self.near_bytes += entry.bytes
        self.coming[entry.seq] = entry
        self.coming_bytes += entry.bytes
        self.in_bytes += entry.bytes

    def came(self, entry):
        """Notes that an entry is no longer among those that were fetched and not used yet."""
        if self.coming.pop(entry.seq, None) is not None:
            self.coming_bytes -= entry.bytes

    def pull_in(self, seq):
        """Starts copying in what was saved before `seq`, the newest first, as far as there is space; a small one in any case. What the
        backward pass will free and allocate until then is not known, so only a part of the space is filled."""
        ceiling = self.ceiling()
        while True:
            at = bisect.bisect_left(self.away, (seq,)) - 1
            if at < 0:
                return
            size = self.away[at][1].bytes
            after = self.level + size
            if self.coming and (after > ceiling - self.swing or
                                (after > ceiling - ceiling // SPACE_PART and self.coming_bytes + size > self.target_bytes // COMING_PART)):
                return
            if after > ceiling and size > self.target_bytes // NEXT_PART:
                return
            self.fetch(self.away[at][1])  # if that fails, it stays on the host until it is needed


NOTHING = contextlib.nullcontext()


def storage_of(tensor):
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage()
    typed = tensor.storage()
    return typed.untyped() if hasattr(typed, "untyped") else typed._untyped()


def compiling_of(torch):
    """Returns the function that says whether torch.compile is at work; an old PyTorch has none."""
    return getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)


def references(torch):
    """Returns a function that counts the tensors on a storage, by its address; it returns 0 if this PyTorch does not report that."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    if count is None:
        return lambda address: 0
    probe = torch.empty(1)
    extra = count(storage_of(probe)._cdata) - 1  # the storage's Python object may count too
    return lambda address: count(address) - extra


def live_bytes(torch, device):
    """Returns what PyTorch has allocated on a device. This runs for every saved tensor; PyTorch's own statistics would take as long as a
    kernel."""
    live = shim_live(device)
    return live if live >= 0 else torch._C._cuda_memoryStats(device)["allocated_bytes"]["all"]["current"]


class Cuda:
    """The copies. `home` is the lane of the training loop: device memory is allocated and freed in its order."""

    def __init__(self, torch, device, states):
        self.torch, self.device, self.states, self.index = torch, device, states, device.index
        events = []
        self.home = Lane(torch.cuda.current_stream(device), events)
        self.out, self.back = Lane(torch.cuda.Stream(device), events), Lane(torch.cuda.Stream(device), events)
        self.pinned, self.budget_bytes = Pinned(self.create), 0
        self.unmarked = []  # saved since the last mark
        self.references = references(torch)
        self.current = current_of(torch)

    def usable(self, tensor):
        """Returns whether this tensor can be moved now: it is on the device, and the current stream is the one whose order memory follows."""
        return tensor.is_cuda and tensor.get_device() == self.index and self.current(self.index) == self.home.handle and self.idle()

    def create(self, size):
        address, size = shim_pinned(size, self.budget_bytes)
        return (address, size) if address else None

    def allocated(self):
        """Returns what PyTorch has allocated, without the states of optimizers that stay on the host."""
        return live_bytes(self.torch, self.index) - self.states.away_bytes()

    def levels(self):
        """Returns the same, and the most since the last call."""
        now, most = shim_levels(self.index)
        if now < 0:
            now = most = live_bytes(self.torch, self.index)
        away = self.states.away_bytes()
        return now - away, most - away

    def peak_bytes(self):
        """Returns the most that PyTorch ever had allocated."""
        return self.torch._C._cuda_memoryStats(self.index)["allocated_bytes"]["all"]["peak"]

    def idle(self):
        """Returns False while a graph is captured: nothing may wait for an event then."""
        return not shim_capturing()

    def busy(self, entry):
        """Returns whether something else refers to the storage, or it was written to since: it would not be freed, or must not be moved."""
        ours = len(entry.parts) if entry.state in (HERE, LEAVING) else 1
        return self.references(entry.cdata) > ours or any(p.stale() for p in entry.parts)

    def saved(self, entry):
        self.unmarked.append(entry)
        if len(self.unmarked) >= MARK_EVERY:
            self.mark_saved()

    def mark_saved(self):
        """Marks the point after the work that wrote what was saved."""
        mark = self.home.mark()
        for entry in self.unmarked:
            entry.ready = mark
        self.unmarked = []

    def pieces(self, entry):
        """Yields the parts of an entry: the address on the device, that of the buffer, bytes, and the mark of the buffer's last reader."""
        start = 0
        for address, mark, kind in entry.buffers:
            size = min(entry.bytes - start, kind)
            yield entry.address + start, address, size, mark
            start += size

    def copy_out(self, entry):
        entry.buffers = self.pinned.take(entry.bytes)
        if entry.buffers is None:
            return False
        if entry.ready is None:
            self.mark_saved()
        self.out.wait(entry.ready)
        for there, here, size, mark in self.pieces(entry):
            if mark is not None:
                self.out.wait(mark)
            self.out.copy_bytes(here, there, size)
        entry.gone, entry.came = self.out.mark(), None
        return True

    def release(self, entry):
        # Releases device memory to the home stream's pool: later work of that stream may overwrite it.
        self.home.wait(entry.gone)
        entry.let_go(self.nothing(entry))

    @functools.lru_cache(maxsize=None)
    def empty(self, dtype):
        return self.torch.empty(0, dtype=dtype, device=self.device)

    def nothing(self, entry):
        """Returns an empty tensor for each part of an entry."""
        return [self.empty(part.alias.dtype) for part in entry.parts]

    def at_home(self):
        """Returns a context in which memory is allocated in the order of the home lane."""
        here = self.current(self.index) == self.home.handle
        return NOTHING if here else self.torch.cuda.stream(self.home.stream)

    def copy_in(self, entry):
        with self.at_home():
            entry.came_to(self.torch.empty(entry.bytes, dtype=self.torch.uint8, device=self.device))
        self.back.wait(self.home.mark())  # the memory may still be in use there
        self.back.wait(entry.gone)
        for there, here, size, _ in self.pieces(entry):
            self.back.copy_bytes(there, here, size)
        entry.came = self.back.mark()

    def wait_in(self, entry):
        if self.current(self.index) == self.home.handle:
            self.home.wait(entry.came)
            return
        stream = self.torch.cuda.current_stream(self.device)
        Lane(stream, self.home.events).wait(entry.came)
        entry.flat.record_stream(stream)

    def drop(self, entry):
        self.home.wait(entry.came)
        entry.let_go(self.nothing(entry))

    def forget(self, entry):
        if entry.buffers is not None:
            last = entry.came or entry.gone
            if entry.address != 0 and last is not None:
                self.home.wait(last)
            self.pinned.give(entry.buffers, entry.came)
        entry.unlist()
        entry.address, entry.flat, entry.buffers = 0, None, None

    def prepare(self, size):
        """Has pinned memory made ahead, until there is as much."""
        shim_prepare(size)

    def total_bytes(self):
        return self.torch.cuda.get_device_properties(self.device).total_memory

    def empty_cache(self):
        self.torch.cuda.empty_cache()


class Part:
    """One saved tensor: its layout on its storage, and a tensor that shares its version counter."""
    __slots__ = "alias", "version"

    def __init__(self, tensor):
        # Autograd holds a leaf itself too. Any other tensor would make a cycle: its graph holds this object.
        self.alias, self.version = tensor if tensor.is_leaf else tensor.detach(), tensor._version

    def stale(self):
        return self.alias._version != self.version

    def check(self):
        """Raises the error that autograd would raise: with hooks it does not check itself."""
        if self.stale():
            raise RuntimeError("one of the variables needed for gradient computation has been modified by an inplace operation: "
                               f"[{self.alias.type()} {list(self.shape())}] is at version {self.alias._version}; expected version "
                               f"{self.version} instead. Hint: enable anomaly detection to find the operation that failed to "
                               "compute its gradient, with torch.autograd.set_detect_anomaly(True).")

    def shape(self):
        return self.alias.shape


class Kept(Part):
    """A saved tensor that stays where it is."""
    __slots__ = ()

    def tensor(self):
        self.check()
        return self.alias  # autograd makes a tensor of its own of it


class Moved(Part):
    """A saved tensor whose storage may leave the device."""
    __slots__ = "layout", "here"

    def __init__(self, tensor):
        self.alias, self.version = tensor.detach(), tensor._version
        self.layout, self.here = (tensor.storage_offset(), tensor.shape, tensor.stride()), True

    def let_go(self, nothing):
        if self.here:
            self.alias.data = nothing
            self.here = False

    def shape(self):
        return self.layout[1]


class Saved(Entry):
    """A storage with the saved tensors on it. Its parts keep it on the device, or `flat` does, once it came back: all of it as bytes.
    `address`: where it is on the device; 0: it is not."""

    def __init__(self, storage, size, version, index):
        super().__init__(size)
        self.index = index  # storage -> entry, while the storage is the program's
        self.cdata, self.address, self.version = storage._cdata, storage.data_ptr(), version
        self.parts, self.flat, self.buffers, self.ready, self.gone, self.came = [], None, None, None, None, None

    def let_go(self, nothing):
        """Drops every reference to the device memory. `nothing`: an empty tensor for each part. The version counters stay."""
        self.unlist()
        for part, empty in zip(self.parts, nothing):
            part.let_go(empty)
        self.flat, self.cdata, self.address = None, 0, 0

    def unlist(self):
        """Forgets the address, because another storage may get it."""
        if self.index.get(self.cdata) is self:
            del self.index[self.cdata]

    def came_to(self, flat):
        self.flat, self.cdata, self.address = flat, storage_of(flat)._cdata, flat.data_ptr()


class Ticket:
    """What autograd holds for a saved tensor. The part is freed with it."""
    __slots__ = "owner", "entry", "part"

    def __init__(self, owner, entry, part):
        self.owner, self.entry, self.part = owner, entry, part

    def __del__(self):
        try:
            self.owner.lost(self.entry, self.part)
        except BaseException:  # the interpreter ends
            pass


class Copied:
    """What autograd holds for a tensor on a copy of a weight (weights.py): the weight, to be copied again."""
    __slots__ = "weight", "part", "layout"

    def __init__(self, weight, tensor):
        self.weight, self.part = weight, Moved(weight)
        self.layout = tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


class Activations:
    """The hooks of one device. `weights`: copies of weights, or None."""

    def __init__(self, torch, bus, target_bytes, weights=None):
        self.torch, self.bus, self.policy, self.weights = torch, bus, Policy(bus, target_bytes), weights
        self.entries = {}  # storage -> its entry, while it is on the device
        self.parameters = set()  # storages of parameters
        self.lock, self.dead, self.off = threading.Lock(), collections.deque(), False
        self.thread = threading.local()  # .pushed
        self.top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
        self.named = getattr(torch.Tensor, "has_names", lambda tensor: False)
        self.modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
        dispatch = importlib.import_module("torch.utils._python_dispatch")
        self.without_modes = getattr(dispatch, "_disable_current_modes", None)
        self.compiling = compiling_of(torch)

    def own_calls(self):
        """Returns a context in which the program's dispatch modes do not see our calls."""
        return NOTHING if self.modes() == 0 else self.without_modes()

    # ---- the hooks ----

    def pack(self, tensor):
        try:
            return self.packed(tensor) or Kept(tensor)
        except Exception as error:
            shim_log(f"activations: pack: {error!r}")
            return tensor

    def unpack(self, packed):
        kind = type(packed)
        if kind is Kept:
            return packed.tensor()
        if kind is Ticket:
            return self.unpacked(packed)
        return self.copied_again(packed) if kind is Copied else packed

    def movable(self, tensor):
        torch = self.torch
        return (type(tensor) is torch.Tensor and tensor.numel() * tensor.element_size() >= MOVED_MIN_BYTES and
                not isinstance(tensor._base, torch.nn.Parameter) and tensor.layout is torch.strided and not tensor.is_quantized and
                not tensor.is_conj() and not tensor.is_neg() and not self.named(tensor) and not (tensor.is_leaf and tensor.requires_grad) and
                (self.without_modes is not None or self.modes() == 0) and not self.compiling() and self.bus.usable(tensor))

    def packed(self, tensor):
        """Returns the ticket of a tensor that may move, or None."""
        if self.off or not self.movable(tensor):
            return None
        storage = storage_of(tensor)
        size, cdata = storage.nbytes(), storage._cdata
        weight = self.weights.weight_of(storage) if self.weights is not None else None
        if weight is not None:
            return Copied(weight, tensor)
        if cdata in self.parameters or tensor.numel() * tensor.element_size() * 16 < size:
            return None
        with self.lock, self.own_calls():
            entry = self.entries.get(cdata)
            new = entry is None or entry.version != tensor._version
            if new:
                entry = self.entries[cdata] = Saved(storage, size, tensor._version, self.entries)
            del storage
            part = Moved(tensor)
            entry.parts.append(part)
            ticket = Ticket(self, entry, part)
            if new:
                self.bus.saved(entry)
                self.policy.attempt(self.policy.saved, entry)
                if self.policy.rest():
                    self.pop()
        if self.dead:
            self.bury()
        return ticket

    def unpacked(self, ticket):
        entry, part = ticket.entry, ticket.part
        part.check()
        with self.lock, self.own_calls():
            self.policy.used(entry)
            if entry.state in (HERE, LEAVING):
                tensor = part.alias.detach()  # the alias may be emptied while the backward pass uses this
            else:
                with self.torch.no_grad():
                    tensor = self.torch.empty(0, dtype=part.alias.dtype, device=self.bus.device)
                    tensor.set_(storage_of(entry.flat), *part.layout)
        if self.dead:
            self.bury()
        return tensor

    def copied_again(self, packed):
        """Returns the tensor on a copy of its weight, or on the weight itself where no copy can be made."""
        packed.part.check()
        with self.torch.no_grad(), self.own_calls():
            base = packed.weight.detach()
            try:
                if self.weights.at_home(base):
                    base = self.weights.fetched(packed.weight)
            except Exception as error:
                shim_log(f"weights: {error!r}")
            tensor = self.torch.empty(0, dtype=base.dtype, device=base.device)
            return tensor.set_(storage_of(base), base.storage_offset() + packed.layout[0], *packed.layout[1:])

    # ---- lifetimes ----

    def lost(self, entry, part):
        """Called when a ticket was freed, on any thread, perhaps in the middle of one of the above."""
        if self.off:
            return
        self.dead.append((entry, part))
        self.bury()

    def bury(self):
        while self.dead and not sys.is_finalizing() and self.lock.acquire(blocking=False):
            try:
                if not self.bus.idle():
                    return
                while self.dead:
                    entry, part = self.dead.popleft()
                    entry.parts.remove(part)
                    part.alias = None
                    if not entry.parts:
                        self.policy.died(entry)
                    del entry, part
            except Exception as error:
                shim_log(f"activations: release: {error!r}")
            finally:
                self.lock.release()

    def end(self):
        """Called at exit, and in a child of fork: stops all copies."""
        self.off, self.lock = True, threading.Lock()

    # ---- on and off ----

    def push(self):
        """Installs the hooks on this thread, unless the program itself has hooks installed."""
        ours = self.top is not None and self.top(True)
        if self.top is not None:
            self.thread.pushed = bool(ours) and ours[0] == self.pack
            if ours:
                return
        if not getattr(self.thread, "pushed", False) and self.torch._C._autograd._saved_tensors_hooks_is_enabled():
            self.torch._C._autograd._push_saved_tensors_default_hooks(self.pack, self.unpack)
            self.thread.pushed = True

    def innermost(self):
        """Returns whether these hooks are the ones that tensors saved on this thread now go through."""
        if self.off or not getattr(self.thread, "pushed", False) or self.top is None:
            return False
        ours = self.top(True)
        return bool(ours) and ours[0] == self.pack

    def pop(self):
        """Removes them if they are the innermost. Returns whether they were."""
        if not getattr(self.thread, "pushed", False):
            return False
        if self.top is not None:
            ours = self.top(True)
            if not ours or ours[0] != self.pack:
                return False
        self.torch._C._autograd._pop_saved_tensors_default_hooks()
        self.thread.pushed = False
        return True

    def note_parameters(self, optimizer):
        self.parameters = {storage_of(p)._cdata for group in optimizer.param_groups for p in group["params"]
                           if p.layout is self.torch.strided} | (self.parameters if len(self.parameters) < 65536 else set())


class Trial:
    """Something that is tried in every step. After a failure it is left for a number of steps, for twice as many after each further one."""

    def __init__(self):
        self.left = self.wait_steps = 0

    def next(self, failed):
        """Called at the end of a step. Returns whether to try it in the next one."""
        if failed:
            self.wait_steps = min(max(2 * PLAN_STEPS, 2 * self.wait_steps), 1024)
            self.left = self.wait_steps
        elif self.left > 0:
            self.left -= 1
        return self.left == 0


class Armed:
    """Decides at the end of each step whether the hooks are needed, and sets the target."""

    def __init__(self, torch, make_bus, weights=None):
        self.torch, self.make_bus, self.hooks, self.margin_bytes = torch, make_bus, None, None
        self.weights = weights
        self.full = False  # weights and state fill the device
        self.home, self.rest = Trial(), Trial()
        self.cost_us = 0  # of pages on the host, until the last step

    def room(self):
        """Returns (the device's limit, bytes of it that are not PyTorch's pages, spill budget left, microseconds that pages on the host have
        cost so far)."""
        return shim_room()

    def step_ended(self, optimizer):
        if not shim_resident() or self.compiling():
            return
        if self.hooks is None:
            self.begin()
        hooks = self.hooks
        if hooks is None or hooks.off:
            return
        with hooks.lock:
            figures = hooks.policy.end_step()
        away = hooks.bus.states.away_bytes()
        shim_moved(figures["out_bytes"], figures["in_bytes"], figures["need_bytes"] + away, (figures["base_bytes"] or -away) + away)
        self.aim(figures)
        hooks.note_parameters(optimizer)
        hooks.push()

    def compiling(self):
        return compiling_of(self.torch)()

    def passing(self):
        return self.weights is not None and bool(self.weights.after)

    def begin(self):
        self.hooks = Activations(self.torch, self.make_bus(), 0, self.weights)
        if self.weights is not None:
            self.weights.saved = self.hooks.innermost
        os.register_at_fork(after_in_child=self.hooks.end)
        atexit.register(self.hooks.end)
        self.let_transforms_through()

    def aim(self, figures):
        """Sets the target. Pages on the host that cost time, although saved tensors left, increase the margin: by what could have left in that
        time instead. Where weights and state fill the device, pages move too, and saved tensors get a part of it to work in: less if weights
        are copied for each use. They cross the bus twice in a step, and a saved tensor once in each direction."""
        bus, policy = self.hooks.bus, self.hooks.policy
        limit, other, spill, cost_us = self.room()
        limit = min(limit, bus.total_bytes())
        lost_bytes, self.cost_us = (cost_us - self.cost_us) * BUS_BYTES_PER_US // 2, cost_us
        first, costly = self.margin_bytes is None, lost_bytes > limit // 32
        if first:
            self.margin_bytes = limit // 24
        elif costly and self.margin_bytes < limit // 4 and figures["out_bytes"] > 0 and not self.full:
            self.margin_bytes += min(lost_bytes, limit // 8)
            first = True
        # Gradients that zero_grad frees are not there when a step saves its first tensor.
        base = figures["base_bytes"]
        least = (bus.allocated() if base is None else min(base, bus.allocated())) + limit // (PASSING_WORK_PART if self.passing() else WORK_PART)
        policy.target_bytes = max(least, limit - other - self.margin_bytes)
        self.full = policy.target_bytes == least
        self.settle(limit, figures["rested"], costly)
        if first:
            bus.empty_cache()
            spill = self.room()[2]
        bus.budget_bytes = spill
        bus.prepare(min(max(bus.peak_bytes() - policy.target_bytes, figures["out_bytes"]) * 5 // 4, spill))
        mib = {k: (v or 0) >> 20 for k, v in figures.items() if k.endswith("_bytes")}
        shim_log(f"activations: step saved {mib['saved_bytes']} MiB, out {mib['out_bytes']}, in {mib['in_bytes']}, peak "
                 f"{mib['peak_bytes']}, other {mib['other_bytes']}, not prefetched {figures['demanded']}; target "
                 f"{policy.target_bytes >> 20}, base {mib['base_bytes']}, limit {limit >> 20}, not PyTorch's {other >> 20}, pages on "
                 f"the host cost {lost_bytes >> 20}, rested {figures['rested']}, next rests {policy.may_rest}, state at home {bus.states.home}")

    def settle(self, limit, rested, costly):
        """Decides whether the state of optimizers is in vram in the next step, and whether a step that seems to fit may rest. State that is on
        the host crosses the bus twice in every step; saved tensors that have to leave instead do so only in the steps that are too large.
        Saved tensors need space beside it: an eighth of the limit, and what such steps suddenly need."""
        states, policy = self.hooks.bus.states, self.hooks.policy
        space = max(limit // WORK_PART, policy.other_most())
        least = self.hooks.bus.allocated() + states.away_bytes() + states.moment_bytes() + space
        states.home = self.home.next(states.home and costly) and not self.full and least <= policy.target_bytes
        policy.may_rest = self.rest.next(rested and costly)

    def let_transforms_through(self):
        """Removes our hooks while torch.func and others run, which refuse to run with hooks."""
        hooks, functions = self.hooks, self.torch._C._autograd
        disable, enable = functions._saved_tensors_hooks_disable, functions._saved_tensors_hooks_enable

        def disabled(*args, **kwargs):
            if hooks.pop():
                hooks.thread.aside = True
            return disable(*args, **kwargs)

        def enabled():
            enable()
            if getattr(hooks.thread, "aside", False):
                hooks.thread.aside = False
                hooks.push()

        functions._saved_tensors_hooks_disable, functions._saved_tensors_hooks_enable = disabled, enabled


def arm_activations(torch, states, weights):
    """Returns the function to call at the end of a step, or None if this PyTorch has no such hooks."""
    functions = getattr(getattr(torch, "_C", None), "_autograd", None)
    if not hasattr(functions, "_saved_tensors_hooks_is_enabled"):
        return None

    def cuda():
        return Cuda(torch, torch.device("cuda", torch.cuda.current_device()), states)

    return Armed(torch, cuda, weights)
