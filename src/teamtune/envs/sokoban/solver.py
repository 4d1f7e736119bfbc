"""Demonstrators for Sokoban: a solver with the fewest pushes, made worse on purpose."""

import random
from collections import deque
from collections.abc import Callable

from teamtune.envs.demonstrator import NoisyLists
from teamtune.envs.sokoban.environment import Sokoban, SokobanState
from teamtune.envs.sokoban.room import Room, pushes_left, walk

_MOVES = "UDLR"


class NoisySolver(NoisyLists):
    """Walks to push after push, `U R R`, up to the solution."""

    def plan(
        self, env: Sokoban, state: SokobanState, rng: random.Random, sure: Callable[[int], bool]
    ) -> list[str]:
        player, boxes, moves = state.player, state.boxes, list[str]()
        for index in range(self.length or env.max_moves):
            if moves and state.room.solved(boxes):
                break
            found = way_to_next_push(state.room, player, boxes) if sure(index) else ""
            move = found[0] if found else rng.choice(_possible(state.room, player, boxes))
            player, boxes = walk(state.room, player, boxes, move)
            moves.append(move)
        return moves


def way_to_next_push(room: Room, player: int, boxes: int) -> str:
    """The shortest way to a push that brings the end nearer, that push included.

    Empty where there is none: the room is solved, or cannot be.
    """
    left = pushes_left(room, player, boxes)
    ways, seen = deque([(player, "")]), {player}
    while ways and left:
        cell, way = ways.popleft()
        for move in _MOVES:
            after = walk(room, cell, boxes, move)
            if after[1] != boxes:
                if pushes_left(room, *after) == left - 1:
                    return way + move
            elif after[0] not in seen:
                seen.add(after[0])
                ways.append((after[0], way + move))
    return ""


def _possible(room: Room, player: int, boxes: int) -> list[str]:
    """The moves that change something; all where the player is shut in."""
    found = [move for move in _MOVES if walk(room, player, boxes, move)[0] != player]
    return found or list(_MOVES)
