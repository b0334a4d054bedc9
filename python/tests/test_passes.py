"""Passes recorded at small batches: their blocks at other batches, and the largest batch of a fresh process, by replay."""

import contextlib
import random
import unittest

import stowage
from stowage import _analysis, _passes, _tune_measure

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class SimulatedOut(RuntimeError):
    pass


class Device:
    """A simulated GPU with PyTorch's allocator: after each pass the requests of the whole process are replayed. Also the meter."""

    def __init__(self, program, total):
        self.program, self.total, self.loaded, self.kept, self.seconds = program, total, 0, 0, 0.0
        self.fresh()

    def fresh(self):
        """A new process: it has the weights and nothing else."""
        self.limit, self._next, self._past, self._open = self.total, 0, [], []
        self.state, self.last, self.gathered, self.declined = None, None, [], []
        self._live = {}
        for size in self.program.weights:
            self.alloc(size)
        self._past, self._open = self._open, []

    def alloc(self, size):
        self._next += 512
        self._live[self._next] = size
        self._open.append((self._next, size, 0))
        return self._next

    def free(self, address):
        self._open.append((address, -self._live.pop(address), 0))

    def has_room(self, size):
        """Returns True if a request of so many bytes succeeds now; otherwise the history has it."""
        done = self._finishes([*self._open, (self._next + 512, size, 0)])
        self.declined += [] if done else [(0, size, 0)]
        return done

    def _finishes(self, last):
        events = b"".join(_passes._RECORD.pack(at, abs(size), 0, 0, 0, 0, 0 if size > 0 else 2, 0, 0) for at, size, _ in self._past + last)
        options = _analysis.ReplayOptions(limit_bytes=self.limit)
        return _analysis.replay_events(events, "torch_default", 0, options)["finishes"]

    def _pass(self, run):
        before = dict(self._live)
        state, last = self.state, self.last
        run(self)
        if self._finishes(self._open):
            self._past += self._open
            self._open = []
            return
        self._live, self.state, self.last, self._open = before, state, last, []
        raise SimulatedOut("CUDA out of memory (simulated)")

    def step(self, n, part=1.0):
        self._pass(lambda device: self.program.step(device, n, part))

    def evaluate(self, n):
        self._pass(lambda device: self.program.evaluate(device, n))

    def runs(self, n, seed, steps):
        """Returns True if a fresh process does these steps, with inputs that vary."""
        draw = random.Random(seed)
        self.fresh()
        try:
            for at in range(steps):
                self.step(n, 1.0 if at < 2 else draw.choice([1.0, draw.uniform(0.2, 1)]))
                if self.program.evaluates and at % 5 == 0:
                    self.evaluate(n)
        except SimulatedOut:
            return False
        return True

    # what the meter offers
    def name(self):
        return "simulated"

    def available(self):
        return self.total - (self.loaded if self.state else 0)

    def clock(self):
        return self.seconds

    def is_out(self, error):
        return isinstance(error, SimulatedOut)

    def clear(self):
        pass

    @contextlib.contextmanager
    def limited(self, limit_bytes):
        self.limit = limit_bytes
        try:
            yield
        finally:
            self.limit = self.total

    def peak(self, run):
        run()
        return 0

    def held(self):
        return [(address, self._live[address], 0) for address in sorted(self._live)]

    def reserved(self):
        return self.kept

    def gather(self, size):
        self.free(self.alloc(size))
        self._past, self._open = self._past + self._open, []
        self.gathered.append(size)
        return True

    @contextlib.contextmanager
    def recording(self):
        found, before, self.declined = [], len(self._past), []
        try:
            yield found
        finally:
            found += self.declined
            found += [(address, max(0, size), stream) for address, size, stream in self._past[before:]]


