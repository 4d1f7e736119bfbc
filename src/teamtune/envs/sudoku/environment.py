"""Sudoku (Stronger-MAS): fill the empty cells of a grid, as a team of two.

Each turn the first role proposes cells and their values, or a program that prints some; the planner
sees the grid and the proposal and gives what is filled in.
Phi = (cells filled in correctly) / (empty cells of the puzzle).
"""

import operator
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from teamtune.envs.prompts import folder_of
from teamtune.envs.proposal import FirstRole, ProposalState, ProposeAndPlay
from teamtune.envs.sudoku.grid import (
    SIZES,
    Grid,
    Placement,
    parse_placements,
    random_puzzle,
    solutions,
)
from teamtune.errors import ConfigError
from teamtune.ranges import PositiveInt
from teamtune.sandbox import Sandbox
from teamtune.tasks import Task

Plan = tuple[Placement, ...]
_ATTEMPTS = 200


@dataclass(frozen=True, slots=True)
class SudokuState(ProposalState):
    """A puzzle, its only solution, and the grid as it stands: the givens and what was filled in."""

    puzzle: Grid
    solution: Grid
    cells: Grid
    size: int


class Sudoku(ProposeAndPlay[SudokuState, Plan]):
    """The paper's Sudoku task: 4 x 4 cells, or 9 x 9; every puzzle has exactly one solution.

    An answer is a full grid or a list of (row, column, value); it may correct earlier ones. One
    that changes a given empties all that was filled in: Phi is 0. Solved where the grid is the
    solution.
    """

    def __init__(
        self,
        size: Literal[4, 9] = 4,
        empty: PositiveInt | None = None,
        max_cells: PositiveInt | None = None,
        first_role: FirstRole = "proposer",
        prompts: str = "chat",
        sandbox: Sandbox | None = None,
        proposers: PositiveInt = 1,
    ):
        """
        Args:
            size: Rows and columns of the grid.
            empty: Empty cells of a puzzle that is made; null is half of them.
            max_cells: Most cells that one answer fills, givens that it repeats left out; null is
                all. Further ones are ignored.
            first_role: `tool`, the paper's, answers with a program that prints a list; `proposer`
                with a list; `none` leaves the first role out.
            prompts: `chat` (natural language), `compact` (words for tiny models), or a folder
                with one Jinja template per role.
            sandbox: Where the tool's programs run; null takes the default limits.
            proposers: Agents of the first role, who act at once.

        Raises:
            ConfigError: More empty cells than there are, or a sandbox where nothing runs in it.
        """
        cells = size * size
        if empty is not None and empty > cells:
            raise ConfigError(f"empty: got {empty}, allowed: {cells} or less")
        folder = folder_of(Path(__file__).parent / "prompts", prompts)
        super().__init__(first_role, folder, sandbox, proposers)
        self.size = size
        self.empty = cells // 2 if empty is None else empty
        self.max_cells = cells if max_cells is None else max_cells
        self.reward_range = (-2.0, 1.0)

    def task(self, seed: int) -> Task:
        """The puzzle that `seed` stands for: `puzzle` and `solution`, rows of integers, 0 is empty.

        Raises:
            ConfigError: Nearly no puzzle with so many empty cells has one solution, or none.
        """
        rng = random.Random(f"sudoku/{self.size}/{self.empty}/{seed}")
        for _ in range(_ATTEMPTS):
            found = random_puzzle(rng, self.size, self.empty)
            if found is not None:
                puzzle, solution = (_rows(grid, self.size) for grid in found)
                return Task(f"sudoku-{seed}", {"puzzle": puzzle, "solution": solution})
        raise ConfigError(
            f"empty: got {self.empty}, with which {_ATTEMPTS} puzzles of size {self.size} had more "
            "than one solution"
        )

    def reset(self, task: Task) -> SudokuState:
        """The start of a task. Raises ValueError where `solution` is not the puzzle's only one."""
        puzzle, solution = (_grid(task, name) for name in ("puzzle", "solution"))
        size = len(task.data["puzzle"])
        if len(solution) != len(puzzle) or 0 in solution:
            raise ValueError(f"task {task.id}: solution must be a full grid of the puzzle's size")
        if 0 not in puzzle:
            raise ValueError(f"task {task.id}: puzzle has no empty cell")
        try:
            found = solutions(puzzle, size)
            first, second = next(found, None), next(found, None)
        except ValueError as error:
            raise ValueError(f"task {task.id}: {error}") from error
        if first is None:
            raise ValueError(f"task {task.id}: puzzle has no solution")
        if second is not None:
            raise ValueError(f"task {task.id}: puzzle has more than one solution")
        if first != solution:
            raise ValueError(f"task {task.id}: solution does not solve the puzzle")
        return SudokuState(puzzle, solution, puzzle, size, acting=self.beginning)

    def parse(self, state: SudokuState, text: str) -> Plan | None:
        found = parse_placements(text, state.puzzle, state.size)
        return None if found is None else found[: self.max_cells]

    def play(self, state: SudokuState, plan: Plan) -> SudokuState:
        puzzle, cells = state.puzzle, list(state.cells)
        for row, column, value in plan:
            index = (row - 1) * state.size + column - 1
            if puzzle[index] and puzzle[index] != value:
                cells = list(puzzle)
                break
            cells[index] = value
        return SudokuState(puzzle, state.solution, tuple(cells), state.size, acting=self.beginning)

    def solved(self, state: SudokuState) -> bool:
        return state.cells == state.solution

    def potential(self, state: SudokuState) -> float:
        empty = state.puzzle.count(0)
        correct = sum(map(operator.eq, state.cells, state.solution))
        return (correct - len(state.puzzle) + empty) / empty

    def describe(self, state: SudokuState) -> Mapping[str, Any]:
        return {
            "size": state.size,
            "puzzle": _rows(state.puzzle, state.size),
            "cells": _rows(state.cells, state.size),
            "max_cells": min(self.max_cells, state.puzzle.count(0)),
        }

    def draw(self, state: SudokuState) -> str:
        """The grid as it stands: a line of numbers per row, 0 for an empty cell."""
        return "\n".join(" ".join(map(str, row)) for row in _rows(state.cells, state.size))

    def sample_plans(self, state: SudokuState) -> list[str]:
        rng, size = random.Random(repr(state.cells)), state.size
        cells = [
            (r + 1, c + 1, state.solution[r * size + c]) for r in range(size) for c in range(size)
        ]
        empty = [cell for cell in cells if not state.puzzle[(cell[0] - 1) * size + cell[1] - 1]]
        wrong = [(r, c, v % size + 1) for r, c, v in cells]
        full = "\n".join(" ".join(map(str, row)) for row in _rows(state.solution, size))
        lists = [rng.sample(empty, min(2, len(empty))), rng.sample(wrong, 2), empty[:1], empty]
        forms = ("({}, {}, {})", "{},{},{}")
        return [full, *(" ".join(form.format(*c) for c in cs) for cs in lists for form in forms)]


def _grid(task: Task, name: str) -> Grid:
    """A task's grid as a tuple of its cells. Raises ValueError for what is none."""
    rows = task.data[name]
    square = isinstance(rows, list | tuple) and len(rows) in SIZES
    if not square or not all(isinstance(r, list | tuple) and len(r) == len(rows) for r in rows):
        raise ValueError(f"task {task.id}: {name} must be 4 rows of 4 numbers or 9 rows of 9")
    cells = tuple(value for row in rows for value in row)
    if any(type(value) is not int or not 0 <= value <= len(rows) for value in cells):
        raise ValueError(f"task {task.id}: {name} must hold whole numbers from 0 to {len(rows)}")
    return cells


def _rows(grid: Grid, size: int) -> list[list[int]]:
    return [list(grid[i : i + size]) for i in range(0, len(grid), size)]
