"""Reinforcement-learning algorithms for teams."""

from teamtune.algorithms.algorithm import Algorithm, TokenBatch
from teamtune.algorithms.at_grpo import ATGRPO

__all__ = ["ATGRPO", "Algorithm", "TokenBatch"]
