"""Joint sampling (MAGRPO): all agents of a turn answer at once, and joint actions are scored.

Each acting agent samples G answers to its own prompt. `aligned` pairs the j-th answers, `cross`
tries every combination. In a `tree` each joint action opens a branch with groups of its own; a
`chain` carries one on. A branch is named by the joint actions that led to it (`GroupKey.node`).
"""

import asyncio
import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from teamtune.envs import Environment, TeamWork, Transition
from teamtune.errors import ConfigError, at_least, one_of
from teamtune.experience.records import Group, GroupKey, Joint, Rollout
from teamtune.rollout.sampler import Sampler, Team, score
from teamtune.seeds import derive_seed
from teamtune.tasks import Task

Pairing = Literal["aligned", "cross"]
Branching = Literal["tree", "chain"]


@dataclass
class _Branch:
    """What lies below a state; `return_` is None where a failure hides it."""

    groups: list[Group] = field(default_factory=list)
    return_: float | None = 0.0
    success: bool = False
    error: str | None = None
    levels: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Opened:
    """A scored joint action: each agent's pick, what it led to, and whether that ends it."""

    pick: tuple[int, ...]
    joint: Joint
    step: Transition[Any]
    over: bool

    @property
    def solved(self) -> bool:
        """The environment's verdict, also where the sampler ends the branch."""
        return self.step.success or (self.over and self.step.outcome.solved)


