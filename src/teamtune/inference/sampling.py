"""Drawing tokens row by row, so that a row's draws depend on its own seed and step only.

One uniform number per (seed, step) comes from a counter-based hash and picks the token by inverting
the cumulative distribution: nothing depends on which rows share a batch or in what order they came.
"""

import hashlib

import numpy as np
import torch
from torch import Tensor

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def derive_seed(*parts: object) -> int:
    """A seed in [0, 2**48) from what identifies a draw; equal parts give equal seeds."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big")


def uniforms(seeds: np.ndarray, steps: np.ndarray) -> Tensor:
    """[N] numbers in [0, 1), float64, each a function of its own (seed, step) (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = _mix(_mix(seeds.astype(np.uint64) + _GOLDEN) + steps.astype(np.uint64) * _GOLDEN)
    return torch.from_numpy((mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def draw(
    logits: Tensor,
    uniform: Tensor,
    temperature: float,
    top_p: float = 1.0,
    top_k: int = 0,
) -> tuple[Tensor, Tensor]:
    """Token ids and their log-probs, [N] each, from logits [N, V] and numbers [N] in [0, 1).

    At temperature 0 the likeliest token, scored at temperature 1.
    """
    logprobs = torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)
    if temperature == 0:
        ids = logprobs.argmax(-1)
    else:
        if top_k or top_p < 1:
            logprobs = _truncate(logprobs, top_p, top_k)
        cumulative = logprobs.exp().cumsum(-1, dtype=torch.double)
        target = uniform.to(cumulative.device)[:, None] * cumulative[:, -1:]
        ids = torch.searchsorted(cumulative, target, right=True)[:, 0].clamp_(max=logits.shape[1] - 1)
    return ids, logprobs.gather(1, ids[:, None])[:, 0]


def _truncate(logprobs: Tensor, top_p: float, top_k: int) -> Tensor:
    """Log-probs of the distribution cut to its k likeliest tokens and its nucleus of mass p."""
    ordered, order = logprobs.sort(dim=-1, descending=True)
    dropped = (ordered.exp().cumsum(-1) - ordered.exp()) >= top_p
    if top_k:
        dropped[:, top_k:] = True
    dropped[:, 0] = False
    mask = torch.zeros_like(dropped).scatter(1, order, dropped)
    return torch.log_softmax(logprobs.masked_fill(mask, float("-inf")), dim=-1)
