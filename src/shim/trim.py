"""Runs inside a Python process with spilling (trim.c): makes PyTorch release its cached pages when that helps spilling.

arm() is called on the main thread from time to time until it returns True. It prints nothing and lets no exception escape. Functions of the
shim: shim_resident(), shim_on_host(address, bytes), shim_written(address, bytes), shim_passed(address, bytes), shim_event(), shim_record(event, stream),
shim_wait(stream, event), shim_copy(to, from, bytes, stream, near), shim_capturing(), shim_pinned(bytes, most), shim_prepare(bytes), shim_step_ended(), shim_trim_wanted(), shim_live(device), shim_levels(device), shim_trimming(begins), shim_private_pool(begins),
shim_sizes(optimizer, weights, gradients, state) and shim_log(text). lanes.py, activations.py, states.py and weights.py are before this file in the same script.
"""
import functools
import importlib
import sys

COMPACT_STEP = 2  # of those whose pages are moved


def quiet(function):
    """Returns the function without its exceptions, except for the user's own interrupt."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception as error:
            shim_log(f"{function.__name__}: {error!r}")

    return wrapped


def on_devices(values):
    return sum(v.numel() * v.element_size() for v in values if getattr(v, "is_cuda", False))


class Trim:
    """Makes PyTorch release its cached pages between two steps if some of them are on the host: the next step then uses vram first, and
    only what does not fit goes to the host again. The best moment is when the gradients are gone: after the first zero_grad that follows a
    step, if nothing new is live by then. A loop without such a moment uses the end of its steps."""

    def __init__(self, torch, states, weights):
        self.torch, self.live, self.at_step = torch, None, False
        self.activations = arm_activations(torch, states, weights)
        self.steps = 0  # since pages are moved
        self.sizes = {}  # of each optimizer: its type, and bytes of weights, gradients and state

    def allocated(self):
        return live_bytes(self.torch, self.torch.cuda.current_device())

    def release(self):
        shim_trimming(1)
        try:
            self.torch.cuda.empty_cache()
        finally:
            shim_trimming(0)

    @quiet
    def move_activations(self, optimizer):
        if self.activations is not None:
            self.activations.step_ended(optimizer)

    @quiet
    def note_sizes(self, optimizer):
        """Reports the bytes of the weights, gradients and state of each optimizer, after its first step: the state exists then.

        Memory that several optimizers share is counted once for each."""
        if id(optimizer) in self.sizes:
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        state = [t for s in optimizer.state.values() if isinstance(s, dict) for t in s.values()]
        self.sizes[id(optimizer)] = (type(optimizer).__name__, on_devices(parameters),
                                     on_devices(p.grad for p in parameters), on_devices(state))
        known = self.sizes.values()
        shim_sizes(max(known, key=lambda s: s[3])[0], *(sum(s[i] for s in known) for i in (1, 2, 3)))

    def step_ended(self, optimizer, *_):
        self.move_activations(optimizer)
        self.note_sizes(optimizer)
        shim_step_ended()
        if shim_resident():
            self.compact()
        if not shim_trim_wanted():
            return
        if self.live is not None:  # no zero_grad since the last one
            self.at_step, self.live = True, None
        if self.at_step:
            self.release()
        else:
            self.live = self.allocated()

    def gradients_gone(self):
        if self.live is None:
            return
        self.at_step, self.live = self.allocated() > self.live, None
        if not self.at_step:
            self.release()

    def compact(self):
        """Releases addresses once: the steps before pages moved used more addresses than later steps need. What is left is what a step
        uses, at addresses that stay the same."""
        self.steps += 1
        if self.steps == COMPACT_STEP:
            self.torch.cuda.empty_cache()


def followed_by(function, then):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        result = function(*args, **kwargs)
        then()
        return result

    return wrapped


@quiet
def arm_pools(torch):
    """While a torch.cuda.MemPool is in use, PyTorch drops no cache and does not retry, so a first refusal would be final."""
    modules = torch._C, importlib.import_module("torch.cuda.memory")
    for name in {name for module in modules for name in dir(module)}:
        begins, ends = name.startswith("_cuda_begin"), name.startswith("_cuda_end")
        if not name.endswith("ToPool") or not (begins or ends):
            continue
        wrapped = followed_by(getattr(modules[0], name, None) or getattr(modules[1], name),
                              functools.partial(shim_private_pool, int(begins)))
        for module in modules:
            if hasattr(module, name):
                setattr(module, name, wrapped)


@quiet
def arm_torch(torch, states, weights):
    trim = Trim(torch, states, weights)
    hooks = importlib.import_module("torch.optim.optimizer")
    hooks.register_optimizer_step_post_hook(quiet(trim.step_ended))
    for kind in torch.optim.Optimizer, torch.nn.Module:
        kind.zero_grad = followed_by(kind.zero_grad, quiet(trim.gradients_gone))


def arm():
    torch = sys.modules.get("torch")
    if torch is None or getattr(getattr(torch, "__spec__", None), "_initializing", False):
        return False
    arm_pools(torch)
    states = States(torch)
    arm_torch(torch, states, quiet(arm_weights)(torch))
    quiet(arm_optimizers)(states)
    return True
