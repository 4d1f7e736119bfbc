"""Checkpoints as a command meets them: read, and compared with the team that is to load them."""

import pickle
from pathlib import Path
from typing import Any

import torch

from teamtune.errors import ConfigError
from teamtune.training.team_module import TeamModule

KEY = "ckpt_path"
LAST = "checkpoints/last.ckpt"
UNREADABLE = (
    RuntimeError,
    OSError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    pickle.UnpicklingError,
)
"""What torch.load raises for files that are something else, or a part of a checkpoint."""


def find_checkpoint(path: str | Path, root: str | Path) -> Path:
    """The file that `--ckpt_path` names.

    Args:
        path: A file, a run's folder, or `last`: of the newest run in `root` that has saved one.
        root: `trainer.default_root_dir`.

    Raises:
        ConfigError: No run has a checkpoint.
    """
    if str(path) == "last":
        saved = Path(root).glob(f"run-*/{LAST}")
        numbered = {int(p.parts[-3][4:]): p for p in saved if p.parts[-3][4:].isdigit()}
        if not numbered:
            raise ConfigError(f"{KEY}: got last, and no run in {root} has a {LAST}")
        return numbered[max(numbered)]
    inside = Path(path) / LAST
    return inside if inside.is_file() else Path(path)


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """The checkpoint at `path`, its tensors mapped from the file, not read.

    Raises:
        ConfigError: There is none, it cannot be read, or it is not one of ours.
    """
    if Path(path).is_dir():
        raise ConfigError(f"{KEY}: {path} is a folder, allowed: a file such as last.ckpt")
    if not Path(path).is_file():
        raise ConfigError(f"{KEY}: no checkpoint at {path}")
    try:
        checkpoint = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except UNREADABLE as error:
        raise ConfigError(f"{KEY}: {path} cannot be read as a checkpoint") from error
    if not (isinstance(checkpoint, dict) and {"team", "state_dict"} <= checkpoint.keys()):
        raise ConfigError(f"{KEY}: {path} was not written by teamtune")
    return checkpoint


def check_team(checkpoint: dict[str, Any], module: TeamModule, path: str | Path) -> None:
    """Raises ConfigError where a checkpoint was written by another team than `module`."""
    team = checkpoint["team"]
    if set(team["versions"]) != set(module.policies):
        saved, own = sorted(team["versions"]), sorted(module.policies)
        raise ConfigError(
            f"{KEY}: {path} is of another team, with the policies {', '.join(saved)}; "
            f"model.policies has {', '.join(own)}"
        )
    if team["policy_map"] != module.policy_map:
        raise ConfigError(
            f"{KEY}: {path} is of another team, with the policy_map {team['policy_map']}; "
            f"model.policy_map is {module.policy_map}"
        )
    saved_shapes = {name: tuple(value.shape) for name, value in checkpoint["state_dict"].items()}
    for name, policy in module.named_policies().items():
        prefix = f"policies.{name}."
        copied = module.algorithm.needs_reference and policy.lora is None
        kinds = ["scorer", "reference"] if copied else ["scorer"]
        own_shapes = {
            f"{prefix}{kind}.{weight}": tuple(shape)
            for kind in kinds
            for weight, shape in policy.shapes().items()
        }
        theirs = {key: shape for key, shape in saved_shapes.items() if key.startswith(prefix)}
        alpha = team.get("lora_alpha", {}).get(name)
        if alpha is not None and policy.lora is not None and alpha != policy.lora.alpha:
            raise ConfigError(
                f"{KEY}: {path} was trained with lora.alpha {alpha}; "
                f"model.policies.{name} has {policy.lora.alpha}"
            )
        for key in sorted(own_shapes.keys() | theirs.keys()):
            if own_shapes.get(key) != theirs.get(key):
                there, here = (str(s.get(key, "missing")) for s in (theirs, own_shapes))
                raise ConfigError(
                    f"{KEY}: {path} does not fit model.policies.{name}: "
                    f"{key.removeprefix(prefix)} is {there} in the checkpoint and {here} here"
                )
