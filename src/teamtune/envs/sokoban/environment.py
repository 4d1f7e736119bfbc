"""Sokoban (Stronger-MAS): push every box onto a target, as a team of two.

Each turn the first role proposes a list of moves, or a program that prints one; the planner sees
the room and the proposal and gives the list that is played.
Phi = -(fewest pushes that are left) / (those of the start); a deadlock is worse than any position
from which the room can be solved.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from teamtune.envs.answers import moves_of
from teamtune.envs.prompts import folder_of
from teamtune.envs.proposal import FirstRole, ProposalState, ProposeAndPlay
from teamtune.envs.sokoban.room import (
    MAX_POSITIONS,
    Room,
    RoomTooLarge,
    draw_room,
    fewest_pushes,
    pushes_left,
    random_room,
    read_room,
    walk,
)
from teamtune.errors import ConfigError
from teamtune.ranges import PositiveInt, Share
from teamtune.sandbox import Sandbox
from teamtune.tasks import Task

SIZES = (4, 20)
"""Rows of the smallest and of the largest room that is made."""
_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True)
class SokobanState(ProposalState):
    """Where the player and the boxes are, as bits of a room's cells."""

    room: Room
    height: int
    """Rows of the room."""
    start: int
    """Pushes that the room needed at the start."""
    player: int
    boxes: int


class Sokoban(ProposeAndPlay[SokobanState, str]):
    """The paper's Sokoban task: rooms of 6 x 6 cells, walls around them included.

    Solved where every box is on a target. Walking into a box pushes it; a list ends at a move that
    is not possible, and when the room is solved. An episode ends in a deadlock, too.
    """

    def __init__(
        self,
        size: PositiveInt = 6,
        boxes: PositiveInt = 1,
        wall_probability: Share = 0.1,
        min_pushes: PositiveInt = 2,
        max_moves: PositiveInt = 10,
        first_role: FirstRole = "proposer",
        prompts: str = "chat",
        sandbox: Sandbox | None = None,
        proposers: PositiveInt = 1,
    ):
        """
        Args:
            size: Rows and columns of the room, the walls around it included, 4 to 20.
            boxes: Boxes of a room, and targets.
            wall_probability: Chance of each inner cell to be a wall.
            min_pushes: Pushes that a room needs at least.
            max_moves: Longest list that is played; further moves of an answer are ignored.
            first_role: `tool`, the paper's, answers with a program that prints a list; `proposer`
                with a list; `none` leaves the first role out.
            prompts: `chat` (natural language), `compact` (words for tiny models), or a folder
                with one Jinja template per role.
            sandbox: Where the tool's programs run; null takes the default limits.
            proposers: Agents of the first role, who act at once.

        Raises:
            ConfigError: A size out of its range, or a sandbox where nothing runs in it.
        """
        if not SIZES[0] <= size <= SIZES[1]:
            raise ConfigError(f"size: got {size}, allowed: {SIZES[0]} to {SIZES[1]}")
        folder = folder_of(Path(__file__).parent / "prompts", prompts)
        super().__init__(first_role, folder, sandbox, proposers)
        self.size = size
        self.boxes = boxes
        self.wall_probability = wall_probability
        self.min_pushes = min_pushes
        self.max_moves = max_moves
        self.reward_range = (-float(MAX_POSITIONS), float(MAX_POSITIONS))

    def task(self, seed: int) -> Task:
        """The room that `seed` stands for: `room`, rows of `#`, `.`, `$`, `@`, `x`, `*`, `+`.

        It is a position to which its boxes were pulled from the targets, so it can be solved.

        Raises:
            ConfigError: Nearly no room is as the settings want it, or none.
        """
        settings = (self.size, self.boxes, self.wall_probability, self.min_pushes)
        rng = random.Random(f"sokoban/{'/'.join(map(str, settings))}/{seed}")
        for _ in range(_ATTEMPTS):
            try:
                room = random_room(rng, *settings)
            except RoomTooLarge as error:
                raise ConfigError(
                    f"boxes: got {self.boxes} with size {self.size}: {error}"
                ) from error
            if room is not None:
                return Task(f"sokoban-{seed}", {"room": room})
        raise ConfigError(
            f"min_pushes: got {self.min_pushes}, which none of {_ATTEMPTS} rooms needed: size "
            f"{self.size}, boxes {self.boxes}, wall_probability {self.wall_probability}"
        )

    def reset(self, task: Task) -> SokobanState:
        """The start of a task. Raises ValueError where the data are no room that can be solved."""
        rows = task.data["room"]
        try:
            room, player, boxes = read_room(rows)
            start = pushes_left(room, player, boxes)
        except ValueError as error:
            raise ValueError(f"task {task.id}: {error}") from error
        if start is None:
            raise ValueError(f"task {task.id}: room cannot be solved")
        if not start:
            raise ValueError(f"task {task.id}: room is solved already")
        return SokobanState(room, len(rows), start, player, boxes, acting=self.beginning)

    def parse(self, state: SokobanState, text: str) -> str | None:
        return moves_of(text, self.max_moves)

    def play(self, state: SokobanState, plan: str) -> SokobanState:
        player, boxes = walk(state.room, state.player, state.boxes, plan)
        return SokobanState(
            state.room, state.height, state.start, player, boxes, acting=self.beginning
        )

    def solved(self, state: SokobanState) -> bool:
        return state.room.solved(state.boxes)

    def lost(self, state: SokobanState) -> bool:
        return pushes_left(state.room, state.player, state.boxes) is None

    def potential(self, state: SokobanState) -> float:
        left = pushes_left(state.room, state.player, state.boxes)
        return -(self._most(state) + 1 if left is None else left) / state.start

    def describe(self, state: SokobanState) -> Mapping[str, Any]:
        rows = self.draw(state).split("\n")
        inner = rows
        if set(rows[0] + rows[-1] + "".join(row[0] + row[-1] for row in rows)) == {"#"}:
            inner = [row[1:-1] for row in rows[1:-1]]
        return {
            "height": state.height,
            "width": state.room.width,
            "board": "\n".join(rows),
            "inner": inner,
            "boxes": state.boxes.bit_count(),
            "max_moves": self.max_moves,
        }

    def draw(self, state: SokobanState) -> str:
        """The room in the marks of a task's `room`."""
        return "\n".join(draw_room(state.room, state.height, state.player, state.boxes))

    def sample_plans(self, state: SokobanState) -> list[str]:
        rng = random.Random(repr((state.player, state.boxes)))
        lists = ["".join(rng.choices("UDLR", k=rng.randint(1, self.max_moves))) for _ in range(6)]
        return [*"UDLR", *lists]

    def _most(self, state: SokobanState) -> int:
        """Pushes of the position that is farthest from the end."""
        return fewest_pushes(state.room, state.boxes.bit_count()).most
