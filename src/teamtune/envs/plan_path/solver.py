"""Demonstrators for Plan-Path: a shortest-path solver, made worse on purpose."""

import random

from teamtune.envs.plan_path.board import MOVES, Cell, distances, is_free
from teamtune.envs.plan_path.environment import PlanPath, PlanPathState
from teamtune.envs.proposal import TOOL, program_for
from teamtune.ranges import NonNegativeInt, PositiveInt, Share


class NoisySolver:
    """Plays a shortest path, but each move after the first few is random with some probability."""

    def __init__(
        self,
        noise: Share = 1.0,
        sure_moves: NonNegativeInt = 1,
        length: PositiveInt | None = None,
    ):
        """
        Args:
            noise: Chance that a move is a random possible one instead of a best one.
            sure_moves: How many first moves of a list are free of noise.
            length: Moves of a list; null takes the environment's maximum.
        """
        self.noise = noise
        self.sure_moves = sure_moves
        self.length = length

    def answer(self, env: PlanPath, state: PlanPathState, agent: str, rng: random.Random) -> str:
        """A list of moves from the current cell, `U R R`, up to the goal; of a tool its program."""
        to_goal = distances(state.grid, state.goal)
        cell, moves = state.cell, []
        for index in range(self.length or env.max_moves):
            if cell == state.goal:
                break
            options = _possible(state, cell)
            if index < self.sure_moves or rng.random() >= self.noise:
                best = min(to_goal[ahead] for _, ahead in options)
                options = [option for option in options if to_goal[option[1]] == best]
            move, cell = rng.choice(options)
            moves.append(move)
        listed = " ".join(moves)
        return program_for(listed) if agent == TOOL else listed


def _possible(state: PlanPathState, cell: Cell) -> list[tuple[str, Cell]]:
    ahead = [(m, (cell[0] + d[0], cell[1] + d[1])) for m, d in MOVES.items()]
    return [(m, c) for m, c in ahead if is_free(state.grid, c)]
