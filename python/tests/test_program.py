"""What a program reports about itself when it runs out of memory (_program.py), with models on the meta device."""

import contextlib
import sys
import threading
import time
import unittest

import stowage
from stowage import _program
from support import TREE, needs

SNAPSHOT = TREE / "tests" / "samples" / "loop" / "plain.pickle.gz"


def facts(text):
    """Returns the lines by their first word; the last of each."""
    return dict(line.split(" ", 1) for line in text.splitlines())


@needs("torch")
class Program(unittest.TestCase):
    def setUp(self):
        import torch

        self.torch = torch
        self.said = ""

    def say(self):
        self.said = _program.program_text(self.torch)
        return facts(self.said)

    def net(self, layers=8, at=3):
        torch, test = self.torch, self

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.table = torch.nn.Embedding(5000, 64, device="meta")
                self.blocks = torch.nn.ModuleList([torch.nn.Linear(64, 64, device="meta") for _ in range(layers)])
                self.head = torch.nn.Linear(64, 5000, device="meta")

            def forward(self, ids):
                x = self.table(ids)
                for number, block in enumerate(self.blocks):
                    x = block(x)
                    if number == at:
                        test.say()
                return self.head(x)

        return Net()

    def test_a_training_step(self):
        torch = self.torch
        model = self.net()
        optimizer = torch.optim.AdamW(model.parameters(), amsgrad=True)
        batch_size = 6
        ids = torch.zeros(batch_size, 128, dtype=torch.long, device="meta")
        model(ids)
        seen = facts(self.said)
        numbers = sum(p.numel() for p in model.parameters())
        self.assertEqual(seen["program"], "1")
        self.assertEqual(seen["step"], "forward")
        self.assertEqual(seen["grad"], "1")
        self.assertEqual(seen["training"], "1")
        self.assertEqual(seen["parameters"], f"{numbers} {4 * numbers}")
        self.assertEqual(seen["trained"], f"{numbers} {4 * numbers}")
        self.assertEqual(seen["on_device"], str(4 * numbers))
        self.assertEqual(seen["optimizer"].split()[:3], ["AdamW", str(numbers), str(4 * numbers)])
        self.assertIn("amsgrad", seen["optimizer"])
        self.assertEqual(seen["input"], "int64 6x128")
        self.assertEqual(seen["batch"], "6 named")
        self.assertEqual(seen["passed"], "4 10")  # the table and three blocks before the fourth
        self.assertEqual(seen["head"], "5000")
        del optimizer

    def test_inference_with_adapters_frozen_and_narrow(self):
        torch = self.torch
        model = self.net().to(torch.bfloat16).eval()
        model.table.weight.requires_grad_(False)
        with torch.no_grad():
            model(torch.zeros(2, 16, dtype=torch.long, device="meta"))
        seen = facts(self.said)
        numbers = sum(p.numel() for p in model.parameters())
        self.assertEqual((seen["grad"], seen["training"]), ("0", "0"))
        self.assertEqual(seen["dtype"], f"bfloat16 {2 * numbers}")
        self.assertEqual(seen["trained"].split()[0], str(numbers - 5000 * 64))
        self.assertEqual(seen["batch"], "2 first")

    def test_a_module_that_is_made(self):
        torch, test = self.torch, self

        class Table(torch.nn.Module):
            def __init__(self):
                super().__init__()
                test.say()

        Table()
        self.assertEqual(facts(self.said)["step"], "building")

    def test_a_thread_without_frames_of_its_own_shows_the_main_thread(self):
        model = self.net()  # noqa: F841: found by its name
        caller = threading.Thread(target=self.say)
        caller.start()
        caller.join()
        self.assertTrue(self.said.startswith("program 1\n"))

    def test_nothing_stays_with_the_frames(self):
        torch = self.torch
        big = torch.zeros(3, device="meta")
        before = sys.getrefcount(big)
        self.say()
        self.assertEqual(sys.getrefcount(big), before)

    def test_objects_that_answer_nothing(self):
        class Odd:
            def __getattribute__(self, name):
                raise RuntimeError("no")

        class Vain(int):
            def __gt__(self, other):
                raise RuntimeError("no")

        odd, batch_size = Odd(), Vain(4)  # noqa: F841
        self.assertTrue(self.say()["program"] == "1")

    def test_no_code_of_the_program_runs(self):
        torch, ran = self.torch, []

        def trap(name):
            def method(*_, **__):
                ran.append(name)
                raise RuntimeError(name)

            return method

        names = """__getattribute__ __getattr__ __len__ __iter__ __getitem__ __contains__ __repr__ __str__ __eq__ __hash__ __bool__ __index__
            __torch_function__ __torch_dispatch__ keys values items get parameters named_modules modules children __reversed__""".split()
        traps = {name: trap(name) for name in names}
        traps["__torch_function__"] = classmethod(trap("__torch_function__"))
        traps["__torch_dispatch__"] = classmethod(trap("__torch_dispatch__"))
        for name in ("__class__", "__dict__", "shape", "device", "grad_fn", "param_groups", "state", "batch_size", "training", "dtype", "_modules"):
            traps[name] = property(trap(name))
        kind = type("Kind", (type,), {"__instancecheck__": trap("instance"), "__subclasscheck__": trap("subclass"), "__getattribute__": trap("kind"),
                                      "__hash__": trap("hash"), "__eq__": trap("same")})
        vain = type.__new__(kind, "Vain", (), dict(traps))
        false = type.__new__(type, "array", (), {**traps, "__module__": "numpy"})
        here = []
        for base in (object, list, dict, tuple, torch.nn.Module, torch.Tensor, torch.optim.SGD):
            made = type.__new__(type, "Made", (base,), dict(traps))
            if base is torch.Tensor:
                here.append(torch.Tensor._make_subclass(made, torch.zeros(3)))
            else:
                here.append(base.__new__(made) if base is not object else object.__new__(made))
        first, second, third, fourth, fifth, sixth, seventh = here  # noqa: F841
        eighth, ninth = object.__new__(vain), object.__new__(false)  # noqa: F841
        model, optimizer, losses = fifth, seventh, [first, second, third, fourth, sixth] * 3  # noqa: F841

        class Mode(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                ran.append(function)
                return function(*args, **(kwargs or {}))

        plain = torch.zeros(2, 3)  # noqa: F841
        # Older PyTorch cannot leave a mode out.
        with Mode() if hasattr(torch._C, "DisableTorchFunctionSubclass") else contextlib.nullcontext():
            del ran[:]
            seen = self.say()
            came = list(ran)
        del first, second, third, fourth, fifth, sixth, seventh, eighth, ninth, model, optimizer, losses, here, traps
        self.assertEqual(came, [])
        self.assertEqual(seen["program"], "1")

    def test_large_variables_take_no_time(self):
        torch = self.torch
        deep = []
        for _ in range(5000):
            deep = [deep, {"more": deep}]
        wide = {n: [n] for n in range(300_000)}  # noqa: F841
        round_ = []
        round_.append(round_)
        graphs = [(torch.zeros(1, requires_grad=True) * n) for n in range(20_000)]  # noqa: F841
        began = time.monotonic()
        self.say()
        self.assertLess(time.monotonic() - began, 10)  # 0.1 s on an idle machine

    def test_the_text_is_bounded(self):
        torch = self.torch
        names = {f"optimizer{i}": torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0) for i in range(500)}
        inputs = [torch.zeros((1,) * 30) for _ in range(200)]  # noqa: F841
        locals().update(names)
        self.say()
        self.assertLessEqual(len(self.said), _program.PROGRAM_MOST)


class AnotherDevice(unittest.TestCase):
    def test_a_recording_is_explained_for_another_device(self):
        if not SNAPSHOT.exists():
            self.skipTest(f"no recording at {SNAPSHOT}")
        self.assertIn("Fits a device of 4.0 GiB", stowage.explain(SNAPSHOT, vram="4G").headline)
        self.assertIn("it fails", stowage.explain(SNAPSHOT, vram=2200 << 20).headline)
        with self.assertRaises(TypeError):
            stowage.explain(message="CUDA out of memory", vram="4G")
