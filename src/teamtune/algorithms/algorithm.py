"""An algorithm is a named composition: a sampler, a way to assign credit, and a loss."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from teamtune.envs import Environment
from teamtune.experience import Group
from teamtune.rollout import Sampler


@dataclass
class TokenBatch:
    """What a loss sees of one micro-batch: tensors [N] over its response tokens."""

    logprobs: Tensor
    """Of the sampled ids under the policy now, with gradient."""
    sampling_logprobs: Tensor
    """Under the distribution they were drawn from."""
    advantages: Tensor
    weight: Tensor
    """How often a token counts: a sum over tokens is a sum of weight times term."""
    entropy: Tensor | None = None
    """Of the policy at each token, in nats; with gradient where `entropy_coef` is not 0."""
    ref_logprobs: Tensor | None = None
    """Under the frozen reference; only where `needs_reference`."""
    sampled_entropy: float = 0.0
    """Mean of -sampling_logprobs over the whole optimizer step, in nats per token."""

    def sum(self, terms: Tensor) -> Tensor:
        """The weighted sum of `terms` [N]."""
        return (self.weight * terms).sum()


class Algorithm(ABC):
    """Settings and pure functions; what changes during training lives in the TeamModule."""

    sampler: Sampler
    needs_reference: bool = False
    entropy_coef: float = 0.0

    def check(self, env: Environment[Any]) -> None:
        """Raises ConfigError where the algorithm could not learn from `env`."""

    @abstractmethod
    def assign_credit(self, groups: Sequence[Group]) -> None:
        """Sets `advantage` on every candidate, in place. Groups are told apart by key alone."""

    @abstractmethod
    def trainable(self, groups: Sequence[Group]) -> list[Group]:
        """The groups that enter the loss."""

    @abstractmethod
    def denominator(self, groups: Sequence[Group]) -> float:
        """What the summed loss of `groups` is divided by; it adds up over ranks."""

    @abstractmethod
    def loss(self, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Summed loss (a scalar) of a micro-batch, and sums over its tokens to report as means."""
