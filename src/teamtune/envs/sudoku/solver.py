"""Demonstrators for Sudoku: one who knows the solution, made worse on purpose."""

import random

from teamtune.envs.proposal import TOOL, program_for
from teamtune.envs.sudoku.environment import Sudoku, SudokuState
from teamtune.ranges import NonNegativeInt, PositiveInt, Share


class NoisySolver:
    """Fills cells in order, but each one after the first few by chance with some probability."""

    def __init__(
        self,
        noise: Share = 1.0,
        sure_cells: NonNegativeInt = 1,
        length: PositiveInt | None = None,
    ):
        """
        Args:
            noise: Chance that a cell gets a random value instead of its own.
            sure_cells: How many first cells of a list are free of noise.
            length: Cells of a list; null takes the environment's maximum.
        """
        self.noise = noise
        self.sure_cells = sure_cells
        self.length = length

    def answer(self, env: Sudoku, state: SudokuState, agent: str, rng: random.Random) -> str:
        """A list of cells that are empty or wrong, `1,2,4 3,3,1`; of a tool its program."""
        size, placed = state.size, list[str]()
        left = [i for i, value in enumerate(state.cells) if value != state.solution[i]]
        for index in left[: self.length or env.max_cells]:
            value = state.solution[index]
            if len(placed) >= self.sure_cells and rng.random() < self.noise:
                value = rng.randint(1, size)
            placed.append(f"{index // size + 1},{index % size + 1},{value}")
        listed = " ".join(placed)
        return program_for(listed) if agent == TOOL else listed
