"""src/shim/activations.py with a real PyTorch, where the device is host memory and the two copy streams are as late as their
marks allow: a copy happens only when the program's stream waits for it. Gradients must be equal bit by bit."""
import gc
import os
import sys
import threading
import types

from late_streams import Lane

sys.path.pop(0)  # a file here has the name of a standard module
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

MIN = 1 << 10
log = []
script = dict(shim_log=log.append)
exec(open(os.path.join(os.path.dirname(__file__), "../../src/shim/activations.py")).read(), script)
script["MOVED_MIN_BYTES"] = MIN
script["CHUNK_MAX_BYTES"] = 64 << 10
Cuda, Activations, Armed = script["Cuda"], script["Activations"], script["Armed"]
torch.set_num_threads(1)
two = int(torch.__version__.split(".")[0]) >= 2


class Bus(Cuda):

    def __init__(self):
        self.torch, self.device, self.index = types.SimpleNamespace(empty=torch.empty, uint8=torch.uint8), torch.device("cpu"), 0
        self.home, self.out, self.back = Lane(True), Lane(), Lane()
        self.current = lambda index: self.home.handle
        self.pinned, self.memory = script["Pinned"](self.create), []
        self.references = script["references"](torch)
        self.alive, self.capturing, self.emptied = set(), False, 0
        self.unmarked = []
        self.away = 0
        self.states = types.SimpleNamespace(home=False, away_bytes=lambda: self.away, moment_bytes=lambda: 0)

    def create(self, size):
        self.memory.append(torch.empty(size, dtype=torch.uint8))
        return self.memory[-1].data_ptr(), size

    def usable(self, tensor):
        return not self.capturing

    def idle(self):
        return not self.capturing

    def allocated(self):
        return sum(e.bytes for e in self.alive if e.address != 0)

    def saved(self, entry):
        super().saved(entry)
        self.alive.add(entry)

    def overwritten(self, entry, act):
        """Freed memory is overwritten at once, if nothing else refers to it."""
        flat, free = entry.flat, self.references(entry.cdata) > 0 and not self.busy(entry)
        if flat is None:
            flat = torch.empty(0, dtype=torch.uint8).set_(script["storage_of"](entry.parts[0].alias), 0, (entry.bytes,), (1,))
        act(entry)
        if free:
            flat.fill_(0xAB)

    def release(self, entry):
        self.overwritten(entry, super().release)

    def drop(self, entry):
        self.overwritten(entry, super().drop)

    def forget(self, entry):
        super().forget(entry)
        self.alive.discard(entry)

    def total_bytes(self):
        return 1 << 40

    def empty_cache(self):
        self.emptied += 1

    def prepare(self, size):
        self.prepared = size

    def peak_bytes(self):
        return 120 << 20

    def levels(self):
        return self.allocated(), self.allocated()


def session(target):
    return Activations(torch, Bus(), target)


def gradients(program, hooks=None):
    torch.manual_seed(0)
    if hooks is not None:
        hooks.push()
    try:
        return [t.clone() for t in program()]
    finally:
        if hooks is not None:
            assert hooks.pop() != hooks.policy.resting


def equal(name, program, target=64 << 10, moved=True):
    plain = gradients(program)
    hooks = session(target)
    log.clear()
    for turn in range(2):  # the second step has a plan
        found = gradients(program, hooks)
        assert len(plain) == len(found) and all(torch.equal(a, b) for a, b in zip(plain, found)), f"{name} differs"
        gc.collect()
        figures = hooks.policy.end_step()
        assert not moved or (figures["out_bytes"] > 0 and figures["in_bytes"] > 0), figures
    assert not log, log
    assert not hooks.bus.alive and not hooks.entries, f"{name}: entries are left"
    free = sum(size * len(b) for size, b in hooks.bus.pinned.free.items())
    assert free == hooks.bus.pinned.created_bytes
    return figures


def parameters_of(*modules):
    return [p.grad for m in modules for p in m.parameters()]


def mlp():
    net = nn.Sequential(*[m for _ in range(12) for m in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))])
    net(torch.randn(64, 64)).square().mean().backward()
    return parameters_of(net)


