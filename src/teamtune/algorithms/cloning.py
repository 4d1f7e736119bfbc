"""Behaviour cloning: maximum likelihood of demonstrated answers, token mean."""

from collections.abc import Sequence

from torch import Tensor

from teamtune.algorithms.algorithm import Algorithm, TokenBatch
from teamtune.experience import Group, Rollout


class Cloning(Algorithm):
    """Groups hold demonstrations instead of samples; every one of them has advantage 1."""

    def assign_credit(self, rollouts: Sequence[Rollout]) -> None:
        for candidate in (c for rollout in rollouts for c in rollout.candidates):
            candidate.advantage = 1.0

    def trainable(self, groups: Sequence[Group]) -> list[Group]:
        return list(groups)

    def denominator(self, groups: Sequence[Group]) -> float:
        """Tokens of all demonstrations."""
        return float(sum(len(c.token_ids) for g in groups for c in g.candidates))

    def loss(self, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        return -batch.sum(batch.logprobs * batch.advantages), {}
