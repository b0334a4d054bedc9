"""Limits and spilling for a running process, such as a notebook's kernel.

`enable()` and `limit()` get the environment of a run from `stowage run --environment`, set it, and load the shim, which then acts as
libcuda.so.1 for everything loaded later. If a framework has already loaded the driver, the shim replaces its functions
(src/shim/adopt.c). This works until CUDA starts. After that, `restart()` starts the same process again with the shim preloaded.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import warnings
from typing import Any, Dict, List, Optional, Tuple

from . import _memory, _ram, _show
from ._command import run
from ._explain import hook_exceptions
from ._history import hook_torch_when_loaded
from ._library import Invalid, NotFound, StowageError, Unsupported, parse_size
from ._limits import Enabled, in_force, put_in_force
from ._notebook import hook_cells
from ._run_names import ENV_LEDGER, ENV_PYTHON_LIMITS, ENV_PYTHON_RAM, ENV_RECORD, ENV_RUN

_SHIM = "libstowage-shim.so"
_NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED


_lock = threading.Lock()


def _after_fork() -> None:
    """In a forked child: replaces the lock, because a thread that held it does not exist here."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
_useless = False  # the shim is loaded, but could not replace the driver


# ---- what is loaded ----


def _mapped() -> "List[str]":
    """Returns the files mapped into this process."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        return list(dict.fromkeys(line.split(None, 5)[5].strip() for line in file if "/" in line))


def _shim_loaded() -> "Optional[str]":
    return next((path for path in _mapped() if os.path.basename(path) == _SHIM), None)


def shim_functions() -> "Optional[ctypes.CDLL]":
    """Returns the shim if it is loaded in this process."""
    path = _shim_loaded()
    return ctypes.CDLL(path) if path is not None else None


def _driver_loaded() -> "Optional[str]":
    """Returns the path of the real driver if it is loaded."""
    for path in _mapped():
        name = os.path.basename(path)
        if name.startswith("libcuda.so") and os.path.basename(os.path.realpath(path)) != _SHIM:
            return path
    return None


def _who_loaded() -> str:
    """Returns the framework that most likely loaded the driver."""
    torch = _memory.loaded("torch")
    if torch is not None:
        return "torch, whose CUDA has started" if _memory.torch_cuda() is not None else "import torch"
    for name in ("jax", "cupy", "numba.cuda", "tensorflow"):
        if _memory.loaded(name) is not None:
            return f"import {name.partition('.')[0]}"
    return "this process"


# ---- setting the environment of a run ----


def _options(vram: "Optional[str]", spill: "Optional[str]") -> "List[str]":
    options = ["--environment"]
    if vram is not None:
        options += ["--vram-limit", vram]
    if spill is not None:
        options += ["--spill", spill]
    return options


def _our_names(said: str) -> str:
    """Returns the command's message with the names of this package's arguments."""
    return said.replace("--vram-limit", "vram").replace("--spill", "spill")


def _environment(vram: "Optional[str]", spill: "Optional[str]") -> "Dict[str, str]":
    """Returns the variables of a run with these limits; empty if there is no driver."""
    notes: "List[str]" = []
    try:
        lines = run(["run", *_options(vram, spill)], notes=notes).splitlines()
    except Invalid as reason:  # with the names of our arguments
        raise Invalid(_our_names(str(reason))) from None
    missing = [_our_names(note) for note in notes if "there is no device" in note]
    if missing and lines:
        raise NotFound(f"{missing[0]}; stowage.info() lists the devices")
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _text(what: str, given: "str | int | None") -> "Optional[str]":
    """Checks a limit and returns it for the command line; device lists such as 0=8G,1=4G stay unchanged."""
    if given is None:
        return None
    if isinstance(given, str) and "=" in given:
        for part in given.split(","):
            _text(what, part.partition("=")[2])
        return given
    limit = parse_size(given, what)
    if limit < 1 << 20:
        raise Invalid(f"{what}: a limit of {limit} bytes is too small; write a size such as 8G")
    return str(given)


def _spill_text(given: "str | int | bool | None") -> "Optional[str]":
    if given is None or given is False or given == "off":
        return None
    if given is True or given == "auto":
        return "auto"
    try:
        return str(given) if parse_size(given, "spill") > 0 else None
    except Invalid as reason:
        raise Invalid(f'{reason}; or "auto", or "off"') from None


def _load(environment: "Dict[str, str]") -> None:
    """Loads the libraries that a run would have preloaded."""
    for path in environment.get("LD_PRELOAD", "").split(":"):
        if os.path.basename(path).startswith("libstowage-"):
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL | os.RTLD_NOW)


def _take_over(environment: "Dict[str, str]") -> None:
    """Sets the variables of a run in this process and its children."""
    os.environ.update(environment)
    torch = _memory.loaded("torch")
    if torch is not None and "PYTORCH_ALLOC_CONF" in environment:
        # PyTorch may have read the variable already; it accepts settings here until CUDA starts.
        settings = getattr(getattr(getattr(torch, "cuda", None), "memory", None), "_set_allocator_settings", None)
        if settings is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # PyTorch 2.11 warns about this name; older versions have no other
                settings(environment["PYTORCH_ALLOC_CONF"])


def _load_shim(vram: "Optional[str]", spill: "Optional[str]") -> "Tuple[str, List[str]]":
    """Loads the shim below this process. Returns how, and notes for the user."""
    if vram is None and spill is None:
        return "not needed", []
    if _shim_loaded() is not None and not _useless:
        return _already(vram, spill)
    driver = _driver_loaded()
    if driver is not None and _started(driver):
        raise _too_late(driver, f"CUDA has already started in this process (by {_who_loaded()})", vram, spill)
    environment = _environment(vram, spill)
    if not environment:
        return "not loaded", ["no CUDA driver was found: limits of device memory have no effect"]
    _load(environment)
    if driver is not None:
        reason = _adopt(driver)
        if reason is not None:
            raise _too_late(driver, f"the CUDA driver is already loaded in this process ({reason})", vram, spill)
    _take_over(environment)
    return "loaded into this process", []


def _too_late(driver: str, what: str, vram: "Optional[str]", spill: "Optional[str]") -> StowageError:
    return StowageError(
        f"{what}: the shim can no longer replace {os.path.basename(driver)}. stowage.restart({_call_text(vram, spill)}) starts "
        "the process again with the limits in place; or enable before CUDA starts"
    )


def _started(driver: str) -> bool:
    """Returns true if cuInit was called, by querying the loaded driver."""
    count = ctypes.c_int()
    try:
        return bool(ctypes.CDLL(driver).cuDeviceGetCount(ctypes.byref(count)) != _NOT_INITIALIZED)
    except (OSError, AttributeError):
        return True


def _adopt(driver: str) -> "Optional[str]":
    """Lets the shim replace the functions of the loaded driver. Returns the reason if it cannot."""
    global _useless
    adopt = ctypes.CDLL(_shim_loaded()).stow_shim_adopt
    adopt.restype, adopt.argtypes = ctypes.c_char_p, [ctypes.c_char_p]
    reason = adopt(os.fsencode(driver))
    _useless = reason is not None
    return reason.decode() if reason is not None else None


def _already(vram: "Optional[str]", spill: "Optional[str]") -> "Tuple[str, List[str]]":
    how = "preloaded when this process started" if _SHIM in os.environ.get("LD_PRELOAD", "") else "loaded"
    wanted = f"{vram or ''} {spill or ''}"
    before = os.environ.get(ENV_PYTHON_LIMITS)
    if before is not None and before != wanted:
        raise StowageError(
            f"limits are already in force (vram, spill: {before.strip() or 'none'}), and this call requests others "
            f"({wanted.strip()}): a process has one set. stowage.restart({_call_text(vram, spill)}) changes them"
        )
    return how, [] if before is not None else ["the limits are those of the run this process belongs to"]


def _call_text(vram: "Optional[str]", spill: "Optional[str]") -> str:
    parts = [f"{name}={value!r}" for name, value in (("vram", vram), ("spill", spill)) if value is not None]
    return ", ".join(parts)


# ---- public functions ----


def enable(
    *, spill: "str | int | bool | None" = "auto", vram: "str | int | None" = None, ram: "str | int | None" = None
) -> Enabled:
    """Enables Stowage in this process: spilling to host memory, limits, a watch over host memory, explanations.

    `spill`: "auto" (what the host can spare), a size, or None. `vram` and `ram` limit device and host memory; without `ram` the
    watch uses all host memory. Call it before CUDA starts, that is, before the first tensor on a GPU; later, use
    `stowage.restart()`.

    >>> enable(spill="lots")
    Traceback (most recent call last):
        ...
    stowage._library.Invalid: spill: size "lots" is not a number; write a size such as 8G, 512 MiB or 1.5GiB; or "auto", or "off"
    """
    return _set(_text("vram", vram), _spill_text(spill), _text("ram", ram), everything=True)


def limit(*, vram: "str | int | None" = None, ram: "str | int | None" = None) -> Enabled:
    """Limits this process: `vram` of device memory ("8G", or by device "0=8G,1=4G"), `ram` of host memory.

    Above the `vram` limit a framework gets "out of memory"; near the `ram` limit the running cell gets a MemoryError. You can change
    the `ram` limit at any time, and set the `vram` limit once.

    >>> limit()
    Traceback (most recent call last):
        ...
    TypeError: limit: nothing to limit; give vram= or ram=, as limit(vram="8G", ram="10G")
    """
    if vram is None and ram is None:
        raise TypeError('limit: nothing to limit; give vram= or ram=, as limit(vram="8G", ram="10G")')
    before = in_force()
    return _set(_text("vram", vram), before.spill if before and vram is not None else None, _text("ram", ram), everything=False)


def _life_before() -> Enabled:
    """Returns the limits from a restart or from the parent process that this process has not applied yet."""
    vram, _, spill = os.environ.get(ENV_PYTHON_LIMITS, " ").partition(" ")
    if _shim_loaded() is None or _useless:
        vram = spill = ""
    return Enabled(vram or None, spill or None, os.environ.get(ENV_PYTHON_RAM) or None, "since the start")


def _main_interpreter() -> bool:
    """Returns true in the main interpreter of the process, or if Python cannot tell."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            module = __import__(name)
            return bool(module.get_current() == module.get_main())
        except (ImportError, AttributeError):
            continue
    return True


