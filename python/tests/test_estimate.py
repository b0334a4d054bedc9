"""estimate: what a program needs on a GPU, computed without one. Sizes are counted by hand."""

import contextlib
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import stowage
from stowage._gpus import find
from stowage._library import Invalid, NotFound, Unreadable, Unsupported
from support import clean_environment, in_turn, needs

MIB = 1 << 20


def version():
    with contextlib.suppress(ImportError):
        import torch

        return tuple(int(part) for part in torch.__version__.split(".")[:2])
    return (0, 0)


needs_modern = unittest.skipUnless(version() >= (2, 4), "needs PyTorch 2.4 or newer: older fake tensors lack it")


def workspace(gpu):
    from stowage import _gpus

    return _gpus.find(gpu).cublas_bytes


@needs("torch")
class Programs(unittest.TestCase):
    def test_counts_births_and_deaths(self):
        import torch

        def make():
            kept = torch.zeros(4 * MIB, dtype=torch.uint8, device="cuda")

            def step():
                a = torch.zeros(8 * MIB, dtype=torch.uint8, device="cuda")
                b = a[:MIB]  # a view takes nothing
                del a
                c = b + 1
                del b, c
                d = torch.zeros(2 * MIB, dtype=torch.uint8, device="cuda")
                kept.add_(d[0])

            return step

        found = stowage.estimate(make, gpu="T4")
        self.assertEqual(found.peak_live, 13 * MIB)
        self.assertTrue(found.fits)
        self.assertEqual(found.margin, found.data["gpu"]["available_bytes"] - found.data["needs_bytes"])

    def test_host_tensors_take_nothing(self):
        import torch

        def make():
            def step():
                x = torch.zeros(64 * MIB, dtype=torch.uint8)
                return x[: 3 * MIB].to("cuda")

            return step

        self.assertEqual(stowage.estimate(make, gpu="T4").peak_live, 3 * MIB)

    def test_inference_is_weights_input_output_and_workspace(self):
        import torch

        found = stowage.estimate(lambda: torch.nn.Linear(1024, 2048, bias=False), lambda: torch.randn(512, 1024), gpu="T4")
        # 8 MiB weights, 2 MiB input, 4 MiB output.
        self.assertEqual(found.peak_live, 14 * MIB + workspace("T4"))
        self.assertEqual(found.data["kind"], "inference")

    def test_training_holds_gradients_and_optimizer_state(self):
        import torch

        class Scale(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.zeros(4 * MIB // 4))

            def forward(self, x):
                return (self.weight * x).sum()

        def peak(optimizer):
            return stowage.estimate(Scale, lambda: torch.ones(1), optimizer=optimizer, gpu="T4", steps=2).peak_live

        plain = peak(lambda p: torch.optim.SGD(p, lr=0.1))
        self.assertEqual(plain // MIB, 8)  # weight and product, then weight and gradient
        adam = peak(lambda p: torch.optim.AdamW(p, lr=0.1, foreach=False))
        self.assertGreaterEqual(adam - plain, 2 * 4 * MIB)

    def test_a_peak_has_its_lines(self):
        import torch

        def make():
            def step():
                return torch.zeros(32 * MIB, dtype=torch.uint8, device="cuda")

            return step

        found = stowage.estimate(make, gpu="T4")
        self.assertIn("test_estimate.py", found.holders[0]["label"])
        self.assertEqual(found.holders[0]["bytes"], 32 * MIB)
        self.assertIn("32.0 MiB", repr(found))
        self.assertIn("<", found._repr_html_())

    def test_says_no_with_what_is_missing(self):
        import torch

        def make():
            return lambda: torch.zeros(20 << 30, dtype=torch.uint8, device="cuda")

        found = stowage.estimate(make, vram="16G")
        self.assertFalse(found.fits)
        self.assertEqual(found.margin, (16 << 30) - (680 << 20) - (20 << 30))
        self.assertTrue(stowage.estimate(make, vram="22G").fits)
        self.assertEqual(found.verdict, "no")

    def test_says_yes_and_no_only_outside_of_the_uncertainty(self):
        import torch

        def make():
            layer = torch.nn.Linear(4096, 4096, bias=False).to("cuda")
            return lambda: layer(torch.zeros(4096, 4096, device="cuda"))

        known = stowage.estimate(make, vram="16G").data
        context = known["gpu"]["context_bytes"]
        self.assertLess(known["needs_low_bytes"], known["needs_bytes"])
        self.assertLess(known["needs_bytes"], known["needs_high_bytes"])
        answers = {}
        for name, there in (("yes", known["needs_high_bytes"]), ("close", known["needs_high_bytes"] - MIB), ("close ", known["needs_low_bytes"]), ("no", known["needs_low_bytes"] - MIB)):
            answers[name] = stowage.estimate(make, vram=there + context)
            self.assertEqual(answers[name].verdict, name.strip())
            self.assertEqual(answers[name].fits, name == "yes")
        self.assertIn("Close on a GPU", answers["close"].text)
        self.assertIn("may fit or not", answers["close"].text)
        self.assertEqual(sum(one["high_bytes"] for one in known["uncertainty"]), known["needs_high_bytes"] - known["needs_bytes"])

    @needs_modern
    def test_the_uncertainty_has_reasons(self):
        import torch

        def reasons(model, x, gpu="H200", **named):
            data = stowage.estimate(model, lambda: torch.zeros(*x), optimizer="sgd", gpu=gpu, **named).data
            return data, {one["what"].split(" ")[0]: one for one in data["uncertainty"]}

        linear, why = reasons(lambda: torch.nn.Linear(2048, 2048), (1024, 2048))
        self.assertNotIn("workspaces", why)
        self.assertLess(linear["needs_high_bytes"], 1.12 * linear["needs_bytes"])
        image, why = reasons(lambda: torch.nn.Sequential(*[torch.nn.Conv2d(64, 64, 3, padding=1) for _ in range(4)]), (32, 64, 64, 64))
        self.assertGreater(why["workspaces"]["high_bytes"], 0.1 * image["needs_bytes"])
        self.assertLess(why["workspaces"]["low_bytes"], 0)
        compiled, why = reasons(lambda: torch.compile(torch.nn.Linear(2048, 2048)), (1024, 2048))
        self.assertGreater(why["torch.compile,"]["high_bytes"], 0.1 * compiled["needs_bytes"])
        self.assertLess(compiled["needs_low_bytes"], 0.9 * compiled["needs_bytes"])
        other, why = reasons(lambda: torch.nn.Linear(2048, 2048), (1024, 2048), gpu="T4")
        self.assertIn("not measured on this GPU", why["kernels"]["what"])

    def test_the_trace_can_be_reported_and_replayed(self):
        import torch

        def make():
            return lambda: torch.zeros(6 * MIB, dtype=torch.uint8, device="cuda")

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.stow")
            found = stowage.estimate(make, gpu="T4", record=path)
            self.assertEqual(found.trace, path)
            self.assertEqual(stowage.replay(path, "torch_default")["torch_default"]["peak_live_bytes"], 6 * MIB)
            with self.assertRaises(FileExistsError):
                stowage.estimate(make, gpu="T4", record=path)

    def test_the_trace_has_the_batch_that_models_are_called_with(self):
        import torch

        def make(first, second):
            def build():
                model = torch.nn.Linear(64, 64).cuda()

                def step():
                    out = model(torch.ones(first, 64, device="cuda"))
                    return out, model(torch.ones(second, 64, device="cuda"))

                return step

            return build

        def batch(*batches):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "run.stow")
                stowage.estimate(make(*batches), gpu="T4", record=path)
                with open(path, "rb") as file:
                    return re.findall(rb"batch (\d+) first", file.read())

        self.assertEqual(batch(12, 12), [b"12"])
        self.assertEqual(batch(12, 96), [])  # two lines disagree

    def test_two_runs_give_the_same_answer(self):
        import torch

        def make():
            return torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))

        figures = []
        for _ in range(2):
            data = stowage.estimate(make, lambda: torch.randn(64, 256), optimizer="adamw", gpu="A100").data
            figures.append([data[key] for key in ("peak_live_bytes", "peak_reserved_bytes", "needs_bytes", "events", "holders")])
        self.assertEqual(figures[0], figures[1])

    def test_pytorch_is_as_before(self):
        import torch

        before = (torch.cuda.is_available, torch.nn.Module._apply, torch.nn.functional.dropout, torch._VF.dropout)
        stowage.estimate(lambda: torch.nn.Linear(8, 8), lambda: torch.randn(2, 8), gpu="T4")
        with self.assertRaises(ZeroDivisionError):
            stowage.estimate(lambda: 1 // 0, gpu="T4")
        self.assertEqual(before, (torch.cuda.is_available, torch.nn.Module._apply, torch.nn.functional.dropout, torch._VF.dropout))
        x = torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum()
        x.backward()
        self.assertIs(type(x), torch.Tensor)

    def test_shared_weights_stay_shared(self):
        import torch

        class Tied(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = torch.nn.Linear(1024, 1024, bias=False)
                self.b = torch.nn.Linear(1024, 1024, bias=False)
                self.b.weight = self.a.weight

            def forward(self, x):
                return self.b(self.a(x))

        found = stowage.estimate(Tied, lambda: torch.randn(1, 1024), gpu="T4")
        self.assertLess(found.peak_live, 5 * MIB + workspace("T4"))

    def test_a_model_that_exists_stays_as_it_is(self):
        """PyTorch 2.5 would really copy its weights, and asks for a driver where a decomposed operator indexes."""
        import torch

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.norm = torch.nn.Embedding(1000, 64), torch.nn.BatchNorm1d(8)
                self.rnn, self.head = torch.nn.LSTM(64, 32, batch_first=True), torch.nn.Linear(64, 10, bias=False)
                self.tied = torch.nn.Linear(64, 10, bias=False)
                self.tied.weight = self.head.weight

            def forward(self, x):
                x = self.norm(self.words(x))
                return self.head(x).sum() + self.tied(x).mean() + self.rnn(x)[0].sum()

        model, x = Model(), torch.zeros(4, 8, dtype=torch.long)
        before, values = dict(model.named_parameters()), {name: one.clone() for name, one in model.state_dict().items()}
        found = stowage.estimate(lambda: model, lambda: torch.zeros(4, 8, dtype=torch.long), optimizer="adamw", gpu="T4")
        self.assertGreater(found.data["peak_live_bytes"], 4 * 1000 * 64 * 4)
        self.assertTrue(all(one is before[name] for name, one in model.named_parameters()))
        self.assertIs(model.tied.weight, model.head.weight)
        self.assertTrue(all(torch.equal(one, values[name]) for name, one in model.state_dict().items()))
        self.assertIs(model.rnn._flat_weights[0], model.rnn.weight_ih_l0)
        model(x).backward()

    def test_an_operator_that_needs_values_is_named(self):
        import torch

        def make():
            return lambda: torch.zeros(8, device="cuda").nonzero()

        with self.assertRaises((Unsupported, RuntimeError)) as caught:
            stowage.estimate(make, gpu="T4")
        if version() >= (2, 0):
            self.assertIsInstance(caught.exception, Unsupported)
            self.assertIn("nonzero", str(caught.exception))
            self.assertIn("test_estimate.py", str(caught.exception))
            self.assertIn("stowage run --record", str(caught.exception))

    def test_an_error_of_the_program_is_untouched(self):
        import torch

        with self.assertRaises(KeyError) as caught:
            stowage.estimate(lambda: {}["mine"], gpu="T4")
        self.assertEqual(caught.exception.args, ("mine",))
        with self.assertRaises(RuntimeError) as caught:
            stowage.estimate(lambda: torch.nn.Linear(3, 4), lambda: torch.randn(2, 5), gpu="T4")
        self.assertNotIsInstance(caught.exception, stowage.StowageError)

    def test_wrong_arguments(self):
        import torch

        for wrong in ({}, {"gpu": "T5"}, {"vram": "100M"}, {"gpu": "T4", "steps": 0}, {"gpu": "T4", "accumulate": True}):
            with self.assertRaises((Invalid, TypeError)):
                stowage.estimate(lambda: torch.nn.Linear(1, 1), lambda: torch.ones(1, 1), **wrong)
        for make in (lambda: 3, lambda: torch.nn.Linear(1, 1), lambda: {"modell": 1}):
            with self.assertRaises(Invalid):
                stowage.estimate(make, gpu="T4")
        with self.assertRaises(Invalid):
            stowage.estimate(lambda: torch.nn.Linear(1, 1), lambda: torch.ones(1, 1), optimizer="adamx", gpu="T4")


@needs("torch")
@needs_modern
class Kernels(unittest.TestCase):
    def test_autocast_keeps_what_a_gpu_keeps(self):
        import torch

        def make():
            layer = torch.nn.Linear(1024, 1024, bias=False, device="cuda")
            kinds = []

            def step():
                x = torch.randn(4096, 1024, device="cuda")
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    y = layer(x)
                    kinds.append((y.dtype, y.softmax(-1).dtype, (y + x).dtype))
                y.float().sum().backward()
                self.assertIs(layer.weight.grad.dtype, torch.float32)

            make.kinds = kinds
            return step

        stowage.estimate(make, gpu="A100", steps=1)
        self.assertEqual(make.kinds, [(torch.bfloat16, torch.float32, torch.float32)])

    def test_a_parameter_is_cast_once(self):
        import torch

        def peak(times):
            def make():
                layer = torch.nn.Linear(2048, 2048, bias=False, device="cuda")

                def step():
                    x = torch.randn(2, 2048, device="cuda", requires_grad=True)
                    with torch.autocast("cuda", dtype=torch.float16):
                        for _ in range(times):
                            x = layer(x)

                return step

            return stowage.estimate(make, gpu="T4", steps=1).peak_live

        self.assertLess(peak(4) - peak(1), MIB)  # one copy of 8 MiB for all

    def test_float16_with_a_scaler_steps(self):
        import torch

        found = stowage.estimate(
            lambda: torch.nn.Linear(1024, 1024), lambda: torch.randn(64, 1024), optimizer="adamw", amp="fp16", gpu="T4"
        )
        # Weight, gradient, two states: the optimizer has stepped.
        self.assertGreater(found.peak_live, 16 * MIB)

    def test_foreach_makes_temporaries(self):
        import torch

        def program(**named):
            def make():
                weights = [torch.nn.Parameter(torch.zeros(MIB // 4, device="cuda")) for _ in range(8)]
                made = torch.optim.AdamW(weights, lr=0.1, **named)

                def step():
                    for one in weights:
                        one.grad = torch.ones_like(one)
                    made.step()
                    made.zero_grad()

                return step

            return stowage.estimate(make, gpu="T4").peak_live

        default, single, fused = program(), program(foreach=False), program(fused=True)
        self.assertGreater(default, single)
        self.assertLessEqual(fused, single)
        self.assertEqual(fused // MIB, 32)

    def test_checkpointing_needs_less(self):
        import torch
        from torch.utils.checkpoint import checkpoint

        class Net(torch.nn.Module):
            def __init__(self, saves):
                super().__init__()
                self.saves = saves
                self.parts = torch.nn.ModuleList(
                    torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)) for _ in range(6)
                )

            def forward(self, x):
                for part in self.parts:
                    x = checkpoint(part, x, use_reentrant=False) if self.saves else part(x)
                return x.mean()

        def peak(saves):
            return stowage.estimate(lambda: Net(saves), lambda: torch.randn(4096, 256), optimizer="sgd", gpu="T4").peak_live

        self.assertLess(peak(True), 0.6 * peak(False))

    def test_attention_by_gpu_and_mask(self):
        import torch
        from stowage import _gpus, _kernels

        def chosen(gpu, kind=torch.float16, mask=None):
            q = torch.empty(1, 2, 16, 64, dtype=kind, device="meta")
            return _kernels.choose_attention(torch, _gpus.find(gpu), q, q, q, mask)

        self.assertEqual(chosen("A100"), "flash")
        self.assertEqual(chosen("T4"), "efficient")
        self.assertEqual(chosen("T4", torch.bfloat16), "math")
        self.assertEqual(chosen("A100", torch.float32), "efficient")
        self.assertEqual(chosen("A100", mask=torch.empty(16, 16)), "efficient")
        self.assertEqual(chosen("A100", mask=torch.empty(16, 16).t()), "math")  # only the math kernel takes any strides
        if version() >= (2, 11):
            self.assertEqual(chosen("H200"), "cudnn")
            self.assertEqual(chosen("H200", mask=torch.empty(16, 16)), "cudnn")
        odd = torch.empty(1, 2, 16, 20, device="meta")
        pick = lambda gpu, q, **named: _kernels.choose_attention(torch, _gpus.find(gpu), q, q, q, None, **named)  # noqa: E731
        self.assertEqual(pick("A100", odd), "efficient")  # 20 is a multiple of 4
        self.assertEqual(pick("A100", odd[..., :18]), "math")
        self.assertEqual(pick("A100", odd.half()), "flash")  # padded to 24
        long, short = torch.empty(1, 2, 32, 64, dtype=torch.float16, device="meta"), torch.empty(1, 2, 16, 64, dtype=torch.float16, device="meta")
        self.assertEqual(_kernels.choose_attention(torch, _gpus.find("A100"), short, long, long, None, causal=True), "efficient")

        def peak(gpu, **named):
            def make():
                def step():
                    q = torch.zeros(4, 8, 2048, 64, dtype=torch.float16, device="cuda")
                    torch.nn.functional.scaled_dot_product_attention(q, q, q, **named)

                return step

            return stowage.estimate(make, gpu=gpu).peak_live

        self.assertLess(peak("A100"), 18 * MIB)  # 8 MiB in, 8 MiB out, log-sum-exp
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            self.assertGreater(peak("A100"), 512 * MIB)  # the scores, 4 x 8 x 2048 x 2048, in float32

    @needs_modern
    def test_a_mask_is_padded_before_it_is_expanded(self):
        import torch

        def make():
            q = torch.zeros(2, 16, 1001, 64, device="cuda")
            mask = torch.zeros(2, 1, 1001, 1001, device="cuda")
            return lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)

        # Query, result, mask, mask with rows of 1008. Not 16 masks.
        size = 2 * 2 * 16 * 1001 * 64 * 4 + 2 * 1001 * (1001 + 1008) * 4
        self.assertAlmostEqual(stowage.estimate(make, gpu="A100").peak_live / MIB, size / MIB, delta=1)

    def test_gradients_are_summed_in_place(self):
        import torch

        def make():
            weight = torch.nn.Parameter(torch.zeros(1024, 1024, device="cuda"))

            def step():
                x = weight * 2
                sum((x * i).sum() for i in range(3)).backward()
                weight.grad = None

            return step

        # In the backward pass: weight, x, the gradient of x so far, and the next part of it. No fifth tensor for their sum.
        self.assertEqual(stowage.estimate(make, gpu="T4").peak_live // MIB, 16)

    def test_temporaries_are_those_that_were_recorded(self):
        """Sizes from a recording of PyTorch 2.11 on an H200: a GPT with 16 x 840 tokens and 768 columns."""
        import torch
        from stowage import _gpus
        from stowage import _kernel_temporaries as _kernels
        from stowage._fake_record import Recorder

        recorder = Recorder(torch, _gpus.find("H200"), "cuda", "")
        for columns, size in ((768, 82575360), (2304, 139198464), (3072, 138412032)):
            x = torch.empty(13440, columns, dtype=torch.bfloat16, device="meta")
            self.assertEqual(_kernels._reduction(recorder, (x, [0]), x[0])[1][0], size)
        ids, out = torch.empty(13440, dtype=torch.int64, device="meta"), torch.empty(50257, 768, device="meta")
        self.assertEqual(_kernels._embedding_backward(recorder, (None, ids), out)[1][-1], 45416448)

    @needs_modern
    def test_each_operator_allocates_what_its_kernel_does(self):
        """One operator at a time: the most bytes live during it, less its inputs and results, in MiB by the formula of its kernel's source."""
        import torch
        import torch.nn.functional as F

        def zeros(*shape, kind=torch.float32):
            return torch.zeros(*shape, dtype=kind, device="cuda")

        big = lambda: zeros(1024, 1024)  # noqa: E731 - 4 MiB
        image = lambda: zeros(4, 64, 64, 64)  # noqa: E731 - 4 MiB
        half = torch.float16
        cases = {
            # name: (inputs, operator, MiB of results, MiB of temporaries)
            "mse_loss": (lambda: (big(), big()), F.mse_loss, 0, 8),
            "mse_loss of each number": (lambda: (big(), big()), lambda a, b: F.mse_loss(a, b, reduction="none"), 4, 0),
            "smooth_l1_loss": (lambda: (big(), big()), F.smooth_l1_loss, 0, 4),
            "huber_loss": (lambda: (big(), big()), F.huber_loss, 0, 4),
            "bce of logits": (lambda: (big(), big()), F.binary_cross_entropy_with_logits, 0, 8),
            "bce keeps its losses": (lambda: (big(), big()), F.binary_cross_entropy, 4, 0),
            "logsumexp": (lambda: (big(),), lambda a: a.logsumexp(-1), 0, 4),
            "multinomial": (lambda: (big(),), lambda a: a.multinomial(1), 0, 4),
            "multinomial, several": (lambda: (big(),), lambda a: a.multinomial(5, replacement=True), 0, 8),
            "a short sort": (lambda: (big(),), lambda a: a.sort(-1), 12, 0),
            "a long sort": (lambda: (zeros(64, 16384),), lambda a: a.sort(-1), 12, 32.38),
            "norm of a transposed input": (lambda: (big().t(),), lambda a: F.layer_norm(a, (1024,)), 4, 4),
            "norm of many tensors": (lambda: ([zeros(1 << 20), *[zeros(64) for _ in range(1000)]],), lambda a: torch._foreach_norm(a), 0, 1001 * 16 * 4 / MIB),
            "expanded operand": (lambda: (zeros(1, 1).expand(1024, 1024), big()), torch.mm, 4, 4),
            "operand with strides": (lambda: (zeros(1024, 2048)[:, ::2], big()), torch.mm, 4, 4),
            "a transposed operand is taken": (lambda: (big().t(), big()), torch.mm, 4, 0),
            "an expanded batch is taken": (lambda: (zeros(1, 256, 256).expand(16, 256, 256), zeros(16, 256, 256)), torch.bmm, 4, 0),
            "softmax from half": (lambda: (zeros(1024, 2048, kind=half),), lambda a: F.softmax(a, dim=-1, dtype=torch.float32), 8, 0),
            "log_softmax from half": (lambda: (zeros(1024, 2048, kind=half),), lambda a: a.log_softmax(-1, dtype=torch.float32), 8, 0),
            "convolution of a view": (lambda: (zeros(4, 64, 64, 128)[..., ::2], zeros(64, 64, 1, 1)), F.conv2d, 4, 4),
            "one filter per channel": (lambda: (image(), zeros(64, 1, 3, 3)), lambda x, w: F.conv2d(x, w, padding=1, groups=64), 4, 0),
            "3 x 3": (lambda: (image(), zeros(64, 64, 3, 3)), lambda x, w: F.conv2d(x, w, padding=1), 4, 8 + 64 * 64 * 9 * 4 / MIB),
            "fourier": (lambda: (big(),), torch.fft.rfft, 1024 * 513 * 8 / MIB, 1024 * 513 * 8 / MIB),
            "distances": (lambda: (zeros(1024, 1024), zeros(1024, 1024)), lambda a, b: torch.cdist(a, b), 4, 4 + 2 * 1024 * 1026 * 4 / MIB),
            "rms_norm": (lambda: (zeros(1024, 1024, kind=half), zeros(1024, kind=half)), lambda a, w: F.rms_norm(a, (1024,), w), 2 + 1024 * 4 / MIB, 0),
        }
        for name, (inputs, operator, results, temporaries) in cases.items():
            with self.subTest(name):
                if name == "rms_norm" and version() < (2, 9):
                    continue

                def make(inputs=inputs, operator=operator):
                    given = inputs()
                    torch.mm(zeros(1, 1), zeros(1, 1))  # makes the workspace of cuBLAS
                    return lambda: operator(*given)

                without = stowage.estimate(lambda inputs=inputs: (lambda given: lambda: given)((inputs(), torch.mm(zeros(1, 1), zeros(1, 1)))), gpu="A100", steps=1)
                with torch.no_grad():
                    found = stowage.estimate(make, gpu="A100", steps=1)
                self.assertAlmostEqual((found.peak_live - without.peak_live) / MIB, results + temporaries, delta=0.05)

    @needs_modern
    def test_layer_norm_of_many_rows_sums_in_parts(self):
        import torch
        from stowage import _gpus
        from stowage import _kernel_temporaries as temporaries
        from stowage._fake_record import Recorder

        def parts(gpu, rows, columns):
            x, weight = torch.empty(rows, columns, device="meta"), torch.empty(columns, device="meta")
            return temporaries._norm_backward(Recorder(torch, _gpus.find(gpu), "cuda", ""), (x, x, [columns]), (x, weight, weight))[1]

        # 24 blocks across, at most 32768 in all: 1365 rows of partial sums for the weight, and as many for the bias.
        # Their sum is a reduction by many blocks.
        self.assertEqual(parts("H200", 131072, 768), (1365 * 768 * 4, 1365 * 768 * 4, 8650752, 24))
        self.assertEqual(parts("H200", 65536, 768), ())
        self.assertEqual(parts("H200", 131072, 4096), ())

    def test_dropout_keeps_a_byte_mask(self):
        import torch

        def make():
            def step():
                x = torch.zeros(MIB, device="cuda", requires_grad=True)
                return torch.nn.functional.dropout(x, 0.5, True)

            return step

        self.assertEqual(stowage.estimate(make, gpu="T4").peak_live, (4 + 4 + 1) * MIB)

    def test_a_real_model_stays_as_it_is(self):
        import torch

        model = torch.nn.Linear(512, 512)
        weight = model.weight
        found = stowage.estimate(model, lambda: torch.randn(8, 512), optimizer="sgd", gpu="T4")
        self.assertIs(model.weight, weight)
        self.assertEqual(model.weight.device.type, "cpu")
        self.assertIs(type(model.weight.detach()), torch.Tensor)
        self.assertGreater(found.peak_live, 2 * MIB)

    def test_a_value_that_is_read_is_assumed(self):
        import torch

        def make():
            def step():
                loss = torch.ones(1, device="cuda").sum()
                return loss.item() + float(loss)

            return step

        self.assertIn("test_estimate.py", " ".join(stowage.estimate(make, gpu="T4").data["notes"]))

    @needs_modern
    def test_sparse_gradients_are_marked(self):
        import torch

        def make():
            table = torch.nn.Embedding(4096, 64, sparse=True).to("cuda")

            def step():
                table(torch.arange(64, device="cuda")).sum().backward()

            return step

        notes = stowage.estimate(make, gpu="T4").data["notes"]
        self.assertTrue(any("sparse" in one for one in notes), notes)

    @needs_modern
    def test_an_array_of_a_tensor_has_assumed_values(self):
        import numpy as np
        import torch

        seen = []

        def make():
            def step():
                x = torch.ones(4, 3, device="cuda")
                seen.append((x.cpu().numpy(), np.asarray(x.detach().cpu().half() > 0)))
                with self.assertRaises(TypeError):  # as PyTorch does
                    x.numpy()

            return step

        notes = " ".join(stowage.estimate(make, gpu="T4", steps=1).data["notes"])
        self.assertIn("test_estimate.py", notes)
        self.assertEqual((seen[0][0].dtype, seen[0][0].shape, float(seen[0][0].sum())), (np.float32, (4, 3), 12.0))
        self.assertEqual((seen[0][1].dtype, seen[0][1].any()), (np.dtype(bool), False))

    @needs_modern
    def test_a_function_that_reads_memory_is_named_with_the_way_to_measure(self):
        import torch

        def make():
            def step():
                torch.utils.dlpack.to_dlpack(torch.ones(4, device="cuda"))

            return step

        with self.assertRaises(Unsupported) as caught:
            stowage.estimate(make, gpu="T4")
        self.assertIn("test_estimate.py:", str(caught.exception))
        self.assertIn("stowage run --record", str(caught.exception))

    @needs_modern
    def test_gradients_of_distributed_data_parallel_are_in_buckets_too(self):
        import torch
        from torch import distributed

        if not distributed.is_available():
            self.skipTest("this PyTorch has no torch.distributed")

        def train(wrap, steps):
            def make():
                distributed.init_process_group("nccl")
                model = torch.nn.Sequential(torch.nn.Linear(1024, 4096, bias=False), torch.nn.Linear(4096, 1024, bias=False)).to("cuda")
                model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[distributed.get_rank()]) if wrap else model
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

                def step():
                    loss = model(torch.randn(8, 1024, device="cuda")).sum()
                    loss.backward()
                    distributed.all_reduce(loss)
                    optimizer.step()
                    optimizer.zero_grad()

                return step

            return stowage.estimate(make, gpu="T4", steps=steps)

        parallel, plain = train(True, 1), train(False, 1)
        self.assertEqual(parallel.peak_live - plain.peak_live, 2 * 4 * 1024 * 4096)
        # In the second step the buckets are made again, by the order of the gradients, and NCCL still holds the old ones.
        self.assertEqual(train(True, 3).peak_live - train(False, 3).peak_live, 2 * 2 * 4 * 1024 * 4096)
        self.assertIn("NCCL", " ".join(parallel.data["notes"]))
        self.assertFalse(distributed.is_initialized())

    @needs_modern
    def test_copying_a_model_warns_of_nothing(self):
        import warnings

        filters = list(warnings.filters)
        code = (
            "import copy, torch, stowage\n"
            "def make():\n"
            "    model = torch.nn.Linear(64, 64).to('cuda')\n"
            "    other = copy.deepcopy(model)\n"
            "    return lambda: other(torch.ones(1, 64, device='cuda'))\n"
            "stowage.estimate(make, gpu='T4')\n"
        )
        ran = subprocess.run([sys.executable, "-c", code], env=clean_environment(), capture_output=True, text=True, check=True)
        self.assertNotIn("FakeTensor", ran.stderr)
        stowage.estimate(lambda: lambda: __import__("torch").ones(1, device="cuda"), gpu="T4")
        self.assertEqual(warnings.filters, filters)

    def test_weights_are_freed_when_they_are_cast(self):
        import torch

        def make():
            model = torch.nn.Linear(2048, 2048, bias=False).to("cuda").to(torch.bfloat16)
            return lambda: torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda").add_(model.weight.shape[0])

        self.assertEqual(stowage.estimate(make, gpu="T4").peak_live, (64 + 8) * MIB)

    def test_cross_entropy_keeps_the_type_of_float16_logits(self):
        import torch

        def make():
            logits = torch.zeros(1024, 4096, dtype=torch.float16, device="cuda")
            targets = torch.zeros(1024, dtype=torch.long, device="cuda")

            def step():
                with torch.autocast("cuda", dtype=torch.float16):
                    torch.nn.functional.cross_entropy(logits, targets)

            return step

        # Logits and log_softmax in 16 bits, a copy of it in 32 (measured on an H200).
        self.assertAlmostEqual(stowage.estimate(make, gpu="T4").peak_live / MIB, 8 + 8 + 16, delta=0.1)

    def test_a_linear_layer_adds_its_bias_in_place(self):
        import torch

        def make():
            layer = torch.nn.Linear(64, 4096).to("cuda")
            x = torch.zeros(64, 32, 64, device="cuda").transpose(0, 1)
            return lambda: layer(x)

        with torch.no_grad():
            found = stowage.estimate(make, gpu="T4")
        self.assertLess(found.peak_live, 2 * 32 * MIB)  # one result of 32 MiB

    def test_a_recurrent_network_keeps_what_cudnn_keeps(self):
        from stowage import _kernels

        cells = 256 * 32 * 1024
        # Measured on an H200, in float32: 352 and 704 MiB for 2 layers, 546 MiB for 3 with dropout; 72 MiB of a GRU.
        self.assertEqual(_kernels.rnn_sizes("lstm", 2, 1, cells, False)[0] * 4, 352 * MIB)
        self.assertEqual(_kernels.rnn_sizes("lstm", 2, 2, 2 * cells, False)[0] * 4, 704 * MIB)
        kept, masks, _ = _kernels.rnn_sizes("lstm", 3, 1, cells, True)
        self.assertEqual(kept * 4 + masks, 546 * MIB)
        self.assertEqual(_kernels.rnn_sizes("gru", 1, 2, 2 * 48 * 64 * 512, False)[0] * 4, 72 * MIB)

    def test_a_loop_that_only_a_value_ends_is_refused(self):
        import torch

        def make():
            x = torch.zeros(4, device="cuda")

            def step():
                while not (x > 1).all():
                    x.add_(1)

            return step

        with self.assertRaises(Unsupported) as caught:
            stowage.estimate(make, gpu="T4")
        self.assertIn("test_estimate.py:", str(caught.exception))
        self.assertIn("stowage run --record", str(caught.exception))

    def test_generation_of_transformers_ends_at_its_length(self):
        import torch

        try:
            from transformers import LlamaConfig, LlamaForCausalLM
        except ImportError:
            self.skipTest("transformers is not installed")
        calls = []

        def make():
            config = LlamaConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, intermediate_size=16, vocab_size=64)
            model = LlamaForCausalLM(config).to("cuda").eval()
            model.register_forward_hook(lambda *_: calls.append(1))

            def step():
                for beams in (1, 2):
                    model.generate(torch.ones(2, 4, dtype=torch.long, device="cuda"), max_new_tokens=3, num_beams=beams, do_sample=False, pad_token_id=0)

            return step

        found = stowage.estimate(make, gpu="T4", steps=1)
        self.assertEqual(len(calls), 2 * 3)
        self.assertIn("maximum length", " ".join(found.data["notes"]))

    def test_compile_is_marked(self):
        import torch

        found = stowage.estimate(lambda: torch.compile(torch.nn.Linear(8, 8)), lambda: torch.randn(2, 8), gpu="T4")
        self.assertIn("torch.compile", " ".join(found.data["notes"]))

    def test_an_rnn_runs_as_one_kernel(self):
        import torch

        found = stowage.estimate(
            lambda: torch.nn.LSTM(256, 256, 2, batch_first=True),
            lambda: torch.randn(32, 100, 256),
            optimizer="sgd",
            loss=lambda output, batch: output[0].mean(),
            gpu="T4",
        )
        self.assertLess(found.data["events"], 400)


class Folders(unittest.TestCase):
    CONFIG = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 128, "vocab_size": 1000, "hidden_act": "silu", "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
    }  # fmt: skip

    def folder(self, place, tensors=None, config=None):
        Path(place, "config.json").write_text(json.dumps(config if config is not None else self.CONFIG))
        if tensors is not None:
            header = json.dumps(tensors).encode()
            Path(place, "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
        return place

    def estimate(self, place, **named):
        from stowage._model_folder import estimate_folder

        return estimate_folder(place, **{"gpu": "T4", **named})

    def part(self, found, label):
        return next(one["bytes"] for one in found.holders if one["label"] == label)

    def test_weights_and_cache_are_exact(self):
        tensors = {"__metadata__": {"format": "pt"}, "a": {"dtype": "BF16", "shape": [1000, 64], "data_offsets": [0, 128000]}}
        with tempfile.TemporaryDirectory() as place:
            found = self.estimate(self.folder(place, tensors), length=1024, batch=3)
            self.assertEqual(self.part(found, "weights"), 128000)
            self.assertEqual(self.part(found, "KV cache"), 2 * 2 * 2 * 16 * 1024 * 3 * 2)
            self.assertEqual(self.part(self.estimate(place, dtype="float32"), "weights"), 256000)

    def test_training_adds_gradients_and_state(self):
        tensors = {"a": {"dtype": "F32", "shape": [500, 1000], "data_offsets": [0, 2000000]}}
        config = {**self.CONFIG, "torch_dtype": "float32"}
        with tempfile.TemporaryDirectory() as place:
            self.folder(place, tensors, config)
            adamw = self.estimate(place, train="adamw")
            self.assertEqual(self.part(adamw, "gradients"), 2000000)
            self.assertEqual(self.part(adamw, "optimizer state"), 4000000)
            lora = self.estimate(place, train="lora")
            self.assertLess(self.part(lora, "optimizer state"), 100000)

    def test_parameters_and_cache_of_known_architectures(self):
        """Published counts of 41 models; tests/long/model_counts.sh compares them with the classes of transformers."""
        from stowage._model_folder import estimate_folder

        table = json.loads(Path(__file__).with_name("model_configs.json").read_text())
        self.assertGreaterEqual(len({one["config"]["model_type"] for one in table}), 25)
        with tempfile.TemporaryDirectory() as folder:
            for one in table:
                with self.subTest(one["name"]):
                    Path(folder, "config.json").write_text(json.dumps(one["config"]))
                    found = estimate_folder(folder, vram="500G", dtype="float16", batch=1, length=1000)
                    parts = {part["label"]: part["bytes"] for part in found.data["holders"]}
                    self.assertEqual(parts["weights"], 2 * one["parameters"])
                    if one["cache_numbers"] is not None:
                        self.assertEqual(parts["KV cache"], 2 * 1000 * one["cache_numbers"])

    def test_damaged_folders(self):
        with tempfile.TemporaryDirectory() as place:
            with self.assertRaises(NotFound):
                self.estimate(place)
            Path(place, "config.json").write_text("[")
            with self.assertRaises(Unreadable):
                self.estimate(place)
            self.folder(place)
            for damage in (b"", b"abc", struct.pack("<Q", 1 << 60), struct.pack("<Q", 8) + b"{broken}", struct.pack("<Q", 2) + b"[]"):
                Path(place, "model.safetensors").write_bytes(damage)
                with self.assertRaises(Unreadable):
                    self.estimate(place)
            for entry in (3, {}, {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}, {"dtype": "F32", "shape": 3, "data_offsets": [0, 4]}):
                self.folder(place, {"a": entry})
                with self.assertRaises(Unreadable):
                    self.estimate(place)

    def test_an_unknown_architecture_counts_its_weights(self):
        with tempfile.TemporaryDirectory() as place:
            self.folder(place, {"a": {"dtype": "F16", "shape": [10], "data_offsets": [0, 20]}}, {"model_type": "mine"})
            found = self.estimate(place)
            self.assertEqual(self.part(found, "weights"), 20)
            self.assertIn("mine", " ".join(found.data["notes"]))

    @in_turn(2)
    def test_the_command(self):
        with tempfile.TemporaryDirectory() as place:
            self.folder(place, {"a": {"dtype": "BF16", "shape": [1000, 64], "data_offsets": [0, 128000]}})
            path = os.pathsep.join(sys.path)
            run = lambda *words: subprocess.run(  # noqa: E731
                [sys.executable, "-m", "stowage", "estimate", *words], capture_output=True, text=True, env=clean_environment(PYTHONPATH=path), check=False
            )
            done = run(place, "--gpu", "T4", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(json.loads(done.stdout)["fits"])
            self.assertEqual(run(place, "--vram", "700M", "--batch", "64", "--length", "100000").returncode, 1)
            for wrong in ((place,), (place, "--gpu", "T5"), (place, "--gpu", "T4", "--steps", "3"), ("nowhere.py:make", "--gpu", "T4"), ("nowhere", "--gpu", "T4")):
                done = run(*wrong)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertTrue(done.stderr.startswith("stowage estimate: "), done.stderr)
            # A typing error is reported with or without PyTorch, in the words of the command.
            self.assertIn("nowhere.py: no such file", run("nowhere.py:make", "--gpu", "T4").stderr)
            self.assertIn("train.py:make", run("nowhere", "--gpu", "T4").stderr)
            for what in (place, "nowhere.py:make"):
                said = run(what, "--gpu", "T5").stderr
                self.assertIn('--gpu: "T5"', said)
                self.assertIn("--vram 16G", said)
                self.assertIn("RTX 4090", said)

    def test_completion_offers_names_that_are_known(self):
        done = subprocess.run(
            [sys.executable, "-m", "stowage", "completion", "bash"], capture_output=True, text=True, env=clean_environment(PYTHONPATH=os.pathsep.join(sys.path)), check=True
        )
        offered = re.search(r'estimate:--gpu\).*-W "([^"]*)"', done.stdout)
        self.assertIsNotNone(offered)
        for name in offered[1].split():
            self.assertGreater(find(name).total_bytes, 0)
