"""MAGRPO (LLM Collaboration with MARL, arXiv 2508.04652): a team compared by its joint reward."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor

from teamtune.algorithms.algorithm import OnJointActions, TokenBatch
from teamtune.algorithms.credit import Baseline, Scale, group_advantages, joint_returns
from teamtune.algorithms.losses import clipped_share, clipped_surrogate, policy_gradient
from teamtune.algorithms.policy_gradient import Regularized
from teamtune.envs import Environment
from teamtune.errors import ConfigError
from teamtune.experience import Candidate, Group, Rollout, groups_of
from teamtune.ranges import Positive, Share

Reduction = Literal["sequence_sum", "token_mean"]


class MAGRPO(Regularized, OnJointActions):
    """Joint sampling, advantages per (task, agent, turn, branch), sequence-sum policy gradient.

    Each agent's loss is a mean over a group's candidates, then over the sibling groups of one
    (task, turn), a sum over turns, a mean over tasks; agents that share a policy add up. Groups
    with fewer than two known returns compare nothing and are in none of these means.
    """

    def __init__(
        self,
        gamma: Share = 1.0,
        baseline: Baseline = "mean",
        scale: Scale = "none",
        reduction: Reduction = "sequence_sum",
        ratio: bool = False,
        clip: Positive | None = None,
        **options: Any,
    ):
        """
        Args:
            gamma: Discount of the return per step of the environment (a turn; in a sequential team
                or a discussion a part of one); a chain needs 0.
            baseline: What a return is compared with: `mean`, `leave_one_out` (MARLOO) or `max`
                (MAReMax) of its group.
            scale: `std` divides by the group's standard deviation, `none` does not.
            reduction: `sequence_sum`, or `token_mean`: over all tokens of the policy's step alike.
            ratio: Weigh by the ratio to the sampling probability instead of log-probs alone.
            clip: Clipping range of the ratio; null does not clip.

        Raises:
            ConfigError: Options that do not go together.
        """
        super().__init__(**options)
        if self.sampler.branching == "chain" and gamma != 0:
            raise ConfigError(
                f"gamma: got {gamma}, allowed with branching chain: 0 (siblings have unequal "
                "futures); set it, or branching: tree"
            )
        if clip is not None and not ratio:
            raise ConfigError(f"clip: got {clip}, allowed with ratio false: null")
        self.gamma = gamma
        self.baseline: Baseline = baseline
        self.scale: Scale = scale
        self.reduction = reduction
        self.ratio = ratio
        self.on_policy = not ratio
        self.clip = clip

    def check(self, env: Environment[Any]) -> None:
        if not env.delayed:
            return
        if not self.gamma:
            raise ConfigError(
                "model.algorithm.init_args.gamma: got 0, allowed: more than 0 with this "
                "data.environment (some of its answers are rewarded by later steps alone)"
            )
        if self.gamma < 1 and self.sampler.termination_threshold is not None:
            raise ConfigError(
                f"model.algorithm.init_args.gamma: got {self.gamma}, allowed with "
                "termination_threshold and this data.environment: 1 (gamma discounts "
                "by step, and the rewards that an ended branch keeps are a round apart)"
            )

    def assign_credit(self, rollouts: Sequence[Rollout]) -> None:
        for rollout in rollouts:
            self._assign_returns(rollout)
        groups = groups_of(rollouts)
        for group in groups:
            returns = [c.return_ for c in group.candidates]
            advantages = group_advantages(returns, self.scale, self.baseline).tolist()
            for candidate, advantage in zip(group.candidates, advantages):
                candidate.advantage = advantage
        self._assign_weights(groups)

    def _assign_returns(self, rollout: Rollout) -> None:
        """An answer's return is the mean over its joint actions."""
        returns = {} if rollout.first is None else joint_returns(rollout.first, self.gamma)
        for turn in rollout.turns:
            for i, group in enumerate(turn.groups):
                for j, candidate in enumerate(group.candidates):
                    found = [returns[joint] for joint in turn.joints_of(i, j)]
                    known = [r for r in found if r is not None]
                    candidate.return_ = math.fsum(known) / len(known) if known else None

    def _assign_weights(self, groups: Sequence[Group]) -> None:
        """Shares in the nested means; 0 where nothing would come of scoring a candidate."""
        siblings = Counter(_turn(group) for group in self.trainable(groups))
        for group in groups:
            known = len(_known(group))
            share = 1.0 if known > 1 else 0.0
            if share and self.reduction == "sequence_sum":
                share /= known * siblings[_turn(group)]
            for c in group.candidates:
                c.weight = share if c.credited else 0.0

    def trainable(self, groups: Sequence[Group]) -> list[Group]:
        """Those that compare; one without spread counts in the means, as in the paper."""
        return [group for group in groups if len(_known(group)) > 1]

    def denominator(self, groups: Sequence[Group]) -> float:
        """Tasks, or tokens for `token_mean`."""
        if self.reduction == "token_mean":
            return float(sum(len(c.token_ids) for group in groups for c in _known(group)))
        return float(len({group.key.task for group in groups}))

    def loss(self, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        batch, sums = self.trusted(batch)
        terms = (batch.logprobs, batch.sampling_logprobs, batch.advantages)
        if not self.ratio:
            return batch.sum(policy_gradient(*terms)), sums
        clip = math.inf if self.clip is None else self.clip
        if self.clip is not None:
            sums["clip_frac"] = batch.sum(clipped_share(*terms, clip, clip).detach())
        return batch.sum(clipped_surrogate(*terms, clip, clip)), sums


def _known(group: Group) -> list[Candidate]:
    return [c for c in group.candidates if c.return_ is not None]


def _turn(group: Group) -> tuple[str, str, int]:
    return group.key.task, group.key.agent, group.key.turn
