"""Trained policies as plain Hugging Face folders that transformers and vLLM load."""

import shutil
from pathlib import Path
from typing import Any

import lightning as L

from teamtune.callbacks.base import TeamCallback


class HFExport(TeamCallback):
    """At the end of training writes `<run folder>/export/<policy>` for every trained policy.

    So does a run that goes on from a checkpoint with nothing left to train, as after an end in the
    middle of an export.
    """

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        step, most = self.team.rollout_step, trainer.max_epochs
        if trainer.state.fn == "fit" and most is not None and 0 <= most <= step:
            self._export(trainer)
            self.team.print(
                f"nothing to train: the checkpoint is of step {step}, and trainer.max_epochs is "
                f"{most}; the policies are exported to {self.team.run_dir / 'export'}"
            )

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._export(trainer)

    def _export(self, trainer: L.Trainer) -> None:
        for name, policy in self.team.trained().items():
            folder = self.team.run_dir / "export" / name
            aside = folder.with_name(f".{name}")  # what has its name is whole
            policy.export(aside, trainer.is_global_zero)
            if trainer.is_global_zero:
                _replace(aside, folder)
        trainer.strategy.barrier("export")


def _replace(new: Path, old: Path) -> None:
    if old.exists():
        shutil.rmtree(old)
    new.rename(old)
