"""The record of what was sampled: a tree that samplers write and everybody else reads.

A Rollout is one task's tree of Turns. A Turn has a Group per acting agent, the joint actions that
were scored, and below each that was carried on the Turn it opened.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from teamtune.envs import Reward
from teamtune.inference import Completion

Status = Literal["unscored", "scored", "failed", "excused"]
"""`failed`: generation or scoring broke, the reason says how. `excused`: no fault of the answer,
for its prompt, or that of an agent beside it, had no room. Only `scored` ones have rewards."""


@dataclass(frozen=True)
class GroupKey:
    """What identifies a group. `turn` counts from 0 how often the agent has acted."""

    task: str
    agent: str
    turn: int
    node: str = ""
    """Which state of that turn, where a task has more than one: the joint actions that led to it,
    or the episode."""


@dataclass(frozen=True)
class Score:
    """What a scored candidate got, as its sampler compares it."""

    reward: float
    local: float
    """Shaping included, where the sampler compares by it."""
    team: float
    judged: bool = True
    """False where only later steps tell what it was worth; its rewards are 0 then."""
    malformed: bool = False
    """Whether it held nothing that the environment could use."""


@dataclass
class Candidate:
    """One answer to a group's prompt: a completion, its status and score, and its credit."""

    completion: Completion
    status: Status = "unscored"
    score: Score | None = None
    reason: str | None = None
    """Why it failed or is excused."""
    selected: bool = False
    """Whether it was carried on, where a sampler chooses."""
    advantage: float | Sequence[float] | None = None
    """For all its tokens, or one per token; None until credit is assigned."""
    return_: float | None = None
    """What an algorithm compared, where that is not the reward."""
    weight: float = 1.0
    """How much each of its tokens counts in the loss; an algorithm sets it with the advantage."""

    @property
    def text(self) -> str:
        """The answer, without special tokens."""
        return self.completion.text

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The sampled ids, the end token among them."""
        return self.completion.token_ids

    @property
    def sampling_logprobs(self) -> tuple[float, ...]:
        """As many, under the distribution that they were drawn from."""
        return self.completion.logprobs

    @property
    def reward(self) -> float | None:
        """What the sampler compares; None unless scored, as the two below."""
        return None if self.score is None else self.score.reward

    @property
    def reward_local(self) -> float | None:
        """The agent's own part."""
        return None if self.score is None else self.score.local

    @property
    def reward_team(self) -> float | None:
        """The team's part."""
        return None if self.score is None else self.score.team

    @property
    def credited(self) -> bool:
        """Whether any of its tokens has an advantage other than 0."""
        if isinstance(self.advantage, Sequence):
            return any(self.advantage)
        return bool(self.advantage)

    def settle(self, score: Score) -> None:
        """It has rewards."""
        self.status, self.score, self.reason = "scored", score, None

    def fail(self, reason: str) -> None:
        """It has no reward, and it, its agent or the environment is to blame."""
        self.status, self.score, self.reason = "failed", None, reason

    def excuse(self, reason: str) -> None:
        """It has no reward, and nobody is to blame."""
        self.status, self.score, self.reason = "excused", None, reason


@dataclass
class Group:
    """The candidates that answered one prompt, with identical `prompt_ids`, of one policy."""

    key: GroupKey
    policy: str
    prompt: str
    prompt_ids: tuple[int, ...]
    candidates: list[Candidate]

    @property
    def spread(self) -> float:
        """Largest minus smallest reward; 0 where fewer than two candidates were scored."""
        rewards = [c.reward for c in self.candidates if c.reward is not None]
        return max(rewards) - min(rewards) if len(rewards) > 1 else 0.0

    def __str__(self) -> str:
        branch = f" | branch {self.key.node}" if self.key.node else ""
        head = f"{self.key.task} | {self.key.agent} | turn {self.key.turn}{branch}"
        head += f" | policy {self.policy}"
        lines = [head, "  > " + self.prompt.replace("\n", "\n  > ")]
        for c in self.candidates:
            reward = c.status if c.reward is None else f"{c.reward:+.3f}"
            credit = f" A {c.advantage:+.3f}" if isinstance(c.advantage, float) else ""
            mark = "*" if c.selected else " "
            lines.append(f"  {mark} {reward}{credit} [{c.completion.stop_reason}] {c.text!r}")
        return "\n".join(lines)


