"""Demonstrators for Plan-Path: a shortest-path solver, made worse on purpose."""

import random
from collections.abc import Callable

from teamtune.envs.demonstrator import NoisyLists
from teamtune.envs.plan_path.board import MOVES, Cell, distances, is_free
from teamtune.envs.plan_path.environment import PlanPath, PlanPathState


class NoisySolver(NoisyLists):
    """Plays a shortest path, `U R R`, up to the goal."""

    def plan(
        self, env: PlanPath, state: PlanPathState, rng: random.Random, sure: Callable[[int], bool]
    ) -> list[str]:
        to_goal = distances(state.grid, state.goal)
        cell, moves = state.cell, list[str]()
        for index in range(self.length or env.max_moves):
            if cell == state.goal:
                break
            options = _possible(state, cell)
            if sure(index):
                best = min(to_goal[ahead] for _, ahead in options)
                options = [option for option in options if to_goal[option[1]] == best]
            move, cell = rng.choice(options)
            moves.append(move)
        return moves


def _possible(state: PlanPathState, cell: Cell) -> list[tuple[str, Cell]]:
    ahead = [(m, (cell[0] + d[0], cell[1] + d[1])) for m, d in MOVES.items()]
    return [(m, c) for m, c in ahead if is_free(state.grid, c)]
