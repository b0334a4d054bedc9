"""src/shim/weights.py and activations.py with a real PyTorch, where the device is host memory and copies are as late as their marks allow.
Outputs and gradients must be equal bit by bit to those without them, and a copy made ahead must not hide a write."""
import collections
import functools
import gc
import itertools
import os
import random
import sys
import types

import late_streams

sys.path.pop(0)  # a file here has the name of a standard module
import torch  # noqa: E402
from torch import nn  # noqa: E402

log, writes, resident = [], [1], [True]
script = dict(shim_log=log.append, shim_resident=lambda: resident[0], shim_on_host=lambda address, size: size,
              shim_written=lambda address, size: writes[0], shim_passed=lambda address, size: None, shim_room=lambda: (1 << 30, 0, 1 << 30, 0))
for name in "lanes", "activations", "states", "weights":
    exec(open(os.path.join(os.path.dirname(__file__), f"../../src/shim/{name}.py")).read(), script)
torch.set_num_threads(1)
copied = [0]


class Lane(late_streams.Lane):

    def copy(self, to, source):
        copied[0] += 1
        # A copy made ahead may be read early: from what the weight is now.
        now = source.clone()
        self.work.append(lambda: to.copy_(now))


class Late(script["Weights"]):
    """Copies are made when they are waited for, from what the weight is then. Weights in `here` are in vram."""

    def __init__(self, module, linear):
        super().__init__(module, linear)
        self.torch = types.SimpleNamespace(no_grad=torch.no_grad, empty_like=torch.empty_like)
        self.lane, self.home, self.here, self.ahead = Lane(), Lane(True), set(), 0

    def at_home(self, weight):
        return True

    def wanted(self, value, weight):
        if torch.is_grad_enabled() and (weight.requires_grad or (value.requires_grad and not (self.saved and self.saved()))):
            return False
        return weight.data_ptr() not in self.here

    def take(self, weight):
        self.ahead += weight.data_ptr() in self.ready
        return super().take(weight)


weights = script["arm_weights"](torch, Late)


def check(name, good, why=""):
    print(f"ok {name}" if good and not log else f"FAIL {name}: {why} {log[:2]}")
    log.clear()


def network(layers=10):
    torch.manual_seed(1)
    return nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(24, 24), nn.Tanh())])


def lanes_order():
    """Returns in what order the work of two lanes ends on streams that run as late as they may. Stream 3 is near."""
    streams, events, finished = collections.defaultdict(list), {}, []

    def until(stream, count):
        while len(streams[stream]) > 0 and streams[stream][0][0] <= count:
            streams[stream].pop(0)[1]()

    numbers, marks = itertools.count(1), itertools.count(100)

    def submit(stream, work):
        number = next(numbers)
        streams[stream].append((number, work))
        return number

    def record(event, stream):
        events[event] = stream, submit(stream, lambda: None)
        return 0

    def wait(stream, event):
        at = events[event]
        submit(stream, lambda: until(*at))
        return 0

    def copy(to, source, size, stream, near):
        submit(stream, lambda: finished.append("bus"))
        submit(near, lambda: finished.append("near"))
        return 0

    own = dict(script, shim_event=lambda: next(marks), shim_record=record, shim_wait=wait, shim_copy=copy)
    exec(open(os.path.join(os.path.dirname(__file__), "../../src/shim/lanes.py")).read(), own)
    stream = lambda number: types.SimpleNamespace(cuda_stream=number)  # noqa: E731
    free = []
    home, lane = own["Lane"](stream(1), free), own["Lane"](stream(2), free, stream(3))
    submit(1, lambda: finished.append("before"))
    lane.wait(home.mark())
    lane.copy_bytes(0, 0, 1)
    home.wait(lane.mark())
    until(1, submit(1, lambda: finished.append("after")))
    return finished


found = lanes_order()
check("lanes_wait_for_what_stays_in_vram", found[0] == "before" and found[-1] == "after" and sorted(found[1:-1]) == ["bus", "near"], found)

net = network()
random.seed(3)
weights.here = {m.weight.data_ptr() for m in net if isinstance(m, nn.Linear) and random.random() < .3}
xs = [torch.randn(5, 24) for _ in range(6)]
resident[0] = False
with torch.no_grad():
    plain = [net(x) for x in xs]
check("weights_without_spill", copied[0] == 0)
resident[0] = True
with torch.no_grad():
    found = [net(x) for x in xs]
