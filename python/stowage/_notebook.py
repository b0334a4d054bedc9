"""The magics %stowage, %%stowage and %release, and the hooks on the cells of a kernel.

Loaded by `%load_ext stowage`. Out-of-memory errors of cells then carry their explanation.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from . import _death, _explain, _host, _memory, _objects, _profile, _ram, _release, _show
from ._heap import open_heaps
from ._library import format_size as size
from ._look import Watch, info

_hooked = False


# ---- cells ----


def _drop_last_error(shell: Any) -> None:
    """Drops the variables that a MemoryError of the last cell keeps, if memory is still short: each further cell would fail at once, and the
    error would be about the old variables.
    """
    error = getattr(getattr(shell, "last_execution_result", None), "error_in_exec", None)
    if not isinstance(error, MemoryError) or not _ram.is_short():
        return
    before = _memory.host().held_bytes
    del error
    _drop_error(shell)
    _release.trim_host()
    freed = before - _memory.host().held_bytes
    if freed >= 1 << 20:
        _host.samples.clear()  # what grows from here on is of the new cell
        answer = f"stowage: freed {size(freed)} that the last error kept in the variables of its functions"
        print(answer, file=sys.stderr)


def _cell_begins(info: Any = None) -> None:
    with contextlib.suppress(Exception):
        _drop_last_error(_show.shell())
    _ram.cell(True)
    text = getattr(info, "raw_cell", None) or ""
    _show.note_cell(text, getattr(_show.shell(), "execution_count", 0))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    _death.set_cell(lines[0][:80] if lines else None)


def _cell_ends(*_: Any) -> None:
    _ram.cell(False)
    _death.set_cell(None)


def _on_error(shell: Any, kind: Any, error: Any, where: Any, tb_offset: Any = None) -> "Optional[List[str]]":
    """Shows an exception of a cell as usual, followed by the explanation if it is an out-of-memory error."""
    made = _explain.annotate(error)
    if made is None:
        shell.showtraceback((kind, error, where), tb_offset=tb_offset)
        return None
    with _ram.undisturbed():  # IPython reads the source of each frame; a request that failed at the limit leaves no memory for that
        return _show_explained(shell, kind, error, where, tb_offset, made)


def _show_explained(shell: Any, kind: Any, error: Any, where: Any, tb_offset: Any, made: Any) -> "List[str]":
    if _show.in_notebook():
        # The card replaces the note, which a notebook shows as raw text.
        notes = getattr(error, "__notes__", None)
        with contextlib.suppress(Exception):
            error.__notes__ = [note for note in notes or [] if made.headline not in note]
        lines = shell.InteractiveTB.structured_traceback(kind, error, where, tb_offset=tb_offset)
        with contextlib.suppress(Exception):
            error.__notes__ = notes or []
        shell._showtraceback(kind, error, lines)
        _show.show(made)
        return list(lines)
    lines = shell.InteractiveTB.structured_traceback(kind, error, where, tb_offset=tb_offset)
    if made.headline not in "\n".join(lines):  # an IPython that does not show notes
        lines = [*lines, "", "stowage: " + made.text]
    shell._showtraceback(kind, error, lines)
    return list(lines)


def hook_cells() -> None:
    """Hooks cells and their errors, in a kernel or a terminal IPython; does nothing elsewhere."""
    global _hooked
    shell = _show.shell()
    if shell is None or _hooked:
        return
    _hooked = True
    shell.events.register("pre_run_cell", _cell_begins)
    shell.events.register("post_run_cell", _cell_ends)
    _ram.cell(True)  # this is called from a cell
    before = getattr(getattr(shell, "history_manager", None), "input_hist_raw", None) or []
    for number in range(1, len(before)):
        _show.note_cell(before[number], number)
    if not getattr(shell, "custom_exceptions", ()):
        shell.set_custom_exc((Exception,), _on_error)


def _unhook_cells(shell: Any) -> None:
    global _hooked
    if _hooked:
        shell.events.unregister("pre_run_cell", _cell_begins)
        shell.events.unregister("post_run_cell", _cell_ends)
        shell.set_custom_exc((), None)
        _hooked = False


# ---- %%stowage: one cell, measured ----


@dataclass
class CellReport:
    """The memory of a cell: its peak, and what is left after it."""

    host_peak: int
    host_after: int
    devices: "List[Tuple[str, Optional[int], int]]"  #: (name, peak or None where it is not known, difference)
    survivors: "List[Tuple[str, int, List[str]]]"

    def _rows(self) -> "List[Tuple[str, str, str]]":
        rows = [("", "at the peak", "after"), ("host", _signed(self.host_peak), _signed(self.host_after))]
        for name, peak, after in self.devices:
            rows.append((name, "not known" if peak is None else _signed(peak), _signed(after)))
        return rows

    def _survivor_rows(self) -> "List[Tuple[str, str, str]]":
        rows = [("what survived the cell", "bytes", "held by")]
        return rows + [(kind, size(held), ", ".join(paths[:2]) or "?") for kind, held, paths in self.survivors]

    def __repr__(self) -> str:
        parts = [_show.text_table(self._rows(), right=[1, 2], indent=0)]
        if self.survivors:
            parts.append(_show.text_table(self._survivor_rows(), right=[1], indent=0))
        else:
            parts.append("nothing of 1 MiB or more survived the cell")
        if len(self.devices) == 0:
            parts.append("no GPU in use")
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        parts = [_show.html_table(self._rows(), right=[1, 2])]
        if self.survivors:
            parts.append(_show.html_table(self._survivor_rows(), right=[1]))
        else:
            parts.append(_show.html_text("nothing of 1 MiB or more survived the cell"))
        if len(self.devices) == 0:
            parts.append(_show.html_text("no GPU in use"))
        return _show.html_block("stowage: this cell", *parts)


def _signed(value: int) -> str:
    return ("+" if value >= 0 else "") + size(value)


def _reset_host_peak() -> bool:
    """Resets this process's peak in the kernel. Returns False if that is not allowed."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
        return True
    except OSError:
        return False