class Program:
    """Layers whose activations the backward pass frees in reverse order; the first step makes the optimizer's state."""

    def __init__(self, weights, samples, squares=0, evaluates=0, keeps=False):
        self.weights, self.samples, self.squares, self.evaluates, self.keeps = weights, samples, squares, evaluates, keeps

    def step(self, device, n, part):
        live = []
        for at, size in enumerate(self.samples):
            temporary = device.alloc(int(n * part * size * 0.7) + 1)
            live.append(device.alloc(int(n * part * size)))
            device.free(temporary)
        if self.squares:
            live.append(device.alloc(n * n * self.squares))
        gradients = []
        while live:
            gradients += [device.alloc(size) for size in self.weights[len(gradients) : len(gradients) + 1]]
            device.free(live.pop())
        if device.state is None:
            device.state = [device.alloc(size) for size in self.weights for _ in range(2)]
        for one in gradients:
            device.free(one)
        if self.keeps:  # the last output lives until the next step has made its own
            out = device.alloc(int(n * part * self.samples[0]))
            if device.last is not None:
                device.free(device.last)
            device.last = out

    def evaluate(self, device, n):
        device.free(device.alloc(n * self.evaluates))


def tuned(device, **named):
    device.fresh()
    if device.program.evaluates:
        named["evaluate"] = device.evaluate
    return stowage.tune(device.step, batch=2, meter=device, **named)