def conv():
    net = nn.Sequential(*[m for i in range(4) for m in (nn.Conv2d(3 if i == 0 else 8, 8, 3, padding=1), nn.BatchNorm2d(8),
                                                        nn.ReLU(inplace=True))], nn.MaxPool2d(2), nn.Dropout(.3))
    net(torch.randn(4, 3, 16, 16)).square().mean().backward()
    return parameters_of(net)


def lstm():
    net = nn.LSTM(32, 64, 2)
    net(torch.randn(16, 8, 32))[0].square().mean().backward()
    return parameters_of(net)


def attention():
    """Views of one storage: q, k, v of one product, transposed, expanded."""
    layers = nn.ModuleList([nn.Linear(64, 192) for _ in range(4)])
    x = torch.randn(4, 32, 64)
    for layer in layers:
        q, k, v = (t.reshape(4, 32, 4, 16).transpose(1, 2) for t in layer(x).chunk(3, -1))
        x = x + ((q @ k.transpose(-1, -2)).softmax(-1) @ v * x.mean(2).unsqueeze(1).unsqueeze(-1).expand(4, 4, 32, 16)).transpose(
            1, 2).reshape(4, 32, 64)
    x.sin().sum().backward()
    return parameters_of(layers)


def checkpointed(reentrant):

    def program():
        blocks = nn.ModuleList([nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Dropout(.2), nn.Linear(64, 64)) for _ in range(12)])
        x = torch.randn(64, 64, requires_grad=True)
        y = x
        for block in blocks:
            y = checkpoint(block, y, use_reentrant=reentrant).tanh()
        y.square().mean().backward()
        return parameters_of(blocks) + [x.grad]

    return program


def retained():
    net = nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(64, 64), nn.Tanh())])
    loss = net(torch.randn(64, 64)).square().mean()
    for _ in range(3):
        loss.backward(retain_graph=True)
    return parameters_of(net)


def double_backward():
    net = nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(64, 64), nn.Tanh())])
    x = torch.randn(64, 64, requires_grad=True)
    slope, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    slope.square().sum().backward()
    return parameters_of(net) + [x.grad]


class Cube(torch.autograd.Function):
    kept = []

    @staticmethod
    def forward(ctx, x):
        y = x * x
        ctx.save_for_backward(x, y)
        return y * x

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        Cube.kept.append(y)  # longer than autograd
        return grad * 3 * y


def custom():
    x = torch.randn(64, 64, requires_grad=True)
    y = x
    for _ in range(10):
        y = Cube.apply(y).sin()
    y.sum().backward()
    kept, Cube.kept = Cube.kept, []
    return [x.grad] + [k.clone() for k in kept]


def shared():
    """One storage saved by many operations, and still used by the program: a skip connection over everything."""
    x = torch.randn(64, 64, requires_grad=True)
    first = x.sin()
    y = first
    for _ in range(10):
        y = (y * first).tanh() + first.t()
    y.sum().backward()
    return [x.grad]


def mixed():
    net = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(64, 64), nn.ReLU())])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(torch.randn(64, 64)).float().square().mean()
    loss.backward()
    return parameters_of(net)


def complex_numbers():
    x = torch.randn(64, 64, dtype=torch.complex64, requires_grad=True)
    y = x
    for _ in range(6):
        y = (y.conj() * y).sin() + y.imag
    y.abs().sum().backward()
    return [torch.view_as_real(x.grad)]


def another_thread():
    """The forward pass here, the backward pass elsewhere."""
    net = nn.Sequential(*[m for _ in range(12) for m in (nn.Linear(64, 64), nn.Tanh())])
    loss = net(torch.randn(64, 64)).square().mean()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    return parameters_of(net)


def nested():
    """In the middle, the program's own hooks are used."""
    seen = []
    x = torch.randn(64, 64, requires_grad=True)
    y = x
    for i in range(12):
        if i % 3 == 2:
            with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(1) or t * 2, lambda t: t / 2):
                y = y.sin() * y
        else:
            y = y.sin() * y
    y.sum().backward()
    assert len(seen) >= 8
    return [x.grad]


