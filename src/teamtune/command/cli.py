"""The command: `teamtune fit|validate|test|predict`, LightningCLI over TeamModule and its parts."""

import logging
import os
import secrets
import sys
import warnings
from collections.abc import Sequence
from pkgutil import resolve_name
from types import FrameType
from typing import Any, TextIO

import lightning as L
import yaml
from jsonargparse import ArgumentError, set_parsing_settings
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from teamtune.callbacks import (
    HFExport,
    Report,
    RolloutCallback,
    RolloutTraces,
    RolloutWriter,
    TeamCheckpoint,
    TeamProgress,
    WarmStart,
    WeightSync,
)
from teamtune.command.allocator import keep_freed_memory
from teamtune.command.checkpoints import check_team, read_checkpoint
from teamtune.command.interrupts import Interrupts
from teamtune.command.overlays import Arguments, one_line, read_arguments
from teamtune.command.schema import Part, parts_of, placed
from teamtune.errors import ConfigError, one_of
from teamtune.inference import RolloutEngine
from teamtune.tracking import MLflowTracker
from teamtune.training import TeamModule
from teamtune.training.data import TaskDataModule


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
        (pl_module.run_dir / "config.yaml").write_text(text)
        for logger in trainer.loggers:
            if isinstance(logger, MLflowTracker):
                logger.begin(pl_module.run_dir)
                logger.log_config(text, yaml.safe_load(text), pl_module.run_dir.name)
                pl_module.track(logger.run_id)


class TeamCLI(LightningCLI):
    """LightningCLI with the sections `model`, `data`, `rollout`, `weight_sync`, `checkpoint` ..."""

    def __init__(self, arguments: Arguments, first: L.Callback | None = None, **kwargs: Any):
        """
        Args:
            arguments: The command line.
            first: A callback that goes before all others.
            kwargs: For LightningCLI.
        """
        self.arguments = arguments
        self.first = first
        self.parts: list[Part] = []
        self.checkpoint: dict[str, Any] | None = None
        if arguments.subcommand is not None:  # the parsers of the others would only take time
            methods = {arguments.subcommand: LightningCLI.subcommands()[arguments.subcommand]}
            self.subcommands = lambda: methods  # type: ignore[method-assign]
        strict = {"exit_on_error": False, "allow_abbrev": False}
        about = {"prog": "teamtune", "description": sys.modules["teamtune"].__doc__}
        parser_kwargs = {**about, **strict, **{name: dict(strict) for name in self.subcommands()}}
        super().__init__(args=arguments.args, parser_kwargs=parser_kwargs, **kwargs)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_lightning_class_args(RolloutCallback, "rollout")
        parser.add_lightning_class_args(WeightSync, "weight_sync")
        parser.add_lightning_class_args(TeamCheckpoint, "checkpoint")
        parser.add_lightning_class_args(Report, "report")
        parser.add_lightning_class_args(RolloutTraces, "traces")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        given = self.arguments
        if given.subcommand is None or given.asks_help:
            self.config = parser.parse_args(args)
            return
        own = self._subcommand_parsers[given.subcommand]
        self.parts = parts_of(own, given.values)
        try:
            self.config = parser.parse_args(args)
        except ArgumentError:
            parts_of(own, given.values, strict=True)
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
        engine = config.rollout.engine
        if hasattr(engine, "class_path"):
            cls = resolve_name(engine.class_path)
            if isinstance(cls, type) and issubclass(cls, RolloutEngine):
                cls.check_installed()
        if config.ckpt_path is not None:
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
        try:
            super().instantiate_classes()
        except ValueError as error:
            raise ConfigError(placed(error, self.parts, self.arguments.values)) from error

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:
        try:
            return super().instantiate_trainer(**kwargs)
        except (ValueError, MisconfigurationException) as error:
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
        # Others cast the fp32 master weights or need a scaler, which the loop has not.
        one_of(("32-true", "bf16-mixed"), "trainer.", precision=self.trainer.precision)
        connector: Any = self.trainer._signal_connector
        connector._sigterm_notifier_fn = self._tell_children
        if self.first is not None:
            callbacks.insert(0, self.first)
        if self.checkpoint is not None:
            check_team(self.checkpoint, module, config.ckpt_path)
            self.checkpoint = None
        elif self.subcommand != "fit":
            note = "no --ckpt_path: evaluating the team as the configuration builds it"
            _say(note, sys.stdout)

    def _tell_children(self, number: int, frame: FrameType | None) -> None:
        """In place of Lightning's answer to SIGTERM, whose broadcast waits for ranks that do not.

        Processes that Lightning started get the signal too; torchrun sends its own.
        """
        launcher = self.trainer.strategy.launcher
        if launcher is not None:
            launcher.kill(number)  # type: ignore[arg-type]


TRAINER_DEFAULTS: dict[str, Any] = {
    "default_root_dir": "outputs",
    "logger": {"class_path": "teamtune.tracking.MLflowTracker"},
    "log_every_n_steps": 1,
    "num_sanity_val_steps": 0,
    "enable_model_summary": False,
}


def run(args: Sequence[str], first: L.Callback | None = None) -> None:
    """Runs the command with `args`, without the program's name. Raises what `main` prints.

    Args:
        args: The command line.
        first: A callback that goes before all others.
    """
    quiet()
    arguments = read_arguments(args)
    set_parsing_settings(docstring_parse_attribute_docstrings=arguments.asks_help)  # it is slow
    TeamCLI(
        arguments,
        first,
        model_class=TeamModule,
        datamodule_class=TaskDataModule,
        save_config_callback=SaveConfig,
        trainer_defaults={
            **TRAINER_DEFAULTS,
            "callbacks": [TeamProgress(), HFExport(), RolloutWriter()],
        },
        seed_everything_default=0,
        auto_configure_optimizers=False,
        load_from_checkpoint_support=False,
    )


def quiet() -> None:
    """Silences what libraries say on every run and nobody can act upon; warnings stay."""
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (".*LeafSpec.*", ".*does not have many workers.*", ".*litlogger.*"):
        warnings.filterwarnings("ignore", message=message)
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()


def main() -> None:
    """Entry point. A configuration that cannot work is one line and exit code 2."""
    keep_freed_memory()
    interrupts = Interrupts()
    try:
        run(sys.argv[1:], interrupts)
    except (ConfigError, ArgumentError, MisconfigurationException) as error:
        _say(f"teamtune: error: {one_line(error)}")
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit):
        interrupts.close()
        if interrupts.code is None:
            raise
        _say("teamtune: interrupted; --ckpt_path <run folder>/checkpoints/last.ckpt resumes a fit")
        sys.exit(interrupts.code)


@rank_zero_only
def _say(text: str, file: TextIO | None = None) -> None:
    print(text, file=file or sys.stderr)
