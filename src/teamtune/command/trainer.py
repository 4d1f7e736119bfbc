"""What Lightning's Trainer would take and this loop cannot use, refused before anything starts."""

import os
from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

from lightning.fabric.plugins.environments import (
    LSFEnvironment,
    MPIEnvironment,
    SLURMEnvironment,
    TorchElasticEnvironment,
)

from teamtune.errors import ConfigError

LAUNCHERS = (TorchElasticEnvironment, SLURMEnvironment, LSFEnvironment, MPIEnvironment)
MOST_DEVICES = max(16, os.cpu_count() or 1)
POLICY = "model.policies.<name>.init_args"
OURS: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("accumulate_grad_batches", (1,), f"{POLICY}.token_budget makes micro-batches"),
    ("gradient_clip_val", (None,), f"{POLICY}.max_grad_norm clips"),
    ("gradient_clip_algorithm", (None,), f"{POLICY}.max_grad_norm clips by the norm"),
    ("val_check_interval", (None, 1, 1.0), "trainer.check_val_every_n_epoch counts rollout steps"),
    (
        "enable_checkpointing",
        (None, True),
        "checkpoint.every_n_steps and checkpoint.keep say what is saved",
    ),
    ("overfit_batches", (0, 0.0), "data.train with a count trains on few tasks"),
)
"""Options of the Trainer that this loop does not go by, what they may be, and what it goes by."""


def check_numbers(trainer: Any) -> None:
    """Raises ConfigError for a number that starts nothing, or more than a machine can hold.

    Args:
        trainer: The section of that name.
    """
    devices = str(trainer.devices)
    if devices.isdigit() and int(devices) > MOST_DEVICES:
        raise ConfigError(f"trainer.devices: got {devices}, allowed: at most {MOST_DEVICES}")
    if trainer.num_nodes < 1:
        raise ConfigError(f"trainer.num_nodes: got {trainer.num_nodes}, allowed: 1 or more")
    launched = "NODE_RANK" in os.environ or any(kind.detect() for kind in LAUNCHERS)
    if trainer.num_nodes > 1 and not launched:
        raise ConfigError(
            f"trainer.num_nodes: got {trainer.num_nodes}, allowed: 1, for neither torchrun nor a "
            "cluster started this process, and it would wait for the other nodes for ever"
        )
    if trainer.max_steps != -1:
        raise ConfigError(
            f"trainer.max_steps: got {trainer.max_steps}, allowed: -1, for it would count the "
            "steps of every optimizer; trainer.max_epochs counts rollout steps"
        )
    for name, usual, key in OURS:
        if (value := trainer[name]) not in usual:
            raise ConfigError(f"trainer.{name}: got {value}, allowed: {usual[0]}; {key}")
    if trainer.max_epochs == 0:
        raise ConfigError("trainer.max_epochs: got 0, allowed: 1 or more rollout steps, or -1")
    limit = trainer.limit_train_batches
    if limit is not None and limit < 1:
        raise ConfigError(
            f"trainer.limit_train_batches: got {limit}, allowed: null, for an epoch is one rollout "
            "step; trainer.max_epochs shortens a run"
        )
    every = trainer.check_val_every_n_epoch
    if every is not None and every < 1:
        raise ConfigError(f"trainer.check_val_every_n_epoch: got {every}, allowed: 1 or more")


def check_callbacks(callbacks: Any, known: Collection[str]) -> None:
    """Raises ConfigError for a callback that waits for a metric which nothing logs.

    Args:
        callbacks: Those of the configuration.
        known: The metrics' names; where callbacks of users may log others, any name is let pass.
    """
    given = callbacks if isinstance(callbacks, list) else [callbacks]
    origins = {type(c).__module__.partition(".")[0] for c in given if c is not None}
    if not origins <= {"teamtune", "lightning"}:
        return
    for index, callback in enumerate(given):
        monitor = getattr(callback, "monitor", None)
        if monitor is None or monitor in known:
            continue
        close = get_close_matches(str(monitor), sorted(known), n=3)
        examples = close or [n for n in sorted(known) if n.endswith(("/success", "/loss"))]
        raise ConfigError(
            f"trainer.callbacks.{index}.init_args.monitor: got {monitor!r}, allowed: a metric such "
            f"as {', '.join(examples)}"
        )
