"""Reinforcement-learning algorithms for teams."""

from teamtune.algorithms.algorithm import Algorithm, TokenBatch
from teamtune.algorithms.at_grpo import ATGRPO
from teamtune.algorithms.gigpo import GiGPO
from teamtune.algorithms.grpo import GRPO
from teamtune.algorithms.magrpo import MAGRPO

__all__ = ["ATGRPO", "GRPO", "MAGRPO", "Algorithm", "GiGPO", "TokenBatch"]