def in_place():
    """Writing to a saved tensor afterwards raises an error, whether it has moved or not."""
    for target, state in (1 << 30, "here"), (16 << 10, "away"):
        hooks = session(target)
        hooks.push()
        try:
            x = torch.randn(64, 64, requires_grad=True)
            first = x.sin()
            y = first.cos()  # saves first
            rest = y
            for _ in range(10):
                rest = rest.exp().sin()
            if not two or state == "here":  # later versions see that the program still has it, and keep it
                assert {e.state for e in hooks.bus.alive if e.seq == 2} == {state}, [(e.seq, e.state) for e in hooks.bus.alive]
            first.add_(1)
            try:
                rest.sum().backward()
                assert False, "no error"
            except RuntimeError as error:
                assert "modified by an inplace operation" in str(error), error
        finally:
            hooks.pop()
    # also for small tensors and parameters, which never move
    hooks = session(1 << 30)
    hooks.push()
    try:
        for size in 2, 64:
            weight = nn.Parameter(torch.randn(size, size))
            loss = (torch.randn(size, size, requires_grad=True) @ weight).sum()
            with torch.no_grad():
                weight.add_(1)
            try:
                loss.backward()
                assert False, "no error"
            except RuntimeError as error:
                assert "modified by an inplace operation" in str(error), error
    finally:
        hooks.pop()


def nothing_without_gradients():
    hooks = session(0)
    hooks.push()
    with torch.no_grad():
        nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])(torch.randn(64, 64))
    assert hooks.pop() and hooks.policy.seq == 0


def what_must_stay_stays():
    """Parameters and their views, leaves, small views of large storages, subclasses."""

    class Sub(torch.Tensor):
        pass

    hooks = session(1 << 30)
    weight = nn.Parameter(torch.randn(64, 64))
    Kept = script["Kept"]
    for tensor in (weight, weight.t(), torch.randn(64, 64, requires_grad=True), torch.randn(512, 64)[:16],
                   torch.randn(64, 64).as_subclass(Sub), torch.randn(2)):
        assert type(hooks.pack(tensor)) is Kept, tensor.shape
    class Optimizer:
        param_groups = [dict(params=[weight])]
    hooks.note_parameters(Optimizer)
    assert type(hooks.pack(weight.detach())) is Kept
    hooks.bus.capturing = True
    assert type(hooks.pack(torch.randn(64, 64))) is Kept
    hooks.bus.capturing = False
    assert type(hooks.pack(torch.randn(64, 64))) is script["Ticket"]


def a_graph_that_is_dropped_gives_its_buffers_back():
    hooks = session(64 << 10)
    hooks.push()
    net = nn.Sequential(*[m for _ in range(12) for m in (nn.Linear(64, 64), nn.Tanh())])
    loss = net(torch.randn(64, 64)).sum()
    out = hooks.policy.out_bytes
    gc.disable()
    del loss
    assert out > 0 and not hooks.bus.alive, "autograd's objects are in a cycle"
    gc.enable()
    # In the middle of a backward pass, while copies are running.
    x = torch.randn(64, 64, requires_grad=True)
    y = x
    for i in range(20):
        y = y.sin()
        if i == 6:
            y.register_hook(lambda grad: 1 / 0)
    try:
        y.sum().backward()
        assert False
    except ZeroDivisionError:
        pass
    del y
    gc.collect()
    assert not hooks.bus.alive and hooks.pop()


def two_graphs_in_turn():
    def program():
        nets = [nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(64, 64), nn.Tanh())]) for _ in range(2)]
        losses = [net(torch.randn(64, 64)).square().mean() for net in nets]
        for loss in losses:  # the older one first
            loss.backward()
        return parameters_of(*nets)

    equal("two graphs", program)


def transforms_and_compilation():
    hooks = session(64 << 10)
    armed = Armed(torch, None)
    armed.hooks = hooks
    functions = torch._C._autograd
    before = functions._saved_tensors_hooks_disable, functions._saved_tensors_hooks_enable
    armed.let_transforms_through()
    hooks.push()
    try:
        with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
            assert not hooks.thread.pushed
            with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
                torch.randn(64, 64, requires_grad=True).sin()
        assert hooks.thread.pushed
        if not two:
            return
        x = torch.randn(64, 64)
        want = torch.cos(x)
        assert torch.equal(torch.func.grad(lambda t: t.sin().sum())(x), want)
        assert torch.func.vmap(torch.func.grad(lambda t: t.sin().sum()))(x).equal(want)
        assert torch.func.jacrev(torch.sin)(x[0]).shape == (64, 64) and hooks.thread.pushed
        net = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(64, 64), nn.Tanh())])
        fast = torch.compile(net, backend="aot_eager")
        for turn in range(3):
            seq = hooks.policy.seq
            fast(x).sum().backward()
            assert hooks.policy.seq > seq
            found = parameters_of(net)
            net.zero_grad()
            net(x).sum().backward()
            assert all(torch.equal(a, b) for a, b in zip(found, parameters_of(net)))
            net.zero_grad()
    finally:
        functions._saved_tensors_hooks_disable, functions._saved_tensors_hooks_enable = before
        assert hooks.pop()


