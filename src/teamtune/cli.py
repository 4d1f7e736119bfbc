"""The command: `teamtune fit|validate|test|predict`, LightningCLI over TeamModule and its parts."""

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
import yaml
from jsonargparse import ArgumentError
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback

from teamtune.callbacks import (
    HFExport,
    Report,
    RolloutCallback,
    RolloutTraces,
    RolloutWriter,
    TeamCheckpoint,
    TeamProgress,
    WeightSync,
)
from teamtune.config import merge_config_arguments, one_line
from teamtune.errors import ConfigError
from teamtune.tracking import MLflowTracker
from teamtune.training import TeamModule
from teamtune.training.data import TaskDataModule
from teamtune.training.team_module import check_team


class SaveConfig(SaveConfigCallback):
    """Keeps the whole configuration with the run: in its folder and in MLflow."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{**kwargs, "save_to_log_dir": False})

    def save_config(self, trainer: Any, pl_module: Any, stage: str) -> None:
        text = self.parser.dump(self.config, skip_none=False)
        (pl_module.run_dir / "config.yaml").write_text(text)
        for logger in trainer.loggers:
            if isinstance(logger, MLflowTracker):
                logger.log_config(text, yaml.safe_load(text))
                pl_module.run_id = logger.run_id


class TeamCLI(LightningCLI):
    """LightningCLI with the sections `model`, `data`, `rollout`, `weight_sync`, `checkpoint` ..."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_lightning_class_args(RolloutCallback, "rollout")
        parser.add_lightning_class_args(WeightSync, "weight_sync")
        parser.add_lightning_class_args(TeamCheckpoint, "checkpoint")
        parser.add_lightning_class_args(Report, "report")
        parser.add_lightning_class_args(RolloutTraces, "traces")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        self.config = parser.parse_args(args)

    def _parse_ckpt_path(self) -> None:
        """Our checkpoints hold no hyperparameters that could overlay the configuration."""

    def before_instantiate_classes(self) -> None:
        config = self.config[self.subcommand]
        self.checkpoint: dict[str, Any] | None = None
        path = config.get("ckpt_path")
        if path is not None:
            self.checkpoint = read_checkpoint(path)
        if self.subcommand != "fit":
            config.trainer.logger = False
        elif self.checkpoint is not None and config.trainer.logger:
            tracker = config.trainer.logger
            if isinstance(tracker, list):
                tracker = tracker[0]
            if tracker.class_path.endswith("MLflowTracker"):
                tracker.init_args.run_id = self.checkpoint.get("team", {}).get("run_id")

    def after_instantiate_classes(self) -> None:
        module, config = self.model, self.config[self.subcommand]
        assert isinstance(module, TeamModule)
        module.seed = config.seed_everything
        rollout = next(c for c in self.trainer.callbacks if isinstance(c, RolloutCallback))
        rollout.check(module, self.datamodule.environment)
        if self.checkpoint is not None:
            check_team(self.checkpoint, module, config.ckpt_path)
            self.checkpoint = None
        elif self.subcommand in ("validate", "test", "predict"):
            module.print("no --ckpt_path: evaluating the team as the configuration builds it")


def read_checkpoint(path: str) -> dict[str, Any]:
    """The checkpoint at `path`, its tensors mapped from the file, not read.

    Raises:
        ConfigError: There is none, or it cannot be read.
    """
    if not Path(path).is_file():
        raise ConfigError(f"ckpt_path: no checkpoint at {path}")
    try:
        return torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except (RuntimeError, OSError, ValueError, EOFError, KeyError) as error:
        raise ConfigError(f"ckpt_path: {path} cannot be read as a checkpoint") from error


TRAINER_DEFAULTS: dict[str, Any] = {
    "default_root_dir": "outputs",
    "logger": {"class_path": "teamtune.tracking.MLflowTracker"},
    "log_every_n_steps": 1,
    "num_sanity_val_steps": 0,
    "enable_model_summary": False,
}


def run(args: Sequence[str]) -> None:
    """Runs the command with `args`, without the program's name. Raises what `main` prints."""
    TeamCLI(
        TeamModule,
        TaskDataModule,
        save_config_callback=SaveConfig,
        trainer_defaults={
            **TRAINER_DEFAULTS,
            "callbacks": [TeamProgress(), HFExport(), RolloutWriter()],
        },
        seed_everything_default=0,
        auto_configure_optimizers=False,
        load_from_checkpoint_support=False,
        parser_kwargs={
            "prog": "teamtune",
            "exit_on_error": False,
            **{name: {"exit_on_error": False} for name in LightningCLI.subcommands()},
        },
        args=merge_config_arguments(args),
    )


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM ends a run as Ctrl-C does: callbacks and loggers get to close it."""
    raise KeyboardInterrupt


def main() -> None:
    """Entry point. A ConfigError or a parsing error is one line on standard error and exit code 2."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        run(sys.argv[1:])
    except (ConfigError, ArgumentError) as error:
        print(f"teamtune: error: {one_line(error)}", file=sys.stderr)
        sys.exit(2)
