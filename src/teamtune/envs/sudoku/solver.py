"""Demonstrators for Sudoku: one who knows the solution, made worse on purpose."""

import random
from collections.abc import Callable

from teamtune.envs.demonstrator import NoisyLists
from teamtune.envs.sudoku.environment import Sudoku, SudokuState


class NoisySolver(NoisyLists):
    """Fills the cells that are empty or wrong in order, `1,2,4 3,3,1`."""

    def plan(
        self, env: Sudoku, state: SudokuState, rng: random.Random, sure: Callable[[int], bool]
    ) -> list[str]:
        size, placed = state.size, list[str]()
        left = [i for i, value in enumerate(state.cells) if value != state.solution[i]]
        for index in left[: self.length or env.max_cells]:
            value = state.solution[index] if sure(len(placed)) else rng.randint(1, size)
            placed.append(f"{index // size + 1},{index % size + 1},{value}")
        return placed
