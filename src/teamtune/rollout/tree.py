"""Tree sampling (AT-GRPO): every turn of every agent is a group of K candidates from one prompt.

Each candidate is scored on its own successor of the same state, one of them is carried on, and the
next agent acts on that one's successor. Cost: agents x turns x K generations.
"""

import asyncio
import math
import random
from typing import Any, Literal

from teamtune.envs import Environment, Transition
from teamtune.errors import ConfigError, at_least, one_of
from teamtune.experience.records import Candidate, Group, GroupKey, Rollout
from teamtune.inference import RolloutEngine, Sampling
from teamtune.rollout.sampler import Sampler, Team, score
from teamtune.seeds import derive_seed
from teamtune.tasks import Task


class TreeSampler(Sampler):
    """K candidates per (task, agent, turn), one branch carried on (Stronger-MAS, algorithm 1)."""

    def __init__(
        self,
        num_candidates: int = 4,
        max_turns: int = 4,
        alpha: float = 1.0,
        select: Literal["greedy", "softmax", "random"] = "greedy",
        sampling: Sampling | None = None,
    ):
        """
        Args:
            num_candidates: K, at least 1; a comparison needs at least 2.
            max_turns: How often each agent acts at most.
            alpha: Weight of the team reward: reward = alpha * team + local.
            select: Which candidate is carried on: the best (ties at random), one drawn with
                probability proportional to exp(reward), or any.
            sampling: How to draw tokens; None leaves it to each engine's default.

        Raises:
            ConfigError: A value out of its range.
        """
        at_least(1, num_candidates=num_candidates, max_turns=max_turns)
        if not math.isfinite(alpha):
            raise ConfigError(f"alpha: got {alpha}, allowed: a finite number")
        one_of(("greedy", "softmax", "random"), select=select)
        self.num_candidates = num_candidates
        self.max_turns = max_turns
        self.alpha = alpha
        self.select = select
        self.sampling = sampling

    async def sample(self, env: Environment[Any], task: Task, team: Team, seed: int) -> Rollout:
        state = start = env.reset(task)
        rollout = Rollout(task.id)
        turns = dict.fromkeys(env.agents, 0)
        while acting := env.acting(state):
            if any(turns[agent] >= self.max_turns for agent in acting):
                break
            groups = await asyncio.gather(
                *(
                    team.ask(
                        env,
                        state,
                        GroupKey(task.id, agent, turns[agent]),
                        self.num_candidates,
                        seed,
                        self.sampling_for,
                    )
                    for agent in acting
                )
            )
            rollout.groups += groups
            step = await self._step(env, state, groups, seed)
            if step is None:
                rollout.error, rollout.levels = "no candidate could be carried on", {}
                break
            for agent in acting:
                turns[agent] += 1
            state, rollout.success = step.state, step.success
            rollout.levels = dict(step.outcome.levels or rollout.levels)
            if step.done:
                break
        rollout.return_ = env.potential(state) - env.potential(start) + float(rollout.success)
        return rollout

    def sampling_for(self, engine: RolloutEngine) -> Sampling:
        """How `engine` is to draw tokens."""
        return self.sampling or engine.sampling

    async def _step(
        self, env: Environment[Any], state: Any, groups: list[Group], seed: int
    ) -> Transition[Any] | None:
        """Scores all candidates and marks the selected; its transition, None where none is valid.

        Agents that act at once form the aligned joint actions: candidate j of each. Then every
        agent's candidate is selected by its own local reward, ties by the whole one, and one more
        transition with the selected joint action, which credits nobody, gives the state.
        """
        joints = [
            {g.key.agent: g.candidates[j] for g in groups} for j in range(self.num_candidates)
        ]
        steps = await score(env, state, joints)
        for group in groups:
            for candidate, step in zip(group.candidates, steps):
                if step is not None:
                    reward = step.rewards[group.key.agent]
                    value = self.alpha * reward.team + reward.local
                    if not math.isfinite(value):
                        candidate.error = f"the reward is not a finite number: {value}"
                        continue
                    candidate.reward = value
                    candidate.reward_local, candidate.reward_team = reward.local, reward.team
                    candidate.judged = step.outcome.judged
                    candidate.malformed = group.key.agent in step.malformed
        if any(all(c.reward is None for c in group.candidates) for group in groups):
            return None
        chosen = [self._choose(group, seed, alone=len(groups) == 1) for group in groups]
        for group, j in zip(groups, chosen):
            group.candidates[j].selected = True
        if len(set(chosen)) == 1:
            return steps[chosen[0]]
        joint = {g.key.agent: g.candidates[j] for g, j in zip(groups, chosen)}
        return (await score(env, state, [joint]))[0]

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
