"""A callback for Lightning: steps in the recording, out-of-memory errors explained, the accumulation of a plan.

    from stowage.lightning import StowageCallback
    trainer = Trainer(callbacks=[StowageCallback(record="run.stow")])

Importing this module imports Lightning.
"""

from __future__ import annotations

from typing import Any

from ._library import Missing
from ._training import SessionCallback

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback  # the older name of the package
    except ImportError:
        raise Missing("stowage.lightning needs Lightning; pip install lightning") from None


class StowageCallback(SessionCallback, Callback):  # type: ignore[misc]
    """Marks every batch as a step and explains an out-of-memory error.

    `record` writes the run to a .stow file for `stowage.report`. `plan`, from `stowage.tune`, sets the accumulation of the trainer;
    give the data loader batches of `plan.micro_batch`. `peak_bytes` is the most device memory that tensors held, after training.
    """

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if self.session.plan is not None:
            trainer.accumulate_grad_batches = self.session.plan.accumulate
        self.session.begin()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        batch = getattr(trainer.train_dataloader, "batch_size", None)
        self.session.check(batch if isinstance(batch, int) else None, trainer.accumulate_grad_batches)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.session.enter(f"train {batch_idx + 1}")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.session.leave()

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.session.enter(f"validate {batch_idx + 1}")

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.session.leave()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.session.failed(exception)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self.session.close()
