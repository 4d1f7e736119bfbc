"""Samples of rollouts to read: as text in the run folder, and with the run in MLflow."""

import json
from collections.abc import Sequence
from typing import Any

import lightning as L
from lightning.pytorch.loggers import MLFlowLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from teamtune import ranks
from teamtune.callbacks.base import TeamCallback
from teamtune.experience import Rollout
from teamtune.experience.plain import plain
from teamtune.ranges import NonNegativeInt


class RolloutTraces(TeamCallback):
    """Writes a few training rollouts, with prompts, answers, rewards and advantages."""

    def __init__(self, every_n_steps: NonNegativeInt = 50, num_tasks: NonNegativeInt = 2):
        """
        Args:
            every_n_steps: Rollout steps between samples, from the first step on; 0 writes none.
            num_tasks: Tasks that are written each time.
        """
        self.every_n_steps = every_n_steps
        self.num_tasks = num_tasks

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        if self.every_n_steps and (self.team.rollout_step - 1) % self.every_n_steps == 0:
            tasks = list(dict.fromkeys(r.task for r in self.team.rollouts))[: self.num_tasks]
            self._write(trainer, [r for r in self.team.rollouts if r.task in tasks])

    @rank_zero_only
    def _write(self, trainer: L.Trainer, rollouts: Sequence[Rollout]) -> None:
        folder = self.team.run_dir / "rollouts"
        folder.mkdir(exist_ok=True)
        path = folder / f"step-{self.team.rollout_step:06d}.txt"
        path.write_text("\n".join(map(str, rollouts)) + "\n")
        for logger in trainer.loggers:
            if isinstance(logger, MLFlowLogger):
                logger.experiment.log_artifact(logger.run_id, str(path), "rollouts")


class RolloutWriter(TeamCallback):
    """`predict` writes every rollout as a line of `<run folder>/rollouts.jsonl`."""

    def on_predict_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        draw = self.data.environment.draw
        parts = ranks.gathered([plain(rollout, draw) for rollout in self.team.rollouts])
        if trainer.is_global_zero:
            with (self.team.run_dir / "rollouts.jsonl").open("a") as file:
                for line in (line for part in parts for line in part):
                    file.write(json.dumps(line) + "\n")

    def on_predict_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.team.print(f"files: {self.team.run_dir / 'rollouts.jsonl'}")
