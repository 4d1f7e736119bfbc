"""Losses per token: pure functions of tensors [N] over response tokens, not reduced."""

import torch
from torch import Tensor

MOST_WEIGHT = 2.0


def policy_gradient(logprobs: Tensor, sampling_logprobs: Tensor, advantages: Tensor) -> Tensor:
    """-w A log pi, summed over a sequence REINFORCE's loss, with w = min(pi / pi_sampling, 2).

    The weight has no gradient: it is 1 but for what engine and trainer compute differently, and
    truncated because few tokens would have all of it (Ionides, 2008).
    """
    weight = (logprobs.detach() - sampling_logprobs).exp().clamp(max=MOST_WEIGHT)
    return -weight * advantages * logprobs


def clipped_surrogate(
    logprobs: Tensor,
    sampling_logprobs: Tensor,
    advantages: Tensor,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """-min(rho A, clip(rho, 1 - low, 1 + high) A) with rho = pi / pi_sampling (PPO, eq. 7)."""
    ratio = (logprobs - sampling_logprobs).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return -torch.minimum(ratio * advantages, clipped * advantages)


def clipped_share(
    logprobs: Tensor,
    sampling_logprobs: Tensor,
    advantages: Tensor,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """1 where clipping stops a token's gradient, else 0."""
    ratio = (logprobs - sampling_logprobs).exp()
    above = (advantages > 0) & (ratio > 1 + clip_high)
    below = (advantages < 0) & (ratio < 1 - clip_low)
    return (above | below).to(logprobs.dtype)


def kl_estimate(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """exp(d) - d - 1 with d = ref - pi: unbiased for KL(pi || ref) and never negative (k3)."""
    difference = ref_logprobs - logprobs
    return difference.exp() - difference - 1
