"""A callback for the Trainer of Hugging Face transformers: steps in the recording, and a plan that is checked.

    from stowage.transformers import StowageCallback
    trainer = Trainer(model, args, train_dataset=data, callbacks=[StowageCallback(record="run.stow")])

Importing this module imports transformers.
"""

from __future__ import annotations

from typing import Any

from ._library import Missing
from ._training import SessionCallback

try:
    from transformers import TrainerCallback
except ImportError:
    raise Missing("stowage.transformers needs Hugging Face transformers; pip install transformers") from None


class StowageCallback(SessionCallback, TrainerCallback):  # type: ignore[misc]
    """Marks every optimizer step in the recording.

    `record` writes the run to a .stow file for `stowage.report`. With `plan`, from `stowage.tune`, training starts only if
    per_device_train_batch_size and gradient_accumulation_steps are those of the plan. The Trainer has no event for an error: use
    `stowage.explain()` after one. `peak_bytes` is the most device memory that tensors held, after training.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        self.session.check(args.per_device_train_batch_size, args.gradient_accumulation_steps)
        self.session.begin()

    def on_step_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        self.session.enter(f"train {state.global_step + 1}")

    def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        self.session.leave()

    def on_train_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        self.session.close()
