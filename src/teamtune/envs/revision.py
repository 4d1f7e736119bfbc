"""Answer, see what came of it, answer again: roles that work side by side until they agree.

What answers are worth and what agents hear of them, environments add. An episode ends where the
agents agree, which they can see, or after its last turn; never because it is solved, which a team
in use does not know.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from teamtune.envs.answers import answer_of
from teamtune.envs.environment import Environment, Message, Outcome, Reward, Transition
from teamtune.envs.prompts import Prompts
from teamtune.errors import ConfigError
from teamtune.ranges import PositiveInt
from teamtune.tasks import Task


@dataclass(frozen=True, slots=True)
class Marks:
    """What came of one turn's answers."""

    team: float = 0.0
    """What the team's answer is worth, 0 to 1; 1 solves the task."""
    local: Mapping[str, float] = field(default_factory=dict)
    """What each agent's own answer is worth, 0 to 1, where that is a part of the return."""
    shaping: Mapping[str, float] = field(default_factory=dict)
    """The same where it is none, for nothing that solves the task follows from it."""
    malformed: tuple[str, ...] = ()
    agreed: bool = False
    told: Mapping[str, Any] = field(default_factory=dict)
    """The prompts' variables that tell the next turn of this one."""


@dataclass(frozen=True, slots=True)
class RevisionState:
    """A task, how many turns are over, and what came of the last one."""

    task: Task
    turn: int = 0
    marks: Marks = Marks()


class AnswerAndRevise(Environment[RevisionState]):
    """All roles answer at once, turn by turn; each turn's answers replace those before.

    Phi is the worth of the team's latest answer. Rewards are what a turn changed: team and local
    ones of an episode add up to what its last answers are worth, so that nothing is paid twice, and
    within a group, whose candidates share the turn before, they are that worth less a constant.
    Environments see to it that team + local, a mean over the agents, is worth less where the task
    is not solved than where it is, whatever else the answers are.
    """

    reward_range = (-1.0, 1.0)

    def __init__(self, roles: tuple[str, ...], turns: PositiveInt, prompts: Path):
        """
        Args:
            roles: Who answers.
            turns: Most turns of an episode.
            prompts: Folder with one Jinja template per role.

        Raises:
            ConfigError: No role, one role twice, or a missing template.
        """
        if not roles or len(set(roles)) < len(roles):
            raise ConfigError(f"roles: got {list(roles)}, allowed: one or more, each once")
        self.agents = roles
        self.turns = turns
        self.schedule = (roles,) * turns
        self.prompts = Prompts(prompts, roles)

    @abstractmethod
    async def judge(self, task: Task, answers: Mapping[str, str]) -> Marks:
        """What each agent's text, its thought left out, is worth; never raises for any text."""

    @abstractmethod
    def describe(self, task: Task) -> Mapping[str, Any]:
        """The prompts' variables that tell the task; `told` and `alone` come on top."""

    def reset(self, task: Task) -> RevisionState:
        return RevisionState(task)

    def acting(self, state: RevisionState) -> tuple[str, ...]:
        return () if state.marks.agreed or state.turn == self.turns else self.agents

    def observe(self, state: RevisionState, agent: str) -> list[Message]:
        told = {"told": state.marks.told if state.turn else None, "alone": len(self.agents) == 1}
        return self.prompts.render(agent, {**self.describe(state.task), **told})

    def potential(self, state: RevisionState) -> float:
        return state.marks.team

    async def transition(
        self, state: RevisionState, actions: Mapping[str, str]
    ) -> Transition[RevisionState]:
        before = state.marks
        answers = {agent: answer_of(actions[agent]) or "" for agent in self.agents}
        marks = await self.judge(state.task, answers)
        rewards = {
            agent: Reward(
                local=marks.local.get(agent, 0.0) - before.local.get(agent, 0.0),
                team=marks.team - before.team,
                shaping=marks.shaping.get(agent, 0.0),
            )
            for agent in self.agents
        }
        after = RevisionState(state.task, state.turn + 1, marks)
        done, solved = not self.acting(after), marks.team == 1.0
        outcome = Outcome(solved=solved, remaining=0)  # a change is paid once
        return Transition(after, rewards, done, done and solved, marks.malformed, outcome)
