"""tune: the largest batch that fits, on simulated GPUs and by estimate."""

import json
import os
import random
import tempfile
import unittest

import stowage
from stowage import _tune
from stowage._library import Invalid, OutOfMemory
from support import needs

MIB = 1 << 20
GIB = 1 << 30


class SimulatedOut(RuntimeError):
    pass


class Card:
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
            card = Card(total, draw.randrange(0, total // 2), draw.randrange(MIB, 400 * MIB), draw.choice([0, 50 * MIB]), draw.choice([0, 0, MIB // 8]))
            plan = stowage.tune(card.step, batch=draw.choice([1, 2, 4]), meter=card)
            limit = int(total * 0.95)
            best = 1
            while card.need(best + 1) <= limit or card.need(best + 2) <= limit:
                best += 1
            self.assertTrue(plan.fits)
            self.assertLessEqual(card.need(plan.micro_batch), limit)
            self.assertGreaterEqual(plan.micro_batch, min(best * 0.95, best - 1) - 1, plan.data["tried"])
            for _ in range(100):  # later steps of varying size do not fail
                card.step(draw.randrange(1, plan.micro_batch + 1)) if card.jump == 0 else card.step(plan.micro_batch)

    def test_the_target_batch_is_kept_exactly(self):
        card = Card(16 * GIB, GIB, 150 * MIB)
        plan = stowage.tune(card.step, batch=4, target_batch=256, meter=card)
        self.assertEqual(sum(plan.sizes), 256)
        self.assertEqual(plan.accumulate, len(plan.sizes))
        self.assertEqual(plan.apply(), {"batch_size": plan.micro_batch, "accumulate": plan.accumulate})
        self.assertIn(f"batch of {plan.micro_batch}", repr(plan))

    def test_a_first_batch_that_is_too_large_is_halved(self):
        card = Card(4 * GIB, GIB, 300 * MIB)
        plan = stowage.tune(card.step, batch=64, meter=card)
        self.assertGreater(card.failures, 0)
        self.assertEqual(plan.micro_batch, 9)
        self.assertGreater(card.cleared, card.failures)

    def test_another_error_of_the_step_is_raised_untouched(self):
        def step(n):
            raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            stowage.tune(step, meter=Card(GIB, 0, MIB))

    def test_one_sample_too_large_names_the_spill_and_does_not_fail(self):
        card = Card(4 * GIB, 5 * GIB, MIB)
        plan = stowage.tune(card.step, target_batch=8, meter=card)
        self.assertFalse(plan.fits)
        self.assertIsNone(plan.micro_batch)
        self.assertEqual([one["kind"] for one in plan.options], ["spill"])
        self.assertEqual(plan.choice["kind"], "spill")

    def test_a_plan_is_saved_once(self):
        card = Card(4 * GIB, GIB, 300 * MIB)
        plan = stowage.tune(card.step, meter=card)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            plan.save(path)
            with open(path) as file:
                self.assertEqual(json.load(file), plan.data)
            with self.assertRaises(FileExistsError):
                plan.save(path)

    def test_wrong_arguments_are_named(self):
        for given, word in (({"batch": 0}, "batch"), ({"target_batch": 2.5}, "target_batch"), ({"headroom": 1}, "headroom"), ({"allow": "half"}, "allow")):
            with self.subTest(word), self.assertRaisesRegex(Invalid, word):
                stowage.tune(lambda n: None, meter=Card(GIB, 0, MIB), **given)
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


def blocks(count=4, width=256):
    import torch

    one = lambda: torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))  # noqa: E731
    return torch.nn.Sequential(*(one() for _ in range(count)))


@needs("torch")
class Estimated(unittest.TestCase):
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

    def test_without_a_card_and_without_a_name_it_says_what_to_give(self):
        import torch

        if torch.cuda.is_available():
            self.skipTest("there is a card")
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
