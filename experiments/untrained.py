"""A team as it is before training: evaluated, tracked and exported like one that was trained."""

import lightning as L

from teamtune.callbacks.base import TeamCallback


class EndBeforeTraining(TeamCallback):
    """Ends `fit` before its first step, after the warm start, if any, and its evaluation."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        trainer.should_stop = True