class _Meter:
    """Measures memory before and after a piece of code."""

    def __init__(self) -> None:
        self.large = {piece.key for piece in _objects.find_large()}
        self.containers = _containers()
        torch = _memory.torch_cuda()
        if torch is not None:
            for device in range(torch.cuda.device_count()):
                torch.cuda.reset_peak_memory_stats(device)
        self.pools = {(pool.framework, pool.device): pool for pool in _memory.pools()}
        self.heaps = {id(one): one.stats() for one in open_heaps()}
        self.devices = _memory.devices() if _memory.driver_here() else []
        self.exact = _reset_host_peak()
        self.host = _memory.host()
        # Use the kernel's own peak if possible; otherwise, and for GPUs, sample many times a second.
        self.watch = Watch(0.02, _Quiet(), devices=bool(self.devices)) if not self.exact or self.devices else None

    def report(self) -> CellReport:
        host = _memory.host()
        if self.watch is not None:
            self.watch.stop()
        peak = host.peak_resident_bytes - self.host.resident_bytes
        if not self.exact and self.watch is not None:
            peak = self.watch.peak_host_bytes - self.host.held_bytes
        devices: "List[Tuple[str, Optional[int], int]]" = []
        for pool in _memory.pools():
            before = self.pools.get((pool.framework, pool.device))
            start = before.live_bytes if before is not None else 0
            top = max(0, pool.peak_bytes - start) if pool.framework == "torch" else None
            devices.append((f"{pool.framework} on device {pool.device}", top, pool.live_bytes - start))
        for one in open_heaps():
            now, was = one.stats(), self.heaps.get(id(one)) or {"live_bytes": 0, "peak_live_bytes": 0}
            # A heap keeps its all-time peak, which is the peak of this cell only if it rose.
            top = now["peak_live_bytes"] - was["live_bytes"] if now["peak_live_bytes"] > was["peak_live_bytes"] else None
            if top is not None or now["live_bytes"] > 0 or now["live_bytes"] != was["live_bytes"]:
                devices.append((f"heap on {one.device or 'the first device'}", top, now["live_bytes"] - was["live_bytes"]))
        for index, device in enumerate(_memory.devices() if self.devices else []):
            if index < len(self.devices) and device.used_bytes != self.devices[index].used_bytes:
                top = max(0, self.watch.peak_device_bytes - self.devices[index].used_bytes) if self.watch and len(self.devices) == 1 else None
                devices.append((f"device {index}, all of it", top, device.used_bytes - self.devices[index].used_bytes))
        around = self._around()
        new = [piece for piece in _objects.find_large() if piece.key not in self.large and piece.bytes * 4 > around.get(id(piece.object), 0)][:12]
        finder = _objects.Finder() if new else None
        survivors = [(piece.kind, piece.bytes, _objects.paths_to(piece.object, finder)) for piece in new]
        survivors = sorted(survivors + self._grown(survivors), key=lambda one: -one[1])
        return CellReport(max(0, peak), host.held_bytes - self.host.held_bytes, devices, survivors)

    def _around(self) -> "Dict[int, int]":
        """Returns the bytes of the new container around each of its elements, by id: it stands for those that are a small part of it."""
        made = {key: held for key, (held, _, _) in _containers().items() if key not in self.containers}
        found: "Dict[int, int]" = {}
        for value in _variables().values():
            if id(value) in made:
                found.update((id(part), made[id(value)]) for part in (value.values() if isinstance(value, dict) else value))
        return found

    def _grown(self, listed: "List[Tuple[str, int, List[str]]]") -> "List[Tuple[str, int, List[str]]]":
        """Returns the containers of many small objects that the cell made or filled, without what is listed already."""
        found = []
        for key, (held, kind, names) in _containers().items():
            before, _, old = self.containers.get(key, (0, "", names[:0]))
            inside = tuple(f"{name}{mark}" for name in names for mark in "[.")
            held -= sum(bytes_ for _, bytes_, paths in listed if any(path.startswith(inside) for path in paths))
            held -= before if set(old) & set(names) else 0  # otherwise a new one at the address of another
            if held >= 1 << 20:
                found.append((kind, held, names))
        return found


