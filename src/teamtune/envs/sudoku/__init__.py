"""Sudoku: fill the empty cells of a grid that has one solution."""

from teamtune.envs.sudoku.environment import Sudoku, SudokuState
from teamtune.envs.sudoku.solver import NoisySolver

__all__ = ["NoisySolver", "Sudoku", "SudokuState"]