class JointSampler(Sampler):
    """G joint actions (or all combinations) per turn and branch (MAGRPO, arXiv 2508.04652).

    The joint reward is the mean over the acting agents of team + local: where all share the team
    reward and no local one is given, that reward. A joint action with a failed generation or
    transition is left out; an answer that is in no other one has reward None. A branch that ends
    early, at the threshold or in the environment's success, keeps its final reward for every
    remaining turn (of the environment where it says how many), so that finishing early never
    pays less than failing first. The rollout's
    `success` and `levels` are those of its first branch (one draw of the team, as good as any; in a
    chain the one carried on), its `return_` the mean sum of joint rewards along a branch drawn at
    random.
    """

    def __init__(
        self,
        num_candidates: int = 4,
        max_turns: int = 1,
        pairing: Pairing = "aligned",
        branching: Branching = "tree",
        select: Literal["best", "random"] = "best",
        termination_threshold: float | None = None,
    ):
        """
        Args:
            num_candidates: G, the answers of each agent to one prompt.
            max_turns: T, how often each agent acts at most.
            pairing: `aligned` scores the j-th answers together, `cross` all combinations.
            branching: `tree` goes on from every joint action, `chain` from one.
            select: Which joint action a chain carries on: the `best` (ties at random) or `random`.
            termination_threshold: A branch ends where the joint reward reaches this; None: never.

        Raises:
            ConfigError: A value out of its range, or one without effect.
        """
        at_least(1, num_candidates=num_candidates, max_turns=max_turns)
        one_of(get_args(Pairing), pairing=pairing)
        one_of(get_args(Branching), branching=branching)
        one_of(("best", "random"), select=select)
        if select == "random" and branching == "tree":
            raise ConfigError("select: got 'random', allowed with branching tree (all go on): best")
        if termination_threshold is not None and not math.isfinite(termination_threshold):
            raise ConfigError(
                f"termination_threshold: got {termination_threshold}, allowed: a finite number"
            )
        if termination_threshold is not None and max_turns == 1:
            raise ConfigError(
                f"termination_threshold: got {termination_threshold}, allowed with max_turns 1: "
                "null (there is no later turn to end)"
            )
        self.num_candidates = num_candidates
        self.max_turns = max_turns
        self.pairing: Pairing = pairing
        self.branching: Branching = branching
        self.select = select
        self.termination_threshold = termination_threshold

    def leaves(self, num_agents: int) -> int:
        """Joint actions of the last turn, per task: aligned G^T, cross G^(N T) in a tree."""
        turns = self.max_turns if self.branching == "tree" else 1
        return self._width(num_agents) ** turns

    def describe(self, env: Environment[Any]) -> str:
        agents, about = len(env.agents), ""
        if self.branching == "chain":
            leaves = self.leaves(agents)
        elif isinstance(env, TeamWork):
            leaves = math.prod(self._width(len(step)) for step in env.schedule)
        else:  # agents in turn take the most steps; crossing agents at once gives as many
            leaves, about = self.num_candidates ** (agents * self.max_turns), "up to "
        return f"{self.pairing} joint actions, {self.branching}: {about}{leaves:,} leaves per task"

    async def sample(self, env: Environment[Any], task: Task, team: Team, seed: int) -> Rollout:
        start = env.reset(task)
        turns = dict.fromkeys(env.agents, 0)
        branch = await self._grow(env, team, task.id, seed, start, "", turns)
        return_ = branch.return_ or 0.0
        return Rollout(task.id, branch.groups, branch.success, return_, branch.error, branch.levels)

    def _width(self, num_agents: int) -> int:
        return self.num_candidates ** (num_agents if self.pairing == "cross" else 1)

    async def _grow(
        self,
        env: Environment[Any],
        team: Team,
        task: str,
        seed: int,
        state: Any,
        node: str,
        turns: Mapping[str, int],
    ) -> _Branch:
        """Everything from `state` on: this turn's groups, then each carried branch's in order."""
        acting = env.acting(state)
        if not acting or any(turns[agent] >= self.max_turns for agent in acting):
            return _Branch()
        keys = [GroupKey(task, agent, turns[agent], node) for agent in acting]
        asked = (team.ask(env, state, key, self.num_candidates, seed) for key in keys)
        groups = list(await asyncio.gather(*asked))
        remaining = self.max_turns - 1 - max(key.turn for key in keys)
        opened = await self._score(env, state, groups, remaining)
        if not opened:
            where = f"branch {node}" if node else "the first turn"
            return _Branch(groups, None, error=f"no joint action was scored in {where}")
        if self.branching == "chain":
            opened = [self._choose(opened, groups, seed)]
        after = {agent: turns[agent] + (agent in acting) for agent in turns}
        below = await asyncio.gather(
            *(
                self._grow(env, team, task, seed, o.step.state, o.joint.node, after)
                for o in opened
                if not o.over
            )
        )
        rest = iter(below)
        branches = [_Branch() if o.over else next(rest) for o in opened]
        returns = [
            o.joint.reward * (1 + o.joint.kept) + b.return_
            for o, b in zip(opened, branches)
            if b.return_ is not None
        ]
        first = branches[0]
        return _Branch(
            groups + [group for branch in branches for group in branch.groups],
            sum(returns) / len(returns) if returns else None,
            opened[0].solved or first.success,
            next((b.error for b in branches if b.error), None),
            {} if first.error else first.levels or dict(opened[0].step.outcome.levels),
        )

    async def _score(
        self, env: Environment[Any], state: Any, groups: Sequence[Group], remaining: int
    ) -> list[_Opened]:
        """The valid joint actions, of which the candidates are told."""
        size = range(self.num_candidates)
        if self.pairing == "cross":
            picks = list(itertools.product(size, repeat=len(groups)))
        else:
            picks = [(j,) * len(groups) for j in size]
        joints = [{g.key.agent: g.candidates[j] for g, j in zip(groups, pick)} for pick in picks]
        opened = []
        for pick, joint, step in zip(picks, joints, await score(env, state, joints)):
            if step is None:
                continue
            reward = _mean([r.team + r.local for r in (step.rewards[agent] for agent in joint)])
            if not math.isfinite(reward):
                for candidate in joint.values():
                    candidate.error = f"the joint reward is not a finite number: {reward}"
                continue
            threshold = self.termination_threshold
            reached = threshold is not None and step.outcome.judged and reward >= threshold
            known = step.outcome.remaining
            left = remaining if known is None else known
            kept = left if step.success or (reached and not step.done) else 0
            label = ".".join(map(str, pick if self.pairing == "cross" else pick[:1]))
            played = Joint(f"{groups[0].key.node}/{label}", reward, kept)
            opened.append(_Opened(pick, played, step, reached or step.done))
        _record(groups, opened)
        return opened

    def _choose(self, opened: Sequence[_Opened], groups: Sequence[Group], seed: int) -> _Opened:
        """The joint action that a chain carries on; its candidates are marked as selected."""
        best = max(o.joint.reward for o in opened)
        among = [o for o in opened if self.select == "random" or o.joint.reward == best]
        chosen = random.Random(derive_seed(seed, "select", groups[0].key)).choice(among)
        for group, j in zip(groups, chosen.pick):
            group.candidates[j].selected = True
        return chosen


def _record(groups: Sequence[Group], opened: Sequence[_Opened]) -> None:
    """Gives every candidate its joint actions, and the mean of their rewards."""
    for i, group in enumerate(groups):
        for j, candidate in enumerate(group.candidates):
            own = [o for o in opened if o.pick[i] == j]
            if own:
                given = [o.step.rewards[group.key.agent] for o in own]
                candidate.joints = tuple(o.joint for o in own)
                candidate.reward = _mean([o.joint.reward for o in own])
                candidate.reward_local = _mean([r.local for r in given])
                candidate.reward_team = _mean([r.team for r in given])
                candidate.judged = own[0].step.outcome.judged
                candidate.malformed = group.key.agent in own[0].step.malformed


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
