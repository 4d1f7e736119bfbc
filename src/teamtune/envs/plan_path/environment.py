"""Plan-Path (Stronger-MAS): walk from start to goal on a grid with obstacles, as a team of two.

Each turn the first role proposes a list of moves, or a program that prints one; the planner sees
the board and the proposal and gives the list that is played.
Phi = -(shortest distance to the goal) / (that of the start).
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from teamtune.envs.answers import moves_of
from teamtune.envs.plan_path.board import (
    MOVES,
    Cell,
    Grid,
    around,
    distances,
    is_free,
    random_board,
    walk,
)
from teamtune.envs.prompts import folder_of
from teamtune.envs.proposal import FirstRole, ProposalState, ProposeAndPlay
from teamtune.errors import ConfigError
from teamtune.ranges import PositiveInt, Share
from teamtune.sandbox import Sandbox
from teamtune.tasks import Task

LARGEST = 50
"""Rows of the largest board that is made."""


@dataclass(frozen=True, slots=True)
class PlanPathState(ProposalState):
    """A position on a board."""

    grid: Grid
    goal: Cell
    start: Cell
    cell: Cell


class PlanPath(ProposeAndPlay[PlanPathState, str]):
    """The paper's Plan-Path task: 10 x 10 cells, obstacle probability 0.22.

    Solved where the planner's list reaches the goal. A list ends there, and at an impossible move.
    """

    def __init__(
        self,
        size: PositiveInt = 10,
        obstacle_probability: Share = 0.22,
        max_moves: PositiveInt = 8,
        first_role: FirstRole = "proposer",
        prompts: str = "chat",
        sandbox: Sandbox | None = None,
        proposers: PositiveInt = 1,
    ):
        """
        Args:
            size: Rows and columns of the board, 2 to 50.
            obstacle_probability: Chance of each cell to be an obstacle.
            max_moves: Longest list that is played; further moves of an answer are ignored.
            first_role: `tool`, the paper's, answers with a program that prints a list; `proposer`
                with a list; `none` leaves the first role out.
            prompts: `chat` (natural language), `compact` (words for tiny models), or a folder
                with one Jinja template per role.
            sandbox: Where the tool's programs run; null takes the default limits.
            proposers: Agents of the first role, who act at once.

        Raises:
            ConfigError: A size out of its range, or a sandbox where nothing runs in it.
        """
        if not 2 <= size <= LARGEST:
            raise ConfigError(f"size: got {size}, allowed: 2 to {LARGEST}")
        folder = folder_of(Path(__file__).parent / "prompts", prompts)
        super().__init__(first_role, folder, sandbox, proposers)
        self.size = size
        self.obstacle_probability = obstacle_probability
        self.max_moves = max_moves
        self.reward_range = (-float(max_moves), float(max_moves))

    def task(self, seed: int, detour: bool = False) -> Task:
        """The board that `seed` stands for: `grid` (rows of `.` and `#`), `start`, `goal`.

        With `detour` one on which no straight way leads to the goal.
        """
        rng = random.Random(f"plan-path/{self.size}/{self.obstacle_probability}/{detour}/{seed}")
        grid, start, goal = random_board(rng, self.size, self.obstacle_probability, detour)
        return Task(f"plan-path-{seed}", {"grid": list(grid), "start": start, "goal": goal})

    def reset(self, task: Task) -> PlanPathState:
        """The start of a task. Raises ValueError where the data are no solvable board."""
        grid = tuple(task.data["grid"])
        start, goal = tuple(task.data["start"]), tuple(task.data["goal"])
        if not grid or any(len(row) != len(grid[0]) or set(row) - {".", "#"} for row in grid):
            raise ValueError(f"task {task.id}: grid must be equally long rows of '.' and '#'")
        if not (is_free(grid, start) and is_free(grid, goal)) or start == goal:
            raise ValueError(f"task {task.id}: start and goal must be two different free cells")
        if start not in distances(grid, goal):
            raise ValueError(f"task {task.id}: no path leads from start to goal")
        return PlanPathState(grid, goal, start, start, acting=self.beginning)

    def parse(self, state: PlanPathState, text: str) -> str | None:
        return moves_of(text, self.max_moves)

    def play(self, state: PlanPathState, plan: str) -> PlanPathState:
        cell = walk(state.grid, state.cell, state.goal, plan)
        return PlanPathState(state.grid, state.goal, state.start, cell, acting=self.beginning)

    def solved(self, state: PlanPathState) -> bool:
        return state.cell == state.goal

    def potential(self, state: PlanPathState) -> float:
        to_goal = distances(state.grid, state.goal)
        return -to_goal[state.cell] / to_goal[state.start]

    def describe(self, state: PlanPathState) -> Mapping[str, Any]:
        row, column = state.cell
        return {
            "grid": state.grid,
            "height": len(state.grid),
            "width": len(state.grid[0]),
            "row": row,
            "column": column,
            "goal_row": state.goal[0],
            "goal_column": state.goal[1],
            "board": self.draw(state),
            "around": around(state.grid, state.cell, state.goal),
            "max_moves": self.max_moves,
        }

    def draw(self, state: PlanPathState) -> str:
        """The grid, with `S` where we stand and `G` where the goal is."""
        rows = [list(row) for row in state.grid]
        for (row, column), mark in ((state.cell, "S"), (state.goal, "G")):
            rows[row][column] = mark
        return "\n".join(map("".join, rows))

    def sample_plans(self, state: PlanPathState) -> list[str]:
        rng = random.Random(repr((state.cell, state.goal)))
        lists = ["".join(rng.choices("UDLR", k=rng.randint(1, self.max_moves))) for _ in range(4)]
        return [*MOVES, *lists]
