"""The advice about what a program keeps (_kept.py): small programs, each run as it is, read in the middle, changed as the advice says, and run again."""

import linecache
import os
import sys
import tempfile
import types
import unittest
from unittest import mock

from stowage import _kept_source, _program
from support import needs

HEAD = """
import collections, dataclasses, torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
cell, head = nn.GRUCell(4, 8), nn.Linear(8, 2)
weights = [*model.parameters(), *cell.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(weights, lr=0.05)
@dataclasses.dataclass
class Record:
    step: int
    loss: object
def batch(i):
    made = torch.Generator().manual_seed(i)
    return torch.randn(3, 4, generator=made), torch.randn(3, 2, generator=made)
def loss_of(x, y):
    return (model(x) - y).pow(2).mean()
"""
LOOP = """
for i in range(12):
    x, y = batch(i)
    optimizer.zero_grad()
    loss_of(x, y).backward()
    optimizer.step()
    loss = loss_of(x, y)
"""
# Before the loop, at the end of each turn, the result; what the advice writes instead of which text.
KEPT = [
    ("losses = []", "losses.append(loss)", "[float(v) for v in losses]", "losses.append(loss.detach())"),
    ("losses = ()", "losses += (loss,)", "[float(v) for v in losses]", "losses += (loss.detach(),)"),
    ("losses = []", "losses = [*losses, loss]", "[float(v) for v in losses]", "losses = [*losses, loss.detach()]"),
    ("log = []", 'log.append({"#": loss, "turn": i})', 'sum(float(h["#"]) for h in log)', 'log.append({"#": loss.detach(), "turn": i})'),
    ("log = []", "log.append({  # one\n        'loss': loss,\n        'turn': i})", "sum(float(h['loss']) for h in log)", "in place of loss write loss.detach()"),
    ("log = []", "log.append((\n        i,\n        loss,\n    ))", "sum(float(h[1]) for h in log)", "log.append((i, loss.detach(),))"),
    ("log = []", "log.append(Record(i, loss=loss))", "sum(float(h.loss) for h in log)", "log.append(Record(i, loss=loss.detach()))"),
    ("log = {}", 'log.setdefault("a", []).append(loss)', 'sum(map(float, log["a"]))', 'log.setdefault("a", []).append(loss.detach())'),
    ("log = collections.defaultdict(list)", 'log["a"].append(loss)  # all', 'sum(map(float, log["a"]))', 'log["a"].append(loss.detach())'),
    ("log = {}", "log[i] = -loss", "sum(map(float, log.values()))", "log[i] = (-loss).detach()"),
    ("total = 0", "total = total + loss", "(total / 12).item()", "total = total + loss.detach()"),
    ("total = 0", "total += loss_of(\n        x, y)", "total.item()", "total += loss_of(x, y).detach()"),
    ("mean = 0", "mean = 0.9 * mean + 0.1 * loss", "float(mean)", "mean = (0.9 * mean + 0.1 * loss).detach()"),
    ("log = {'sum': 0.0}", "log['sum'] += loss * 2", "float(log['sum'])", "log['sum'] += (loss * 2).detach()"),
]
SUMMED = [
    ("total = 0", "total = total + loss", "(total / 4).backward()", "(loss / 4).backward() instead of total = total + loss"),
    ("total = 0", "total += loss_of(x, y)", "total.backward()", "term = loss_of(x, y); term.backward() instead of total += loss_of(x, y)"),
    ("parts = []", "parts.append(loss)", "torch.stack(parts).mean().backward()", "(loss / 4).backward() instead of parts.append(loss)"),
]
NEEDED = [
    ("total = 0", "total = total + loss", "(total ** 2).backward()"),
    ("parts = []", "parts.append(model(x))", "torch.cat(parts).pow(2).mean().backward()"),
    ("parts = []", "parts.append(loss)", "grads = torch.autograd.grad(sum(parts), weights[:4])"),
    ("parts = []", "parts.append(loss)", "learn(parts)"),
    ("total = 0; h = torch.zeros(3, 8)", "h = cell(x, h); total = total + head(h).pow(2).mean()", "total.backward()"),
]
STEP = "def learn(terms):\n    torch.stack(terms).sum().backward()\n"


def indented(text):
    return "\n".join("    " + line if line else line for line in text.split("\n"))


