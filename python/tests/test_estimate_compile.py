"""estimate: what a program allocates with torch.compile."""

import unittest

import stowage
from support import needs
from test_estimate_kernels import allocated, needs_modern, zeros

MIB = 1 << 20


@needs("torch")
@needs_modern
class Compiled(unittest.TestCase):
    def test_results_that_only_one_kernel_reads_take_no_memory(self):
        import torch

        def sizes(compiled):
            def make():
                weight = zeros(1024, 1024)

                @torch.no_grad()
                def run(x):
                    y = (x @ weight).relu() * 2 + 1
                    return (y.sigmoid() @ weight).sum()

                function = torch.compile(run) if compiled else run
                return lambda: function(zeros(1024, 1024))

            return allocated(make)

        self.assertEqual(sizes(False), [4.0, 4.0, 32.0, 4.0, 4.0, 4.0, 4.0, 4.0])
        # The input, two products and their workspace, and the second product's operand, which replaces the first product.
        self.assertEqual(sizes(True), [4.0, 4.0, 32.0, 4.0, 4.0])

    def test_a_loss_of_logits_needs_them_once(self):
        import torch
        import torch.nn.functional as F

        def peak(compiled):
            def make():
                model = torch.nn.Linear(256, 32000).cuda()
                loss = lambda x, y: F.cross_entropy(model(x).float(), y)  # noqa: E731
                function = torch.compile(loss) if compiled else loss

                def step():
                    with torch.autocast("cuda", dtype=torch.bfloat16):
                        found = function(zeros(4096, 256), torch.zeros(4096, dtype=torch.long, device="cuda"))
                    found.backward()

                return step

            return stowage.estimate(make, steps=1, gpu="H200").peak_live / MIB

        # The logits are 250 MiB in bfloat16. Their copy in float32, its logarithms, the gradient of both: 500 MiB each without torch.compile.
        self.assertGreater(peak(False), 1250)
        self.assertLess(peak(True), 500)

    def test_modules_methods_and_decorators_are_followed(self):
        import torch

        class Model(torch.nn.Sequential):
            def loss(self, x):
                return self(x).pow(2).mean()

        def model():
            return Model(torch.nn.Linear(256, 4096), torch.nn.GELU(), torch.nn.Sigmoid(), torch.nn.Linear(4096, 256)).cuda()

        def compiled(made):
            return torch.compile(made, mode="default")

        def in_place(made):
            made.compile()
            return made

        def method(made):
            return torch.compile(made.loss)

        def decorated(made):
            @torch.compile(dynamic=True)
            def run(x):
                return made(x)

            return run

        found = {}
        for change in (lambda made: made, compiled, in_place, method, decorated):

            def make(change=change):
                made = model()
                function = change(made)
                optimizer = torch.optim.AdamW(made.parameters())

                def step():
                    function(zeros(4096, 256)).pow(2).mean().backward()
                    optimizer.step()
                    self.assertTrue(all(one.grad is not None for one in made.parameters()))
                    optimizer.zero_grad()

                return step

            answer = stowage.estimate(make, gpu="H200")
            found[change.__name__] = answer.peak_live
            self.assertEqual("torch.compile" in " ".join(answer.data["notes"]), change.__name__ != "<lambda>")
        plain = found.pop("<lambda>")
        for name, peak in found.items():
            self.assertLess(peak, 0.9 * plain, name)

    def test_a_function_that_cannot_be_traced_runs_uncompiled(self):
        import torch

        def make():
            model = torch.nn.Linear(64, 64).cuda()

            @torch.compile
            def run(x):
                y = model(x)
                return y * y.sum().item()

            return lambda: run(zeros(1024, 64)).sum().backward()

        found = stowage.estimate(make, gpu="H200")
        self.assertIn("ignored", " ".join(found.data["notes"]))
        self.assertIn("ignored", " ".join(one["what"] for one in found.data["uncertainty"]))

    def test_an_error_of_the_function_is_its_own(self):
        import torch

        def make():
            @torch.compile
            def run(x):
                raise KeyError("labels")

            return lambda: run(zeros(1024, 64))

        with self.assertRaisesRegex(KeyError, "labels"):
            stowage.estimate(make, gpu="H200")


if __name__ == "__main__":
    unittest.main()
