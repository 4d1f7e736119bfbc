"""The environment contract: a cooperative Dec-POMDP that holds rules and never an episode.

States are immutable values. `transition` maps a state and the acting agents' texts to a successor,
so scoring K candidates on K successors of one state needs no copying and cannot step a wrong board.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from teamtune.tasks import Task

State = TypeVar("State")
Message = dict[str, str]
"""`role` and `content`, as chat templates take it."""


@dataclass(frozen=True)
class Reward:
    """One agent's reward for one transition; AT-GRPO compares alpha * team + local + shaping."""

    local: float = 0.0
    team: float = 0.0
    shaping: float = 0.0
    """What only tells candidates of one group apart, such as a proposal's would-be progress; it is
    in no return."""


@dataclass(frozen=True)
class Outcome:
    """What a transition tells beside its rewards."""

    levels: Mapping[str, float] = field(default_factory=dict)
    """Where the reward has levels, the value of each, and their sum as `total`."""
    judged: bool = True
    """False where only later steps tell what this one was worth."""
    solved: bool = False
    """Whether the episode would be a success if it ended here."""
    remaining: int | None = None
    """How many more rewards like this one the episode has room for; None where it is unknown."""


@dataclass(frozen=True)
class Transition(Generic[State]):
    """What one (joint) action led to. `rewards` has an entry for every agent that acted.

    `success` is the environment's own verdict; running out of turns is never a success.
    `malformed` names the agents whose answers held nothing that could be used.
    """

    state: State
    rewards: Mapping[str, Reward]
    done: bool = False
    success: bool = False
    malformed: tuple[str, ...] = ()
    outcome: Outcome = field(default_factory=Outcome)


class Environment(ABC, Generic[State]):
    """Rules of one kind of task, for a fixed team of agents (roles)."""

    agents: tuple[str, ...]
    """Every role, in the order in which they first act."""
    reward_range: tuple[float, float] = (float("-inf"), float("inf"))
    """Bounds of `local` and of `team` each; `check_env` holds transitions to them."""
    delayed: bool = False
    """Whether an agent's step may be rewarded only by what later steps earn (not judged)."""

    def check(self) -> None:
        """Raises ConfigError where this machine cannot play it; asked before anything is written.

        Most environments need nothing but Python.
        """

    @abstractmethod
    def reset(self, task: Task) -> State:
        """The initial state of a task. Raises ValueError for malformed task data."""

    @abstractmethod
    def acting(self, state: State) -> tuple[str, ...]:
        """Who acts now: one agent in turn, several at once, none when the episode is over."""

    @abstractmethod
    def observe(self, state: State, agent: str) -> list[Message]:
        """The chat that `agent` sees in `state`."""

    @abstractmethod
    async def transition(self, state: State, actions: Mapping[str, str]) -> Transition[State]:
        """The successor for the texts of all acting agents; never raises for any text."""

    def potential(self, state: State) -> float:
        """Phi(state). An episode's return is the change of Phi plus 1 if it was solved."""
        return 0.0

    def draw(self, state: State) -> str:
        """The state as lines of text for a person, such as a board; empty where there is none."""
        return ""

    def sample_actions(self, state: State, agent: str) -> list[str]:
        """Well-formed answers that `check_env` tries in `state`; good and bad ones alike."""
        return []
