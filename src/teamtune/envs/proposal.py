"""Propose, then play: a first role proposes lists, a planner sees them and gives what is played.

What a list is and what it does to a board, environments add. The planner is paid by the change of
Phi that its list makes, the first role, whose lists move nothing, by the change each would make.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from teamtune.envs.answers import answer_of, code_of
from teamtune.envs.environment import Environment, Message, Reward, Transition
from teamtune.envs.prompts import Prompts
from teamtune.errors import ConfigError
from teamtune.sandbox import Sandbox

PLANNER, TOOL = "planner", "tool"
FirstRole = Literal["tool", "proposer", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalState:
    """Whose turn it is; environments add the board."""

    acting: tuple[str, ...]
    """Agents; none where the episode is over."""
    proposals: tuple[Any, ...] = ()
    """A list of each agent of the first role once they have acted; None of one who gave none."""


Board = TypeVar("Board", bound=ProposalState)
Plan = TypeVar("Plan")


class ProposeAndPlay(Environment[Board], Generic[Board, Plan]):
    """A board that a planner solves by lists, turn by turn, with or without a first role.

    An agent of the first role has its name, or where there are several `proposer_1` and so on: they
    act at once, and the planner sees what all of them say.

    Local reward of the planner: the change of Phi. Team reward: 1 when the board is solved. The
    first role's list moves nothing; its shaping is the progress the list would have made. A
    malformed answer leaves the board and earns nothing; so does a program that fails or prints no
    list. Programs run in a sandbox and may read the board, as `draw` has it.
    """

    def __init__(
        self,
        first_role: FirstRole,
        prompts: Path,
        sandbox: Sandbox | None = None,
        proposers: int = 1,
    ):
        """
        Args:
            first_role: `tool` answers with a program that prints a list; `proposer` with a list;
                `none` leaves the first role out.
            prompts: Folder with one Jinja template per role.
            sandbox: Where the tool's programs run; null takes the default limits.
            proposers: Agents of the first role.

        Raises:
            ConfigError: A sandbox where nothing runs in it, several of no role, or a missing
                template.
        """
        if sandbox is not None and first_role != TOOL:
            raise ConfigError(
                f"sandbox: allowed with first_role {first_role}: null (no programs run)"
            )
        if first_role == "none" and proposers != 1:
            raise ConfigError(f"proposers: got {proposers}, allowed with first_role none: 1")
        several = tuple(f"{first_role}_{i + 1}" for i in range(proposers))
        self.first = () if first_role == "none" else (first_role,) if proposers == 1 else several
        self.agents = (*self.first, PLANNER)
        self.beginning = self.first or (PLANNER,)
        self.sandbox = (sandbox or Sandbox()) if first_role == TOOL else None
        self.prompts = Prompts(prompts, self.agents)

    @abstractmethod
    def parse(self, state: Board, text: str) -> Plan | None:
        """The list in an answer, or in what a program prints; None where there is none."""

    @abstractmethod
    def play(self, state: Board, plan: Plan) -> Board:
        """The board after a list, at the beginning of a turn: `beginning` acts, no proposals."""

    @abstractmethod
    def solved(self, state: Board) -> bool:
        """Whether the board is solved."""

    def lost(self, state: Board) -> bool:
        """Whether the board can no longer be solved, which ends the episode."""
        return False

    @abstractmethod
    def describe(self, state: Board) -> Mapping[str, Any]:
        """The prompts' variables that tell the board; `proposals` and `alone` come on top."""

    @abstractmethod
    def sample_plans(self, state: Board) -> list[str]:
        """Lists as an agent would write them, good and bad ones alike."""

    def check(self) -> None:
        if self.sandbox is not None:
            _ = self.sandbox.protection  # which has to hold

    def acting(self, state: Board) -> tuple[str, ...]:
        return state.acting

    def observe(self, state: Board, agent: str) -> list[Message]:
        proposals = state.proposals if agent == PLANNER else ()
        told = {"proposals": proposals, "alone": not self.first}
        return self.prompts.render(agent, {**self.describe(state), **told})

    async def transition(self, state: Board, actions: Mapping[str, str]) -> Transition[Board]:
        if PLANNER in actions:
            return self._decided(state, self._plan(state, answer_of(actions[PLANNER])))
        plans = {agent: await self._proposed(state, text) for agent, text in actions.items()}
        after = replace(state, acting=(PLANNER,), proposals=tuple(plans.values()))
        rewards = {
            agent: Reward() if plan is None else Reward(shaping=self._progress(state, plan))
            for agent, plan in plans.items()
        }
        malformed = tuple(agent for agent, plan in plans.items() if plan is None)
        return Transition(after, rewards, malformed=malformed)

    def _decided(self, state: Board, plan: Plan | None) -> Transition[Board]:
        if plan is None:
            after = replace(state, acting=self.beginning, proposals=())
            return Transition(after, {PLANNER: Reward()}, malformed=(PLANNER,))
        played = self.play(state, plan)
        solved = self.solved(played)
        over = solved or self.lost(played)
        reward = Reward(local=self._progress(state, plan), team=float(solved))
        after = replace(played, acting=()) if over else played
        return Transition(after, {PLANNER: reward}, done=over, success=solved)

    async def _proposed(self, state: Board, text: str) -> Plan | None:
        """The list in an answer of the first role."""
        said = answer_of(text)
        if said is not None and self.sandbox is not None:
            result = await self.sandbox.run(code_of(said), self.draw(state) + "\n")
            said = result.stdout if result.status == "passed" else None
        return self._plan(state, said)

    def _plan(self, state: Board, said: str | None) -> Plan | None:
        return None if said is None else self.parse(state, said)

    def _progress(self, state: Board, plan: Plan) -> float:
        return self.potential(self.play(state, plan)) - self.potential(state)

    def sample_actions(self, state: Board, agent: str) -> list[str]:
        plans = self.sample_plans(state)
        programs = self.sandbox is not None and agent != PLANNER
        return [program_for(plan) for plan in plans] if programs else plans


def program_for(plan: str) -> str:
    """A tool's answer whose program prints `plan`."""
    return f"```python\nprint({plan!r})\n```"