check("weights_of_inference", all(torch.equal(a, b) for a, b in zip(plain, found)) and copied[0] > 0)
far = 10 - len(weights.here)  # known from the second pass on, across its end from the third
check("weights_are_copied_ahead", weights.ahead == 5 * far - 2, (far, weights.ahead))

# A write that the version counter does not show, between two uses.
with torch.no_grad():
    for turn in range(4):
        net[10].weight.data.add_(turn)
        writes[0] += 1
        resident[0] = False
        want = net(xs[0])
        resident[0] = True
        if not torch.equal(want, net(xs[0])):
            log.append(f"turn {turn}")
check("weights_that_were_written", True)

# The order changes, layers are left out, and one is used twice.
with torch.no_grad():
    wrong = 0
    for turn in range(40):
        order = random.choices(range(0, 20, 2), k=8)
        resident[0] = False
        want = functools.reduce(lambda x, i: net[i](x), order, xs[1])
        resident[0] = True
        wrong += not torch.equal(want, functools.reduce(lambda x, i: net[i](x), order, xs[1]))
check("weights_in_any_order", wrong == 0, wrong)

# Frozen layers with adapters: the backward pass reads the weights again.


class Bus(script["Cuda"]):

    def __init__(self):
        self.torch, self.device, self.index = types.SimpleNamespace(empty=torch.empty, uint8=torch.uint8), torch.device("cpu"), 0
        self.home, self.out, self.back = late_streams.Lane(True), late_streams.Lane(), late_streams.Lane()
        self.current = lambda index: self.home.handle
        self.pinned, self.memory = script["Pinned"](self.create), []
        self.references = script["references"](torch)
        self.unmarked = []

    def usable(self, tensor):
        return True

    def idle(self):
        return True

    def allocated(self):
        return 0

    def levels(self):
        return 0, 0

    def create(self, size):
        self.memory.append(torch.empty(size, dtype=torch.uint8))
        return self.memory[-1].data_ptr(), size


class Adapted(nn.Module):

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(24, 24).requires_grad_(False)
        self.low = nn.Parameter(torch.randn(24, 2) * .1)
        self.high = nn.Parameter(torch.randn(2, 24) * .1)

    def forward(self, x):
        return torch.tanh(self.base(x) + x @ self.low @ self.high)


def gradients():
    torch.manual_seed(2)
    model = nn.Sequential(*[Adapted() for _ in range(8)])
    results = []
    for turn in range(4):
        model.zero_grad()
        model(torch.randn(5, 24)).square().mean().backward()
        results += [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return results


resident[0] = False
plain = gradients()
resident[0], copied[0], weights.here = True, 0, set()
script["MOVED_MIN_BYTES"] = 1
hooks = script["Activations"](torch, Bus(), 1 << 30, weights)
weights.saved = hooks.innermost
hooks.push()
found = gradients()
# A write in place between the two passes is an error, as without the copies.
loss = None
if hooks.top is not None:
    model = nn.Sequential(*[Adapted() for _ in range(3)])
    loss = model(torch.randn(5, 24)).square().mean()
    with torch.no_grad():
        model[1].base.weight.add_(1)
    try:
        loss.backward()
        log.append("a write in place is not noticed")
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            log.append(repr(error))
assert hooks.pop()
del loss
gc.collect()
check("weights_of_frozen_layers", len(plain) == len(found) and all(torch.equal(a, b) for a, b in zip(plain, found)) and
      (copied[0] >= 60 or hooks.top is None), copied[0])
alive = sum(copy() is not None for copy, _ in weights.copies.values())
check("weights_copies_are_freed", alive <= script["AHEAD"], alive)
# Without hooks a copy would stay until the backward pass; only the first layer needs none for it.
copied[0] = 0
same = gradients()
check("weights_without_hooks", copied[0] <= 8 and all(torch.equal(a, b) for a, b in zip(plain, same)), copied[0])

resident[0] = False
if sys.version_info < (3, 14):
    check("weights_of_scripts", torch.equal(torch.jit.script(network(2))(xs[0]), network(2)(xs[0])))

# torch.compile sees through the function: no break in the graph, no copy.
if hasattr(getattr(torch, "compiler", None), "is_compiling") and hasattr(torch, "compile"):
    resident[0], copied[0] = True, 0
    model = network(3)
    with torch.no_grad():
        found = torch.compile(model, fullgraph=True, backend="eager")(xs[0])
        made = copied[0]
        resident[0] = False
        check("weights_of_compiled_functions", torch.equal(found, model(xs[0])) and made == 0, made)
