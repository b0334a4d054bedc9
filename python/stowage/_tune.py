"""The largest batch that fits, how many of them make the target batch, and what helps if not even one sample fits.

Memory is measured with real steps on a GPU (`_tune_measure`), or estimated without one (`_estimate`). Only checked sizes are returned.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, List, Optional, Union

from . import _gpus, _show
from ._enable import enable
from ._estimate import estimate
from ._library import Invalid, NotFound, OutOfMemory, Unreadable
from ._library import format_size as size
from ._replay import tune_recording
from ._tune_measure import Measured, Meter, ReplaySearch
from ._tune_options import checkpoint_blocks, offload_activations, options_for_one
from ._uncertainty import beyond_headroom

#: Part of the memory that stays free. Where steps are replayed, it is for what the allocator does not see: kernels that are loaded later,
#: other libraries. Otherwise also for the cache, which other inputs divide differently.
_REPLAYED_HEADROOM, _HEADROOM = 0.005, 0.05
_TRIES = 12  #: sizes that are run or estimated at most, after the first two
_BATCH_MAX = 1 << 20

#: What every saved plan and each of its options has.
_SAVED = ("micro_batch", "largest_batch", "target_batch", "accumulate", "sizes", "needs_bytes", "limit_bytes", "available_bytes", "headroom", "fixed_bytes", "sample_bytes", "source", "options")
_OPTION = ("kind", "name", "needs_bytes", "saves_bytes", "fits", "cost", "how", "chosen")


class Plan:
    """Batch, accumulation and settings under which a program fits. `data` has everything as JSON."""

    def __init__(self, data: "Dict[str, Any]") -> None:
        self.data = data

    @property
    def fits(self) -> bool:
        """True if at least one sample fits without any change to the program."""
        return self.data["micro_batch"] is not None

    @property
    def micro_batch(self) -> "Optional[int]":
        """Samples in each forward and backward pass; None if not even one fits."""
        return self.data["micro_batch"]

    @property
    def largest_batch(self) -> "Optional[int]":
        """The largest batch that was checked to fit with the headroom. `micro_batch` is smaller if this one is much slower."""
        return self.data["largest_batch"]

    @property
    def accumulate(self) -> int:
        """Passes for each optimizer step."""
        return int(self.data["accumulate"])

    @property
    def sizes(self) -> "List[int]":
        """Samples of each pass of one optimizer step; their sum is the target batch."""
        return list(self.data["sizes"])

    @property
    def options(self) -> "List[Dict[str, Any]]":
        """What would make one sample fit, the cheapest first; empty if it fits."""
        return list(self.data["options"])

    @property
    def choice(self) -> "Optional[Dict[str, Any]]":
        """The first option that fits and keeps the mathematics, unless `allow` permitted others."""
        return next((one for one in self.data["options"] if one["chosen"]), None)

    @property
    def text(self) -> str:
        data = self.data
        limit = f"{size(data['limit_bytes'])} ({size(data['available_bytes'])} less {100 * data['headroom']:.3g}% headroom)"
        if self.fits:
            lines = [f"Use a batch of {self.micro_batch}: needs {size(data['needs_bytes'])} of {limit}."]
            if data["target_batch"] is not None:
                passes = f"{self.accumulate} {'pass' if self.accumulate == 1 else 'passes'} for each optimizer step"
                last = f", the last with {self.sizes[-1]}" if self.sizes[-1] != self.micro_batch else ""
                lines.append(f"Target batch {data['target_batch']}: {passes}{last}.")
        else:
            lines = [f"A batch of 1 does not fit: needs {size(data['needs_bytes'])}, {size(data['needs_bytes'] - data['limit_bytes'])} more than {limit}."]
        lines.append(f"{data['source']}: {size(data['fixed_bytes'])} is fixed, {size(data['sample_bytes'])} for each sample; largest batch {data['largest_batch'] or 0}.")
        if data.get("slower"):
            lines[-1] = lines[-1][:-1] + f", which takes {data['slower']:.1f} times as long for each sample: kernels find less room for workspaces."
        if data["options"]:
            rows = [("option", "needs", "saves", "result", "cost")]
            for one in data["options"]:
                result = ("fits" if one["fits"] else "too large") + (" <- choice" if one["chosen"] else "")
                rows.append((one["name"], size(one["needs_bytes"]), size(one["saves_bytes"]), result, one["cost"]))
            lines += ["", _show.text_table(rows, right=[1, 2], indent=0)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return _show.html_block("", f"<pre>{_show.escape(self.text)}</pre>")

    def save(self, path: "Union[str, os.PathLike[str]]") -> None:
        """Writes the plan as JSON. An existing file is not replaced."""
        where = os.fspath(path)
        try:
            fd = os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            raise FileExistsError(f"{where} already exists; use another name") from None
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(self.data, file, indent=2)
            file.write("\n")

    @classmethod
    def load(cls, path: "Union[str, os.PathLike[str]]") -> "Plan":
        """Reads a plan that `save` wrote."""
        where = os.fspath(path)
        try:
            with open(where, encoding="utf-8") as file:
                data = json.load(file)
        except FileNotFoundError:
            raise NotFound(f"{where}: no such plan; write one with plan.save()") from None
        except ValueError as reason:
            raise Unreadable(f"{where}: not a plan of stowage.tune: {reason}") from None
        _check_saved(where, data)
        return cls(data)

    def apply(self, model: Any = None) -> "Dict[str, int]":
        """Applies the choice to this process, and returns {"batch_size", "accumulate"} for the loop.

        Checkpointing and offloaded activations are applied to `model`. Spilling is enabled, which must happen before CUDA starts. An
        option that changes the code of the program (autocast, another optimizer) cannot be applied: the error says what to change.
        """
        if not self.fits:
            chosen = self.choice
            if chosen is None:
                raise OutOfMemory("plan.apply: nothing that was tried fits; see plan.options")
            if chosen["kind"] in ("checkpoint", "offload") and model is None:
                raise Invalid(f"plan.apply: {chosen['name']} needs the model: plan.apply(model)")
            if chosen["kind"] == "checkpoint":
                if checkpoint_blocks(model, chosen.get("blocks")) == 0:
                    raise Invalid("plan.apply: the model has no repeated blocks to checkpoint")
            elif chosen["kind"] == "offload":
                offload_activations(model)
            elif chosen["kind"] == "spill":
                enable(spill="auto")
            else:
                raise Invalid(f"plan.apply: {chosen['name']} changes the program: {chosen['how']}")
        return {"batch_size": self.micro_batch or 1, "accumulate": self.accumulate}


def _check_saved(where: str, data: Any) -> None:
    """Raises if a file's JSON is not a whole plan."""

    def whole(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _BATCH_MAX

    absent = [name for name in _SAVED if name not in data] if isinstance(data, dict) else list(_SAVED)
    if absent:
        raise Unreadable(f"{where}: not a plan of stowage.tune: {', '.join(absent[:3])} missing")
    sizes, micro = data["sizes"], data["micro_batch"]
    right = isinstance(sizes, list) and sizes and all(whole(one) for one in sizes) and (micro is None or micro == sizes[0]) and data["accumulate"] == len(sizes)
    figures = all(isinstance(data[name], int) for name in _SAVED if name.endswith("_bytes")) and isinstance(data["headroom"], (int, float))
    options = isinstance(data["options"], list) and all(isinstance(one, dict) and set(_OPTION) <= set(one) for one in data["options"])
    if not (right and figures and options):
        raise Unreadable(f"{where}: not a plan of stowage.tune: its values are not as save() writes them")


# ---- sizes ----


def split(target: int, largest: int) -> "List[int]":
    """Returns the sizes of the passes that make `target`, none above `largest`: equal ones if that takes few more passes.

    >>> split(256, 100)
    [64, 64, 64, 64]
    >>> split(10, 7)
    [5, 5]
    >>> split(13, 5)
    [5, 5, 3]
    """
    passes = -(-target // largest)
    for count in range(passes, passes + passes // 3 + 2):
        if target % count == 0:
            return [target // count] * count
    return uneven(target, -(-target // passes))


def uneven(target: int, one: int) -> "List[int]":
    """Returns passes of `one` and a last one with the rest."""
    return [one] * (target // one) + ([target % one] if target % one else [])


class _Search:
    """Finds the largest size with `needs(size)` at most `limit`. `needs` returns bytes, or None if that size failed."""

    def __init__(self, needs: "Callable[[int], Optional[int]]", limit: int, largest: int) -> None:
        self._needs, self._limit, self._largest = needs, limit, largest
        self.known: "Dict[int, Optional[int]]" = {}

    def fits(self, batch: int) -> bool:
        if batch not in self.known:
            self.known[batch] = self._needs(batch)
        found = self.known[batch]
        return found is not None and found <= self._limit

    def _line(self) -> "tuple[float, float]":
        """Returns (bytes that stay, bytes per sample) for the next guess, from the two largest known sizes."""
        points = sorted((batch, found) for batch, found in self.known.items() if found is not None)
        if len(points) < 2:
            return (0.0, float(points[0][1]) / points[0][0]) if points else (0.0, 0.0)
        (a, low), (b, high) = points[-2:]
        slope = max(0.0, (high - low) / (b - a))
        return low - slope * a, slope

    def run(self, first: int) -> "Optional[int]":
        """Returns the largest size that fits, None if 1 does not."""
        start = min(first, self._largest)
        while start > 1 and not self.fits(start):
            start = start // 2
        if not self.fits(start):
            return None
        good, bad = start, self._largest + 1
        for batch, found in self.known.items():
            if (found is None or found > self._limit) and batch < bad:
                bad = batch
        if 2 * start < bad and self.fits(2 * start):
            good = 2 * start
        elif 2 * start < bad:
            bad = 2 * start
        halve = False
        for _ in range(_TRIES):
            width = bad - good
            if width <= max(1, good // 50):
                break
            stay, slope = self._line()
            guess = int((self._limit - stay) / slope) if slope > 0 else self._largest
            if halve or guess >= bad:  # the line is wrong near `bad`
                guess = good + width // 2
            # Inside the bracket; at most 8 times further, because a line from small sizes can be wrong.
            guess = min(max(guess, good + 1), bad - 1, good * 8)
            if self.fits(guess):
                good = guess
            else:
                bad = guess
            halve = bad - good > width // 2  # the line did not help
        return good

    def below(self, batch: int) -> "Optional[int]":
        """Returns a size 3% below `batch`, or the next one below that fits; None if there is none."""
        for one in range(min(batch - 1, batch * 97 // 100), 0, -1):
            if self.fits(one):
                return one
        return None


def _shown_line(known: "Dict[int, Optional[int]]") -> "tuple[int, int]":
    """Returns (bytes that stay, bytes per sample) for people, from the smallest and the largest size that ran."""
    points = sorted((batch, found) for batch, found in known.items() if found is not None)
    if len(points) < 2:
        return 0, int(points[0][1] / points[0][0]) if points else 0
    (a, low), (b, high) = points[0], points[-1]
    slope = max(0.0, (high - low) / (b - a))
    return max(0, int(low - slope * a)), int(slope)


# ---- estimating ----


def _estimated(step: Any, batch_fn: Any, evaluate: Any, named: "Dict[str, Any]") -> "Callable[[int], Optional[int]]":
    """Returns `needs` by estimates, with what was guessed at its upper end."""

    def most(found: Any) -> int:
        return int(found.data["needs_bytes"]) + beyond_headroom(found.data["uncertainty"])

    def needs(batch: int) -> "Optional[int]":
        if batch_fn is None:

            def run() -> None:
                step(batch)
                if evaluate is not None:
                    evaluate(batch)

            return most(estimate(lambda: run, **named))
        both = named if evaluate is None else {**named, "evaluate": lambda: evaluate(batch)}
        return most(estimate(step, lambda: batch_fn(batch), **both))

    return needs


# ---- the answer ----


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _BATCH_MAX:
        raise Invalid(f"tune: {name}: {value!r}: must be a whole number from 1 to {_BATCH_MAX}")
    return value


def plan(
    step: Any,
    batch_fn: Any = None,
    *,
    batch: int = 1,
    target_batch: "Optional[int]" = None,
    evaluate: Any = None,
    headroom: "Optional[float]" = None,
    gpu: "Optional[str]" = None,
    vram: "str | int | None" = None,
    optimizer: Any = None,
    loss: Any = None,
    amp: Any = None,
    settings: "Optional[str]" = None,
    allow: "Union[str, List[str]]" = (),  # type: ignore[assignment]
    meter: Any = None,
) -> Plan:
    """Returns the plan of a step: see `tune`."""
    _whole("batch", batch)
    if target_batch is not None:
        _whole("target_batch", target_batch)
    if headroom is not None and (not isinstance(headroom, (int, float)) or isinstance(headroom, bool) or not 0 <= headroom < 0.9):
        raise Invalid(f"tune: headroom: {headroom!r}: must be from 0 to 0.9")
    allowed = [allow] if isinstance(allow, str) else list(allow)
    for one in allowed:
        if one not in ("amp", "8bit"):
            raise Invalid(f'tune: allow: {one!r}: must be "amp" or "8bit"')
    if evaluate is not None and not callable(evaluate):
        raise Invalid("tune: evaluate is not a function; give one that takes the batch, such as lambda n: …")
    named: "Dict[str, Any]" = {}
    if meter is None and batch_fn is None and gpu is None and vram is None:
        import torch

        if not torch.cuda.is_available():
            raise Invalid('tune: no GPU to measure on; name one to estimate for: tune(step, gpu="T4") or tune(step, vram="16G")')
        meter = Meter(torch)
    if meter is not None:
        source, name, available = "measured", meter.name(), meter.available()
        needs = None
    else:
        target = _gpus.find(gpu, vram)
        source, name, available = "estimated", target.name, target.available_bytes
        named = {"gpu": gpu, "vram": vram, "optimizer": optimizer, "loss": loss, "amp": amp, "settings": settings}
        needs = _estimated(step, batch_fn, evaluate, named)
    replayed = meter is not None and (meter.can_record() if hasattr(meter, "can_record") else hasattr(meter, "recording"))
    if headroom is None:
        headroom = _REPLAYED_HEADROOM if replayed else _HEADROOM
    limit = int(available * (1 - headroom))
    measured = Measured(step, evaluate, meter, headroom) if needs is None else None
    search: "Union[_Search, ReplaySearch]"
    if measured is not None and replayed:
        search = ReplaySearch(measured, target_batch or _BATCH_MAX)
        largest = search.run(batch)
    else:
        search = _Search(measured.needs if measured is not None else needs, limit, target_batch or _BATCH_MAX)  # type: ignore[arg-type]
        largest = search.run(batch)
        while measured is not None and largest is not None and not measured.holds(largest):
            largest = search.below(largest)
    if measured is not None:
        available, limit = measured.available, measured.limit
    stay, per_sample = _shown_line(search.known)
    found = search.known
    sizes: "List[int]" = []
    if largest is not None:
        sizes = split(target_batch, largest) if target_batch is not None else [largest]
        if not search.fits(sizes[0]):  # smaller than `largest`, and yet it does not fit: use the checked size
            sizes = uneven(target_batch, largest) if target_batch is not None else [largest]
    options: "List[Dict[str, Any]]" = []
    one_needs = found.get(1)
    if largest is None:
        # A real step that failed shows only that it needs more than there is.
        if evaluate is not None and batch_fn is not None:
            named["evaluate"] = lambda: evaluate(1)
        options = options_for_one(step, batch_fn if meter is None else None, named, one_needs or available, limit, allowed)
    needed = found[sizes[0]] if sizes else one_needs or available
    return Plan(
        {
            "micro_batch": sizes[0] if sizes else None,
            "largest_batch": search.largest if isinstance(search, ReplaySearch) and largest is not None else largest,
            "slower": search.slower if isinstance(search, ReplaySearch) else 0,
            "target_batch": target_batch,
            "accumulate": len(sizes) or (target_batch or 1),
            "sizes": sizes or [1] * (target_batch or 1),
            "needs_bytes": needed,
            "limit_bytes": limit,
            "available_bytes": available,
            "headroom": headroom,
            "fixed_bytes": stay,
            "sample_bytes": per_sample,
            "source": source,
            "gpu": name,
            "tried": [{"batch": one, "needs_bytes": found[one]} for one in sorted(found)],
            "options": options,
        }
    )


def tune(what: Any, batch_fn: Any = None, *, vram: "str | int | None" = None, vram_limit: "str | int | None" = None, **named: Any) -> Any:
    """Finds the settings under which a program fits: of a recording, or of a step that has not run yet.

    A recording (a path): the settings of PyTorch's allocator that need the least memory and, with `vram`, the batch that fits, found by
    replay. Returns a `Tuning`.

    A function: the largest batch that fits, and how many passes make `target_batch`. Returns a `Plan` with `micro_batch`,
    `accumulate`, `apply()` and `save()`.

        plan = stowage.tune(step, batch=4, target_batch=256)                                      # measured on this GPU
        plan = stowage.tune(model_fn, batch_fn, optimizer="adamw", target_batch=256, gpu="T4")    # estimated

    `step(n)` runs one real step with n samples, starting with `batch`. The steps train: tune before training or load the weights again
    after. Make each input as long as the longest one. `evaluate(n)` runs an evaluation after each step, so that the batch holds for
    both. `model_fn()` and `batch_fn(n)` are as for `stowage.estimate`; there `evaluate(n)` makes the input of an evaluation. Without `batch_fn`, but with `gpu` or `vram`, `step(n)` makes its own tensors on "cuda"
    and is estimated. `headroom` is the part of the memory that stays free: 0.005 if steps are recorded and replayed, which needs PyTorch 2.1,
    else 0.05. If a batch of 1 is too large, `plan.options` lists
    what helps, with bytes. `allow="amp"` or "8bit" permits a choice that changes the results; otherwise only exact ones are chosen.

    >>> tune("nowhere.stow")
    Traceback (most recent call last):
        ...
    stowage._library.NotFound: nowhere.stow: cannot open: No such file or directory; check the path
    """
    if callable(what) and not isinstance(what, os.PathLike):
        if vram_limit is not None:
            raise Invalid("tune: vram_limit is for a recording; give vram, the size of the GPU")
        return plan(what, batch_fn, vram=vram, **named)
    if batch_fn is not None or named:
        first = "batch_fn" if batch_fn is not None else next(iter(named))
        raise Invalid(f"tune: {first} is for a function that runs a step; a recording takes vram or vram_limit")
    return tune_recording(os.fspath(getattr(what, "path", what)), vram, vram_limit)
