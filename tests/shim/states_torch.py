"""src/shim/states.py with a real PyTorch, where the device is host memory and the two copy lanes are as late as their marks allow.
Parameters and states must be equal bit by bit to those of the optimizer alone."""
import collections
import functools
import os
import random
import sys
import types

from late_streams import Lane

sys.path.pop(0)  # a file here has the name of a standard module
import torch  # noqa: E402

resident, log = [True], []
script = dict(shim_log=log.append, shim_resident=lambda: resident[0], shim_on_host=lambda address, size: size,
              collections=collections, functools=functools, sys=sys)
for name in "lanes", "activations", "states":
    exec(open(os.path.join(os.path.dirname(__file__), f"../../src/shim/{name}.py")).read(), script)
script["PART_BYTES"] = 3000
States, Passing = script["States"], script["Passing"]
torch.set_num_threads(1)


class Late(Passing):
    """Which states are on the host changes from step to step. Memory that was freed is overwritten at once."""

    def away(self, value):
        return value.numel() * 4 if isinstance(value, torch.Tensor) and value.numel() > 8 and random.random() < .7 else 0

    def retire(self, kept):
        gone = [copies for copies, _ in list(self.leaving)[:max(0, len(self.leaving) - kept)]]
        super().retire(kept)
        for copies in gone:
            for copy in copies.values():
                copy.fill_(float("nan"))


class Here(States):
    late = Lane(True), Lane(), Lane()

    def usable(self, params):
        return True

    def lanes(self, device):
        return self.late

    def pieces(self, row):
        made = list(super().pieces(row))
        self.cuts = getattr(self, "cuts", 0) + (len(made) > 1)
        return made


def fake():
    return types.SimpleNamespace(Tensor=torch.Tensor, empty_like=torch.empty_like, autograd=torch.autograd, nn=torch.nn, strided=torch.strided)


def train(make, steps):
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(n, 7)) for n in (40, 3, 200, 17, 90, 90, 1, 33)]
    optimizer = make(params)
    for step in range(steps):
        for p in params:
            p.grad = torch.randn_like(p)
        optimizer.step()
    state = [s[k] for s in optimizer.state_dict()["state"].values() for k in sorted(s) if isinstance(s[k], torch.Tensor)]
    return [p.detach().clone() for p in params] + [s.clone() for s in state]


def same(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))


KINDS = {
    "adam": lambda p, f: torch.optim.Adam(p, lr=.1, foreach=f),
    "adamw_amsgrad": lambda p, f: torch.optim.AdamW(p, lr=.1, amsgrad=True, foreach=f),
    "sgd_momentum": lambda p, f: torch.optim.SGD(p, lr=.1, momentum=.9, foreach=f),
    "sgd_nesterov": lambda p, f: torch.optim.SGD(p, lr=.1, momentum=.9, nesterov=True, weight_decay=.1, foreach=f),
    "rmsprop": lambda p, f: torch.optim.RMSprop(p, lr=.1, momentum=.9, centered=True, foreach=f),
    "adagrad": lambda p, f: torch.optim.Adagrad(p, lr=.1, foreach=f),
    "adadelta": lambda p, f: torch.optim.Adadelta(p, lr=.1, foreach=f),
    "adamax": lambda p, f: torch.optim.Adamax(p, lr=.1, foreach=f),
    "nadam": lambda p, f: torch.optim.NAdam(p, lr=.1, foreach=f),
    "radam": lambda p, f: torch.optim.RAdam(p, lr=.1, foreach=f),
    "adam_maximize": lambda p, f: torch.optim.Adam(p, lr=.1, foreach=f, maximize=True, weight_decay=.1),
    "two_groups": lambda p, f: torch.optim.AdamW([dict(params=p[:3]), dict(params=p[3:], lr=.01)], lr=.1, foreach=f),
}

if hasattr(torch.optim, "Adafactor"):  # uses norms of whole tensors, so it must not be cut
    KINDS["adafactor"] = lambda p, f: torch.optim.Adafactor(p, lr=.1, foreach=f)
WHOLE = {"adafactor"}

random.seed(1)
plain = {(name, f): train(functools.partial(lambda make, f, p: make(p, f), make, f), 6) for name, make in KINDS.items()
         for f in (True, False)}
states = Here(fake(), Late)
script["arm_optimizers"](states)
for (name, f), wanted in plain.items():
    states.late[1].copied = states.cuts = 0
    make = functools.partial(lambda make, f, p: make(p, f), KINDS[name], f)
    found = train(make, 6)
    label = f"states_{name}_{'foreach' if f else 'single'}"
    if not same(wanted, found):
        print(f"FAIL {label}: differs from the optimizer alone")
    elif states.late[1].copied == 0 or log:
        print(f"FAIL {label}: {states.late[1].copied} copies, {log}")
    elif (states.cuts == 0) != (name in WHOLE):
        print(f"FAIL {label}: {states.cuts} large tensors were cut")
    else:
        print(f"ok {label}")


def broken(params, grads, exp_avgs, *rest):
    broken.calls += 1
    for e in exp_avgs:
        e.add_(1)
    if broken.calls == 2:
        raise ValueError("the optimizer's own")


broken.calls = 0
params = [torch.zeros(500) for _ in range(6)]
averages = [torch.zeros(500) for _ in range(6)]
try:
    states.in_parts(broken)(params, list(params), averages)
    print("FAIL states_error: the error did not arrive")
except ValueError:
    # The parts so far are whole, also those that were copies.
    done = sum(float(a[0]) for a in averages)
    print("ok states_error" if done == broken.calls and all(a.unique().numel() == 1 for a in averages) else
          f"FAIL states_error: {[float(a[0]) for a in averages]}")
resident[0] = False
calls = []
states.in_parts(lambda p, g: calls.append(len(p)))(params, params)
print("ok states_without_spill" if calls == [6] else f"FAIL states_without_spill: {calls}")
# Once there is space for everything, an optimizer gets its own lists, in one call.
resident[0], states.home = True, True
calls = []
averages = [torch.zeros(500) for _ in range(6)]
states.away = {id(params[0]): 1}
states.in_parts(lambda p, g, e: calls.append((len(p), e is averages)))(params, list(params), averages)
print("ok states_at_home" if calls == [(6, True)] and states.away_bytes() == 0 else f"FAIL states_at_home: {calls}")
