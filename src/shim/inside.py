"""Runs inside a Python process beneath the shim, once CUDA is at work there (python.c).

arm() is called on the main thread, again and again ever more seldom, until it answers True. What it arms must cost the
program nothing it could feel, print nothing, and let no exception out. shim_mark(name, begins), shim_fact(key, value),
shim_step_ended(), shim_check_stacks() and shim_log(text) are the shim's.
"""
import sys

armed = set()


def quiet(function):
    """The same function, of which nothing but the user's own interrupt comes out."""

    def wrapped(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception as error:
            shim_log(f"{function.__name__}: {error!r}")

    return wrapped


def once(name):
    """True the first time."""
    if name in armed:
        return False
    armed.add(name)
    return True


# ---- steps ----

@quiet
def on_step_end(*_):
    """An optimizer's step is done: its state is cold until the next one."""
    shim_mark("step", 1)
    shim_mark("step", 0)
    shim_step_ended()


@quiet
def arm_steps(torch):
    torch.optim.optimizer.register_optimizer_step_post_hook(on_step_end)


# ---- arming ----

def whole(name):
    """The module, if it is imported and its import has come to its end."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return None if module is None or getattr(spec, "_initializing", False) else module


def arm():
    if once("stacks") and not shim_check_stacks():
        shim_fact("stacks", "none: the frames of this Python are not known")
    torch = whole("torch")
    if torch is not None and once("torch"):
        arm_steps(torch)
    return torch is not None