def arming():
    """No hooks before the device was short; then a target; and a part of the device if weights alone fill it."""
    state = dict(short=False, room=(100 << 20, 10 << 20, 1 << 30, 5000))
    moved = []
    script.update(shim_resident=lambda: state["short"], shim_room=lambda: state["room"],
                  shim_moved=lambda out, home, need, lasting: moved.append((out, home)))
    functions = torch._C._autograd
    before = functions._saved_tensors_hooks_disable, functions._saved_tensors_hooks_enable
    armed = Armed(torch, Bus)
    weight = nn.Parameter(torch.randn(64, 64))
    optimizer = torch.optim.SGD([weight], lr=.1)
    try:
        armed.step_ended(optimizer)
        assert armed.hooks is None
        state["short"] = True
        armed.step_ended(optimizer)
        hooks = armed.hooks
        assert hooks.thread.pushed and hooks.bus.emptied == 1 and hooks.bus.budget_bytes == 1 << 30
        first = hooks.policy.target_bytes
        assert first == (90 << 20) - (100 << 20) // 24 and hooks.bus.prepared == ((120 << 20) - first) * 5 // 4
        (torch.randn(64, 64, requires_grad=True) @ weight).sin().sum().backward()
        state["room"] = (100 << 20, 10 << 20, 1 << 30, 105000)
        armed.step_ended(optimizer)  # pages on the host cost time, but no saved tensor left
        assert hooks.policy.target_bytes == first and hooks.bus.emptied == 1 and moved == [(0, 0)] * 2
        hooks.policy.out_bytes = 1 << 20
        armed.step_ended(optimizer)  # saved tensors left, and pages cost nothing more
        assert hooks.policy.target_bytes == first and hooks.bus.emptied == 1
        state["room"] = (100 << 20, 10 << 20, 1 << 30, 105200)
        hooks.policy.out_bytes = 1 << 20
        armed.step_ended(optimizer)  # 0.2 ms: as long as 5 MB take there and back
        assert hooks.policy.target_bytes == first - 5000000 and hooks.bus.emptied == 2
        state["room"] = (100 << 20, 90 << 20, 1 << 30, 105200)
        armed.step_ended(optimizer)
        assert hooks.thread.pushed and hooks.policy.target_bytes == hooks.bus.allocated() + (100 << 20) // 8
        hooks.policy.base_bytes = hooks.bus.allocated() // 2  # gradients were gone when the step saved its first tensor
        armed.step_ended(optimizer)
        assert hooks.policy.target_bytes == hooks.bus.allocated() // 2 + (100 << 20) // 8
        assert hooks.pop()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            state["room"] = (100 << 20, 10 << 20, 1 << 30, 105200)
            if two:
                armed.step_ended(optimizer)  # the program's own hooks are around the step
                assert not hooks.thread.pushed
        armed.step_ended(optimizer)
        assert hooks.thread.pushed
        child = os.fork()
        if child == 0:  # the hooks stay, and move nothing
            loss = torch.randn(64, 64, requires_grad=True).sin().sum()
            loss.backward()
            os._exit(0 if hooks.off and hooks.policy.seq == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert hooks.pop()
    finally:
        functions._saved_tensors_hooks_disable, functions._saved_tensors_hooks_enable = before


def state_comes_home():
    """State of optimizers comes home if saved tensors have space beside it, and is left on the host for a while if that cost time."""
    armed, mib = Armed(torch, Bus), 1 << 20
    away, most = 300 * mib, 0
    states = types.SimpleNamespace(home=False, away_bytes=lambda: away, moment_bytes=lambda: 10 * mib)
    bus = types.SimpleNamespace(allocated=lambda: 100 * mib, states=states)
    policy = types.SimpleNamespace(target_bytes=1000 * mib, other_most=lambda: most, may_rest=True)
    armed.hooks = types.SimpleNamespace(bus=bus, policy=policy)

    def step(costly=False, rested=False):
        armed.settle(1200 * mib, rested, costly)
        return states.home

    assert step() and step()
    assert not step(costly=True) and not any(step() for _ in range(7)) and step()
    assert not step(costly=True) and not any(step() for _ in range(15)) and step()
    most = 600 * mib  # logits of a language model
    assert not step()
    most = 0
    armed.full = True
    assert not step()
    armed.full, away = False, 745 * mib
    assert not step()  # saved tensors have no space
    away = 0
    assert step() and policy.may_rest
    step(costly=True, rested=True)
    assert not policy.may_rest
    for _ in range(8):
        step()
    assert policy.may_rest


def steps_that_fit_rest():
    """A step that will fit saves most of its tensors without hooks; one that will not fit saves all with them."""
    bus = Bus()
    hooks = Activations(torch, bus, 2 << 20)
    weight = nn.Parameter(torch.randn(64, 64))

    def step(rows):
        hooks.push()
        x = torch.randn(rows, 64)
        for _ in range(40):
            x = (x @ weight).tanh()
        assert hooks.thread.pushed != hooks.policy.resting
        x.sum().backward()
        gradient = weight.grad.clone()
        weight.grad = None
        hooks.pop()
        return hooks.policy.end_step(), gradient

    torch.manual_seed(3)
    figures = [step(rows) for rows in (300, 20, 300, 20)]
    torch.manual_seed(3)
    hooks.off = True
    plain = [step(rows) for rows in (300, 20, 300, 20)]
    assert [f["rested"] for f, _ in figures] == [False, True, False, True], figures
    assert figures[0][0]["out_bytes"] > 0 and figures[2][0]["out_bytes"] > 0
    assert figures[1][0]["saved_bytes"] < 20 * 64 * 4 * 40 // 4 < figures[1][0]["peak_bytes"] < 2 << 20
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(figures, plain))


