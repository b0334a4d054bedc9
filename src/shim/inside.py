"""Runs inside a Python process under the shim, once it uses CUDA (python.c).

arm() is called on the main thread at growing intervals until it returns True. What it installs must not slow the program
noticeably, print anything, or let an exception escape.

Functions of the shim: shim_mark(name, begins), shim_fact(key, value), shim_snapshot(), shim_check_stacks(), shim_spills(),
shim_segments_are_whole(), shim_log(text) and shim_rank, the number of this process in a job of many, "" if it is alone. 
The names in capitals are those of src/run/protocol.h and src/base/variables.h.
"""
import functools
import importlib
import os
import sys
import time

armed = set()


def quiet(function):
    """Returns the function without its exceptions, except for the user's own interrupt."""

    def wrapped(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception as error:
            shim_log(f"{function.__name__}: {error!r}")

    return wrapped


def once(name):
    """Returns True the first time."""
    if name in armed:
        return False
    armed.add(name)
    return True


def run_file(ending):
    """Returns a file of this process in the folder of the run; None if there is none."""
    folder = os.environ.get(ENV_RUN)
    return folder and f"{folder}/{f'{RUN_RANK}{shim_rank}-' if shim_rank else ''}{os.getpid()}{ending}"


def create(path, flags):
    """Opens new files: readable by this user alone, and never through a planted link."""
    return os.open(path, flags | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def write_whole(path, write):
    """Replaces the file atomically."""
    made = f"{path}.{os.urandom(4).hex()}{RUN_PART}"
    with open(made, "xb", opener=create) as file:
        write(file)
    os.replace(made, path)


# ---- steps ----

@quiet
def on_step_end(optimizer, *_):
    """Called when an optimizer's step is done. The name is that of PyTorch's own range, which is marked where ranges are."""
    name = f"Optimizer.step#{type(optimizer).__name__}.step"
    shim_mark(name, 1)
    shim_mark(name, 0)


@quiet
def arm_steps(torch):
    # Found by its module: torch.optim does not have the name in every version.
    importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(on_step_end)


# ---- settings ----

@quiet
def check_settings(torch):
    """With spilling, PyTorch is asked for expandable segments, whose pages can be on the host one by one. Warns if it does not
    use them. Does not warn if the user chose other settings."""
    conf = [os.environ.get(name, "") for name in (ENV_TORCH_CONF, ENV_TORCH_CONF_OLD)]
    if not shim_spills() or not any(RUN_TORCH_SETTING in text for text in conf):
        return
    # Versions before 2.1 do not have them, and not all later ones report them.
    old = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 1)
    settings = {} if old else torch.cuda.memory._snapshot().get("allocator_settings", {})
    if old or not settings.get("expandable_segments", True):
        shim_segments_are_whole()


# ---- named ranges ----

@quiet
def arm_ranges(torch):
    """Makes torch.profiler.record_function mark the trace too. (NVTX ranges: nvtx.c.)"""
    kind = torch.autograd.profiler.record_function
    enter, leave = kind.__enter__, kind.__exit__

    @functools.wraps(enter)
    def __enter__(self):
        shim_mark(str(self.name), 1)
        return enter(self)

    @functools.wraps(leave)
    def __exit__(self, *error):
        shim_mark(str(self.name), 0)
        return leave(self, *error)

    kind.__enter__, kind.__exit__ = __enter__, __exit__


# ---- out of memory ----

last_dump = [0.0, 0.0]  # when it ended, and how long it took


def mib(size):
    return f"{size / (1 << 20):.2f} MiB"


def text_of_failure(torch, device, asked, total, free):
    """Returns the error text that PyTorch is about to print, as far as it is known now."""
    live, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    return (f"CUDA out of memory. Tried to allocate {mib(asked)}. GPU {device} has a total capacity of {mib(total)} of "
            f"which {mib(free)} is free. Of the allocated memory {mib(live)} is allocated by PyTorch, and "
            f"{mib(reserved - live)} is reserved by PyTorch but unallocated.")


@quiet
def describe_program(torch):
    """Returns a description of the model, the optimizer and the batch (python/stowage/_program.py, put before this file). "" if unknown."""
    text = program_text(torch)
    if len(armed) < 64 and once(text):  # a recording keeps every fact
        shim_fact("program", text)
    return text


@quiet
def on_out_of_memory(torch, device, asked, total, free):
    """Writes PyTorch's own view of its memory, before the exception frees any of it."""
    path, now = run_file(RUN_PICKLE), time.monotonic()
    # A program that searches for its largest batch runs out of memory repeatedly: at most a twentieth of its time is spent here.
    if path is None or now < last_dump[0] + 20 * last_dump[1]:
        return
    import pickle

    if os.path.exists(path):  # the trace says of the newest view alone when it was
        os.unlink(path)
    shim_snapshot()
    snapshot = torch.cuda.memory._snapshot()
    snapshot["error"] = text_of_failure(torch, device, asked, total, free)
    snapshot["stowage_program"] = describe_program(torch) or ""
    write_whole(path, lambda file: pickle.dump(snapshot, file, protocol=4))
    last_dump[:] = time.monotonic(), time.monotonic() - now
    shim_log(f"kept PyTorch's view in {last_dump[1]:.2f} s")


@quiet
def arm_out_of_memory(torch):
    torch._C._cuda_attach_out_of_memory_observer(functools.partial(on_out_of_memory, torch))


# ---- the end ----

@quiet
def on_exit():
    """Called when the program ends: keeps the text and the lines of an exception about memory."""
    error = getattr(sys, "last_value", None)
    about = f"{type(error).__name__}: {error}".lower()
    if not isinstance(error, MemoryError) and not any(
            words in about for words in ("out of memory", "outofmemory", "resource_exhausted", "cudaerrormemoryallocation")):
        return
    path = run_file(RUN_ERROR)
    if path is not None:
        import traceback

        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        write_whole(path, lambda file: file.write(text.encode("utf-8", "replace")))


@quiet
def arm_exit():
    import atexit

    atexit.register(on_exit)


# ---- arming ----

def whole(name):
    """Returns the module if its import is complete, or None."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return None if module is None or getattr(spec, "_initializing", False) else module


@quiet
def started(torch):
    """Returns whether PyTorch's CUDA has started. Before that it has no allocator, and some functions crash."""
    return torch is not None and torch.cuda.is_initialized()


def arm():
    if once("process"):
        arm_exit()
        if not shim_check_stacks():
            shim_fact("stacks", "none: the frames of this Python are not known")
    torch = whole("torch")
    if started(torch) and once("torch"):
        arm_out_of_memory(torch)
        check_settings(torch)
        if os.environ.get(ENV_RECORD) == "1":
            arm_ranges(torch)
        else:
            arm_steps(torch)
    return "torch" in armed