def _set(vram: "Optional[str]", spill: "Optional[str]", ram: "Optional[str]", everything: bool) -> Enabled:
    if not _main_interpreter():
        raise Unsupported(
            "enable: this is a sub-interpreter, and limits hold for the whole process: call stowage.enable() or stowage.limit() in "
            "the main interpreter, before this one starts"
        )
    with _lock:
        first = in_force() is None
        before = in_force() or _life_before()
        held = before.shim != "not loaded"  # without a driver no limit is in force
        if held and before.vram is not None and vram is not None and vram != before.vram:
            raise StowageError(
                f"a limit of device memory is already in force, {before.vram}: a process has one. "
                f"stowage.restart({_call_text(vram, spill or before.spill)}) changes it"
            )
        new = Enabled(vram or before.vram, spill or before.spill, ram or before.ram, before.shim)
        ram_bytes = parse_size(new.ram, "ram") if new.ram else None
        said = _ram.check(ram_bytes) if ram is not None or first else []
        if (new.vram, new.spill) != (before.vram, before.spill) or first:
            new.shim, new.notes = _load_shim(new.vram, new.spill)
            if new.shim in ("loaded into this process",):
                os.environ[ENV_PYTHON_LIMITS] = f"{new.vram or ''} {new.spill or ''}"
        new.notes += said + _ram.start(ram_bytes)
        hook_exceptions()
        if everything:
            hook_torch_when_loaded()
        hook_cells()
        put_in_force(new)
        return new


