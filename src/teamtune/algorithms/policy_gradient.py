"""What the losses of several algorithms share: clipping, an entropy bonus, a KL term."""

from typing import Any

from torch import Tensor

from teamtune.algorithms.algorithm import Algorithm, TokenBatch
from teamtune.algorithms.losses import clipped_share, clipped_surrogate, kl_estimate
from teamtune.errors import ConfigError
from teamtune.ranges import NonNegative, Positive


class Regularized(Algorithm):
    """Adds an entropy bonus and a KL term to a policy loss, both off in the papers."""

    def __init__(
        self,
        entropy_coef: NonNegative = 0.0,
        entropy_target: Positive | None = None,
        kl_coef: NonNegative = 0.0,
        **options: Any,
    ):
        """
        Args:
            entropy_coef: Weight of an entropy bonus per token.
            entropy_target: The bonus fades linearly and ends where the samples' mean entropy, in
                nats per token, reaches this; null keeps its full weight.
            kl_coef: Weight of the KL divergence to the policy at the start.

        Raises:
            ConfigError: A target without a bonus.
        """
        super().__init__(**options)
        if entropy_target is not None and not entropy_coef:
            raise ConfigError("entropy_target: no effect with entropy_coef 0")
        self.entropy_coef = entropy_coef
        self.entropy_target = entropy_target
        self.kl_coef = kl_coef
        self.needs_reference = kl_coef > 0

    @property
    def regularizes(self) -> bool:
        """Whether tokens without an advantage matter."""
        return self.entropy_coef > 0 or self.needs_reference

    def regularized(
        self, loss: Tensor, sums: dict[str, Tensor], batch: TokenBatch
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The summed loss with both terms, and what to report of them."""
        if self.entropy_coef:
            assert batch.entropy is not None
            loss = loss - self._entropy_weight(batch.sampled_entropy) * batch.sum(batch.entropy)
        if self.needs_reference:
            assert batch.ref_logprobs is not None
            kl = batch.sum(kl_estimate(batch.logprobs, batch.ref_logprobs))
            loss = loss + self.kl_coef * kl
            sums = {**sums, "ref_kl": kl.detach()}
        return loss, sums

    def _entropy_weight(self, sampled_entropy: float) -> float:
        if self.entropy_target is None:
            return self.entropy_coef
        return self.entropy_coef * max(0.0, 1 - sampled_entropy / self.entropy_target)


class Clipped(Regularized):
    """The clipped surrogate of PPO against the sampling distribution, token by token."""

    def __init__(self, clip_low: Positive = 0.2, clip_high: Positive = 0.2, **options: Any):
        """
        Args:
            clip_low: Lower clipping range of the probability ratio.
            clip_high: Upper clipping range of the probability ratio.
        """
        super().__init__(**options)
        self.clip_low, self.clip_high = clip_low, clip_high

    def loss(self, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        terms = (batch.logprobs, batch.sampling_logprobs, batch.advantages)
        clip = (self.clip_low, self.clip_high)
        sums = {"clip_frac": batch.sum(clipped_share(*terms, *clip).detach())}
        return self.regularized(batch.sum(clipped_surrogate(*terms, *clip)), sums, batch)
