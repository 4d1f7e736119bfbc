"""Credit assignment: pure functions from rewards to advantages, in float64."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from teamtune.experience import Joint, Turn

Scale = Literal["std", "none"]
Baseline = Literal["mean", "leave_one_out", "max"]

FLAT = 1e-9
"""A group whose spread is at most FLAT * max(1, |r|) says nothing about its candidates."""


def group_advantages(
    rewards: Sequence[float | None], scale: Scale = "std", baseline: Baseline = "mean"
) -> Tensor:
    """Advantages of the candidates of one group, compared with each other only.

    A_k = (r_k - b_k) / s, with b the mean, the mean of the others, or the maximum of the valid
    rewards, and s their sample standard deviation (n - 1), whatever the baseline, or 1.

    Args:
        rewards: One per candidate. None and NaN mark failures: advantage 0, not in b and s.
        scale: `std` as in AT-GRPO and GRPO, `none` as in MAGRPO and Dr.GRPO.
        baseline: `mean`, `leave_one_out` (RLOO, MARLOO) or `max` (MAReMax).

    Returns:
        [K] float64. All zero where fewer than two rewards are valid or they are all equal.

    Raises:
        ValueError: An infinite reward, or an unknown scale or baseline.
    """
    if scale not in ("std", "none"):
        raise ValueError(f"scale: got {scale!r}, allowed: std, none")
    if baseline not in ("mean", "leave_one_out", "max"):
        raise ValueError(f"baseline: got {baseline!r}, allowed: mean, leave_one_out, max")
    values = torch.tensor(
        [math.nan if r is None else float(r) for r in rewards], dtype=torch.double
    )
    if values.isinf().any():
        raise ValueError(f"infinite reward in {list(rewards)}")
    advantages = torch.zeros_like(values)
    valid = ~values.isnan()
    r = values[valid]
    n = len(r)
    if n < 2 or r.max() - r.min() <= FLAT * max(1.0, float(r.abs().max())):
        return advantages
    centered = r - r.mean()
    if baseline == "leave_one_out":
        credit = centered * n / (n - 1)
    elif baseline == "max":
        credit = r - r.max()
    else:
        credit = centered
    advantages[valid] = credit / r.std() if scale == "std" else credit
    return advantages


def joint_returns(first: Turn, gamma: float) -> dict[Joint, float | None]:
    """Returns of a tree's joint actions: R = r + gamma * mean of R over the turn it opens (MAGRPO).

    A leaf that is kept for k turns more has R = r * (1 + gamma + ... + gamma^k).

    Args:
        first: The tree.
        gamma: Discount per step of the environment; 0 compares immediate rewards.

    Returns:
        R of every joint action that is compared; None where failures hide what came after it.
    """
    returns: dict[Joint, float | None] = {}
    for turn in reversed(list(first)):  # what follows comes before what it follows
        for joint in turn.joints:
            if joint.opens is None or gamma == 0:
                weight = sum(gamma**k for k in range(joint.kept + 1))
                returns[joint] = joint.reward * weight
                continue
            found = (returns[j] for j in joint.opens.joints if j.compared)
            after = [r for r in found if r is not None]
            future = math.fsum(after) / len(after) if after else None
            returns[joint] = None if future is None else joint.reward + gamma * future
    return returns


def discounted_returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """Of every step, what it and those after it earned: R_t = r_t + gamma * R_(t+1)."""
    returns: list[float] = []
    after = 0.0
    for reward in reversed(rewards):
        after = reward + gamma * after
        returns.append(after)
    return returns[::-1]
