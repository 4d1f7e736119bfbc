"""Trained policies as plain Hugging Face folders that transformers and vLLM load."""

import lightning as L

from teamtune.callbacks.base import TeamCallback


class HFExport(TeamCallback):
    """At the end of training writes `<run folder>/export/<policy>` for every trained policy."""

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        for name, policy in self.team.trained().items():
            policy.export(self.team.run_dir / "export" / name, trainer.is_global_zero)
        trainer.strategy.barrier("export")
