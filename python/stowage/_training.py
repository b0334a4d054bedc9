"""What the callbacks for training frameworks share: steps marked in a recording, an error explained, a plan compared."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Optional, Union

from . import _memory
from ._explain import annotate
from ._library import Invalid
from ._recording import Step, record


class Session:
    """One training run. Every method may be called at any time; `close` ends what is open."""

    def __init__(self, record_to: "Union[None, str, os.PathLike[str]]" = None, plan: Any = None) -> None:
        if plan is not None and plan.micro_batch is None:
            raise Invalid("the plan has no batch that fits; see plan.options")
        if plan is not None and len(set(plan.sizes)) > 1:
            raise Invalid(f"the plan has passes of different sizes ({plan.sizes[0]}, the last {plan.sizes[-1]}), which the trainer cannot run; tune with another target_batch")
        self.plan = plan
        self.steps = 0
        self.peak_bytes: "Optional[int]" = None  #: most device memory that tensors held; None without a GPU
        self._record_to = record_to
        self._recording: Any = None
        self._step: "Optional[Step]" = None

    def begin(self) -> None:
        """Starts the recording, if one was requested."""
        if self._record_to is not None and self._recording is None:
            recording = record(self._record_to)
            recording.__enter__()
            self._recording = recording

    def enter(self, name: str) -> None:
        """Begins a step; ends the one before."""
        self.leave()
        self.steps += 1
        self._step = Step(name)
        self._step.__enter__()

    def leave(self) -> None:
        """Ends the step."""
        open_step, self._step = self._step, None
        if open_step is not None:
            open_step.__exit__(None, None, None)

    def failed(self, error: BaseException) -> None:
        """Adds the explanation to an out-of-memory error and closes."""
        with contextlib.suppress(Exception):  # the program's own error is never hidden behind ours
            annotate(error)
        with contextlib.suppress(Exception):
            self.close()

    def close(self) -> None:
        """Ends the step and the recording, and reads the peak."""
        self.leave()
        cuda = getattr(_memory.loaded("torch"), "cuda", None)
        if cuda is not None and cuda.is_available() and cuda.is_initialized():
            self.peak_bytes = int(cuda.max_memory_allocated())
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.__exit__(None, None, None)

    def check(self, batch: "Optional[int]", accumulate: int) -> None:
        """Raises if the trainer does not run the plan."""
        if self.plan is None:
            return
        wanted = (self.plan.micro_batch, self.plan.accumulate)
        if (batch is not None and batch != wanted[0]) or accumulate != wanted[1]:
            raise Invalid(f"the trainer runs batches of {batch} and accumulates {accumulate}; the plan has batches of {wanted[0]} and accumulates {wanted[1]}")


class SessionCallback:
    """What the callbacks of all frameworks share: a session made from `record` and `plan`. Must come before the framework's own base class."""

    def __init__(self, *, record: "Union[None, str, os.PathLike[str]]" = None, plan: Any = None) -> None:
        super().__init__()
        self.session = Session(record, plan)

    @property
    def peak_bytes(self) -> Any:
        return self.session.peak_bytes
