"""Teams with one joint reward: a workflow says who acts when and which answers an agent may see.

What the work is, environments add: roles, prompts, and how a joint answer is judged. A workflow is
a list of steps, each the agents that answer at once; all else follows from it.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from teamtune.envs.answers import answer_of
from teamtune.envs.environment import Environment, Message, Outcome, Reward, Transition
from teamtune.envs.prompts import Prompts
from teamtune.ranges import PositiveInt
from teamtune.tasks import Task

Workflow = Literal["parallel", "single", "sequential", "discussion"]
SOLO = "solo"
"""The only agent of the workflow `single`; it does the work of all roles."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a joint answer is worth."""

    levels: Mapping[str, float]
    """Every level of the joint reward by name, and their sum as `total`."""
    success: bool
    feedback: Mapping[str, str] = field(default_factory=dict)
    """What each agent is told about it before a further turn."""


@dataclass(frozen=True, slots=True)
class TeamState:
    """A task and the answers so far, one entry per step: the (agent, text) pairs given at once."""

    task: Task
    steps: tuple[tuple[tuple[str, str], ...], ...] = ()
    share: float = 0.0
    """Of the largest joint reward, what the latest joint answer got."""
    feedback: tuple[tuple[str, str], ...] = ()
    """(agent, text) pairs about the latest joint answer."""


def round_of(workflow: Workflow, roles: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The steps that lead to one joint answer, each the agents that act in it.

    `parallel`: all at once. `single`: one agent for all roles. `sequential`: one after the other.
    `discussion`: all at once, then all at once again, to revise.
    """
    return {
        "parallel": (roles,),
        "single": ((SOLO,),),
        "sequential": tuple((role,) for role in roles),
        "discussion": (roles, roles),
    }[workflow]


class TeamWork(Environment[TeamState]):
    """A task that a team solves by one joint answer per turn, a text from each role.

    An agent always sees its own earlier answers. Those of others it sees in `sequential` and
    `discussion`, once their step is over; in `parallel` never. Of an answer only what follows the
    thought is seen and judged; one whose thought does not end is empty. All agents that complete a
    joint answer get its reward as `team`, those of earlier steps 0. Phi is the latest joint reward
    as a share of the maximum.
    """

    schedule: tuple[tuple[str, ...], ...]
    """Who acts in each step of an episode."""
    maxima: Mapping[str, float]
    """The largest value of each level of the joint reward."""
    shares: Mapping[str, tuple[str, ...]] = {}
    """Levels that are reported together, as a share of their common maximum, by name."""

    def __init__(
        self,
        roles: tuple[str, ...],
        workflow: Workflow,
        prompts: Path,
        maxima: Mapping[str, float],
        turns: PositiveInt = 1,
    ):
        """
        Args:
            roles: Whose texts make up a joint answer, in the order in which they are joined.
            workflow: Who acts when: `parallel`, `single`, `sequential` or `discussion`.
            prompts: Folder with one Jinja template per agent.
            maxima: The largest value of each level of the joint reward, by name; the smallest is 0.
            turns: Joint answers per episode.

        Raises:
            ConfigError: A missing template.
        """
        self.roles = roles
        self.workflow = workflow
        self.round = round_of(workflow, roles)
        self.turns = turns
        self.schedule = self.round * turns
        self.delayed = len(self.round) > 1
        self.agents = (SOLO,) if workflow == "single" else roles
        self.maxima = dict(maxima)
        self.maximum = sum(maxima.values())
        self.reward_range = (0.0, self.maximum)
        self.prompts = Prompts(prompts, self.agents)

    @abstractmethod
    async def judge(self, task: Task, answers: Mapping[str, str], last: bool) -> Verdict:
        """The worth of a joint answer, given each role's text; never raises for any text.

        An exception is a failure of the environment's own, and no reward. After the `last` answer
        nobody hears feedback.
        """

    @abstractmethod
    def split(self, text: str) -> dict[str, str]:
        """Each role's part of a text that one agent wrote for all; empty where it has none."""

    def is_malformed(self, agent: str, text: str) -> bool:
        """Whether an answer lacks the part of a role that `agent` writes."""
        parts = self.split(text) if agent == SOLO else {agent: text}
        return not all(part.strip() for part in parts.values())

    def describe(self, task: Task) -> Mapping[str, Any]:
        """The prompts' variables that tell the task."""
        return task.data

    def reset(self, task: Task) -> TeamState:
        return TeamState(task)

    def acting(self, state: TeamState) -> tuple[str, ...]:
        done = len(state.steps)
        return () if done == self.turns * len(self.round) else self.round[done % len(self.round)]

    def seen(self, state: TeamState, agent: str) -> dict[str, str]:
        """The latest answer of every agent whose answers `agent` may see, its own among them."""
        latest = {name: text for step in state.steps for name, text in step}
        if self.workflow in ("sequential", "discussion"):
            return latest
        return {name: text for name, text in latest.items() if name == agent}

    def observe(self, state: TeamState, agent: str) -> list[Message]:
        others = self.seen(state, agent)
        own = others.pop(agent, None)
        feedback = dict(state.feedback).get(agent)
        values = {"own": own, "others": others, "feedback": feedback}
        return self.prompts.render(agent, {**self.describe(state.task), **values})

    def potential(self, state: TeamState) -> float:
        return state.share

    async def transition(
        self, state: TeamState, actions: Mapping[str, str]
    ) -> Transition[TeamState]:
        given = tuple((agent, answer_of(actions[agent]) or "") for agent in self.acting(state))
        after = replace(state, steps=(*state.steps, given))
        malformed = tuple(agent for agent, text in given if self.is_malformed(agent, text))
        if len(after.steps) % len(self.round):
            unjudged = {agent: Reward() for agent in actions}
            return Transition(after, unjudged, False, False, malformed, Outcome(judged=False))
        latest = {name: text for step in after.steps for name, text in step}
        answers = self.split(latest[SOLO]) if self.workflow == "single" else latest
        done = not self.acting(after)
        verdict = await self.judge(state.task, answers, done)
        total = verdict.levels["total"]
        after = replace(
            after, share=total / self.maximum, feedback=tuple(sorted(verdict.feedback.items()))
        )
        rewards = {agent: Reward(team=total) for agent in actions}
        remaining = self.turns - len(after.steps) // len(self.round)
        outcome = Outcome(dict(verdict.levels), solved=verdict.success, remaining=remaining)
        return Transition(after, rewards, done, done and verdict.success, malformed, outcome)
