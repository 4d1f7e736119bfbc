"""One progress bar over rollout steps that names the phase the run is in."""

import sys
import time
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import ProgressBar
from tqdm import tqdm

from teamtune.callbacks.base import TeamCallback

MINUTE = 60.0


class TeamProgress(TeamCallback, ProgressBar):
    """Rollout steps, phase, success and tokens per second; a line per evaluation in a log file."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: tqdm[Any] | None = None
        self._told = time.monotonic()
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def enable(self) -> None:
        self._enabled = True

    @property
    def is_enabled(self) -> bool:
        return self._enabled

    def print(self, *args: Any, **kwargs: Any) -> None:
        tqdm.write(" ".join(map(str, args)))

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._enabled and trainer.is_global_zero and sys.stderr.isatty():
            self._bar = tqdm(
                total=trainer.max_epochs if (trainer.max_epochs or 0) > 0 else None,
                initial=self.team.rollout_step,
                unit="step",
                dynamic_ncols=True,
            )

    def _show(self, trainer: L.Trainer) -> None:
        if self._bar is None:
            return
        metrics = trainer.callback_metrics
        outcome = f"rollout/{self.team.algorithm.sampler.outcome}"
        parts = [f"train {float(metrics[outcome]):.0%}"] if outcome in metrics else []
        if "val/success" in metrics:
            parts.append(f"held-out {float(metrics['val/success']):.1%}")
        if "rollout/tokens_per_second" in metrics:
            parts.append(f"{float(metrics['rollout/tokens_per_second']):,.0f} tokens/s")
        self._bar.set_description(self.team.phase)
        self._bar.set_postfix_str(", ".join(parts))

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._show(trainer)

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        if self._bar is not None:
            self._bar.update()
        self._show(trainer)
        if self._bar is None and self._enabled and time.monotonic() - self._told > MINUTE:
            self._told = time.monotonic()
            state, metrics = self.team.state, trainer.callback_metrics
            rate = float(metrics["rollout/tokens_per_second"])
            self.team.print(
                f"step {state.rollout_step}: {state.training_tokens:,} training tokens, "
                f"{rate:,.0f} tokens/s, {state.seconds:.0f} s"
            )

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._show(trainer)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._show(trainer)
        if self._enabled and self._bar is None and trainer.state.fn == "fit":
            share = float(trainer.callback_metrics["val/success"])
            state = self.team.state
            self.team.print(
                f"step {state.rollout_step}: held-out success {share:.1%}, "
                f"{state.training_tokens:,} training tokens, {state.seconds:.0f} s"
            )

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.on_train_end(trainer, pl_module)