def _variables() -> "Dict[str, Any]":
    shell = _show.shell()
    hidden = set(getattr(shell, "user_ns_hidden", ()))
    return {name: value for name, value in getattr(shell, "user_ns", {}).items() if name not in hidden}


def _containers() -> "Dict[int, Tuple[int, str, List[str]]]":
    """Returns the large containers among the variables of the notebook."""
    return _host.weigh_containers(_variables())


class _Quiet:
    """A stream that shows nothing."""

    @staticmethod
    def isatty() -> bool:
        return False

    @staticmethod
    def write(_: str) -> None:
        return None


def _awaits(shell: Any, cell: str) -> bool:
    """Returns true if the cell needs an event loop and this is called from one."""
    import asyncio

    try:
        asyncio.get_running_loop()
        return bool(shell.should_run_async(cell, transformed_cell=shell.transform_cell(cell)))
    except Exception:  # no loop, an older IPython, or not Python: run it to find out
        return False


def _stowage(line: str, cell: "Optional[str]" = None) -> Any:
    """%stowage shows the memory of the machine and of this process. %%stowage measures a cell and what survived it; with --lines also by line."""
    from IPython.core.error import UsageError  # type: ignore[import-not-found]

    shell = _show.shell()
    words = line.split()
    if cell is None:
        unknown = [word for word in words if word.startswith("-")]
        if unknown or len(words) > 1:
            raise UsageError(f"%stowage: {(unknown or words[1:])[0]}: not an option; use %stowage or %stowage DEVICE, such as %stowage sim:16G")
        return info(words[0] if words else None)
    lines = words == ["--lines"]
    if words and not lines:
        raise UsageError(f"%%stowage: {words[0]}: not an option; write %%stowage or %%stowage --lines on a line above the code to measure")

    if _awaits(shell, cell):
        # A magic is called from the loop that would have to run it.
        raise UsageError("%%stowage: a cell with await cannot be measured; put `with stowage.watch() as seen:` around the await")
    seen = _profile.profile() if lines else None
    meter = _Meter()
    with seen or contextlib.nullcontext(), _show.inner_cell():
        done = shell.run_cell(cell)
    _ram.cell(True)  # the end of the inner cell is not the end of this one
    report = meter.report()
    _show.show(report)
    if seen is not None:
        _show.show(seen)
    if not done.success:
        # The error was shown; the cell still fails, so that "run all cells" stops here.
        raise UsageError("the cell measured by %%stowage failed, as shown above")
    return None


