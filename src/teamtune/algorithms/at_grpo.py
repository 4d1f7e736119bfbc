"""AT-GRPO (Stronger-MAS, arXiv 2510.11062): candidates of one agent's turn compared."""

from collections.abc import Sequence
from typing import Any

from teamtune.algorithms.algorithm import OnTrees
from teamtune.algorithms.credit import Baseline, Scale, group_advantages
from teamtune.algorithms.policy_gradient import Clipped
from teamtune.envs import Environment
from teamtune.errors import ConfigError
from teamtune.experience import Group, Rollout, groups_of


class ATGRPO(Clipped, OnTrees):
    """Tree sampling, advantages per (task, agent, turn), token-mean clipped loss per policy."""

    def __init__(
        self,
        baseline: Baseline = "mean",
        scale: Scale = "std",
        keep_flat_groups: bool = False,
        **options: Any,
    ):
        """
        Args:
            baseline: What a reward is compared with: `mean`, `leave_one_out` or `max` of its group.
            scale: `std` divides by the group's standard deviation, `none` does not.
            keep_flat_groups: Count the tokens of groups without spread in the policy loss's mean.
        """
        super().__init__(**options)
        self.baseline: Baseline = baseline
        self.scale: Scale = scale
        self.keep_flat_groups = keep_flat_groups

    def check(self, env: Environment[Any]) -> None:
        if env.delayed:
            raise ConfigError(
                "model.algorithm: ATGRPO compares the rewards of one step, and data.environment "
                "has steps that only later ones reward; take MAGRPO"
            )

    def assign_credit(self, rollouts: Sequence[Rollout]) -> None:
        for group in groups_of(rollouts):
            rewards = [c.reward for c in group.candidates]
            advantages = group_advantages(rewards, self.scale, self.baseline).tolist()
            for candidate, advantage in zip(group.candidates, advantages):
                candidate.advantage = advantage

    def trainable(self, groups: Sequence[Group]) -> list[Group]:
        if self.keep_flat_groups:
            return list(groups)
        return [g for g in groups if any(c.credited for c in g.candidates)]

    def denominator(self, groups: Sequence[Group]) -> float:
        """Response tokens of the scored candidates: the loss is a mean over all of them."""
        scored = (c for g in groups for c in g.candidates if c.reward is not None)
        return float(sum(len(c.token_ids) for c in scored))
