"""LightningCLI over TeamModule and its parts: parses, checks, builds and runs one subcommand."""

import os
import secrets
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any

import lightning as L
import yaml
from jsonargparse import ArgumentError
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from teamtune.callbacks import (
    HFExport,
    MemoryPlan,
    Report,
    RolloutCallback,
    RolloutTraces,
    RolloutWriter,
    TeamCheckpoint,
    TeamProgress,
    WarmStart,
    WeightSync,
)
from teamtune.callbacks.run_folder import check_run_folder
from teamtune.command.arguments import Arguments
from teamtune.command.checkpoints import check_team, find_checkpoint, read_checkpoint
from teamtune.command.metrics import metric_names
from teamtune.command.objects import instantiate, nodes
from teamtune.command.schema import check
from teamtune.command.trainer import check_callbacks, check_numbers
from teamtune.errors import ConfigError
from teamtune.tracking import MLflowTracker
from teamtune.training import TeamModule
from teamtune.training.data import TaskDataModule

TRAINER_DEFAULTS: dict[str, Any] = {
    "default_root_dir": "outputs",
    "logger": {"class_path": "teamtune.tracking.MLflowTracker"},
    "log_every_n_steps": 1,
    "num_sanity_val_steps": 0,
    "enable_model_summary": False,
}


