"""Checkpoints as a command meets them: read, and compared with the team that is to load them."""

import pickle
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from teamtune.errors import ConfigError
from teamtune.training.fingerprint import class_path, fingerprint
from teamtune.training.team_module import TeamModule

KEY = "ckpt_path"
LAST = "checkpoints/last.ckpt"
LONGEST_NAME = 100
"""Bytes; a checkpoint has more."""
UNREADABLE = (
    RuntimeError,
    OSError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    pickle.UnpicklingError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)
"""What is raised for files that are something else, or a damaged or cut checkpoint."""


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
        return _followed(numbered[max(numbered)])
    inside = Path(path) / LAST
    return _followed(inside if inside.is_file() else Path(path))


def _followed(path: Path) -> Path:
    """The file that `last.ckpt` names where it is no link, for a file system has none."""
    if path.name == Path(LAST).name and path.is_file() and path.stat().st_size < LONGEST_NAME:
        named = path.with_name(path.read_text("utf-8", "replace").strip() or path.name)
        return named if named.suffix == path.suffix else path
    return path


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
        damaged = _damaged(path)
        if damaged is not None:
            raise ConfigError(
                f"{KEY}: {path} is damaged: the checksum of its part {damaged} is another one; "
                "take an earlier checkpoint"
            )
        checkpoint = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except ConfigError:
        raise
    except UNREADABLE as error:
        raise ConfigError(f"{KEY}: {path} cannot be read as a checkpoint") from error
    needed = {"team", "state_dict", "fingerprint"}
    if not (isinstance(checkpoint, dict) and needed <= checkpoint.keys()):
        raise ConfigError(f"{KEY}: {path} was not written by this version of teamtune")
    return checkpoint


@rank_zero_only
def _damaged(path: str | Path) -> str | None:
    """The first part of a file that is not what was written; rank zero reads it once for that.

    torch writes zip files, in which every part has its checksum, and does not look at them itself.
    """
    with zipfile.ZipFile(path) as file:
        return file.testzip()


def check_team(
    checkpoint: dict[str, Any], module: TeamModule, path: str | Path, training: bool
) -> None:
    """Raises ConfigError where a checkpoint was written by another team than `module`.

    Args:
        checkpoint: As `read_checkpoint` gives it.
        module: Who is to load it.
        path: Of the checkpoint.
        training: Whether its optimizers are to go on too.
    """
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
    _check_shapes(checkpoint, module, path)
    for name, saved in checkpoint["fingerprint"]["policies"].items():
        _check_policy(saved, fingerprint(module.policy(name)), name, path, training)
    if training:
        _check_training(checkpoint, module, path)


def _check_policy(
    saved: dict[str, Any], own: dict[str, Any], name: str, path: str | Path, training: bool
) -> None:
    key = f"model.policies.{name}"
    theirs, ours = saved["architecture"], own["architecture"]
    for option in sorted(theirs.keys() & ours.keys()):  # libraries add options in time
        if theirs[option] != ours[option]:
            raise ConfigError(
                f"{KEY}: {path} does not fit {key}.init_args.model: {option} is {theirs[option]} "
                f"in the checkpoint and {ours[option]} here"
            )
    if saved["vocabulary"] != own["vocabulary"]:
        raise ConfigError(
            f"{KEY}: {path} does not fit {key}.init_args.model: its tokens are others, or in "
            "another order, than in the checkpoint; give the vocabulary that it was trained with"
        )
    if saved["alpha"] != own["alpha"]:
        raise ConfigError(
            f"{KEY}: {path} was trained with lora.alpha {saved['alpha']}; {key} has {own['alpha']}"
        )
    if training and saved["optimizer"] != own["optimizer"]:
        raise ConfigError(
            f"{key}.init_args.optimizer: got {own['optimizer']}, allowed: {saved['optimizer']}, "
            f"whose state is in {path}; its settings and the schedule may change"
        )


def _check_training(checkpoint: dict[str, Any], module: TeamModule, path: str | Path) -> None:
    saved = checkpoint["fingerprint"]
    if saved["algorithm"] != (own := class_path(module.algorithm)):
        raise ConfigError(
            f"model.algorithm: got {own}, allowed: {saved['algorithm']}, which {path} was trained "
            "by; to go on with another one, begin with the exported policies as models"
        )
    found = [len(state["state"]) for state in checkpoint.get("optimizer_states", [])]
    if found != saved["remembered"] or len(found) != len(module.trained()):
        raise ConfigError(
            f"{KEY}: {path} lacks optimizer_states: got {found} entries for the policies "
            f"{', '.join(module.trained())}, expected {saved['remembered']}"
        )


def _check_shapes(checkpoint: dict[str, Any], module: TeamModule, path: str | Path) -> None:
    """The weights have the names, shapes and number format of the team's."""
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
        for key in sorted(own_shapes.keys() | theirs.keys()):
            if own_shapes.get(key) != theirs.get(key):
                there, here = (str(s.get(key, "missing")) for s in (theirs, own_shapes))
                raise ConfigError(
                    f"{KEY}: {path} does not fit model.policies.{name}: "
                    f"{key.removeprefix(prefix)} is {there} in the checkpoint and {here} here"
                )
    for key, value in checkpoint["state_dict"].items():
        if value.is_floating_point() and value.dtype != torch.float32:
            raise ConfigError(
                f"{KEY}: {path} has {key} in {str(value.dtype).removeprefix('torch.')}, allowed: "
                "float32, the format of the master weights"
            )