# ---- %release ----


def _drop_results(space: "Dict[str, Any]", things: "List[Any]") -> None:
    """Removes objects from Out and from the names _ __ ___ _7 that hold results."""
    wanted = {id(thing) for thing in things}
    results = space.get("_oh")
    if isinstance(results, dict):
        for number in [number for number, value in results.items() if id(value) in wanted]:
            del results[number]
    shell = _show.shell()
    for names in (space, getattr(shell, "user_ns_hidden", {})):  # the notebook sets these names in both
        for name in [name for name, value in names.items() if id(value) in wanted]:
            if name.strip("_") == "" or (name[0] == "_" and name[1:].isdigit()):
                names[name] = ""
    hook = getattr(shell, "displayhook", None)
    for name in ("_", "__", "___"):
        if id(getattr(hook, name, None)) in wanted:
            setattr(hook, name, "")


def _drop_error(shell: Any) -> None:
    """Clears the frames of the last error of a cell, which IPython keeps for %debug and %tb."""
    result = getattr(shell, "last_execution_result", None)
    error = getattr(result, "error_in_exec", None)
    while error is not None:
        if error.__traceback__ is not None:
            traceback.clear_frames(error.__traceback__)
            for frame, _ in traceback.walk_tb(error.__traceback__):
                frame.f_locals  # before Python 3.13 a dict of its own, which is brought up to date here: IPython has read it
        error = error.__cause__ or error.__context__
    if result is not None:
        result.error_in_exec = None
    for shower in (getattr(shell, "InteractiveTB", None), getattr(shell, "SyntaxTB", None)):
        for name in ("tb", "etype", "evalue", "last_syntax_error"):
            if getattr(shower, name, None) is not None:
                setattr(shower, name, None)


def _release_magic(line: str) -> Any:
    """%release x y: deletes the names, their results in Out and the last traceback's frames, and frees what it can."""
    shell = _show.shell()
    names = tuple(dict.fromkeys(line.replace(",", " ").split()))
    space = shell.user_ns
    missing = [name for name in names if name not in space]
    if missing:
        raise NameError(f"%release: no name {', '.join(missing)} in this notebook; nothing was deleted")
    things = [space[name] for name in names]

    def forget() -> None:
        if names:
            _drop_results(space, things)
        else:
            shell.displayhook.flush()
            latest = [shell.user_ns_hidden.get(name) for name in ("_", "__", "___")]
            _drop_results(space, [value for value in latest if value is not None])
            latest.clear()
        _drop_error(shell)
        things.clear()
        hidden = shell.user_ns_hidden
        for name in names:
            hidden.pop(name, None)

    return _release.release_from(space, names, tracebacks=True, first=("results kept by the notebook", forget))


# ---- loading ----


def load(shell: Any) -> None:
    """`%load_ext stowage`."""
    shell.register_magic_function(_stowage, "line_cell", "stowage")
    shell.register_magic_function(_release_magic, "line", "release")
    hook_cells()


def unload(shell: Any) -> None:
    """`%unload_ext stowage`."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("stowage", None)
    shell.magics_manager.magics["line"].pop("release", None)
    _unhook_cells(shell)