@dataclass(eq=False)
class Joint:
    """A joint action that was played: one candidate of each group of its turn."""

    picks: tuple[int, ...]
    """The candidate's index in each group."""
    after: Any
    """The state that it led to."""
    rewards: Mapping[str, Reward]
    """By agent."""
    progress: float
    """Change of the environment's potential, plus 1 where it solved the task."""
    success: bool = False
    levels: Mapping[str, float] = field(default_factory=dict)
    """Of its reward, where that has levels."""
    over: bool = False
    """Whether the episode ends with it."""
    kept: int = 0
    """For how many turns more its reward counts, where the branch ended early."""
    compared: bool = True
    """False for a combination that was only carried on: no candidate is rewarded for it."""
    carried: bool = False
    """Whether the episode went on (or ended) with it."""
    opens: "Turn | None" = None
    """The turn that followed."""

    @property
    def reward(self) -> float:
        """The mean over the agents of team + local: the joint reward where all share one."""
        given = [r.team + r.local for r in self.rewards.values()]
        return math.fsum(given) / len(given)


@dataclass(eq=False)
class Turn:
    """One step of the game from one state: who was asked what, and what was played."""

    state: Any
    """The environment's; immutable."""
    groups: list[Group]
    joints: list[Joint] = field(default_factory=list)
    error: str | None = None
    """Why nothing was carried on."""

    def __iter__(self) -> Iterator["Turn"]:
        """This turn and all below it, a branch's turns before the next branch's."""
        pending = [self]
        while pending:
            turn = pending.pop()
            yield turn
            pending += [j.opens for j in reversed(turn.joints) if j.opens is not None]

    @property
    def carried(self) -> list[Joint]:
        """The joint actions with which the episode went on or ended, branch by branch."""
        return [joint for joint in self.joints if joint.carried]

    def joints_of(self, group: int, candidate: int) -> list[Joint]:
        """The joint actions that a candidate is compared by."""
        return [j for j in self.joints if j.compared and j.picks[group] == candidate]


@dataclass
class Rollout:
    """One task's tree and its outcome, or one of several episodes of a task."""

    task: str
    first: Turn | None = None
    success: bool = False
    """Of the path in use: the carried one or, where all branches go on, the first."""
    return_: float = 0.0
    """Change of the environment's potential, plus 1 if solved; in a tree the mean of its branches,
    each drawn at random."""
    error: str | None = None
    """Why the episode broke off: nothing of a turn could be played."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """Of its last reward, where the environment's rewards have levels."""
    episode: int = 0
    """Which of the task's whole episodes it is."""

    @property
    def turns(self) -> list[Turn]:
        """All of them, in the order of play."""
        return [] if self.first is None else list(self.first)

    @property
    def groups(self) -> list[Group]:
        """All of them, in the order of play."""
        return [group for turn in self.turns for group in turn.groups]

    @property
    def candidates(self) -> list[Candidate]:
        """All of them, in the order of play."""
        return [candidate for group in self.groups for candidate in group.candidates]

    @property
    def too_long(self) -> bool:
        """Whether a prompt left no room for an answer."""
        return any(c.completion.stop_reason == "too_long" for c in self.candidates)

    @property
    def tokens(self) -> int:
        """Generated tokens, all candidates."""
        return sum(len(c.token_ids) for c in self.candidates)

    def __str__(self) -> str:
        outcome = "solved" if self.success else "not solved"
        head = f"== {self.task}: {outcome}, return {self.return_:+.3f}"
        return "\n".join([head, *map(str, self.groups)])


def count_tokens(rollouts: Sequence[Rollout]) -> int:
    """Tokens that were generated for `rollouts`."""
    return sum(r.tokens for r in rollouts)


def groups_of(rollouts: Sequence[Rollout]) -> list[Group]:
    """All groups, in the order of rollouts and of play."""
    return [group for rollout in rollouts for group in rollout.groups]
