"""Memory in use: `info()` now, `watch()` over time.

The figures of machine, GPUs and processes come from `stowage info`; this module adds those of the process's frameworks, heaps and
limits.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any, Dict, List, Optional

from . import _memory, _show
from ._command import run_json
from ._heap import heap_facts
from ._library import Invalid, NotFound, StowageError, device_name
from ._library import format_size as size
from ._limits import current_limit


class Info:
    """The memory of the machine and of this process; `data` has every figure."""

    def __init__(self, data: "Dict[str, Any]") -> None:
        self.data = data

    # ---- text ----

    def _host_lines(self) -> "List[str]":
        host = self.data["host"]
        mine = self.data["process"]["host_bytes"]
        used = host["ram_bytes"] - host["ram_available_bytes"]
        bar = _show.text_bar([mine, max(0, used - mine)], host["ram_bytes"])
        lines = [f"host    {bar} {size(used)} of {size(host['ram_bytes'])} in use, {size(mine)} by this process"]
        if host["container"]:
            group = host["container"]
            lines.append(f"        this container may use {size(group['limit_bytes'])}, {size(group['used_bytes'])} of it is in use")
        return lines

    def _device_lines(self, device: "Dict[str, Any]") -> "List[str]":
        lines = []
        for tier in device["tiers"]:
            bar = _show.text_bar([tier["used_bytes"]], tier["total_bytes"])
            name = f"{device['name']}" if tier["tier"] == "vram" else "  its host tier"
            lines.append(f"{tier['tier']:7} {bar} {size(tier['used_bytes'])} of {size(tier['total_bytes'])}  {name}")
        rows = self._holder_rows(device)
        if rows:
            lines.append(_show.text_table(rows, right=[0, 1], indent=8))
        return lines

    @staticmethod
    def _holder_rows(device: "Dict[str, Any]") -> "List[tuple[str, str, str]]":
        """Returns a table of the processes on a device; empty if none is known."""
        rows = []
        for process in device.get("processes") or []:
            known = process["vram_bytes"]
            rows.append((str(process["pid"]), "not known" if known is None else size(known), process["name"] or "?"))
        return [("pid", "vram", "process"), *rows] if rows else []

    def _process_rows(self) -> "List[tuple[str, str, str, str]]":
        rows = []
        for pool in self.data["process"]["pools"]:
            where = f"{pool['framework']} on device {pool['device']}"
            rows.append((where, size(pool["live_bytes"]), size(pool["held_bytes"]), ""))
        for heap in self.data["process"]["heaps"]:
            name = f"stowage heap on {heap['device']}{' (simulated)' if heap['simulated'] else ''}"
            rows.append((name, size(heap["live_bytes"]), size(heap["held_bytes"]), ""))
            for tag in heap["tags"]:
                rows.append((f"  tag {tag['tag'] or '(none)'}", size(tag["bytes"]), "", f"{tag['count']} allocations"))
        return rows

    def __repr__(self) -> str:
        lines = self._host_lines()
        for device in self.data["devices"]:
            lines += self._device_lines(device)
        if self.data["no_gpu"]:
            lines.append(f"no GPU: {self.data['no_gpu']}")
        rows = self._process_rows()
        if rows:
            lines.append(_show.text_table([("this process", "live", "held", ""), *rows], right=[1, 2], indent=0))
        run = self.data.get("run")
        if run and run["spill_advice"]:
            lines.append(f"spill   {run['spill_advice']}")
        limit = self.data["process"]["limit"]
        if limit:
            lines.append("limits  " + ", ".join(f"{name} {value}" for name, value in limit.items()))
        return _show.join_lines(lines)

    # ---- rich ----

    def _repr_html_(self) -> str:
        host = self.data["host"]
        mine = self.data["process"]["host_bytes"]
        used = host["ram_bytes"] - host["ram_available_bytes"]
        bars = [
            f"<div>host {_show.html_bar([(mine, '#2a78d6'), (max(0, used - mine), '#9bb8dd')], host['ram_bytes'])} "
            f"{size(used)} of {size(host['ram_bytes'])}, {size(mine)} by this process</div>"
        ]
        parts: "List[str]" = []
        for device in self.data["devices"]:
            for tier in device["tiers"]:
                bar = _show.html_bar([(tier["used_bytes"], "#d6632a")], tier["total_bytes"])
                figures = f"{size(tier['used_bytes'])} of {size(tier['total_bytes'])}"
                bars.append(f"<div>{tier['tier']} {bar} {figures} {_show.escape(device['name'])}</div>")
            rows = self._holder_rows(device)
            if rows:
                parts.append(_show.html_table(rows, right=[0, 1]))
        if self.data["no_gpu"]:
            parts.append(_show.html_text(f"no GPU: {self.data['no_gpu']}"))
        run = self.data.get("run")
        if run and run["spill_advice"]:
            parts.append(_show.html_text(f"spill: {run['spill_advice']}"))
        mine_rows = self._process_rows()
        if mine_rows:
            parts.append(_show.html_table([("this process", "live", "held", ""), *mine_rows], right=[1, 2]))
        return _show.html_block(f"stowage {self.data['version']}", *bars, *parts)


def info(device: "str | int | None" = None) -> Info:
    """Shows the memory of the host and the GPUs and who holds it: a bar and a table in notebooks, text elsewhere.

    `device` is one GPU by index or UUID, or a simulated one; by default every GPU.

    >>> info("sim:16G").data["devices"][0]["name"]
    'simulated device'
    >>> info("sim:lots")
    Traceback (most recent call last):
        ...
    stowage._library.Invalid: device "sim:lots": "lots" has no valid size suffix (K, M, G or T); write it like ...
    """
    name = device_name(device)
    try:
        data = run_json(["info", *(["--device", name] if name else [])])
    except Invalid as reason:
        if name.startswith("sim"):
            raise
        raise NotFound(str(reason)) from None  # like stowage.heap()
    data["process"] = {
        "host_bytes": _memory.host().held_bytes,
        "pools": [vars(pool) for pool in _memory.pools()],
        "heaps": heap_facts(),
        "limit": current_limit(),
    }
    return Info(data)


# ---- watching ----


class Watch:
    """A live bar until it is stopped; also a context manager. Keeps the peaks in `peak_host_bytes` and `peak_device_bytes`."""

    def __init__(self, interval: float, stream: Any, devices: bool = True) -> None:
        self._stream = stream
        self._outside: "List[_memory.Device]" = []
        self._outside_at = 0.0 if devices else float("inf")
        self._interval = interval
        self._watcher = _memory.Watcher()
        self._end = threading.Event()
        self._handle: Any = None
        self._width = 0
        self.peak_host_bytes = 0
        self.peak_device_bytes = 0
        self._failure: "Optional[str]" = None  #: why the last reading failed
        self._missed = 0  #: number of failed readings
        self._has_devices = False
        if _show.in_notebook() and stream is None:
            from IPython.display import display  # type: ignore[import-not-found]

            self._handle = display(self._html(), display_id=True)
        self._thread = threading.Thread(target=self._go, name="stowage-watch", daemon=True)
        self._thread.start()

    def _look(self) -> "tuple[_memory.Host, List[_memory.Device]]":
        host, devices = self._watcher.host(), self._devices()
        self.peak_host_bytes = max(self.peak_host_bytes, host.held_bytes)
        self._has_devices = self._has_devices or bool(devices)
        self._failure = None
        self._seen = host, devices
        self.peak_device_bytes = max(self.peak_device_bytes, *(one.used_bytes for one in devices), 0)
        return host, devices

    def _devices(self) -> "List[_memory.Device]":
        if _memory.driver_here():
            return self._watcher.devices()
        if time.monotonic() >= self._outside_at:  # starts a process each time, so once a second; stops if there are no GPUs
            self._outside = _memory.devices_from_outside()
            self._outside_at = time.monotonic() + 1 if self._outside else float("inf")
        return self._outside

    def _line(self) -> str:
        host, devices = self._look()
        used = host.total_bytes - min(host.usable_bytes, host.total_bytes)
        parts = [f"host {_show.text_bar([host.held_bytes, max(0, used - host.held_bytes)], host.total_bytes, 12)} {size(host.held_bytes)}"]
        for index, device in enumerate(devices):
            bar = _show.text_bar([device.used_bytes], device.total_bytes, 12)
            parts.append(f"device {index} {bar} {size(device.used_bytes)} of {size(device.total_bytes)}")
        return "  ".join(parts)

    def _html(self, look: bool = True) -> Any:
        from IPython.display import HTML

        host, devices = self._look() if look else self._seen
        used = host.total_bytes - min(host.usable_bytes, host.total_bytes)
        colours = [(host.held_bytes, "#2a78d6"), (max(0, used - host.held_bytes), "#9bb8dd")]
        lines = [f"<div>host {_show.html_bar(colours, host.total_bytes)} {size(host.held_bytes)} by this process</div>"]
        for index, device in enumerate(devices):
            bar = _show.html_bar([(device.used_bytes, "#d6632a")], device.total_bytes)
            lines.append(f"<div>device {index} {bar} {size(device.used_bytes)} of {size(device.total_bytes)}</div>")
        lines.append(f"<div>{self._figures()}</div>")
        return HTML(f'<div style="font-family:monospace">{"".join(lines)}</div>')

    def _figures(self) -> str:
        """Returns the final figures, for the page and the repr."""
        device = f", device {size(self.peak_device_bytes)}" if self._has_devices else ""
        missed = f"; {self._missed} readings failed, the last: {self._failure}" if self._failure else ""
        return f"at the peak: host {size(self.peak_host_bytes)}{device}{missed}"

    def _show(self) -> None:
        if self._handle is not None:
            self._handle.update(self._html())
            return
        stream = self._stream if self._stream is not None else sys.stderr
        line = self._line()
        if stream is not None and hasattr(stream, "isatty") and stream.isatty():
            stream.write("\r" + line.ljust(self._width))
            stream.flush()
            self._width = len(line)

    def _go(self) -> None:
        """Reads and shows until stop(). Counts and retries a failed reading; ignores a display that was closed."""
        shows = True
        while not self._end.is_set():
            try:
                if shows:
                    self._show()
                else:
                    self._look()
            except (StowageError, MemoryError, OSError) as reason:
                self._missed += 1
                self._failure = str(reason) or type(reason).__name__
                if isinstance(reason, BrokenPipeError):
                    shows = False
            except Exception:
                shows = False
            self._end.wait(self._interval)

    def stop(self) -> "Watch":
        """Stops the bar; the last figures stay."""
        if not self._end.is_set():
            self._end.set()
            self._thread.join(timeout=5)
            try:
                self._look()
                if self._handle is not None:  # the page ends with the figures of the repr
                    self._handle.update(self._html(look=False))
            except Exception as reason:
                self._missed += 1
                self._failure = str(reason) or type(reason).__name__
            stream = self._stream if self._stream is not None else sys.stderr
            if self._handle is None and self._width and stream is not None:
                stream.write("\n")
        return self

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "stopped" if self._end.is_set() else "watching"
        return f"<{state}: {self._figures()}>"


def watch(interval: float = 0.5, stream: Any = None) -> Watch:
    """Shows a live bar of host and GPUs in a notebook or a terminal, until `stop()` or the end of its `with`.

    If standard error is not a terminal, it writes nothing but still keeps the peaks.

    >>> with watch(0.01) as seen:
    ...     block = bytearray(8 << 20)
    >>> seen.peak_host_bytes > 8 << 20
    True
    """
    if not isinstance(interval, (int, float)) or isinstance(interval, bool) or not 0.01 <= interval <= 3600:
        raise ValueError(f"interval: {interval!r}: must be a number of seconds from 0.01 to 3600")
    return Watch(float(interval), stream)
