"""Relay: a task that needs a team. Who sees the board can only talk; who walks sees little.

In each round the scouts say a few words, all at once, and the actor, who hears them, gives a list
of moves; where the scouts must be asked, it first says where it stands. Words move nothing.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from teamtune.envs.environment import Environment, Message, Outcome, Reward, Transition
from teamtune.envs.plan_path.board import MOVES, Cell, Grid, around, distances, is_free
from teamtune.envs.plan_path.environment import PlanPath, PlanPathState
from teamtune.envs.prompts import Prompts, folder_of
from teamtune.envs.proposal import PLANNER
from teamtune.envs.relay.words import Channel, Words, named_cell
from teamtune.errors import ConfigError
from teamtune.ranges import NonNegativeInt, PositiveInt, Share
from teamtune.seeds import derive_seed
from teamtune.tasks import Task

ACTOR = "actor"
Phase = Literal["ask", "tell", "move", "over"]
_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True)
class RelayState:
    """A position on a board, and what has been said in this round."""

    board: PlanPathState
    phase: Phase
    question: Words = ()
    """Empty where nothing was asked, or nothing that could be heard."""
    messages: tuple[Words, ...] = ()
    """One per scout, once they have spoken; an empty one could not be heard."""


class Relay(Environment[RelayState]):
    """Plan-Path, divided: who sees the way cannot walk, and who walks sees the cells around it.

    Rewards of the actor: local, the change of Phi; team, 1 when the goal is reached. A message
    moves nothing, so AT-GRPO, which compares candidates by their own successors, cannot tell two
    apart: such steps are not judged, and MAGRPO and GRPO train the scouts by what comes of them.

    With `code_book` words have a literal meaning. Then a message is told apart from others by the
    progress of playing it to the letter, and a question by that of the reply of a scout who
    believes it: would-be progress, which AT-GRPO can compare and no return counts.
    """

    def __init__(
        self,
        size: PositiveInt = 5,
        obstacle_probability: Share = 0.2,
        max_distance: PositiveInt | None = None,
        max_moves: PositiveInt = 4,
        sight: NonNegativeInt = 1,
        goal: Literal["known", "hidden"] = "hidden",
        scouts: NonNegativeInt = 1,
        asks: bool = False,
        words: list[str] | None = None,
        max_words: PositiveInt = 4,
        code_book: bool = False,
        prompts: str = "chat",
    ):
        """
        Args:
            size: Rows and columns of the board, 2 to 50.
            obstacle_probability: Chance of each cell to be an obstacle.
            max_distance: Longest way from start to goal on a generated board; null for any.
            max_moves: Longest list that is played; further moves of an answer are ignored.
            sight: How many cells the actor sees in every direction.
            goal: Whether the actor is told where the goal is.
            scouts: How many see the board, each an equal part of its rows; 0 leaves the actor
                alone.
            asks: The scouts do not see where the actor stands, so it speaks first in each round.
                It acts twice then, which counts for `max_turns`.
            words: What messages are made of, for tiny models; null for any words.
            max_words: How many words of a message arrive.
            code_book: Words have a literal meaning: those of a scout are moves, a question is the
                name of a cell, `row,column`, which is no one of `words`.
            prompts: `chat` (natural language), `compact` (words for tiny models), or a folder
                with one Jinja template per role.

        Raises:
            ConfigError: Options that do not go together.
        """
        if not scouts and (asks or code_book):
            raise ConfigError("scouts: got 0, allowed with asks or code_book: 1 or more")
        if scouts > size:
            raise ConfigError(f"scouts: got {scouts}, allowed with size {size}: {size} or fewer")
        if code_book and words is not None and not set(words) <= set(MOVES):
            raise ConfigError(f"words: got {words}, allowed with code_book: U, D, L, R, or null")
        self.rules = PlanPath(size, obstacle_probability, max_moves, "none", "compact")
        self.max_distance = max_distance
        self.sight = sight
        self.goal = goal
        self.asks = asks
        self.code_book = code_book
        self.channel = Channel(words, max_words)
        self.questions = Channel(None, 2) if code_book else self.channel
        self.scouts = tuple(f"scout_{i + 1}" for i in range(scouts)) if scouts > 1 else ("scout",)
        self.agents: tuple[str, ...] = (*self.scouts, ACTOR)
        self.phases: tuple[Phase, ...] = ("tell", "move")
        if not scouts:
            self.scouts, self.agents, self.phases = (), (ACTOR,), ("move",)
        elif asks:
            self.agents, self.phases = (ACTOR, *self.scouts), ("ask", "tell", "move")
        self.delayed = len(self.phases) > 1 and not code_book
        self.reward_range = (-float(max_moves), float(max_moves))
        self.prompts = Prompts(folder_of(Path(__file__).parent / "prompts", prompts), self.agents)

    def task(self, seed: int) -> Task:
        """The board that `seed` stands for: `grid` (rows of `.` and `#`), `start`, `goal`."""
        for attempt in range(_ATTEMPTS):
            data = self.rules.task(derive_seed("relay", seed, attempt)).data
            way = distances(tuple(data["grid"]), data["goal"])[data["start"]]
            if self.max_distance is None or way <= self.max_distance:
                return Task(f"relay-{seed}", data)
        raise ConfigError(
            f"max_distance: got {self.max_distance}, which {_ATTEMPTS} boards in a row exceed"
        )

    def reset(self, task: Task) -> RelayState:
        """The start of a task. Raises ValueError where the data are no solvable board."""
        return RelayState(self.rules.reset(task), self.phases[0])

    def acting(self, state: RelayState) -> tuple[str, ...]:
        if state.phase == "over":
            return ()
        return self.scouts if state.phase == "tell" else (ACTOR,)

    def observe(self, state: RelayState, agent: str) -> list[Message]:
        board = state.board
        told = self._actor_sees(board) if agent == ACTOR else self._scout_sees(board, agent)
        told |= {
            "height": len(board.grid),
            "width": len(board.grid[0]),
            "max_moves": self.rules.max_moves,
            "max_words": self.channel.max_words,
            "words": self.channel.words,
            "code_book": self.code_book,
            "asks": self.asks,
            "phase": state.phase,
            "question": state.question,
            "messages": dict(zip(self.scouts, state.messages)),
            "scouts": self.scouts,
        }
        return self.prompts.render(agent, told)

    def _actor_sees(self, board: PlanPathState) -> dict[str, Any]:
        """Its place, the cells around it, and the goal where it is known."""
        far, sight = (len(board.grid), len(board.grid[0])), range(-self.sight, self.sight + 1)
        view = around(board.grid, board.cell, far)
        middle, center = len(view) // 2, len(view[0]) // 2
        near = tuple("".join(_mark(view, middle + r, center + c) for c in sight) for r in sight)
        return {
            "view": near,
            "place": board.cell,
            "goal": board.goal if self.goal == "known" else None,
        }

    def _scout_sees(self, board: PlanPathState, agent: str) -> dict[str, Any]:
        """Its part of the board, the actor's place unless it must ask, the goal if in its part.

        `view` is the same part turned by `around`: what of it is seen from the actor's place, or
        else from the first cell, with the goal ahead.
        """
        grid = self.part(board.grid, agent)
        goal = board.goal if is_free(grid, board.goal) else None
        place = None if self.asks else board.cell
        middle = place or (0, 0)
        return {
            "grid": grid,
            "place": place,
            "goal": goal,
            "view": around(grid, middle, goal or middle),
        }

    def part(self, grid: Grid, scout: str) -> Grid:
        """The board as a scout sees it, with `?` for the cells of the others' parts."""
        own, count = self.scouts.index(scout), len(self.scouts)
        return tuple(
            row if r * count // len(grid) == own else "?" * len(row) for r, row in enumerate(grid)
        )

    def potential(self, state: RelayState) -> float:
        return self.rules.potential(state.board)

    def draw(self, state: RelayState) -> str:
        """The board, and below it what has been said."""
        said = {ACTOR: state.question, **dict(zip(self.scouts, state.messages))}
        spoken = [f"{agent}: {' '.join(words)}" for agent, words in said.items() if words]
        return "\n".join([self.rules.draw(state.board), *spoken])

    async def transition(
        self, state: RelayState, actions: Mapping[str, str]
    ) -> Transition[RelayState]:
        if state.phase == "move":
            return await self._move(state, actions[ACTOR])
        heard, rewards = {}, {}
        for agent in self.acting(state):
            heard[agent], rewards[agent] = await self._say(state, actions[agent])
        words = tuple(said or () for said in heard.values())
        if state.phase == "ask":
            after = replace(state, phase="tell", question=words[0])
        else:
            after = replace(state, phase="move", messages=words)
        malformed = tuple(agent for agent, said in heard.items() if said is None)
        outcome = Outcome(judged=self.code_book)
        return Transition(after, rewards, malformed=malformed, outcome=outcome)

    async def _say(self, state: RelayState, text: str) -> tuple[Words | None, Reward]:
        """What of an answer arrives, and by a code book its would-be progress."""
        asking = state.phase == "ask"
        words = (self.questions if asking else self.channel).carried(text)
        if words is None or not self.code_book:
            return words, Reward()
        moves = self._reply(state.board, words) if asking else " ".join(words)
        if moves == "":  # no way leads from the cell that is asked about
            return words, Reward()
        played = await self.rules.transition(state.board, {PLANNER: moves or "nothing"})
        if played.malformed:
            return None, Reward()
        return words, Reward(shaping=played.rewards[PLANNER].local)

    def _reply(self, board: PlanPathState, question: Words) -> str | None:
        """What a scout who believes a question says; None where it names no cell of the board."""
        cell = named_cell(question)
        if cell is None or not (cell[0] < len(board.grid) and cell[1] < len(board.grid[0])):
            return None
        return shortest_way(board.grid, cell, board.goal)[: self.channel.max_words]

    async def _move(self, state: RelayState, text: str) -> Transition[RelayState]:
        played = await self.rules.transition(state.board, {PLANNER: text})
        after = RelayState(played.state, "over" if played.done else self.phases[0])
        malformed = (ACTOR,) if played.malformed else ()
        rewards = {ACTOR: played.rewards[PLANNER]}
        return Transition(after, rewards, played.done, played.success, malformed)

    def sample_actions(self, state: RelayState, agent: str) -> list[str]:
        rng = random.Random(repr(state))
        if state.phase == "move":
            return self.rules.sample_actions(state.board, PLANNER)
        if state.phase == "ask" and self.code_book:
            rows, columns = range(len(state.board.grid)), range(len(state.board.grid[0]))
            return [f"{r},{c}" for r in rows for c in columns]
        words = self.channel.words or tuple(MOVES)
        lengths = range(1, self.channel.max_words + 1)
        return [" ".join(rng.choices(words, k=rng.choice(lengths))) for _ in range(8)]


def _mark(view: Grid, row: int, column: int) -> str:
    inside = 0 <= row < len(view) and 0 <= column < len(view[0])
    return view[row][column] if inside else "#"


def shortest_way(grid: Grid, cell: Cell, goal: Cell) -> str:
    """The first of the shortest lists of moves to `goal`; empty where none leads there."""
    to_goal, moves = distances(grid, goal), ""
    while to_goal.get(cell):
        for move, delta in MOVES.items():
            ahead = (cell[0] + delta[0], cell[1] + delta[1])
            if to_goal.get(ahead) == to_goal[cell] - 1:
                moves, cell = moves + move, ahead
                break
    return moves
