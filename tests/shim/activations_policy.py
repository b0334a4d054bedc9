"""The policy of src/shim/activations.py with a simulated device: order, space, prefetch, buffers. Without torch."""
import os
import random
import sys

script = dict(shim_log=lambda text: None)
exec(open(os.path.join(os.path.dirname(__file__), "../../src/shim/activations.py")).read(), script)
Policy, Pinned, Entry = script["Policy"], script["Pinned"], script["Entry"]
MIB = 1 << 20


class Device:
    """Counts bytes, and checks every call against where the data is."""

    def __init__(self, buffers=1 << 60):
        self.base = 0  # weights and what operations use
        self.device, self.host, self.calls, self.inuse = set(), set(), [], set()
        self.free_buffers, self.highest, self.since = buffers, 0, 0
        self.fail_in = False

    def allocated(self):
        level = self.base + sum(e.bytes for e in self.device)
        self.highest, self.since = max(self.highest, level), max(self.since, level)
        return level

    def levels(self):
        now = self.allocated()
        most, self.since = max(self.since, now), 0
        return now, most

    def busy(self, entry):
        return entry in self.inuse

    def copy_out(self, entry):
        assert entry in self.device and entry not in self.host
        if self.free_buffers < entry.bytes:
            return False
        self.free_buffers -= entry.bytes
        self.host.add(entry)
        self.calls.append(("out", entry.seq))
        return True

    def release(self, entry):
        assert entry in self.device and entry in self.host
        self.device.remove(entry)
        self.calls.append(("release", entry.seq))

    def copy_in(self, entry):
        assert entry in self.host and entry not in self.device
        if self.fail_in:
            raise RuntimeError("no memory")
        self.device.add(entry)
        self.calls.append(("in", entry.seq))

    def wait_in(self, entry):
        assert entry in self.host and entry in self.device

    def drop(self, entry):
        assert entry in self.host
        self.device.remove(entry)
        self.calls.append(("drop", entry.seq))

    def forget(self, entry):
        if entry in self.host:
            self.host.remove(entry)
            self.free_buffers += entry.bytes
        self.device.discard(entry)


def save(policy, bus, size):
    entry = Entry(size)
    bus.device.add(entry)
    policy.saved(entry)
    return entry


def use(policy, bus, entry):
    policy.used(entry)
    assert entry in bus.device, entry.state


def step(policy, bus, sizes):
    entries = [save(policy, bus, size) for size in sizes]
    while entries:
        entry = entries.pop()
        use(policy, bus, entry)
        policy.died(entry)
    assert not bus.device and not bus.host and not policy.away and not policy.back and not policy.coming and policy.coming_bytes == 0
    return policy.end_step()


def oldest_leave_first_and_come_back_last():
    bus = Device()
    policy = Policy(bus, 100 * MIB)
    figures = step(policy, bus, [10 * MIB] * 20)
    released = [s for c, s in bus.calls if c == "release"]
    assert released == list(range(1, len(released) + 1)), released
    assert [s for c, s in bus.calls if c == "in"] == released[::-1]
    assert figures["demanded"] == 0 and figures["out_bytes"] == figures["in_bytes"] == len(released) * 10 * MIB
    assert bus.highest <= 110 * MIB, bus.highest


def the_next_one_comes_in_without_space():
    """Gradients fill the device during the backward pass: one entry is fetched ahead of its use all the same."""
    bus = Device()
    policy = Policy(bus, 100 * MIB)
    entries = [save(policy, bus, 3 * MIB) for _ in range(60)]
    bus.base = 120 * MIB
    while entries:
        entry = entries.pop()
        use(policy, bus, entry)
        policy.died(entry)
    figures = policy.end_step()
    assert figures["demanded"] <= 1 and figures["in_bytes"] <= figures["out_bytes"] + 6 * MIB, figures
    large = Device()  # an entry that is no small part of the device waits for its use
    policy = Policy(large, 100 * MIB)
    entries = [save(policy, large, 10 * MIB) for _ in range(20)]
    large.base = 120 * MIB
    for entry in reversed(entries):
        use(policy, large, entry)
        policy.died(entry)
    assert policy.end_step()["demanded"] > 10


def what_fits_is_not_moved():
    bus = Device()
    figures = step(Policy(bus, 100 * MIB), bus, [10 * MIB] * 8)
    assert figures["out_bytes"] == 0 and not bus.calls, bus.calls


