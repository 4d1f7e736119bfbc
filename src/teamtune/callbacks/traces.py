"""Samples of rollouts to read: as text in the run folder, and with the run in MLflow."""

import json
from collections.abc import Sequence
from typing import Any

import lightning as L
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from teamtune import ranks
from teamtune.errors import at_least
from teamtune.experience import Rollout
from teamtune.tracking import MLflowTracker
from teamtune.training import TeamModule


class RolloutTraces(L.Callback):
    """Writes a few training rollouts, with prompts, answers, rewards and advantages."""

    def __init__(self, every_n_steps: int = 50, num_tasks: int = 2):
        """
        Args:
            every_n_steps: Rollout steps between samples, from the first step on; 0 writes none.
            num_tasks: Tasks that are written each time.

        Raises:
            ConfigError: A negative value.
        """
        at_least(0, "traces.", every_n_steps=every_n_steps, num_tasks=num_tasks)
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
        assert isinstance(pl_module, TeamModule)
        if self.every_n_steps and (pl_module.rollout_step - 1) % self.every_n_steps == 0:
            self._write(trainer, pl_module, pl_module.rollouts[: self.num_tasks])

    @rank_zero_only
    def _write(self, trainer: L.Trainer, module: TeamModule, rollouts: Sequence[Rollout]) -> None:
        blocks = []
        for rollout in rollouts:
            outcome = "solved" if rollout.success else "not solved"
            blocks.append(f"== {rollout.task}: {outcome}, return {rollout.return_:+.3f}")
            blocks += [str(group) for group in rollout.groups]
        folder = module.run_dir / "rollouts"
        folder.mkdir(exist_ok=True)
        path = folder / f"step-{module.rollout_step:06d}.txt"
        path.write_text("\n".join(blocks) + "\n")
        for logger in trainer.loggers:
            if isinstance(logger, MLflowTracker):
                logger.log_file(path, "rollouts")


class RolloutWriter(L.Callback):
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
        assert isinstance(pl_module, TeamModule)
        parts = ranks.gathered([rollout.as_dict() for rollout in pl_module.rollouts])
        if trainer.is_global_zero:
            with (pl_module.run_dir / "rollouts.jsonl").open("a") as file:
                for line in (line for part in parts for line in part):
                    file.write(json.dumps(line) + "\n")

    def on_predict_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        assert isinstance(pl_module, TeamModule)
        pl_module.print(f"files: {pl_module.run_dir / 'rollouts.jsonl'}")
