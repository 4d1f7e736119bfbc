"""AT-GRPO (Stronger-MAS, arXiv 2510.11062): candidates of one agent's turn compared."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

from torch import Tensor

from teamtune.algorithms.algorithm import Algorithm, TokenBatch
from teamtune.algorithms.credit import Baseline, Scale, group_advantages
from teamtune.algorithms.losses import clipped_share, clipped_surrogate, kl_estimate
from teamtune.envs import Environment, TeamWork
from teamtune.errors import ConfigError, at_least, one_of
from teamtune.experience import Group
from teamtune.rollout import TreeSampler


class ATGRPO(Algorithm):
    """Tree sampling, advantages per (task, agent, turn), token-mean clipped loss per policy."""

    def __init__(
        self,
        num_candidates: int = 4,
        max_turns: int = 4,
        alpha: float = 1.0,
        select: Literal["greedy", "softmax", "random"] = "greedy",
        baseline: Baseline = "mean",
        scale: Scale = "std",
        clip_low: float = 0.2,
        clip_high: float = 0.2,
        entropy_coef: float = 0.0,
        entropy_target: float | None = None,
        kl_coef: float = 0.0,
        keep_flat_groups: bool = False,
    ):
        """
        Args:
            num_candidates: K, the candidates of a group.
            max_turns: T, how often each agent acts at most.
            alpha: Weight of the team reward against the local one.
            select: Which candidate is carried on: `greedy`, `softmax` of the reward, or `random`.
            baseline: What a reward is compared with: `mean`, `leave_one_out` or `max` of its group.
            scale: `std` divides by the group's standard deviation, `none` does not.
            clip_low: Lower clipping range of the probability ratio.
            clip_high: Upper clipping range of the probability ratio.
            entropy_coef: Weight of an entropy bonus per token; 0 in the paper.
            entropy_target: The bonus fades linearly and ends where the samples' mean entropy, in
                nats per token, reaches this; null keeps its full weight.
            kl_coef: Weight of the KL divergence to the policy at the start; 0 in the paper.
            keep_flat_groups: Count the tokens of groups without spread in the token mean.

        Raises:
            ConfigError: A value out of its range.
        """
        where = "model.algorithm.init_args."
        at_least(2, where, num_candidates=num_candidates)  # a group compares its candidates
        at_least(0, where, entropy_coef=entropy_coef, kl_coef=kl_coef)
        positive = {"clip_low": clip_low, "clip_high": clip_high, "entropy_target": entropy_target}
        for name, value in positive.items():
            if value is not None and not value > 0:
                raise ConfigError(f"{where}{name}: got {value}, allowed: more than 0")
        if entropy_target is not None and not entropy_coef:
            raise ConfigError(f"{where}entropy_target: no effect with entropy_coef 0")
        one_of(get_args(Baseline), where, baseline=baseline)
        one_of(get_args(Scale), where, scale=scale)
        self.sampler = TreeSampler(num_candidates, max_turns, alpha, select)
        self.baseline: Baseline = baseline
        self.scale: Scale = scale
        self.clip_low, self.clip_high = clip_low, clip_high
        self.entropy_coef = entropy_coef
        self.entropy_target = entropy_target
        self.kl_coef = kl_coef
        self.needs_reference = kl_coef > 0
        self.keep_flat_groups = keep_flat_groups

    def check(self, env: Environment[Any]) -> None:
        if isinstance(env, TeamWork) and env.delayed:
            raise ConfigError(
                "model.algorithm: ATGRPO compares the rewards of one step, and in the workflow of "
                "data.environment all but the last step of a round have none; take MAGRPO"
            )

    def assign_credit(self, groups: Sequence[Group]) -> None:
        for group in groups:
            rewards = [c.reward for c in group.candidates]
            advantages = group_advantages(rewards, self.scale, self.baseline).tolist()
            for candidate, advantage in zip(group.candidates, advantages):
                candidate.advantage = advantage

    def trainable(self, groups: Sequence[Group]) -> list[Group]:
        if self.keep_flat_groups:
            return list(groups)
        return [g for g in groups if any(c.advantage for c in g.candidates)]

    def denominator(self, groups: Sequence[Group]) -> float:
        """Response tokens of the scored candidates: the loss is a mean over all of them."""
        scored = (c for g in groups for c in g.candidates if c.reward is not None)
        return float(sum(len(c.token_ids) for c in scored))

    def loss(self, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        clip = (self.clip_low, self.clip_high)
        ratio_terms = (batch.logprobs, batch.sampling_logprobs, batch.advantages)
        loss = batch.sum(clipped_surrogate(*ratio_terms, *clip))
        sums = {"clip_frac": batch.sum(clipped_share(*ratio_terms, *clip).detach())}
        if self.entropy_coef:
            assert batch.entropy is not None
            loss = loss - self._entropy_weight(batch.sampled_entropy) * batch.sum(batch.entropy)
        if self.needs_reference:
            assert batch.ref_logprobs is not None
            kl = batch.sum(kl_estimate(batch.logprobs, batch.ref_logprobs))
            loss = loss + self.kl_coef * kl
            sums["ref_kl"] = kl.detach()
        return loss, sums

    def _entropy_weight(self, sampled_entropy: float) -> float:
        if self.entropy_target is None:
            return self.entropy_coef
        return self.entropy_coef * max(0.0, 1 - sampled_entropy / self.entropy_target)
