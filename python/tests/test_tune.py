"""tune: the largest batch that fits, on simulated GPUs and by estimate."""

import json
import os
import random
import tempfile
import unittest

import stowage
from stowage import _analysis, _estimate, _tune
from stowage._command import run_json
from stowage._library import Invalid, NotFound, OutOfMemory, Unreadable
from support import in_turn, needs

MIB = 1 << 20
GIB = 1 << 30


class SimulatedOut(RuntimeError):
    pass


class Device:
    """A simulated GPU: a step of n samples reserves `fixed + per * n`, in segments of 20 MiB, with occasional jumps."""

    def __init__(self, total, fixed, per, jump=0, bend=0):
        self.total, self.fixed, self.per, self.jump, self.bend = total, fixed, per, jump, bend
        self.last, self.failures, self.steps, self.cleared = 0, 0, 0, 0

    def need(self, n):
        raw = self.fixed + self.per * n + self.bend * n * n + (self.jump if n % 7 == 3 else 0)
        return -(-raw // (20 * MIB)) * 20 * MIB

    def step(self, n):
        self.steps += 1
        self.last = self.need(n)
        if self.last > self.total:
            self.failures += 1
            raise SimulatedOut("CUDA out of memory (simulated)")

    # what the meter offers
    def name(self):
        return "simulated"

    def available(self):
        return self.total

    def is_out(self, error):
        return isinstance(error, SimulatedOut)

    def clear(self):
        self.cleared += 1

    def peak(self, run):
        run()
        return self.last


class Measured(unittest.TestCase):
    def test_forty_simulated_programs_within_five_percent_and_none_fails_later(self):
        draw = random.Random(20)
        for _ in range(40):
            total = draw.randrange(4, 80) * GIB
            device = Device(total, draw.randrange(0, total // 2), draw.randrange(MIB, 400 * MIB), draw.choice([0, 50 * MIB]), draw.choice([0, 0, MIB // 8]))
            plan = stowage.tune(device.step, batch=draw.choice([1, 2, 4]), meter=device)
            limit = plan.data["limit_bytes"]
            best = 1
            while device.need(best + 1) <= limit or device.need(best + 2) <= limit:
                best += 1
            self.assertTrue(plan.fits)
            self.assertLessEqual(device.need(plan.micro_batch), limit)
            self.assertGreaterEqual(plan.micro_batch, min(best * 0.95, best - 1) - 1, plan.data["tried"])
            for _ in range(100):  # later steps of varying size do not fail
                device.step(draw.randrange(1, plan.micro_batch + 1)) if device.jump == 0 else device.step(plan.micro_batch)

    def test_the_target_batch_is_kept_exactly(self):
        device = Device(16 * GIB, GIB, 150 * MIB)
        plan = stowage.tune(device.step, batch=4, target_batch=256, meter=device)
        self.assertEqual(sum(plan.sizes), 256)
        self.assertEqual(plan.accumulate, len(plan.sizes))
        self.assertEqual(plan.apply(), {"batch_size": plan.micro_batch, "accumulate": plan.accumulate})
        self.assertIn(f"batch of {plan.micro_batch}", repr(plan))

    def test_the_bytes_per_sample_are_those_of_the_whole_range(self):
        device = Device(4 * GIB, GIB, 3 * MIB)  # segments of 20 MiB hide a sample between two neighbouring sizes
        plan = stowage.tune(device.step, meter=device)
        self.assertAlmostEqual(plan.data["sample_bytes"] / MIB, 3, delta=0.1)
        self.assertAlmostEqual(plan.data["fixed_bytes"] / GIB, 1, delta=0.05)

    def test_a_first_batch_that_is_too_large_is_halved(self):
        device = Device(4 * GIB, GIB, 300 * MIB)
        plan = stowage.tune(device.step, batch=64, meter=device)
        self.assertGreater(device.failures, 0)
        self.assertEqual(plan.micro_batch, 9)
        self.assertGreater(device.cleared, device.failures)

    def test_another_error_of_the_step_is_raised_untouched(self):
        def step(n):
            raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            stowage.tune(step, meter=Device(GIB, 0, MIB))

    def test_a_step_that_only_makes_a_generator_or_coroutine_is_named(self):
        def passes(n):
            yield n

        async def later(n):
            return n

        for step, what in ((passes, "generator"), (later, "coroutine")):
            with self.assertRaisesRegex(ValueError, rf"step\(\d+\) returned a {what}, of which nothing has run"):
                stowage.tune(step, meter=Device(GIB, 0, MIB))
            with self.assertRaisesRegex(ValueError, rf"evaluate\(\d+\) returned a {what}"):
                stowage.tune(lambda n: None, evaluate=step, meter=Device(GIB, 0, MIB))

    def test_one_sample_too_large_names_the_spill_and_does_not_fail(self):
        device = Device(4 * GIB, 5 * GIB, MIB)
        plan = stowage.tune(device.step, target_batch=8, meter=device)
        self.assertFalse(plan.fits)
        self.assertIsNone(plan.micro_batch)
        self.assertEqual([one["kind"] for one in plan.options], ["spill"])
        self.assertEqual(plan.choice["kind"], "spill")

    def test_a_plan_is_saved_once(self):
        device = Device(4 * GIB, GIB, 300 * MIB)
        plan = stowage.tune(device.step, meter=device)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            plan.save(path)
            with open(path) as file:
                self.assertEqual(json.load(file), plan.data)
            with self.assertRaises(FileExistsError):
                plan.save(path)
            again = stowage.Plan.load(path)
            self.assertEqual(again.data, plan.data)
            self.assertEqual(again.apply(), plan.apply())
            self.assertEqual(repr(again), repr(plan))

    def test_a_file_that_is_no_plan_is_refused_by_name(self):
        device = Device(4 * GIB, GIB, 300 * MIB)
        good = stowage.tune(device.step, meter=device).data
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            with self.assertRaisesRegex(NotFound, "plan.json"):
                stowage.Plan.load(path)
            texts = ["", "[1]", "null", "{}", "\x00", json.dumps({**good, "sizes": []}), json.dumps({**good, "sizes": [0]}), json.dumps({**good, "micro_batch": 99})]
            texts += [json.dumps({**good, "limit_bytes": "much"}), json.dumps({**good, "options": [{}]}), json.dumps({k: v for k, v in good.items() if k != "accumulate"})]
            for text in texts:
                with open(path, "w") as file:
                    file.write(text)
                with self.subTest(text[:40]), self.assertRaisesRegex(Unreadable, "not a plan"):
                    stowage.Plan.load(path)

    def test_wrong_arguments_are_named(self):
        for given, word in (({"batch": 0}, "batch"), ({"target_batch": 2.5}, "target_batch"), ({"headroom": 1}, "headroom"), ({"allow": "half"}, "allow")):
            with self.subTest(word), self.assertRaisesRegex(Invalid, word):
                stowage.tune(lambda n: None, meter=Device(GIB, 0, MIB), **given)
        with self.assertRaisesRegex(Invalid, "target_batch"):
            stowage.tune("run.stow", target_batch=3)
        with self.assertRaisesRegex(Invalid, "vram_limit"):
            stowage.tune(lambda n: None, vram_limit="1G")

    def test_passes_are_equal_where_that_costs_little(self):
        self.assertEqual(_tune.split(256, 300), [256])
        self.assertEqual(_tune.split(7, 3), [3, 3, 1])
        for target in range(1, 60):
            for largest in range(1, 60):
                sizes = _tune.split(target, largest)
                self.assertEqual(sum(sizes), target)
                self.assertLessEqual(max(sizes), largest)


class Simulated(unittest.TestCase):
    def test_blocks_get_the_first_free_address_that_is_large_enough(self):
        places = _estimate.Places()
        a, b, c = places.take(1, 1000), places.take(2, 512), places.take(3, 5000)
        self.assertEqual((b - a, c - b), (1024, 512))
        places.give(1)
        places.give(2)  # joins the one before
        self.assertEqual(places.take(4, 1536), a)
        self.assertEqual(places.take(5, 1), c + 5120)
        places.give(3)
        self.assertEqual(places.take(6, 512), c)
        live = sorted((places.of[one], places._sizes[one]) for one in places.of)
        self.assertTrue(all(at + size <= after for (at, size), (after, _) in zip(live, live[1:])))


class Cuda:
    """Replaces torch.cuda for the meter, with a simulated GPU."""

    class OutOfMemoryError(RuntimeError):
        pass

    def __init__(self, total):
        self.total, self.reserved, self.most, self.waited = total, 0, 0, 0

    def take(self, bytes_):
        if bytes_ > self.total:
            raise self.OutOfMemoryError("CUDA out of memory")
        self.reserved = max(self.reserved, bytes_)
        self.most = max(self.most, self.reserved)

    def get_device_name(self):
        return "simulated"

    def mem_get_info(self):
        return self.total - self.reserved, self.total

    def memory_reserved(self):
        return self.reserved

    def reset_peak_memory_stats(self):
        self.most = self.reserved

    def max_memory_reserved(self):
        return self.most

    def synchronize(self):
        self.waited += 1

    def empty_cache(self):
        self.reserved = 0


class TheMeter(unittest.TestCase):
    def test_it_reads_each_steps_own_peak_and_survives_out_of_memory(self):
        class Torch:
            cuda = Cuda(10 * GIB)

        cuda = Torch.cuda
        plan = stowage.tune(lambda n: cuda.take(GIB + n * 256 * MIB), batch=64, target_batch=100, meter=_tune.Meter(Torch))
        self.assertEqual(plan.data["available_bytes"], 10 * GIB)
        self.assertEqual(plan.largest_batch, 34)  # 9.5 GiB less 1, in quarters
        self.assertEqual(plan.sizes, [25] * 4)
        self.assertEqual(plan.data["needs_bytes"], GIB + 25 * 256 * MIB)
        self.assertGreater(cuda.waited, 0)

    def test_the_fraction_set_for_the_process_is_the_limit(self):
        class Torch:
            cuda = Cuda(10 * GIB)

        set_to = []
        Torch.cuda.get_per_process_memory_fraction = lambda: set_to[-1] if set_to else 0.5
        Torch.cuda.set_per_process_memory_fraction = set_to.append
        plan = stowage.tune(lambda n: Torch.cuda.take(GIB + n * 256 * MIB), batch=2, meter=_tune.Meter(Torch))
        self.assertEqual(plan.data["available_bytes"], 5 * GIB)
        self.assertEqual(plan.largest_batch, 15)  # 4.75 GiB less 1, in quarters
        self.assertAlmostEqual(min(set_to), 0.475)  # the headroom stays free during the steps
        self.assertEqual(set_to[-1], 0.5)

    @in_turn(1)
    def test_a_batch_that_fails_after_smaller_ones_is_not_used(self):
        class Torch:
            cuda = Cuda(10 * GIB)

        cuda, seen = Torch.cuda, []

        def step(n):  # a step after a smaller one needs 10% more: pieces of the cache are lost
            extra = 1.1 if seen and seen[-1] < n else 1.0
            seen.append(n)
            cuda.take(int(n * 256 * MIB * extra))

        meter = _tune.Meter(Torch)
        plan = stowage.tune(step, batch=2, meter=meter)
        self.assertLessEqual(plan.largest_batch * 256 * MIB * 1.1, 10 * GIB)
        self.assertGreaterEqual(plan.largest_batch, 33)

    def test_an_evaluation_counts(self):
        class Torch:
            cuda = Cuda(10 * GIB)

        cuda = Torch.cuda
        plan = stowage.tune(lambda n: cuda.take(n * 256 * MIB), evaluate=lambda n: cuda.take(n * 512 * MIB), batch=2, meter=_tune.Meter(Torch))
        self.assertEqual(plan.largest_batch, 19)  # 9.5 GiB in halves


def blocks(count=4, width=256):
    import torch

    one = lambda: torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))  # noqa: E731
    return torch.nn.Sequential(*(one() for _ in range(count)))


@needs("torch")
class Recorded(unittest.TestCase):
    @in_turn(0)
    def test_a_recording_names_the_batch_that_fits_and_the_estimate_of_that_batch_agrees(self):
        import torch

        def inputs(n):
            return torch.randn(n, 128, 256)

        def needs(n, **named):
            return stowage.estimate(blocks, lambda: inputs(n), optimizer="adamw", vram="16G", settings="expandable_segments:True", **named).data["needs_bytes"]

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "whole.stow")
            whole = needs(48, record=path)
            limit = whole * 6 // 10
            found = stowage.tune(path, vram_limit=limit)
            self.assertEqual(found.batch_settings, "expandable_segments:True")
            self.assertIn(f"a batch of {found.batch}", repr(found))
            self.assertAlmostEqual(found.batch_part, found.batch / 48)
            self.assertLessEqual(needs(found.batch), limit)  # it really fits
            self.assertGreater(needs(found.batch + 6), limit * 0.95)  # and not far below the largest
            self.assertEqual(stowage.tune(path, vram_limit=whole * 2).batch, 48)
            self.assertEqual(stowage.tune(path, vram_limit="16M").batch_part, 0)
            self.assertIsNone(stowage.tune(path).batch_part)


