"""Curves of a metric against generated tokens, and means over seeds with their interval."""

import math
from collections.abc import Sequence
from itertools import pairwise

from scipy.stats import t as student

Point = tuple[float, float]
"""Tokens generated so far, and the metric."""


def mean(values: Sequence[float]) -> float:
    """Of one or more values."""
    return math.fsum(values) / len(values)


def seed_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of the mean, by Student; None for a single value."""
    n = len(values)
    if n < 2:
        return None
    center = mean(values)
    deviation = math.sqrt(math.fsum((v - center) ** 2 for v in values) / (n - 1))
    half = float(student.ppf(0.975, n - 1)) * deviation / math.sqrt(n)
    return center - half, center + half


def value_at(curve: Sequence[Point], tokens: float) -> float:
    """The metric at `tokens`, on the line between the evaluations around it, or the end's."""
    for (a, before), (b, after) in pairwise(curve):
        if a <= tokens < b:
            return before + (after - before) * (tokens - a) / (b - a)
    return curve[-1][1]


def tokens_to(curve: Sequence[Point], threshold: float) -> float | None:
    """Where the line between evaluations first reaches `threshold`; None where it never does."""
    if curve[0][1] >= threshold:
        return curve[0][0]
    for (a, before), (b, after) in pairwise(curve):
        if after >= threshold:
            return a + (b - a) * (threshold - before) / (after - before)
    return None