def threads():
    """Several threads train at the same time, each with its own hooks."""
    hooks, wrong = session(64 << 10), []  # one thread alone saves more

    def train(seed):
        try:
            generator = torch.Generator().manual_seed(seed)
            weights = [torch.randn(64, 64, generator=generator, requires_grad=True) for _ in range(8)]
            x = torch.randn(64, 64, generator=generator)
            found = []
            for turn in range(6):
                if turn == 1:
                    hooks.push()
                y = x
                for w in weights:
                    y = (y @ w).tanh()
                y.sum().backward()
                found.append([w.grad for w in weights])
                for w in weights:
                    w.grad = None
            hooks.pop()
            if not all(torch.equal(a, b) for f in found for a, b in zip(found[0], f)):
                wrong.append(seed)
        except BaseException as error:
            wrong.append(error)

    all_threads = [threading.Thread(target=train, args=(i,)) for i in range(4)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    gc.collect()
    hooks.bury()
    assert not wrong and not hooks.bus.alive and hooks.policy.out_bytes > 0, wrong


def one(name, test):
    try:
        test()
        print("ok", name)
    except BaseException as error:
        import traceback
        traceback.print_exc()
        print(f"FAIL {name}: {error!r}", log[:3])


print("torch", torch.__version__)
for program in mlp, conv, lstm, attention, retained, double_backward, custom, mixed, complex_numbers, another_thread, nested:
    one(f"gradients_are_equal_{program.__name__}", lambda: equal(program.__name__, program, 32 << 10))
one("gradients_are_equal_shared", lambda: equal("shared", shared, moved=False))
for reentrant in True, False:
    one(f"gradients_are_equal_checkpoint_{'reentrant' if reentrant else 'new'}",
        lambda: equal("checkpoint", checkpointed(reentrant), 32 << 10))
one("what_fits_is_not_copied", lambda: equal("fits", mlp, 1 << 30, False)["out_bytes"] == 0 or 1 / 0)
for test in (in_place, nothing_without_gradients, what_must_stay_stays, a_graph_that_is_dropped_gives_its_buffers_back,
             two_graphs_in_turn, transforms_and_compilation, arming, state_comes_home, steps_that_fit_rest, threads):
    one(test.__name__, test)
