"""A callback for Keras 3: steps in the recording, and a plan that is checked.

    from stowage.keras import StowageCallback
    model.fit(x, y, batch_size=plan.micro_batch, callbacks=[StowageCallback(record="run.stow", plan=plan)])

Importing this module imports Keras.
"""

from __future__ import annotations

from typing import Any

from ._library import Missing
from ._training import SessionCallback

try:
    from keras.callbacks import Callback
except ImportError:
    raise Missing("stowage.keras needs Keras; pip install keras") from None


class StowageCallback(SessionCallback, Callback):  # type: ignore[misc]
    """Marks every batch as a step.

    `record` writes the run to a .stow file for `stowage.report`. With `plan`, from `stowage.tune`, training starts only if the optimizer
    accumulates as the plan does (`gradient_accumulation_steps`). Keras does not show the batch size to callbacks: give `fit` that of the
    plan. It has no event for an error: use `stowage.explain()` after one. `peak_bytes` is the most device memory that tensors held, after
    training.
    """

    def on_train_begin(self, logs: Any = None) -> None:
        accumulate = getattr(self.model.optimizer, "gradient_accumulation_steps", None) or 1
        self.session.check(None, int(accumulate))
        self.session.begin()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.session.enter(f"train {batch + 1}")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.session.leave()

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.session.enter(f"validate {batch + 1}")

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.session.leave()

    def on_train_end(self, logs: Any = None) -> None:
        self.session.close()