class Largest(unittest.TestCase):
    def hold(self, program, total):
        """tune picks a batch within 5% or one sample of the largest, and a fresh process runs it with other inputs."""
        device = Device(program, total)
        plan = tuned(device)
        good, bad = 1, 2
        while device.runs(bad, 1, 12):
            good, bad = bad, 2 * bad
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if device.runs(middle, 1, 12) else (good, middle)
        self.assertGreaterEqual(plan.largest_batch, min(good - 1, 0.95 * good), plan.data["tried"])
        self.assertTrue(device.runs(plan.largest_batch, 2, 25), plan.largest_batch)
        self.assertLessEqual(plan.data["needs_bytes"], plan.data["limit_bytes"])
        return plan

    def test_a_fresh_process_runs_the_batch_and_not_much_more(self):
        # Most of the device is weights, so that 5% of it would be a quarter of the batch.
        plan = self.hold(Program([150 * MIB + 3000, 80 * MIB, 90 * MIB + 77], [1100 * KIB + 13, 5 * MIB + 501, 700 * KIB, 2 * MIB]), 1700 * MIB)
        self.assertAlmostEqual(plan.data["headroom"], 0.005)
        self.assertLessEqual(len(plan.data["tried"]), 6, plan.data["tried"])

    def test_a_process_with_less_memory_runs_the_batch(self):
        program = Program([20 * MIB] * 3, [MIB + 100, 3 * MIB, 900 * KIB])
        device = Device(program, 900 * MIB)
        device.varies = 60 * MIB
        plan = tuned(device)
        self.assertTrue(Device(program, 840 * MIB).runs(plan.largest_batch, 2, 25), plan.largest_batch)
        device.varies = 0
        self.assertFalse(Device(program, 840 * MIB).runs(tuned(device).largest_batch, 2, 25))

    def test_an_evaluation_that_needs_more_than_training_counts(self):
        program = Program([20 * MIB] * 3, [MIB + 100, 3 * MIB, 900 * KIB], evaluates=21 * MIB)
        plan = self.hold(program, 1500 * MIB)
        self.assertLess(plan.largest_batch, (1500 - 180) / 21 + 1)

    def test_blocks_that_grow_with_the_square_of_the_batch(self):
        self.hold(Program([30 * MIB] * 2, [900 * KIB, MIB], squares=20 * KIB), 1200 * MIB)

    def test_a_block_that_lives_into_the_next_step(self):
        self.hold(Program([10 * MIB] * 4, [4 * MIB + 5, 3 * MIB, 2 * MIB + 99], keeps=True), 900 * MIB)

    def test_a_step_that_splits_its_batch(self):
        class Splits(Program):
            """A larger batch makes more parts, not larger ones."""

            def step(self, device, n, part):
                whole = device.alloc(n * 200 * KIB)
                for first in range(0, n, 5):
                    super().step(device, min(5, n - first), part)
                device.free(whole)

        device = Device(Splits([40 * MIB], [8 * MIB, 6 * MIB]), 350 * MIB)
        plan = tuned(device)
        self.assertGreater(plan.largest_batch, 200, plan.data["tried"])
        self.assertTrue(device.runs(plan.largest_batch, 2, 10), plan.largest_batch)

    def test_a_workspace_that_is_smaller_where_memory_is_short(self):
        class Convolutions(Program):
            """Each layer takes a large workspace if there is room for it, and a small one otherwise."""

            def step(self, device, n, part):
                live = []
                for size in self.samples:
                    live.append(device.alloc(int(n * part * size)))
                    large = int(n * part * 12 * MIB)
                    device.free(device.alloc(large if device.has_room(large) else large // 16))
                while live:
                    device.free(live.pop())

        program = Convolutions([40 * MIB], [3 * MIB, 2 * MIB, 4 * MIB])
        plan = self.hold(program, GIB)
        self.assertGreater(plan.micro_batch, 84)  # 21 MiB for each sample with large workspaces gives 46
        self.assertLessEqual(len(plan.data["tried"]), 14)
        # Where small workspaces take longer, the batch is not used, but named.
        device = Device(program, GIB)
        step = lambda n: (device.step(n), setattr(device, "seconds", device.seconds + n * (1 + 2 * (len(device.declined) > 0))))
        plan = stowage.tune(step, batch=2, meter=device)
        self.assertLess(plan.micro_batch, 48)
        self.assertGreater(plan.largest_batch, 84)
        self.assertRegex(plan.text, r"largest batch \d+, which takes [23]\.\d times as long for each sample")

    def test_a_process_that_made_its_state_in_a_small_step_runs_what_a_fresh_one_runs(self):
        class Late(Program):
            """Two large blocks in turn. In a fresh process the state goes into the first one's segment, here it has its own."""

            def step(self, device, n, part):
                device.free(device.alloc(int(n * part * 5 * MIB)))
                small, large = device.alloc(int(n * part * MIB)), device.alloc(int(n * part * 5 * MIB))
                device.free(small)
                device.free(large)
                if device.state is None:
                    device.state = [device.alloc(200 * MIB)]

        device = Device(Late([10 * MIB], []), GIB)
        device.kept = 240 * MIB
        plan = self.hold(device.program, GIB)
        self.assertGreater(plan.largest_batch, 90)  # 2 x 5 MiB for each sample; 80 with the state in a segment of its own
        device.fresh()
        steps = []
        plan = stowage.tune(lambda n: (steps.append(n), device.step(n)), batch=2, meter=device)
        self.assertGreater(max(device.gathered), 500 * MIB)
        self.assertTrue(all(device.step(plan.largest_batch, part) is None for part in (1, 0.4, 1, 0.7, 1)))  # and the process goes on
        self.assertLessEqual(len(steps), 20)

    def test_memory_that_other_libraries_take_during_the_steps_is_not_used(self):
        device = Device(Program([30 * MIB], [3 * MIB, MIB]), GIB)
        device.loaded = 200 * MIB
        plan = tuned(device)
        self.assertEqual(plan.data["available_bytes"], GIB - 200 * MIB)
        self.assertLessEqual(plan.data["needs_bytes"], 0.995 * (GIB - 200 * MIB))

    def test_a_first_batch_that_is_too_large_is_halved_and_the_target_is_kept(self):
        device = Device(Program([30 * MIB], [30 * MIB, 10 * MIB]), GIB)
        device.fresh()
        plan = stowage.tune(device.step, batch=64, target_batch=100, meter=device)
        self.assertEqual(sum(plan.sizes), 100)
        self.assertTrue(device.runs(plan.micro_batch, 5, 20))
        self.assertIsNone(dict((one["batch"], one["needs_bytes"]) for one in plan.data["tried"])[64])

    def test_gradients_of_a_failed_step_do_not_remain(self):
        class Jumps(Program):
            def step(self, device, n, part):
                device.free(device.alloc(GIB if n > 84 else MIB))
                super().step(device, n, part)

        device, added = Device(Jumps([30 * MIB], [3 * MIB, MIB]), GIB), []

        def step(n):
            added.append(n)  # the backward pass adds gradients
            device.step(n)
            del added[:]  # zero_grad()

        plan = stowage.tune(step, batch=2, meter=device)
        self.assertEqual(plan.largest_batch, 84)
        self.assertIn(None, [one["needs_bytes"] for one in plan.data["tried"]])
        self.assertEqual(added, [])

    def test_one_sample_too_large_is_no_error(self):
        device = Device(Program([30 * MIB], [2 * GIB]), GIB)
        self.assertFalse(tuned(device).fits)


class Here(unittest.TestCase):
    """What this process does next, with what it did before."""

    def passes(self):
        def step(n):
            # A block, a smaller one in its segment while another as large as the first is requested.
            return [(8, 40 * n * MIB, 0), (8, 0, 0), (9, 12 * n * MIB, 0), (10, 39 * n * MIB, 0), (9, 0, 0), (10, 0, 0)]

        passes = _passes.Passes([(1, 20 * MIB, 0)])
        passes.add("first", 1, [*step(1), (11, 22 * MIB, 0)])
        passes.add("step", 1, step(1))
        passes.add("step", 2, step(2))
        return passes

    def test_one_segment_is_reserved_only_where_it_helps(self):
        replayed = _passes.Replayed(self.passes(), None)
        unreserved = 600 * MIB
        self.assertEqual(replayed.gathered(5, 460 * MIB, unreserved), 0)
        found = replayed.gathered(10, 642 * MIB, unreserved)  # 51 for each sample in one segment, 79 in two
        self.assertGreater(found, 510 * MIB)
        self.assertIsNone(replayed.gathered(10, 500 * MIB, unreserved))

    def test_what_a_failed_pass_frees_after_it_is_not_counted(self):
        passes = self.passes()
        passes.add("step", 9, [(20, 300 * MIB, 0)], whole=False)
        before = _passes.Replayed(passes, None)
        self.assertIsNone(before.gathered(4, 460 * MIB, 0))
        passes.between([(1, 20 * MIB, 0), (11, 22 * MIB, 0)], 0)
        self.assertEqual(_passes.Replayed(passes, None).gathered(4, 460 * MIB, 0), 0)

    def test_a_batch_fits_only_if_half_a_percent_more_does(self):
        passes = _passes.Passes([(1, 2 * MIB, 0)])
        for kind, n in (("first", 1), ("step", 1), ("step", 4)):
            passes.add(kind, n, [(8, 5 * n * MIB, 0), (8, 0, 0)])
        replayed, limits = _passes.Replayed(passes, None), (1020 * MIB,) * 3  # 20 for the weights' segment
        self.assertTrue(replayed.fits(199, limits))
        self.assertFalse(replayed.fits(200, limits))

    def test_steps_that_differ_at_the_same_batch_are_noticed(self):
        passes = self.passes()
        self.assertTrue(passes.regular())
        passes.add("step", 2, [(8, MIB, 0), (8, 0, 0)])
        self.assertFalse(passes.regular())


class Blocks(unittest.TestCase):
    def test_gradients_do_not_grow_where_kernels_request_more_blocks(self):
        def recorded(passes, kind, batch, start, old):
            """A step of four layers: activations, then backward with a gradient for each; larger batches need more temporary blocks."""
            at, requests, activations, gradients = start, [], [], []

            def alloc(size):
                nonlocal at
                at += 512
                requests.append((at, size, 0))
                return at

            requests += [(address, 0, 0) for address in old]
            for _ in range(4):
                activations.append(alloc(batch * 100 * KIB))
            for activation in reversed(activations):
                temporaries = [alloc(batch * 100 * KIB) for _ in range(1 + (batch > 3) + 2 * (batch > 15))]
                gradients.append(alloc(256 * KIB))
                requests += [(address, 0, 0) for address in temporaries + [activation]]
            if kind == _passes.FIRST:
                for _ in range(8):
                    alloc(256 * KIB)  # the optimizer's state
            passes.add(kind, batch, requests)
            return at, gradients

        passes = _passes.Passes([])
        at, old = recorded(passes, _passes.FIRST, 2, 0, [])
        for batch in (2, 4, 8, 16, 32):
            at, old = recorded(passes, _passes.STEP, batch, at, old)
        for kind, kept in ((_passes.FIRST, 12), (_passes.STEP, 4)):
            form = passes._form(kind)
            freed = {block for what, block in form.events if what == _passes._FREE}
            sizes = [size for block, size in enumerate(form.sizes(64.0)) if block not in freed]
            self.assertEqual(sizes, [256 * KIB] * kept)

    def test_additional_blocks_are_found_between_equal_ones(self):
        few = [1000 * at for at in range(3, 60)]
        many = [2 * size for size in few]
        many[20:20] = [7, 7, 7]
        found = _passes.matched(few, many, 2)
        self.assertEqual(found[:20], list(range(20)))
        self.assertEqual(found[20:23], [-1] * 3)
        self.assertEqual(found[23:], list(range(20, 57)))

    def test_a_pass_that_failed_is_not_used_but_what_it_left_is_freed_later(self):
        passes = _passes.Passes([(1, 5 * MIB, 0)])
        passes.add("first", 1, [(2, MIB, 0), (3, 100, 0)], whole=False)
        passes.add("first", 1, [(2, 0, 0), (4, 2 * MIB, 0), (5, 100, 0), (4, 0, 0)])
        passes.add("step", 1, [(4, 2 * MIB, 0), (4, 0, 0)])
        passes.add("step", 2, [(4, 4 * MIB, 0), (4, 0, 0)])
        events = passes.requests([("first", 3, 3), ("step", 4, 4)])
        rows = [_passes._RECORD.unpack_from(events, at) for at in range(0, len(events), _passes._RECORD.size)]
        self.assertEqual([(row[1], row[6]) for row in rows], [(5 * MIB, 0), (6 * MIB, 0), (100, 0), (6 * MIB, 2), (8 * MIB, 0), (8 * MIB, 2)])


class Memory:
    """Replaces torch.cuda.memory: a history and a snapshot, in the form of PyTorch 2.11."""

    def __init__(self):
        self.trace, self.enabled = [], None

    def _record_memory_history(self, enabled="all", context="all", stacks="all", max_entries=0):
        self.enabled, self.trace = enabled, []

    def _snapshot(self):
        blocks = [{"size": 512, "requested_size": 500, "state": "active_allocated"}, {"size": 1536, "requested_size": 0, "state": "inactive"}]
        blocks.append({"size": 1024, "requested_size": 1000, "state": "active_pending_free"})
        segments = [{"device": 0, "address": 4096, "stream": 7, "blocks": blocks}, {"device": 1, "address": 0, "stream": 0, "blocks": blocks}]
        return {"segments": segments, "device_traces": [self.trace, []]}


class TheMeter(unittest.TestCase):
    class Torch:
        class cuda:
            memory = Memory()

            @staticmethod
            def current_device():
                return 0

    def test_it_reads_the_requests_of_a_step_also_after_an_error(self):
        meter, memory = _tune_measure.Meter(self.Torch), self.Torch.cuda.memory
        self.assertTrue(meter.can_record())
        self.assertEqual(meter.held(), [(4096, 500, 7), (6144, 1000, 7)])
        with self.assertRaises(KeyError), meter.recording() as requests:
            for action, size in (("segment_alloc", MIB), ("alloc", 10), ("free_requested", 10), ("free_completed", 10), ("oom", 99)):
                memory.trace.append({"action": action, "addr": 11, "size": size, "stream": 3})
            raise KeyError("mine")
        self.assertEqual(requests, [(11, 10, 3), (11, 0, 3), (0, 99, 3)])
        self.assertIsNone(memory.enabled)

    def test_a_segment_is_left_in_the_cache_if_there_is_room(self):
        asked, meter = [], _tune_measure.Meter(self.Torch)

        def empty(size, dtype, device):
            asked.append((size, device))
            if size > GIB:
                raise RuntimeError("CUDA out of memory")

        self.Torch.empty, self.Torch.uint8 = empty, 1
        self.assertTrue(meter.gather(MIB))
        self.assertFalse(meter.gather(2 * GIB))
        self.assertEqual(asked, [(MIB, "cuda"), (2 * GIB, "cuda")])

    def test_without_a_history_steps_are_measured_instead(self):
        class Old:
            cuda = object()

        self.assertFalse(_tune_measure.Meter(Old).can_record())


if __name__ == "__main__":
    unittest.main()
