"""Plan-Path (Stronger-MAS): walk from start to goal on a grid with obstacles, as a team of two.

Each turn the first role proposes a list of moves, or a program that prints one; the planner sees
the board and the proposal and gives the list that is played.
Phi = -(shortest distance to the goal) / (that of the start).
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from teamtune.envs.coop_code.syntax import code_of
from teamtune.envs.environment import Environment, Message, Reward, Transition
from teamtune.envs.plan_path.board import (
    MOVES,
    Cell,
    Grid,
    around,
    distances,
    is_free,
    parse_moves,
    random_board,
    walk,
)
from teamtune.envs.prompts import Prompts, folder_of
from teamtune.errors import ConfigError, at_least
from teamtune.sandbox import Sandbox
from teamtune.tasks import Task

PLANNER, TOOL = "planner", "tool"


@dataclass(frozen=True, slots=True)
class PlanPathState:
    """A position on a board; `proposal` is the first role's list, None until it has acted."""

    grid: Grid
    goal: Cell
    start: Cell
    cell: Cell
    actor: str
    """Whose turn it is; empty when the goal has been reached."""
    proposal: str | None = None


class PlanPath(Environment[PlanPathState]):
    """The paper's Plan-Path task: 10 x 10 cells, obstacle probability 0.22.

    Local reward of the planner: the change of Phi. Team reward: 1 when the goal is reached. The
    first role's list moves nothing; its local reward is the progress the list would have made.
    A malformed answer leaves the state and earns less than any well-formed one; so does a program
    that fails or prints no list. Programs run in a sandbox.
    """

    def __init__(
        self,
        size: int = 10,
        obstacle_probability: float = 0.22,
        max_moves: int = 8,
        first_role: Literal["tool", "proposer", "none"] = "proposer",
        prompts: str = "chat",
        sandbox: Sandbox | None = None,
    ):
        """
        Args:
            size: Rows and columns of the board.
            obstacle_probability: Chance of each cell to be an obstacle, in [0, 1).
            max_moves: Longest list that is played; further moves of an answer are ignored.
            first_role: `tool`, the paper's, answers with a program that prints a list; `proposer`
                with a list; `none` leaves the first role out.
            prompts: `chat` (natural language), `compact` (words for tiny models), or a folder
                with one Jinja template per role.
            sandbox: Where the tool's programs run; null takes the default limits.

        Raises:
            ConfigError: A value out of its range, or a sandbox where nothing runs in it.
        """
        at_least(2, "data.environment.init_args.", size=size)
        at_least(1, "data.environment.init_args.", max_moves=max_moves)
        if not 0 <= obstacle_probability < 1:
            raise ConfigError(
                "data.environment.init_args.obstacle_probability: "
                f"got {obstacle_probability}, allowed: 0 <= p < 1"
            )
        if sandbox is not None and first_role != TOOL:
            raise ConfigError(
                f"sandbox: allowed with first_role {first_role}: null (no programs run)"
            )
        self.size = size
        self.obstacle_probability = obstacle_probability
        self.max_moves = max_moves
        self.agents = (PLANNER,) if first_role == "none" else (first_role, PLANNER)
        self.sandbox = (sandbox or Sandbox()) if first_role == TOOL else None
        self.reward_range = (-float(max_moves + 1), float(max_moves))
        self.prompts = Prompts(folder_of(Path(__file__).parent / "prompts", prompts), self.agents)

    def check(self) -> None:
        if self.sandbox is not None:
            _ = self.sandbox.protection  # which has to hold

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
        return PlanPathState(grid, goal, start, start, self.agents[0])

    def acting(self, state: PlanPathState) -> tuple[str, ...]:
        return (state.actor,) if state.actor else ()

    def observe(self, state: PlanPathState, agent: str) -> list[Message]:
        row, column = state.cell
        values: dict[str, Any] = {
            "grid": state.grid,
            "size": len(state.grid),
            "row": row,
            "column": column,
            "goal_row": state.goal[0],
            "goal_column": state.goal[1],
            "around": around(state.grid, state.cell, state.goal),
            "center": len(state.grid) - 1,
            "proposal": state.proposal if agent == PLANNER else None,
            "alone": len(self.agents) == 1,
            "max_moves": self.max_moves,
        }
        return self.prompts.render(agent, values)

    def potential(self, state: PlanPathState) -> float:
        to_goal = distances(state.grid, state.goal)
        return -to_goal[state.cell] / to_goal[state.start]

    async def transition(
        self, state: PlanPathState, actions: Mapping[str, str]
    ) -> Transition[PlanPathState]:
        agent = state.actor
        said = actions[agent] if agent != TOOL else await self._printed(state, actions[agent])
        moves = parse_moves(said, self.max_moves)
        planning = agent == PLANNER
        if moves is None:
            malformed = -(self.max_moves + 1) / distances(state.grid, state.goal)[state.start]
            rewards = {agent: Reward(local=malformed)}
            after = replace(state, actor=self.agents[0] if planning else PLANNER, proposal=None)
            return Transition(after, rewards, malformed=(agent,))
        moved = replace(state, cell=walk(state.grid, state.cell, state.goal, moves))
        progress = self.potential(moved) - self.potential(state)
        if not planning:
            after = replace(state, actor=PLANNER, proposal=moves)
            return Transition(after, {agent: Reward(local=progress)})
        solved = moved.cell == state.goal
        after = replace(moved, actor="" if solved else self.agents[0], proposal=None)
        reward = Reward(local=progress, team=float(solved))
        return Transition(after, {agent: reward}, done=solved, success=solved)

    def sample_actions(self, state: PlanPathState, agent: str) -> list[str]:
        rng = random.Random(repr((state.cell, state.goal)))
        lists = ["".join(rng.choices("UDLR", k=rng.randint(1, self.max_moves))) for _ in range(4)]
        answers = [*MOVES, *lists]
        return answers if agent != TOOL else [f"```\nprint({moves!r})\n```" for moves in answers]

    async def _printed(self, state: PlanPathState, answer: str) -> str:
        """What the program in an answer prints; nothing where it fails. It may read the board."""
        assert self.sandbox is not None
        marks = {state.cell: "S", state.goal: "G"}
        board = "\n".join(
            "".join(marks.get((r, c), mark) for c, mark in enumerate(row))
            for r, row in enumerate(state.grid)
        )
        result = await self.sandbox.run(code_of(answer), board + "\n")
        return result.stdout if result.status == "passed" else ""
