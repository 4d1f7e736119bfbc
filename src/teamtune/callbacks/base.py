"""What teamtune's callbacks share: the team and its data, typed, from `setup` on."""

import lightning as L

from teamtune.training import TeamModule
from teamtune.training.data import TaskDataModule


class TeamCallback(L.Callback):
    """A Lightning callback with `self.team` and `self.data`; hooks are Lightning's own.

    One that overrides `setup` calls this one first.
    """

    team: TeamModule
    data: TaskDataModule

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        data = trainer.datamodule  # type: ignore[attr-defined]
        assert isinstance(pl_module, TeamModule) and isinstance(data, TaskDataModule)
        self.team, self.data = pl_module, data
