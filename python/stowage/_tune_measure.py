"""Finds the largest batch with real steps on a GPU.

A few small steps are recorded and replayed at every other batch (`_passes`), as a fresh process would run them: there the optimizer's
state is made later than here, and the allocator's cache is divided differently. The batch that the replay names is run here and recorded,
too, so the answer does not rest on small steps alone. Without a history of requests, steps at several sizes are measured instead.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ._history import is_hooked, start_history, stop_history
from ._library import Invalid
from ._passes import EVALUATION, FIRST, STEP, Passes, Replayed, Request
from ._recording import is_recording

_TRIES = 8  #: batches that the replay names and that are run, at most
_NEAR = 0.01  #: a part of the batch that is not worth another try
_SLOWER = 1.25  #: a larger batch that takes so many times as long for each sample is not used
_ENTRIES = 4_000_000  #: requests of one pass, at most

class Meter:
    """Runs real steps on the current GPU and reads PyTorch's peak."""

    varies = 24 << 20  #: bytes by which the driver's own share differs between processes (H200: 16 MiB)

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def name(self) -> str:
        return str(self._torch.cuda.get_device_name())

    def available(self) -> int:
        """Returns the bytes that PyTorch can reserve: free memory and its own cache, at most the fraction set for this process."""
        cuda = self._torch.cuda
        free, total = cuda.mem_get_info()
        most = int(free) + int(cuda.memory_reserved())
        fraction = getattr(cuda, "get_per_process_memory_fraction", None)  # PyTorch 2.8 and newer
        return min(most, int(fraction() * total)) if fraction is not None else most

    @contextlib.contextmanager
    def limited(self, limit_bytes: int) -> "Iterator[None]":
        """PyTorch reserves at most `limit_bytes` inside the `with`."""
        cuda = self._torch.cuda
        fraction = getattr(cuda, "get_per_process_memory_fraction", None)
        if fraction is None:
            yield
            return
        before, total = fraction(), cuda.mem_get_info()[1]
        cuda.set_per_process_memory_fraction(min(before, limit_bytes / total))
        try:
            yield
        finally:
            cuda.set_per_process_memory_fraction(before)

    def is_out(self, error: BaseException) -> bool:
        cuda = self._torch.cuda
        kinds = tuple(kind for kind in (getattr(cuda, "OutOfMemoryError", None), getattr(self._torch, "OutOfMemoryError", None)) if kind)
        return isinstance(error, kinds) or (isinstance(error, RuntimeError) and "out of memory" in str(error))

    def clear(self) -> None:
        import gc

        gc.collect()
        self._torch.cuda.empty_cache()

    def reserved(self) -> int:
        return int(self._torch.cuda.memory_reserved())

    def gather(self, size: int) -> bool:
        """Leaves one segment of `size` bytes in the cache. Returns False if there is no room for it."""
        try:
            self._torch.empty(size, dtype=self._torch.uint8, device="cuda")
        except RuntimeError as error:
            if not self.is_out(error):
                raise
            return False
        return True

    def wait(self) -> None:
        """Waits until the GPU has done what was submitted."""
        self._torch.cuda.synchronize()

    def peak(self, run: "Callable[[], Any]") -> int:
        cuda = self._torch.cuda
        cuda.reset_peak_memory_stats()
        run()
        cuda.synchronize()
        return int(cuda.max_memory_reserved())

    # ---- requests ----

    def can_record(self) -> bool:
        """Returns True if PyTorch keeps a history of requests (2.1 and newer, its own allocator) and no recording uses it."""
        if is_recording():
            return False
        try:
            with self.recording():
                self.held()
        except (AttributeError, TypeError, RuntimeError):
            return False
        return True

    def held(self) -> "List[Request]":
        """Returns the blocks that are allocated now, by address."""
        found: "List[Request]" = []
        for segment in self._torch.cuda.memory._snapshot()["segments"]:
            if segment.get("device", 0) != self._torch.cuda.current_device():
                continue
            address = int(segment["address"])
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    found.append((int(block.get("address", address)), int(block.get("requested_size") or block["size"]), int(segment.get("stream", 0))))
                address += int(block["size"])
        return sorted(found)

    @contextlib.contextmanager
    def recording(self) -> "Iterator[List[Request]]":
        """Yields a list that has the requests made inside the `with` once it ends, also after an error."""
        memory, requests = self._torch.cuda.memory, []  # type: Any, List[Request]
        stop_history(self._torch)
        memory._record_memory_history(context=None, max_entries=_ENTRIES)
        try:
            yield requests
        finally:
            for one in memory._snapshot()["device_traces"][self._torch.cuda.current_device()]:
                if one["action"] == "oom":
                    requests.append((0, int(one["size"]), int(one.get("stream", 0))))
                elif one["action"] in ("alloc", "free_completed"):
                    requests.append((int(one["addr"]), int(one["size"]) if one["action"] == "alloc" else 0, int(one.get("stream", 0))))
            stop_history(self._torch)
            if is_hooked():
                start_history(self._torch)


