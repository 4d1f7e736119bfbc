"""Drawing tokens row by row, so that a row's draws depend on its own seed and step only.

One uniform number per (seed, step) comes from a counter-based hash and picks the token by inverting
the cumulative distribution: nothing depends on which rows share a batch or in what order they came.
"""

import numpy as np
import torch
from torch import Tensor

BLOCK = 64
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


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
    scores = logits.float()
    if temperature not in (0, 1):
        scores = scores / temperature
    if temperature and (top_k or top_p < 1):
        scores = _truncate(scores, top_p, top_k)
    top, best = scores.max(-1)
    weights = (scores - top[:, None]).exp_()
    total = weights.sum(-1)
    ids = best if temperature == 0 else _invert(weights, uniform.to(weights.device))
    chosen = scores.gather(1, ids[:, None])[:, 0]
    return ids, chosen - top - total.log()


def _invert(weights: Tensor, uniform: Tensor) -> Tensor:
    """[N] indices: where the cumulative sum of weights [N, V] passes the share `uniform` of it.

    In two levels, for a cumulative sum over a whole vocabulary is many times slower than a sum.
    """
    width = -(-weights.shape[1] // BLOCK) * BLOCK
    blocks = torch.nn.functional.pad(weights, (0, width - weights.shape[1])).unflatten(
        1, (-1, BLOCK)
    )
    sums = blocks.sum(-1).double()
    block, rest = _pass(sums, uniform * sums.sum(-1))
    inside = blocks[torch.arange(len(blocks), device=blocks.device), block].double()
    return block * BLOCK + _pass(inside, rest)[0]


def _pass(weights: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The first index at which the cumulative sum exceeds the target, and the rest there."""
    cumulative = weights.cumsum(-1)
    end = cumulative[:, -1]
    target = torch.minimum(target, torch.nextafter(end, torch.zeros_like(end)))
    index = torch.searchsorted(cumulative, target[:, None], right=True)
    before = cumulative.gather(1, index) - weights.gather(1, index)
    return index[:, 0], target - before[:, 0]


def _truncate(scores: Tensor, top_p: float, top_k: int) -> Tensor:
    """Scores with -inf outside the k likeliest tokens, and outside their nucleus of mass p."""
    ordered, order = scores.sort(dim=-1, descending=True)
    if top_k:
        ordered[:, top_k:] = float("-inf")
    probs = ordered.softmax(-1)
    dropped = (probs.cumsum(-1) - probs >= top_p) | (ordered == float("-inf"))
    dropped[:, 0] = False
    mask = torch.zeros_like(dropped).scatter(1, order, dropped)
    return scores.masked_fill(mask, float("-inf"))