class SaveConfig(SaveConfigCallback):
    """Keeps the whole configuration with the run: in its folder and in MLflow."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{**kwargs, "save_to_log_dir": False})

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        assert isinstance(pl_module, TeamModule)
        pl_module.seed = trainer.strategy.broadcast(pl_module.seed)
        super().setup(trainer, pl_module, stage)

    def save_config(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        assert isinstance(pl_module, TeamModule)
        text = self.parser.dump(self.config, skip_none=False)
        (pl_module.run_dir / "config.yaml").write_text(text, "utf-8")
        for logger in trainer.loggers:
            if isinstance(logger, MLflowTracker):
                logger.begin(pl_module.run_dir)
                logger.log_config(text, yaml.safe_load(text), pl_module.run_dir.name)


class TeamCLI(LightningCLI):
    """LightningCLI with the sections `model`, `data`, `rollout`, `weight_sync`, `checkpoint` ..."""

    def __init__(self, arguments: Arguments, first: L.Callback | None = None):
        """
        Args:
            arguments: The command line, with a subcommand.
            first: A callback that goes before all others.
        """
        self.arguments = arguments
        self.first = first
        self.checkpoint: dict[str, Any] | None = None
        assert arguments.subcommand is not None
        methods = {arguments.subcommand: LightningCLI.subcommands()[arguments.subcommand]}
        self.subcommands = lambda: methods  # type: ignore[method-assign]  # others only take time
        strict = {"exit_on_error": False, "allow_abbrev": False}
        callbacks = [TeamProgress(), HFExport(), RolloutWriter()]
        super().__init__(
            args=arguments.args,
            parser_kwargs={"prog": "teamtune", **strict, arguments.subcommand: dict(strict)},
            model_class=TeamModule,
            datamodule_class=TaskDataModule,
            save_config_callback=SaveConfig,
            trainer_defaults={**TRAINER_DEFAULTS, "callbacks": callbacks},
            seed_everything_default=0,
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_lightning_class_args(RolloutCallback, "rollout")
        parser.add_lightning_class_args(WeightSync, "weight_sync")
        parser.add_lightning_class_args(TeamCheckpoint, "checkpoint")
        parser.add_lightning_class_args(MemoryPlan, "memory")
        parser.add_lightning_class_args(Report, "report")
        parser.add_lightning_class_args(RolloutTraces, "traces")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        given = self.arguments
        assert given.subcommand is not None
        if given.asks_help:
            self.config = parser.parse_args(args)
            return
        own = self._subcommand_parsers[given.subcommand]
        check(own, given.values)
        try:
            self.config = parser.parse_args(args)
        except ArgumentError:
            check(own, given.values, strict=True)
            raise

    def _parse_ckpt_path(self) -> None:
        """Our checkpoints hold no hyperparameters that could overlay the configuration."""

    def _set_seed(self) -> None:
        config = self.config[self.subcommand]
        if config.seed_everything is True and "PL_GLOBAL_SEED" not in os.environ:
            config.seed_everything = secrets.randbelow(2**32)  # Lightning would take 0
        try:
            super()._set_seed()
        except ValueError as error:
            raise ConfigError(f"seed_everything: {error}") from error

    def before_instantiate_classes(self) -> None:
        config = self.config[self.subcommand]
        check_numbers(config.trainer)
        _name_choices(config)
        if config.trainer.enable_progress_bar is False:
            defaults = self.trainer_defaults["callbacks"]
            self.trainer_defaults["callbacks"] = [
                c for c in defaults if not isinstance(c, TeamProgress)
            ]
        if config.ckpt_path is not None:
            config.ckpt_path = find_checkpoint(config.ckpt_path, config.trainer.default_root_dir)
            self.checkpoint = read_checkpoint(config.ckpt_path)
            config.weights_only = True
        if self.subcommand == "predict":
            config.return_predictions = False  # Lightning cannot copy rollouts; they are written
        if self.subcommand != "fit":
            config.trainer.logger = False
        elif self.checkpoint is not None:
            loggers = config.trainer.logger
            for logger in loggers if isinstance(loggers, list) else [loggers]:
                if getattr(logger, "class_path", "").endswith("MLflowTracker"):
                    logger.init_args.run_id = self.checkpoint["team"]["run_id"]

    def instantiate_classes(self) -> None:
        assert self.subcommand is not None
        self.config_init = instantiate(self.parser, self.config, self.subcommand)
        self.datamodule, self.model = (self._get(self.config_init, k) for k in ("data", "model"))
        self.trainer = self.instantiate_trainer()

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:
        try:
            return super().instantiate_trainer(**kwargs)
        except (ValueError, TypeError, ImportError, MisconfigurationException) as error:
            raise ConfigError(f"trainer: {error}") from error

    def after_instantiate_classes(self) -> None:
        module, config = self.model, self.config[self.subcommand]
        assert isinstance(module, TeamModule)
        module.seed = int(config.seed_everything)
        callbacks = self.trainer.callbacks  # type: ignore[attr-defined]
        for callback in callbacks:
            if isinstance(callback, RolloutCallback):
                callback.check(module, self.datamodule.environment)
            elif isinstance(callback, WarmStart):
                callback.check(module)
            elif isinstance(callback, TeamCheckpoint) and self.subcommand == "fit":
                callback.check(module, self.trainer)
        # Others cast the fp32 master weights or need a scaler, which the loop has not.
        if (precision := self.trainer.precision) not in ("32-true", "bf16-mixed"):
            raise ConfigError(f"trainer.precision: got {precision!r}, allowed: 32-true, bf16-mixed")
        given = self._get(self.config_init, "trainer")["callbacks"]
        samples = config.rollout.evaluation_samples
        check_callbacks(given, metric_names(module, self.datamodule.environment, samples))
        going_on = config.ckpt_path if self.subcommand == "fit" else None
        rank_zero_only(check_run_folder)(Path(config.trainer.default_root_dir), going_on)
        connector: Any = self.trainer._signal_connector
        connector._sigterm_notifier_fn = self._tell_children
        callbacks.sort(key=_place)
        if self.first is not None:
            callbacks.insert(0, self.first)
        if self.checkpoint is not None:
            check_team(self.checkpoint, module, config.ckpt_path, self.subcommand == "fit")
            module.checkpoint, self.checkpoint = config.ckpt_path, None
        elif self.subcommand != "fit":
            rank_zero_only(print)(
                "no --ckpt_path: evaluating the team as the configuration builds it"
            )
        if self.subcommand == "fit":  # last, for it prints what is planned
            rollout, memory = (self._get(self.config_init, key) for key in ("rollout", "memory"))
            memory.check(module, self.trainer, rollout, self.datamodule.tasks_per_step)

    def _tell_children(self, number: int, frame: FrameType | None) -> None:
        """In place of Lightning's answer to SIGTERM, whose broadcast waits for ranks that do not.

        Processes that Lightning started get the signal too; torchrun sends its own.
        """
        launcher = self.trainer.strategy.launcher
        if launcher is not None:
            launcher.kill(number)  # type: ignore[arg-type]


def _name_choices(config: Any) -> None:
    """Defaults that are a text and a member of an enumeration become the text alone.

    The parser, which wrote them, does not take them back.
    """
    for _, node in nodes(config):
        for key, value in node.items():
            if isinstance(value, str) and isinstance(value, Enum):
                node[key] = str(value.value)


def _place(callback: L.Callback) -> tuple[bool, bool]:
    """A user's callbacks run after ours at the same hook; what saves comes last."""
    own = type(callback).__module__.partition(".")[0] == "teamtune"
    return isinstance(callback, Checkpoint), not own
