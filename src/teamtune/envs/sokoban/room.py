"""Sokoban rooms as bit boards: moves, and the fewest pushes from every position to the end.

A cell is a bit of an integer, counted row by row in a frame of walls; a set of cells is a sum of
bits, and a step to a neighbour a shift.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

MAX_POSITIONS = 20_000
"""Positions of boxes and player that are looked at in one room."""
_MARKS = "#.x$*@+"


class RoomTooLarge(ValueError):
    """The boxes of a room can stand in more positions than are looked at."""


@dataclass(frozen=True, slots=True)
class Room:
    """What does not move."""

    width: int
    """Cells of a row, without the frame."""
    floor: int
    targets: int

    def step(self, cells: int, move: str) -> int:
        """Every one of `cells`, moved on by one."""
        match move:
            case "U":
                return cells >> (self.width + 2)
            case "D":
                return cells << (self.width + 2)
            case "L":
                return cells >> 1
        return cells << 1

    def solved(self, boxes: int) -> bool:
        return not boxes & ~self.targets


@dataclass(frozen=True, slots=True)
class Pushes:
    """The fewest pushes that solve a room, from every position from which it can be solved."""

    left: dict[tuple[int, int], int]
    """By the boxes and the first cell of the region in which the player can walk."""
    most: int


def read_room(rows: Sequence[str]) -> tuple[Room, int, int]:
    """A room, its player and its boxes, from rows of `#`, `.`, `$`, `@`, `x`, `*` and `+`.

    Raises:
        ValueError: Other rows, not one player, no box, or fewer targets than boxes.
    """
    rows = list(rows)
    if not rows or not all(isinstance(row, str) and len(row) == len(rows[0]) > 0 for row in rows):
        raise ValueError("room must be equally long rows of text")
    text = "".join(rows)
    if unknown := set(text) - set(_MARKS):
        raise ValueError(f"room has {min(unknown)!r}, allowed: {' '.join(_MARKS)}")
    width = len(rows[0])

    def cells(marks: str) -> int:
        return sum(1 << _bit(width, i) for i, mark in enumerate(text) if mark in marks)

    player, boxes, targets = cells("@+"), cells("$*"), cells("x*+")
    if player.bit_count() != 1:
        raise ValueError(f"room must have one player, got {player.bit_count()}")
    if not 0 < boxes.bit_count() <= targets.bit_count():
        raise ValueError(
            f"room must have one or more boxes and a target for each, got {boxes.bit_count()} "
            f"boxes and {targets.bit_count()} targets"
        )
    return Room(width, cells(".x$*@+"), targets), player, boxes


def draw_room(room: Room, height: int, player: int, boxes: int) -> list[str]:
    """The rows of a room, as `read_room` takes them."""
    marks = []
    for index in range(height * room.width):
        cell = 1 << _bit(room.width, index)
        kinds = "*+x" if cell & room.targets else "$@."
        kind = kinds[0] if cell & boxes else kinds[1] if cell & player else kinds[2]
        marks.append(kind if cell & room.floor else "#")
    text = "".join(marks)
    return [text[i : i + room.width] for i in range(0, len(text), room.width)]


def walk(room: Room, player: int, boxes: int, moves: str) -> tuple[int, int]:
    """Player and boxes after a list of moves, which ends when the room is solved.

    A move against a wall, or against a box that cannot be pushed, ends the list as well.
    """
    for move in moves:
        ahead = room.step(player, move)
        pushed = ahead & boxes
        if pushed:
            beyond = room.step(ahead, move)
            if not beyond & room.floor & ~boxes:
                break
            boxes ^= ahead | beyond
        elif not ahead & room.floor:
            break
        player = ahead
        if pushed and room.solved(boxes):
            break
    return player, boxes


def region_of(room: Room, player: int, boxes: int) -> int:
    """The cells to which the player can walk without a push."""
    free, line, region = room.floor & ~boxes, room.width + 2, player
    while True:
        grown = region | region << 1 | region >> 1 | region << line | region >> line
        grown &= free
        if grown == region:
            return region
        region = grown


def pushes_left(room: Room, player: int, boxes: int) -> int | None:
    """The fewest pushes that solve the room, None for a deadlock. Raises RoomTooLarge."""
    region = region_of(room, player, boxes)
    return fewest_pushes(room, boxes.bit_count()).left.get((boxes, region & -region))


@lru_cache(maxsize=1024)
def fewest_pushes(room: Room, num_boxes: int) -> Pushes:
    """Searches backward, pulling boxes from the targets, breadth first. Raises RoomTooLarge."""
    left: dict[tuple[int, int], int] = {}
    pending: list[tuple[int, int]] = []
    reached: dict[int, int] = {}

    def add(boxes: int, player: int, pushes: int) -> None:
        if reached.get(boxes, 0) & player:
            return
        if len(left) == MAX_POSITIONS:
            raise RoomTooLarge(
                f"room has more than {MAX_POSITIONS} positions of {num_boxes} boxes and player"
            )
        region = region_of(room, player, boxes)
        reached[boxes] = reached.get(boxes, 0) | region
        left[boxes, region & -region] = pushes
        pending.append((boxes, region))

    for chosen in itertools.combinations(_bits(room.targets), num_boxes):
        boxes = sum(chosen)
        for player in _bits(room.floor & ~boxes):
            add(boxes, player, 0)
    for boxes, region in pending:  # grows
        pushes = left[boxes, region & -region] + 1
        for pull, back in ("UD", "DU", "LR", "RL"):
            beside = region & room.step(boxes, pull)  # where the player stands to pull
            for stand in _bits(beside & room.step(room.floor & ~boxes, back)):
                box = room.step(stand, back)
                add(boxes ^ box ^ stand, room.step(stand, pull), pushes)
    return Pushes(left, max(left.values()))


def random_room(
    rng: random.Random, size: int, num_boxes: int, wall_probability: float, min_pushes: int
) -> list[str] | None:
    """Rows of a room that `min_pushes` or more solve; None where the draw had no such position."""
    width = size
    inner = [r * width + c for r in range(1, size - 1) for c in range(1, size - 1)]
    floor = sum(1 << _bit(width, i) for i in inner if rng.random() >= wall_probability)
    if not floor:
        return None
    floor = region_of(Room(width, floor, 0), rng.choice(list(_bits(floor))), 0)
    cells = list(_bits(floor))
    if len(cells) < 2 * num_boxes + 1:
        return None
    room = Room(width, floor, sum(rng.sample(cells, num_boxes)))
    found = fewest_pushes(room, num_boxes).left
    positions = [key for key, pushes in found.items() if pushes >= min_pushes]
    if not positions:
        return None
    boxes, first = rng.choice(positions)
    player = rng.choice(list(_bits(region_of(room, first, boxes))))
    return draw_room(room, size, player, boxes)


def _bit(width: int, index: int) -> int:
    """The bit of a cell, counted without the frame."""
    row, column = divmod(index, width)
    return (row + 1) * (width + 2) + column + 1


def _bits(cells: int) -> Iterator[int]:
    while cells:
        yield cells & -cells
        cells &= cells - 1