def the_next_step_copies_from_its_beginning():
    bus = Device()
    policy = Policy(bus, 100 * MIB)
    needed = step(policy, bus, [10 * MIB] * 20)["out_bytes"]
    bus.calls.clear()
    for _ in range(7):
        save(policy, bus, 10 * MIB)
    assert [c for c, _ in bus.calls] == ["out"] * 3, bus.calls  # not the newest, and nothing was released
    assert needed >= 100 * MIB


def a_step_copies_what_its_size_needs():
    """Steps of another size than the last one: a small one copies nothing, a large one copies from its beginning."""
    bus = Device()
    policy = Policy(bus, 100 * MIB)
    for sizes, first in (([10 * MIB] * 20, None), ([4 * MIB] * 20, 0), ([10 * MIB] * 20, 3), ([2 * MIB] * 9, 0), ([10 * MIB] * 20, 3)):
        bus.calls.clear()
        entries = [save(policy, bus, size) for size in sizes[:7]]
        assert first is None or [c for c, _ in bus.calls] == ["out"] * first, (sizes[0] // MIB, bus.calls)
        entries += [save(policy, bus, size) for size in sizes[7:]]
        assert any(c == "out" for c, _ in bus.calls) == (sum(sizes) > 100 * MIB)
        for entry in reversed(entries):
            use(policy, bus, entry)
            policy.died(entry)
        policy.end_step()


def storages_in_use_do_not_cost_more_and_more():
    bus = Device()
    policy = Policy(bus, 100 * MIB)
    checks = []
    busy, bus.busy = bus.busy, lambda entry: checks.append(entry) or busy(entry)
    for _ in range(200):
        entry = Entry(MIB)
        bus.device.add(entry)
        bus.inuse.add(entry)
        policy.saved(entry)
    assert len(checks) < 200 * 6, len(checks)


def a_storage_in_use_waits_for_its_turn():
    bus = Device()
    policy = Policy(bus, 100 * MIB)
    first = Entry(10 * MIB)
    bus.device.add(first)
    bus.inuse.add(first)
    policy.saved(first)
    entries = [save(policy, bus, 10 * MIB) for _ in range(14)]
    assert first.state == "here" and entries[0].state == "away"
    bus.inuse.clear()
    entries += [save(policy, bus, 10 * MIB) for _ in range(3)]
    assert first.state in ("leaving", "away")
    for entry in [first] + entries:
        use(policy, bus, entry)


def without_buffers_everything_stays():
    bus = Device(buffers=35 * MIB)
    figures = step(Policy(bus, 100 * MIB), bus, [10 * MIB] * 20)
    assert figures["out_bytes"] == 30 * MIB and bus.free_buffers == 35 * MIB


def a_second_backward_pass_reads_the_same():
    bus = Device()
    policy = Policy(bus, 100 * MIB)
    entries = [save(policy, bus, 10 * MIB) for _ in range(30)]
    for _ in range(3):
        for entry in reversed(entries):
            use(policy, bus, entry)
            assert bus.allocated() <= 120 * MIB, bus.allocated()
    for entry in entries:
        policy.died(entry)
    assert not bus.device and not bus.host


def a_failed_prefetch_is_made_up_for():
    bus = Device()
    policy = Policy(bus, 100 * MIB)
    entries = [save(policy, bus, 10 * MIB) for _ in range(20)]
    bus.fail_in = True
    for entry in reversed(entries[-6:]):
        use(policy, bus, entry)
        policy.died(entry)
    try:
        use(policy, bus, entries[0])
        assert False
    except RuntimeError:
        pass
    bus.fail_in = False
    use(policy, bus, entries[0])


def room_is_made_before_a_sudden_need():
    """The last operation of each forward pass needs 40 MiB at once; in the second step they are free by then."""
    bus = Device()
    policy = Policy(bus, 100 * MIB)
    for turn in range(2):
        entries = [save(policy, bus, 10 * MIB) for _ in range(12)]
        bus.base, bus.highest = 40 * MIB, 0
        bus.allocated()
        entries.append(save(policy, bus, 10 * MIB))
        highest, bus.base = bus.highest, 0
        while entries:
            entry = entries.pop()
            use(policy, bus, entry)
            policy.died(entry)
        policy.end_step()
        assert (highest > 120 * MIB) == (turn == 0), (turn, highest // MIB)


def room_is_made_for_rises_in_stages():
    """The last operations of each forward pass need 20 MiB more each, three times; a step of twice the size needs twice as much."""
    bus = Device()
    policy = Policy(bus, 100 * MIB)
    for turn, size in enumerate((5, 5, 10, 10)):
        entries = [save(policy, bus, size * MIB) for _ in range(14)]
        bus.highest = 0
        for stage in range(3):
            bus.base += 2 * size * MIB
            bus.allocated()
            entries.append(save(policy, bus, MIB))
        highest, bus.base = bus.highest, 0
        gradients = 0
        while entries:
            entry = entries.pop()
            use(policy, bus, entry)
            policy.died(entry)
            gradients += 3 * MIB  # they come when the saved tensors are gone
            bus.base = gradients
        bus.base = 0
        figures = policy.end_step()
        assert figures["other_bytes"] >= 6 * size * MIB, figures
        assert turn == 0 or highest <= 115 * MIB, (turn, highest // MIB)
        assert turn > 1 or figures["out_bytes"] < 60 * MIB, figures


def room_is_made_for_what_no_saved_tensor_sees():
    """An operation needs 40 MiB and frees them before the next tensor is saved."""
    bus = Device()
    policy = Policy(bus, 100 * MIB)
    for turn in range(2):
        entries = [save(policy, bus, 10 * MIB) for _ in range(12)]
        bus.base, bus.highest = 40 * MIB, 0
        bus.allocated()
        bus.base = 0
        highest = bus.highest
        entries.append(save(policy, bus, 10 * MIB))
        while entries:
            entry = entries.pop()
            use(policy, bus, entry)
            policy.died(entry)
        policy.end_step()
        assert (highest > 110 * MIB) == (turn == 0), (turn, highest // MIB)


def what_left_is_not_counted_as_other_memory():
    """The most that was allocated before entries left says nothing about what is there beside the rest of them."""
    bus = Device()
    policy = Policy(bus, 100 * MIB)
    for _ in range(3):
        figures = step(policy, bus, [10 * MIB] * 12 + [30 * MIB])
    assert figures["other_bytes"] == 30 * MIB, figures  # the last one, for which nothing could leave before it was there
    assert figures["need_bytes"] == 150 * MIB and figures["peak_bytes"] <= 110 * MIB, figures


def space_is_made_for_a_large_entry():
    """The last tensor of each step is large: in the second step there is space for it before it is saved."""
    bus = Device()
    policy = Policy(bus, 100 * MIB)
    step(policy, bus, [5 * MIB] * 24 + [40 * MIB])
    assert bus.highest > 110 * MIB
    bus.highest = 0
    step(policy, bus, [5 * MIB] * 24 + [40 * MIB])
    assert bus.highest <= 105 * MIB, bus.highest >> 20


def free_space_is_filled_ahead():
    """As the backward pass frees memory, entries come in until three quarters of the device are full."""
    bus = Device()
    policy = Policy(bus, 200 * MIB)
    entries = [save(policy, bus, 10 * MIB) for _ in range(40)]
    for entry in [entries.pop() for _ in range(14)]:
        use(policy, bus, entry)
        policy.died(entry)
    assert policy.level >= 130 * MIB and policy.coming_bytes > 200 * MIB // 8, (policy.level, policy.coming_bytes)


def temporary_memory_does_not_make_entries_come_twice():
    """Copies of weights come and go while the backward pass reads what was saved."""
    rng = random.Random(1)
    bus = Device()
    policy = Policy(bus, 5720 * MIB)
    for _ in range(4):
        entries = []
        for size in [12, 4, 8, 12] * 24:
            bus.base = (5245 + rng.randrange(250)) * MIB
            entries.append(save(policy, bus, size * MIB))
        while entries:
            bus.base = (5245 + rng.randrange(250)) * MIB
            entry = entries.pop()
            use(policy, bus, entry)
            policy.died(entry)
        figures = policy.end_step()
        assert figures["in_bytes"] < 1.5 * figures["out_bytes"], figures
        assert figures["demanded"] <= 2, figures


def random_programs_keep_their_data():
    for seed in range(300 if os.environ.get("STOWAGE_TEST_LONG") else 60):
        rng = random.Random(seed)
        bus = Device(buffers=rng.choice([0, 200, 1 << 40]) * MIB)
        policy, alive = Policy(bus, rng.randrange(20, 200) * MIB), []
        for _ in range(rng.randrange(50, 400)):
            what = rng.random()
            if what < .45 or not alive:
                alive.append(save(policy, bus, rng.randrange(1, 30) * MIB))
            elif what < .7:
                use(policy, bus, rng.choice(alive))
            elif what < .95:
                policy.died(alive.pop(rng.choice([-1, rng.randrange(len(alive))])))
            elif what < .97:
                policy.end_step()
            else:
                bus.inuse = set(rng.sample(sorted(bus.device, key=lambda e: e.seq), len(bus.device) // 4))
            bus.base = rng.randrange(20) * MIB
            for entry in alive:
                assert (entry in bus.device) == (entry.state in ("here", "leaving", "coming"))
                assert (entry in bus.host) == (entry.state in ("leaving", "away", "coming"))
            assert policy.leaving_bytes == sum(e.bytes for e in alive if e.state == "leaving")
            assert [e for _, e in policy.away] == sorted((e for e in alive if e.state == "away"), key=lambda e: e.seq)
        for entry in alive:
            policy.died(entry)
        assert not bus.device and not bus.host


def buffers_are_kept_and_bounded():
    made = []

    def create(size, most=200 * MIB):
        if sum(made) + size > most:
            return None
        made.append(size)
        return len(made), size

    pinned = Pinned(create)
    assert [Pinned.class_of(n) for n in (130 * MIB, 33 * MIB + 1, 32 * MIB, 3)] == [64 * MIB, 64 * MIB, 32 * MIB, MIB]
    a = pinned.take(130 * MIB)
    assert [kind for _, _, kind in a] == [64 * MIB, 64 * MIB, 2 * MIB]
    assert pinned.take(130 * MIB) is None and pinned.created_bytes == 194 * MIB  # one was created, and is kept
    pinned.give(a, "event")
    b = pinned.take(130 * MIB)
    assert len(made) == 4 and {e for _, e, _ in b} == {None, "event"}
    pinned.give(b, "event")
    c = pinned.take(20 * MIB)  # in a larger one
    assert [kind for _, _, kind in c] == [64 * MIB] and len(made) == 4
    d = pinned.take(120 * MIB)
    assert [kind for _, _, kind in d] == [64 * MIB, 64 * MIB] and len(made) == 4
    pinned.give(c, None)
    small = Pinned(lambda size: create(size, 1 << 40))
    small.give([(1, None, 8 * MIB)] * 7 + [(2, None, 2 * MIB)] * 9, None)
    e = small.take(60 * MIB)  # in smaller ones, but not in many small ones
    assert [kind for _, _, kind in e] == [8 * MIB] * 7 + [2 * MIB] * 2 and small.created_bytes == 0
    f = small.take(60 * MIB)
    assert [kind for _, _, kind in f] == [64 * MIB] and small.created_bytes == 64 * MIB
    failing = Pinned(lambda size: None)
    assert failing.take(5 * MIB) is None and failing.created_bytes == 0
    pages = Pinned(lambda size: (7, min(size, 20 * MIB)))
    g = pages.take(53 * MIB)
    assert [kind for _, _, kind in g] == [20 * MIB, 20 * MIB, 16 * MIB] and pages.created_bytes == 56 * MIB
    pages.give(g, None)
    assert [kind for _, _, kind in pages.take(17 * MIB)] == [20 * MIB] and [kind for _, _, kind in pages.take(50 * MIB)] == [20 * MIB, 16 * MIB, 16 * MIB]


for test in (oldest_leave_first_and_come_back_last, the_next_one_comes_in_without_space, what_fits_is_not_moved, the_next_step_copies_from_its_beginning,
             a_step_copies_what_its_size_needs, storages_in_use_do_not_cost_more_and_more,
             a_storage_in_use_waits_for_its_turn, without_buffers_everything_stays, a_second_backward_pass_reads_the_same,
             a_failed_prefetch_is_made_up_for, room_is_made_before_a_sudden_need, room_is_made_for_rises_in_stages,
             room_is_made_for_what_no_saved_tensor_sees, what_left_is_not_counted_as_other_memory, space_is_made_for_a_large_entry, free_space_is_filled_ahead,
             temporary_memory_does_not_make_entries_come_twice, random_programs_keep_their_data,
             buffers_are_kept_and_bounded):
    try:
        test()
        print("ok", test.__name__)
    except BaseException as error:
        import traceback
        traceback.print_exc()
        print(f"FAIL {test.__name__}: {error!r}")
