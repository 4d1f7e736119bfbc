"""Tree sampling (AT-GRPO): every turn of every agent is a group of K candidates from one prompt.

Each candidate is scored on its own successor of the same state, one of them is carried on, and the
next agent acts on that one's successor. Cost: agents x turns x K generations.
"""

import math
import random
from collections.abc import Sequence
from typing import Any, Literal

from teamtune.envs import Environment
from teamtune.experience import Candidate, Group, Rollout, Turn
from teamtune.ranges import Finite, PositiveInt
from teamtune.rollout.sampler import Game, Played, Sampler, Team, path, play
from teamtune.seeds import derive_seed
from teamtune.tasks import Task


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
    ):
        """
        Args:
            num_candidates: K, the candidates of a group.
            max_turns: T, how often each agent acts at most.
            alpha: Weight of the team reward: reward = alpha * team + local.
            select: Which candidate is carried on: the best (`greedy`, ties at random), one drawn
                with probability proportional to exp(reward) (`softmax`), or any (`random`).
        """
        self.num_candidates = num_candidates
        self.max_turns = max_turns
        self.alpha = alpha
        self.select = select

    async def sample(
        self, env: Environment[Any], task: Task, team: Team, seed: int
    ) -> list[Rollout]:
        game = Game(env, task, team, seed)
        return [path(game, await self.grow(game, env.reset(task)))]

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
        """The index of the candidate to carry on; by its reward if alone, else by its local one."""
        values = {
            j: _comparable(c, alone) for j, c in enumerate(group.candidates) if c.reward is not None
        }
        rng = random.Random(derive_seed(seed, "select", group.key))
        if self.select == "random":
            return rng.choice(list(values))
        best = max(values.values())
        if self.select == "softmax":
            weights = [math.exp(value - best) for value in values.values()]
            return rng.choices(list(values), weights)[0]
        tied = {j: group.candidates[j].reward or 0.0 for j, v in values.items() if v == best}
        return rng.choice([j for j, value in tied.items() if value == max(tied.values())])


def _comparable(candidate: Candidate, alone: bool) -> float:
    value = candidate.reward if alone else candidate.reward_local
    assert value is not None
    return value
