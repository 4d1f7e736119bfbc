"""Tree sampling (AT-GRPO): every turn of every agent is a group of K candidates from one prompt.

Each candidate is scored on its own successor of the same state, one of them is carried on, and the
next agent acts on that one's successor. Cost: agents x turns x K generations.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from teamtune.envs import Environment
from teamtune.errors import ConfigError
from teamtune.experience import Group, Rollout, Turn
from teamtune.ranges import Finite, Positive, PositiveInt
from teamtune.rollout.sampler import Game, Played, Sampler, Team, path, play
from teamtune.seeds import derive_seed
from teamtune.tasks import Task

DEMOTION = 0.1
"""How far a malformed answer lies below the worst other one, in units of the others' spread."""


class TreeSampler(Sampler):
    """K candidates per (task, agent, turn), one branch carried on (Stronger-MAS, algorithm 1).

    Agents that act at once form the aligned joint actions: candidate j of each. Then every agent's
    candidate is selected by its own local reward, ties by the whole one, and one more transition
    with the selected joint action, which credits nobody, gives the state.
    """

    def __init__(
        self,
        num_candidates: PositiveInt = 4,
        max_turns: PositiveInt = 4,
        alpha: Finite = 1.0,
        select: Literal["greedy", "softmax", "random"] = "greedy",
        select_temperature: Positive | None = None,
    ):
        """
        Args:
            num_candidates: K, the candidates of a group.
            max_turns: T, how often each agent acts at most.
            alpha: Weight of the team reward: reward = alpha * team + local.
            select: Which candidate is carried on: the best (`greedy`, ties at random), one drawn
                with probability proportional to exp(reward / temperature) (`softmax`), or any
                (`random`); a malformed one only where all are.
            select_temperature: That of `softmax`, in units of the reward; null is 1.

        Raises:
            ConfigError: A temperature without effect.
        """
        if select_temperature is not None and select != "softmax":
            raise ConfigError(
                f"select_temperature: got {select_temperature}, allowed with select {select}: null"
            )
        self.num_candidates = num_candidates
        self.max_turns = max_turns
        self.alpha = alpha
        self.select = select
        self.select_temperature = select_temperature or 1.0
        if select == "greedy" and num_candidates > 1:
            self.outcome = "success_best_of_k"

    async def sample(
        self, env: Environment[Any], task: Task, team: Team, seed: int
    ) -> list[Rollout]:
        game = Game(env, task, team, seed)
        return [path(game, await self.grow(game, env.reset(task)))]

    def score(self, turn: Turn, played: Sequence[Played]) -> list[Played]:
        counted = super().score(turn, played)
        for group in turn.groups:
            _demote_malformed(group)
        return counted

    async def carry(
        self, game: Game, turn: Turn, played: Sequence[Played], left: int
    ) -> list[Played]:
        if any(all(c.reward is None for c in group.candidates) for group in turn.groups):
            turn.error = "no candidate could be carried on"
            return []
        alone = len(turn.groups) == 1
        chosen = tuple(self._choose(group, game.seed, alone) for group in turn.groups)
        for group, j in zip(turn.groups, chosen):
            group.candidates[j].selected = True
        same = [p for p in played if p.joint.picks == chosen]
        carried = same or await play(game, turn, [chosen], compared=False)
        if not carried:
            turn.error = "the environment failed on the selected joint action"
        return carried

    def _choose(self, group: Group, seed: int, alone: bool) -> int:
        """The index of the candidate to carry on; the best one alone by its reward, else local."""
        scores = {j: c.score for j, c in enumerate(group.candidates) if c.score is not None}
        usable = {j: s for j, s in scores.items() if not s.malformed} or scores
        rng = random.Random(derive_seed(seed, "select", group.key))
        if self.select == "random":
            return rng.choice(list(usable))
        if self.select == "softmax":
            best = max(s.reward for s in usable.values())
            weights = [
                math.exp((s.reward - best) / self.select_temperature) for s in usable.values()
            ]
            return rng.choices(list(usable), weights)[0]
        ranked = {j: (s.reward if alone else s.local, s.reward) for j, s in usable.items()}
        return rng.choice([j for j, value in ranked.items() if value == max(ranked.values())])


def _demote_malformed(group: Group) -> None:
    """A malformed answer is worth less than every other of its group, by a tenth of their spread.

    A penalty of its own size would drown the differences between the others.
    """
    scores = [c.score for c in group.candidates if c.score is not None]
    others = [s.reward for s in scores if not s.malformed]
    if not others:
        return
    worst = min(others)
    step = DEMOTION * ((max(others) - worst) or 1.0)
    for candidate in group.candidates:
        if candidate.score is not None and candidate.score.malformed:
            candidate.score = replace(candidate.score, reward=worst - step)
