"""Trajectory sampling: whole episodes, one answer per agent and turn, as a team is used.

K of them from one start are what GRPO over trajectories compares; one is an evaluation.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from teamtune.envs import Environment
from teamtune.experience import Rollout, Turn
from teamtune.inference import RolloutEngine, Sampling
from teamtune.ranges import PositiveInt
from teamtune.rollout.sampler import Game, Played, Sampler, Team, path
from teamtune.tasks import Task


class TrajectorySampler(Sampler):
    """K episodes of a task side by side, each a rollout of its own."""

    def __init__(
        self,
        num_candidates: PositiveInt = 1,
        max_turns: PositiveInt = 4,
        sampling: Sampling | None = None,
    ):
        """
        Args:
            num_candidates: K, the episodes of a task that are compared.
            max_turns: T, how often each agent acts at most.
            sampling: How to draw tokens; null takes each engine's default, for a single episode
                with greedy decoding, as in evaluation.
        """
        self.num_candidates = num_candidates
        self.max_turns = max_turns
        self.sampling = sampling

    @property
    def width(self) -> int:
        return 1

    async def sample(
        self, env: Environment[Any], task: Task, team: Team, seed: int
    ) -> list[Rollout]:
        game, start = Game(env, task, team, seed), env.reset(task)
        nodes = [f"#{k}" for k in range(self.num_candidates)] if self.num_candidates > 1 else [""]
        found = await asyncio.gather(*(self.grow(game, start, node) for node in nodes))
        return [path(game, first, k) for k, first in enumerate(found)]

    def sampling_for(self, engine: RolloutEngine) -> Sampling:
        if self.sampling is None and self.num_candidates == 1:
            return replace(engine.sampling, temperature=0.0, top_p=1.0, top_k=0)
        return self.sampling or engine.sampling

    async def carry(
        self, game: Game, turn: Turn, played: Sequence[Played], left: int
    ) -> list[Played]:
        if not played or any(c.reward is None for g in turn.groups for c in g.candidates):
            turn.error = "no candidate could be carried on"
            return []
        for group in turn.groups:
            group.candidates[0].selected = True
        return list(played)