def _called(kind: str, run: "Callable[[int], Any]", batch: int) -> None:
    """Runs one pass. A generator or a coroutine has only been made by the call, and has not run."""
    made = run(batch)
    if inspect.isgenerator(made) or inspect.iscoroutine(made) or inspect.isasyncgen(made):
        what = "evaluate" if kind == EVALUATION else "step"
        if hasattr(made, "close"):
            made.close()
        raise Invalid(f"tune: {what}({batch}) returned a {type(made).__name__.replace('_', ' ')}, of which nothing has run; give a function that runs it to its end")


class Measured:
    """Runs real steps and leaves a part of the memory free, the headroom. Out of memory is an answer; any other error of the step is raised
    as it is."""

    def __init__(self, step: "Callable[[int], Any]", evaluate: Any, meter: Any, headroom: float) -> None:
        self._step, self._evaluate, self._meter, self._headroom = step, evaluate, meter, headroom
        self._warm, self._failed, self._least = False, False, 0
        self._clock: "Callable[[], float]" = getattr(meter, "clock", time.perf_counter)
        self._wait: "Callable[[], None]" = getattr(meter, "wait", lambda: None)
        self.pace = 0.0  #: seconds for each sample of the last steps with the largest batch, the fastest of them
        self.available = int(meter.available())
        self.passes: "Optional[Passes]" = None  #: what is recorded, if the meter can

    @property
    def limit(self) -> int:
        """Bytes that the steps may use."""
        return int(self.available * (1 - self._headroom))

    def record(self) -> Passes:
        """Records all passes from now on."""
        self._meter.clear()
        self.passes = Passes(self._meter.held())
        return self.passes

    def _pass(self, kind: str, run: "Callable[[int], Any]", batch: int) -> float:
        """Runs one pass, and records it. Returns its seconds."""

        def timed() -> float:
            began = self._clock()
            _called(kind, run, batch)
            self._wait()
            return self._clock() - began

        if self.passes is None:
            return timed()
        whole, requests = False, []  # type: bool, List[Request]
        try:
            with self._meter.recording() as requests:
                took = timed()
                whole = True
        finally:
            self.passes.add(kind, batch, requests, whole)
        return took

    def unreserved(self) -> int:
        """Returns the bytes that the steps may reserve in addition to what is reserved now and cannot be returned."""
        self._meter.clear()
        return self.limit - int(self._meter.reserved()) if hasattr(self._meter, "gather") else 0

    def gather(self, size: int) -> None:
        """Empties the cache, and reserves one segment of `size` bytes for the next steps; 0 is none."""
        self._meter.clear()
        done = size > 0 and self._meter.gather(size)
        if self.passes is not None:
            self.passes.between(self._meter.held(), size if done else 0)

    def peak(self, batches: "List[int]", gathered: int = 0) -> "Optional[int]":
        """Returns the most bytes of steps with these sizes, one after the other; None if one ran out of memory. If `gathered`, one segment
        of so many bytes is reserved before."""

        paces: "List[float]" = []

        def run() -> None:
            for batch in batches:
                took = self._pass(STEP if self._warm else FIRST, self._step, batch)
                self._warm = True
                if batch == max(batches):
                    paces.append(took / batch)
                if self._evaluate is not None:
                    self._pass(EVALUATION, self._evaluate, batch)

        meter, failed, found = self._meter, False, 0
        self.gather(gathered)
        try:
            with meter.limited(self.limit) if hasattr(meter, "limited") else contextlib.nullcontext():
                found = int(meter.peak(run))
        except Exception as error:
            if not meter.is_out(error):
                raise
            failed = True
        self._failed = failed
        if failed:  # here the traceback, which holds the step's tensors, is gone
            meter.clear()
            return None
        self.pace = min(paces)
        self._least = min(self._least or batches[0], *batches)
        # Steps load kernels and open libraries, whose memory is not PyTorch's.
        self.available = min(self.available, int(meter.available()))
        return found

    def settle(self) -> bool:
        """Runs the smallest step again if the last one failed, and returns whether it did.

        A failed step can leave gradients that the program would add to those of its next one. A whole step clears them.
        """
        if not self._failed or self._least == 0:
            return False
        self.peak([self._least])
        return True

    def least_available(self) -> int:
        """Returns the bytes that any process can reserve."""
        return max(0, self.available - int(getattr(self._meter, "varies", 0)))

    def needs(self, batch: int) -> "Optional[int]":
        """Returns the bytes of a step; None if it ran out of memory."""
        if not self._warm and self.peak([batch]) is None:  # the first step makes the optimizer's state
            return None
        return self.peak([batch])

    def holds(self, batch: int, gathered: int = 0) -> bool:
        """Returns True if steps with smaller batches in between do not fail. They divide the cache as shorter inputs do."""
        return self.peak([max(1, batch * part // 8) for part in (8, 6, 8, 3, 8, 7, 2, 8)], gathered) is not None


class ReplaySearch:
    """Finds the largest batch up to `largest` by replay, and runs it. `known` has the bytes of each batch that ran."""

    def __init__(self, measured: Measured, largest: int) -> None:
        self._measured, self._largest = measured, largest
        self._replayed = Replayed(measured.record(), os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF"))
        self.known: "Dict[int, Optional[int]]" = {}
        # Of each batch that ran with smaller ones in between: the segment reserved before, and seconds for each sample.
        self._gathered: "Dict[int, int]" = {}
        self._paces: "Dict[int, float]" = {}
        self.largest = 0  #: the largest batch that runs
        self.slower = 0.0  #: how many times as long it takes for each sample, if it is not used for that; else 0

    def _limits(self) -> "Tuple[int, ...]":
        least = self._measured.least_available()
        return min(self._measured.limit, least), least, least

    def fits(self, batch: int) -> bool:
        if not self._replayed.fits(batch, self._limits()):
            return False
        self.known.setdefault(batch, self._replayed.needs(batch))
        return True

    def _ran(self, batch: int, holds: bool = False) -> bool:
        """Runs a batch. Steps that begin with an empty cache reserve segments in another order than those of a fresh process, whose first
        step has no optimizer's state yet, and can fail where those do not. The replay of this process shows it; one large segment helps."""
        if holds:
            self._gathered[batch] = self._replayed.gathered(batch, self._measured.limit, self._measured.unreserved()) or 0
            ran = self._measured.holds(batch, self._gathered[batch])
            self._paces[batch] = self._measured.pace
        else:
            ran = self._measured.needs(batch) is not None
        self.known[batch] = self._replayed.needs(batch) if ran else None
        return ran

    def _smallest(self, first: int) -> "Optional[int]":
        """Runs `first` or the next half of it that does not fail, and one or two other sizes, so that each block's line is known."""
        batch = min(first, self._largest)
        while not self._ran(batch):
            if batch == 1:
                return None
            batch //= 2
        if 2 * batch > self._largest or self.known.get(2 * batch, 0) is None or not self._ran(2 * batch):
            if batch > 1:
                self._ran(batch // 2)
        elif 4 * batch <= self._largest and self._replayed.fits(4 * batch, self._limits()):
            self._ran(4 * batch)
        return batch

    def run(self, first: int) -> "Optional[int]":
        """Returns the largest batch that fits; None if 1 does not."""
        if self._smallest(first) is None:
            return None
        below = min([self._largest + 1, *(batch for batch, found in self.known.items() if found is None)])
        held, guess, back = 0, self._replayed.largest(below, self._limits()), 1
        for _ in range(_TRIES):
            if guess <= held:
                break
            ran = self._ran(guess, holds=True)
            if ran and self._replayed.fits(guess, self._limits()):  # with what was recorded now
                held = guess
            else:
                below = guess
            named = self._replayed.largest(below, self._limits())
            if guess == held:
                named = max(named, self._further(held, below))
            if named <= held * (1 + _NEAR) or named - held <= 1 and held > 20:
                break
            if not ran:
                # The replay is right about a fresh process, not about this one, or a block grows in a way that smaller sizes did not show.
                named, back = max(held + 1, (held + below) // 2 if held else below - back), 2 * back + below // 50
            guess = named
        last = held == guess
        self.largest = held or self._last(below) or 0
        if held:
            self.largest, last = self._beyond(held, last)
            times = self._paces[self.largest] / max(1e-9, self._paces[held])
            if times > _SLOWER:
                self.slower, last = times, False
            else:
                held = self.largest
        if self._measured.settle() or not last:  # another one ran since `held`
            self._measured.gather(self._gathered.get(held, 0))
        return held or self._last(below)

    def _beyond(self, held: int, last: bool) -> "Tuple[int, bool]":
        """Returns the largest batch that runs with fewer workspaces, and whether it ran last. Convolutions take a smaller workspace where
        memory is short. Larger runs show whether this program does; then the replay leaves workspaces out."""
        below = min([self._largest + 1, *(batch for batch, found in self.known.items() if found is None and batch > held)])
        ran, more = held, max(1, held // 12)
        while not self._replayed.passes.declines and below - ran > max(1, held // 6):
            guess, last = min(ran + more, (ran + below) // 2 if below <= self._largest else self._largest), False
            if self._ran(guess):
                ran, more = guess, 2 * more
            elif ran == held:  # nothing has become smaller
                break
            else:
                below = guess
        failed = False
        for _ in range(_TRIES if self._replayed.passes.declines else 0):
            guess = min(self._replayed.largest(below, self._limits()), (held + below) // 2 if failed else below)
            if guess <= held * (1 + 3 * _NEAR):
                break
            last = self._ran(guess, holds=True) and self._replayed.fits(guess, self._limits())
            if last:
                held = guess
            else:
                below, failed = guess, True
        return held, last

    def _further(self, held: int, below: int) -> int:
        """Returns the batch to which the line through the two largest that ran leads, at most twice as many. A step that splits its batch
        requests more blocks for a larger batch, not larger ones, which the replay of smaller batches does not show."""
        (a, low), (b, high) = ([(0, 0)] + sorted((batch, need) for batch, need in self.known.items() if need is not None and batch <= held))[-2:]
        room = self._measured.limit - high
        return min(below - 1, 2 * held if high <= low else b + min(b, int(room * (b - a) / (high - low))))

    def _last(self, below: int) -> "Optional[int]":
        """Returns the largest batch below `below` that ran, if the replay named none."""
        ran = [batch for batch, found in self.known.items() if found is not None and batch < below]
        return max(ran, default=None)