class Program:
    """Runs a program and reads it at one of its calls of a linear layer."""

    count = 0

    def __init__(self, torch, text, other=""):
        Program.count += 1
        self.torch, self.text, self.path = torch, text, f"/made/program{Program.count}.py"
        self.other, self.paths = other, [self.path]
        linecache.cache[self.path] = (len(text), None, text.splitlines(True), self.path)
        if other:
            self.paths.append(self.path.replace("program", "other_program"))
            linecache.cache[self.paths[1]] = (len(other), None, other.splitlines(True), self.paths[1])

    def run(self, at=0):
        torch, calls, said = self.torch, [0, 0, 0], [""]
        real = torch.nn.functional.linear

        class Held:
            def __init__(self, tensor):
                self.tensor = tensor.detach()
                calls[1] += 1
                calls[2] = max(calls[1:])

            def __del__(self):
                calls[1] -= 1

        def linear(*args, **named):
            calls[0] += 1
            if calls[0] == at:
                said[0] = _program.program_text(torch)
            return real(*args, **named)

        module = sys.modules["made_program"] = types.ModuleType("made_program")
        module.__file__, names = self.path, vars(module)
        if self.other:
            second = sys.modules["made_other"] = types.ModuleType("made_other")
            second.__file__ = self.paths[1]
            exec(compile(self.other, self.paths[1], "exec"), vars(second))
        torch.nn.functional.linear = linear
        try:
            with torch.autograd.graph.saved_tensors_hooks(Held, lambda held: held.tensor):
                with mock.patch.object(_kept_source, "program_files", lambda: self.paths):  # not what this file has
                    exec(compile(self.text, self.path, "exec"), names)
        finally:
            torch.nn.functional.linear = real
            del sys.modules["made_program"]
            sys.modules.pop("made_other", None)
        self.calls, self.peak = calls[0], calls[2]
        self.weights = [w.detach().clone() for w in names["weights"]]
        return names.get("result"), said[0]

    def advice(self):
        """Returns what the program computes, and the change of each kind of advice."""
        result, _ = self.run()
        _, said = self.run(at=self.calls - 2)
        rows = [line.split("\t") for line in said.splitlines() if line.startswith("advice ")]
        rows = [row for row in rows if f"m{Program.count}.py:" in row[1]]  # not what this file keeps
        return result, {row[0].split()[1]: (row[1], row[2]) for row in rows}


