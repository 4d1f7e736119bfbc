"""Trained policies as plain Hugging Face folders that transformers and vLLM load."""

import lightning as L

from teamtune.training import TeamModule


class HFExport(L.Callback):
    """At the end of training writes `<run folder>/export/<policy>` for every policy."""

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        assert isinstance(pl_module, TeamModule)
        for name, policy in pl_module.named_policies().items():
            policy.export(pl_module.run_dir / "export" / name, trainer.is_global_zero)
        trainer.strategy.barrier("export")
