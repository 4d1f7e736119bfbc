"""Propose, then play: a first role proposes a list, a planner sees it and gives what is played.

What a list is and what it does to a board, environments add. The planner is paid by the change of
Phi that its list makes, the first role, whose list moves nothing, by the change that it would make.
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

    actor: str
    """Empty where the episode is over."""
    proposal: Any = None
    """The first role's list; None until it has acted, and where its answer held none."""


Board = TypeVar("Board", bound=ProposalState)
Plan = TypeVar("Plan")


class ProposeAndPlay(Environment[Board], Generic[Board, Plan]):
    """A board that a planner solves by lists, turn by turn, with or without a first role.

    Local reward of the planner: the change of Phi. Team reward: 1 when the board is solved. The
    first role's list moves nothing; its shaping is the progress the list would have made. A
    malformed answer leaves the board and earns nothing; so does a program that fails or prints no
    list. Programs run in a sandbox and may read the board, as `draw` has it.
    """

    def __init__(self, first_role: FirstRole, prompts: Path, sandbox: Sandbox | None = None):
        """
        Args:
            first_role: `tool` answers with a program that prints a list; `proposer` with a list;
                `none` leaves the first role out.
            prompts: Folder with one Jinja template per role.
            sandbox: Where the tool's programs run; null takes the default limits.

        Raises:
            ConfigError: A sandbox where nothing runs in it, or a missing template.
        """
        if sandbox is not None and first_role != TOOL:
            raise ConfigError(
                f"sandbox: allowed with first_role {first_role}: null (no programs run)"
            )
        self.agents = (PLANNER,) if first_role == "none" else (first_role, PLANNER)
        self.sandbox = (sandbox or Sandbox()) if first_role == TOOL else None
        self.prompts = Prompts(prompts, self.agents)

    @abstractmethod
    def parse(self, state: Board, text: str) -> Plan | None:
        """The list in an answer, or in what a program prints; None where there is none."""

    @abstractmethod
    def play(self, state: Board, plan: Plan) -> Board:
        """The board after a list, at the beginning of a turn: the first role acts, no proposal."""

    @abstractmethod
    def solved(self, state: Board) -> bool:
        """Whether the board is solved."""

    def lost(self, state: Board) -> bool:
        """Whether the board can no longer be solved, which ends the episode."""
        return False

    @abstractmethod
    def describe(self, state: Board) -> Mapping[str, Any]:
        """The prompts' variables that tell the board; `proposal` and `alone` come on top."""

    @abstractmethod
    def sample_plans(self, state: Board) -> list[str]:
        """Lists as an agent would write them, good and bad ones alike."""

    def check(self) -> None:
        if self.sandbox is not None:
            _ = self.sandbox.protection  # which has to hold

    def acting(self, state: Board) -> tuple[str, ...]:
        return (state.actor,) if state.actor else ()

    def observe(self, state: Board, agent: str) -> list[Message]:
        proposal = state.proposal if agent == PLANNER else None
        told = {"proposal": proposal, "alone": len(self.agents) == 1}
        return self.prompts.render(agent, {**self.describe(state), **told})

    async def transition(self, state: Board, actions: Mapping[str, str]) -> Transition[Board]:
        agent = state.actor
        said = answer_of(actions[agent])
        if said is not None and agent == TOOL:
            said = await self._printed(state, said)
        plan = None if said is None else self.parse(state, said)
        if plan is None:
            following = self.agents[0] if agent == PLANNER else PLANNER
            after = replace(state, actor=following, proposal=None)
            return Transition(after, {agent: Reward()}, malformed=(agent,))
        played = self.play(state, plan)
        progress = self.potential(played) - self.potential(state)
        if agent != PLANNER:
            after = replace(state, actor=PLANNER, proposal=plan)
            return Transition(after, {agent: Reward(shaping=progress)})
        solved = self.solved(played)
        over = solved or self.lost(played)
        reward = Reward(local=progress, team=float(solved))
        after = replace(played, actor="") if over else played
        return Transition(after, {agent: reward}, done=over, success=solved)

    def sample_actions(self, state: Board, agent: str) -> list[str]:
        plans = self.sample_plans(state)
        return plans if agent != TOOL else [program_for(plan) for plan in plans]

    async def _printed(self, state: Board, answer: str) -> str | None:
        """What the program in an answer prints; None where it fails."""
        assert self.sandbox is not None
        result = await self.sandbox.run(code_of(answer), self.draw(state) + "\n")
        return result.stdout if result.status == "passed" else None


def program_for(plan: str) -> str:
    """A tool's answer whose program prints `plan`."""
    return f"```python\nprint({plan!r})\n```"