@needs("torch")
class Kept(unittest.TestCase):
    def setUp(self):
        import torch

        self.torch = torch
        torch.set_num_threads(1)

    def program(self, text, other=""):
        return Program(self.torch, HEAD + text, other)

    def check_same(self, program, changed, result):
        made, _ = changed.run()
        self.assertTrue(self.torch.allclose(self.torch.tensor(made), self.torch.tensor(result)), changed.text)
        for before, after in zip(program.weights, changed.weights):
            self.assertTrue(self.torch.allclose(before, after, atol=1e-6), changed.text)
        self.assertLess(changed.peak, 0.6 * program.peak, changed.text)

    def test_a_value_that_no_backward_pass_uses_is_kept_without_its_graph(self):
        for start, keep, end, new in KEPT:
            with self.subTest(keep):
                program = self.program(f"{start}{LOOP}    {keep}\nresult = {end}\n")
                result, advice = program.advice()
                change, cost = advice.get("kept") or advice.get("carried")
                self.assertIn(new, change)
                self.assertTrue(cost.startswith("none"))
                fixed = keep.replace("'loss': loss", "'loss': loss.detach()") if "in place" in new else new
                self.check_same(program, self.program(f"{start}{LOOP}    {fixed}\nresult = {end}\n"), result)

    def test_in_an_object_of_the_program(self):
        text = "class Meter:\n    def __init__(self): self.sum = 0\n    def add(self, value):\n        self.sum += value\nmeter = Meter()\n"
        program = self.program(text + LOOP + "    meter.add(loss)\nresult = float(meter.sum)\n")
        result, advice = program.advice()
        self.assertIn("self.sum += value.detach() instead of self.sum += value", advice["kept"][0])
        self.check_same(program, self.program((text + LOOP).replace("+= value", "+= value.detach()") + "    meter.add(loss)\nresult = float(meter.sum)\n"), result)

    def steps(self, start, keep, back, last=""):
        return f"{STEP}for step in range(3):\n    optimizer.zero_grad()\n    {start}\n    for i in range(4):\n        x, y = batch(i)\n        loss = loss_of(x, y)\n        {keep}\n    {back}\n    optimizer.step(){last}\nresult = 0.0\n"

    def test_a_sum_that_is_trained_on_gets_one_backward_pass_for_each_term(self):
        for start, keep, back, new in SUMMED:
            with self.subTest(keep):
                program = self.program(self.steps(start, keep, back))
                result, advice = program.advice()
                self.assertIn(new, advice["summed"][0])
                self.assertIn(f"remove {back} at", advice["summed"][0])
                self.assertNotIn("kept", advice)
                self.check_same(program, self.program(self.steps(start, new.split(" instead of ")[0], "pass")), result)

    def test_gradients_that_are_cleared_in_between_are_cleared_after_the_step(self):
        text = self.steps("total = 0", "total = total + loss", "optimizer.zero_grad(); total.backward()").replace("    optimizer.zero_grad()\n    total", "    total", 1)
        text = text.replace("optimizer.zero_grad(); total", "optimizer.zero_grad()\n    total")
        _, advice = self.program(text).advice()
        self.assertRegex(advice["summed"][0], r"; move optimizer.zero_grad\(\) from \S+ to after \S+ \(optimizer.step\(\)\)$")

    def test_a_graph_that_a_backward_pass_needs_is_not_cut(self):
        for start, keep, back in NEEDED:
            with self.subTest(back):
                _, advice = self.program(self.steps(start, keep, back)).advice()
                self.assertEqual(list(advice), ["needed"])

    def test_nor_if_the_backward_pass_is_in_another_file(self):
        learn = "def learn(loss, optimizer):\n    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
        for text in (
            "losses = []\nfor i in range(12):\n    losses.append(loss_of(*batch(i)))\nlearn(sum(losses), optimizer)\n",
            "total = 0\nfor i in range(12):\n    total += loss_of(*batch(i))\nlearn(total, optimizer)\n",
            "h = torch.zeros(())\nfor i in range(12):\n    h = torch.tanh(h + loss_of(*batch(i)))\nlearn(h, optimizer)\n",
        ):
            with self.subTest(text):
                program = self.program("from made_other import learn\n" + text + "result = 0.0\n", learn)
                _, advice = program.advice()
                self.assertEqual(list(advice), ["needed"])
                self.assertIn(f"loss.backward() at other_program{Program.count}.py:2 needs the graphs", advice["needed"][0])

    def test_a_state_that_is_carried_is_cut_after_the_backward_pass(self):
        text = "h = None\nfor i in range(12):\n    x, y = batch(i)\n    h = cell(x, h)\n    loss = (head(h) - y).pow(2).mean()\n    loss.backward(retain_graph=True)\nresult = float(loss)\n"
        program = self.program(text)
        result, advice = program.advice()
        change, cost = advice["carried"]
        self.assertRegex(change, r"^after \S+ \(loss.backward\(retain_graph=True\)\): h = h.detach\(\); at \S+: loss.backward\(\)$")
        self.assertTrue(cost.startswith("gradients end at each turn"))
        changed = self.program(text.replace("(retain_graph=True)", "()\n    h = h.detach()"))
        self.assertEqual(changed.run()[0], result)
        self.assertLess(changed.peak, 0.6 * program.peak)

    def test_a_loop_without_a_backward_pass_needs_no_graph(self):
        text = "def evaluate(count):\n    total = 0\n    for i in range(count):\n        total += loss_of(*batch(i))\n    return total\nresult = float(evaluate(12))\n"
        _, advice = self.program(text).advice()
        self.assertRegex(advice["without"][0], r"^put the loop at \S+ \(`for i in range\(count\):`\) under `with torch.no_grad\(\):`$")

        learn = "def result_of(loss):\n    loss.backward()\n    return loss\n"
        text = "from made_other import result_of\nkept = []\nfor i in range(12):\n    kept.append(result_of(loss_of(*batch(i))))\nresult = 0.0\n"
        _, advice = self.program(text, learn).advice()
        self.assertEqual(list(advice), ["kept"])
        _, advice = self.program(text.split("kept = ")[0] + "kept = [result_of(loss_of(*batch(i))) for i in range(12)]\nresult = 0.0\n", learn).advice()
        self.assertEqual(list(advice), [])


