"""Sokoban: push boxes onto targets."""

from teamtune.envs.sokoban.environment import Sokoban, SokobanState
from teamtune.envs.sokoban.solver import NoisySolver

__all__ = ["NoisySolver", "Sokoban", "SokobanState"]
