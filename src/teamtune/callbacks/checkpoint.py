"""Checkpoints by rollout step: one file each, written aside and renamed, the newest as `last`."""

import os
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.io import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint

from teamtune.callbacks.base import TeamCallback
from teamtune.callbacks.disk import check_disk
from teamtune.ranges import PositiveInt
from teamtune.tracking import MLflowTracker
from teamtune.training import TeamModule


class StreamedCheckpointIO(TorchCheckpointIO):
    """Writes tensors straight to the file; Lightning's own holds a second checkpoint in memory."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}")
        try:
            torch.save(checkpoint, aside)
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)


class TeamCheckpoint(TeamCallback, Checkpoint):
    """Saves weights, optimizers and counters to `<run folder>/checkpoints/step-NNNNNN.ckpt`.

    The first one follows the warm start, where there is one.
    """

    def __init__(self, every_n_steps: PositiveInt = 50, keep: PositiveInt = 2):
        """
        Args:
            every_n_steps: Rollout steps between checkpoints; the last step is always saved.
            keep: How many of the newest are kept.
        """
        self.every_n_steps = every_n_steps
        self.keep = keep
        self._unsaved: dict[str, Any] | None = None

    def check(self, team: TeamModule, trainer: L.Trainer) -> None:
        """Raises ConfigError where the disk is too small for what is going to be saved."""
        planned = self.keep
        if trainer.max_epochs is not None and trainer.max_epochs > 0:
            planned = min(self.keep, 2 + trainer.max_epochs // self.every_n_steps)
        check_disk(team, Path(trainer.default_root_dir), planned + 1)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = StreamedCheckpointIO()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.team.rollout_step == 0 and self.team.state.warm_started:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        step = self.team.rollout_step
        final = trainer.max_epochs is not None and 0 <= trainer.max_epochs <= step
        if step % self.every_n_steps and not final and not trainer.should_stop:
            self._unsaved = self._present(trainer)
            return
        self._unsaved = None
        self._save(trainer)

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """A run that is told to end keeps its latest whole step, if no update has begun since."""
        told = isinstance(exception, KeyboardInterrupt)
        if told and self._unsaved is not None and self.team.phase in ("rollout", "evaluation"):
            self._save(trainer, self._unsaved)
            self._unsaved = None

    @staticmethod
    def _present(trainer: L.Trainer) -> dict[str, Any] | None:
        """What a checkpoint would hold now; its tensors are the team's own, none is copied.

        With several ranks, which do not end at once, there is none.
        """
        if trainer.world_size > 1:
            return None
        connector = trainer._checkpoint_connector
        return connector.dump_checkpoint(weights_only=False)

    def _save(self, trainer: L.Trainer, present: dict[str, Any] | None = None) -> None:
        folder = self.team.run_dir / "checkpoints"
        path = folder / f"step-{self.team.rollout_step:06d}.ckpt"
        for logger in trainer.loggers:
            if isinstance(logger, MLflowTracker):
                self.team.track(logger.version)  # without asking a server that may be gone
        if present is None:
            trainer.save_checkpoint(path)
        else:
            trainer.strategy.save_checkpoint(present, path)
        if trainer.is_global_zero:
            self._publish(folder, path)

    def _publish(self, folder: Path, path: Path) -> None:
        link = folder / "last.ckpt"
        fresh = folder / ".last.ckpt"
        fresh.unlink(missing_ok=True)
        try:
            fresh.symlink_to(path.name)
        except OSError:  # a file system without links: the name itself, which the command follows
            fresh.write_text(path.name, "utf-8")
        os.replace(fresh, link)
        for old in sorted(folder.glob("step-*.ckpt"))[: -self.keep]:
            old.unlink()