class Sources(unittest.TestCase):
    def source(self, text):
        return _kept_source.Source("/made/x.py", text.splitlines(True))

    def backwards(self, text, name, other=""):
        source = self.source(text)
        with mock.patch.object(_kept_source, "others_of", lambda _: [_kept_source.Source("/made/y.py", other.splitlines(True))] if other else []):
            flow = _kept_source.Flow(source, float("inf"))
        for node in source.nodes:
            if _kept_source.name_of(node) == name:
                flow.take(node)
        flow.follow()
        return len(flow.elsewhere if other else flow.backwards)

    def test_a_value_is_followed_to_the_backward_pass(self):
        for text, found in (
            ("a = f()\na.backward()\n", 1),
            ("b = sum(a) / 2\nb.backward()\n", 1),
            ("b = a.item()\nc.backward()\n", 0),
            ("b = a.detach() + c\nb.backward()\n", 0),
            ("def learn(x):\n    x.backward()\nlearn(a)\n", 1),
            ("def loss():\n    return a\nx = loss()\nscaler.scale(x).backward()\n", 1),
            ("for x in a:\n    y += x\ny.backward()\n", 1),
            ("self.a.append(1)\ndef f(self):\n    torch.stack(self.a).sum().backward()\n", 1),
            ("print(a, len(a))\nx.backward()\n", 0),
            ("with torch.no_grad():\n    b = a + 1\nb.backward()\n", 0),
        ):
            with self.subTest(text):
                self.assertEqual(self.backwards(text, ".a" if "self" in text else "a"), found)

    def test_a_value_is_followed_into_other_files(self):
        learn = "def learn(terms, scale=1):\n    sum(terms).backward()\n"
        for text, other, found in (
            ("from y import learn\nlearn(a)\n", learn, 1),
            ("from y import learn as go\ngo(terms=a)\n", learn, 1),
            ("import y\ny.learn([b, a])\n", learn, 1),
            ("import y\ny.learn([b, a.item()])\n", learn, 0),
            ("import y\ny.learn(b)\n", learn, 0),
            ("from y import Trainer\nTrainer(a)\n", "class Trainer:\n    def __init__(self, x):\n        self.x = x\n    def go(self):\n        self.x.backward()\n", 1),
            ("def f(*rest):\n    return rest\nb = f(1, a)\nstate.step(b)\n", "class State:\n    def step(self, **parts):\n        parts['b'].backward()\n", 0),
            ("state.step(b=a)\n", "class State:\n    def step(self, **parts):\n        parts['b'].backward()\n", 1),
            ("def result():\n    return a\n", "import x\nx.result().backward()\n", 1),
            ("a += 1\n", "from x import a as b\nb.backward()\n", 1),
            ("a += 1\n", "import x\nx.a.backward()\n", 1),
            ("a += 1\n", "a = 2\na.backward()\n", 0),
            ("class M:\n    def f(self, a):\n        self.kept = a\n", "m.kept.backward()\n", 1),
            ("import y\ny.kept = a\n", "kept = 0\ndef f():\n    kept.backward()\n", 1),
        ):
            with self.subTest(text + other):
                self.assertEqual(self.backwards(text, "a", other), found)

    def test_the_other_files_of_a_program_are_its_own_modules(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("made_a", "import made_b\n"), ("made_b", "def learn(x):\n    x.backward()\n")):
                with open(os.path.join(folder, name + ".py"), "w") as file:
                    file.write(text)
            sys.path.insert(0, folder)
            try:
                import made_a

                self.assertIn(made_a.made_b.__file__, _kept_source.program_files())
                self.assertNotIn(linecache.__file__, _kept_source.program_files())
                with mock.patch.object(_kept_source, "program_files", lambda: [made_a.__file__, made_a.made_b.__file__]):
                    other, = _kept_source.others_of(_kept_source.source_of(made_a.__file__))
                    self.assertEqual(other.path, made_a.made_b.__file__)
                    self.assertEqual(_kept_source.others_of(other), [])  # no backward pass in it
                    with mock.patch.object(_kept_source, "OTHERS_MOST", 10):
                        self.assertIsNone(_kept_source.others_of(_kept_source.source_of(made_a.__file__)))
            finally:
                sys.path.remove(folder)
                sys.modules.pop("made_a", None), sys.modules.pop("made_b", None)

    def test_a_statement_over_several_lines_is_one_line(self):
        source = self.source("x.append({\n    'a': b,\n    'c': (d,\n          e),\n})\n")
        self.assertEqual(source.text(source.tree.body[0]), "x.append({'a': b, 'c': (d, e)})")
        source = self.source("x.append([  # why\n    'a'])\n")
        self.assertEqual(source.text(source.tree.body[0]), "")
