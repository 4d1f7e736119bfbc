"""What the losses of several algorithms share: clipping, a mask, an entropy bonus, a KL term."""

import math
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from teamtune.algorithms.algorithm import Algorithm, TokenBatch
from teamtune.algorithms.losses import clipped_share, clipped_surrogate, kl_estimate
from teamtune.errors import ConfigError
from teamtune.ranges import FromOne, NonNegative, Positive, PositiveInt


class Regularized(Algorithm):
    """Adds an entropy bonus and a KL term to a policy loss, both off in the papers.

    They are means over all sampled tokens, whatever their advantage: a policy that has collapsed
    has groups without spread only, and nothing else could free it.

    Out of the policy loss it leaves tokens on which engine and trainer disagree: no clipping bounds
    the ratio where the advantage is negative, so a single one could be most of a gradient.
    """

    def __init__(
        self,
        entropy_coef: NonNegative = 0.0,
        entropy_target: Positive | None = None,
        entropy_steps: PositiveInt | None = None,
        kl_coef: NonNegative = 0.0,
        max_mismatch: FromOne | None = 8.0,
        mask_of: Literal["token", "answer"] = "token",
        **options: Any,
    ):
        """
        Args:
            entropy_coef: Weight of an entropy bonus per token.
            entropy_target: The bonus fades linearly and ends where the samples' mean entropy, in
                nats per token, reaches this; null keeps its full weight.
            entropy_steps: The bonus falls linearly and ends after this many rollout steps; null
                keeps it to the end.
            kl_coef: Weight of the KL divergence to the policy at the start.
            max_mismatch: Tokens whose probabilities under trainer and engine differ by more than
                this factor are left out of the policy loss; null keeps them.
            mask_of: What is left out for such a `token`: it alone, or the whole `answer`.

        Raises:
            ConfigError: A target or a number of steps without a bonus, a mask that is off.
        """
        super().__init__(**options)
        for name, value in (("entropy_target", entropy_target), ("entropy_steps", entropy_steps)):
            if value is not None and not entropy_coef:
                raise ConfigError(f"{name}: no effect with entropy_coef 0")
        if max_mismatch is None and mask_of != "token":
            raise ConfigError(f"mask_of: got {mask_of}, no effect with max_mismatch null")
        self.max_mismatch = max_mismatch
        self.mask_of = mask_of
        self.entropy_coef = entropy_coef
        self.entropy_target = entropy_target
        self.entropy_steps = entropy_steps
        self.kl_coef = kl_coef
        self.needs_reference = kl_coef > 0
        self.regularizes = entropy_coef > 0 or kl_coef > 0
        self.step = 0

    def trusted(self, batch: TokenBatch) -> tuple[TokenBatch, dict[str, Tensor]]:
        """The batch with tokens that are left out at weight 0 and ratio 1, and how many they are.

        They stay in the denominator, which was counted before anything was scored.
        """
        if self.max_mismatch is None:
            return batch, {}
        gap = batch.mismatch
        if gap is None:
            gap = batch.logprobs.detach() - batch.sampling_logprobs
        out = (gap.abs() > math.log(self.max_mismatch)) & gap.isfinite()  # others end the run
        if self.mask_of == "answer":
            out = sequence_means(out.float(), batch.sequence) > 0
        logprobs = torch.where(out, batch.sampling_logprobs, batch.logprobs)
        sums = {"mismatch_frac": batch.sum(out.to(batch.weight.dtype))}
        return replace(batch, logprobs=logprobs, weight=batch.weight * ~out), sums

    def regularizer(self, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """-weight * entropy + kl_coef * KL, summed over all sampled tokens."""
        total, sums = super().regularizer(batch)
        if self.entropy_coef:
            assert batch.entropy is not None
            total = total - self._entropy_weight(batch.sampled_entropy) * batch.total(batch.entropy)
        if self.needs_reference:
            assert batch.ref_logprobs is not None
            kl = batch.total(kl_estimate(batch.logprobs, batch.ref_logprobs))
            total = total + self.kl_coef * kl
            sums = {**sums, "ref_kl": kl.detach()}
        return total, sums

    def _entropy_weight(self, sampled_entropy: float) -> float:
        weight = self.entropy_coef
        if self.entropy_target is not None:
            weight *= max(0.0, 1 - sampled_entropy / self.entropy_target)
        if self.entropy_steps is not None:
            weight *= max(0.0, 1 - self.step / self.entropy_steps)
        return weight

    def advance(self) -> None:
        self.step += 1

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]


class Clipped(Regularized):
    """The clipped surrogate of PPO against the sampling distribution."""

    def __init__(
        self,
        clip_low: Positive = 0.2,
        clip_high: Positive = 0.2,
        ratio_of: Literal["token", "sequence"] = "token",
        **options: Any,
    ):
        """
        Args:
            clip_low: Lower clipping range of the probability ratio.
            clip_high: Upper clipping range of the probability ratio.
            ratio_of: Each `token` has a ratio, or a `sequence` has one: the geometric mean of its
                tokens' (GSPO, arXiv 2507.18071, whose clipping ranges are about a thousandth).
        """
        super().__init__(**options)
        self.clip_low, self.clip_high = clip_low, clip_high
        self.ratio_of = ratio_of

    def loss(self, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        batch, sums = self.trusted(batch)
        logprobs, sampled = batch.logprobs, batch.sampling_logprobs
        if self.ratio_of == "sequence":
            logprobs, sampled = (sequence_means(x, batch.sequence) for x in (logprobs, sampled))
        terms = (logprobs, sampled, batch.advantages)
        clip = (self.clip_low, self.clip_high)
        sums["clip_frac"] = batch.sum(clipped_share(*terms, *clip).detach())
        return batch.sum(clipped_surrogate(*terms, *clip)), sums


def sequence_means(values: Tensor, sequence: Tensor) -> Tensor:
    """[N] at each token the mean of `values` [N] over its answer, `sequence` [N] says which."""
    lengths = torch.bincount(sequence)
    sums = values.new_zeros(len(lengths)).index_add(0, sequence, values)
    return (sums / lengths)[sequence]