# ---- restart ----


def _arguments() -> "List[str]":
    """Returns the command line of this process."""
    given = getattr(sys, "orig_argv", None)
    if given:
        return list(given)
    with open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]


def _become(environment: "Dict[str, str]") -> None:
    _ram.stop()  # its limit would stay in force after exec
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *_arguments()[1:]], environment)


def restart(
    *, vram: "str | int | None" = None, spill: "str | int | bool | None" = "auto", ram: "str | int | None" = None
) -> "Optional[Enabled]":
    """Restarts this process with the shim preloaded: a kernel keeps its connection and loses its variables.

    Run the cells again afterwards. Does nothing in a process that already has the shim with these limits, so a script may begin with
    it. Limits of device memory are in force from the first line; call `enable()` to start the watch over host memory again, with
    the limit given here.
    """
    vram_text, spill_text, ram_text = _text("vram", vram), _spill_text(spill), _text("ram", ram)
    wanted = f"{vram_text or ''} {spill_text or ''}"
    if _shim_loaded() is not None and not _useless and os.environ.get(ENV_PYTHON_LIMITS) == wanted:
        return _set(vram_text, spill_text, ram_text, everything=True)
    environment = dict(os.environ)
    previous = environment.get("LD_PRELOAD", "")
    environment["LD_PRELOAD"] = ":".join(path for path in previous.split(":") if path and "libstowage-" not in path)
    run_environment = _environment(vram_text, spill_text)
    if not run_environment:
        raise StowageError("no CUDA driver was found, so a restart would change nothing")
    for name in (ENV_LEDGER, ENV_RUN, ENV_RECORD):
        environment.pop(name, None)
    kept = environment.pop("LD_PRELOAD")
    environment.update(run_environment)
    ours = [path for path in run_environment["LD_PRELOAD"].split(":") if "libstowage-" in path]
    environment["LD_PRELOAD"] = ":".join([*ours, *([kept] if kept else [])])
    environment[ENV_PYTHON_LIMITS] = wanted
    if ram_text is not None:
        environment[ENV_PYTHON_RAM] = ram_text
    shell = _show.shell()
    if shell is None or not hasattr(shell, "kernel"):
        if not sys.argv or not sys.argv[0] or sys.argv[0] == "-c":
            raise StowageError("this interpreter has no file to start again; use: stowage run -- python …")
        _become(environment)
        return None
    print("The kernel restarts with Stowage. Its variables are gone: run the cells again from the first one.")
    _after_reply(shell, environment)
    return None


def _after_reply(shell: Any, environment: "Dict[str, str]") -> None:
    """Restarts after the reply of this cell was sent; otherwise the client would wait forever."""
    import asyncio

    asyncio.get_event_loop().call_later(0.5, _become, environment)
