"""Curves of a metric against generated tokens, and means over seeds with their interval."""

import math
from collections.abc import Sequence
from itertools import pairwise

from teamtune.experience.metrics import Z95

STUDENT: tuple[float, ...] = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
)
STUDENT += (2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064)
"""The 97.5 % quantile of Student's distribution for 1, 2, ... degrees of freedom."""

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
    quantile = STUDENT[n - 2] if n - 2 < len(STUDENT) else Z95
    half = quantile * deviation / math.sqrt(n)
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
