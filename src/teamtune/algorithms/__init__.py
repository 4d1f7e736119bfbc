"""Reinforcement-learning algorithms for teams."""

from teamtune.algorithms.algorithm import Algorithm, TokenBatch
from teamtune.algorithms.at_grpo import ATGRPO
from teamtune.algorithms.magrpo import MAGRPO

__all__ = ["ATGRPO", "MAGRPO", "Algorithm", "TokenBatch"]