@needs("torch")
class Estimated(unittest.TestCase):
    @in_turn(2)
    def test_the_batch_found_fits_and_a_larger_one_does_not(self):
        import torch

        def inputs(n):
            return torch.randn(n * 512, 256)

        plan = stowage.tune(blocks, inputs, optimizer="adamw", vram="1G", target_batch=512)
        self.assertTrue(plan.fits)
        limit = plan.data["limit_bytes"]
        at = lambda n: stowage.estimate(blocks, lambda: inputs(n), optimizer="adamw", vram="1G").data["needs_bytes"]  # noqa: E731
        self.assertLessEqual(at(plan.largest_batch), limit)
        self.assertGreater(at(plan.largest_batch + max(1, plan.largest_batch // 20) + 1), limit)
        self.assertEqual(sum(plan.sizes), 512)

    def test_a_step_that_makes_its_own_tensors_is_estimated_for_a_named_gpu(self):
        import torch

        def step(n):
            return torch.zeros(n * 100 * MIB, dtype=torch.uint8, device="cuda").add(1)

        plan = stowage.tune(step, vram="2G", headroom=0)
        # 1368 MiB beside the context hold two tensors of n * 100 MiB.
        self.assertEqual(plan.largest_batch, 6)

    @in_turn(2)
    def test_one_sample_too_large_lists_options_with_bytes_and_keeps_the_mathematics(self):
        import torch

        def make():
            return blocks(8, 512)

        def inputs(n):
            return torch.randn(n * 16384, 512)

        plan = stowage.tune(make, inputs, optimizer="adamw", vram="2G", target_batch=4)
        self.assertFalse(plan.fits)
        kinds = {one["kind"]: one for one in plan.options}
        self.assertIn("spill", kinds)
        self.assertIn("host_state", kinds)
        # Two float32 states of 8 blocks with two matrices of 512 x 2048, less what rounding to segments hides.
        states = 2 * 4 * 8 * 2 * 512 * 2048
        self.assertGreater(kinds["host_state"]["saves_bytes"], states * 0.7)
        self.assertTrue(plan.choice["exact"])
        if "checkpoint" in kinds and kinds["checkpoint"]["fits"]:
            self.assertEqual(plan.choice["kind"], "checkpoint")
            self.assert_fewest_blocks(plan, make, inputs)
        if hasattr(torch.Tensor, "untyped_storage"):  # PyTorch 2: fake tensors can be saved on the host
            # The inputs and outputs of 8 blocks, which the host holds instead: 16384 rows of 512 + 2 x 2048 numbers each.
            self.assertGreater(kinds["offload"]["saves_bytes"], 0.7 * 8 * 16384 * (512 + 2 * 2048) * 4)
            self.assertTrue(kinds["offload"]["exact"])
        # Times come from the same simulated step: the residency simulator for the spill, the operators for the others.
        timed = [one for one in plan.options if one["exact"]]
        self.assertTrue(all(one["times"] is not None for one in timed), timed)
        self.assertGreater(kinds["spill"]["times"], 1.0)
        self.assertIn("simulated", kinds["spill"]["cost"])
        self.assertEqual(plan.choice["times"], min(one["times"] for one in timed if one["fits"]))

    def assert_fewest_blocks(self, plan, make, inputs):
        """The chosen number of blocks fits, and one less does not."""
        count = plan.choice["blocks"]

        def needs(share):
            def changed():
                model = make()
                _tune.checkpoint_blocks(model, share)
                return model

            return stowage.estimate(changed, lambda: inputs(1), optimizer="adamw", vram="2G").data["needs_bytes"]

        self.assertEqual(needs(count), plan.choice["needs_bytes"])
        self.assertLessEqual(needs(count), plan.data["limit_bytes"])
        if count > 1:
            self.assertGreater(needs(count - 1), plan.data["limit_bytes"])
        model = make()
        self.assertEqual(plan.apply(model), {"batch_size": 1, "accumulate": 4})
        self.assertEqual(sum("forward" in vars(one) for one in model), count)

    @in_turn(0)
    def test_the_batch_also_holds_for_an_evaluation_with_longer_inputs(self):
        import torch

        def inputs(n):
            return torch.randn(n * 64, 256)

        def long(n):
            return torch.randn(n * 2048, 256)

        def needs(n, **named):
            return stowage.estimate(lambda: blocks(2), lambda: inputs(n), optimizer="sgd", vram="1G", **named).data["needs_bytes"]

        named = {"optimizer": "sgd", "vram": "1G", "batch": 32, "target_batch": 64}
        plan = stowage.tune(lambda: blocks(2), inputs, evaluate=long, **named)
        self.assertLess(plan.largest_batch, 64)
        self.assertLessEqual(needs(64), plan.data["limit_bytes"])  # without the evaluation, the whole batch fits
        self.assertLessEqual(needs(plan.largest_batch, evaluate=lambda: long(plan.largest_batch)), plan.data["limit_bytes"])
        with self.assertRaises(Invalid):
            stowage.tune(blocks, inputs, evaluate=3, **named)

    def test_offloaded_activations_give_the_same_gradients(self):
        import torch

        torch.manual_seed(4)
        model, x = blocks(3, 32), torch.randn(5, 32)
        model(x).sum().backward()
        before = [one.grad.clone() for one in model.parameters()]
        for one in model.parameters():
            one.grad = None
        _tune.offload_activations(model)
        model(x).sum().backward()
        for one, old in zip(model.parameters(), before):
            self.assertTrue(torch.equal(one.grad, old))

    def test_an_estimated_trace_is_simulated_with_spilling_the_same_each_time(self):
        import torch

        with tempfile.TemporaryDirectory() as folder:
            answers, simulated = [], []
            for name in ("a.stow", "b.stow"):
                path = os.path.join(folder, name)
                found = stowage.estimate(lambda: blocks(4, 512), lambda: torch.randn(8192, 512), optimizer="sgd", vram="16G", record=path)
                vram = found.peak_live // 2 + (808 << 20)
                answers.append(run_json(["replay", path, "--vram", str(vram), "--spill", "auto"]))
                simulated.append(_analysis.spill(path, vram))
            self.assertEqual(answers[0], answers[1])
            self.assertEqual(answers[0]["bare_ns"], found.data["simulated_step_ns"])
            self.assertGreater(answers[0]["step_ns"], answers[0]["bare_ns"])
            for one in simulated:  # the library, which tune() calls, and the command agree
                for name in ("step_ns", "bare_ns", "floor_ns", "capacity_bytes", "excess_bytes", "in_bytes", "out_bytes"):
                    self.assertEqual(getattr(one, name), answers[0][name], name)

    def test_checkpointed_blocks_give_the_same_gradients(self):
        import torch

        torch.manual_seed(3)
        model, x = blocks(3, 32), torch.randn(5, 32)
        model(x).sum().backward()
        before = [one.grad.clone() for one in model.parameters()]
        for one in model.parameters():
            one.grad = None
        self.assertEqual(_tune.checkpoint_blocks(model), 3)
        model(x).sum().backward()
        for one, old in zip(model.parameters(), before):
            self.assertTrue(torch.equal(one.grad, old))

    def test_without_a_device_and_without_a_name_it_says_what_to_give(self):
        import torch

        if torch.cuda.is_available():
            self.skipTest("there is a device")
        with self.assertRaisesRegex(Invalid, "gpu="):
            stowage.tune(lambda n: None)

    def test_a_choice_that_changes_the_program_is_not_applied_silently(self):
        data = {"micro_batch": None, "accumulate": 1, "options": [{"kind": "amp", "name": "autocast", "how": "use it", "chosen": True}]}
        with self.assertRaisesRegex(Invalid, "autocast"):
            _tune.Plan(data).apply()
        with self.assertRaises(OutOfMemory):
            _tune.Plan({"micro_batch": None, "accumulate": 1, "options": []}).apply()


if __name__ == "__main__":
    unittest.main()
