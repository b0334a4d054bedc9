"""The callbacks in real training loops of Lightning, of the Hugging Face Trainer and of Keras (on PyTorch), on the CPU with a tiny model."""

import importlib.util
import os
import sys
import tempfile

os.environ["KERAS_BACKEND"] = "torch"  # before Keras is imported

import torch  # noqa: E402

import stowage  # noqa: E402


class Plan:
    """A plan as stowage.tune returns it."""

    micro_batch, accumulate, sizes = 2, 3, [2, 2, 2]


def check(name, condition, why=""):
    print(f"ok {name}" if condition else f"FAIL {name}: {why}", flush=True)


def missing(*packages):
    return [one for one in packages if importlib.util.find_spec(one) is None]




def lightning_loop(folder):
    import lightning.pytorch as pl

    from stowage.lightning import StowageCallback

    class Model(pl.LightningModule):
        fails = False

        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)
            self.updates = 0

        def training_step(self, batch, index):
            if self.fails:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return self.layer(batch[0]).pow(2).mean()

        def validation_step(self, batch, index):
            self.layer(batch[0])

        def on_before_optimizer_step(self, optimizer):
            self.updates += 1

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.TensorDataset(torch.randn(12, 8))
    options = {"max_epochs": 1, "accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0, "default_root_dir": folder}
    path = os.path.join(folder, "lightning.stow")
    callback, model = StowageCallback(record=path, plan=Plan()), Model()
    loader = torch.utils.data.DataLoader(data, batch_size=2)
    pl.Trainer(callbacks=[callback], **options).fit(model, loader, loader)
    check("lightning_marks_every_batch", callback.session.steps == 12, f"{callback.session.steps} steps, not 6 of training and 6 of validation")
    check("lightning_accumulates_as_planned", model.updates == 2, f"{model.updates} optimizer steps of 6 batches")
    check("lightning_writes_the_recording", os.path.getsize(path) > 0)
    model = Model()
    model.fails = True
    path = os.path.join(folder, "failed.stow")
    callback = StowageCallback(record=path)
    try:
        pl.Trainer(callbacks=[callback], **options).fit(model, loader)
        check("lightning_error_is_the_programs_own", False, "no error")
    except RuntimeError as error:
        check("lightning_error_is_the_programs_own", "Tried to allocate" in str(error), str(error))
    with stowage.record(os.path.join(folder, "after.stow")):  # a failed run leaves no recording open
        pass
    check("lightning_failure_closes_the_recording", os.path.exists(path))
    try:
        wrong = torch.utils.data.DataLoader(data, batch_size=4)
        pl.Trainer(callbacks=[StowageCallback(plan=Plan())], **options).fit(Model(), wrong)
        check("lightning_refuses_another_batch", False, "no error")
    except stowage.Invalid as error:
        check("lightning_refuses_another_batch", "batches of 4" in str(error), str(error))


def trainer_loop(folder):
    from transformers import Trainer, TrainingArguments

    from stowage.transformers import StowageCallback

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def forward(self, x=None, labels=None):
            return {"loss": (self.layer(x).squeeze(-1) - labels).pow(2).mean()}

    data = [{"x": torch.randn(8), "labels": torch.tensor(1.0)} for _ in range(12)]

    def arguments(batch):
        return TrainingArguments(output_dir=folder, per_device_train_batch_size=batch, gradient_accumulation_steps=3, num_train_epochs=1, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no")

    path = os.path.join(folder, "trainer.stow")
    callback = StowageCallback(record=path, plan=Plan())
    trainer = Trainer(Model(), arguments(2), train_dataset=data, callbacks=[callback])
    trainer.train()
    check("trainer_marks_every_step", callback.session.steps == 2 == trainer.state.global_step, f"{callback.session.steps} steps")
    check("trainer_writes_the_recording", os.path.getsize(path) > 0)
    try:
        Trainer(Model(), arguments(4), train_dataset=data, callbacks=[StowageCallback(plan=Plan())]).train()
        check("trainer_refuses_another_batch", False, "no error")
    except stowage.Invalid as error:
        check("trainer_refuses_another_batch", "batches of 4" in str(error), str(error))


def keras_loop(folder):
    import keras

    from stowage.keras import StowageCallback

    def model(accumulate):
        made = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
        made.compile(optimizer=keras.optimizers.SGD(0.1, gradient_accumulation_steps=accumulate), loss="mse")
        return made

    x, y = torch.randn(12, 8).numpy(), torch.zeros(12, 1).numpy()
    path = os.path.join(folder, "keras.stow")
    callback = StowageCallback(record=path, plan=Plan())
    one = model(3)
    one.fit(x, y, batch_size=Plan.micro_batch, epochs=1, verbose=0, validation_data=(x[:4], y[:4]), validation_batch_size=2, callbacks=[callback])
    check("keras_marks_every_batch", callback.session.steps == 8, f"{callback.session.steps} steps, not 6 of training and 2 of validation")
    check("keras_writes_the_recording", os.path.getsize(path) > 0)
    with stowage.record(os.path.join(folder, "after_keras.stow")):  # nothing is left open
        pass
    try:
        model(None).fit(x, y, batch_size=2, epochs=1, verbose=0, callbacks=[StowageCallback(plan=Plan())])
        check("keras_refuses_another_accumulation", False, "no error")
    except stowage.Invalid as error:
        check("keras_refuses_another_accumulation", "accumulates 1" in str(error), str(error))


for name, packages, loop in (("keras", ("keras",), keras_loop), ("lightning", ("lightning",), lightning_loop), ("trainer", ("transformers", "accelerate"), trainer_loop)):
    absent = missing(*packages)
    if absent:
        print(f"skip {name}: {sys.executable} has no {' and no '.join(absent)} (set STOWAGE_TEST_TORCH)")
        continue
    with tempfile.TemporaryDirectory() as where:
        loop(where)
