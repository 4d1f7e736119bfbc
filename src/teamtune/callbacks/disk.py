"""How much of the disk a run will fill, known before it begins."""

import shutil
from pathlib import Path

import torch
from torch import Tensor, nn

from teamtune.errors import ConfigError
from teamtune.policies import Policy
from teamtune.training import TeamModule

BYTES = 4
"""Of a number in float32, as all master weights are."""
PROBE = (64, 64)
ADAM = 2.0
"""Numbers that Adam remembers per weight, taken for optimizers that are not torch's own."""


def check_disk(team: TeamModule, root: Path, files: int) -> None:
    """Raises ConfigError where the planned files of a run do not fit on the disk.

    Args:
        team: The policies, whose weights need not be there.
        root: The folder of runs, which need not exist.
        files: Most checkpoints that lie there at once.
    """
    state, export = checkpoint_size(team)
    there = next(p for p in (root.absolute(), *root.absolute().parents) if p.exists())
    free = shutil.disk_usage(there).free
    needed = files * state + export
    if needed > free:
        raise ConfigError(
            f"trainer.default_root_dir: {root} has {_gb(free)} free, and {files} checkpoints of "
            f"{_gb(state)} (checkpoint.keep, and one more while it is written) with exports of "
            f"{_gb(export)} need {_gb(needed)}; lower checkpoint.keep, or choose another disk"
        )


def checkpoint_size(team: TeamModule) -> tuple[int, int]:
    """Bytes of a checkpoint and of all exports together, without what is small."""
    state = export = 0.0
    for policy in team.trained().values():
        sizes = {name: shape.numel() for name, shape in policy.shapes().items()}
        weights = sum(sizes.values())
        lora = sum(n for name, n in sizes.items() if ".lora_" in name)
        copied = team.algorithm.needs_reference and policy.lora is None
        trained = lora if policy.lora is not None else weights
        state += BYTES * (weights * (2 if copied else 1) + trained * remembered(policy))
        export += BYTES * (weights - lora)
    return round(state), round(export)


def remembered(policy: Policy) -> float:
    """Numbers per weight that the policy's optimizer keeps, found by a step on a small matrix."""
    matrix = nn.Parameter(torch.zeros(PROBE))
    optimizer = policy.optimizer_factory([matrix])
    if not type(optimizer).__module__.startswith("torch.optim"):
        return ADAM  # it may run on a GPU alone
    matrix.grad = torch.ones(PROBE)
    optimizer.step()
    kept = [v for v in optimizer.state[matrix].values() if isinstance(v, Tensor)]
    return sum(v.numel() for v in kept) / matrix.numel()


def _gb(size: float) -> str:
    return f"{size / 1e9:,.3g} GB"
