"""Joint sampling (MAGRPO): all agents of a turn answer at once, and joint actions are scored.

Each acting agent samples G answers to its own prompt. `aligned` pairs the j-th answers, `cross`
tries every combination. In a `tree` each joint action opens a branch with groups of its own; a
`chain` carries one on. A branch is named by the joint actions that led to it (`GroupKey.node`).
"""

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from teamtune.envs import Environment, TeamWork
from teamtune.errors import ConfigError
from teamtune.experience import Candidate, Joint, Rollout, Score, Turn
from teamtune.ranges import Finite, PositiveInt
from teamtune.rollout.sampler import Game, Played, Sampler, Team
from teamtune.seeds import derive_seed
from teamtune.tasks import Task

Pairing = Literal["aligned", "cross"]
Branching = Literal["tree", "chain"]


class JointSampler(Sampler):
    """G joint actions (or all combinations) per turn and branch (MAGRPO, arXiv 2508.04652).

    The joint reward is the mean over the acting agents of team + local: where all share the team
    reward and no local one is given, that reward. A joint action with a failed generation or
    transition is left out; an answer that is in no other one has reward None. A branch that ends
    early, at the threshold or in the environment's success, keeps its final reward for every
    remaining turn (of the environment where it says how many), so that finishing early never
    pays less than failing first. The rollout's `success` and `levels` are those of its first branch
    (one draw of the team, as good as any; in a chain the one carried on).
    """

    def __init__(
        self,
        num_candidates: PositiveInt = 4,
        max_turns: PositiveInt = 1,
        pairing: Pairing = "aligned",
        branching: Branching = "tree",
        select: Literal["best", "random"] = "best",
        termination_threshold: Finite | None = None,
    ):
        """
        Args:
            num_candidates: G, the answers of each agent to one prompt.
            max_turns: T, how often each agent acts at most.
            pairing: `aligned` scores the j-th answers together, `cross` all combinations.
            branching: `tree` goes on from every joint action, `chain` from one.
            select: Which joint action a chain carries on: the `best` (ties at random) or `random`.
            termination_threshold: A branch ends where the joint reward reaches this; null: never.
                Evaluation plays all turns, for a team in use does not know its reward.

        Raises:
            ConfigError: An option without effect.
        """
        if select == "random" and branching == "tree":
            raise ConfigError("select: got 'random', allowed with branching tree (all go on): best")
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
        return len(self.pairs(num_agents)) ** turns

    def describe(self, env: Environment[Any]) -> str:
        agents, about = len(env.agents), ""
        if self.branching == "chain":
            leaves = self.leaves(agents)
        elif isinstance(env, TeamWork):
            leaves = math.prod(len(self.pairs(len(step))) for step in env.schedule)
        else:  # agents in turn take the most steps; crossing agents at once gives as many
            leaves, about = self.num_candidates ** (agents * self.max_turns), "up to "
        return f"{self.pairing} joint actions, {self.branching}: {about}{leaves:,} leaves per task"

    async def sample(
        self, env: Environment[Any], task: Task, team: Team, seed: int
    ) -> list[Rollout]:
        game = Game(env, task, team, seed)
        first = await self.grow(game, env.reset(task))
        found = _found(first)
        rollout = Rollout(
            task.id, first, found.success, found.return_ or 0.0, found.error, found.levels
        )
        return [rollout]

    def pairs(self, agents: int) -> list[tuple[int, ...]]:
        if self.pairing == "aligned":
            return super().pairs(agents)
        return list(itertools.product(range(self.num_candidates), repeat=agents))

    def opens(self, node: str, joint: Joint) -> str:
        picks = joint.picks if self.pairing == "cross" else joint.picks[:1]
        return f"{node}/{'.'.join(map(str, picks))}"

    def score(self, turn: Turn, played: Sequence[Played]) -> list[Played]:
        counted = []
        for p in played:
            if math.isfinite(p.joint.reward):
                counted.append(p)
                continue
            for candidate in _team(turn, p.joint):
                candidate.fail(f"the joint reward is not a finite number: {p.joint.reward}")
        for i, group in enumerate(turn.groups):
            for j, candidate in enumerate(group.candidates):
                own = [p for p in counted if p.joint.picks[i] == j]
                if own:
                    candidate.settle(_mean_score(own, group.key.agent))
        return counted

    async def carry(
        self, game: Game, turn: Turn, played: Sequence[Played], left: int
    ) -> list[Played]:
        if not played:
            node = turn.groups[0].key.node
            where = f"branch {node}" if node else "the first turn"
            turn.error = f"no joint action was scored in {where}"
            return []
        for p in played:
            self._end(p, left)
        if self.branching == "tree":
            return list(played)
        best = max(p.joint.reward for p in played)
        among = [p for p in played if self.select == "random" or p.joint.reward == best]
        seed = derive_seed(game.seed, "select", turn.groups[0].key)
        chosen = random.Random(seed).choice(among)
        for candidate in _team(turn, chosen.joint):
            candidate.selected = True
        return [chosen]

    def _end(self, played: Played, left: int) -> None:
        """Ends the branch where the reward reaches the threshold, and keeps what it earned."""
        joint, step = played.joint, played.step
        threshold = self.termination_threshold
        judged = step.outcome.judged
        reached = threshold is not None and judged and joint.reward >= threshold
        known = step.outcome.remaining
        if step.success or (reached and not step.done):
            joint.kept = left if known is None else known
        joint.over = reached or step.done
        if joint.over and step.outcome.solved and not step.success:
            joint.success, joint.progress = True, joint.progress + 1


def _team(turn: Turn, joint: Joint) -> list[Candidate]:
    return [group.candidates[j] for group, j in zip(turn.groups, joint.picks)]


def _mean_score(played: Sequence[Played], agent: str) -> Score:
    given = [p.joint.rewards[agent] for p in played]
    return Score(
        reward=_mean([p.joint.reward for p in played]),
        local=_mean([r.local for r in given]),
        team=_mean([r.team for r in given]),
        judged=played[0].step.outcome.judged,
        malformed=agent in played[0].step.malformed,
    )


@dataclass
class _Branch:
    """What lies below a state; `return_` is None where a failure hides it."""

    return_: float | None = 0.0
    success: bool = False
    error: str | None = None
    levels: dict[str, float] = field(default_factory=dict)


def _found(turn: Turn | None) -> _Branch:
    if turn is None:
        return _Branch()
    if turn.error is not None:
        return _Branch(None, error=turn.error)
    below = [_found(joint.opens) for joint in turn.carried]
    returns = [
        joint.progress + branch.return_
        for joint, branch in zip(turn.carried, below)
        if branch.return_ is not None
    ]
    first, played = below[0], turn.carried[0]
    return _Branch(
        _mean(returns) if returns else None,
        played.success or first.success,
        next((branch.error for branch in below if branch.error), None),
        {} if first.error else first.levels or dict(played.levels),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
