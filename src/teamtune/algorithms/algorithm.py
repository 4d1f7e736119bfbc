"""An algorithm is a named composition: a sampler, a way to assign credit, and a loss."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from teamtune.envs import Environment
from teamtune.errors import ConfigError
from teamtune.experience import Group, Rollout
from teamtune.ranges import PositiveInt
from teamtune.rollout import JointSampler, Sampler, TrajectorySampler, TreeSampler


@dataclass
class TokenBatch:
    """What a loss sees of one micro-batch: tensors [N] over its response tokens."""

    logprobs: Tensor
    """Of the sampled ids under the policy now, with gradient."""
    sampling_logprobs: Tensor
    """Under the distribution they were drawn from."""
    advantages: Tensor
    weight: Tensor
    """What a token counts in the policy loss: its sums are sums of weight times term."""
    count: Tensor
    """How many sampled tokens it stands for; those without an advantage count as well."""
    sequence: Tensor
    """Which answer of the batch it is of, from 0."""
    entropy: Tensor | None = None
    """Of the policy at each token, in nats; with gradient where `entropy_coef` is not 0."""
    ref_logprobs: Tensor | None = None
    """Under the frozen reference; only where `needs_reference`."""
    mismatch: Tensor | None = None
    """Trainer minus engine, in nats, when the update first scored a token: later passes differ by
    what was learned as well. None says that this pass is the first."""
    sampled_entropy: float = 0.0
    """Mean of -sampling_logprobs over all tokens of the optimizer step, in nats per token."""

    def sum(self, terms: Tensor) -> Tensor:
        """The weighted sum of `terms` [N]."""
        return (self.weight * terms).sum()

    def total(self, terms: Tensor) -> Tensor:
        """The sum of `terms` [N] over all sampled tokens, alike."""
        return (self.count * terms).sum()


class Algorithm(ABC):
    """Settings and pure functions. What an algorithm learns of a run, if anything, is its state.

    Options are declared where they act: classes pass on those that they do not know, and the last
    one to get them is the sampler.
    """

    sampler: Sampler
    needs_reference: bool = False
    on_policy: bool = False
    """Whether its loss is right for the first optimizer step after sampling alone."""
    entropy_coef: float = 0.0
    regularizes: bool = False
    """Whether `regularizer` is more than 0: then tokens without an advantage matter too."""

    def check(self, env: Environment[Any]) -> None:
        """Raises ConfigError where the algorithm could not learn from `env`."""

    @abstractmethod
    def assign_credit(self, rollouts: Sequence[Rollout]) -> None:
        """Sets `advantage`, and `weight`, on every candidate in place.

        Args:
            rollouts: All that this rank has sampled in a step; groups are told apart by key alone.
        """

    @abstractmethod
    def trainable(self, groups: Sequence[Group]) -> list[Group]:
        """The groups that enter the loss."""

    @abstractmethod
    def denominator(self, groups: Sequence[Group]) -> float:
        """What the summed loss of `groups` is divided by; it adds up over ranks."""

    @abstractmethod
    def loss(self, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Summed loss (a scalar) of a micro-batch, and sums over its tokens to report as means."""

    def regularizer(self, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """What is added to the loss: sums over all sampled tokens, of which means are taken."""
        return torch.zeros(()), {}

    def advance(self) -> None:
        """A rollout step is over; for what changes from step to step."""

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must know of the steps before; plain values and tensors."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes up what `state_dict` gave."""

    def _compares(self) -> None:
        """Raises ConfigError where there is nothing to compare a candidate with."""
        if self.sampler.num_candidates < 2:
            raise ConfigError(
                f"num_candidates: got {self.sampler.num_candidates}, allowed: 2 or more (an answer "
                "is compared with others)"
            )


class OnTrees(Algorithm):
    """Samples trees with one branch carried on."""

    sampler: TreeSampler

    def __init__(self, **sampling: Any):
        self.sampler = TreeSampler(**sampling)
        self._compares()


class OnJointActions(Algorithm):
    """Samples joint actions of agents that answer at once."""

    sampler: JointSampler

    def __init__(self, **sampling: Any):
        self.sampler = JointSampler(**sampling)
        self._compares()


class OnEpisodes(Algorithm):
    """Samples several whole episodes of a task."""

    sampler: TrajectorySampler

    def __init__(self, num_candidates: PositiveInt = 4, max_turns: PositiveInt = 4):
        """
        Args:
            num_candidates: K, the episodes of a task.
            max_turns: T, how often each agent acts at most.
        """
        self.sampler = TrajectorySampler(num_candidates, max_turns)
        self._compares()
