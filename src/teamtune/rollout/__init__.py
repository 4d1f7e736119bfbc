"""Sampling teams on tasks."""

from teamtune.rollout.collector import check_policy_map, collect
from teamtune.rollout.joint import JointSampler
from teamtune.rollout.sampler import Game, Played, Sampler, Team
from teamtune.rollout.trajectories import TrajectorySampler
from teamtune.rollout.tree import TreeSampler

__all__ = [
    "Game",
    "JointSampler",
    "Played",
    "Sampler",
    "Team",
    "TrajectorySampler",
    "TreeSampler",
    "check_policy_map",
    "collect",
]
