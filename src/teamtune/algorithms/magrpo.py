"""MAGRPO (LLM Collaboration with MARL, arXiv 2508.04652): a team compared by its joint reward."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Literal, get_args

from torch import Tensor

from teamtune.algorithms.algorithm import Algorithm, TokenBatch
from teamtune.algorithms.credit import Baseline, Scale, group_advantages, tree_returns
from teamtune.algorithms.losses import (
    clipped_share,
    clipped_surrogate,
    kl_estimate,
    policy_gradient,
)
from teamtune.envs import Environment, TeamWork
from teamtune.errors import ConfigError, at_least, one_of
from teamtune.experience import Candidate, Group, Joint
from teamtune.rollout import JointSampler
from teamtune.rollout.joint import Branching, Pairing

Reduction = Literal["sequence_sum", "token_mean"]


class MAGRPO(Algorithm):
    """Joint sampling, advantages per (task, agent, turn, branch), sequence-sum policy gradient.

    Each agent's loss is a mean over a group's candidates, then over the sibling groups of one
    (task, turn), a sum over turns, a mean over tasks; agents that share a policy add up. Groups
    with fewer than two known returns compare nothing and are in none of these means.
    """

    sampler: JointSampler

    def __init__(
        self,
        gamma: float = 1.0,
        num_candidates: int = 4,
        max_turns: int = 1,
        pairing: Pairing = "aligned",
        branching: Branching = "tree",
        select: Literal["best", "random"] = "best",
        termination_threshold: float | None = None,
        baseline: Baseline = "mean",
        scale: Scale = "none",
        reduction: Reduction = "sequence_sum",
        ratio: bool = False,
        clip: float | None = None,
        kl_coef: float = 0.0,
    ):
        """
        Args:
            gamma: Discount of the return per step of the environment (a turn; in a sequential team
                or a discussion a part of one); a chain needs 0.
            num_candidates: G, the answers of each agent to one prompt.
            max_turns: T, how often each agent acts at most.
            pairing: `aligned` scores the j-th answers together, `cross` all combinations.
            branching: `tree` goes on from every joint action, `chain` from one.
            select: Which joint action a chain carries on: the `best` (ties at random) or `random`.
            termination_threshold: A branch ends where the joint reward reaches this; null: never.
                Evaluation plays all turns, for a team in use does not know its reward.
            baseline: What a return is compared with: `mean`, `leave_one_out` (MARLOO) or `max`
                (MAReMax) of its group.
            scale: `std` divides by the group's standard deviation, `none` does not.
            reduction: `sequence_sum`, or `token_mean`: over all tokens of the policy's step alike.
            ratio: Weigh by the ratio to the sampling probability instead of log-probs alone.
            clip: Clipping range of the ratio; null does not clip.
            kl_coef: Weight of the KL divergence to the policy at the start, in the same means.

        Raises:
            ConfigError: A value out of its range, or options that do not go together.
        """
        where = "model.algorithm.init_args."
        at_least(2, where, num_candidates=num_candidates)  # a group compares its candidates
        if not 0 <= gamma <= 1:
            raise ConfigError(f"{where}gamma: got {gamma}, allowed: 0 to 1")
        if branching == "chain" and gamma != 0:
            raise ConfigError(
                f"{where}gamma: got {gamma}, allowed with branching chain: 0 (siblings have "
                "unequal futures); set it, or branching: tree"
            )
        one_of(get_args(Baseline), where, baseline=baseline)
        one_of(get_args(Scale), where, scale=scale)
        one_of(get_args(Reduction), where, reduction=reduction)
        if clip is not None and not (ratio and clip > 0):
            raise ConfigError(
                f"{where}clip: got {clip} with ratio {str(ratio).lower()}, allowed: null, or more "
                "than 0 with ratio: true"
            )
        at_least(0, where, kl_coef=kl_coef)
        self.sampler = JointSampler(
            num_candidates, max_turns, pairing, branching, select, termination_threshold
        )
        self.gamma = gamma
        self.baseline: Baseline = baseline
        self.scale: Scale = scale
        self.reduction = reduction
        self.ratio = ratio
        self.clip = clip
        self.kl_coef = kl_coef
        self.needs_reference = kl_coef > 0

    def check(self, env: Environment[Any]) -> None:
        if not (isinstance(env, TeamWork) and env.delayed):
            return
        if not self.gamma:
            raise ConfigError(
                "model.algorithm.init_args.gamma: got 0, allowed: more than 0 with the workflow of "
                "data.environment (all but the last step of a round are rewarded by later ones)"
            )
        if self.gamma < 1 and self.sampler.termination_threshold is not None:
            raise ConfigError(
                f"model.algorithm.init_args.gamma: got {self.gamma}, allowed with "
                "termination_threshold and the workflow of data.environment: 1 (gamma discounts "
                "by step, and the rewards that an ended branch keeps are a round apart)"
            )

    def assign_credit(self, groups: Sequence[Group]) -> None:
        tasks: dict[str, list[Group]] = defaultdict(list)
        for group in groups:
            tasks[group.key.task].append(group)
        for own in tasks.values():
            self._assign_returns(own)
        for group in groups:
            returns = [c.return_ for c in group.candidates]
            advantages = group_advantages(returns, self.scale, self.baseline).tolist()
            for candidate, advantage in zip(group.candidates, advantages):
                candidate.advantage = advantage
        self._assign_weights(groups)

    def _assign_returns(self, groups: Sequence[Group]) -> None:
        """Of one task; an answer's return is the mean over its joint actions, or its reward."""
        branches: dict[str, dict[str, Joint]] = defaultdict(dict)
        for group in groups:
            for candidate in group.candidates:
                branches[group.key.node] |= {joint.node: joint for joint in candidate.joints}
        joints = {node: list(found.values()) for node, found in branches.items()}
        returns = tree_returns(joints, self.gamma)
        for candidate in (c for g in groups for c in g.candidates):
            found = [returns[joint.node] for joint in candidate.joints] or [candidate.reward]
            known = [r for r in found if r is not None and not math.isnan(r)]
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
                used = c.return_ is not None and (c.advantage or self.needs_reference)
                c.weight = share if used else 0.0

    def trainable(self, groups: Sequence[Group]) -> list[Group]:
        """Those that compare; one without spread counts in the means, as in the paper."""
        return [group for group in groups if len(_known(group)) > 1]

    def denominator(self, groups: Sequence[Group]) -> float:
        """Tasks, or tokens for `token_mean`."""
        if self.reduction == "token_mean":
            return float(sum(len(c.token_ids) for group in groups for c in _known(group)))
        return float(len({group.key.task for group in groups}))

    def loss(self, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        sums: dict[str, Tensor] = {}
        if self.ratio:
            clip = math.inf if self.clip is None else self.clip
            terms = (batch.logprobs, batch.sampling_logprobs, batch.advantages, clip, clip)
            loss = batch.sum(clipped_surrogate(*terms))
            if self.clip is not None:
                sums["clip_frac"] = batch.sum(clipped_share(*terms).detach())
        else:
            loss = batch.sum(policy_gradient(batch.logprobs, batch.advantages))
        if self.needs_reference:
            assert batch.ref_logprobs is not None
            kl = batch.sum(kl_estimate(batch.logprobs, batch.ref_logprobs))
            loss = loss + self.kl_coef * kl
            sums["ref_kl"] = kl.detach()
        return loss, sums


def _known(group: Group) -> list[Candidate]:
    return [c for c in group.candidates if c.return_ is not None]


def _turn(group: Group) -> tuple[str, str, int]:
    return group.key.task, group.key.agent, group.key.turn
